"""What one seed makes of a world: tools of every effect, agents, tasks, people, faults.

The seed chooses everything. A chaotic phase, in which processes are struck at any call of their
ports, is followed by a quiet one: nothing new is broken, people answer, and all must come to rest.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from perdure.connectors.models.provider import Provider
from perdure.connectors.worker import WorkerProcessor
from perdure.schemas import topics
from perdure.schemas.records import (
    AgentSpec,
    ApprovalRule,
    BudgetPolicy,
    Checkpoint,
    ModelSpec,
    Person,
    RetryPolicy,
    Window,
)

from .broker import BrokerDown
from .faults import Faults
from .forks import Forks
from .invariants import Asked, Judge
from .model import ChanceModel
from .outside import FORBIDDEN, UNLUCKY, Habits, Outside
from .people import People
from .services import BESIDE, MAIL, UNDOING, services
from .world import World

CHAOS_SECONDS: Final = (8.0, 30.0)
REST_SECONDS: Final = 6 * 3600.0
"""Simulated time within which everything must come to rest in the quiet phase."""
CHAOS_EVENTS: Final = 30_000
REST_EVENTS: Final = 60_000
"""So many events of the world at most: several times what the longest needs."""
ASKS_ALWAYS: Final = frozenset({"wild"})


class _Ground:
    """The world as the outside knows it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.later = world.later
        self.happened = world.say

    def landed(self, tool: str) -> None:
        self._world.passing("outside.land", "after")

    def answer_after(self, seconds: float) -> None:
        running = self._world.running
        if running is not None:
            running.executor.answer_after = min(seconds, 1e6)


