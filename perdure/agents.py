"""Agents from YAML (contract section 8), checked against the announced tools before they are applied."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any

import msgspec
import yaml

from perdure.schemas import codec
from perdure.schemas.canonical import canonical
from perdure.schemas.errors import RecordError
from perdure.schemas.records import (
    AgentSpec,
    ApprovalRule,
    BudgetPolicy,
    Checkpoint,
    ModelSpec,
    Person,
    RetryPolicy,
    ToolSpec,
    Window,
)
from perdure.streams.core import cel
from perdure.streams.core.arguments import properties
from perdure.streams.core.policies.approval import ALLOWED, POLICY_MAY


class AgentsError(Exception):
    """The file can't be applied; the text says where and what to do."""


def read_agents(path: Path) -> tuple[list[AgentSpec], list[str]]:
    """The agents of a file, and a sentence for each setting that has no effect.

    Raises `AgentsError`.
    """
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise AgentsError(f"{path} can't be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise AgentsError(f"{path} is not YAML: {error}") from error
    if (
        not isinstance(found, dict)
        or not isinstance(found.get("agents"), dict)
        or not found["agents"]
    ):
        raise AgentsError(f"{path}: needs `agents:` with at least one agent under it")
    unknown = set(found) - {"agents", "people"}
    if unknown:
        raise AgentsError(f"{path}: unknown: {', '.join(sorted(unknown))}; known: agents, people")
    people = found.get("people") or {}
    agents = [_agent(path, str(name), plain, people) for name, plain in found["agents"].items()]
    _known_people(f"{path}: people", people)
    idle: list[str] = []
    for name, plain in found["agents"].items():
        idle += _idle(f"agents.{name}", plain)
    return agents, [f"{path}: {told}" for told in idle]


def _agent(path: Path, name: str, plain: Any, people: dict[str, Any]) -> AgentSpec:
    where = f"{path}: agents.{name}"
    if not isinstance(plain, dict):
        raise AgentsError(f"{where}: must be an object")
    _known_fields(where, plain, AgentSpec)
    try:
        agent = codec.convert({"people": people, **plain, "name": name}, AgentSpec)
        canonical(agent)
    except RecordError as error:
        raise AgentsError(f"{where}: {error}") from error
    _known_parts(where, plain)
    default = AgentSpec(name=name).budget
    for limit in ("steps", "tokens", "seconds"):
        if getattr(agent.budget, limit) is None and limit not in (plain.get("budget") or {}):
            setattr(agent.budget, limit, getattr(default, limit))
    for index, rule in enumerate(agent.approvals):
        _known_fields(f"{where}.approvals[{index}]", plain["approvals"][index], ApprovalRule)
        _check_rule(f"{where}.approvals[{index}]", rule)
        _check_people(f"{where}.approvals[{index}]", rule, agent)
    return agent


def _check_people(where: str, rule: ApprovalRule, agent: AgentSpec) -> None:
    """A quorum that can't come together would leave every question to its timeout."""
    for name, who in (("approvers", rule.approvers), ("escalate_to", rule.escalate_to)):
        if who is None:
            continue
        people: set[str] = set()
        for each in who:
            group = agent.people.get(each)
            if group is not None and not group.members:
                raise AgentsError(f"{where}.{name}: the group {each} has no members")
            people.update([each] if group is None else group.members)
        if rule.required > len(people):
            raise AgentsError(
                f"{where}.required: {rule.required} different people must say yes, and {name} are "
                f"{len(people)}: {', '.join(sorted(people)) or 'nobody'}"
            )


def _known_fields(where: str, plain: dict[str, Any], kind: type[msgspec.Struct]) -> None:
    """A misspelt setting is an error here, where a person wrote it."""
    for name in plain:
        if name not in kind.__struct_fields__:
            near = difflib.get_close_matches(str(name), kind.__struct_fields__, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise AgentsError(f"{where}.{name}: is not a setting{hint}")


_PARTS = {
    "model": ModelSpec,
    "budget": BudgetPolicy,
    "window": Window,
    "retry": RetryPolicy,
    "checkpoint": Checkpoint,
}


def _known_parts(where: str, plain: dict[str, Any]) -> None:
    """The same for what stands inside an agent's settings; their types have been checked."""
    for name, kind in _PARTS.items():
        _known_fields(f"{where}.{name}", plain.get(name) or {}, kind)
    _check_long_model(f"{where}.window.long_model", plain.get("window") or {})
    for index, model in enumerate(plain.get("fallback_models") or ()):
        _known_fields(f"{where}.fallback_models[{index}]", model, ModelSpec)
    _known_people(f"{where}.people", plain.get("people") or {})


def _check_long_model(where: str, window: dict[str, Any]) -> None:
    """It stands there as free JSON, so that its type is checked here."""
    model = window.get("long_model")
    if model is None:
        return
    if not isinstance(model, dict):
        raise AgentsError(f"{where}: must be a model, such as {{provider: openai, name: NAME}}")
    _known_fields(where, model, ModelSpec)
    try:
        codec.convert(model, ModelSpec)
    except RecordError as error:
        raise AgentsError(f"{where}: {error}") from error


def _known_people(where: str, people: dict[str, Any]) -> None:
    for group, plain in people.items():
        _known_fields(f"{where}.{group}", plain, Person)


def _idle(where: str, plain: dict[str, Any]) -> list[str]:
    """What an agent sets and what does nothing beside its other settings."""
    window = plain.get("window") or {}
    mode = window.get("mode", "auto")
    if window.get("long_model") is None or mode == "full":
        return []
    return [
        f"{where}.window.long_model: is used in mode full alone, and the mode is {mode}: "
        "set `mode: full`, or leave it out"
    ]


def _check_rule(where: str, rule: ApprovalRule) -> None:
    allowed = {"cancel_run", "escalate"}
    for kind in [rule.kind] if rule.kind else list(ALLOWED):
        allowed |= POLICY_MAY[kind]
    if rule.on_timeout not in allowed:
        raise AgentsError(
            f"{where}.on_timeout: {rule.on_timeout!r} is not one of {', '.join(sorted(allowed))}"
        )
    if rule.on_timeout == "escalate" and not rule.escalate_to:
        raise AgentsError(f"{where}.on_timeout: escalate needs escalate_to: who is asked then?")
    if rule.escalate_to and rule.on_timeout != "escalate":
        raise AgentsError(
            f"{where}.escalate_to: is for on_timeout: escalate, not {rule.on_timeout}"
        )
    if rule.when is not None:
        try:
            cel.check(rule.when)
        except cel.ExpressionError as error:
            raise AgentsError(f"{where}.when: {error}") from error


def check_tools(agents: list[AgentSpec], tools: dict[str, ToolSpec]) -> list[str]:
    """What of the agents does not fit the announced tools, a sentence each."""
    problems = []
    for agent in agents:
        for name in agent.tools:
            if name not in tools:
                problems.append(
                    f"agents.{agent.name}.tools: no worker announces {name}{_near(name, tools)}"
                )
        problems += _named_by_tools(agent, tools)
        problems += _notices(agent, tools)
        for index, rule in enumerate(agent.approvals):
            if rule.tool is not None and rule.tool not in tools:
                problems.append(
                    f"agents.{agent.name}.approvals[{index}].tool: no worker announces {rule.tool}{_near(rule.tool, tools)}"
                )
            problems += _condition(agent, index, rule, tools)
    return problems


def _named_by_tools(agent: AgentSpec, tools: dict[str, ToolSpec]) -> list[str]:
    """A fallback or an undoing that could never be called would be missed when it is needed."""
    problems = []
    for name in agent.tools:
        spec = tools.get(name)
        if spec is None:
            continue
        where = f"agents.{agent.name}.tools: {name}"
        for what, other in (("fallback", spec.fallback), ("compensate", spec.compensate)):
            if other is not None and other not in tools:
                problems.append(
                    f"{where} names {other} as its {what}, and no worker announces it{_near(other, tools)}"
                )
        if spec.fallback == name:
            problems.append(f"{where} names itself as its fallback: name another tool")
        elif spec.fallback is not None and spec.effect == "idempotent":
            problems.append(
                f"{where} is idempotent, and has a fallback that would never be called (a second "
                "delivery of its call may yet happen): leave it out, or declare the tool external"
            )
    return problems


def _notices(agent: AgentSpec, tools: dict[str, ToolSpec]) -> list[str]:
    """Groups that are told by a tool which is not there, or with arguments it does not take."""
    problems = []
    for group, person in agent.people.items():
        if person.notify is None:
            continue
        where = f"people.{group}.notify"
        name = person.notify.get("tool") if isinstance(person.notify, dict) else None
        given = person.notify.get("arguments", {}) if isinstance(person.notify, dict) else None
        if not isinstance(name, str) or not isinstance(given, dict):
            problems.append(f"{where}: must be {{tool: NAME, arguments: {{...}}}}")
        elif name not in tools:
            problems.append(f"{where}.tool: no worker announces {name}{_near(name, tools)}")
        else:
            known = properties(tools[name].parameters)
            problems += [
                f"{where}.arguments: {name} has no argument {each}; it takes {', '.join(known)}"
                for each in given
                if each not in known
            ]
    return problems


def _near(name: str, tools: dict[str, ToolSpec]) -> str:
    near = difflib.get_close_matches(name, list(tools), 1)
    return (
        f"; did you mean {near[0]}?"
        if near
        else f"; there are: {', '.join(sorted(tools)) or 'none'}"
    )


def _condition(
    agent: AgentSpec, index: int, rule: ApprovalRule, tools: dict[str, ToolSpec]
) -> list[str]:
    """A condition that names an argument the tool does not have would always ask."""
    if rule.when is None or rule.tool is None or rule.tool not in tools:
        return []
    known = properties(tools[rule.tool].parameters)
    problems = []
    for name in dict.fromkeys(re.findall(r"\barguments\.([A-Za-z_]\w*)", rule.when)):
        if name not in known:
            near = difflib.get_close_matches(name, list(known), 1)
            hint = (
                f"; did you mean {near[0]}?" if near else f"; it takes {', '.join(known) or 'none'}"
            )
            problems.append(
                f"agents.{agent.name}.approvals[{index}].when: {rule.tool} has no argument {name}{hint}"
            )
    return problems


def newer(agents: list[AgentSpec], known: dict[str, AgentSpec]) -> list[AgentSpec]:
    """The agents that say something new, each with the next version."""
    changed = []
    for agent in agents:
        before = known.get(agent.name)
        if before is None:
            changed.append(agent)
        elif msgspec.structs.replace(before, version=0) != msgspec.structs.replace(
            agent, version=0
        ):
            changed.append(msgspec.structs.replace(agent, version=before.version + 1))
    return changed
