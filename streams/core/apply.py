"""Appliers: the only code that changes a run's state (one per event type, tested to be total).

`apply` is pure: it returns a new run. `evolve` does the same to a private copy, so that a
decision of several events copies once. An applier depends on nothing but the state and the
event, so folding a run's events gives its state on any machine.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
from perdure.schemas.records import AgentSpec, Budget, PlanStep, RunEvent, ToolSpec

from .lifecycle import FINAL, action_may, run_may
from .state import Action, Approval, Ending, Header, Message, RecordKey, Run, Start

_ERRORS_KEPT = 20
_json = msgspec.json.Encoder()


class BrokenHistory(Exception):
    """Events that can't follow one another: a gap in the versions, or no `run_started` first."""


def apply(
    run: Run | None, event: RunEvent, base: Callable[[RecordKey], Any | None] = lambda key: None
) -> Run:
    """The run after ``event``; ``run`` is left as it was."""
    if run is None:
        return begin(event, base)
    after = run.copy()
    evolve(after, event)
    return after


def fold(events: Iterable[RunEvent]) -> Run | None:
    """The state that a run's events make. Raises `BrokenHistory`."""
    run: Run | None = None
    for event in events:
        if run is None:
            run = begin(event, lambda key: None)
        else:
            evolve(run, event)
    return run


def begin(event: RunEvent, base: Callable[[RecordKey], Any | None]) -> Run:
    """A new run from its first event."""
    if event.type != "run_started" or event.version != 1:
        raise BrokenHistory(
            f"a run begins with run_started, version 1, not {event.type}, version {event.version}"
        )
    header = Header(
        run_id=event.run_id,
        agent=event.agent,
        user_id=event.user_id,
        session_id=event.session_id,
        tenant=event.tenant,
        metadata=event.metadata,
        created_at=event.at,
    )
    run = Run(header, base)
    evolve(run, event)
    return run


def evolve(run: Run, event: RunEvent) -> None:
    """Apply ``event`` to a run that nobody else holds."""
    header = run.header
    if event.version != header.version + 1:
        raise BrokenHistory(f"event version {event.version} can't follow version {header.version}")
    APPLIERS[event.type](run, event, event.data)
    header.version = event.version
    header.hash = event.hash
    header.updated_at = event.at


# --- small pieces ----------------------------------------------------------------------------


def _tokens(value: Any) -> int:
    """A rough count: four bytes of JSON a token, and what stands around a message."""
    return len(_json.encode(value)) // 4 + 14


def _put(run: Run, action: Action) -> None:
    run.writes["a", action.n] = action


def _change(run: Run, n: int, status: str | None = None, **values: Any) -> Action:
    """A new version of an action, with its status checked against the table."""
    action = copy.copy(run.action(n))
    if status is not None and status != action.status:
        action_may(action.status, status)
        action.status = status
    for name, value in values.items():
        setattr(action, name, value)
    _put(run, action)
    return action


def _timer(run: Run, name: str, due: int | None) -> None:
    timers = run.header.timers
    if due is None:
        if name in timers:
            run.header.timers = {key: at for key, at in timers.items() if key != name}
    else:
        run.header.timers = {**timers, name: due}


def _close(run: Run, action: Action) -> None:
    """The action takes no part in the step any more."""
    header = run.header
    if action.n in header.open:
        header.open = [n for n in header.open if n != action.n]
        if action.step_id is not None:
            header.steps_done += 1
    _timer(run, f"act/{action.n}", None)
    if action.message is not None:
        header.tokens += _tokens(action.result if action.error is None else action.error)


def _count(run: Run, data: dict[str, Any]) -> None:
    usage = data.get("usage")
    if usage:
        header = run.header
        header.input_tokens += usage.get("input_tokens", 0)
        header.output_tokens += usage.get("output_tokens", 0)
        header.cost += usage.get("cost", 0.0)


def _call_status(run: Run, action: Action, event: RunEvent, status: str, code: str) -> None:
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


def _error(run: Run, action: Action | None, error: dict[str, Any]) -> None:
    entry = dict(error)
    if action is not None:
        entry["action_id"] = run.action_id(action.n)
    run.header.errors = [*run.header.errors, entry][-_ERRORS_KEPT:]