class Scenario:
    """One seed's world, ready to `run`. ``worker_kind`` is for tests that break it; ``takeovers``
    says whether owners are struck with a transaction open (None: the seed says)."""

    def __init__(
        self,
        seed: int,
        *,
        worker_kind: type[WorkerProcessor] = WorkerProcessor,
        takeovers: bool | None = None,
        prepare: Callable[[World], None] | None = None,
    ) -> None:
        self.chance = chance = random.Random(f"{seed}/scenario")
        self.world = World(seed, partitions=chance.choice((1, 2, 2, 3)))
        jumps = self._jumps = chance.random() < 0.25
        habits = Habits(
            well=chance.choice((0.4, 0.7, 0.9)),
            late=not jumps,
            unclear=chance.choice((0.0, 0.15, 0.4)),
        )
        self.outside = Outside(random.Random(f"{seed}/outside"), _Ground(self.world), habits)
        self.asked = Asked()
        self.judge = Judge(self.world, self.outside, self.asked, asks_always=ASKS_ALWAYS)
        self.world.on_tick.append(self.judge.look)
        self.people = People(self.world, self.outside, self.asked, random.Random(f"{seed}/people"))
        self.tools = services(self.outside, chance.choice((1.0, 3.0)), chance.choice((4.0, 9.0)))
        notes = random.Random(f"{seed}/notes")
        self._noted = notes.random() < 0.2  # a chance of its own: other seeds stay what they are
        self.model = ChanceModel(
            random.Random(f"{seed}/model"),
            _model_arguments,
            chance.choice((1, 2, 4)),
            notes if self._noted else None,
        )
        if prepare is not None:
            prepare(self.world)
        makers: dict[str, Callable[[], Provider]] = {"python": lambda: self.model}
        engines, workers = chance.choice(((1, 1), (2, 1), (2, 2), (1, 2)))
        taken_over = chance.random() < 0.2 if takeovers is None else takeovers
        if taken_over:
            engines = workers = 2
        for n in range(engines):
            self.world.add_engine(f"engine-{n + 1}", skew_ms=chance.randrange(-500, 500))
        for n in range(workers):
            self.world.add_worker(
                f"worker-{n + 1}",
                self.tools,
                models=makers,
                kind=worker_kind,
                skew_ms=chance.randrange(-500, 500),
            )
        own = self.own = [each.name for each in self.tools if each.name not in BESIDE]
        self.agents = [agent("planner", own, chance), agent("thinker", own, chance)]
        if self._noted:
            self.agents[1].window = Window(max_tokens=8_000, keep_rounds=1, mode="summary")
        self.world.apply(*self.agents)
        self.chaos = chance.uniform(*CHAOS_SECONDS)
        self._more = 2 if taken_over else 0
        self.forks = Forks(self.world, random.Random(f"{seed}/forks"))
        self.judge.more.append(lambda: self.forks.misjudged(self.judge.runs, self.asked.tasks))
        self._coming = 0
        """Tasks that somebody still means to submit."""
        self._clients()
        Faults(self.world, self.chaos, jumps, random.Random(f"{seed}/faults"), taken_over)

    # --- the course ----------------------------------------------------------------------------

    def run(self) -> list[str]:
        """To the end; what is wrong, the first first (empty: nothing)."""
        world, judge = self.world, self.judge
        with world:
            world.run_until(
                lambda: bool(judge.wrong) or world.events_run > CHAOS_EVENTS, self.chaos
            )
            if judge.wrong:
                return judge.wrong
            if world.events_run > CHAOS_EVENTS:
                return ["1: a process goes round and round"]
            world.say("the quiet phase begins")
            world.heal()
            self.outside.calm = self.model.calm = self.people.willing = True
            self._nudge()
            self.world.later(self.chance.uniform(1.0, 20.0), self._steer)
            last = world.events_run + REST_EVENTS
            rested = world.run_until(
                lambda: bool(judge.wrong) or self._at_rest() or world.events_run > last,
                REST_SECONDS,
            )
            rested = rested and world.events_run <= last
            if judge.wrong:
                return judge.wrong
            if not rested:
                world.say("it does not come to rest")
                return [*judge.judge(), "1: it does not come to rest"]
            # A failed run may be tried again meanwhile; requests held for an unknown run wait 30 s.
            world.run_until(lambda: bool(judge.wrong), 25.0)
            world.run_until(lambda: bool(judge.wrong) or self._at_rest(), 3600.0)
            # A partition's time never goes back: after a clock's jump it may stand still that long.
            world.run_until(lambda: bool(judge.wrong), 1300.0 if self._jumps else 45.0)
            return judge.judge()

    def _at_rest(self) -> bool:
        return not self._coming and self.judge.at_rest

    def _nudge(self) -> None:
        """Somebody sees to it that no run stays paused."""
        for run_id, run in self.judge.runs.items():
            if run.paused and run.status not in ("done", "failed", "cancelled"):
                self.people.control(run_id, "resume")
        self.world.later(60.0, self._nudge)

    # --- what clients do -----------------------------------------------------------------------

    def _clients(self) -> None:
        chance = self.chance
        for n in range(chance.choice((1, 2, 2, 3)) + self._more):
            self.world.later(chance.uniform(0.0, 0.6 * self.chaos), self._client(f"run-{n}"))
            self._coming += 1
        for _ in range(chance.choice((0, 1, 2, 3, 5))):
            self.world.later(chance.uniform(1.0, self.chaos), self._steer)
        for _ in range(chance.choice((0, 0, 1))):
            self.world.later(chance.uniform(0.0, self.chaos), self._garbage)
        for _ in range(chance.choice((0, 0, 0, 1, 2))):
            self.world.later(chance.uniform(0.2 * self.chaos, 1.2 * self.chaos), self._fork)
            self._coming += 1

    def _fork(self) -> None:
        """Some run goes on from some version of its past, beside itself."""
        if self.world.broker.is_down:
            self.world.later(1.0, self._fork)
            return
        self._coming -= 1
        task = self.forks.task(self.judge.runs)
        if task is None:
            return
        run_id, of = task["task_id"], task["fork_of"]
        there = self.people.send(topics.TASKS, task, run_id)
        if there is not None:
            self.world.say(f"client: {run_id} of {of['run_id']} at {of['version']}")
            self.asked.tasks[run_id] = "either"
            self.asked.may_be_buried.add((topics.TASKS, *there))

    def _client(self, run_id: str) -> Callable[[], None]:
        chance = self.chance
        task: dict[str, Any] = {"task_id": run_id, "input": {"amount": chance.choice((3, 500))}}
        task["user_id"] = "uma"
        if chance.random() < 0.6:
            task |= {"agent": "planner", "plan": plan(chance, self.own)}
        else:
            task["agent"] = "thinker"
        kind = "either" if (early := chance.random() < 0.15) else "run"
        if chance.random() < 0.06:
            task["agent"], kind = "nobody", "refused"
        if chance.random() < 0.1:
            task["deadline_at"] = self.world.time.now_ms() + chance.choice((5_000, 60_000))
        if chance.random() < 0.1:
            task["budget"] = {"steps": chance.choice((1, 2))}

        def submit() -> None:
            if not early and len(self.world.records(topics.CATALOG)) < len(self.tools) + 2:
                self.world.later(0.3, submit)  # everything is announced before
                return
            there = self.people.send(topics.TASKS, task, run_id)
            if there is None:
                self.world.later(0.7, submit)
                return
            self._coming -= 1
            self.world.say(f"client: {run_id} for {task['agent']}")
            self.asked.tasks[run_id] = kind
            if kind == "either":
                self.asked.may_be_buried.add((topics.TASKS, *there))
            if kind == "refused":
                self.asked.buried[topics.TASKS, *there] = "refused"
            if chance.random() < 0.2:
                self.world.later(chance.uniform(0.0, 5.0), lambda: self._twice(task, kind, there))

        return submit

    def _twice(self, task: dict[str, Any], kind: str, first: tuple[int, int]) -> None:
        """The same again is ignored; something else under the same id is a conflict."""
        if kind != "run":
            return
        other = self.chance.random() < 0.5
        value = {**task, "input": "other"} if other else task
        there = self.people.send(topics.TASKS, value, task["task_id"])
        if there is not None and other:  # they may come to the run's owner in either order
            self.asked.conflicts.append({(topics.TASKS, *first), (topics.TASKS, *there)})

    def _steer(self) -> None:
        chance = self.chance
        run_id = chance.choice((*self.asked.tasks, "unheard-of"))
        failed = [name for name, run in self.judge.runs.items() if run.status == "failed"]
        command = chance.choice(
            ("cancel", "cancel", "pause", "pause", "resume", "message", "extend", "retry")
        )
        if (
            failed and chance.random() < 0.7
        ):  # a failed run may be tried again, or raised to cancelled
            run_id, command = chance.choice(failed), chance.choice(("retry", "retry", "cancel"))
        more: dict[str, Any] = {}
        if command == "cancel" and chance.random() < 0.5:
            more["compensate"] = True
        if command == "message":
            more["content"] = "hello"
        elif command == "extend":
            more["budget"] = {"steps": 1}
        if chance.random() < 0.3:
            more["request_id"] = f"steer-{chance.randrange(3)}"
        if chance.random() < 0.1:
            more["expected_version"] = 3
        self.people.control(run_id, command, **more)
        if chance.random() < 0.2:
            self.people.control(run_id, command, **more)

    def _garbage(self) -> None:
        """Records nobody can read: to the dead letters, and no harm done."""
        topic = self.chance.choice((topics.TASKS, topics.RESULTS, topics.APPROVALS, topics.CONTROL))
        raw = self.chance.choice((b"\xff\xfe", b"{", b"[]", b'{"a": 1, "a": 2}', b""))
        try:
            partition, offset = self.world.broker.produce(topic, b"x", raw)
        except BrokerDown:
            return
        self.asked.buried[topic, partition, offset] = "unreadable"


