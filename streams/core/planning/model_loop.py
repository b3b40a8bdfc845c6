"""The model loop: call the model, check its reply, propose its calls, until it answers."""

from __future__ import annotations

import difflib
from functools import lru_cache
from typing import Any, Final

import jsonschema
import msgspec
from perdure.schemas.records import ToolSpec
from referencing.jsonschema import EMPTY_REGISTRY

from .. import keys
from ..decide import moves
from ..decide.decision import Decision, fitting
from ..policies import builtins
from ..state import Action
from . import builtin, compaction
from .offer import why_name

INVALID_LIMIT: Final = 3
"""Unusable replies in a row before a person is asked."""
_FINISHED: Final = frozenset(
    {"stop", "tool_calls", "length", "function_call", "end_turn", "tool_use"}
)
_json = msgspec.json.Encoder(order="sorted")


def advance(decision: Decision) -> None:
    """The next model call, once every call of the last reply has its result."""
    run = decision.run
    header = run.header
    if header.open or header.asks:
        return
    if _propose_waiting(decision) and (header.open or header.asks):
        return  # else all of them had their results at once
    if header.answer is not None:
        moves.finish(decision, "done")
        return
    if header.invalid >= INVALID_LIMIT:
        _hand_over(decision)
        return
    again = header.floor > 0  # the same turn, whose request was too long
    if not again and moves.over_budget(decision):
        return
    shown = compaction.ready(decision)
    if shown is None:
        return
    model = run.definition.model
    assert model is not None
    n = header.next_action
    name = model.name or model.provider
    step = header.step
    if not again:
        step += 1
        decision.emit("step_started", {"step": step, "title": name})
    decision.emit(
        "action_proposed",
        {
            "n": n,
            "kind": "model",
            "step": step,
            "target": name,
            "queue": model.queue,
            "effect": "read_only",
            "key": keys.idempotency_key(header.run_id, n, header.nonce),
            "timeout_seconds": model.timeout_seconds,
            **compaction.caller(decision, shown),
        },
    )
    moves.request(decision, n, shown=shown)


def _hand_over(decision: Decision) -> None:
    moves.ask(
        decision,
        "handover",
        f"The model of run {decision.run.header.run_id} gave {INVALID_LIMIT} unusable replies in a row",
        question="Retry, tell the agent something, or cancel the run?",
        fired={"errors": decision.run.header.errors[-INVALID_LIMIT:]},
    )


def replied(
    decision: Decision, action: Action, result: Any, extra: dict[str, Any], actor: str
) -> None:
    """A model's reply arrived: check it, record it, propose its calls."""
    reply = decision.lookup.value(result)
    run = decision.run
    decision.emit("action_succeeded", {"n": action.n, "attempt": action.attempt, **extra}, actor)
    content, calls, finish, note = _read(reply)
    base = run.header.messages
    first = base + 1
    made: list[dict[str, Any]] = []
    checked = [_check(decision, call) for call in calls]
    kept = fitting(decision.lookup, [arguments for _, _, arguments, _, _ in checked])
    good: list[tuple[int, str, ToolSpec, dict[str, Any], str | None]] = []
    for position, (name, tool, _, why, error) in enumerate(checked):
        call_id = f"c{base}_{position}"
        arguments = kept[position]
        entry: dict[str, Any] = {"id": call_id, "name": name, "arguments": arguments}
        if error is not None or tool is None:
            entry["error"] = error
        else:
            if why is not None:
                entry["why"] = why
            good.append((first + position, call_id, tool, arguments, why))
        made.append(entry)
    if note is None and not made and finish == "length":
        note = "Your last reply was cut off by the token limit. Answer more briefly."
    if note is None and not made and not content:
        note = "Your last reply was empty. Answer, or call a tool."
    data: dict[str, Any] = {
        "n": action.n,
        "content": decision.lookup.keep(content),
        "calls": made,
        "finish_reason": finish,
    }
    if note is not None:
        data["note"] = note
    if note is None and not made and run.header.messages > run.header.heard:
        data["unread"] = run.header.messages - run.header.heard
    decision.emit("model_replied", data, actor)
    if run.header.ending is not None or run.header.paused:
        return  # a paused run proposes them when it is resumed, one that ends never
    for message, call_id, tool, arguments, why in good:
        _propose(decision, tool, arguments, action.step, why, message, call_id)


def _propose(
    decision: Decision,
    tool: ToolSpec,
    arguments: Any,
    step: int,
    why: str | None,
    message: int,
    call_id: str,
) -> None:
    if builtins.of(decision.run).get(tool.name) is tool:
        given = decision.lookup.value(arguments)
        builtin.propose(decision, tool.name, given, step=step, message=message, call_id=call_id)
        return
    moves.propose(
        decision,
        tool=tool,
        arguments=arguments,
        step=step,
        why=why,
        message=message,
        call_id=call_id,
    )


