"""Random runs against a fake outside: whatever comes, in whatever order, the invariants hold.

A failure names one seed; ``run(seed)`` repeats it. The invariants are those of lifecycle section
9 that the core alone can keep: 2, 3, 5, 6, 7 and 10 (4, 5, 7 and 10 are in `World.feed`).
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from perdure.schemas.records import (
    ActionResult,
    BudgetPolicy,
    ModelSpec,
    Person,
    RetryPolicy,
    Window,
)
from perdure.streams.core.decide.decision import Decision
from perdure.streams.core.decide.inputs import Timer
from perdure.streams.core.events import EVENT_TYPES

from .harness import FINAL, Budget, PlanStep, World, agent, rule, tool
from .outside import Outside

PEOPLE = ["ann", "bob", "uma", "eve"]
WORDS = ["approve", "modify", "reject", "answer", "retry", "mark_done", "mark_not_done", "extend", "cancel_run"]  # fmt: skip
_AMOUNT = {"type": "object", "properties": {"amount": {}}}
STATUSES = ["started", "progress", "succeeded", "failed", "unknown", "absent", "running", "cancelled"]  # fmt: skip


class Random:
    """One random run and what is checked of it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.outside = Outside(self.chance)
        self.world = self._world()
        self.keyless = set(self.world.tools)
        if seed % 2:
            self._stand_ins(random.Random(f"{seed}/stand-ins"))
        self.tiers = random.Random(f"{seed}/tiers") if seed % 4 else None
        if self.tiers is not None:
            self._large_amounts(self.tiers)
        self.taken = 0
        self.checked = 0
        self.yes: dict[int, set[str]] = {}
        self.changed = 0
        self.shown: dict[int, Any] = {}
        self.allowed: set[int] = set()
        self.waits_for_word: set[int] = set()
        self.closed: set[int] = set()
        self.held: set[str] = set()
        self.undoing: set[int] = set()

    def _world(self) -> World:
        choose = self.chance.choice
        times = {
            "timeout_seconds": choose([1, 10, 60]),
            "settle_seconds": choose([None, 0, 5, 120]),
        }
        key_valid = choose([2, 30, 86_400])
        tools = [
            tool("look", **times),
            tool("put", "idempotent", **times, retry=RetryPolicy(attempts=choose([1, 3]))),
            tool("putq", "idempotent", has_query=True, key_valid_seconds=key_valid, **times),
            tool("pay", "external", compensate="undo", **times),
            tool("undo", choose(["idempotent", "external"]), **times),
            tool("payq", "external", has_query=True, approval="arguments.amount > 100", **times),
            tool("risky", "external", approval="always", **times),
        ]
        rules = [
            rule(
                kind="action",
                tool="risky",
                required=choose([1, 2]),
                within_seconds=choose([1, 100, 10_000]),
                on_timeout=choose(["approve", "reject", "cancel_run", "modify"]),
            ),
            rule(kind="handover", on_timeout=choose(["retry", "cancel_run", "answer"])),
            rule(kind="budget", on_timeout=choose(["reject", "cancel_run", "extend"])),
        ]
        notify = {"tool": choose(["look", "put", "pay", "gone"]), "arguments": {"amount": 1}}
        ops = Person(members=["ann", "bob"], notify=notify)
        if choose([True, False]):
            for each in rules:
                each.approvers = ["ops"]
                each.remind_seconds = choose([None, 40, 3_000])
                if each.kind == "action" and choose([True, False]):
                    each.on_timeout, each.escalate_to = "escalate", ["ann", "bob"]
        spec = agent(
            *(made.name for made in tools if made.name != "undo"),
            on_failure=choose(["compensate", "stop"]),
            people={"ops": ops},
            approvals=rules,
            budget=BudgetPolicy(steps=choose([2, 3, 8, None]), then=choose(["ask", "stop"])),
            window=Window(
                max_tokens=choose([100, 400, 8000]),
                keep_rounds=choose([1, 3]),
                mode=choose(["auto", "auto", "summary", "summary", "key_state", "full"]),
                long_model=choose([None, {"provider": "scripted", "name": "long"}]),
            ),
        )
        made = World(*tools, agent_spec=spec)
        made.summary = ""  # the outside answers, or does not
        return made

    def _large_amounts(self, chance: random.Random) -> None:
        """Large amounts are for others than the rest."""
        self.large = rule(
            kind="action",
            tool="risky",
            when="arguments.amount > 500",
            approvers=["bob", "cyd"],
            required=chance.choice([1, 2]),
            within_seconds=chance.choice([30, 10_000]),
        )
        self.world.agents["demo"].approvals.insert(0, self.large)

    def _stand_ins(self, chance: random.Random) -> None:
        """Fallback tools and models, older results, and few things that may go wrong in a row."""
        tools = self.world.tools
        spares = {"spare_r": "read_only", "spare_i": "idempotent", "spare_e": "external"}
        for name in ("look", "put", "putq", "pay", "payq", "risky"):
            tools[name].parameters = _AMOUNT if chance.random() < 0.8 else {}
            if chance.random() < 0.4:
                tools[name].key = ["amount"]
                self.keyless.discard(name)
            if chance.random() < 0.6:
                others = [other for other in (*spares, "put", "pay") if other != name]
                tools[name].fallback = chance.choice(others)
        tools["look"].stale_ok_seconds = chance.choice([None, 1, 100, 10_000])
        for name, effect in spares.items():
            asks = chance.choice(["never", "always"])
            tools[name] = tool(name, effect, parameters=_AMOUNT, approval=asks, timeout_seconds=10)
        spec = self.world.agents["demo"]
        spec.handover_after = chance.choice([1, 2, 3, 20])
        spec.retry = RetryPolicy(attempts=chance.choice([1, 3]))
        spare = ModelSpec(provider="scripted", name="m2", replies=[])
        spec.fallback_models = chance.choice([[], [spare]])

    def _plan(self) -> list[PlanStep]:
        steps: list[PlanStep] = []
        names = self.world.agents["demo"].tools
        for n in range(self.chance.randint(1, 7)):
            earlier = [step.id for step in steps]
            wanted: list[str] | None = self.chance.sample(
                earlier, self.chance.randint(0, min(2, n))
            )
            if self.chance.random() < 0.3:
                wanted = None
            when = self.chance.choice([None, None, None, "true", "false", "run.step > 2"])
            if wanted and self.chance.random() < 0.1:
                when = f"steps.{wanted[0]}.result.n > 50"
            step = PlanStep(
                id=f"s{n}", tool=self.chance.choice(names), depends_on=wanted, when=when
            )
            step.arguments = {"amount": self.chance.choice([1, 500, {"$": "input.amount"}])}
            step.approval = self.chance.choice([None, None, None, "always"])
            steps.append(step)
        return steps

    # --- the run -----------------------------------------------------------------------------

    def go(self) -> None:
        made: Any = {"amount": self.chance.choice([3, 1000])}
        deadline = self.world.now + self.chance.choice([5_000, 500_000, 10**9])
        task = {"deadline_at": self.chance.choice([None, None, deadline])}
        if self.chance.random() < 0.5:
            started = self.world.plan(*self._plan(), input=made, **task)
        else:
            started = self.world.start(made, **task)
        assert isinstance(started, Decision), started
        self.look()
        for _ in range(self.chance.choice([20, 60])):
            self.anything()
        self.to_the_end()
        self.judge()

    def anything(self) -> None:
        moves = [
            (30, self.take),
            (30, self.deliver),
            (10, self.outside.finish),
            (10, self.timer),
            (12, self.person),
            (4, self.again),
            (4, self.garbage),
            (3, self.control),
        ]
        move = self.chance.choices([move for _, move in moves], [weight for weight, _ in moves])[0]
        move()
        self.look()

    def take(self) -> None:
        if self.outside.queued:
            self.outside.take(self.world.now)

    def deliver(self) -> None:
        answers = self.outside.answers
        if answers:
            answer = answers.pop(self.chance.randrange(len(answers)))
            self.outside.told.append(answer)
            self.feed(answer)

    def again(self) -> None:
        if self.outside.told:
            self.feed(self.chance.choice(self.outside.told))

    def garbage(self) -> None:
        """Answers that nobody gave and timers that nobody set."""
        high = self.world.header.next_action
        target = self.chance.choice([f"r1/{high}", "r2/1", f"r1/{high + 7}"])
        attempt = self.chance.choice([1, 2, 999])
        if self.chance.random() < 0.5 and high > 1:
            n = self.chance.randrange(1, high)
            target, attempt = f"r1/{n}", self.world.action(n).attempt + self.chance.choice([1, 50])
        found = self.feed(ActionResult("r1", target, attempt, self.chance.choice(STATUSES)))
        assert not isinstance(found, Decision)
        name = self.chance.choice(["act/1", "act/999", "ask/1", "ask/0", "deadline", "purge", "x"])
        self.feed(Timer(name))

    def timer(self, name: str | None = None) -> None:
        timers = self.world.header.timers
        if timers and self.world.status not in FINAL:
            chosen = name or min(timers, key=lambda key: (timers[key], key))
            self.world.now = max(self.world.now, timers[chosen])
            self.outside.finish(self.world.now)
            self.feed(Timer(chosen), 0)

    def person(self) -> None:
        """Mostly a sensible word on an open question; sometimes any word of anybody."""
        header = self.world.header
        if self.chance.random() < 0.25:
            n = self.chance.randint(1, header.next_approval + 1)
            approval = self.world.run.approval(n) if n < header.next_approval else None
            word = self.chance.choice(WORDS)
            if approval is not None and approval.kind in ("in_doubt", "handover"):
                word = "approve"  # the model's people don't lie about what happened
            who = self.chance.choice(PEOPLE)
            self.world.decide(word, who, n, digest=self.chance.choice([None, "0" * 64]))
        elif header.asks:
            self.decide(self.chance.choice(header.asks))

    def decide(self, n: int, *, willing: bool = False) -> None:
        approval = self.world.approval(n)
        happened = self.outside.effects[f"r1/{approval.action}"] > 0
        if approval.kind == "in_doubt":
            self.outside.finish(10**18)  # whoever looks, looks when the call is over
            happened = self.outside.effects[f"r1/{approval.action}"] > 0
        choices = {
            "action": ["approve", "approve", "modify", "reject"],
            "handover": ["retry", "answer"],
            "budget": ["extend", "reject"],
            "authority": ["approve", "reject"],
            "clarification": ["answer"],
            "in_doubt": ["mark_done"] if happened else ["mark_not_done"],
        }[approval.kind]
        if (willing and approval.kind in ("handover", "budget")) or self.chance.random() < 0.05:
            choices = ["cancel_run"]
        word = self.chance.choice(choices)
        tiers = self.tiers if (approval.kind, approval.tool) == ("action", "risky") else None
        if tiers is not None and tiers.random() < 0.4:
            word = "modify"
        values: dict[str, Any] = {"reason": "because"}
        if word == "modify":
            values["arguments"] = {"amount": self.chance.choice([2, 700])}
        elif word in ("answer", "mark_done"):
            values["answer"] = "by hand"
        elif word == "extend":
            values["budget"] = Budget(steps=2)
        if self.chance.random() < 0.5:
            values["digest"] = approval.digest
        who = "uma" if approval.kind == "clarification" else self.chance.choice(["ann", "bob"])
        if tiers is not None and tiers.random() < 0.7:
            who = tiers.choice(approval.approvers or ["ann", "cyd"])
        self.world.decide(word, who, n, **values)

    def control(self) -> None:
        command = self.chance.choice(["pause", "resume", "resume", "message", "extend", "cancel", "retry"])  # fmt: skip
        if command == "cancel" and self.chance.random() < 0.5:
            return
        values: dict[str, Any] = {"content": "hello"} if command == "message" else {}
        if command == "cancel":
            values["compensate"] = self.chance.random() < 0.5
        if command == "extend":
            values["budget"] = Budget(steps=1)
        if self.chance.random() < 0.2:
            values["expected_version"] = self.world.header.version + self.chance.choice([0, 1])
        self.world.control(command, **values)

    def feed(self, message: Any, seconds: float | None = None) -> Any:
        passed = self.chance.choice([0, 0.01, 0.5]) if seconds is None else seconds
        self.outside.finish(self.world.now + int(passed * 1000))
        return self.world.feed(message, passed)

    def to_the_end(self) -> None:
        """Invariant 1: with everything delivered and everybody answering, the run ends."""
        self.outside.model_done = True
        for _ in range(600):
            if self.world.header.paused and self.world.status not in FINAL:
                self.world.control("resume")
            elif self.outside.queued:
                self.take()
            elif self.outside.slow:
                self.outside.finish()
            elif self.outside.answers:
                self.deliver()
            elif self.world.status in FINAL:
                return
            elif min(self.world.header.timers.values()) <= self.world.now:
                self.timer()
            elif self.world.header.asks:
                self.decide(self.world.header.asks[0], willing=True)
            else:
                self.timer()
            self.look()
        raise AssertionError(f"the run does not end: {self.world.header}")

    # --- invariants --------------------------------------------------------------------------

    def look(self) -> None:
        """6: a decision is consumed once, and what runs is what was shown."""
        for event in self.world.events[self.checked :]:
            data = event.data
            self.held = {
                "run_paused": self.held | {"paused"},
                "run_resumed": self.held - {"paused"},
                "ending_started": self.held | {"ending"},
                "status_changed": self.held - ({"ending"} if "retry" in data else set()),
            }.get(event.type, self.held)
            if data.get("kind") == "compensation" or (
                data.get("kind") == "notice" and self.undoing
            ):
                self.undoing.add(data["n"])
            new = event.type in ("action_proposed", "action_requested", "approval_requested")
            about = data["approval"]["action"] if "approval" in data else data.get("n")
            undoes = about in self.undoing
            about_approval = event.type.startswith("approval")
            assert not (new and "ending" in self.held and not undoes), "something new while it ends"
            assert not (
                new and self.held - ({"ending"} if undoes else set()) and not about_approval
            )
            if event.type == "approval_requested":
                asked = data["approval"]
                if asked["kind"] == "action":
                    self.shown[asked["n"]] = (asked["action"], asked["arguments"])
                    self.yes[asked["n"]] = set()
                    self.waits_for_word.add(asked["action"])
            elif event.type == "approval_decided" and data["n"] in self.shown:
                action, _ = self.shown[data["n"]]
                if data.get("arguments") is not None:
                    self.shown[data["n"]] = (action, data["arguments"])
                    self.yes[data["n"]] = set()
                self.changed += "asks" in data
                self.yes[data["n"]].add(data["approver"])
                assert data["n"] not in self.closed, "a decision after the question was closed"
                if data["closes"]:
                    self.closed.add(data["n"])
                    if data["decision"] in ("approve", "modify"):
                        self.allowed.add(action)
                        self._said_by_those_asked(data["n"])
            elif event.type == "approval_expired" and data["decision"] == "escalate":
                assert data["n"] not in self.closed
            elif event.type == "approval_expired" and data["n"] in self.shown:
                assert data["n"] not in self.closed
                self.closed.add(data["n"])
                if data["decision"] == "approve":
                    assert not self._is_large(data["n"]), "a large amount passed in silence"
                    self.allowed.add(self.shown[data["n"]][0])
        self.checked = len(self.world.events)
        arguments = dict(self.shown.values())
        for command in self.world.sent[self.taken :]:
            self.outside.issue(command)
            n = int(command.action_id.split("/")[1])
            if command.verb == "call" and n in self.waits_for_word:
                assert n in self.allowed, "called without a person's word"
                assert command.arguments == arguments[n], "something else than shown was called"
        self.taken = len(self.world.sent)

    def _is_large(self, n: int) -> bool:
        action, arguments = self.shown[n]
        amount = arguments.get("amount")
        risky = self.world.action(action).target == "risky"
        return self.tiers is not None and risky and not (isinstance(amount, int) and amount <= 500)

    def _said_by_those_asked(self, n: int) -> None:
        """6: whose word a call needs is settled by its arguments, however they came about."""
        if self._is_large(n):
            enough = len(self.yes[n] & set(self.large.approvers)) >= self.large.required
            assert enough, f"{self.shown[n]} ran on the word of {self.yes[n]}"

    def judge(self) -> None:
        """2 and 3: how often things happened, and whether the outcome agrees with it."""
        made = self.world.outcome()
        by_hand = {
            f"r1/{event.data['n']}"
            for event in self.world.events
            if event.type == "action_succeeded" and event.actor.startswith("approver:")
        }
        for action_id, times in self.outside.effects.items():
            assert times <= 1, f"{action_id} happened {times} times"
        run = self.world.run
        adopted = {f"r1/{n}" for n in range(1, run.header.next_action) if run.action(n).twin}
        for record in made.completed:
            if record["effect"] != "read_only" and record["action_id"] not in by_hand | adopted:
                assert self.outside.effects[record["action_id"]] == 1, record
        for record in made.not_completed:
            assert self.outside.effects[record["action_id"]] == 0, record
        self._keys()

    def _keys(self) -> None:
        """A declared key has one effect, whoever had it; every other key is one call's."""
        keys: dict[str, str] = {}
        for command in self.world.sent:
            assert keys.setdefault(command.action_id, command.idempotency_key) == (
                command.idempotency_key
            )
        run, effects = self.world.run, self.outside.effects
        once: Counter[str] = Counter()
        for action_id, key in keys.items():
            action = run.action(int(action_id.split("/")[1]))
            once[key] += 1 if action.target in self.keyless else 0
            instead = action.replaced_by
            happened = effects[action_id] + (effects[f"r1/{instead}"] if instead else 0)
            once[f"{key} happened"] += happened
        assert all(times <= 1 for times in once.values()), once


def run(seed: int) -> Random:
    made = Random(seed)
    made.go()
    return made


@settings(derandomize=True, max_examples=600, deadline=None, database=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_whatever_comes_the_invariants_hold(seed: int) -> None:
    run(seed)


def test_random_runs_reach_what_they_are_meant_to() -> None:
    """The generator is worth something only if it gets everywhere."""
    types: set[str] = set()
    ends: set[tuple[str, bool]] = set()
    kinds: set[str] = set()
    changed = 0
    for seed in range(200):
        made = run(seed)
        world = made.world
        types.update(world.types())
        ends.add((world.status, world.outcome().complete))
        kinds |= {world.approval(n).kind for n in range(1, world.header.next_approval)}
        changed += made.changed
    later = {"compensation_started", "compensation_finished"}
    assert set(EVENT_TYPES) - later <= types
    assert ends >= {("done", True), ("done", False), ("failed", False), ("cancelled", False)}
    assert kinds == {"action", "handover", "budget", "in_doubt", "authority", "clarification"}
    assert changed, "a modify that others had to confirm"
