"""The worker's executor on virtual time: coroutines and ``def`` tools without a thread.

`SimLoop` is an asyncio loop whose time is the simulation's and which never waits: the world runs
one ready batch at a time, so `asyncio.sleep` and `asyncio.timeout` follow virtual time. A ``def``
tool runs as an event of the world: its body at one moment, its end after the time its calls to
the outside take. Where it blocks on the loop (`save_progress`), the world goes on inside.
Nothing of a dead process runs any more; its coroutines are closed with the world.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from asyncio import events
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Protocol

from .broker.errors import ProcessGone

Job = Callable[[], Coroutine[Any, Any, None]]


class Killed(ProcessGone):
    """The process that runs this is dead: nothing of it may go on, so no `Exception`."""


class Host(Protocol):
    """The process an executor belongs to."""

    alive: bool

    def wake_loop(self) -> None:
        """There is something to run on the loop."""

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Run ``action`` as an event of this process."""

    def monotonic(self) -> float: ...

    def jitter(self) -> float:
        """Seconds until a thread gets going."""

    def until(self, condition: Callable[[], bool]) -> None:
        """Let the world go on until ``condition`` holds. Raises `Killed`."""

    def odd(self, text: str) -> None:
        """Something happened that never should."""


class _NeverWaits:
    def select(self, timeout: float | None) -> list[Any]:
        return []


class SimLoop(asyncio.BaseEventLoop):
    """An event loop of one process, driven from outside by `run_batch`."""

    # asyncio's own, which its type stubs do not name.
    _ready: Any
    _scheduled: Any
    _timer_cancelled_count: int
    _run_once: Callable[[], None]

    def __init__(self, host: Host) -> None:
        super().__init__()
        self._host = host
        self._selector = _NeverWaits()
        self._clock_resolution = 1e-9
        self.set_exception_handler(self._raised)

    def _raised(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if self._host.alive and error is not None and not isinstance(error, ProcessGone):
            self._host.odd(f"on the loop: {type(error).__name__}: {error}")

    def time(self) -> float:
        return self._host.monotonic()

    def _process_events(self, event_list: Any) -> None:
        """There is no selector."""

    def _write_to_self(self) -> None:
        """Nobody sleeps."""

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        handle = super().call_soon(callback, *args, context=context)
        self._host.wake_loop()
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        handle = super().call_soon_threadsafe(callback, *args, context=context)
        self._host.wake_loop()
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        handle = super().call_at(when, callback, *args, context=context)
        self._host.wake_loop()
        return handle

    def next_at(self) -> float | None:
        """Monotonic seconds of the next thing to run, or None."""
        if self._ready:
            return 0.0
        while self._scheduled and self._scheduled[0]._cancelled:
            self._timer_cancelled_count = max(0, self._timer_cancelled_count - 1)
            heapq.heappop(self._scheduled)._scheduled = False
        return self._scheduled[0]._when if self._scheduled else None

    def run_batch(self) -> None:
        """Run what is ready now, once."""
        outer = events._get_running_loop()
        events._set_running_loop(self)
        try:
            self._run_once()
        finally:
            events._set_running_loop(outer)


class SimExecutor:
    """Implements the connectors' `Executor` for one process."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.loop = SimLoop(host)
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._in_thread = False
        self.waiting_threads = 0
        """``def`` tools handed over that have not begun."""
        self.answer_after = 0.0
        """Set by the outside inside a ``def`` tool: how long its answer takes."""

    @property
    def busy(self) -> bool:
        """Something runs here."""
        return bool(self._tasks)

    def spawn(self, job: Job) -> None:
        if not self._host.alive:
            return
        task = self.loop.create_task(job())
        self._tasks[task] = None
        task.add_done_callback(self._done)
        if self._in_thread:  # the thread is about to wait for it
            self._host.until(task.done)

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """The world goes on inside a ``def`` tool, which waits or is held up: other tools may run
        meanwhile, and what is spawned is not the thread's."""
        was = self._in_thread, self.answer_after
        self._in_thread = False
        try:
            yield
        finally:
            self._in_thread, self.answer_after = was

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled():
            error = task.exception()
            if error is not None and not isinstance(error, ProcessGone):
                self._host.odd(f"a call's own bookkeeping failed: {error!r}")

    def in_thread(
        self, pool: str, limit: int, work: Callable[[], Any], ended: Callable[[], None]
    ) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self.loop.create_future()
        self.waiting_threads += 1

        def run() -> None:
            self.waiting_threads -= 1
            if future.cancelled():
                return ended()
            value: Any = None
            error: BaseException | None = None
            self.answer_after, self._in_thread = 0.0, True
            try:
                value = work()
            except StopIteration as stopped:
                error = RuntimeError(f"the tool raised StopIteration: {stopped}")
            except ProcessGone:
                return None
            except BaseException as raised:
                error = raised
            finally:
                self._in_thread = False
            return self._host.after(self.answer_after, lambda: end(value, error))

        def end(value: Any, error: BaseException | None) -> None:
            ended()
            if future.done():
                return
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

        self._host.after(self._host.jitter(), run)
        return future

    def close(self) -> None:
        """Throw away what still hangs in coroutines; nothing of it may reach the outside."""
        for task in list(self._tasks):
            with contextlib.suppress(BaseException):  # it was about to use a dead process's port
                task.get_coro().close()
        self._tasks.clear()
        if not self.loop.is_closed():
            self.loop.close()
