"""Many runs at once as they go on: the timeline's lines, each under its run's name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from perdure.reading import Raw, Scanner, event_of
from perdure.schemas import topics
from perdure.schemas.records import RunEvent
from perdure.streams.core.apply import BrokenHistory, begins_anew

from .folded import Folded
from .timeline import Teller

AT_ONCE: Final = 1_000
"""So many runs are held folded. What a further one puts away is told by its events' types alone:
reading it again for each of its events would take longer than they do."""


class Stories:
    """What the events of runs say, where all of them are given in turn. Owns the runs it has folded.

    A run that is met in its middle is read from its beginning: what of an event must stay covered is
    known from those before it.
    """

    def __init__(self, scanner: Scanner) -> None:
        self._scanner = scanner
        self._known: dict[str, tuple[Folded, Teller]] = {}
        self._away: set[str] = set()
        """Runs of whom nobody knows what is secret: put away, or without their beginning."""

    def read(self, run_ids: Iterable[str], before: Mapping[int, int]) -> None:
        """Take up runs under way by their events that stand before an offset of each partition.

        Raises `NoTopic`, `Unreachable`.
        """
        wanted = {run_id.encode() for run_id in run_ids}
        only = next(iter(wanted)).decode() if len(wanted) == 1 else None
        for raw in self._scanner.scan([topics.EVENTS], run_id=only) if wanted else ():
            if raw is not None and raw.key in wanted and raw.offset < before[raw.partition]:
                event = event_of(raw)
                if event is not None:
                    self._take(event)

    def leave_out(self, run_ids: Iterable[str]) -> None:
        """Runs under way that are not read: there are too many."""
        self._away.update(run_ids)

    def tell(self, raw: Raw, event: RunEvent) -> tuple[str, str] | None:
        """(who, what) where the event says something. Raises `NoTopic`, `Unreachable`."""
        run_id = event.run_id
        if event.version > 1 and run_id not in self._known and run_id not in self._away:
            self.read([run_id], {raw.partition: raw.offset})
        return self._take(event)

    def _take(self, event: RunEvent) -> tuple[str, str] | None:
        run_id = event.run_id
        folded, teller = self._known.pop(run_id, None) or (Folded(), Teller())
        if event.version == 1:
            self._away.discard(run_id)
            if begins_anew(folded.run, event):
                folded, teller = Folded(), Teller()
        elif run_id in self._away:
            return _unknown(event)
        try:
            line = teller.tell(folded.take(event))
        except BrokenHistory:
            self._away.add(run_id)
            return _unknown(event)
        self._known[run_id] = folded, teller
        if len(self._known) > AT_ONCE:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._away.add(oldest)
        return None if line is None else (line[2], line[3])


def _unknown(event: RunEvent) -> tuple[str, str]:
    return event.actor, event.type.replace("_", " ")
