"""What goes wrong in the chaotic phase of a seed, and when."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from perdure.streams.runtime.errors import (
    Aborted,
    OutcomeUnknown,
    StoreBusy,
    StoreFailed,
    Unanswered,
)

from .strikes import Crash, Fail, LateCommit, Outage, Stop, Strike, Yield
from .world import World

SPOTS: Final[dict[str, int]] = {
    "admin.committed": 8, "admin.ends": 10, "admin.partition_counts": 4,
    "admin.set_group_timeouts": 4, "admin.starts": 8, "admin.topic_ids": 8,
    "consumer.commit": 8, "consumer.membership": 25, "consumer.poll": 200, "consumer.start": 6,
    "consumer.subscribe": 4, "outside.land": 4, "plain.send": 8, "producer.begin": 30,
    "producer.commit": 30, "producer.send": 150, "producer.send_offsets": 30, "producer.start": 4,
    "producer.abort": 1, "reader.add": 4, "reader.poll": 100, "reader.remove": 2,
    "store.open": 5, "store.wipe": 1, "store.write": 40, "tool.external": 3, "tool.idempotent": 3,
    "tool.query": 2, "tool.read_only": 2, "consumer.close": 1, "producer.close": 1,
    "kafka.abort_open_transaction": 1,
}  # fmt: skip
"""Every call of a port that can be struck, and how often it comes at most worth waiting for."""
FAVOURED: Final = (
    "producer.commit", "producer.send_offsets", "store.write", "tool.external", "tool.external",
    "tool.idempotent", "tool.query", "outside.land", "plain.send", "consumer.commit",
)  # fmt: skip
_FAILURES: Final[tuple[tuple[str, str, Callable[[], Exception]], ...]] = (
    ("producer.commit", "before", lambda: Aborted("made up")),
    ("producer.send_offsets", "before", lambda: Aborted("made up")),
    ("producer.send", "before", lambda: Aborted("made up")),
    ("producer.commit", "after", lambda: OutcomeUnknown("made up")),
    ("consumer.commit", "before", lambda: Unanswered("made up")),
    ("store.write", "before", lambda: StoreFailed("made up")),
    ("store.write", "after", lambda: StoreFailed("made up")),
    ("store.open", "before", lambda: StoreBusy("made up")),
)
AMID_COMMIT: Final = ("producer.begin", "producer.send", "producer.send_offsets", "producer.commit")
NOT_SENT_YET: Final = ("tool.external", "tool.idempotent", "tool.query", "tool.read_only")
"""A process stopped here has not sent its request, or not that of a call beside it: for longer than
a settle time nothing but the service itself could tell, so such stops are short."""


class Faults:
    """Plans a seed's faults: strikes at points, and what happens to processes at some time."""

    def __init__(
        self,
        world: World,
        seconds: float,
        jumps: bool,
        chance: random.Random,
        takeovers: bool,
    ) -> None:
        self._world = world
        self._chance = chance
        self._jumps = jumps
        self._rota()
        if takeovers:
            self._takeovers()
        for _ in range(chance.choice((0, 1, 2, 3, 5, 8))):
            self._strike()
        for _ in range(chance.choice((0, 1, 2, 3))):
            world.later(chance.uniform(0.2, seconds), self._happen)
        if jumps:
            world.later(chance.uniform(0.2, seconds), self._jump)

    def _strike(self) -> None:
        chance = self._chance
        roll = chance.random()
        if roll < 0.1:
            where, side, error = chance.choice(_FAILURES)
            self._world.strike(where, side, Fail(error), nth=self._nth(where))
            return
        where = chance.choice(FAVOURED) if chance.random() < 0.5 else chance.choice(list(SPOTS))
        side = chance.choice(("before", "after"))
        what: Strike
        if roll < 0.6:
            what = Crash(chance.choice((0.01, 0.5, 3.0, 12.0)))
        elif roll < 0.8:
            longest = 0.8 if where in NOT_SENT_YET else 14.0
            what = Stop(chance.uniform(0.0, chance.choice((0.05, longest))))
        elif roll < 0.85:
            what = Stop(chance.uniform(0.0001, 0.02))
        elif roll < 0.92:
            what = Yield(chance.choice((0.003, 0.03, 0.5)), chance.random() < 0.5)
        elif roll < 0.96:
            what = Outage(chance.uniform(0.1, 12.0))
        else:
            where, side = "producer.commit", "before"
            what = LateCommit(chance.uniform(0.0, 12.0), chance.choice((0.01, 0.5, 3.0)))
        self._together(where)
        self._world.strike(where, side, what, nth=self._nth(where))

    def _rota(self) -> None:
        """A crash at each point in turn, so that some hundred seeds leave none out."""
        points, seed = list(SPOTS), self._world.seed
        where = points[seed % len(points)]
        side = ("after", "before")[seed // len(points) % 2]
        nth = self._chance.randint(1, max(1, SPOTS[where] // 4))
        self._together(where)
        if where in AMID_COMMIT and self._chance.random() < 0.6:
            # A worker dies amid its transaction, while its calls go on in other threads.
            name = self._chance.choice([n for n in self._world.processes if n.startswith("worker")])
            nth = self._chance.randint(1, 4) * (3 if where == "producer.send" else 1)
            self._world.strike(where, "before", Yield(0.03, crash=True), process=name, nth=nth)
            return
        self._world.strike(where, side, Crash(self._chance.choice((0.5, 3.0))), nth=nth)

    def _together(self, where: str) -> None:
        """Some points are passed only when something else goes wrong."""
        world, name = self._world, self._name()
        disk = world.processes[name].disk
        if where == "store.wipe":
            world.later(self._chance.uniform(0.5, 5.0), disk.go_corrupt)
        elif where in ("consumer.close", "producer.close"):
            world.later(self._chance.uniform(0.5, 5.0), lambda: world.drain(name, 3.0))
        elif where == "producer.abort":
            world.strike("producer.commit", "before", Fail(lambda: Aborted("made up")), nth=2)
        elif where == "kafka.abort_open_transaction":
            world.strike("producer.commit", "before", Crash(9.0), nth=self._nth("producer.commit"))

    def _takeovers(self) -> None:
        """Owners that die or stand still with a transaction open, while others take over: the
        commit may still come, just when the new owner looks."""
        chance = self._chance
        for _ in range(chance.choice((3, 5, 8))):
            seconds = chance.uniform(4.0, 7.0)
            what: Strike = LateCommit(seconds, chance.choice((7.0, 9.0, 12.0)))
            if chance.random() < 0.5:  # it wakes just as its partitions are being taken over
                what = Stop(chance.uniform(4.2, 6.6))
            nth = chance.randint(1, chance.choice((4, 12, 30)))
            self._world.strike("producer.commit", "before", what, nth=nth)

    def _nth(self, where: str) -> int:
        return self._chance.randint(1, self._chance.choice((1, 3, SPOTS[where])))

    def _name(self) -> str:
        return self._chance.choice(list(self._world.processes))

    def _happen(self) -> None:
        """Something from outside happens to a process, or to the broker."""
        chance, world = self._chance, self._world
        name = self._name()
        process = world.processes[name]
        kind = chance.randrange(11)
        if kind == 0:
            world.crash(name, chance.choice((0.01, 1.0, 8.0)))
        elif kind == 1:
            world.stop(name, chance.uniform(0.5, 15.0))
        elif kind == 2:
            world.drain(name, chance.uniform(1.0, 10.0))
        elif kind == 3:
            world.crash(name, chance.uniform(5.0, 20.0))  # vanished for a while
        elif kind == 4:
            world.crash(name, 0.5)
            process.disk.lose()
        elif kind == 5:
            world.crash(name, 0.5)
            process.disk.go_stale()
        elif kind == 6:
            if chance.random() < 0.5:
                world.crash(name, 0.5)
            process.disk.go_corrupt()
        elif kind == 7:
            world.broker_down(chance.uniform(0.2, 15.0))
        elif kind == 8:
            world.cut(name, chance.uniform(0.5, 12.0))
        elif kind == 9:
            queue = chance.choice(("tools", "tools", "models"))
            world.queues_away.add(queue)
            world.later(chance.uniform(0.5, 6.0), lambda: world.queues_away.discard(queue))
        else:
            process.disk.failing = True
            world.later(chance.uniform(0.5, 5.0), lambda: setattr(process.disk, "failing", False))

    def _jump(self) -> None:
        ms = self._chance.choice((-600_000, -20_000, -2_000, 2_000, 30_000, 600_000))
        self._world.jump_clock(self._name(), ms)
