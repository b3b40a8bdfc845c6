"""Which decision counts when: every kind of question x every word x every moment, as one table.

What must be observed is written down here once more, from the contract and not from the code: a
word that the kind allows counts in time and only then; everything else is refused, changes
nothing, and the reason says why. Each cell is played twice: as a record whose key is its run's,
and as one without a key that reaches its owner by way of another engine, later.

`pytest -s tests/engine/test_verdict_table.py` prints the table.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
from perdure.schemas import signing, topics
from perdure.schemas.records import ApprovalDecision, ApprovalRule, BudgetPolicy
from perdure.streams.engine.signatures import Signatures
from perdure.streams.runtime.forwarding import forward, unwrap
from perdure.streams.runtime.processor import Record

from .desk import Desk, agent, tool

ALLOWED: Final = {
    "action": {"approve", "modify", "reject", "cancel_run"},
    "clarification": {"answer", "cancel_run"},
    "authority": {"approve", "reject", "cancel_run"},
    "handover": {"retry", "answer", "cancel_run"},
    "in_doubt": {"mark_done", "mark_not_done", "cancel_run"},
    "budget": {"extend", "reject", "cancel_run"},
}
WITH: Final[dict[str, dict[str, Any]]] = {
    "approve": {},
    "modify": {"reason": "less", "arguments": {"amount": 4}},
    "reject": {"reason": "no"},
    "answer": {"answer": "the blue one"},
    "retry": {},
    "mark_done": {"reason": "I looked", "answer": {"paid": 5}},
    "mark_not_done": {"reason": "I looked"},
    "extend": {"budget": {"steps": 5}},
    "cancel_run": {},
}
EXPECTED: Final = {
    # moment: (a word that the kind allows, any other word)
    "no such run": ("no run", "no run"),
    "early": ("unknown", "unknown"),
    "in time": ("accepted", "kind"),
    "in time, signed": ("accepted", "kind"),
    "down, in time": ("accepted", "kind"),
    "down, late": ("expired", "expired"),
    "expired": ("closed", "closed"),
    "run ended": ("closed", "closed"),
    "sent twice": ("accepted", "kind"),
    "decided": ("closed", "closed"),
    "foreign": ("person", "kind"),
    "self": ("own task", "kind"),
    "digest": ("digest", "kind"),
    "unsigned": ("unsigned", "kind"),
    "captured": ("closed", "kind"),
    "replayed": ("signature", "signature"),
    "replayed later": ("time", "time"),
}
REASONS: Final = {
    "there is no such run": "no run",
    "was ever asked for": "unknown",
    "expired before": "expired",
    "already closed": "closed",
    "a question of kind": "kind",
    "is the task's user": "own task",
    "may not decide here": "person",
    "the digest is not": "digest",
    "takes signed decisions only": "unsigned",
    "over another decision": "signature",
    "made at another time": "time",
}
KEYS: Final = {name: signing.new_key(name) for name in ("ann", "uma")}
WITHIN: Final = 1000
LATE: Final = 5_000


class Asked:
    """A run of user uma (and a twin) on the way to its question, which ann answers."""

    def __init__(self, directory: Path, kind: str, *, signed: bool = False) -> None:
        file = directory / "approvers.jwks"
        file.write_text(json.dumps({"keys": [signing.public(key) for key in KEYS.values()]}))
        self.desk = Desk(directory, Signatures(file))
        self.kind = kind
        self.person = "uma" if kind == "clarification" else "ann"
        named = ["user"] if kind == "clarification" else ["ann", "uma"]
        plain = {"kind": kind, "approvers": named, "within_seconds": WITHIN, "signed": signed}
        about = {"tool": "pay"} if kind == "action" else {}
        rule = msgspec.convert({**plain, **about}, ApprovalRule)
        risky = "always" if kind == "action" else "never"
        steps = 1 if kind == "budget" else 20
        self.desk.catalog(
            tool("look"),
            tool("pay", risky, "external"),
            agent("look", "pay", approvals=[rule], budget=BudgetPolicy(steps=steps, then="ask")),
        )
        for run_id in ("r", "twin"):
            self._start(run_id)

    def _start(self, run_id: str) -> None:
        plan = [{"id": "a", "tool": "look"}, {"id": "b", "tool": "pay", "arguments": {"amount": 5}}]
        more = {"input": "go"} if self.kind == "clarification" else {"plan": plan}
        self.desk.feed(topics.TASKS, task_id=run_id, agent="demo", user_id="uma", **more)

    def ask(self) -> Asked:
        for run_id in ("r", "twin"):
            if self.kind == "clarification":
                call = {"name": "ask_user", "arguments": {"question": "which one?"}}
                reply = {"content": None, "tool_calls": [call], "finish_reason": "tool_calls"}
                self._result(run_id, result=reply)
                continue
            self._result(run_id, result=1)
            if self.kind in ("authority", "handover"):
                error = {"authority": "permission", "handover": "invalid_arguments"}[self.kind]
                self._result(run_id, status="failed", error={"kind": error, "code": "no"})
            elif self.kind == "in_doubt":
                self._result(run_id, status="unknown", error={"kind": "unknown", "code": "lost"})
        assert {question["kind"] for question in self.desk.on(topics.PENDING)} == {self.kind}
        return self

    def _result(self, run_id: str, status: str = "succeeded", **more: Any) -> None:
        command = [command for command in self.commands() if command["run_id"] == run_id][-1]
        where = {name: command[name] for name in ("run_id", "action_id", "attempt")}
        self.desk.feed(topics.RESULTS, **where, status=status, **more)

    def commands(self) -> list[Any]:
        return [value for sent, _, value in self.desk.sent if sent.startswith("agent.commands.")]

    def copy(self) -> Asked:
        """The same run once more, on a desk that shares nothing that changes."""
        made, desk = copy.copy(self), copy.copy(self.desk)
        made.desk = desk
        desk.store, desk.memos = dict(desk.store), dict(desk.memos)
        desk.timers, desk.sent, desk.dead = dict(desk.timers), list(desk.sent), list(desk.dead)
        return made

    def question(self, run_id: str = "r") -> Any:
        return next(q for q in self.desk.on(topics.PENDING) if q and q["run_id"] == run_id)

    def word(self, decision: str, **more: Any) -> dict[str, Any]:
        plain = {"approval_id": "r/a1", "decision": decision, "approver": self.person}
        return {**plain, **WITH[decision], **more}

    def signed(self, decision: str, run_id: str = "r") -> dict[str, Any]:
        question = self.question(run_id)
        named = {"approval_id": question["approval_id"], "digest": question["digest"]}
        word = msgspec.convert(self.word(decision, **named), ApprovalDecision)
        made: dict[str, Any] = msgspec.to_builtins(
            signing.sign(word, KEYS[self.person], self.desk.now)
        )
        return made

    def facts(self) -> tuple[int, int, int]:
        """How much has happened: events, commands, changes of what is pending."""
        desk = self.desk
        return len(desk.on(topics.EVENTS)), len(self.commands()), len(desk.on(topics.PENDING))


Send = Callable[[Asked, Record], None]


def keyed(asked: Asked, record: Record) -> None:
    asked.desk.take(record)


def unkeyed(asked: Asked, record: Record) -> None:
    """Seen by another partition's engine first, which sends it on to its owner."""
    topic, key, value, headers, partition = forward(record, topics.FORWARDED, "r", 0)
    on_its_way = Record(topic, partition or 0, 9, asked.desk.now + 700, key, value, headers)
    asked.desk.now += 900
    asked.desk.take(unwrap(on_its_way))


