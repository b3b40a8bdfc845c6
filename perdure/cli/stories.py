"""Many runs at once as they go on: the timeline's lines, each under its run's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from perdure.reading import Scanner, event_of
from perdure.schemas import topics
from perdure.schemas.records import RunEvent
from perdure.streams.core.apply import BrokenHistory

from .folded import Folded
from .timeline import Teller

AT_ONCE: Final = 1_000
"""So many runs are held folded; one more puts away the run that said nothing for the longest time."""


class Stories:
    """What the events of runs say, where all of them are given in turn. Owns the runs it has folded.

    A run that is met in its middle is read from its beginning: what of an event must stay covered is
    known from those before it.
    """

    def __init__(self, scanner: Scanner) -> None:
        self._scanner = scanner
        self._known: dict[str, tuple[Folded | None, Teller]] = {}

    def read(self, versions: Mapping[str, int]) -> None:
        """Take up runs under way, each up to a version. Raises `NoTopic`, `Unreachable`."""
        wanted = {run_id.encode(): version for run_id, version in versions.items()}
        only = next(iter(versions)) if len(versions) == 1 else None
        for raw in self._scanner.scan([topics.EVENTS], run_id=only) if wanted else ():
            if raw is None or raw.key not in wanted:
                continue
            event = event_of(raw)
            if event is not None and event.version <= wanted[raw.key]:
                self._take(event)

    def tell(self, event: RunEvent) -> tuple[str, str] | None:
        """(who, what) where the event says something; None also for one that was told before.

        Raises `NoTopic`, `Unreachable`.
        """
        if event.run_id not in self._known and event.version > 1:
            self.read({event.run_id: event.version - 1})
        return self._take(event)

    def _take(self, event: RunEvent) -> tuple[str, str] | None:
        run_id = event.run_id
        known = self._known.pop(run_id, None) or (Folded(), Teller())
        folded, teller = known
        told: tuple[str, str] | None = None
        if folded is None:
            told = _unknown(event)
        elif event.version > folded.version:
            try:
                line = teller.tell(folded.take(event))
                told = None if line is None else (line[2], line[3])
            except BrokenHistory:
                known = None, teller
                told = _unknown(event)
        if event.type != "run_finished":
            self._known[run_id] = known
            if len(self._known) > AT_ONCE:
                del self._known[next(iter(self._known))]
        return told


def _unknown(event: RunEvent) -> tuple[str, str]:
    """Of a run whose beginning is gone, or is forged: what in it is secret nobody knows."""
    return event.actor, event.type.replace("_", " ")
