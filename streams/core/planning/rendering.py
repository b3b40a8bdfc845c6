"""Messages and results as a model reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from perdure.schemas.canonical import canonical

from ..lifecycle import SUCCEEDED
from ..state import Action, Message, Run
from . import sizes

_json = msgspec.json.Encoder()
BEGINNING: Final = 4_000
"""Bytes that are kept of a result which is stored by reference: in its event and its record."""


def render(run: Run, message: Message) -> dict[str, Any]:
    """One message, whole; of a result kept by reference its beginning."""
    if message.role == "assistant":
        shown: dict[str, Any] = {"role": "assistant", "content": message.content or ""}
        if message.calls:
            shown["tool_calls"] = [
                {"id": call["id"], "name": call["name"], "arguments": call.get("arguments") or {}}
                for call in message.calls
            ]
        return shown
    if message.role == "tool":
        text, whole = _answer(run, message)
        if whole > len(text):
            text = f"{text}... [shortened: {whole} characters in all]"
        return _result(message, text)
    content = message.content
    if not isinstance(content, str) and not sizes.referred(content):
        content = canonical(content).decode()
    return {"role": message.role, "content": content}


def bounded(run: Run, messages: Sequence[Message], room: int) -> list[dict[str, Any]]:
    """A message, or an assistant's with all of its results, as a request of ``room`` tokens takes it.

    One result gets a quarter of the room at most, all of them together half; the state has them whole.
    """
    first = render(run, messages[0])
    answers = [_answer(run, message) for message in messages[1:]]
    return [first, *_shortened(messages[1:], answers, _allowed(answers, room))]


def _allowed(answers: Sequence[tuple[str, int]], room: int) -> list[int]:
    return sizes.shares([_weight(*answer) for answer in answers], room // 2, room // 4)


def _shortened(
    messages: Sequence[Message], answers: Sequence[tuple[str, int]], given: Sequence[int]
) -> list[dict[str, Any]]:
    return [
        _result(message, sizes.cut(text, tokens, whole))
        for message, (text, whole), tokens in zip(messages, answers, given, strict=True)
    ]


def squeezed(
    run: Run, messages: Sequence[Message], left: int, room: int
) -> list[dict[str, Any]] | None:
    """A reply and its results shortened until they fit the ``left`` tokens, or None where they can't.

    What nobody has read yet is better seen in part than not at all; the call's arguments too are
    shortened here, to an object that says so.
    """
    whole = render(run, messages[0])
    calls = whole.get("tool_calls", [])
    answers = [_answer(run, message) for message in messages[1:]]
    said = [_text(whole["content"]), *(_text(call["arguments"]) for call in calls)]
    wanted = [sizes.weigh(text) + _FRAME for text in said] + _allowed(answers, room)
    frame = sizes.weigh([{**whole, "content": ""}, *map(_empty, messages[1:])])
    frame -= sum(sizes.weigh(call["arguments"]) for call in calls)
    free = left - frame
    while free >= _LEAST * len(wanted):
        given = sizes.shares(wanted, free, free)
        made = dict(whole)
        if given[0] < wanted[0] or sizes.referred(whole["content"]):
            made["content"] = sizes.cut(said[0], given[0])
        if calls:
            made["tool_calls"] = [
                {**call, "arguments": _part_of(text, tokens)}
                if tokens < size or sizes.referred(call["arguments"])
                else call
                for call, text, size, tokens in zip(
                    calls, said[1:], wanted[1:], given[1:], strict=False
                )
            ]
        shown = [made, *_shortened(messages[1:], answers, given[len(said) :])]
        over = sum(map(sizes.message, shown)) - left
        if over <= 0:
            return shown
        free -= over
    return None


_LEAST: Final = 4
"""Tokens of a text below which nothing of it can be read."""
_FRAME: Final = 6
"""Tokens of what stands around a shortened argument."""


def _part_of(text: str, tokens: int) -> dict[str, Any]:
    return {"shortened": sizes.cut(text, max(tokens - _FRAME, 2))}


def _text(value: Any) -> str:
    if sizes.referred(value):
        return in_place_of(value)
    return value if isinstance(value, str) else _json.encode(value).decode()


def in_place_of(reference: dict[str, Any]) -> str:
    """What is shown where a large value would not fit: its reference would be resolved on its way."""
    return f"[shortened: {reference.get('size')} characters in all]"


def _empty(message: Message) -> dict[str, Any]:
    return _result(message, "")


def _result(message: Message, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": message.call_id, "content": text}


def _weight(text: str, whole: int) -> int:
    """Of an answer as it is shown whole, or of its beginning and the marker."""
    return sizes.weigh(text) + (20 if whole > len(text) else 0)


def _answer(run: Run, message: Message) -> tuple[str, int]:
    """A call's result as text, and how many characters it has in all (more than the text: a
    beginning)."""
    if message.action is None:
        text = message.content or "Not called."
        return text, len(text)
    action = run.action(message.action)
    text = result_text(run, action)
    if action.status in SUCCEEDED and action.beginning is not None:
        return action.beginning, int(action.result.get("size", 0))
    return text, len(text)


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
