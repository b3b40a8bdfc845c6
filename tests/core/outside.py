"""A fake outside for random runs: it acts, forgets, answers late or twice, and knows the truth.

It shares no code with the core: what it counts is what the invariants are judged by.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

from msgspec import Struct
from perdure.schemas.records import ActionCommand, ActionError, ActionResult, Usage

NEVER_SENT = ["connect_refused", "dns_failed", "rate_limited", "connect_timeout"]


class Slow(Struct):
    """A call that is going on; it ends before ``until``."""

    command: ActionCommand
    until: int


class Outside:
    """Queues of commands, workers that take them in any order, and the effects they had."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.queued: list[ActionCommand] = []
        self.slow: list[Slow] = []
        self.answers: list[ActionResult] = []
        self.told: list[ActionResult] = []
        self.effects: dict[str, int] = defaultdict(int)
        self.kept: dict[str, Any] = {}
        self.ended: dict[tuple[str, int], ActionResult | None] = {}
        self.barred: set[tuple[str, int]] = set()
        self.model_done = False

    def issue(self, command: ActionCommand) -> None:
        if command.verb == "call" and command.effect == "external" and command.attempt > 1:
            assert not self.effects[command.action_id], "called again though it had happened"
        self.queued.append(command)

    # --- workers -----------------------------------------------------------------------------

    def take(self, now: int) -> None:
        """A worker takes any command."""
        command = self.queued.pop(self.chance.randrange(len(self.queued)))
        if command.request is not None:
            if command.verb == "call":
                self._model(command)
        else:
            {"call": self._call, "query": self._query, "cancel": self._cancel}[command.verb](
                command, now
            )

    def _call(self, command: ActionCommand, now: int) -> None:
        attempt = (command.action_id, command.attempt)
        if attempt in self.barred:
            return
        if now >= command.expires_at:
            self._end(command, self._failed(command, "transient", "EXPIRED"))
        elif self.chance.random() < 0.3:
            self.slow.append(Slow(command, now + int(command.timeout_seconds * 1000)))
            if self.chance.random() < 0.7:
                self.answers.append(_result(command, "started"))
            if self.chance.random() < 0.3:
                self.answers.append(_result(command, "progress", progress={"page": 1}))
        else:
            self._act(command)

    def finish(self, now: int | None = None) -> None:
        """Slow calls end: those that must by ``now``, or any one."""
        if now is None:
            ending = [self.chance.choice(self.slow)] if self.slow else []
        else:
            ending = [slow for slow in self.slow if slow.until <= now]
        for slow in ending:
            self.slow.remove(slow)
            self._act(slow.command)

    def _act(self, command: ActionCommand) -> None:
        """The call happens or does not, and its answer says so, says that it can't say, or is lost."""
        key, effect = command.idempotency_key, command.effect
        done_before = effect == "idempotent" and key in self.kept
        happens = done_before or self.chance.random() < 0.6
        if happens:
            if effect != "read_only" and not done_before:
                self.effects[command.action_id] += 1
                self.kept[key] = {"effect": command.action_id, "n": self.chance.randrange(100)}
            answer = _result(command, "succeeded", result=self.kept.get(key, "seen"))
        else:
            answer = self._refusal(command)
        if self.chance.random() < 0.25:  # nobody can say what happened
            unclear = {
                "read_only": lambda: self._failed(command, "transient", "read_timeout"),
                "idempotent": lambda: self._failed(command, "transient", "connection_lost"),
                "external": lambda: _result(command, "unknown"),
            }[effect]()
            answer = unclear if self.chance.random() < 0.7 else _result(command, "unknown")
        if self.chance.random() < 0.15:
            self.ended[command.action_id, command.attempt] = None
            return
        self._end(command, answer)

    def _refusal(self, command: ActionCommand) -> ActionResult:
        if self.chance.random() < 0.5:
            return self._failed(command, "transient", self.chance.choice(NEVER_SENT))
        kinds = ["business", "permission", "invalid_arguments", "unavailable", "internal"]
        return self._failed(command, self.chance.choice(kinds), "")

    def _end(self, command: ActionCommand, answer: ActionResult) -> None:
        self.ended[command.action_id, command.attempt] = answer
        self.answers.append(answer)

    def _query(self, command: ActionCommand, now: int) -> None:
        attempt = (command.action_id, command.attempt)
        kind = self.chance.random()
        if kind < 0.2:
            self.answers.append(_result(command, "unknown"))
        elif any(slow.command.action_id == command.action_id for slow in self.slow):
            self.answers.append(_result(command, "running"))
        elif self.effects[command.action_id]:
            found = self.kept[command.idempotency_key]
            self.answers.append(_result(command, "succeeded", result=found, adopted=True))
        elif kind < 0.9:
            self.barred.add(attempt)
            self.answers.append(_result(command, "absent"))

    def _cancel(self, command: ActionCommand, now: int) -> None:
        attempt = (command.action_id, command.attempt)
        if any((s.command.action_id, s.command.attempt) == attempt for s in self.slow):
            return
        if attempt in self.ended:
            known = self.ended[attempt]
            if known is not None:
                self.answers.append(known)
            return
        self.barred.add(attempt)
        self.answers.append(_result(command, "cancelled"))

    def _failed(self, command: ActionCommand, kind: str, code: str) -> ActionResult:
        error = ActionError(kind, code, "no luck")
        if self.chance.random() < 0.2:
            error.retry_after_seconds = self.chance.choice([0.0, 1.5, 1000.0])
        return _result(command, "failed", error=error)

    # --- models ------------------------------------------------------------------------------

    def _model(self, command: ActionCommand) -> None:
        kind = self.chance.random()
        if kind < 0.1:
            errors = ["model_unavailable", "model_invalid", "transient", "content_filter"]
            errors.append("context_overflow")
            self.answers.append(self._failed(command, self.chance.choice(errors), "http_500"))
            return
        reply: Any
        if kind < 0.2 and not self.model_done:
            odd = [None, [], "text", {"tool_calls": "x"}, {"content": ""}, {"finish_reason": "odd"}]
            reply = self.chance.choice([*odd, {"tool_calls": [7, {"name": "put", "arguments": 3}]}])
        elif self.model_done or kind < 0.25:
            reply = {"content": "done"}
        else:
            names = ["look", "put", "putq", "pay", "payq", "risky", "nosuch", *BUILTINS]
            chosen = [self.chance.choice(names) for _ in range(self.chance.randint(1, 4))]
            calls = [{"name": name, "arguments": self._arguments(name)} for name in chosen]
            reply = {"tool_calls": calls, "content": self.chance.choice([None, "thinking"])}
        usage = Usage(self.chance.randrange(50), self.chance.randrange(50), 0.25)
        self.answers.append(_result(command, "succeeded", result=reply, usage=usage))

    def _arguments(self, name: str) -> Any:
        return BUILTINS.get(name) or {"amount": self.chance.choice([1, 500, 2**70, "x", None])}


BUILTINS = {
    "ask_user": {"question": "how much?"},
    "ask_authority": {"reason": "it is needed"},
    "hand_over": {"reason": "no way on"},
    "pin": {"name": "amount", "value": [1, 500]},
    "update_plan": {"items": [{"title": "pay", "status": "in_progress"}]},
}


def _result(command: ActionCommand, status: str, **values: Any) -> ActionResult:
    return ActionResult(
        command.run_id, command.action_id, command.attempt, status, worker="w1", **values
    )
