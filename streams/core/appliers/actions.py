"""Appliers of actions: from proposed to its end."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
from perdure.schemas.records import RunEvent, ToolSpec

from .. import keys
from ..policies.trouble import error_name
from ..state import Action, Keyed, Message, Run
from .changes import (
    call_status,
    change_action,
    close_action,
    close_asks_of,
    correct,
    count_usage,
    note_error,
    plan_step,
    put_action,
    refused,
    set_timer,
)


def action_proposed(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    header = run.header
    n = data["n"]
    spec = data.get("spec")
    if spec is not None:
        start = copy.copy(run.start)
        start.tools = {**start.tools, data["target"]: msgspec.convert(spec, ToolSpec)}
        run.writes["s", 0] = start
    message = data.get("message")
    if data["kind"] == "model":
        _turn_of(run, event, data.get("model", 0), data.get("purpose", ""))
    elif "times" in data:
        header.last_call, header.repeated = n, data["times"]
    action = Action(
        n=n,
        kind=data["kind"],
        step=data["step"],
        step_id=data.get("step_id"),
        message=message,
        target=data["target"],
        queue=data["queue"],
        arguments=data.get("arguments"),
        effect=data["effect"],
        has_query=data.get("has_query", False),
        key=data["key"],
        why=data.get("why"),
        timeout_seconds=data["timeout_seconds"],
        settle_seconds=data.get("settle_seconds"),
        twin=data.get("twin"),
        ask=data.get("ask"),
        undoes=data.get("undoes"),
        model=data.get("model", 0),
        stands_for=data.get("stands_for"),
        circling=data.get("circling", False),
        purpose=data.get("purpose", ""),
        covers=data.get("covers", []),
    )
    put_action(run, action)
    name = data.get("keyed")
    if name is not None:
        where = ("x", keys.slot(name))
        known = run.get(where)
        run.writes[where] = Keyed(actions={**({} if known is None else known.actions), name: n})
    header.next_action = n + 1
    if action.stands_for is not None:
        header.replacing = None
        change_action(run, action.stands_for, replaced_by=n)
    if action.kind == "model":
        header.condensed = action.purpose == "summary"
    if action.kind == "notice":  # it holds nothing up
        header.notices = [*header.notices, n]
    else:
        header.open = [*header.open, n]
    if message is not None:
        run.writes["m", message] = Message(role="tool", call_id=data["call_id"], action=n)
    plan_step(run, action.step_id, status="running", n=n)


def _turn_of(run: Run, event: RunEvent, model: int, purpose: str) -> None:
    """Whose turn it is; a summary is nobody's."""
    header = run.header
    if purpose == "summary":
        return
    if model != header.model:
        header.model, header.model_since, header.invalid = model, event.at, 0
    header.next_model = None