def _propose_waiting(decision: Decision) -> bool:
    """Propose the calls of a reply that came while the run was paused. False: there are none."""
    run = decision.run
    waiting: list[int] = []
    calls: dict[str, dict[str, Any]] = {}
    for n in range(run.header.messages - 1, -1, -1):
        message = run.message(n)
        if message.role == "assistant":
            calls = {call["id"]: call for call in message.calls}
            break
        if message.role == "tool" and message.content is None and message.action is None:
            waiting.insert(0, n)
    for n in waiting:
        call = calls[run.message(n).call_id or ""]
        name, arguments = call["name"], call["arguments"]
        tool = _tool(decision, name)
        assert tool is not None
        _propose(decision, tool, arguments, run.header.step, call.get("why"), n, call["id"])
    return bool(waiting)


def unusable(
    decision: Decision, action: Action, error: dict[str, Any], extra: dict[str, Any], actor: str
) -> None:
    """The connector found no reply in what the provider sent: told to the model, counted."""
    decision.emit(
        "action_failed",
        {
            "n": action.n,
            "attempt": action.attempt,
            "error": error,
            "ambiguous": False,
            "closed": True,
            **extra,
        },
        actor,
    )
    note = f"Your last reply could not be used: {error.get('message') or error.get('code')}"
    decision.emit(
        "model_replied",
        {"n": action.n, "content": None, "calls": [], "finish_reason": "", "note": note},
        actor,
    )


def _read(reply: Any) -> tuple[str | None, list[Any], str, str | None]:
    if not isinstance(reply, dict):
        return None, [], "", "Your last reply was not a message."
    content = reply.get("content")
    if content is not None and not isinstance(content, str):
        content = _json.encode(content).decode()
    calls = reply.get("tool_calls") or []
    finish = reply.get("finish_reason") or ""
    note = None
    if finish and finish not in _FINISHED:
        note = f"Your last reply ended with the unknown reason {finish!r}."
        calls = []
    if not isinstance(calls, list):
        note, calls = "The tool calls of your last reply were not a list.", []
    return content, calls, finish, note


def _check(
    decision: Decision, call: Any
) -> tuple[str, ToolSpec | None, dict[str, Any], str | None, str | None]:
    """(name, tool, arguments, why, error text) of one call."""
    run = decision.run
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return "unknown", None, {}, None, "Error: the call has no tool name."
    name: str = call["name"]
    tools = [*run.definition.tools, *builtins.of(run)]
    if name not in tools:
        near = difflib.get_close_matches(name, tools, 1)
        hint = f" Did you mean {near[0]}?" if near else ""
        return (
            name[:60] or "unknown",
            None,
            {},
            None,
            f"Error: there is no tool {name[:60]!r}. There are: {', '.join(tools) or 'none'}.{hint}",
        )
    tool = _tool(decision, name)
    if tool is None:
        return name, None, {}, None, f"Error: the tool {name} is not announced by any worker."
    arguments = call.get("arguments")
    if arguments is None and call.get("raw"):
        return (
            name,
            tool,
            {},
            None,
            f"Error: the arguments are not a JSON object: {str(call['raw'])[:200]}",
        )
    if arguments is None or arguments == "":
        arguments = {}
    if not isinstance(arguments, dict):
        return name, tool, {}, None, "Error: the arguments must be a JSON object."
    why = None
    field = why_name(tool.parameters)
    if field in arguments and field not in tool.parameters.get("properties", {}):
        arguments = dict(arguments)
        said = arguments.pop(field)
        why = said if isinstance(said, str) else None
    error = argument_error(tool, arguments)
    return (
        name,
        tool,
        arguments,
        why,
        None if error is None else f"Error: invalid arguments: {error}",
    )


def _tool(decision: Decision, name: str) -> ToolSpec | None:
    """The built-in tool, or the agent's own as it is announced now, or was when the run began."""
    run = decision.run
    return builtins.of(run).get(name) or decision.lookup.tool(name) or run.start.tools.get(name)


def argument_error(tool: ToolSpec, arguments: dict[str, Any]) -> str | None:
    """Why arguments break the tool's schema, or None."""
    if not tool.parameters:
        return None
    try:
        found = next(_validator(_json.encode(tool.parameters)).iter_errors(arguments), None)
    except Exception as error:  # any connector may announce a schema that no validator can use
        return f"the schema of {tool.name} can't be used ({type(error).__name__}); its connector must mend it"
    if found is None:
        return None
    where = ".".join(str(part) for part in found.absolute_path)
    return f"{where}: {found.message[:300]}" if where else str(found.message[:300])


@lru_cache(maxsize=1024)
def _validator(schema: bytes) -> Any:
    """A validator that knows this schema alone and fetches nothing."""
    return jsonschema.Draft202012Validator(msgspec.json.decode(schema), registry=EMPTY_REGISTRY)
