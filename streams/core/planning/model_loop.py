"""The model loop: call the model, check its reply, propose its calls, until it answers."""

from __future__ import annotations

import difflib
from typing import Any, Final

import msgspec
from perdure.schemas.records import ToolSpec

from ..arguments import argument_error, properties
from ..decide import asking, ending, models, moves
from ..decide.decision import Decision, fitting
from ..policies import approval as approvals
from ..policies import builtins
from ..policies.budget import output_limit, reserved
from ..state import Action, Run
from . import builtin, compaction, window
from .offer import why_name

_FINISHED: Final = frozenset(
    {"stop", "tool_calls", "length", "function_call", "end_turn", "tool_use"}
)
_FILTERED: Final = "the provider's content filter stopped the reply"
_REASON: Final = 200
"""Characters of a finish reason: it is a word, unless a provider means something else by it."""
_TRUNCATED: Final = (
    "Error: your reply was cut off by the token limit before the arguments were complete "
    "(truncated). Nothing was called. Write less, or make fewer calls at once."
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
        ending.finish(decision, "done")
        return
    again = header.next_model is not None or header.floor > 0
    if header.next_model is not None:  # the step's model can't be used: another has its turn
        index: int | None = header.next_model
    elif header.floor > 0:  # its request was too long: the next layer has
        index = header.model
    else:
        index = models.next_one(run, decision.now)
    if index is None:
        _hand_over(decision)
        return
    if not again and ending.over_budget(decision):
        return
    shown = compaction.ready(decision, index)
    if shown is None:
        return
    taker = (window.long_model(run) if shown.long else None) or run.model(index)
    call = reserved(taker, window.corrected(run, shown.tokens), output_limit(run, taker))
    if ending.over_budget(decision, call):
        return
    step = header.step
    if not again:
        step += 1
        decision.emit("step_started", {"step": step, "title": models.name_of(run.model(index))})
    _call_model(decision, index, step, shown)
    if header.next_model is not None:  # it could not even be sent
        advance(decision)


def _call_model(decision: Decision, index: int, step: int, shown: window.View) -> None:
    """Call the agent's model, or one of its fallbacks, by its index."""
    run = decision.run
    data = models.proposal(run, run.model(index), step) | compaction.caller(decision, shown)
    if index:
        data["model"] = index
    decision.emit("action_proposed", data)
    moves.request(decision, data["n"], shown=shown)


def _hand_over(decision: Decision) -> None:
    header = decision.run.header
    errors = [error for error in header.errors if error["kind"] == "model_invalid"]
    last = f": {errors[-1]['message']}" if errors else ""
    title = (
        f"The model of run {header.run_id} gave {models.INVALID_LIMIT} unusable replies in a row"
    )
    asking.ask(
        decision,
        "handover",
        approvals.shown(title + last, 200),
        question="Retry, tell the agent something, or cancel the run?",
        fired={"errors": errors[-models.INVALID_LIMIT :]},
    )


def replied(
    decision: Decision, action: Action, result: Any, extra: dict[str, Any], actor: str
) -> None:
    """A model's reply arrived: check it, record it, propose its calls."""
    reply = decision.lookup.value(result)
    run = decision.run
    if isinstance(reply, dict) and reply.get("finish_reason") == "content_filter":
        filtered = {"kind": "content_filter", "code": "content_filter", "message": _FILTERED}
        moves.fail(decision, action.n, filtered, extra, actor, ambiguous=False)
        return
    decision.emit("action_succeeded", {"n": action.n, "attempt": action.attempt, **extra}, actor)
    content, calls, finish, note = _read(reply)
    base = run.header.messages
    first = base + 1
    made: list[dict[str, Any]] = []
    cut = finish == "length" or _at_its_limit(run, action, extra)
    last = len(calls) - 1
    checked = [_check(decision, call, cut and i == last) for i, call in enumerate(calls)]
    kept = fitting(decision.lookup, [arguments for _, _, arguments, _, _ in checked])
    good: list[tuple[int, str, ToolSpec, dict[str, Any], str | None]] = []
    for position, (name, tool, _, why, wrong) in enumerate(checked):
        call_id = f"c{base}_{position}"
        arguments = kept[position]
        entry: dict[str, Any] = {"id": call_id, "name": name, "arguments": arguments}
        if wrong is not None or tool is None:
            entry["error"] = wrong
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
    if cut:
        data["cut"] = True
    wrong = note or next((entry["error"] for entry in made if "error" in entry), None)
    if wrong is not None:
        code = "TRUNCATED" if cut else "INVALID_REPLY"
        data["error"] = {"kind": "model_invalid", "code": code, "message": wrong}
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
    finish = (finish if isinstance(finish, str) else _json.encode(finish).decode())[:_REASON]
    note = None
    if finish and finish not in _FINISHED:
        note = f"Your last reply ended with the unknown reason {finish!r}."
        calls = []
    if not isinstance(calls, list):
        note, calls = "The tool calls of your last reply were not a list.", []
    return content, calls, finish, note


def _at_its_limit(run: Run, action: Action, extra: dict[str, Any]) -> bool:
    """The model wrote as much as it was allowed to, whatever reason it gives for its end."""
    limit = output_limit(run, run.model_of(action))
    return limit is not None and extra.get("usage", {}).get("output_tokens", 0) >= limit


def _check(
    decision: Decision, call: Any, cut: bool
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
    if cut and (call.get("raw") or (not arguments and tool.parameters.get("properties"))):
        return name, tool, {}, None, _TRUNCATED
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
    if field in arguments and field not in properties(tool.parameters):
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
