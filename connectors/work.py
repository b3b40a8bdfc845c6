"""The calls under way in one worker: admitted, run, delivered, forgotten.

The only owner of a call's phase. Two threads meet here, the cycle's and the loop's: `phase`,
`holds` and `assignment` of a call change under one lock.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from perdure.streams.runtime.processor import Assignment

from .call import ADMITTED, ENDED, QUEUED, RUNNING, Call, Caller, GivenUp, Progressed
from .errors import Failure
from .executor import Executor
from .gate import Gate
from .ledger import FOREIGN_GRACE_MS
from .waiting import Waiting

log = logging.getLogger(__name__)

LATE_START_SECONDS = 2.0
"""A commit slower than this is taken off the call's time, so that it ends when others expect."""
HUNG_SECONDS = 10.0
"""After so long a tool whose threads are all hung may be tried again."""


class Work:
    """Runs calls. ``begin`` and ``ended`` make what is posted to the assignment of an external
    call: that its place is there, or why it gets none; that its answer is. ``given_up`` is told of threads left alone."""

    def __init__(
        self,
        executor: Executor,
        caller: Caller,
        gate: Gate,
        begin: Callable[[Call, Failure | None], Any],
        ended: Callable[[Call], Any],
        given_up: GivenUp,
        clock: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.calls: dict[tuple[str, int], Call] = {}
        self.lock = threading.Lock()
        self._threads: dict[tuple[str, int], int] = {}  # of `def` tools, abandoned ones included
        self._left: set[tuple[str, int]] = set()  # of those, whose call has had its answer
        self._hung: dict[str, int] = {}  # and how many of each target
        self._executor = executor
        self._caller = caller
        self._gate = gate
        self._waiting = Waiting(gate, executor, clock, self._in_vain, self._refuse)
        self._begin = begin
        self._ended = ended
        self._given_up = given_up
        self.monotonic = monotonic

    def under_way(self, ident: tuple[str, int]) -> bool:
        """It waits, runs, or a thread of it still does; or its end is about to be committed. One
        that ended after its partition was lost is over: its end reached nobody."""
        call = self.calls.get(ident)
        if call is not None and (call.phase < ENDED or call.assignment.alive):
            return True
        return ident in self._threads

    def left_over(self, partition: int | None = None) -> list[Call]:
        """Calls that ended after their partition (this one, or any) was lost."""
        return [
            call
            for call in list(self.calls.values())
            if call.phase == ENDED
            and not call.assignment.alive
            and partition in (None, call.assignment.partition)
        ]

    def _prune(self) -> None:
        """Forget those left over that another owner has settled by now."""
        now = self.monotonic()
        for call in self.left_over():
            if now > call.over + call.command.timeout_seconds + FOREIGN_GRACE_MS / 1000:
                self.forget(call)

    @property
    def threads(self) -> int:
        """Threads of `def` tools that are taken, also by calls whose time is over."""
        with self.lock:
            return sum(self._threads.values())

    def to_come(self, ident: tuple[str, int]) -> bool:
        """Its call is to begin here, or has not had its answer. A thread that was given up is not
        waited for: it may never end."""
        call = self.calls.get(ident)
        return call is not None and call.phase < ENDED and not call.dropped

    def admit(self, call: Call) -> bool:
        """Take the call in; True if it has its place now, else it gets it later by itself."""
        self.calls[call.ident] = call
        return self._waiting.enter(call, self._placed)

    def _in_vain(self, call: Call) -> Failure | None:
        """Why a call that waits would wait in vain."""
        target = call.command.target
        limit = self._gate.limit(target)
        if self._hung.get(target, 0) < limit:
            return None
        text = (
            f"{target} is not called: all its {limit} threads are held by calls whose time is over. "
            "Nothing was sent; give what it calls a timeout of its own, and restart the worker"
        )
        return Failure("unavailable", "BREAKER_OPEN", text, HUNG_SECONDS)

    def _refuse(self, call: Call, why: Failure) -> None:
        """It waited at the gate, and has left it without a place (on the loop)."""
        with self.lock:
            if call.dropped:
                return None
            assignment = call.assignment
            if call.effect != "external":
                call.phase = RUNNING  # its answer is under way
        if call.effect == "external":  # only who still owns the partition may say so
            return assignment.post(self._begin(call, why))

        async def tell() -> None:
            call.payload = await self._caller.refused(call, why)
            self._deliver(call)

        return self._executor.spawn(tell)

    def _placed(self, call: Call) -> bool:
        """The gate has a place for a call that waited (any thread)."""
        with self.lock:
            if call.dropped:
                return False
            call.phase = ADMITTED
            assignment = call.assignment
        if call.effect == "external":
            assignment.post(self._begin(call, None))
        else:
            self.go(call)
        return True

    def go(self, call: Call) -> bool:
        """Start it; False if it was dropped, by whom its place is given back."""
        with self.lock:
            if call.dropped:
                return False
            call.phase = RUNNING
            if call.effect != "read_only":
                call.busy_on = call.assignment
                call.busy_on.busy(1)
        self._executor.spawn(functools.partial(self._run, call))
        return True

    async def _run(self, call: Call) -> None:
        if call.effect != "external" and not call.assignment.alive:
            self._gate.leave(call.command.target)
            self._abandon(call)
            return None
        if call.staged:
            late = self.monotonic() - call.staged - LATE_START_SECONDS
            call.seconds -= max(0.0, late)
        thread_ended = (
            self._thread(call) if call.tool is not None and not call.tool.is_async else None
        )
        try:
            call.payload = await self._caller.perform(
                call, thread_ended or _nothing, self._given_up
            )
        finally:
            if thread_ended is None:
                self._gate.leave(call.command.target)
            elif not call.threads:
                thread_ended()  # it never came to a thread
            else:
                self._leave(call)
        if call.effect != "external":
            return self._deliver(call)
        with self.lock:
            call.phase, call.over = ENDED, self.monotonic()
            assignment = call.assignment
        assignment.post(self._ended(call))
        return None

    def _thread(self, call: Call) -> Callable[[], None]:
        """Counts a thread until it ends, also when nobody waits for it any more: it may write."""
        ident, target = call.ident, call.command.target
        assignment: Assignment | None = call.assignment if call.effect != "read_only" else None
        if assignment is not None:
            assignment.busy(1)
        with self.lock:
            self._threads[ident] = self._threads.get(ident, 0) + 1

        def ended() -> None:
            with self.lock:
                left = self._threads.pop(ident, 1) - 1
                if left:
                    self._threads[ident] = left
                elif ident in self._left:
                    self._left.discard(ident)
                    self._hung[target] -= 1
            self._gate.leave(target)
            if assignment is not None:
                assignment.busy(-1)

        return ended

    def _leave(self, call: Call) -> None:
        """The call has its answer; a thread of it that still runs is hung, as far as we know."""
        with self.lock:
            if call.ident in self._threads and call.ident not in self._left:
                self._left.add(call.ident)
                target = call.command.target
                self._hung[target] = self._hung.get(target, 0) + 1

    def _deliver(self, call: Call) -> None:
        self._caller.send(
            call.key, call.payload, call.headers, functools.partial(self._acked, call)
        )

    def _acked(self, call: Call, error: Exception | None) -> None:
        if error is None or not call.assignment.alive:  # of a dead one, the new owner calls again
            self.forget(call)
            if call.saved:
                call.assignment.post(Progressed(call, None))
            return
        log.warning(
            "the result of %s was not taken, it is sent again: %s",
            call.command.action_id,
            error,
            extra={"action_id": call.command.action_id},
        )

        async def again() -> None:
            await asyncio.sleep(1.0)
            self._deliver(call)

        self._executor.spawn(again)
        return

    def forget(self, call: Call) -> None:
        """The call is over and its answer safe: its records are finished."""
        with self.lock:
            if self.calls.get(call.ident) is call:
                del self.calls[call.ident]
            holds, call.holds = call.holds, []
            busy_on, call.busy_on = call.busy_on, None
        for hold in holds:
            hold.finish()
        if busy_on is not None:
            busy_on.busy(-1)

    def _abandon(self, call: Call) -> None:
        """Forget a call of a partition given up. Its records stay unfinished: the next owner calls."""
        with self.lock:
            holds, call.holds = call.holds, []
        for hold in holds:
            hold.leave()
        self.forget(call)

    def not_begun(self, call: Call) -> None:
        """Give back the place of a call that will not use it."""
        self._gate.leave(call.command.target)
        self.forget(call)

    def drop(self, call: Call) -> bool:
        """From now on it can't begin; False if it has. `withdraw` it once that is committed."""
        with self.lock:
            never = call.phase < RUNNING
            call.dropped |= never
            return never

    def withdraw(self, call: Call) -> None:
        """Forget a call that was dropped; one that had begun is told to stop."""
        with self.lock:
            if self.calls.get(call.ident) is not call:
                return  # over meanwhile, its place given back
            phase = call.phase
        if phase >= RUNNING:
            self.stop(call)
        elif phase == QUEUED:
            self.forget(call)  # the gate learns from `_placed`
        else:
            self.not_begun(call)

    def stop(self, call: Call) -> None:
        """Tell a running call; one without effect is ended."""
        if call.context is not None:
            call.context.cancel()
        if call.effect != "read_only" or (call.tool is not None and not call.tool.is_async):
            return
        call.cancel_wanted = True

        async def end() -> None:
            if call.calling and call.task is not None:
                call.task.cancel()

        self._executor.spawn(end)

    def revoke(self, assignment: Assignment) -> None:
        """Start nothing more for it."""
        self._prune()
        for call in list(self.calls.values()):
            with self.lock:
                if call.assignment is not assignment or call.phase >= RUNNING:
                    continue
                call.dropped = True
                phase = call.phase
            if phase != QUEUED:
                self._gate.leave(call.command.target)
            self._abandon(call)


def _nothing() -> None:
    """There is no thread."""
