"""The small changes that appliers are made of. A value is replaced, never mutated."""

from __future__ import annotations

import copy
from typing import Any, Final

import msgspec
from perdure.schemas.records import MAX_COST, RunEvent

from ..lifecycle import action_may
from ..planning.sizes import LEAST_SCALE, MOST_SCALE
from ..state import Action, Approval, Message, Run

_ERRORS_KEPT: Final = 20
_ERROR_TEXT: Final = 2_000
"""Of each, in the header, which is bounded; the whole text is the action's and the event's."""
_json = msgspec.json.Encoder()


def tokens(value: Any) -> int:
    """A rough count: four bytes of JSON a token, and what stands around a message."""
    return len(_json.encode(value)) // 4 + 14


def put_action(run: Run, action: Action) -> None:
    run.writes["a", action.n] = action


def change_action(run: Run, n: int, status: str | None = None, **values: Any) -> Action:
    """A new version of an action, with its status checked against the table."""
    action = copy.copy(run.action(n))
    if status is not None and status != action.status:
        action_may(action.status, status)
        action.status = status
    for name, value in values.items():
        setattr(action, name, value)
    put_action(run, action)
    return action


def set_timer(run: Run, name: str, due: int | None) -> None:
    timers = run.header.timers
    if due is None:
        if name in timers:
            run.header.timers = {key: at for key, at in timers.items() if key != name}
    else:
        run.header.timers = {**timers, name: due}


def close_action(run: Run, action: Action) -> None:
    """The action takes no part in the step any more."""
    header = run.header
    if action.n in header.open:
        header.open = [n for n in header.open if n != action.n]
        if action.step_id is not None and not action.replaced:
            header.steps_done += 1
    elif action.n in header.notices:
        header.notices = [n for n in header.notices if n != action.n]
    set_timer(run, f"act/{action.n}", None)
    if action.message is not None and not action.replaced:
        header.tokens += tokens(action.result if action.error is None else action.error)


def count_usage(run: Run, data: dict[str, Any]) -> None:
    """What the event's result has used, whichever attempt it is of; after the action was changed."""
    usage = data.get("usage")
    if usage:
        if "counted" in data:
            n = data["n"]
            change_action(run, n, counted=[*run.action(n).counted, data["counted"]])
        header = run.header
        header.input_tokens += usage.get("input_tokens", 0)
        header.output_tokens += usage.get("output_tokens", 0)
        header.cost = min(header.cost + usage.get("cost", 0.0), MAX_COST)


def correct(run: Run, action: Action, data: dict[str, Any]) -> None:
    """What a provider counted, against what its request was estimated at.

    The estimate rises at once and falls slowly; a request that is small against the window says
    little of a full one, and moves it accordingly less.
    """
    counted = (data.get("usage") or {}).get("input_tokens", 0)
    if not action.estimate or counted <= 0:
        return
    header = run.header
    said = min(max(counted * 1000 // action.estimate, LEAST_SCALE), MOST_SCALE)
    share = min(1000, action.estimate * _FULL_AT * 1000 // run.definition.window.max_tokens)
    step = (said - header.scale) * share
    header.scale += step // 1000 if step > 0 else -(-step // 4000)


_FULL_AT: Final = 8
"""A request of an eighth of the window counts in full."""


def refused(run: Run, action: Action) -> None:
    """A request was too long for its provider: the next ones stay under it, this turn's at once."""
    header = run.header
    if not action.estimate:  # of a version that knew no layers
        return
    if not header.refused_tokens or action.estimate < header.refused_tokens:
        header.refused_tokens = action.estimate
    header.floor = max(header.floor, action.layer) + 1


def handed_over(run: Run) -> None:
    """A person has looked at it: what was refused so far may be tried again, and what went wrong in
    a row counts from the beginning."""
    header = run.header
    header.invalid = 0
    header.repeated = 0
    header.streaks = {}
    header.rejected = {}
    if header.floor:
        header.floor = 1
        header.refused_tokens = 0


def call_status(run: Run, action: Action, event: RunEvent, status: str, code: str) -> None:
    """``last_api_call_status`` of the action's target."""
    before = run.header.api.get(action.target)
    consecutive = before["consecutive"] + 1 if before and before["status"] == status else 1
    run.header.api = {
        **run.header.api,
        action.target: {
            "status": status,
            "code": code,
            "action_id": run.action_id(action.n),
            "attempt": action.attempt,
            "at": event.at,
            "consecutive": consecutive,
        },
    }


def note_error(run: Run, action: Action | None, error: dict[str, Any]) -> None:
    entry = {**error, "message": str(error.get("message") or "")[:_ERROR_TEXT]}
    if action is not None:
        entry["action_id"] = run.action_id(action.n)
    run.header.errors = [*run.header.errors, entry][-_ERRORS_KEPT:]


def plan_step(run: Run, step_id: str | None, **values: Any) -> None:
    if step_id is not None:
        run.header.plan = {
            **run.header.plan,
            step_id: {**run.header.plan.get(step_id, {}), **values},
        }


def close_ask(run: Run, n: int, closed_by: str, **values: Any) -> Approval:
    header = run.header
    found = run.approval(n)
    assert found is not None
    approval = copy.copy(found)
    approval.open = False
    approval.closed_by = closed_by
    for name, value in values.items():
        setattr(approval, name, value)
    run.writes["p", n] = approval
    header.asks = [other for other in header.asks if other != n]
    set_timer(run, f"ask/{n}", None)
    set_timer(run, f"remind/{n}", None)
    return approval


def close_asks_of(run: Run, n: int, closed_by: str) -> None:
    for ask in run.header.asks:
        approval = run.approval(ask)
        if approval is not None and approval.action == n:
            close_ask(run, ask, closed_by)


def add_message(run: Run, message: Message) -> int:
    header = run.header
    index = header.messages
    run.writes["m", index] = message
    header.messages = index + 1
    if message.role == "user":
        header.last_user = index
    if message.content is not None or message.calls:
        header.tokens += tokens([message.content, message.calls])
    return index
