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
    "proposed": {"waiting_approval", "requested", "backing_off", "cancelled", "failed"},
    "waiting_approval": {"approved", "rejected", "cancelled"},
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
}
_CLOSES_QUESTIONS: Final = (
    "action_succeeded", "action_adopted", "effect_found", "action_failed", "retry_scheduled",
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
        self.actions: dict[int, dict[str, Any]] = {}
        self.questions: dict[int, dict[str, Any]] = {}
        self.requested: Counter[tuple[int, int]] = Counter()
        self.queried: Counter[tuple[int, int]] = Counter()
        self.cancels: Counter[int] = Counter()
        self.budget: dict[str, Any] = {}
        self.steps = 0
        self.tokens = 0
        self.wrong: list[str] = []
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
        elif kind == "step_started":
            self._step(data)
        elif kind in ("status_changed", "run_finished"):
            self._become(data.get("to") or data["status"])
        elif kind in ("run_paused", "run_resumed"):
            self.paused = kind == "run_paused"
        elif kind == "ending_started":
            for n, _ in data["in_flight"]:
                self.cancels[n] += 1
            for question in self.questions.values():
                question["open"] = False
        self._action(kind, data)
        self._question(kind, data)

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

    def _action(self, kind: str, data: dict[str, Any]) -> None:
        if kind == "action_proposed":
            self.actions[data["n"]] = {"status": "proposed", **data}
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
        if kind in _CLOSES_QUESTIONS:
            for question in self.questions.values():
                if question["action"] == n:
                    question["open"] = False

    def _move(self, n: int, status: str) -> None:
        before = self.actions[n]["status"]
        if before != status and status not in ACTION[before]:
            self._no(5, f"action {n}: {before} -> {status}")
        self._seen.action_moves[before, status] += 1
        self.actions[n]["status"] = status

    def _question(self, kind: str, data: dict[str, Any]) -> None:
        if kind == "approval_requested":
            asked = data["approval"]
            self.questions[asked["n"]] = {
                "open": True, "yes": None, "by": [], "kind": asked["kind"],
                "action": asked.get("action"), "arguments": asked.get("arguments"),
            }  # fmt: skip
            self._seen.questions[asked["kind"]] += 1
            if asked["kind"] == "action":
                self._move(asked["action"], "waiting_approval")
        elif kind in ("approval_decided", "approval_expired"):
            self._decided(self.questions[data["n"]], data, kind == "approval_expired")

    def _decided(self, question: dict[str, Any], data: dict[str, Any], expired: bool) -> None:
        word = data["decision"]
        self._seen.words[question["kind"], word, expired] += 1
        if not question["open"]:
            self._no(6, f"question {data['n']} was answered after it was closed")
        if data.get("arguments") is not None:
            question["arguments"], question["by"] = data["arguments"], []
        if not expired:
            if word in ("approve", "modify") and data["approver"] in question["by"]:
                self._no(6, f"{data['approver']} was counted twice for question {data['n']}")
            question["by"].append(data["approver"])
        if not expired and not data["closes"]:
            return
        question["open"] = False
        if question["kind"] != "action":
            return
        if word in ("approve", "modify"):
            question["yes"] = word
            self._move(question["action"], "approved")
        elif word == "reject":
            self._move(question["action"], "rejected")


class Seen:
    """What has been exercised, over all runs."""

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        self.run_moves: Counter[tuple[str, str]] = Counter()
        self.action_moves: Counter[tuple[str, str]] = Counter()
        self.questions: Counter[str] = Counter()
        self.words: Counter[tuple[str, str, bool]] = Counter()

    def add(self, other: Seen) -> None:
        """Take in what another one has seen."""
        self.events.update(other.events)
        self.run_moves.update(other.run_moves)
        self.action_moves.update(other.action_moves)
        self.questions.update(other.questions)
        self.words.update(other.words)
