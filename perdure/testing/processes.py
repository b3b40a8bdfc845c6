"""Simulated processes: what `perdure engine` and `perdure worker` are made of, without threads.

A `SimProcess` is an identity with a disk and a clock; each start gives it a new `Life`, and what
belongs to a dead life never runs. A life's parts (each processor's cycle, the event loop) are
events of the world: the supervisor's part is the world's too. Put together as in
``perdure/cli/roles.py``, ``connectors/serving.py`` and ``streams/runtime/runner.py``.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from perdure.connectors.models.provider import Provider
from perdure.connectors.models.providers import Providers
from perdure.connectors.tool import Tool
from perdure.connectors.worker import WorkerProcessor, WorkerSettings
from perdure.schemas import topics
from perdure.streams.engine.outputs import Outputs
from perdure.streams.engine.processor import EngineProcessor
from perdure.streams.runtime.blobs import Blobs
from perdure.streams.runtime.cycle import Cycle
from perdure.streams.runtime.errors import RuntimeFault, Unanswered
from perdure.streams.runtime.health import HealthBoard
from perdure.streams.runtime.ports import Kafka
from perdure.streams.runtime.processor import Processor
from perdure.streams.runtime.settings import RuntimeSettings
from perdure.streams.runtime.store import Stores

from .broker.errors import ProcessGone
from .broker.log import Log
from .broker.process import Process
from .clock import ProcessClock, TrueTime
from .disk import Disk, SimStores
from .executor import Killed, SimExecutor
from .histories import SimHistories
from .points import WatchedConsumer, WatchedKafka, pointed
from .signed import SimSignatures

DRAIN_SECONDS: Final = 60.0
IDLE_POLL: Final = 0.1
"""s of the first idle poll, as in the real runtime; each further one may take twice as long."""
LONGEST_NAP: Final = 5.0
"""s between two polls of a cycle that nothing wakes."""


class Surroundings(Protocol):
    """What a process needs of the world."""

    chance: random.Random
    time: TrueTime

    @property
    def now_us(self) -> int: ...

    def push(self, us: int, life: Life | None, run: Callable[[], None]) -> None: ...
    def point(self, life: Life, where: str, side: str) -> None: ...
    def run_inside(self, life: Life, condition: Callable[[], bool], seconds: float) -> bool: ...
    def say(self, text: str) -> None: ...
    def odd(self, text: str) -> None: ...
    def ended(self, life: Life, why: str, *, expected: bool) -> None: ...
    def serve(self) -> None: ...


MakeProcessors = Callable[["Life"], Sequence[Processor]]
MakeCycle = Callable[[Processor, RuntimeSettings, Kafka, Stores, ProcessClock, Any], Cycle]


class SimProcess:
    """Who a process is, also after a restart."""

    def __init__(
        self, name: str, make: MakeProcessors, new_kafka: Callable[[], Process], skew_ms: int
    ) -> None:
        self.name = name
        self.make = make
        self.make_cycle: MakeCycle = Cycle
        self.new_kafka = new_kafka
        self.skew_ms = skew_ms
        self.own_skew_ms = skew_ms
        """Without jumps."""
        self.disk = Disk()
        self.life: Life | None = None
        self.wanted = False
        """The supervisor starts it again."""


class Life:
    """One start of a process; implements the executor's `Host`."""

    def __init__(self, process: SimProcess, world: Surroundings) -> None:
        self.process = process
        self.world = world
        self.alive = True
        self.frozen = 0
        self.deferred: list[Callable[[], None]] = []
        self.draining = False
        self.clock = ProcessClock(world.time, self._wait, process.skew_ms)
        self.kafka = WatchedKafka(process.new_kafka(), self._serve_soon)
        self.executor = SimExecutor(self)
        self.board = HealthBoard()
        self._loop_due: int | None = None
        self.in_loop = False
        """The event loop runs just now."""
        self._serving = False
        self.settings = RuntimeSettings(
            bootstrap_servers="simulated",
            data_dir=Path("simulated"),
            instance_id=process.name,
            idle_poll_ms=int(LONGEST_NAP * 1000),
        )
        self.runs: list[CycleRun] = []
        world.push(world.now_us + world.chance.randrange(1, 10_000), self, self._begin)

    def _begin(self) -> None:
        try:
            processors = self.process.make(self)
        except (RuntimeFault, Unanswered) as error:
            self.world.ended(self, f"can't start: {error}", expected=True)
            return
        self.runs = [CycleRun(self, processor) for processor in processors]
        for run in self.runs:
            run.wake(self.world.chance.randrange(1, 10_000))

    @property
    def name(self) -> str:
        return self.process.name

    def point(self, where: str, side: str) -> None:
        self.world.point(self, where, side)

    # --- Host ----------------------------------------------------------------------------------

    def monotonic(self) -> float:
        return self.clock.monotonic()

    def jitter(self) -> float:
        return self.world.chance.choice((0.0001, 0.0005, 0.002))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        def run() -> None:
            action()
            self.wake_cycles()

        self.world.push(self.world.now_us + int(seconds * 1_000_000), self, run)

    def until(self, condition: Callable[[], bool]) -> None:
        self.world.run_inside(self, condition, 120.0)
        if not self.alive:
            raise Killed(self.name)

    def odd(self, text: str) -> None:
        self.world.odd(f"{self.name}: {text}")

    def wake_loop(self) -> None:
        at = self.executor.loop.next_at() if self.alive else None
        if at is None:
            return
        us = max(self.world.now_us, int(at * 1_000_000) + 1)
        if self._loop_due is None or us < self._loop_due:
            self._loop_due = us
            self.world.push(us, self, lambda: self._run_loop(us))

    def _run_loop(self, due: int) -> None:
        if self._loop_due != due:
            return
        self._loop_due = None
        at = self.executor.loop.next_at()
        if at is not None and at <= self.clock.monotonic() + 1e-9:
            self.in_loop = True
            try:
                self.executor.loop.run_batch()
            finally:
                self.in_loop = False
            self.wake_cycles()
        self.wake_loop()

    def _serve_soon(self) -> None:
        """The client library's own thread: plain records go out and are answered."""
        if not self._serving:
            self._serving = True
            # Nothing goes out where nobody answers: look now and then.
            nap = self.world.chance.randrange(200, 3_000) if self.kafka.reachable else 100_000
            self.world.push(self.world.now_us + nap, self, self._serve)

    def _serve(self) -> None:
        self._serving = False
        before = self.kafka.outstanding
        self.world.serve()
        after = self.kafka.outstanding
        if after:
            self._serve_soon()
        if after != before:
            self.wake_cycles()

    # --- the cycles ----------------------------------------------------------------------------

    def wake_cycles(self) -> None:
        for run in self.runs:
            run.wake(self.world.chance.randrange(50, 1_500))

    def _wait(self, event: threading.Event, seconds: float) -> bool:
        """`Clock.wait` of a cycle: everything else goes on, this life's loop too."""
        found = self.world.run_inside(self, event.is_set, seconds)
        if not self.alive:
            raise Killed(self.name)
        return found

    def drain(self) -> None:
        """SIGTERM."""
        self.draining = True
        self.wake_cycles()

    def over(self) -> bool:
        return bool(self.runs) and all(run.closed for run in self.runs)


