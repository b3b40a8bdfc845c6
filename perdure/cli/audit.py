"""The body of ``perdure audit RUN``: nine sections, from agent.events and the outcome alone.

What can be read of a run whose events are not sound is shown, up to the event that isn't; the
command then ends with 1. ``--json``: one document a section, in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from perdure.reading import history, is_over
from perdure.schemas.records import Outcome, RunEvent, ToolSpec
from perdure.settings import Settings
from perdure.streams.core.apply import BrokenHistory, begins_anew
from perdure.streams.core.policies.outcome import usage, waiting_for
from perdure.tables import outcome as outcome_of
from perdure.topics_reader import Raw, Scanner

from . import audit_text
from .audit_facts import Facts
from .console import FAILED, leave, line
from .terminal import safe
from .verify import unsound


@dataclass
class Audit:
    """The facts of a run as far as its events are sound, and what is wrong with the first that isn't."""

    facts: Facts
    outcome: Outcome | None
    problem: str | None = None
    version: int = 0
    hash: str = ""

    def take(self, raw: Raw | None, event: RunEvent | None, run_id: str) -> None:
        """The next record, checked before it counts."""
        run = self.facts.run if self.facts.events else None
        told = "is no event" if event is None else unsound(run_id, run, event)
        if told is None and event is not None:
            if begins_anew(run, event):
                self.facts = Facts(self.facts.uncover)
            try:
                self.facts.take(event)
                self.version, self.hash = event.version, event.hash
            except BrokenHistory as error:
                told = str(error)
        if told is not None:
            where = (
                ""
                if raw is None
                else f"the record at {raw.topic}-{raw.partition}, offset {raw.offset}, "
            )
            self.problem = where + told


def audit(made: Settings, run_id: str, *, uncover: bool, as_json: bool) -> None:
    """Print the sections; ends with 1 where the chain does not hold or what ran was not what was shown."""
    scanner = Scanner(made.client_conf(), made.topic_prefix)
    # Read first: the events, read after it, then hold at least what it was made of.
    found = Audit(Facts(uncover), outcome_of(scanner, run_id))
    for raw, event in history(scanner, run_id):
        found.take(raw, event, run_id)
        if found.problem is not None:
            break
    if found.outcome is not None and found.outcome.version < found.version:
        found.outcome = outcome_of(scanner, run_id)  # a late effect has corrected it meanwhile
    if found.facts.started is None:
        leave(
            FAILED,
            f"{safe(run_id, 200)}: {safe(found.problem, 500)}"
            if found.problem
            else f"{safe(run_id, 200)} has no events: `perdure show` says where it is",
        )
    made_of = sections(found)
    for section in made_of:
        if as_json:
            line({"section": section.pop("section"), "run_id": run_id, **section})
        else:
            audit_text.tell(section)
    wrong = findings(made_of)
    if wrong:
        leave(FAILED, f"{safe(run_id, 200)}: {safe(wrong[0], 500)}")


def findings(made_of: list[dict[str, Any]]) -> list[str]:
    """What must not be: a broken chain, another outcome, something else run than was shown."""
    found: list[str] = []
    for section in made_of:
        if "questions" in section:
            for asked in section["questions"]:
                if any(each["digest_holds"] is False for each in (asked, *asked["decisions"])):
                    found.append(f"{asked['approval_id']}: its digest is not that of what it shows")
                found += [
                    f"{asked['approval_id']}: what ran as {ran['action_id']} is not what was shown"
                    for ran in asked["ran"]
                    if ran["equal"] is False
                ]
        if "problem" in section:
            found += [section["problem"]] if section["problem"] else []
            if section["outcome"] is not None and not section["outcome"]["equal"]:
                found.append("the outcome is not that of the events")
    return found


# --- the sections ------------------------------------------------------------------------------


def sections(found: Audit) -> list[dict[str, Any]]:
    """The answers in the order in which an auditor asks."""
    facts = found.facts
    return [
        {"section": "asked", **_asked(facts)},
        {"section": "model", "calls": facts.calls},
        {"section": "versions", **_versions(facts)},
        {"section": "rules", "proposals": [_proposal(facts, n) for n in facts.proposals]},
        {"section": "decisions", "questions": [_question(facts, n) for n in facts.questions]},
        {"section": "attempts", "actions": [_action(facts, n) for n in facts.actions]},
        {"section": "notices", "notices": facts.notices},
        {"section": "end", **_end(facts, found.outcome)},
        {"section": "chain", **_chain(found)},
    ]


