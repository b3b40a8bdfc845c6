"""Every decision on a question, as a record of its own: `perdure audit --decisions`, and the
questions of one run.

A decision is what a person said, or what a policy did when nobody answered in time. What merely
closes a question (the run's end, a late result) is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from perdure.reading import COVER, covered, event_of
from perdure.schemas import topics
from perdure.schemas.records import RunEvent
from perdure.settings import Settings
from perdure.topics_reader import Scanner

from .console import line, say
from .progress import Progress
from .terminal import safe

TIMEOUT: Final = "policy:timeout"


@dataclass(frozen=True, slots=True)
class Range:
    """Which decisions are wanted; times in ms, ``until`` not included."""

    since: int | None = None
    until: int | None = None
    agent: str | None = None
    approver: str | None = None

    def fits(self, decision: dict[str, Any]) -> bool:
        return (
            (self.since is None or decision["decided_at"] >= self.since)
            and (self.until is None or decision["decided_at"] < self.until)
            and self.agent in (None, decision["agent"])
            and self.approver in (None, decision["approver"])
        )


def export(made: Settings, wanted: Range, run_id: str | None, *, uncover: bool) -> None:
    """Print the decisions as JSON lines, the earliest first."""
    scanner = Scanner(made.client_conf(), made.topic_prefix)
    collected = Decisions(uncover)
    progress = Progress()
    found: list[dict[str, Any]] = []
    for raw in scanner.scan([topics.EVENTS], run_id=run_id):
        if raw is None:
            continue
        progress.step()
        event = event_of(raw)
        if event is None or (run_id is not None and event.run_id != run_id):
            continue
        decision = collected.take(event)
        if decision is not None and wanted.fits(decision):
            found.append(decision)
    for decision in sorted(found, key=lambda each: each["decided_at"]):
        line(decision)
    say(f"{len(found)} decisions in {progress.read} events")


class Decisions:
    """Decisions out of the events of all runs. Owns the questions that are still open."""

    def __init__(self, uncover: bool) -> None:
        self._uncover = uncover
        self._sensitive: dict[str, dict[str, frozenset[str]]] = {}
        self._open: dict[str, dict[str, Any]] = {}
        self._copied: dict[str, int] = {}

    def take(self, event: RunEvent) -> dict[str, Any] | None:
        """The decision that the event is, or None. An event that is not sound is told of."""
        try:
            return self._take(event)
        except (KeyError, TypeError, AttributeError):
            say(f"perdure: event {event.version} of {safe(event.run_id, 200)} is not sound")
            return None

    def _take(self, event: RunEvent) -> dict[str, Any] | None:
        data = event.data
        if event.type == "run_started":
            tools = data["tools"]
            if data.get("fork_of"):  # what came before was decided in the run forked from
                self._copied[event.run_id] = data["fork_of"]["version"]
            self._sensitive[event.run_id] = {
                name: frozenset(spec.get("sensitive") or ())
                for name, spec in tools.items()
                if spec.get("sensitive")
            }
        elif event.type == "action_proposed" and data.get("spec"):
            names = frozenset(data["spec"].get("sensitive") or ())
            self._sensitive.setdefault(event.run_id, {})[data["target"]] = names
        elif event.type == "approval_requested":
            made = question(event)
            self._open[made["approval_id"]] = made
        elif event.type in ("approval_decided", "approval_expired"):
            approval_id = f"{event.run_id}/a{data['n']}"
            asked = self._open[approval_id]
            made = decision(asked, event)
            if made["closes"]:
                del self._open[approval_id]
            if event.version <= self._copied.get(event.run_id, 0):
                return None
            made["arguments"] = self._covered(event.run_id, made["tool"], made["arguments"])
            return made
        return None

    def _covered(self, run_id: str, tool: str | None, arguments: Any) -> Any:
        if self._uncover or arguments is None:
            return arguments
        known = self._sensitive.get(run_id)
        if known is None:  # its first event is gone: nobody knows what its tools mark
            return COVER
        return covered(arguments, known.get(tool or "", frozenset()))


def question(event: RunEvent) -> dict[str, Any]:
    """A question as `approval_requested` puts it. Nothing is covered yet."""
    asked = event.data["approval"]
    action, by = asked.get("action"), asked.get("asked_by")
    kept = (
        "kind", "title", "tool", "arguments", "effect", "question", "reason", "rule", "approvers",
        "anyone", "required", "self_approval", "signed", "expires_at", "on_timeout", "digest",
    )  # fmt: skip
    return {
        "approval_id": f"{event.run_id}/a{asked['n']}",
        "action_id": None if action is None else f"{event.run_id}/{action}",
        "asked_by": None if by is None else f"{event.run_id}/{by}",
        **{name: asked.get(name) for name in kept},
        "requested_at": event.at,
    }


def decision(asked: dict[str, Any], event: RunEvent) -> dict[str, Any]:
    """One decision on a question; ``asked`` takes over what a `modify` changes.

    ``arguments`` and ``digest`` are those that the decision is for, nothing covered yet.
    """
    data = event.data
    expired = event.type == "approval_expired"
    word = data["decision"]
    if word == "modify":
        asked["arguments"], asked["digest"] = data["arguments"], data["digest"]
    made = {
        "run_id": event.run_id,
        "approval_id": asked["approval_id"],
        "action_id": asked["action_id"],
        "agent": event.agent,
        "user_id": event.user_id,
        "kind": asked["kind"],
        "title": asked["title"],
        "tool": asked["tool"],
        "arguments": asked["arguments"],
        "decision": word,
        "approver": TIMEOUT if expired else data["approver"],
        "verified": None if expired else data["verified"],
        "reason": data.get("reason"),
        "requested_at": asked["requested_at"],
        "decided_at": event.at,
        "waited_seconds": (event.at - asked["requested_at"]) / 1000,
        "digest": asked["digest"],
        "policy": asked["on_timeout"] if expired else None,
        "closes": word != "escalate" if expired else data["closes"],
        "version": event.version,
    }
    if word == "escalate":
        made["to"] = data["to"]
        asked.update(approvers=data["to"], on_timeout="cancel_run", expires_at=data["expires_at"])
    if "asks" in data:  # a `modify` whose arguments are others' to decide
        made["to"] = data["asks"]["approvers"]
        asked.update({name: value for name, value in data["asks"].items() if name in asked})
    return made
