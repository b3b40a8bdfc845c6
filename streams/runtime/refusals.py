"""Whose fault an aborted transaction is: Kafka's, or one input's.

An output that Kafka refuses (no such topic, too large for it) would abort every batch it is in,
for ever. So after two aborts inputs go one by one. But a fault of Kafka aborts everything, too,
and must cost nothing but time: to set an input aside for it would lose the end of a call that
happened. What tells them apart is a *control*: a transaction over the same partitions without
this input. An input is `poison`, and handed to `Processor.failed`, once it was refused three
times alone, with a control committed after each, and for as long as a topic takes to get a new
leader or its replicas back - at once if a record simply does not fit its topic. If what
`failed` puts in the input's place is refused as well it was not the input: counting begins anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from .errors import Aborted, DoesNotFit
from .processing import Processing
from .work import Work, is_same

log = logging.getLogger(__name__)

REFUSALS = 3
PATIENCE = 60.0
"""s of refusals: a topic's leader is elected anew in some seconds, a broker starts in a minute."""


class Refusals:
    """The only owner of the suspicion. ``control``: make one over what this cycle touched; True if
    it was committed."""

    def __init__(
        self,
        processing: Processing,
        monotonic: Callable[[], float],
        control: Callable[[Work], bool],
    ) -> None:
        self._processing = processing
        self._monotonic = monotonic
        self._control = control
        self._suspect: Any = None
        self._times = 0
        self._since = self._last = 0.0

    def aborted(self, work: Work, reason: Aborted, in_a_row: int) -> None:
        """The cycle is rewound; may say that its input is poison."""
        processing = self._processing
        if work.replaced:
            self._suspect = None
            return
        if not processing.one_by_one:
            processing.one_by_one = in_a_row >= 2
            return
        first = work.first
        if first is None:
            return
        if not self._control(work):
            self._suspect = None
            return
        now = self._monotonic()
        if not is_same(first, self._suspect) or now > self._last + PATIENCE:
            self._suspect, self._times, self._since = first, 0, now
        self._times, self._last = self._times + 1, now
        patience = 0.0 if isinstance(reason, DoesNotFit) else PATIENCE
        if self._times >= REFUSALS and now >= self._since + patience:
            processing.poison = (first, str(reason))
        elif self._times == REFUSALS:
            log.warning(
                "Kafka refuses what one input leads to and takes the rest; it is tried for %.0f s: %s",
                patience,
                reason,
            )