def observed(asked: Asked, record: Record, send: Send) -> str:
    """What the verdict says, in short; fails if a refusal changed anything, or a yes counted twice."""
    before, verdicts = asked.facts(), len(asked.desk.on(topics.VERDICTS))
    counted = len(decided(asked))
    send(asked, record)
    (verdict,) = asked.desk.on(topics.VERDICTS)[verdicts:]
    assert asked.desk.dead == []
    assert verdict["request_id"] == _request_id(record)
    if verdict["accepted"]:
        assert len(decided(asked)) <= 1
        assert counted or len(decided(asked)) == 1
        return "accepted"
    assert asked.facts() == before, "a refusal changes nothing"
    found = [short for text, short in REASONS.items() if text in verdict["reason"]]
    return found[0] if found else str(verdict["reason"])


def _request_id(record: Record) -> str:
    plain = json.loads(record.value or b"")
    default = "/".join(plain[name] for name in ("approval_id", "approver", "decision"))
    return str(plain.get("request_id", default))


def decided(asked: Asked) -> list[Any]:
    events = asked.desk.on(topics.EVENTS)
    return [event for event in events if event["type"] == "approval_decided"]


# --- the moments ------------------------------------------------------------------------------


class Bench:
    """The desks that the moments begin with, made once for each kind."""

    def __init__(self, directory: Path, kind: str) -> None:
        self.kind = kind
        self._before = Asked(directory, kind)
        self._asked = self._before.copy().ask()
        self._demanding = Asked(directory, kind, signed=True).ask()

    def play(self, moment: str, word: str, send: Send) -> str:
        start = {"early": self._before, "in time, signed": self._demanding}
        start["unsigned"] = self._demanding
        asked = start.get(moment, self._asked).copy()
        return MOMENTS[moment](asked, word, send)


