"""What has changed, for those who watch: at most one word per run in 100 ms, resumable for a while."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from .projections.exact import outward

EVERY_SECONDS: Final = 0.1
STATS_SECONDS: Final = 2.0
KEPT: Final = 5_000
WAITING: Final = 1_000
"""So many messages wait for a slow reader; then it is told to begin anew."""

_json = msgspec.json.Encoder()


def message(kind: str, number: str, data: Any) -> bytes:
    """One server-sent event."""
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (
        number.encode(), kind.encode(), _json.encode(outward(data)),
    )  # fmt: skip


class Changes:
    """Heard from any thread, told in the loop's. ``row`` gives a run's row as it is now."""

    def __init__(
        self,
        epoch: str,
        row: Callable[[str], dict[str, Any] | None],
        stats: Callable[[], dict[str, Any]],
    ) -> None:
        self._epoch = epoch
        self._row = row
        self._stats = stats
        self._next = 1
        self._runs: dict[str, None] = {}
        self._approvals: dict[str, bool] = {}
        self._past: deque[tuple[int, bytes]] = deque(maxlen=KEPT)
        self._readers: set[asyncio.Queue[bytes | None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

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
            self._flush()
            if self._readers and (changed or since_stats >= 15) and since_stats >= STATS_SECONDS:
                since_stats = 0.0
                made = await asyncio.get_running_loop().run_in_executor(None, self._stats)
                self._put("stats", made)

    def _flush(self) -> None:
        runs, self._runs = self._runs, {}
        asked, self._approvals = self._approvals, {}
        for run_id in runs:
            row = self._row(run_id) if self._readers or len(runs) <= KEPT else None
            if row is not None:
                self._put("run", row)
        for approval_id, is_open in asked.items():
            run_id = approval_id.rpartition("/")[0]
            told = {"approval_id": approval_id, "run_id": run_id, "open": is_open}
            self._put("approval", told)

    def _put(self, kind: str, data: Any) -> None:
        made = message(kind, f"{self._epoch}-{self._next}", data)
        self._past.append((self._next, made))
        self._next += 1
        for reader in list(self._readers):
            if reader.qsize() >= WAITING:
                self._readers.discard(reader)
                reader.put_nowait(None)
            else:
                reader.put_nowait(made)

    def join(self, last_id: str | None) -> tuple[asyncio.Queue[bytes | None], list[bytes]]:
        """A reader's queue (None in it: too slow, begin anew), and what it has missed."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._readers.add(queue)
        if not last_id:
            return queue, []
        epoch, _, number = last_id.rpartition("-")
        known = epoch == self._epoch and number.isascii() and number.isdigit()
        oldest = self._past[0][0] if self._past else self._next
        if not known or int(number) + 1 < oldest or int(number) >= self._next:
            return queue, [self.reset()]
        return queue, [made for at, made in self._past if at > int(number)]

    def leave(self, queue: asyncio.Queue[bytes | None]) -> None:
        self._readers.discard(queue)

    def listeners(self) -> int:
        """How many read now; asked from any thread."""
        return len(self._readers)

    def reset(self) -> bytes:
        """Something was missed: what is shown must be asked for again."""
        return message("reset", f"{self._epoch}-{self._next - 1}", {})