class CycleRun:
    """One processor's cycle as events: what `runner.Loop` does in a thread."""

    def __init__(self, life: Life, processor: Processor) -> None:
        self.life = life
        self.processor = processor
        self.cycle: Cycle | None = None
        self.consumer: WatchedConsumer | None = None
        self.closed = False
        self.on_stack = False
        self._missed = False
        self._due: int | None = None
        self._naps = 0
        self._logs: list[Log] | None = None
        self._readable = 0
        self._drain_until: float | None = None

    def wake(self, after_us: int) -> None:
        """Step no later than that."""
        if self.closed:
            return
        us = self.life.world.now_us + after_us
        self._naps = 0
        if self._due is None or us < self._due:
            self._at(us)

    def has_news(self) -> bool:
        """More can be read of its inputs than at the last time."""
        if self._logs is None:
            broker = self.life.kafka.broker
            names = (*self.processor.sources, *self.processor.global_topics)
            self._logs = [log for name in names for log in broker.topics[name].logs]
        readable = sum(log.stable for log in self._logs)
        before, self._readable = self._readable, readable
        return readable != before

    def stir(self) -> None:
        """The logs have changed."""
        self._naps = 0
        world = self.life.world
        if not self.closed and (self._due is None or self._due > world.now_us + 3_000):
            self._at(world.now_us + world.chance.randrange(200, 3_000))

    def _at(self, us: int) -> None:
        self._due = us
        self.life.world.push(us, self.life, lambda: self._fire(us))

    def _fire(self, due: int) -> None:
        if self._due != due or self.closed:
            return
        self._due = None
        if self.on_stack:
            self._missed = True
            return
        self.on_stack = True
        try:
            self._step()
        except ProcessGone:
            return
        except RuntimeFault as error:
            self.life.world.ended(self.life, f"{type(error).__name__}: {error}", expected=True)
            return
        except Exception as error:
            self.life.world.odd(f"{self.life.name}: the cycle raised {error!r}")
            self.life.world.ended(self.life, repr(error), expected=False)
            return
        finally:
            self.on_stack = False
        if not self.closed:
            self._again()

    def _step(self) -> None:
        life = self.life
        if self.cycle is None:
            health = life.board.of(self.processor.name)
            kafka = life.kafka.of(self)
            stores = SimStores(life.process.disk, self.processor.name, life.point)
            make = life.process.make_cycle
            self.cycle = make(self.processor, life.settings, kafka, stores, life.clock, health)
            return
        if life.draining and self._drain_until is None:
            self.cycle.begin_drain()
            self._drain_until = life.clock.monotonic() + DRAIN_SECONDS
        self.cycle.step()
        if self._drain_until is not None and (
            not self.cycle.in_flight or life.clock.monotonic() >= self._drain_until
        ):
            self.cycle.close()
            self.closed = True
            if life.over():
                life.world.ended(life, "stopped", expected=True)

    def _again(self) -> None:
        """When the next poll would return."""
        world = self.life.world
        asked = self.consumer.timeout if self.consumer is not None else 0.0
        busy = self.consumer is None or self.consumer.got
        if self._missed or busy or asked <= 0:
            self._missed = False
            self._naps = 0
            nap = world.chance.randrange(100, 2_000)
        elif asked < 0.05:  # waits for something under way: look less and less often
            self._naps = min(self._naps + 1, 12)
            restoring = self.life.board.of(self.processor.name).snapshot().restoring
            longest = 30_000 if restoring else 250_000
            nap = int(min(asked * 1_000_000 * 2**self._naps, longest))
        else:
            patience = min(asked, IDLE_POLL * 2**self._naps)
            self._naps = min(self._naps + 1, 12)
            nap = int(patience * 1_000_000) + world.chance.randrange(100, 3_000)
        us = world.now_us + nap
        if self._due is None or us < self._due:
            self._at(us)