def _plain(asked: Asked, word: str, send: Send, **more: Any) -> str:
    record = asked.desk.record(topics.APPROVALS, **asked.word(word, **more))
    return observed(asked, record, send)


def _signed(asked: Asked, word: str, send: Send) -> str:
    record = asked.desk.record(topics.APPROVALS, **asked.signed(word))
    found = observed(asked, record, send)
    assert [event["data"]["verified"] for event in decided(asked)] in ([], ["signature"])
    return found


def _down(asked: Asked, word: str, send: Send, sent_at: int) -> str:
    """The engine is away when the time is over; back, it reads before any question expires."""
    desk, expires = asked.desk, asked.question()["expires_at"]
    desk.now = expires + sent_at
    record = desk.record(topics.APPROVALS, **asked.word(word))
    desk.now = expires + LATE
    desk.take_over()
    assert desk.engine.timer_delay(b"r/ask/1", expires, desk.now) >= 10_000
    found = observed(asked, record, send)
    desk.tick(60)
    expired = [e for e in desk.on(topics.EVENTS) if e["type"] == "approval_expired"]
    mine = [event for event in expired if event["run_id"] == "r"]
    assert len(mine) == (found != "accepted"), "answered in time, or expired, never both"
    return found


def _expired(asked: Asked, word: str, send: Send) -> str:
    asked.desk.tick(WITHIN + 1)
    return _plain(asked, word, send)


def _ended(asked: Asked, word: str, send: Send) -> str:
    asked.desk.feed(topics.CONTROL, run_id="r", command="cancel", by="uma")
    assert asked.desk.outcome()["status"] == "cancelled"
    return _plain(asked, word, send)


def _twice(asked: Asked, word: str, send: Send) -> str:
    """The same verdict again, and nothing more happens."""
    first = _plain(asked, word, send)
    before, last = asked.facts(), asked.desk.on(topics.VERDICTS)[-1]
    assert _plain(asked, word, send) == first
    assert asked.facts() == before
    again = asked.desk.on(topics.VERDICTS)[-1]
    told = ("accepted", "reason", "version")
    assert [again[name] for name in told] == [last[name] for name in told]
    return first


def _decided(asked: Asked, word: str, send: Send) -> str:
    """Closed by a cancel_run; then the word comes from the same person as a new request."""
    assert _plain(asked, "cancel_run", keyed) == "accepted"
    return _plain(asked, word, send, request_id="another")


