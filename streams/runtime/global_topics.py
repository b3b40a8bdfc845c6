"""Compacted topics every partition needs: read to their end before anything is live."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from .clock import Clock
from .errors import Unanswered
from .ports import Admin, End, Reader, Spot, Trouble
from .processor import Record

log = logging.getLogger(__name__)

_SLICE = 2_000


class GlobalTopics:
    """Polled without waiting in every cycle; records go to the processor on the cycle's thread."""

    def __init__(
        self,
        counts: Mapping[str, int],
        admin: Admin,
        make_reader: Callable[[], Reader],
        take: Callable[[Record], None],
        clock: Clock,
    ) -> None:
        self._admin = admin
        self._take = take
        self._clock = clock
        self._reader: Reader | None = None
        spots = [Spot(topic, p) for topic, count in counts.items() for p in range(count)]
        self._unread = set(spots)
        if spots:
            self._reader = make_reader()
            self._add(spots)

    @property
    def ready(self) -> bool:
        return not self._unread

    def poll(self) -> None:
        if self._reader is None:
            return
        for item in self._reader.poll(_SLICE, 0):
            if isinstance(item, Record):
                self._take(item)
            elif isinstance(item, End):
                self._unread.discard(Spot(item.topic, item.partition))
            elif item.lost:
                self._read_anew(item)
            else:
                log.warning("%s-%d: %s", item.topic, item.partition, item.detail)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def _read_anew(self, trouble: Trouble) -> None:
        """Cut behind us, or made anew: what is there now is what counts."""
        assert self._reader is not None
        log.warning(
            "%s-%d is read from its start again: %s",
            trouble.topic,
            trouble.partition,
            trouble.detail,
        )
        spot = Spot(trouble.topic, trouble.partition)
        self._reader.remove(spot)
        self._add([spot])

    def _add(self, spots: Sequence[Spot]) -> None:
        assert self._reader is not None
        while True:
            try:
                starts = self._admin.starts(spots).result()
                break
            except Unanswered as e:
                log.warning("the global topics' starts are asked again: %s", e)
        for spot, offset in starts.items():
            self._reader.add(spot, offset)
