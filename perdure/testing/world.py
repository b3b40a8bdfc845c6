"""The world: several processes, one broker, one outside, one thread, one seed.

Theory of operation. Everything that happens is an event with a time; the world takes the earliest,
moves the time there and runs it. A cycle's step, a batch of an event loop, a request that lands, a
person's look at the open questions are events; how long each takes to come is chance, and so is
the order. Inside an event the world can be run on (`run_inside`): where product code blocks (a
revoke that waits for calls, a client that waits for Kafka), and where a process is *stopped* or
preempted in the middle of a call. What belongs to a stopped process waits; what belongs to a dead
one is dropped. So a crash, a stop or a preemption can come at every call of every port
(`point`), and one seed gives one history, byte for byte.

Use it like this::

    with World(seed=1) as world:
        world.add_engine("engine-1")
        world.add_worker("worker-1", [my_tool])
        world.apply(AgentSpec(name="a", tools=["my_tool"]))
        world.strike("tool.external", "after", Crash(), process="worker-1")
        run = world.submit(agent="a", plan=[{"id": "s", "tool": "my_tool"}])
        assert world.run_until(lambda: world.outcome(run) is not None)
"""

from __future__ import annotations

import hashlib
import heapq
import random
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from perdure.connectors.models.provider import Provider
from perdure.connectors.models.providers import MAKERS
from perdure.connectors.tool import Tool
from perdure.connectors.worker import WorkerProcessor
from perdure.schemas import topics

from .broker import Broker, ProcessGone
from .clients import Clients
from .clock import TrueTime
from .executor import Killed
from .processes import Life, MakeProcessors, SimProcess, engine, worker
from .strikes import Armed, Crash, Fail, LateCommit, Outage, Stop, Strike, Yield

DEEPEST: Final = 4
"""How many stops may lie inside one another."""
_TRACE: Final = 80


