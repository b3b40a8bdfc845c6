"""What a worker measures of its calls. Names of targets and models come from commands: bounded."""

from __future__ import annotations

from collections.abc import Callable

from perdure.schemas.records import ActionCommand, ActionResult
from perdure.streams.runtime.measures import (
    LONG_SECONDS,
    Counter,
    Family,
    Gauge,
    Histogram,
    Names,
)


class WorkerMeasures:
    """Of one queue. ``running``, ``waiting`` and ``threads`` tell how many there are now."""

    def __init__(
        self, running: Callable[[], int], waiting: Callable[[], int], threads: Callable[[], int]
    ) -> None:
        self._targets = Names()
        self._errors = Names(50)
        self.calls = Counter(
            "calls", "answered commands; error is a kind, or none", ("target", "status", "error")
        )
        self.seconds = Histogram("call_seconds", "calls made", LONG_SECONDS, ("target",))
        self.tokens = Counter("model_tokens", "tokens that models counted", ("model", "direction"))
        self.cost = Counter("model_cost", "what models' calls cost, in their currency", ("model",))
        self._now = (
            Gauge("calls_running", "calls under way", lambda: {(): running()}),
            Gauge("calls_waiting", "calls that wait for a place", lambda: {(): waiting()}),
            Gauge("threads_busy", "threads of tools that are no coroutines", lambda: {(): threads()}),
        )  # fmt: skip

    @property
    def families(self) -> tuple[Family, ...]:
        return (self.calls, self.seconds, self.tokens, self.cost, *self._now)

    def refused(self, command: ActionCommand, kind: str) -> None:
        """Answered without a call."""
        status = "unknown" if kind == "unknown" else "failed"
        self.calls.add((self._targets.of(command.target), status, self._errors.of(kind)))

    def called(self, command: ActionCommand, answer: ActionResult) -> None:
        target = self._targets.of(command.target)
        kind = "none" if answer.error is None else self._errors.of(answer.error.kind)
        self.calls.add((target, answer.status, kind))
        if answer.started_at and answer.finished_at:
            seconds = max(answer.finished_at - answer.started_at, 0) / 1000
            self.seconds.observe(seconds, (target,))
        usage = answer.usage
        if usage is not None and command.request is not None:
            self.tokens.add((target, "input"), max(usage.input_tokens, 0))
            self.tokens.add((target, "output"), max(usage.output_tokens, 0))
            self.cost.add((target,), max(usage.cost, 0.0))
