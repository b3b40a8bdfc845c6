"""People and other clients: they submit, decide and steer; mostly sensibly, sometimes not.

A person who is asked whether something happened looks at the service, and only when no request
is on its way any more: that is what `in_doubt` asks of them.
"""

from __future__ import annotations

import random
from typing import Any, Final

import msgspec

from perdure.schemas import topics

from .broker import BrokerDown
from .invariants import Asked
from .outside import Outside
from .signed import signed
from .world import World

PATIENCE_US: Final = 4_000_000
"""How long an in_doubt question lies before somebody looks."""


FORGED: Final = "forged-"


class People:
    """Answers what is asked. ``willing``: promptly, and so that every run comes to its end."""

    def __init__(self, world: World, outside: Outside, asked: Asked, chance: random.Random) -> None:
        self.world = world
        self.outside = outside
        self.asked = asked
        self.chance = chance
        self.willing = False
        self._answered: dict[str, int] = {}
        self._forged = 0
        self._first_seen: dict[str, int] = {}
        self.world.later(0.5, self._look)

    # --- sending -------------------------------------------------------------------------------

    def send(self, topic: str, value: Any, run_id: str) -> tuple[int, int] | None:
        """With any key or none, as clients do; sent again later if the broker is away."""
        key = self.chance.choice((run_id, run_id, None, "whatever"))
        raw = value if isinstance(value, bytes) else msgspec.json.encode(value)
        try:
            return self.world.broker.produce(topic, None if key is None else key.encode(), raw)
        except BrokerDown:
            return None

    def _request(self, topic: str, value: dict[str, Any], run_id: str, default: str | None) -> None:
        """A decision or control request: it must get its verdict."""
        there = self.send(topic, value, run_id)
        if there is None:
            self.world.later(1.0, lambda: self._request(topic, value, run_id, default))
            return
        request_id = value.get("request_id") or default or f"{topic}-{there[0]}-{there[1]}"
        self.asked.requests[run_id, request_id] += 1
        self.world.say(
            f"person: {value.get('decision') or value.get('command')} for {run_id}: {request_id}"
        )

    def decide(self, approval_id: str, decision: str, approver: str = "ann", **more: Any) -> None:
        """A decision on a question. ``signed_by``: whoever signs it."""
        signer = more.pop("signed_by", None)
        value = {"approval_id": approval_id, "decision": decision, "approver": approver, **more}
        if signer is not None:
            value = signed(value, self.world.time.now_ms(), signer)
        run_id = approval_id.rpartition("/")[0]
        self._request(topics.APPROVALS, value, run_id, f"{approval_id}/{approver}/{decision}")

    def control(self, run_id: str, command: str, **more: Any) -> None:
        """A control request."""
        self._request(topics.CONTROL, {"run_id": run_id, "command": command, **more}, run_id, None)

    # --- deciding ------------------------------------------------------------------------------

    def _look(self) -> None:
        """Now and then somebody looks at what is open."""
        for approval_id, question in self.world.questions().items():
            last = self._answered.get(approval_id)
            if last is not None and self.world.now_us - last < 8_000_000:
                continue
            if self.willing or self.chance.random() < 0.5:
                self._answer(approval_id, question, last is not None)
        self.world.later(self.chance.uniform(0.3, 2.5), self._look)

    def _answer(self, approval_id: str, question: dict[str, Any], again: bool) -> None:
        kind = question["kind"]
        if kind == "in_doubt" and not self._can_tell(approval_id, question):
            return
        if question.get("signed") and not self.willing and self.chance.random() < 0.4:
            self._forge(approval_id, question)
            return
        self._answered[approval_id] = self.world.now_us
        required = question["required"]
        word, more = self._word(kind, question)
        may = question["approvers"] or ["ann", "bob", "cyd"]
        people = may[:required] if word in ("approve", "modify") else may[:1]
        if self.willing and again:  # the count may have begun anew
            people = may
        for person in people:
            given = dict(more)
            if question.get("signed"):
                given |= {"digest": question["digest"], "signed_by": person}
            if word == "modify" and person != people[0]:
                if "signed_by" in given:  # what is signed names what was shown: not this any more
                    continue
                self.decide(approval_id, "approve", person)
                continue
            if self.chance.random() < 0.3:
                given["digest"] = question["digest"]
            self.decide(approval_id, word, person, **given)
            if self.chance.random() < 0.1:
                self.decide(approval_id, word, person, **given)  # the client sends it twice
        if not self.willing and self.chance.random() < 0.25:
            self._nonsense(approval_id, question)

    def _can_tell(self, approval_id: str, question: dict[str, Any]) -> bool:
        first = self._first_seen.setdefault(approval_id, self.world.now_us)
        return self.world.now_us - first >= PATIENCE_US and not self.outside.on_the_way_of(
            question["action_id"]
        )

    def _word(self, kind: str, question: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        chance, because = self.chance, {"reason": "because"}
        if kind == "in_doubt":
            if self.outside.by_action[question["action_id"]]:
                return "mark_done", {**because, "answer": {"by": "hand"}}
            return "mark_not_done", because
        if kind == "budget":
            if not self.willing and chance.random() < 0.5:
                return "extend", {"budget": {"steps": 2, "tokens": 500}}
            return "reject", because
        if kind == "handover":
            if self.willing:
                return "cancel_run", because
            return chance.choice(
                (("retry", {}), ("answer", {"answer": "by hand"}), ("cancel_run", because))
            )
        if kind == "action":
            roll = chance.random()
            if roll < 0.6:
                return "approve", {}
            if roll < 0.75:
                return "modify", {**because, "arguments": {"amount": 7}}
            return ("reject", because) if roll < 0.95 else ("cancel_run", because)
        if kind == "authority" and chance.random() < 0.9:
            return chance.choice((("approve", {}), ("reject", because)))
        if kind == "clarification" and chance.random() < 0.9:
            return "answer", {"answer": "as you like"}
        return "cancel_run", because

    def _forge(self, approval_id: str, question: dict[str, Any]) -> None:
        """Somebody answers in another's name, without a signature or with his own."""
        more = {"digest": question["digest"], "request_id": f"{FORGED}{self._forged}"}
        self._forged += 1
        if self.chance.random() < 0.5:
            more["signed_by"] = "bob"
        self.decide(approval_id, "approve", "ann", **more)

    def _nonsense(self, approval_id: str, question: dict[str, Any]) -> None:
        """What must be refused, and answered."""
        run_id = approval_id.rpartition("/")[0]
        kind = self.chance.randrange(4)
        if kind == 0:
            self.decide(approval_id, "approve", "eve", digest="0" * 64)
        elif kind == 1:
            self.decide(f"{run_id}/a99", "approve", "ann")
        elif kind == 2:
            self.decide(approval_id, "approve", question["user_id"])
        else:
            self.decide(approval_id, "approve", "ann", run_id="another")
