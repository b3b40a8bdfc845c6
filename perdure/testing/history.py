"""What the topics say, folded by a few lines of plain JSON that share nothing with the product.

The tables of the lifecycle stand here a second time, copied from its text: a transition that the
product's own table allows by mistake is seen.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Any, Final

RUN: Final[dict[str, set[str]]] = {
    "running": {"waiting_approval", "compensating", "done", "failed", "cancelled"},
    "waiting_approval": {"running", "cancelled"},
    "compensating": {"failed", "cancelled"},
    "failed": {"running", "cancelled"},
    "done": set(),
    "cancelled": set(),
}
ACTION: Final[dict[str, set[str]]] = {
    "proposed": {
        "waiting_approval", "requested", "backing_off", "cancelled", "failed", "succeeded",
    },
    "waiting_approval": {"approved", "rejected", "cancelled", "succeeded"},
    "approved": {"requested", "backing_off", "cancelled", "failed"},
    "requested": {"started", "succeeded", "failed", "unknown", "cancelled", "backing_off"},
    "started": {"succeeded", "failed", "unknown", "cancelled", "backing_off"},
    "backing_off": {"requested", "unknown", "succeeded", "failed", "cancelled"},
    "unknown": {
        "querying", "requested", "backing_off", "succeeded", "failed", "in_doubt", "cancelled",
    },
    "querying": {
        "succeeded", "failed", "requested", "backing_off", "unknown", "in_doubt", "cancelled",
    },
    "in_doubt": {"succeeded", "failed", "requested", "backing_off", "cancelled"},
    "failed": {"requested", "backing_off", "succeeded", "failed", "cancelled"},
    "rejected": set(),
    "cancelled": {"succeeded"},
    "succeeded": {"compensating"},
    "compensating": {"compensated", "compensation_failed"},
    "compensated": set(),
    "compensation_failed": set(),
    "skipped": set(),
}  # fmt: skip
ENDED: Final = ("done", "failed", "cancelled")
MOVING: Final = ("requested", "started", "unknown", "querying", "backing_off")
OVER: Final = ("succeeded", "rejected", "cancelled", "skipped")
_BECOMES: Final = {
    "action_requested": "requested",
    "action_succeeded": "succeeded",
    "action_adopted": "succeeded",
    "effect_found": "succeeded",
    "action_failed": "failed",
    "retry_scheduled": "backing_off",
    "action_unknown": "unknown",
    "action_queried": "querying",
    "action_in_doubt": "in_doubt",
    "action_cancelled": "cancelled",
    "compensation_started": "compensating",
}
_CLOSES_QUESTIONS: Final = (
    "action_succeeded", "action_adopted", "effect_found", "action_failed", "retry_scheduled",
    "action_requested",
)  # fmt: skip


def canonical(value: Any) -> bytes:
    """Canonical JSON, as the contract defines it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