def _wrong_digest(asked: Asked, word: str, send: Send) -> str:
    return _plain(asked, word, send, digest=asked.question("twin")["digest"])


def _replayed(asked: Asked, word: str, send: Send) -> str:
    """What was signed for the twin's question, with this question's id on it."""
    taken = {**asked.signed(word, "twin"), "approval_id": "r/a1"}
    return observed(asked, asked.desk.record(topics.APPROVALS, **taken), send)


def _captured(asked: Asked, word: str, send: Send) -> str:
    """A signed word that has counted (or not), under a new request id."""
    taken = asked.signed(word)
    observed(asked, asked.desk.record(topics.APPROVALS, **taken), keyed)
    again = asked.desk.record(topics.APPROVALS, **taken, request_id="another")
    return observed(asked, again, send)


def _replayed_later(asked: Asked, word: str, send: Send) -> str:
    taken = asked.signed(word)
    asked.desk.now += 600_000
    return observed(asked, asked.desk.record(topics.APPROVALS, **taken), send)


MOMENTS: Final[dict[str, Callable[[Asked, str, Send], str]]] = {
    "no such run": lambda a, w, s: _plain(a, w, s, approval_id="nobody/a1"),
    "early": _plain,
    "in time": _plain,
    "in time, signed": _signed,
    "down, in time": lambda a, w, s: _down(a, w, s, -1),
    "down, late": lambda a, w, s: _down(a, w, s, 0),
    "expired": _expired,
    "run ended": _ended,
    "sent twice": _twice,
    "decided": _decided,
    "foreign": lambda a, w, s: _plain(a, w, s, approver="mallory"),
    "self": lambda a, w, s: _plain(a, w, s, approver="uma"),
    "digest": _wrong_digest,
    "unsigned": _plain,
    "captured": _captured,
    "replayed": _replayed,
    "replayed later": _replayed_later,
}


def expected(kind: str, word: str, moment: str) -> str:
    counts, other = EXPECTED[moment]
    if moment == "self" and kind == "clarification":  # it is the task's user who is asked
        counts = "accepted"
    return counts if word in ALLOWED[kind] else other


def print_table(rows: list[list[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))


def test_the_table(tmp_path: Path) -> None:
    assert set(MOMENTS) == set(EXPECTED)
    wrong: list[str] = []
    rows = [["kind", "decision", *MOMENTS]]
    for kind in ALLOWED:
        bench = Bench(tmp_path, kind)
        for word in WITH:
            row = [kind, word]
            for moment in MOMENTS:
                with_key = bench.play(moment, word, keyed)
                without = bench.play(moment, word, unkeyed)
                cell = with_key if with_key == without else f"{with_key} | {without}"
                row.append(cell)
                wanted = expected(kind, word, moment)
                if cell != wanted:
                    wrong.append(f"{kind} x {word} x {moment}: {cell}, not {wanted}")
            rows.append(row)
    print("\nEach cell: with a key and without one (`a | b` where they differ)")
    print_table(rows)
    assert wrong == []


NEAR: Final[list[dict[str, Any]]] = [
    {"decision": word}
    for word in ("Approve", "APPROVE", "approve ", "yes", "no, don't approve", "", True, "true")
] + [{"decision": "false"}, {"decision": False}, {"decision": None}, {"approved": True}]


def test_what_only_looks_like_a_yes_is_refused(tmp_path: Path) -> None:
    asked = Asked(tmp_path, "action").ask()
    before = asked.facts()
    for near in NEAR:
        asked.desk.feed(topics.APPROVALS, **{**asked.word("approve"), **near})
        assert asked.desk.on(topics.VERDICTS)[-1]["accepted"] is False, near
        assert asked.facts() == before
    assert len(asked.desk.on(topics.VERDICTS)) == len(NEAR)
    assert _plain(asked, "approve", keyed) == "accepted"
