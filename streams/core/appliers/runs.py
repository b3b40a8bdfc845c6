"""Appliers of the run itself: its start, its steps, its flags, its end."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from perdure.schemas.records import AgentSpec, Budget, PlanStep, RunEvent, ToolSpec

from ..lifecycle import FINAL, run_may
from ..state import Ending, Message, Run, Start
from .changes import (
    add_message,
    close_ask,
    note_error,
    plan_step,
    set_timer,
)


def run_started(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
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
    if data.get("fork_of") is not None:
        header.forked_at = data["fork_of"]["version"]
        header.fork_ms = data["forked_at"]
        header.used_ms = data.get("used_ms", 0)
    header.deadline_at = data.get("deadline_at")
    if header.deadline_at is not None:
        set_timer(run, "deadline", header.deadline_at)
    if plan is not None:
        header.planned = True
        header.steps_total = len(plan)
        header.plan = {step["id"]: {"status": "pending"} for step in plan}
        return
    for earlier in data.get("messages") or ():
        add_message(run, Message(role=earlier.get("role", "user"), content=earlier.get("content")))
    header.task_message = add_message(run, Message(role="user", content=data.get("input")))


def step_started(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    header = run.header
    header.step = data["step"]
    if header.planned or header.steps_total is None:  # else a to-do list says what is being done
        header.current_step = data["title"]


_UNREAD: Final = (
    "(A message came while you were answering: take it into account before you finish.)"
)


def model_replied(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    header = run.header
    calls = data["calls"]
    if calls or data["content"]:
        add_message(run, Message(role="assistant", content=data["content"], calls=calls))
    for call in calls:
        add_message(run, Message(role="tool", call_id=call["id"], content=call.get("error")))
    note = data.get("note")
    if note is not None:
        add_message(run, Message(role="user", content=note))
    header.floor = 0  # the turn has had its reply
    if data.get("error"):
        note_error(run, run.action(data["n"]), data["error"])
    broken = note is not None or any("error" in call for call in calls)
    header.invalid = header.invalid + 1 if broken else 0
    header.cut = header.cut + 1 if data.get("cut") else 0
    if header.steps_total is None:
        header.steps_done += 1
    if data.get("unread"):  # it answered without having read what was sent meanwhile
        add_message(run, Message(role="user", content=_UNREAD))
    elif not calls and note is None:
        header.answer = data["content"]


def branch_taken(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    plan_step(run, data["step_id"], when=True)


def branch_skipped(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    plan_step(run, data["step_id"], status="done", when=False)
    run.header.steps_done += 1


def action_skipped(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    plan_step(run, data["step_id"], status="skipped", reason=data["reason"])
    run.header.steps_done += 1


def status_changed(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    run_may(run.header.status, data["to"])
    run.header.status = data["to"]
    _peoples_time(run, event.at)
    if "retry" in data:
        _taken_up_again(run, data["retry"])
    elif data["from"] == "failed":  # on the way of a cancel with compensation
        run.header.finished_at = None
        run.header.timers = {}


def _peoples_time(run: Run, at: int) -> None:
    """The time in which nothing can go on but by a person: it is nobody's budget."""
    header = run.header
    waits = header.paused or header.status == "waiting_approval" or header.status in FINAL
    if waits and header.people_since is None:
        header.people_since = at
    elif not waits and header.people_since is not None:
        header.people_ms += at - header.people_since
        header.people_since = None


_UNREACHED: Final = frozenset({"cancelled", "skipped"})


def _taken_up_again(run: Run, again: dict[str, Any]) -> None:
    """A failed run goes on: nothing is over, what was not reached is still to come."""
    header = run.header
    header.ending = None
    header.finished_at = None
    header.timers = {}
    if header.deadline_at is not None:
        set_timer(run, "deadline", header.deadline_at)
    for step_id, step in header.plan.items():
        if step.get("n") in again["actions"]:
            plan_step(run, step_id, status="running")
        elif step["status"] in _UNREACHED:
            header.plan = {**header.plan, step_id: {"status": "pending"}}
    if header.planned:
        over = [s for s in header.plan.values() if s["status"] not in ("pending", "running")]
        header.steps_done = len(over)


def ending_started(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    header = run.header
    header.ending = Ending(
        to=data["to"],
        reason=data["reason"],
        actor=event.actor,
        error=data.get("error"),
        compensate=data.get("compensate", False),
    )
    if data.get("error"):
        note_error(run, None, data["error"])
    for n in header.asks:
        asked = run.approval(n)
        if not (header.undoing and asked is not None and asked.action == header.undoing):
            close_ask(run, n, event.actor)
    for n, due in data["in_flight"]:
        set_timer(run, f"act/{n}", due)
    set_timer(run, "deadline", None)


def budget_changed(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    run.header.budget = msgspec.convert(data["budget"], Budget)


def message_received(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    add_message(run, Message(role="user", content=data["content"]))
    run.header.answer = None


def run_paused(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    run.header.paused = True
    _peoples_time(run, event.at)


def run_resumed(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    header = run.header
    header.paused = False
    _peoples_time(run, event.at)
    # A backoff that ended meanwhile ends now: its timer fired in vain while the run was paused.
    header.timers = {
        name: max(due, event.at) if name.startswith("act/") else due
        for name, due in header.timers.items()
    }


def run_finished(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    header = run.header
    run_may(header.status, data["status"])
    header.status = data["status"]
    header.finished_at = event.at
    _peoples_time(run, event.at)
    header.timers = {"purge": data["purge_at"]}
    header.notices = []  # what is on its way is on its way; nobody waits for its answer
    header.current_step = ""
    assert header.status in FINAL
