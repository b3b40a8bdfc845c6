"""The bodies of ``perdure apply`` and ``perdure delete``."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

import msgspec

from perdure.agents import check_tools, newer, read_agents
from perdure.schemas.records import AgentSpec
from perdure.settings import Settings
from perdure.tables import catalog
from perdure.topics_reader import Scanner

from .console import FAILED, USAGE, client, leave, line, say


def apply(file: Path, connect: Callable[[], Settings], as_json: bool) -> None:
    """Put a file's agents into force, all of them or none. Raises what `read_agents` raises."""
    agents, idle = read_agents(file)
    for sentence in idle:
        say(f"perdure: {sentence}")
    made = connect()
    tools, known = catalog(Scanner(made.client_conf(), made.topic_prefix))
    problems = check_tools(agents, tools)
    if problems:
        for problem in problems:
            say(f"perdure: {problem}")
        leave(FAILED, "nothing was applied: start a worker that has the tools, or correct the file")
    changed = {agent.name: agent for agent in newer(agents, known)}
    writer = client(made)
    for name, agent in changed.items():
        writer.catalog(f"agent/{name}", agent)
    for agent in agents:
        now = changed.get(agent.name)
        before = known.get(agent.name)
        what = "unchanged" if now is None else "new" if before is None else "changed"
        version = (now or before or agent).version
        fields = _differences(before, now) if before is not None and now is not None else []
        if as_json:
            line({"agent": agent.name, "change": what, "version": version, "fields": fields})
        else:
            about = f": {', '.join(fields)}" if fields else ""
            print(f"agent/{agent.name}  {what}, version {version}{about}", flush=True)


def _differences(before: AgentSpec, now: AgentSpec) -> list[str]:
    return [
        name
        for name in AgentSpec.__struct_fields__
        if name != "version"
        and msgspec.to_builtins(getattr(before, name)) != msgspec.to_builtins(getattr(now, name))
    ]


def delete(name: str, connect: Callable[[], Settings]) -> None:
    """Take an agent out of the catalog."""
    kind, _, agent = name.partition("/")
    if kind != "agent" or not agent:
        leave(USAGE, "say what to delete as agent/NAME")
    made = connect()
    _, known = catalog(Scanner(made.client_conf(), made.topic_prefix))
    if agent not in known:
        near = difflib.get_close_matches(agent, list(known), 1)
        hint = f"; did you mean agent/{near[0]}?" if near else ""
        leave(FAILED, f"there is no agent {agent}{hint}")
    client(made).catalog(name, None)
    say(f"{name} is deleted; its running runs go on with the definition they started with")