def _plan_step(run: Run, step_id: str | None, **values: Any) -> None:
    if step_id is not None:
        run.header.plan = {
            **run.header.plan,
            step_id: {**run.header.plan.get(step_id, {}), **values},
        }


def _close_ask(run: Run, n: int, closed_by: str, **values: Any) -> Approval:
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
    _timer(run, f"ask/{n}", None)
    return approval


def _close_asks_of(run: Run, n: int, closed_by: str) -> None:
    for ask in run.header.asks:
        approval = run.approval(ask)
        if approval is not None and approval.action == n:
            _close_ask(run, ask, closed_by)


def _add_message(run: Run, message: Message) -> int:
    header = run.header
    index = header.messages
    run.writes["m", index] = message
    header.messages = index + 1
    if message.content is not None or message.calls:
        header.tokens += _tokens([message.content, message.calls])
    return index


# --- one applier per event -------------------------------------------------------------------


def _run_started(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    header = run.header
    definition = msgspec.convert(data["definition"], AgentSpec)
    plan = data.get("plan")
    run.writes["s", 0] = Start(
        input=data.get("input"),
        plan=None if plan is None else msgspec.convert(plan, list[PlanStep]),
        definition=definition,
        tools={name: msgspec.convert(spec, ToolSpec) for name, spec in data["tools"].items()},
        digest=data["digest"],
        origin=data["origin"],
    )
    header.nonce = data["nonce"]
    header.trace = data["origin"].get("traceparent", "")
    header.budget = msgspec.convert(data["budget"], Budget)
    header.deadline_at = data.get("deadline_at")
    if header.deadline_at is not None:
        _timer(run, "deadline", header.deadline_at)
    if plan is not None:
        header.planned = True
        header.steps_total = len(plan)
        header.plan = {step["id"]: {"status": "pending"} for step in plan}
        return
    for earlier in data.get("messages") or ():
        _add_message(run, Message(role=earlier.get("role", "user"), content=earlier.get("content")))
    _add_message(run, Message(role="user", content=data.get("input")))


def _step_started(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    run.header.step = data["step"]
    run.header.current_step = data["title"]


def _model_replied(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    header = run.header
    calls = data["calls"]
    if calls or data["content"]:
        _add_message(run, Message(role="assistant", content=data["content"], calls=calls))
    for call in calls:
        _add_message(run, Message(role="tool", call_id=call["id"], content=call.get("error")))
    note = data.get("note")
    if note is not None:
        _add_message(run, Message(role="user", content=note))
    broken = note is not None or any("error" in call for call in calls)
    header.invalid = header.invalid + 1 if broken else 0
    header.steps_done += 1
    if not calls and note is None:
        header.answer = data["content"]


def _plan_updated(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    run.header.plan = {item["id"]: item for item in data["plan"]}


def _branch_taken(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    _plan_step(run, data["step_id"], when=True)


def _branch_skipped(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    _plan_step(run, data["step_id"], status="done", when=False)
    run.header.steps_done += 1


def _action_skipped(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    _plan_step(run, data["step_id"], status="skipped", reason=data["reason"])
    run.header.steps_done += 1


def _action_proposed(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    header = run.header
    n = data["n"]
    spec = data.get("spec")
    if spec is not None:
        start = copy.copy(run.start)
        start.tools = {**start.tools, data["target"]: msgspec.convert(spec, ToolSpec)}
        run.writes["s", 0] = start
    message = data.get("message")
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
    )
    _put(run, action)
    header.next_action = n + 1
    header.open = [*header.open, n]
    if message is not None:
        run.writes["m", message] = Message(role="tool", call_id=data["call_id"], action=n)
    _plan_step(run, action.step_id, status="running", n=n)


def _action_requested(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    n = data["n"]
    before = run.action(n)
    _change(
        run,
        n,
        "requested",
        attempt=data["attempt"],
        first_at=event.at if before.first_at is None else before.first_at,
        requested_at=event.at,
        expires_at=data["expires_at"],
        started_at=None,
        unknown_at=None,
        queries=0,
        error=None,
        ambiguous=before.ambiguous and not data.get("proven", False),
    )
    if n not in run.header.open:
        run.header.open = [*run.header.open, n]
    _timer(run, f"act/{n}", data["due"])


def _action_started(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    n = data["n"]
    status = "started" if run.action(n).status == "requested" else None
    _change(run, n, status, started_at=event.at, worker=data.get("worker"))
    _timer(run, f"act/{n}", data["due"])


def _action_progressed(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    _change(run, data["n"], progress=data.get("progress"))
    if data.get("due") is not None:
        _timer(run, f"act/{data['n']}", data["due"])


def _action_succeeded(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    n = data["n"]
    action = _change(
        run,
        n,
        "succeeded",
        result=data.get("result"),
        error=None,
        finished_at=event.at,
        worker=data.get("worker"),
    )
    _count(run, data)
    _close(run, action)
    _close_asks_of(run, n, "result")
    if action.kind == "model" or data.get("attempt") is not None:
        _call_status(run, action, event, "ok", "")
    _plan_step(run, action.step_id, status="done")


def _action_failed(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    n = data["n"]
    error = data["error"]
    action = _change(
        run,
        n,
        "failed",
        error=error,
        finished_at=event.at,
        ambiguous=data["ambiguous"],
    )
    _count(run, data)
    _close_asks_of(run, n, "result")
    if data["closed"]:
        _close(run, action)
        _plan_step(run, action.step_id, status="failed")
    else:
        _timer(run, f"act/{n}", None)
    _error(run, action, error)
    _call_status(run, action, event, "failed", error.get("code", ""))


def _retry_scheduled(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    n = data["n"]
    error = data["error"]
    action = _change(run, n, "backing_off", error=error, ambiguous=data["ambiguous"])
    _count(run, data)
    _close_asks_of(run, n, "result")
    _timer(run, f"act/{n}", data["due"])
    _call_status(run, action, event, "failed", error.get("code", ""))


def _action_unknown(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    n = data["n"]
    before = run.action(n)
    action = _change(
        run,
        n,
        "unknown",
        error=data["error"],
        ambiguous=True,
        unknown_at=event.at if before.unknown_at is None else before.unknown_at,
    )
    _count(run, data)
    _timer(run, f"act/{n}", data.get("due"))
    _call_status(run, action, event, "unknown", data["error"].get("code", ""))


def _action_queried(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    n = data["n"]
    _change(run, n, "querying", queries=run.action(n).queries + 1)
    _timer(run, f"act/{n}", data["due"])


def _action_in_doubt(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    n = data["n"]
    action = _change(run, n, "in_doubt", ambiguous=True)
    _timer(run, f"act/{n}", None)
    if data["closed"]:
        _close(run, action)
        _plan_step(run, action.step_id, status="in_doubt")


def _action_cancelled(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    n = data["n"]
    ambiguous = run.action(n).ambiguous and not data.get("proven", False)
    action = _change(run, n, "cancelled", finished_at=event.at, ambiguous=ambiguous)
    _close(run, action)
    _plan_step(run, action.step_id, status="cancelled")


def _effect_found(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    action = _change(
        run, data["n"], "succeeded", result=data.get("result"), error=None, finished_at=event.at
    )
    _count(run, data)
    _close(run, action)
    _close_asks_of(run, action.n, "result")
    _plan_step(run, action.step_id, status="done")


def _approval_requested(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    header = run.header
    approval = msgspec.convert({**data["approval"], "requested_at": event.at}, Approval)
    n = approval.n
    run.writes["p", n] = approval
    header.next_approval = n + 1
    header.asks = [*header.asks, n]
    _timer(run, f"ask/{n}", approval.expires_at)
    if approval.kind == "action":
        assert approval.action is not None
        _change(run, approval.action, "waiting_approval", approval=n)


def _approval_decided(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    n = data["n"]
    found = run.approval(n)
    assert found is not None
    approval = copy.copy(found)
    entry = {key: data.get(key) for key in ("decision", "approver", "reason", "verified")} | {
        "at": event.at
    }
    if data.get("arguments") is not None:  # a modify: the count starts again on the new digest
        approval.arguments = data["arguments"]
        if approval.original_arguments is None:
            approval.original_arguments = found.arguments
        approval.digest = data["digest"]
        approval.decisions = [entry]
    else:
        approval.decisions = [*approval.decisions, entry]
    run.writes["p", n] = approval
    if not data["closes"]:
        return
    _close_ask(run, n, data["approver"])
    if approval.kind == "handover":
        run.header.invalid = 0
    if approval.kind != "action":
        return
    assert approval.action is not None
    if data["decision"] in ("approve", "modify"):
        _change(
            run,
            approval.action,
            "approved",
            approved_by=data["approver"],
            arguments=approval.arguments,
        )
    elif data["decision"] == "reject":
        _reject(run, event, approval.action, data["approver"], data.get("reason"))


def _reject(run: Run, event: RunEvent, n: int, by: str, reason: str | None) -> None:
    error = {"kind": "business", "code": "REJECTED", "message": reason or "", "by": by}
    action = _change(run, n, "rejected", error=error, finished_at=event.at)
    _close(run, action)
    _plan_step(run, action.step_id, status="rejected")


def _approval_expired(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    approval = _close_ask(run, data["n"], "policy:timeout")
    if approval.kind != "action":
        return
    assert approval.action is not None
    if data["decision"] == "reject":
        _reject(run, event, approval.action, "policy:timeout", "nobody decided in time")
    elif data["decision"] == "approve":
        _change(
            run,
            approval.action,
            "approved",
            approved_by="policy:timeout",
            arguments=approval.arguments,  # a counted `modify` may have changed what is asked
        )


def _approver_notified(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    """A notice changes nothing but the history."""


def _status_changed(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    run_may(run.header.status, data["to"])
    run.header.status = data["to"]


def _ending_started(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    header = run.header
    header.ending = Ending(
        to=data["to"], reason=data["reason"], actor=event.actor, error=data.get("error")
    )
    if data.get("error"):
        _error(run, None, data["error"])
    for n in header.asks:
        _close_ask(run, n, event.actor)
    for n, due in data["in_flight"]:
        _timer(run, f"act/{n}", due)
    _timer(run, "deadline", None)


def _budget_changed(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    run.header.budget = msgspec.convert(data["budget"], Budget)


def _message_received(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    _add_message(run, Message(role="user", content=data["content"]))
    run.header.answer = None


def _run_paused(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    run.header.paused = True


def _run_resumed(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    header = run.header
    header.paused = False
    # A backoff that ended meanwhile ends now: its timer fired in vain while the run was paused.
    header.timers = {
        name: max(due, event.at) if name.startswith("act/") else due
        for name, due in header.timers.items()
    }


def _run_finished(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    header = run.header
    run_may(header.status, data["status"])
    header.status = data["status"]
    header.finished_at = event.at
    header.timers = {"purge": data["purge_at"]}
    header.current_step = ""
    assert header.status in FINAL


def _not_yet(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    """Types of the contract that this version never writes; they would be a newer version's."""
    raise BrokenHistory(f"an event of type {event.type} is newer than this version")


Applier = Callable[[Run, RunEvent, dict[str, Any]], None]

APPLIERS: Final[dict[str, Applier]] = {
    "run_started": _run_started,
    "step_started": _step_started,
    "model_replied": _model_replied,
    "plan_updated": _plan_updated,
    "branch_taken": _branch_taken,
    "branch_skipped": _branch_skipped,
    "action_proposed": _action_proposed,
    "action_requested": _action_requested,
    "action_started": _action_started,
    "action_progressed": _action_progressed,
    "action_succeeded": _action_succeeded,
    "action_failed": _action_failed,
    "action_unknown": _action_unknown,
    "action_adopted": _action_succeeded,
    "action_cancelled": _action_cancelled,
    "action_skipped": _action_skipped,
    "action_queried": _action_queried,
    "action_in_doubt": _action_in_doubt,
    "effect_found": _effect_found,
    "retry_scheduled": _retry_scheduled,
    "approval_requested": _approval_requested,
    "approval_decided": _approval_decided,
    "approval_expired": _approval_expired,
    "approver_notified": _approver_notified,
    "status_changed": _status_changed,
    "ending_started": _ending_started,
    "budget_changed": _budget_changed,
    "message_received": _message_received,
    "context_summarised": _not_yet,
    "key_state_changed": _not_yet,
    "compensation_started": _not_yet,
    "compensation_finished": _not_yet,
    "run_paused": _run_paused,
    "run_resumed": _run_resumed,
    "run_finished": _run_finished,
}
