"""Where calls run: coroutines on one event loop in a thread of its own, ``def`` tools in threads.

A port, so that a simulation can run the same calls on virtual time. The cycle's thread hands
work over in batches: one wake-up of the loop for all that is handed over while it is busy.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

log = logging.getLogger(__name__)

Job = Callable[[], Coroutine[Any, Any, None]]


class Executor(Protocol):
    """Runs calls."""

    def spawn(self, job: Job) -> None:
        """Run the coroutine ``job()`` on the loop. Thread-safe; the job handles its own errors."""

    def in_thread(
        self, pool: str, limit: int, work: Callable[[], Any], ended: Callable[[], None]
    ) -> asyncio.Future[Any]:
        """Run ``work`` in one of at most ``limit`` threads of its pool; only on the loop. Not if the
        future is cancelled before there is a thread.

        ``ended`` is called when the thread is through with it, also if nobody waits any more.
        """

    def close(self) -> None:
        """Cancel what runs on the loop and stop it."""


class ThreadedExecutor:
    """The real one."""

    def __init__(self, name: str = "perdure.calls") -> None:
        self._loop = asyncio.new_event_loop()
        self._handed: deque[Job] = deque()
        self._awake = False
        self._closing = False
        self._pools: dict[str, _Pool] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._ran():
            pass
        try:
            pending = asyncio.all_tasks(self._loop)
            for task in pending:
                task.cancel()
            if pending:
                self._loop.run_until_complete(asyncio.wait(pending, timeout=5))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def _ran(self) -> bool:
        """Run the loop; False: it is not to end yet. asyncio lets a `SystemExit` of any task, also of
        one that a tool has begun, end the loop, and a thread dies of it without a word: no call would
        be made any more, by a process that keeps its partitions."""
        try:
            self._loop.run_forever()
        except BaseException as error:
            log.error(
                "a task that a tool or a model began has raised %s: it ends that task alone",
                type(error).__name__,
            )
            if self._closing:  # what was to stop the loop may have run before it
                self._loop.call_soon(self._loop.stop)
            return False
        return self._closing

    def spawn(self, job: Job) -> None:
        self._handed.append(job)
        if not self._awake:
            self._awake = True
            try:
                self._loop.call_soon_threadsafe(self._take)
            except RuntimeError:  # closed: nothing is started any more
                self._handed.clear()

    def _take(self) -> None:
        self._awake = False  # before the deque is emptied: what comes later wakes us again
        if self._closing:  # a task begun now would be left pending when the loop is closed
            self._handed.clear()
        handed, create, tasks = self._handed, self._loop.create_task, self._tasks
        while handed:
            task = create(handed.popleft()())
            tasks.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a call's own bookkeeping failed", exc_info=task.exception())

    def in_thread(
        self, pool: str, limit: int, work: Callable[[], Any], ended: Callable[[], None]
    ) -> asyncio.Future[Any]:
        threads = self._pools.get(pool)
        if threads is None:
            threads = self._pools[pool] = _Pool(pool, limit)
        future: asyncio.Future[Any] = self._loop.create_future()

        def settle(value: Any, error: BaseException | None) -> None:
            if future.done():  # abandoned
                return
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

        def run() -> None:
            value: Any = None
            error: BaseException | None = None
            try:
                if not future.cancelled():  # given up before there was a thread for it
                    value = work()
            except StopIteration as stopped:  # a future can't carry it
                error = RuntimeError(f"the tool raised StopIteration: {stopped}")
            except BaseException as raised:
                error = raised
            ended()
            try:
                self._loop.call_soon_threadsafe(settle, value, error)
            except RuntimeError:
                log.info("a call ended after the worker had stopped")

        threads.put(run)
        return future

    def close(self) -> None:
        self._closing = True
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)


class _Pool:
    """Daemon threads, made when needed: a hung ``def`` tool must not keep a process alive."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._count = 0

    def put(self, run: Callable[[], None]) -> None:
        with self._lock:
            self._work.put(run)
            if self._idle:
                self._idle -= 1
            elif self._count < self._limit:
                self._count += 1
                name = f"{self._name}-{self._count}"
                threading.Thread(target=self._serve, name=name, daemon=True).start()

    def _serve(self) -> None:
        while True:
            self._work.get()()
            with self._lock:
                self._idle += 1
