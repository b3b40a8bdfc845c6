"""A call as a span, child of its action's; named as OpenTelemetry's GenAI conventions have it.

Of the request and the answer only names, counts and kinds are in it: never arguments, results,
prompts or texts of errors.
"""

from __future__ import annotations

from typing import Any

from perdure.schemas.records import ActionCommand, ActionResult
from perdure.streams.runtime.processor import Headers
from perdure.streams.runtime.spans import Span, Value, span_id, trace_of


def span_of(
    command: ActionCommand, answer: ActionResult, headers: Headers, worker: str
) -> Span | None:
    """None for a call of a run that is not traced, or that was never made."""
    header = next((value for name, value in headers if name == "traceparent"), None)
    trace = trace_of(header)
    if trace is None or not trace.sampled or not answer.started_at:
        return None
    attributes: dict[str, Value] = {
        "perdure.run_id": command.run_id,
        "perdure.action_id": command.action_id,
        "perdure.attempt": command.attempt,
        "perdure.effect": command.effect,
        "perdure.status": answer.status,
        "perdure.worker": worker,
        **(_tool(command) if command.request is None else _model(command, answer)),
    }
    error = None if answer.error is None else answer.error.kind
    if error is not None:
        attributes["error.type"] = error
    return Span(
        trace.trace_id,
        span_id(f"{command.action_id}/{command.attempt}"),
        span_id(command.action_id),
        f"{attributes['gen_ai.operation.name']} {command.target}",
        answer.started_at,
        max(answer.finished_at or answer.started_at, answer.started_at),
        attributes,
        error=error,
        outgoing=command.request is not None,
    )


def _tool(command: ActionCommand) -> dict[str, Value]:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": command.target,
        "gen_ai.tool.call.id": command.action_id,
    }


def _model(command: ActionCommand, answer: ActionResult) -> dict[str, Value]:
    request: Any = command.request if isinstance(command.request, dict) else {}
    model: Any = request.get("model") if isinstance(request.get("model"), dict) else {}
    found: dict[str, Value] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": str(model.get("provider") or "unknown"),
        "gen_ai.request.model": command.target,
    }
    for ours, theirs in (
        ("temperature", "temperature"),
        ("seed", "seed"),
        ("max_output_tokens", "max_tokens"),
    ):
        value = request.get(ours)
        if isinstance(value, int | float):
            found[f"gen_ai.request.{theirs}"] = value
    if answer.usage is not None:
        found["gen_ai.usage.input_tokens"] = answer.usage.input_tokens
        found["gen_ai.usage.output_tokens"] = answer.usage.output_tokens
    result: Any = answer.result if isinstance(answer.result, dict) else {}
    if isinstance(result.get("model"), str) and result["model"]:
        found["gen_ai.response.model"] = result["model"][:200]
    return found
