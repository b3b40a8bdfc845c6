"""A run as a trace: one span for the run, each step, each action, each wait for a person.

Made after a commit, of events and the state they made, so nothing that was rolled back is ever seen.
A span needs its beginning, which stands in the state, and its parent's id, which is made of a
name. Only an action's attempts before its last are remembered here; a restart forgets those.

No arguments, results, messages or names of people are in a span: ids, names of tools and models,
kinds and counts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from perdure.schemas.records import RunEvent
from perdure.streams.core.decide.decision import Decision
from perdure.streams.core.state import Action, Run
from perdure.streams.runtime.spans import (
    Sink,
    Span,
    SpanEvent,
    Trace,
    Value,
    is_sampled,
    span_id,
    trace_id,
    trace_of,
)

log = logging.getLogger(__name__)

MOST_REMEMBERED: Final = 10_000
"""Actions under way whose attempts are remembered."""


class Traces:
    """Makes spans of decisions. ``share`` (0 to 1) of the runs whose task brings no trace."""

    def __init__(self, sink: Sink, share: float = 1.0) -> None:
        self._sink = sink
        self._share = share
        self._attempts: dict[tuple[str, int], list[SpanEvent]] = {}
        self.failures = 0
        self._on: Final[dict[str, Callable[[Trace, Run, RunEvent], None]]] = {
            "action_requested": self._requested,
            "retry_scheduled": self._missed,
            "action_unknown": self._missed,
            "action_succeeded": self._closed,
            "action_adopted": self._closed,
            "action_failed": self._failed,
            "action_cancelled": self._closed,
            "action_in_doubt": self._in_doubt,
            "approval_decided": self._decided,
            "approval_expired": self._expired,
            "run_finished": self._finished,
        }

    def begin(self, run_id: str, nonce: str) -> str:
        """The ``traceparent`` of a task that came without one; always the same for a run."""
        made = trace_id(f"{run_id}/{nonce}")
        return Trace(made, span_id(run_id), is_sampled(made, self._share)).header

    def decided(self, decision: Decision) -> None:
        """A decision is committed. A mistake in here must not end the engine: it is counted."""
        run = decision.run
        trace = trace_of(run.header.trace)
        if trace is None or not trace.sampled:
            return
        try:
            for event in decision.events:
                make = self._on.get(event.type)
                if make is not None and event.version > decision.copied:
                    make(trace, run, event)
        except Exception as error:
            self.failures += 1
            named = {"run_id": run.header.run_id}
            log.warning("a span could not be made", exc_info=error, extra=named)

    # --- actions --------------------------------------------------------------------------------

    def _requested(self, trace: Trace, run: Run, event: RunEvent) -> None:
        self._note(run, event, "attempt", {"perdure.attempt": event.data["attempt"]})

    def _missed(self, trace: Trace, run: Run, event: RunEvent) -> None:
        self._note(run, event, event.type, {"error.type": _kind(event.data)})

    def _note(self, run: Run, event: RunEvent, name: str, attributes: dict[str, Value]) -> None:
        key = (run.header.run_id, event.data["n"])
        if key not in self._attempts and len(self._attempts) >= MOST_REMEMBERED:
            del self._attempts[next(iter(self._attempts))]
        notes = self._attempts.setdefault(key, [])
        if len(notes) < 100:
            notes.append(SpanEvent(name, event.at, attributes))

    def _failed(self, trace: Trace, run: Run, event: RunEvent) -> None:
        if event.data.get("closed"):
            self._closed(trace, run, event)
        else:
            self._missed(trace, run, event)

    def _in_doubt(self, trace: Trace, run: Run, event: RunEvent) -> None:
        if event.data["closed"]:
            self._closed(trace, run, event)

    def _closed(self, trace: Trace, run: Run, event: RunEvent) -> None:
        action = run.action(event.data["n"])
        notes = self._attempts.pop((run.header.run_id, action.n), [])
        if action.first_at is not None:  # else nothing was ever sent
            failed = event.type in ("action_failed", "action_in_doubt")
            error = _kind(event.data) if failed else None
            self._action(trace, run, action, event, notes, error)
        self._step(trace, run, action, event)

    def _action(
        self,
        trace: Trace,
        run: Run,
        action: Action,
        event: RunEvent,
        notes: list[SpanEvent],
        error: str | None,
    ) -> None:
        action_id = run.action_id(action.n)
        attributes: dict[str, Value] = {
            **_of(run),
            "perdure.action_id": action_id,
            "perdure.action_kind": action.kind,
            "perdure.target": action.target,
            "perdure.effect": action.effect,
            "perdure.attempts": action.attempt,
            "perdure.status": action.status,
        }
        self._sink(
            Span(
                trace.trace_id,
                span_id(action_id),
                _step_id(run, action.step),
                f"action {action.target}",
                action.first_at or event.at,
                event.at,
                attributes,
                tuple(notes),
                error,
            )
        )

    def _step(self, trace: Trace, run: Run, closed: Action, event: RunEvent) -> None:
        """The step is over with the last of its actions; the first of them is where it began."""
        step = closed.step
        if any(run.action(n).step == step for n in run.header.open):
            return
        began = event.at
        n = closed.n
        while n > 0 and (action := run.get(("a", n))) is not None and action.step == step:
            began = min(began, action.first_at or began)
            n -= 1
        attributes = {**_of(run), "perdure.step": step}
        self._sink(
            Span(
                trace.trace_id,
                _step_id(run, step),
                span_id(run.header.run_id),
                f"step {step}",
                began,
                event.at,
                attributes,
            )
        )

    # --- people ---------------------------------------------------------------------------------

    def _decided(self, trace: Trace, run: Run, event: RunEvent) -> None:
        if event.data["closes"]:
            self._wait(trace, run, event, event.data["decision"])

    def _expired(self, trace: Trace, run: Run, event: RunEvent) -> None:
        if event.data["decision"] != "escalate":
            self._wait(trace, run, event, "expired")

    def _wait(self, trace: Trace, run: Run, event: RunEvent, word: str) -> None:
        n = event.data["n"]
        asked = run.approval(n)
        assert asked is not None
        about = run.header.run_id
        parent = span_id(about)
        if asked.action is not None:
            parent = _step_id(run, run.action(asked.action).step)
        attributes = {**_of(run), "perdure.approval_kind": asked.kind, "perdure.decision": word}
        self._sink(
            Span(
                trace.trace_id,
                span_id(run.approval_id(n)),
                parent,
                f"wait {asked.kind}",
                asked.requested_at,
                event.at,
                attributes,
            )
        )

    # --- the run --------------------------------------------------------------------------------

    def _finished(self, trace: Trace, run: Run, event: RunEvent) -> None:
        header = run.header
        own = span_id(header.run_id)
        attributes = {
            **_of(run),
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": header.agent,
            "gen_ai.usage.input_tokens": header.input_tokens,
            "gen_ai.usage.output_tokens": header.output_tokens,
            "perdure.status": header.status,
            "perdure.steps": header.step,
        }
        self._sink(
            Span(
                trace.trace_id,
                own,
                None if trace.parent == own else trace.parent,
                f"invoke_agent {header.agent}",
                header.created_at,
                event.at,
                attributes,
                error="failed" if header.status == "failed" else None,
            )
        )


def _of(run: Run) -> dict[str, Value]:
    return {"perdure.run_id": run.header.run_id, "perdure.agent": run.header.agent}


def _step_id(run: Run, step: int) -> str:
    return span_id(f"{run.header.run_id}/step/{step}")


def _kind(data: Any) -> str:
    error = data.get("error")
    return str(error.get("kind") or "error") if isinstance(error, dict) else "error"
