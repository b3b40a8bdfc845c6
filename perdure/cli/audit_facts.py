"""What an auditor asks of a run, answered from its events alone.

One pass folds the events with the core's own appliers and collects facts on the way. What a
model was shown is not on the log: it is made again, by the core's own effects, from the run as it
was when the call was requested. So is the digest of what ran.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from perdure.reading import COVER, covered, sensitive
from perdure.schemas.canonical import canonical
from perdure.schemas.records import RunEvent
from perdure.streams.core.apply import BrokenHistory
from perdure.streams.core.effects import effects
from perdure.streams.core.policies.approval import digest_of, run_variables
from perdure.streams.core.state import Action, Run

from .audit_decisions import decision, question
from .show import History

_RELEASES: Final = frozenset({"approve", "modify", "retry", "mark_not_done"})
"""Decisions after which the call in question is made."""
_BRINGS: Final = frozenset({"answer", "mark_done", "extend"})
"""Decisions that come with an answer, a result, a budget."""
_PATH: Final = re.compile(r"\b(?:arguments|run)(?:\.[A-Za-z_]\w*)+")


class Facts:
    """The facts of one run. Owns no truth: the events are it."""

    def __init__(self, uncover: bool = False) -> None:
        self.uncover = uncover
        self.events = 0
        self.requests: list[dict[str, Any]] = []
        self.calls: list[dict[str, Any]] = []
        self.proposals: dict[int, dict[str, Any]] = {}
        self.actions: dict[int, dict[str, Any]] = {}
        self.questions: dict[int, dict[str, Any]] = {}
        self._now_asked: dict[int, dict[str, Any]] = {}
        self.notices: list[dict[str, Any]] = []
        self.newer: list[dict[str, Any]] = []
        self.started: RunEvent | None = None
        self._history = History(uncover=True)
        self._shown: set[bytes] = set()
        self._known = 0
        self._released: dict[int, int] = {}
        self._given: tuple[int, str, int] = (0, "", 0)

    @property
    def run(self) -> Run:
        assert self._history.run is not None
        return self._history.run

    def take(self, event: RunEvent) -> None:
        """The next event. Raises `BrokenHistory` where it can't be."""
        self._history.take(event)
        self._history.events.clear()
        self.events += 1
        handle = _TAKES.get(event.type)
        try:
            if handle is not None:
                handle(self, event, event.data)
            if event.type != "run_started" and event.actor.startswith("user:"):
                self._requested_by_a_person(event)
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            what = f"{type(error).__name__}: {error}"
            raise BrokenHistory(
                f"event {event.version} ({event.type}) lacks what it must say: {what}"
            ) from error

    # --- what may be shown -----------------------------------------------------------------------

    def cover(self, value: Any, tool: str | None) -> Any:
        if self.uncover:
            return value
        return covered(value, sensitive(self.run.start.tools, tool))

    def cover_any(self, value: Any) -> Any:
        """A value of no single tool: whatever any of the run's tools marks is covered."""
        if self.uncover:
            return value
        marked = (name for spec in self.run.start.tools.values() for name in spec.sensitive)
        return covered(value, frozenset(marked))

    def _calls(self, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {**call, "arguments": self.cover(call.get("arguments"), call.get("name"))}
            for call in calls
        ]

    # --- events --------------------------------------------------------------------------------

    def _start(self, event: RunEvent, data: dict[str, Any]) -> None:
        self.started = event

    def _requested_by_a_person(self, event: RunEvent) -> None:
        data = event.data or {}
        kept = ("reason", "content", "budget", "to", "request_id")
        said = {name: data[name] for name in kept if data.get(name) is not None}
        self.requests.append(
            {"at": event.at, "version": event.version, "actor": event.actor, "what": event.type}
            | said
        )

    def _proposed(self, event: RunEvent, data: dict[str, Any]) -> None:
        n, tool, run = data["n"], data["target"], self.run
        made = {
            "action_id": run.action_id(n),
            "kind": data["kind"],
            "step": data["step"],
            "tool": tool,
            "arguments": self.cover(data.get("arguments"), tool),
        }
        if data.get("spec"):
            self.newer.append(
                {"tool": tool, "version": data["spec"].get("version", 1), "event": event.version}
            )
        self.actions[n] = {**made, "effect": data["effect"], "key": data["key"], "history": []}
        if data["kind"] == "notice":
            told = {name: data.get(name) for name in ("group", "occasion")}
            self.notices.append(
                {**made, **told, "approval_id": run.approval_id(data["ask"]), "key": data["key"]}
                | {"at": event.at, "outcome": None, "error": None}
            )
        if data["kind"] in ("tool", "builtin"):
            rules = [self._rule(rule, data.get("arguments"), tool) for rule in data["rules"]]
            self.proposals[n] = {
                **made,
                "at": event.at,
                "version": event.version,
                "proposed_by": event.actor,
                "rules": rules,
                "asked": None,
            }

    def _rule(self, rule: dict[str, Any], arguments: Any, tool: str) -> dict[str, Any]:
        """A rule with the values that its condition names, as they were."""
        variables = {"arguments": arguments, "run": run_variables(self.run)}
        hidden = frozenset() if self.uncover else frozenset(sensitive(self.run.start.tools, tool))
        values: dict[str, Any] = {}
        for path in dict.fromkeys(_PATH.findall(str(rule["when"]))):
            names = path.split(".")
            found: Any = variables
            for name in names:
                found = found.get(name, _MISSING) if isinstance(found, dict) else _MISSING
            if found is not _MISSING:
                secret = names[0] == "arguments" and hidden.intersection(names)
                values[path] = COVER if secret else covered(found, hidden)
        return {**rule, "values": values} if values else dict(rule)

    def _fired(self, asked: dict[str, Any]) -> Any:
        rule, tool = asked["rule"], asked["tool"]
        if isinstance(rule, dict) and "when" in rule and tool is not None:
            rule = self._rule(rule, asked["arguments"], tool)
        return self.cover(rule, tool)

    def _called(self, event: RunEvent, data: dict[str, Any]) -> None:
        n, run = data["n"], self.run
        (sent,) = effects(run, event)
        command = sent.command
        self.actions[n]["request_id"] = command.request_id
        self._note(event, data, {"expires_at": data["expires_at"]})
        if command.request is not None:
            self._asked_model(event, run.action(n), command.request)
        asked = self._released.get(n)
        if asked is None:
            return
        approval = run.approval(asked)
        assert approval is not None
        ran = msgspec.structs.replace(
            approval, action=n, tool=command.target, arguments=command.arguments
        )
        shown, digest = self._now_asked[asked]["digest"], digest_of(run, ran)
        self.questions[asked]["ran"].append(
            {
                "action_id": command.action_id,
                "attempt": command.attempt,
                "at": event.at,
                "tool": command.target,
                "arguments": self.cover(command.arguments, command.target),
                "digest": digest,
                "equal": self._unless_copied(event, digest == shown),
            }
        )

    def _unless_copied(self, event: RunEvent, equal: bool) -> bool | None:
        """Digests of what a fork has taken over hold the ids of the run forked from."""
        return None if not equal and event.version <= self.run.header.forked_at else equal

    def _asked_model(self, event: RunEvent, action: Action, request: dict[str, Any]) -> None:
        messages = request["messages"]
        new = list(range(len(messages)))
        if not action.covers:
            new = self._not_shown_before([canonical(message) for message in messages])
        settings = {
            name: request[name]
            for name in ("seed", "temperature", "max_output_tokens", "response_schema")
            if name in request
        }
        self.calls.append(
            {
                "action_id": self.run.action_id(action.n),
                "attempt": action.attempt,
                "step": action.step,
                "covers": action.covers or None,
                "at": event.at,
                "version": event.version,
                "model": request["model"],
                "settings": settings,
                "tools": [tool["name"] for tool in request.get("tools", ())],
                "messages": [self._message(message) for message in messages],
                "new": new,
                "conversation": self.run.header.messages,
                "answer": None,
                "error": None,
            }
        )

    def _not_shown_before(self, faces: list[bytes]) -> list[int]:
        """The places of messages that the turn before was not shown, or that came since."""
        fresh = len(faces) - max(self.run.header.messages - self._known, 0)
        new = [
            place for place, face in enumerate(faces) if place >= fresh or face not in self._shown
        ]
        self._shown, self._known = set(faces), self.run.header.messages
        return new

    def _summarised(self, event: RunEvent, data: dict[str, Any]) -> None:
        said = {"n": data["n"], "content": data["summary"], "finish_reason": "", "calls": []}
        self._replied(event, said)

    def _message(self, message: dict[str, Any]) -> dict[str, Any]:
        if "tool_calls" not in message:
            return message
        return {**message, "tool_calls": self._calls(message["tool_calls"])}

    def _replied(self, event: RunEvent, data: dict[str, Any]) -> None:
        answer = {name: data.get(name) for name in ("content", "finish_reason", "note", "unread")}
        asked_as = self.run.action_id(data["n"])
        for call in reversed(self.calls):
            if call["action_id"] == asked_as:
                call["answer"] = {
                    "at": event.at,
                    "by": event.actor,
                    **answer,
                    "calls": self._calls(data["calls"]),
                }
                return

    def _moved(self, event: RunEvent, data: dict[str, Any]) -> None:
        tool = self.actions[data["n"]]["tool"]
        said: dict[str, Any] = {
            name: data[name]
            for name in ("error", "reason", "due", "of", "usage")
            if data.get(name) is not None
        }
        if "result" in data:
            said["result"] = self.cover(data["result"], tool)
            self._answered(event, data["result"], tool)
        self._note(event, data, said)
        if "error" in said:
            asked_as = self.run.action_id(data["n"])
            for call in reversed(self.calls):
                if call["action_id"] == asked_as:
                    call["error"] = said["error"]
                    break

    def _note(self, event: RunEvent, data: dict[str, Any], said: dict[str, Any]) -> None:
        what = event.type.removeprefix("action_")
        attempt = data.get("attempt", self.run.action(data["n"]).attempt)
        self.actions[data["n"]]["history"].append(
            {"at": event.at, "version": event.version, "what": what, "attempt": attempt}
            | {"by": event.actor, **said}
        )

    def _asked(self, event: RunEvent, data: dict[str, Any]) -> None:
        made = question(event)
        asked = data["approval"]
        n = asked["n"]
        approval = self.run.approval(n)
        assert approval is not None
        holds = digest_of(self.run, approval) == made["digest"]
        self._now_asked[n] = dict(made)  # a `modify` or an escalation changes what is asked
        self.questions[n] = {
            **made,
            "version": event.version,
            "digest_holds": self._unless_copied(event, holds),
            "arguments": self.cover(made["arguments"], made["tool"]),
            "rule": self._fired(made),
            "decisions": [],
            "given": None,
            "ran": [],
        }
        proposal = self.proposals.get(asked.get("asked_by") or asked.get("action") or 0)
        if proposal is not None and (made["kind"] == "action" or asked.get("asked_by")):
            proposal["asked"] = made["approval_id"]

    def _decided(self, event: RunEvent, data: dict[str, Any]) -> None:
        asked = self.questions[data["n"]]
        made = decision(self._now_asked[data["n"]], event)
        made["request_id"] = data.get("request_id")
        made["arguments"] = self.cover(made["arguments"], made["tool"])
        approval = self.run.approval(data["n"])
        assert approval is not None
        holds = digest_of(self.run, approval) == made["digest"]
        made["digest_holds"] = self._unless_copied(event, holds)
        asked["decisions"].append(made)
        if not made["closes"]:
            return
        if made["decision"] in _BRINGS:
            self._given = (data["n"], event.actor, event.version)
        if approval.action and made["decision"] in _RELEASES:
            self._released[approval.action] = data["n"]

    def _answered(self, event: RunEvent, value: Any, tool: str | None = None) -> None:
        """What came with a decision (an answer, a result, a budget) stands in an event after it."""
        n, actor, version = self._given
        if n and event.actor == actor and event.version <= version + 2:
            self.questions[n]["given"] = self.cover(value, tool)
            self._given = (0, "", 0)

    def _told(self, event: RunEvent, data: dict[str, Any]) -> None:
        if data["outcome"] == "due":
            return
        found = {"outcome": data["outcome"], "error": data.get("error")}
        for notice in self.notices:
            if data.get("action") and notice["action_id"] == self.run.action_id(data["action"]):
                notice.update(found)
                return
        about = {name: data.get(name) for name in ("group", "occasion")}
        self.notices.append(
            {"approval_id": self.run.approval_id(data["n"]), "action_id": None, **about}
            | {"at": event.at, **found}
        )


_MISSING: Final = object()

_TAKES: Final[dict[str, Callable[[Facts, RunEvent, dict[str, Any]], None]]] = {
    "run_started": Facts._start,
    "action_proposed": Facts._proposed,
    "action_requested": Facts._called,
    "model_replied": Facts._replied,
    "context_summarised": Facts._summarised,
    "approval_requested": Facts._asked,
    "approval_decided": Facts._decided,
    "approval_expired": Facts._decided,
    "approver_notified": Facts._told,
    "message_received": lambda facts, event, data: facts._answered(event, data["content"]),
    "budget_changed": lambda facts, event, data: facts._answered(event, data["budget"]),
    **dict.fromkeys(
        (
            "action_started", "action_succeeded", "action_failed", "action_unknown",
            "action_adopted", "action_cancelled", "action_queried", "action_in_doubt",
            "effect_found", "retry_scheduled",
        ),
        Facts._moved,
    ),
}  # fmt: skip