class RunHistory:
    """One run as its committed events tell it."""

    def __init__(self, run_id: str, seen: Seen) -> None:
        self.run_id = run_id
        self.version = 0
        self.hash = ""
        self.status = "running"
        self.paused = False
        self.retried = False
        self.actions: dict[int, dict[str, Any]] = {}
        self.questions: dict[int, dict[str, Any]] = {}
        self.requested: Counter[tuple[int, int]] = Counter()
        self.queried: Counter[tuple[int, int]] = Counter()
        self.cancels: Counter[int] = Counter()
        self.budget: dict[str, Any] = {}
        self.ending: dict[str, Any] = {}
        self.undoing = 0
        self.undone_by: dict[int, int] = {}
        """Of an action that was to be undone: the action that undoes it."""
        self.notified: dict[int, str] = {}
        """By notice: what was said became of it."""
        self.inherited: dict[int, str] = {}
        """Of a fork: actions that were over when it began, and what they are in the run it is of."""
        self.steps = 0
        self.tokens = 0
        self.wrong: list[str] = []
        self._undoable: set[tuple[str, str]] = set()
        self._done_at: dict[int, int] = {}
        self._fork_of: dict[str, Any] | None = None
        self._seen = seen

    def _no(self, invariant: int, text: str) -> None:
        self.wrong.append(f"{invariant}: run {self.run_id} version {self.version}: {text}")

    def take(self, event: dict[str, Any]) -> None:
        """The next event."""
        self._chain(event)
        kind, data = event["type"], event["data"] or {}
        self._seen.events[kind] += 1
        usage = data.get("usage") or {}
        self.tokens += usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
        if kind == "run_started" or kind == "budget_changed":
            self.budget = data["budget"]
            if kind == "run_started":
                self._undoable, self._fork_of = undoable(data), data.get("fork_of")
        elif kind == "step_started":
            self._step(data)
        elif kind in ("status_changed", "run_finished"):
            if kind == "run_finished":
                self._nothing_left()
            elif self.status == "failed":
                self.ending = {}
                self.retried = self.retried or "retry" in data
            self._become(data.get("to") or data["status"])
        elif kind in ("run_paused", "run_resumed"):
            self.paused = kind == "run_paused"
        elif kind == "ending_started":
            for n, _ in data["in_flight"]:
                self.cancels[n] += 1
            self.ending = data
            for question in self.questions.values():
                if not self.undoing or question["action"] != self.undoing:
                    question["open"] = False
        elif kind == "approver_notified" and "action" in data:
            if data["action"] in self.notified:
                self._no(3, f"what became of notice {data['action']} is told twice")
            self.notified[data["action"]] = data["outcome"]
        elif kind == "compensation_started":
            self._undo(data["n"], data["action"])
        elif kind == "compensation_finished":
            self._undone(data["n"], data["action"], data["status"])
        self._action(kind, data, event["at"])
        self._question(kind, data)
        if self._fork_of is not None and self.version == self._fork_of["version"]:
            self._forked(self._fork_of["run_id"])

    def _chain(self, event: dict[str, Any]) -> None:
        if event["version"] != self.version + 1:
            self._no(7, f"is followed by version {event['version']}")
        if event["previous_hash"] != self.hash:
            self._no(7, "the chain is broken")
        bare = {name: value for name, value in event.items() if name != "hash"}
        made = hashlib.sha256(event["previous_hash"].encode() + canonical(bare)).hexdigest()
        if made != event["hash"]:
            self._no(7, f"the hash of {event['type']} is not that of its content")
        self.version, self.hash = event["version"], event["hash"]

    def _become(self, status: str) -> None:
        if status not in RUN[self.status]:
            self._no(5, f"{self.status} -> {status}")
        self._seen.run_moves[self.status, status] += 1
        self.status = status

    def _step(self, data: dict[str, Any]) -> None:
        steps, tokens = self.budget.get("steps"), self.budget.get("tokens")
        if steps is not None and self.steps >= steps:
            self._no(8, f"a step after {self.steps} of {steps}")
        if tokens is not None and self.tokens >= tokens:
            self._no(8, f"a step after {self.tokens} of {tokens} tokens")
        self.steps = data["step"]

    def _action(self, kind: str, data: dict[str, Any], event_at: int) -> None:
        if kind == "action_proposed":
            self.actions[data["n"]] = {"status": "proposed", **data}
            if (data.get("spec") or {}).get("compensate"):
                self._undoable.add(("tool", data["target"]))
            return
        n: int = data.get("n", 0)
        if kind == "action_started":
            if self.actions[n]["status"] == "requested":
                self._move(n, "started")
            return
        becomes = _BECOMES.get(kind)
        if becomes is None:
            return
        if n not in self.actions:
            self._no(7, f"{kind} of action {n}, which was never proposed")
            return
        self._move(n, becomes)
        if kind == "action_requested":
            self.requested[n, data["attempt"]] += 1
            self.actions[n]["attempt"] = data["attempt"]
        elif kind == "action_queried":
            self.queried[n, data["attempt"]] += 1
        elif kind == "action_succeeded":
            self.actions[n]["by_hand"] = data.get("attempt") is None
            self._seen.stood_in["older result"] += "degraded" in data
        elif kind == "action_cancelled":
            self.actions[n]["proven"] = data.get("proven", False)
        elif kind in ("action_failed", "action_in_doubt"):
            self.actions[n]["held"] = not data["closed"]
            self.actions[n]["replaced"] = data.get("replaced", False)
            self._seen.stood_in["tool"] += self.actions[n]["replaced"]
            self._seen.stood_in["model"] += data.get("next_model") is not None
        if becomes == "succeeded":
            self._done_at[n] = event_at
        if kind in _CLOSES_QUESTIONS and not data.get("doubted"):
            for question in self.questions.values():
                if question["action"] == n:
                    question["open"] = False

    def _move(self, n: int, status: str) -> None:
        before = self.actions[n]["status"]
        if before != status and status not in ACTION[before] and not self._again(n, status):
            self._no(5, f"action {n}: {before} -> {status}")
        self._seen.action_moves[before, status] += 1
        self.actions[n]["status"] = status

    def _again(self, n: int, status: str) -> bool:
        """A retry takes up what was cancelled while it may have happened: the same call, same key."""
        action = self.actions[n]
        doubtful = action["status"] == "cancelled" and "attempt" in action and not action["proven"]
        return doubtful and self.retried and status in ("requested", "backing_off")

    def _question(self, kind: str, data: dict[str, Any]) -> None:
        if kind == "approval_requested":
            asked = data["approval"]
            self.questions[asked["n"]] = {
                "open": True, "yes": None, "by": [], "kind": asked["kind"],
                "action": asked.get("action"), "arguments": asked.get("arguments"),
                "asked_by": asked.get("asked_by"), "word": None,
                "signed": asked.get("signed", False), "raised": False,
                "may": asked.get("approvers"), "required": asked.get("required", 1),
            }  # fmt: skip
            self._seen.questions[asked["kind"]] += 1
            if asked["kind"] == "action":
                self._move(asked["action"], "waiting_approval")
                if self.actions[asked["action"]]["kind"] != "tool":
                    self._no(6, f"a person is asked before action {asked['action']}")
            elif asked.get("asked_by") is not None:
                self._move(asked["asked_by"], "waiting_approval")
        elif kind in ("approval_decided", "approval_expired"):
            self._decided(self.questions[data["n"]], data, kind == "approval_expired")

    def _decided(self, question: dict[str, Any], data: dict[str, Any], expired: bool) -> None:
        word = data["decision"]
        self._seen.words[question["kind"], word, expired] += 1
        if not question["open"]:
            self._no(6, f"question {data['n']} was answered after it was closed")
        if word == "escalate":  # others are asked, once
            if not expired or question["raised"]:
                self._no(6, f"question {data['n']} was raised again")
            question["raised"], question["may"] = True, data["to"]
            return
        if data.get("arguments") is not None:
            question["arguments"], question["by"] = data["arguments"], []
        if not expired:
            if str(data["request_id"]).startswith("forged-"):
                self._no(6, f"a forged answer to question {data['n']} was counted")
            if question["signed"] and data["verified"] != "signature":
                self._no(6, f"question {data['n']} was answered by nobody who proved it")
            self._seen.proved[data["verified"]] += 1
            if word in ("approve", "modify") and data["approver"] in question["by"]:
                self._no(6, f"{data['approver']} was counted twice for question {data['n']}")
            if data.get("counts", True):
                question["by"].append(data["approver"])
            for name, asks in (("may", "approvers"), ("signed",) * 2, ("required",) * 2):
                question[name] = data.get("asks", {}).get(asks, question[name])
        if not expired and not data["closes"]:
            return
        question["open"], question["word"] = False, word
        if not expired and word in ("approve", "modify"):
            self._enough(question, data["n"])
        if question["kind"] == "authority" and word == "reject" and question["asked_by"]:
            self._move(question["asked_by"], "rejected")
        if question["kind"] != "action":
            return
        if word in ("approve", "modify"):
            question["yes"] = word
            self._move(question["action"], "approved")
        elif word == "reject":
            self._move(question["action"], "rejected")

    def _enough(self, question: dict[str, Any], n: int) -> None:
        """A yes is that of the people who were asked about what runs, and of as many as are needed."""
        by, may = question["by"], question["may"]
        if len(by) < question["required"] or (may and not set(by) <= set(may)):
            self._no(6, f"question {n} was answered by {by}: asked were {may}")

    def held_up(self) -> str | None:
        """After each transaction: what the run waits for is a call, a person, or nothing."""
        moving = any(
            action["status"] in MOVING and action["kind"] != "notice"
            for action in self.actions.values()
        )
        if moving or self.status in ENDED or self.status == "compensating":
            return None
        if self.ending:
            return None if self.ending.get("compensate") else "it has nothing left to wait for"
        if self.status == "running" and any(q["open"] for q in self.questions.values()):
            return "it is running, and waits for nobody but a person"
        return None

    def counts(self, n: int) -> bool:
        """It must be in the outcome; a step's call that was never made gives way to the next, and
        one that failed to that of its tool's fallback."""
        action = self.actions[n]
        if action.get("replaced") and action["status"] == "failed":
            return False
        step = action.get("step_id")
        given_way = action["status"] == "cancelled" and any(
            m > n and step is not None and other.get("step_id") == step
            for m, other in self.actions.items()
        )
        return action["kind"] == "tool" and not given_way

    def is_tool(self, n: int) -> bool:
        return bool(self.actions[n]["kind"] == "tool")

    def _forked(self, source: str) -> None:
        """What stood here so far is another run's work."""
        self.requested.clear()
        self.queried.clear()
        self.cancels.clear()
        for n, action in self.actions.items():
            if action["kind"] == "notice" or action["status"] in OVER:
                self.inherited[n] = f"{source}/{n}"

    # --- undoing -------------------------------------------------------------------------------

    def _to_undo(self) -> list[int]:
        """Own actions that happened, can be undone, and are not."""
        return [
            n
            for n, action in self.actions.items()
            if action["status"] == "succeeded"
            and n not in self.inherited
            and (
                ("tool", action["target"]) in self._undoable
                or ("step", action.get("step_id")) in self._undoable
            )
        ]

    def _undo(self, n: int, by: int) -> None:
        """One at a time, each once, last first."""
        if self.status != "compensating":
            self._no(5, f"action {n} is being undone while the run is {self.status}")
        if self.undoing:
            self._no(3, f"action {n} is being undone while {self.undoing} still undoes")
        if n in self.inherited:
            self._no(3, f"action {n} is another run's, and is being undone")
        if n in self.undone_by:
            self._no(3, f"action {n} is being undone a second time")
        if self.actions[by]["kind"] != "compensation":
            self._no(3, f"action {by} is no undoing")
        done = self._done_at
        later = [m for m in self._to_undo() if done[m] > done.get(n, 0)]
        if later:
            self._no(3, f"action {n} is being undone before {later}, which were done later")
        self.undone_by[n], self.undoing = by, by

    def _undone(self, n: int, by: int, status: str) -> None:
        if by != self.undoing or self.undone_by.get(n) != by:
            self._no(3, f"action {by} ends undoing {n}, and never began")
        self.undoing = 0
        happened = self.actions[by]["status"] == "succeeded"
        if happened != (status == "compensated"):
            self._no(3, f"action {n} is {status}, and {by} {self.actions[by]['status']}")
        if status == "compensation_failed" and not any(
            question["action"] == by and question["word"] == "cancel_run"
            for question in self.questions.values()
        ):
            self._no(3, f"undoing {n} was given up by nobody")
        self._move(n, status)

    def _nothing_left(self) -> None:
        if self.ending.get("compensate") and self._to_undo():
            self._no(3, f"actions {self._to_undo()} are not undone when the run ends")


def undoable(started: dict[str, Any]) -> set[tuple[str, str]]:
    """What `run_started` says can be undone: tools, and steps with an undoing of their own."""
    tools = {("tool", name) for name, spec in started["tools"].items() if spec.get("compensate")}
    steps = {("step", step["id"]) for step in started["plan"] or () if step.get("compensate")}
    return tools | steps


class Seen:
    """What has been exercised, over all runs."""

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        self.run_moves: Counter[tuple[str, str]] = Counter()
        self.action_moves: Counter[tuple[str, str]] = Counter()
        self.questions: Counter[str] = Counter()
        self.words: Counter[tuple[str, str, bool]] = Counter()
        self.proved: Counter[str] = Counter()
        self.stood_in: Counter[str] = Counter()

    def add(self, other: Seen) -> None:
        """Take in what another one has seen."""
        self.events.update(other.events)
        self.run_moves.update(other.run_moves)
        self.action_moves.update(other.action_moves)
        self.questions.update(other.questions)
        self.words.update(other.words)
        self.proved.update(other.proved)
        self.stood_in.update(other.stood_in)