class _BrokerClock:
    """True time; waiting lets the world go on around whoever runs."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.now_ms = world.time.now_ms
        self.monotonic = world.time.monotonic

    def wait(self, event: threading.Event, seconds: float) -> bool:
        life = self._world.running
        if life is None:
            raise RuntimeError("only a process may wait for the broker")
        return self._world.run_inside(life, event.is_set, seconds)


class World:
    """See the module. ``partitions`` of all run-keyed topics; ``queues`` that exist."""

    def __init__(
        self,
        seed: int = 0,
        *,
        partitions: int = 2,
        queues: Sequence[str] = topics.QUEUES,
        calm_broker: bool = False,
    ) -> None:
        self.seed = seed
        self.time = TrueTime()
        self.chance = random.Random(f"{seed}/schedule")
        self.running: Life | None = None
        self.processes: dict[str, SimProcess] = {}
        self.trace: deque[str] = deque(maxlen=_TRACE)
        self.oddities: list[str] = []
        """What never should happen: a bug of the product, or of the simulation."""
        self.reached: Counter[tuple[str, str]] = Counter()
        """How often each point was passed."""
        self.struck: Counter[tuple[str, str, str]] = Counter()
        """What was done to processes, by kind and point."""
        self.queues_away: set[str] = set()
        """Queues whose topic the engines can't produce to."""
        self.on_tick: list[Callable[[], None]] = []
        """Called after every event that changed the broker's logs."""
        self._hash = hashlib.blake2b(digest_size=16)
        self._heap: list[tuple[int, int, Life | None, Callable[[], None]]] = []
        self._sequence = 0
        self._depth = 0
        self._dead: list[Life] = []
        self._armed: dict[tuple[str, str], list[Armed]] = {}
        self._seen_version = -1
        self._wake_all = False
        self._broker_due: float | None = None
        self.events_run = 0
        self.broker = Broker(
            _BrokerClock(self),
            random=None if calm_broker else random.Random(f"{seed}/broker"),
            on_call=self._on_call,
        )
        clients = Clients(self.broker)
        self.produce = clients.produce
        self.apply = clients.apply
        self.submit = clients.submit
        self.records = clients.records
        self.documents = clients.documents
        self.outcome = clients.outcome
        self.questions = clients.questions
        processors = ("engine", *(f"worker.{queue}" for queue in queues))
        for topic in topics.all_topics(tuple(queues), processors):
            self.create_topic(topic, partitions)

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def create_topic(self, topic: topics.Topic, partitions: int) -> None:
        self.broker.create_topic(
            topic.name,
            topic.partitions or partitions,
            compact=topic.cleanup == "compact",
            append_time=topic.append_time,
            max_bytes=topic.max_message_bytes,
        )

    # --- processes -----------------------------------------------------------------------------

    def add(self, name: str, make: MakeProcessors, skew_ms: int = 0) -> SimProcess:
        """A process of any make; it starts at once."""
        process = SimProcess(name, make, lambda: self.broker.process(name), skew_ms)
        self.processes[name] = process
        self.start(name)
        return process

    def add_engine(self, name: str = "engine-1", skew_ms: int = 0) -> SimProcess:
        def problem(queue: str) -> str | None:
            return f"the queue {queue} is away" if queue in self.queues_away else None

        return self.add(name, engine(problem), skew_ms)

    def add_worker(
        self,
        name: str,
        tools: Sequence[Tool[..., Any]],
        *,
        queues: Sequence[str] = topics.QUEUES,
        models: dict[str, Callable[[], Provider]] | None = None,
        kind: type[WorkerProcessor] = WorkerProcessor,
        skew_ms: int = 0,
    ) -> SimProcess:
        """``models``: makers by provider name, over the real ones."""
        makers = {**MAKERS, **(models or {})}
        return self.add(name, worker(tools, queues, lambda: makers, kind=kind), skew_ms)

    def start(self, name: str) -> None:
        process = self.processes[name]
        process.wanted = True
        if process.life is None:
            self.say(f"{name} starts")
            process.life = Life(process, self)

    def crash(self, name: str, restart_after: float | None = 0.5) -> None:
        """kill -9. None: it stays away until `start`."""
        process = self.processes[name]
        life = process.life
        if life is None:
            return
        self.say(f"{name} is killed")
        self._bury(life)
        process.wanted = restart_after is not None
        if restart_after is not None:
            self.later(restart_after, lambda: self._restart(process))

    def stop(self, name: str, seconds: float) -> None:
        """SIGSTOP now, SIGCONT later."""
        life = self.processes[name].life
        if life is None or life.frozen:
            return
        self._freeze(life, seconds)
        self.later(seconds, lambda: self._thaw(life))

    def drain(self, name: str, start_after: float | None = None) -> None:
        """SIGTERM: it ends once its work has."""
        process = self.processes[name]
        if process.life is not None and not process.life.draining:
            self.say(f"{name} is asked to stop")
            process.wanted = False
            process.life.drain()
        if start_after is not None:
            self.later(start_after, lambda: self._wanted_again(process))

    def _wanted_again(self, process: SimProcess) -> None:
        process.wanted = True
        self._restart(process)

    def _restart(self, process: SimProcess) -> None:
        if process.wanted and process.life is None:
            self.start(process.name)

    def ended(self, life: Life, why: str, *, expected: bool) -> None:
        """A process ended by itself; its supervisor starts it again."""
        process = life.process
        self.say(f"{process.name} ends: {why}")
        self._bury(life)
        if process.wanted:
            self.later(self.chance.uniform(0.1, 2.0), lambda: self._restart(process))

    def _bury(self, life: Life) -> None:
        life.alive = False
        life.deferred.clear()
        self.broker.kill(life.name)
        life.process.life = None
        self._dead.append(life)

    def _freeze(self, life: Life, seconds: float) -> None:
        self.say(f"{life.name} is stopped for {seconds:.3f} s")
        life.frozen += 1
        self.broker.stop(life.name)

    def _thaw(self, life: Life) -> None:
        if not life.alive or not life.frozen:
            return
        life.frozen -= 1
        self.say(f"{life.name} goes on")
        self.broker.resume(life.name)
        deferred, life.deferred = life.deferred, []
        for run in deferred:
            self.push(self.now_us + self.chance.randrange(0, 500), life, run)
        life.wake_cycles()

    def jump_clock(self, name: str, ms: int) -> None:
        """The wall clock of a process jumps."""
        process = self.processes[name]
        process.skew_ms += ms
        self.say(f"the clock of {name} jumps by {ms} ms")
        if process.life is not None:
            process.life.clock.skew_ms = process.skew_ms
            process.life.wake_cycles()

    def cut(self, name: str, seconds: float) -> None:
        """The network of a process is gone for a while."""
        life = self.processes[name].life
        if life is None:
            return
        self.say(f"{name} is cut off for {seconds:.1f} s")
        self.broker.cut(name)

        def heal() -> None:
            if life.alive:
                self.say(f"{name} has its network back")
                self.broker.heal(name)

        self.later(seconds, heal)

    def broker_down(self, seconds: float) -> None:
        if not self.broker.is_down:
            self.say(f"the broker is down for {seconds:.1f} s")
            self.broker.down()
            self._wake_all = True
            self.later(seconds, self.broker_up)

    def broker_up(self) -> None:
        if self.broker.is_down:
            self.say("the broker is back")
            self.broker.up()
            self._wake_all = True

    # --- faults at points ----------------------------------------------------------------------

    def strike(
        self, where: str, side: str, what: Strike, *, process: str | None = None, nth: int = 1
    ) -> None:
        """Do ``what`` to the ``nth`` process that passes this point from now on."""
        armed = self._armed.setdefault((where, side), [])
        armed.append(Armed(what, process, nth))

    def disarm(self) -> None:
        """No strike any more."""
        self._armed.clear()

    def _on_call(self, process: str, operation: str, side: str) -> None:
        life = self.running
        if life is None or life.name != process:
            return  # not from inside that process: the broker's own bookkeeping
        self.point(life, operation, side)

    def point(self, life: Life, where: str, side: str) -> None:
        """A process passes a point; it may not come out of it."""
        if not life.alive:
            raise Killed(life.name)
        at = (where, side)
        self.reached[at] += 1
        armed = self._armed.get(at)
        if not armed:
            return
        for each in armed:
            if each.process in (None, life.name):
                each.left -= 1
                if each.left <= 0:
                    armed.remove(each)
                    self._do(life, at, each.what)
                    return

    def passing(self, where: str, side: str) -> None:
        """A point that no process passes itself: it strikes the one that runs calls."""
        armed = self._armed.get((where, side))
        self.reached[where, side] += 1
        if armed:
            armed[0].left -= 1
            busy = [p.life for p in self.processes.values() if p.life and p.life.executor.busy]
            if armed[0].left <= 0 and busy:
                what = armed.pop(0).what
                life = self.chance.choice(busy)
                self.struck[type(what).__name__, where, side] += 1
                self.say(f"{life.name}: {type(what).__name__.lower()} {side} {where}")
                if isinstance(what, Stop):
                    self.stop(life.name, what.seconds)
                elif isinstance(what, Outage):
                    self.broker_down(what.seconds)
                else:
                    self.crash(life.name)

    def _do(self, life: Life, at: tuple[str, str], what: Strike) -> None:
        where, side = at
        self.struck[type(what).__name__, where, side] += 1
        self.say(f"{life.name}: {type(what).__name__.lower()} {side} {where}")
        if isinstance(what, LateCommit):
            self.broker.commit_late(life.name, what.seconds)
        if isinstance(what, Crash | LateCommit):
            self.crash(life.name, what.restart_after)
            raise Killed(life.name)
        if isinstance(what, Fail):
            raise what.error()
        if isinstance(what, Outage):
            self.broker_down(what.seconds)
        elif isinstance(what, Yield):
            if self._depth < DEEPEST and not life.in_loop:
                self.run_inside(life, lambda: False, what.seconds)
            if what.crash:
                self.crash(life.name)
            if not life.alive:
                raise Killed(life.name)
        elif self._depth < DEEPEST and not life.frozen:
            self._freeze(life, what.seconds)
            self.run_inside(life, lambda: False, what.seconds)
            self._thaw(life)
            if not life.alive:
                raise Killed(life.name)

    # --- the course of events ------------------------------------------------------------------

    @property
    def now_us(self) -> int:
        return self.time.us

    def push(self, us: int, life: Life | None, run: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (max(us, self.time.us), self._sequence, life, run))

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """An event of nobody's process."""
        self.push(self.time.us + int(seconds * 1_000_000), None, action)

    def step(self, until_us: int | None = None) -> bool:
        """Run the next event; False if there is none before ``until_us``."""
        self._tend_broker()
        heap = self._heap
        if not heap or (until_us is not None and heap[0][0] > until_us):
            if until_us is not None:
                self.time.us = max(self.time.us, until_us)
            return False
        us, _, life, run = heapq.heappop(heap)
        self.time.us = max(self.time.us, us)
        if life is not None:
            if not life.alive:
                return True
            if life.frozen:
                life.deferred.append(run)
                return True
        self.events_run += 1
        outer, self.running = self.running, life
        try:
            run()
        except ProcessGone:
            pass  # a process died in the middle of its own event
        finally:
            self.running = outer
        if self.broker.version != self._seen_version:
            self._stir()
        return True

    def _stir(self) -> None:
        """The logs have changed: whoever waits in a poll for one of them may have something."""
        self._seen_version = self.broker.version
        all_of_them, self._wake_all = self._wake_all, False
        for process in self.processes.values():
            life = process.life
            if life is not None and not life.frozen:
                for run in life.runs:
                    if all_of_them or run.has_news():
                        run.stir()
        for look in self.on_tick:
            look()

    def serve(self) -> None:
        """Clients' own threads get a moment."""
        self.broker.tick()

    def _tend_broker(self) -> None:
        """What the broker does by itself (markers, sessions, time-outs) is an event too."""
        due = self.broker.next_due()
        if due is None or due == self._broker_due:
            return
        self._broker_due = due

        def tick() -> None:
            if self._broker_due == due:
                self._broker_due = None
            self.broker.catch_up()
            self._seen_version = -1
            self._wake_all = True  # a member may have been told something, which no log shows

        self.push(int(due * 1_000_000) + 1, None, tick)

    def run_until(self, condition: Callable[[], bool], seconds: float = 600.0) -> bool:
        """Let the world go on until ``condition`` holds; False if it does not in that time."""
        until = self.time.us + int(seconds * 1_000_000)
        while not condition():
            if not self.step(until):
                return condition()
        return True

    def run_for(self, seconds: float) -> None:
        self.run_until(lambda: False, seconds)

    def run_inside(self, life: Life, condition: Callable[[], bool], seconds: float) -> bool:
        """The same inside an event of ``life``; ends at once when it is killed."""
        self._depth += 1
        outer = self.running
        try:
            with life.executor.aside():
                self.run_until(lambda: not life.alive or condition(), seconds)
        finally:
            self._depth -= 1
            self.running = outer
        return life.alive and condition()

    def heal(self) -> None:
        """No faults any more, and clocks put right; every process runs."""
        self.disarm()
        self.queues_away.clear()
        self.broker_up()
        for process in self.processes.values():
            process.disk.failing = False
            if process.skew_ms != process.own_skew_ms:
                self.jump_clock(process.name, process.own_skew_ms - process.skew_ms)
            process.wanted = True
            if process.life is not None and process.life.frozen:
                self._thaw(process.life)
            if process.life is None:
                self._restart(process)

    def close(self) -> None:
        """End everything; nothing of it may be left to the garbage collector."""
        for process in self.processes.values():
            if process.life is not None:
                self._bury(process.life)
        for life in self._dead:
            life.executor.close()
        self._heap.clear()
        self._dead.clear()

    # --- what is told --------------------------------------------------------------------------

    def say(self, text: str) -> None:
        line = f"{self.time.us / 1_000_000:11.6f} {text}"
        self.trace.append(line)
        self._hash.update(line.encode() + b"\n")

    def odd(self, text: str) -> None:
        self.say(f"ODD {text}")
        self.oddities.append(text)

    def fingerprint(self) -> str:
        """Of all that happened so far: equal for one seed, always."""
        return self._hash.hexdigest()


__all__ = ["Crash", "Fail", "LateCommit", "Outage", "Stop", "Strike", "World", "Yield"]