# --- agents, plans -----------------------------------------------------------------------------------


def agent(name: str, tools: list[str], chance: random.Random) -> AgentSpec:
    rules = [
        ApprovalRule(
            kind="action",
            tool="wild",
            when="true",
            required=chance.choice((1, 1, 2)),
            within_seconds=chance.choice((3.0, 60.0, 3600.0)),
            on_timeout=chance.choice(("approve", "reject", "cancel_run", "escalate")),
            approvers=["ops"],
            remind_seconds=chance.choice((None, 2.0, 20.0)),
            escalate_to=["boss"],
            signed=chance.random() < 0.2,
        ),
        ApprovalRule(
            kind="handover",
            approvers=chance.choice((None, ["ops"])),
            on_timeout=chance.choice(("retry", "cancel_run")),
        ),
        ApprovalRule(kind="budget", on_timeout=chance.choice(("reject", "cancel_run"))),
    ]
    return AgentSpec(
        name=name,
        tools=tools,
        model=ModelSpec(
            provider="python", function="chance:model", timeout_seconds=chance.choice((1.0, 5.0))
        ),
        fallback_models=[
            ModelSpec(provider="python", name=f"spare-{n}", function="chance:model")
            for n in range(chance.choice((0, 0, 1, 2)))
        ],
        handover_after=chance.choice((1, 2, 3, 20)),
        approvals=rules,
        people={
            "ops": Person(members=["ann", "bob", "cyd"], notify=_mail("ops")),
            "boss": Person(members=["dot", "eli"], notify=_mail("boss")),
        },
        budget=BudgetPolicy(
            steps=chance.choice((3, 8, 20)), tokens=5_000, then=chance.choice(("ask", "stop"))
        ),
        checkpoint=Checkpoint(
            every_steps=chance.choice((1, 2, 5)), every_seconds=chance.choice((1.0, 30.0))
        ),
        window=Window(max_tokens=8_000),
        retry=RetryPolicy(
            attempts=chance.choice((1, 3)), first_wait_seconds=chance.choice((0.2, 1.0))
        ),
        on_failure=chance.choice(("stop", "compensate")),
    )