def action_requested(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    n = data["n"]
    before = run.action(n)
    change_action(
        run,
        n,
        "requested",
        attempt=data["attempt"],
        first_at=event.at if before.first_at is None else before.first_at,
        requested_at=event.at,
        expires_at=data["expires_at"],
        started_at=None,
        unknown_at=None,
        queried_at=None,
        queries=0,
        error=None,
        ambiguous=before.ambiguous and not data.get("proven", False),
        layer=data.get("layer", 0),
        estimate=data.get("estimate", 0),
    )
    if n not in run.header.open and before.kind != "notice":
        run.header.open = [*run.header.open, n]
    close_asks_of(run, n, "result")  # a query has settled what a person was asked
    set_timer(run, f"act/{n}", data["due"])
    if before.kind == "model":
        run.header.heard = run.header.messages  # so many stand in the request


def action_started(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    n = data["n"]
    status = "started" if run.action(n).status == "requested" else None
    change_action(run, n, status, started_at=event.at, worker=data.get("worker"))
    set_timer(run, f"act/{n}", data["due"])


def action_progressed(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    if "progress" in data:
        change_action(run, data["n"], progress=data["progress"])
    count_usage(run, data)
    if data.get("due") is not None:
        set_timer(run, f"act/{data['n']}", data["due"])


def action_succeeded(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    n = data["n"]
    action = change_action(
        run,
        n,
        "succeeded",
        result=data.get("result"),
        error=None,
        finished_at=event.at,
        worker=data.get("worker"),
        degraded=data.get("degraded"),
        answered=data.get("attempt") is not None,
        beginning=data.get("beginning"),
    )
    count_usage(run, data)
    if action.kind == "model":
        correct(run, action, data)
    close_action(run, action)
    close_asks_of(run, n, "result")
    if action.degraded is not None:
        note_error(run, action, data["error"])
        call_status(run, action, event, "failed", data["error"].get("code", ""))
    elif action.kind == "model" or data.get("attempt") is not None:
        call_status(run, action, event, "ok", "")
        _goes_well(run, action)
    plan_step(run, action.step_id, status="done")


def _goes_well(run: Run, action: Action) -> None:
    """Nothing of this target's troubles is in a row any more."""
    header = run.header
    if action.kind == "model":
        header.outages = 0
        return
    for name in ("streaks", "rejected"):
        known = getattr(header, name)
        if action.target in known:
            left = {target: held for target, held in known.items() if target != action.target}
            setattr(header, name, left)


def action_failed(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    n = data["n"]
    error = data["error"]
    before = run.action(n)
    action = change_action(
        run,
        n,
        "failed",
        error=error,
        finished_at=event.at,
        ambiguous=data["ambiguous"],
        replaced=data.get("replaced", before.replaced),
    )
    count_usage(run, data)
    if data.get("doubted"):  # of what a person is asked about already
        return
    asked = action.kind == "model" and action.purpose != "summary"
    if asked and data["closed"] and error.get("kind") == "context_overflow":
        refused(run, action)
    close_asks_of(run, n, "result")
    if data.get("next_model") is not None:
        run.header.next_model = data["next_model"]
    if data.get("replaced"):
        run.header.replacing = n
    if "times" in data:
        streak = {"error": error_name(error), "times": data["times"]}
        run.header.streaks = {**run.header.streaks, action.target: streak}
    if data["closed"]:
        close_action(run, action)
        if not action.replaced:
            plan_step(run, action.step_id, status="failed")
    else:
        set_timer(run, f"act/{n}", None)
    note_error(run, action, error)
    if error.get("code") != "REPEATED_CALL":  # that was never made
        call_status(run, action, event, "failed", error.get("code", ""))


def retry_scheduled(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    n = data["n"]
    error = data["error"]
    action = change_action(run, n, "backing_off", error=error, ambiguous=data["ambiguous"])
    if data.get("outage"):
        run.header.outages += 1
    if n not in run.header.open and action.kind != "notice":  # a failed call is taken up again
        run.header.open = [*run.header.open, n]
    count_usage(run, data)
    close_asks_of(run, n, "result")
    set_timer(run, f"act/{n}", data["due"])
    call_status(run, action, event, "failed", error.get("code", ""))


def action_unknown(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    n = data["n"]
    before = run.action(n)
    action = change_action(
        run,
        n,
        "unknown",
        error=data["error"],
        ambiguous=True,
        unknown_at=event.at if before.unknown_at is None else before.unknown_at,
    )
    count_usage(run, data)
    set_timer(run, f"act/{n}", data.get("due"))
    call_status(run, action, event, "unknown", data["error"].get("code", ""))


def action_queried(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    n = data["n"]
    change_action(run, n, "querying", queries=run.action(n).queries + 1, queried_at=event.at)
    set_timer(run, f"act/{n}", data["due"])


def action_in_doubt(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    n = data["n"]
    action = change_action(run, n, "in_doubt", ambiguous=True)
    set_timer(run, f"act/{n}", None)
    if data["closed"]:
        close_action(run, action)
        plan_step(run, action.step_id, status="in_doubt")
    elif n not in run.header.open:  # a retry of the run: the question is put again
        run.header.open = [*run.header.open, n]


def action_cancelled(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    n = data["n"]
    ambiguous = run.action(n).ambiguous and not data.get("proven", False)
    action = change_action(run, n, "cancelled", finished_at=event.at, ambiguous=ambiguous)
    close_action(run, action)
    plan_step(run, action.step_id, status="cancelled")


def effect_found(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    action = change_action(
        run, data["n"], "succeeded", result=data.get("result"), error=None, finished_at=event.at
    )
    count_usage(run, data)
    close_action(run, action)
    close_asks_of(run, action.n, "result")
    plan_step(run, action.step_id, status="done")


def compensation_started(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    change_action(run, data["n"], "compensating")
    run.header.undoing = data["action"]


def compensation_finished(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    action = change_action(run, data["n"], data["status"])
    run.header.undoing = 0
    if data["status"] == "compensated":
        plan_step(run, action.step_id, status="compensated")
