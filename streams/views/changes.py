"""What has changed, for those who watch: at most one word per run in 100 ms, resumable for a while."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from .projections.exact import outward

log = logging.getLogger("perdure.views")

EVERY_SECONDS: Final = 0.1
STATS_SECONDS: Final = 2.0
KEPT: Final = 5_000
AT_ONCE: Final = 1_000
"""More in one turn are not told one by one: everybody begins anew, once in `AGAIN_SECONDS`."""
AGAIN_SECONDS: Final = 1.0
WAITING: Final = 2 * AT_ONCE
"""So many messages wait for a slow reader; then it is told to begin anew."""

Reader = asyncio.Queue[bytes | None]
_json = msgspec.json.Encoder()


def message(kind: str, number: str, data: bytes) -> bytes:
    """One server-sent event."""
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (number.encode(), kind.encode(), data)


def _encoded(data: Any) -> bytes:
    return _json.encode(outward(data))


class Changes:
    """Heard from any thread, told in the loop's. ``row`` gives a run's row as it is now; it waits for
    a lock and makes JSON, so it is asked in other threads, and only where somebody reads."""

    def __init__(
        self,
        epoch: str,
        row: Callable[[str], dict[str, Any] | None],
        stats: Callable[[], dict[str, Any]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._epoch = epoch
        self._row = row
        self._stats = stats
        self._clock = clock
        self._next = 1
        self._runs: dict[str, None] = {}
        self._approvals: dict[str, bool] = {}
        self._past: deque[tuple[int, str | bytes]] = deque(maxlen=KEPT)
        """A run by its id: whoever missed it wants it as it is by then."""
        self._readers: set[Reader] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._flooded = False
        self._anew_at = 0.0

    def runs(self, run_ids: Iterable[str]) -> None:
        found = list(run_ids)
        if found:
            self._soon(lambda: self._runs.update(dict.fromkeys(found)))

    def approval(self, approval_id: str, is_open: bool) -> None:
        self._soon(lambda: self._approvals.__setitem__(approval_id, is_open))

    def _soon(self, note: Callable[[], None]) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(note)

    async def tell(self) -> None:
        """Runs until it is cancelled."""
        self._loop = asyncio.get_running_loop()
        since_stats = 0.0
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            changed = bool(self._runs or self._approvals)
            since_stats += EVERY_SECONDS
            try:
                await self.flush()
                wanted = self._readers and (changed or since_stats >= 15)
                if wanted and since_stats >= STATS_SECONDS:
                    since_stats = 0.0
                    made = await asyncio.get_running_loop().run_in_executor(None, self._stats)
                    self._put("stats", _encoded(made))
            except Exception:  # whoever reads would wait for ever, and nobody would know why
                log.exception("a change could not be told: those who watch begin anew")
                self._flooded = True

    async def flush(self) -> None:
        """Tell what was heard since the last time."""
        runs, self._runs = self._runs, {}
        asked, self._approvals = self._approvals, {}
        if len(runs) + len(asked) > AT_ONCE:
            self._flooded = True
        else:
            for run_id, row in await self._rows(list(runs)):
                self._put("run", row, run_id)
            for approval_id, is_open in asked.items():
                run_id = approval_id.rpartition("/")[0]
                told = {"approval_id": approval_id, "run_id": run_id, "open": is_open}
                self._put("approval", _encoded(told))
        if self._flooded and self._clock() >= self._anew_at:
            self._flooded = False
            self._anew_at = self._clock() + AGAIN_SECONDS
            self._put("reset", b"{}")

    async def _rows(self, run_ids: list[str]) -> list[tuple[str, bytes]]:
        """The rows as JSON; empty ones where nobody reads them."""
        if not run_ids or not self._readers:
            return [(run_id, b"") for run_id in run_ids]
        return await asyncio.get_running_loop().run_in_executor(None, self._made, run_ids)

    def _made(self, run_ids: Iterable[str]) -> list[tuple[str, bytes]]:
        rows = ((run_id, self._row(run_id)) for run_id in run_ids)
        return [(run_id, _encoded(row)) for run_id, row in rows if row is not None]

    def _put(self, kind: str, data: bytes, run_id: str | None = None) -> None:
        made = message(kind, self._id(self._next), data)
        self._past.append((self._next, run_id or made))
        self._next += 1
        if data:
            for reader in list(self._readers):
                self.offer(reader, made)

    def _id(self, number: int) -> str:
        return f"{self._epoch}-{number}"

    def offer(self, reader: Reader, made: bytes) -> None:
        """Into a reader's queue, whoever tells it, as long as it keeps up."""
        if reader not in self._readers:
            return
        if reader.qsize() >= WAITING:
            self._readers.discard(reader)
            reader.put_nowait(None)
        else:
            reader.put_nowait(made)

    async def join(self, last_id: str | None) -> tuple[Reader, list[bytes]]:
        """A reader's queue (None in it: too slow, begin anew), and what it has missed."""
        queue: Reader = asyncio.Queue()
        self._readers.add(queue)
        if not last_id:
            return queue, []
        epoch, _, number = last_id.rpartition("-")
        known = epoch == self._epoch and number.isascii() and number.isdigit()
        oldest = self._past[0][0] if self._past else self._next
        if not known or int(number) + 1 < oldest or int(number) >= self._next:
            return queue, [self.reset()]
        try:
            return queue, await self._since(int(number))
        except BaseException:
            self.leave(queue)
            raise

    async def _since(self, number: int) -> list[bytes]:
        missed = [(at, made) for at, made in self._past if at > number]
        newest = {made: at for at, made in missed if isinstance(made, str)}
        loop = asyncio.get_running_loop()
        rows = dict(await loop.run_in_executor(None, self._made, list(newest)))
        found = []
        for at, made in missed:
            if isinstance(made, bytes):
                found.append(made)
            elif newest[made] == at and made in rows:
                found.append(message("run", self._id(at), rows[made]))
        return found

    def leave(self, queue: Reader) -> None:
        self._readers.discard(queue)

    def listeners(self) -> int:
        """How many read now; asked from any thread."""
        return len(self._readers)

    def reset(self) -> bytes:
        """Something was missed: what is shown must be asked for again."""
        return message("reset", self._id(self._next - 1), b"{}")
