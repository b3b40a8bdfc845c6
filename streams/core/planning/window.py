"""What of the history a model call carries (lifecycle section 7).

The whole history while it fits ``max_tokens``; else the instructions, the task's own message
and the last ``keep_rounds`` rounds. Never cut between a call and its result: a round is one
assistant message with all of its results.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from perdure.schemas.canonical import canonical

from ..lifecycle import SUCCEEDED
from ..state import Action, Message, Run

_json = msgspec.json.Encoder()
_OMITTED: Final = "[Earlier steps are left out here; their results are kept.]"


def request_messages(run: Run) -> list[dict[str, Any]]:
    """The messages of the next model request, in order."""
    header = run.header
    definition = run.definition
    window = definition.window
    system = (
        {"role": "system", "content": definition.instructions} if definition.instructions else None
    )
    longest = max(400, window.max_tokens)  # characters of one tool result: a quarter of the window
    if header.tokens <= window.max_tokens:
        shown = [render(run, run.message(n), longest) for n in range(header.messages)]
        return [system, *shown] if system else shown
    tail = _tail(run, window.keep_rounds, window.max_tokens, longest)
    task = _task_message(run)
    head = [render(run, run.message(task), longest)] if not tail or tail[0][0] > task else []
    if head and header.messages > task + 1:
        head.append({"role": "user", "content": _OMITTED})
    shown = [*head, *(message for _, message in tail)]
    return [system, *shown] if system else shown


def _task_message(run: Run) -> int:
    """The message that is the task's own input; earlier turns of a conversation stand before it."""
    wanted = run.start.input
    for n in range(run.header.messages):
        message = run.message(n)
        if message.role == "user" and message.content == wanted:
            return n
    return 0


def _tail(
    run: Run, keep_rounds: int, max_tokens: int, longest: int
) -> list[tuple[int, dict[str, Any]]]:
    """The last rounds that fit; at least the last one, whatever it weighs."""
    kept: list[tuple[int, dict[str, Any]]] = []
    current: list[tuple[int, dict[str, Any]]] = []
    rounds = 0
    tokens = 0
    for n in range(run.header.messages - 1, -1, -1):
        message = run.message(n)
        current.insert(0, (n, render(run, message, longest)))
        if message.role != "assistant":
            continue
        weight = sum(len(_json.encode(shown)) // 4 for _, shown in current)
        if kept and tokens + weight > max_tokens:
            break
        kept = current + kept
        current = []
        tokens += weight
        rounds += 1
        if rounds == keep_rounds:
            break
    # Nothing of the model yet: what people said last, else the task's own words would be lost.
    return kept or current[-keep_rounds:]


def render(run: Run, message: Message, longest: int | None = None) -> dict[str, Any]:
    """One message as a model reads it; ``longest`` (characters) bounds a tool's result."""
    if message.role == "assistant":
        shown: dict[str, Any] = {"role": "assistant", "content": message.content or ""}
        if message.calls:
            shown["tool_calls"] = [
                {"id": call["id"], "name": call["name"], "arguments": call.get("arguments") or {}}
                for call in message.calls
            ]
        return shown
    if message.role == "tool":
        action = None if message.action is None else run.action(message.action)
        text = (message.content or "Not called.") if action is None else result_text(run, action)
        if longest is not None and len(text) > longest:
            text = f"{text[:longest]}... [shortened: {len(text)} characters in all]"
        return {"role": "tool", "tool_call_id": message.call_id, "content": text}
    content = message.content
    if not isinstance(content, str) and not (isinstance(content, dict) and "$blob" in content):
        content = canonical(content).decode()
    return {"role": message.role, "content": content}


def result_text(run: Run, action: Action) -> str:
    """A tool's result or error as the text a model gets; sensitive names are masked."""
    if action.status in SUCCEEDED:
        if isinstance(action.result, dict) and "$blob" in action.result:
            return f"[The result is too large to show here: {action.result.get('size')} bytes of JSON, kept in full.]"
        spec = run.start.tools.get(action.target)
        result = (
            _masked(action.result, frozenset(spec.sensitive))
            if spec and spec.sensitive
            else action.result
        )
        return _whose(run, action) + _how_old(action) + _json.encode(result).decode()
    error = action.error or {}
    if action.status == "rejected":
        reason = f" Reason: {error['message']}" if error.get("message") else ""
        return f"Declined by a person, do not retry.{reason}"
    if action.status == "in_doubt":
        return "It is unknown whether this was done. Do not repeat it."
    if action.status == "cancelled":
        return "Cancelled before it was done."
    if action.status == "failed":
        code = f" ({error['code']})" if error.get("code") else ""
        return f"Error, {error.get('kind', 'internal')}{code}: {error.get('message', '')}"
    return "Not finished."


def _how_old(action: Action) -> str:
    if action.degraded is None:
        return ""
    seconds = round(action.degraded["age_seconds"])
    return f"[{action.target} can't be reached: this is its answer of {seconds} s ago.] "


def _whose(run: Run, action: Action) -> str:
    """An adopted result answers an earlier call, whose other arguments may have been others."""
    if action.twin is None:
        return ""
    first = run.action(action.twin)
    while first.twin is not None and first.attempt == 0:
        first = run.action(first.twin)
    if action.attempt or first.arguments == action.arguments:
        return ""
    spec = run.start.tools.get(first.target)
    shown = _masked(first.arguments, frozenset(spec.sensitive)) if spec else first.arguments
    made = _json.encode(shown).decode()
    return (
        f"[Not called again: this is the result of {run.action_id(first.n)}, called with {made}] "
    )


def _masked(value: Any, names: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {
            key: "***" if key in names else _masked(inner, names) for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_masked(inner, names) for inner in value]
    return value