def _mail(to: str) -> dict[str, Any]:
    return {"tool": MAIL, "arguments": {"to": to}}


def plan(chance: random.Random, names: list[str]) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    saga = chance.random() < 0.35
    count, last = chance.randint(1, 5), chance.choice((UNLUCKY, UNLUCKY, FORBIDDEN))
    for n in range(count):
        earlier = [step["id"] for step in steps]
        step: dict[str, Any] = {"id": f"s{n}", "tool": chance.choice(names)}
        step["arguments"] = {"amount": chance.choice((1, 500, {"$": "input.amount"}))}
        if saga:  # one after the other, and the last one is refused
            step["depends_on"] = earlier[-1:]
            step["arguments"] = {"amount": last if n == count - 1 else 1}
        elif chance.random() < 0.7:
            step["depends_on"] = chance.sample(earlier, chance.randint(0, min(2, n)))
        if chance.random() < 0.2:
            step["when"] = chance.choice(("true", "false", "run.step > 1"))
        if chance.random() < 0.1:
            step["approval"] = "always"
        if step["tool"] != "look" and chance.random() < 0.15:
            amount = chance.choice((1, 1, UNLUCKY))
            given = {"amount": amount, "result": {"$": f"steps.s{n}.result"}}
            step["compensate"] = {"tool": chance.choice(UNDOING), "arguments": given}
        steps.append(step)
    return steps


def _model_arguments(chance: random.Random, name: str) -> Any:
    if name == "ask_user":
        return {"question": "Which one?"}
    if name == "ask_authority":
        return chance.choice(({"reason": "they wait"}, {"reason": "they wait", "tool": "pay"}))
    if name == "hand_over":
        return {"reason": "stuck"}
    roll = chance.random()
    if roll < 0.85:
        amount = chance.choice((1, 1, 1, 500, 500, 500, FORBIDDEN))
        return {"amount": amount, "why": "because"}
    return chance.choice(({"amount": "x"}, {}, None))