# --- what a role is made of -----------------------------------------------------------------------


def engine(queue_problem: Callable[[str], str | None]) -> MakeProcessors:
    """The processors of `perdure engine`."""

    def make(life: Life) -> Sequence[Processor]:
        ids = dict(life.kafka.admin().topic_ids([topics.TASKS]).result())
        outputs = Outputs(Blobs("memory://perdure-simulation"))
        made: Any = EngineProcessor(
            outputs, ids.__getitem__, queue_problem, SimHistories(life), SimSignatures()
        )
        return [made]

    return make


def worker(
    tools: Sequence[Tool[..., Any]],
    queues: Sequence[str],
    models: Callable[[], dict[str, Callable[[], Provider]]],
    settings: Callable[[str], WorkerSettings] | None = None,
    kind: type[WorkerProcessor] = WorkerProcessor,
) -> MakeProcessors:
    """The processors of `perdure worker`."""

    def make(life: Life) -> Sequence[Processor]:
        producer = life.kafka.plain_producer(f"worker.{life.name}.results")
        limits = settings(life.name) if settings else WorkerSettings(instance_id=life.name)
        clock = life.clock
        reach = limits.reach(producer, life.executor, clock.now_ms, clock.monotonic)
        own = [pointed(tool, life.point) for tool in tools]
        return [
            kind(
                queue,
                [tool for tool in own if tool.spec.queue == queue],
                settings=limits,
                executor=life.executor,
                producer=producer,
                models=Providers(models()),
                clock=clock.now_ms,
                monotonic=clock.monotonic,
                reach=reach,
            )
            for queue in queues
        ]

    return make