def _asked(facts: Facts) -> dict[str, Any]:
    event, run = facts.started, facts.run
    assert event is not None
    plan = [
        {
            **step,
            "arguments": facts.cover(step.get("arguments"), step.get("tool")),
            "compensate": facts.cover_any(step.get("compensate")),
        }
        for step in event.data.get("plan") or ()
    ]
    return {
        "agent": event.agent,
        "user_id": event.user_id,
        "session_id": event.session_id,
        "tenant": event.tenant,
        "metadata": event.metadata,
        "at": event.at,
        "input": event.data.get("input"),
        "messages": event.data.get("messages"),
        "plan": plan or None,
        "budget": event.data.get("budget"),
        "deadline_at": run.header.deadline_at,
        "fork_of": event.data.get("fork_of"),
        "forked_at": event.data.get("forked_at"),
        "origin": event.data.get("origin"),
        "requests": facts.requests,
    }


def _versions(facts: Facts) -> dict[str, Any]:
    event = facts.started
    assert event is not None
    agent = dict(event.data["definition"])
    model = agent.get("model")
    if model and model.get("replies"):  # a script's calls hold arguments like any others
        agent["model"] = {**model, "replies": facts.cover_any(model["replies"])}
    kept = ("name", "version", "effect", "has_query", "approval", "approvers", "queue")
    tools = [
        {name: getattr(spec, name) for name in kept}
        for spec in msgspec.convert(event.data["tools"], dict[str, ToolSpec]).values()
    ]
    return {"agent": agent, "tools": tools, "newer": facts.newer}


def _proposal(facts: Facts, n: int) -> dict[str, Any]:
    made, action = facts.proposals[n], facts.run.action(n)
    return {**made, "why": _why(facts, made, action.twin)}


def _why(facts: Facts, made: dict[str, Any], twin: int | None) -> str:
    """Why a person was asked before the call, or why nobody was."""
    fired = next((rule for rule in made["rules"] if rule["asks"]), None)
    if made["kind"] == "builtin":
        return "the call is a question itself" if made["asked"] else "no question came of it"
    if made["asked"]:
        if fired is None:
            return "a person was asked"
        if "error" in fired:
            return f"a person was asked: {fired['when']} can't be evaluated, which counts as true"
        return f"a person was asked: {fired['when']}"
    if twin is not None and fired is not None:
        return f"nobody was asked: the call has the key of {facts.run.action_id(twin)}"
    if fired is not None:
        return "a person would have been asked, but the run ended first"
    if not made["rules"]:
        return "nobody was asked: no rule applies"
    return "nobody was asked: no rule that applies says so"


def _question(facts: Facts, n: int) -> dict[str, Any]:
    approval = facts.run.approval(n)
    assert approval is not None
    return {**facts.questions[n], "open": approval.open, "closed_by": approval.closed_by}


def _action(facts: Facts, n: int) -> dict[str, Any]:
    action = facts.run.action(n)
    return {
        **facts.actions[n],
        "arguments": facts.cover(action.arguments, action.target),
        "status": action.status,
        "attempts": action.attempt,
        "approval_id": None if action.approval is None else facts.run.approval_id(action.approval),
        "approved_by": action.approved_by,
        "result": facts.cover(action.result, action.target),
        "error": action.error,
    }


def _end(facts: Facts, outcome: Outcome | None) -> dict[str, Any]:
    run = facts.run
    header = run.header
    told = None
    if outcome is not None:
        told = {
            "status": outcome.status,
            "complete": outcome.complete,
            "text": outcome.text,
            "result": facts.cover_any(outcome.result),
            **{
                name: [each["action_id"] for each in listed] if isinstance(listed, list) else listed
                for name in ("completed", "not_completed", "in_doubt", "compensated", "degraded")
                for listed in (getattr(outcome, name),)
            },
            "errors": outcome.errors,
            "finished_at": outcome.finished_at,
        }
    return {
        "status": header.status,
        "over": is_over(run),
        "paused": header.paused,
        "ending": None if header.ending is None else msgspec.to_builtins(header.ending),
        "finished_at": header.finished_at,
        "waiting_for": waiting_for(run),
        "errors": header.errors,
        "usage": usage(run),
        "outcome": told,
    }


def _chain(found: Audit) -> dict[str, Any]:
    outcome, header = found.outcome, found.facts.run.header
    told = None
    if outcome is not None:
        mine = (found.version, found.hash, header.status)
        told = {
            "version": outcome.version,
            "hash": outcome.hash,
            "equal": mine == (outcome.version, outcome.hash, outcome.status),
        }
    return {
        "events": found.facts.events,
        "version": found.version,
        "hash": found.hash,
        "holds": found.problem is None,
        "problem": found.problem,
        "outcome": told,
    }
