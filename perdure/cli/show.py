"""The body of ``perdure show``: a run's state, what happened, and where a task is that has no run."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.reading import (
    Raw,
    Scanner,
    event_of,
    is_over,
    live,
    state_of,
)
from perdure.schemas import topics
from perdure.schemas.records import RunEvent
from perdure.settings import Settings
from perdure.streams.core.apply import begins_anew
from perdure.streams.core.state import Run
from perdure.streams.engine import layout
from perdure.tables import outcome as outcome_of
from perdure.topics_reader import NoTopic

from . import timeline
from .console import FAILED, leave, line
from .folded import Folded
from .terminal import clock, deadline, emit, now_ms, paragraphs, safe, span

_STYLES = {"done": "green", "failed": "red", "cancelled": "yellow", "waiting_approval": "cyan"}


def show(
    made: Settings, run_id: str, *, follow: bool, events: bool, uncover: bool, as_json: bool
) -> None:
    """Print the run; with ``follow`` what comes until it has ended."""
    scanner = Scanner(made.client_conf(), made.topic_prefix)
    history = History(uncover)
    shown_version = -1
    for raw in scanner.scan([topics.EVENTS], run_id=run_id, follow=follow):
        if raw is not None:
            event = event_of(raw) if raw.key == run_id.encode() else None
            if event is not None and event.run_id == run_id:
                history.take(event)
            continue
        if history.run is None:
            if not follow:
                _elsewhere(scanner, run_id, as_json)
            continue
        if history.run.header.version != shown_version:
            quarantine = _quarantine(scanner, run_id) if shown_version < 0 else None
            _print(history, shown_version, events, as_json, quarantine)
            shown_version = history.run.header.version
        if follow and is_over(history.run):
            return


class History(Folded):
    """A run folded event by event, and what may be shown of each."""

    def __init__(self, uncover: bool) -> None:
        super().__init__(uncover)
        self.events: list[RunEvent] = []

    def take(self, event: RunEvent) -> RunEvent:
        if begins_anew(self.run, event):
            self.events.clear()
        self.events.append(super().take(event))
        return self.events[-1]


def _print(
    history: History,
    before: int,
    events: bool,
    as_json: bool,
    quarantine: layout.Quarantine | None,
) -> None:
    run = history.run
    assert run is not None
    if as_json and events:
        for event in history.events[max(before, 0) :]:
            line(event)
        return
    state = state_of(run, quarantined=quarantine is not None, uncover=history.uncover)
    if as_json:
        line(state)
        return
    if before < 0:
        _head(run, state, quarantine)
    _timeline(history.events, before, events)
    _foot(run, state)


def _head(run: Run, state: dict[str, Any], quarantine: layout.Quarantine | None) -> None:
    header = run.header
    flags = ", paused" if header.paused else ""
    emit(
        f"{safe(header.run_id, 200)}  {header.status}{flags}  version {header.version}",
        _STYLES.get(header.status, "bold"),
    )
    emit(f"  agent {header.agent}, user {safe(header.user_id)}, session {safe(header.session_id)}")
    emit(f"  started {clock(header.created_at)}, changed {clock(header.updated_at)}")
    if run.start.input is not None:
        emit(f"  input: {safe(run.start.input, 300)}")
    if quarantine is not None:
        emit(
            f"  quarantined since {clock(quarantine.since)}: {safe(quarantine.reason, 300)} "
            f"({quarantine.parked} records parked; `perdure release {header.run_id}` takes it up, "
            f"`perdure cancel {header.run_id}` ends it)",
            "red",
        )
    if state["plan"]:
        done = sum(step["status"] == "done" for step in state["plan"])
        name = "id" if header.planned else "title"
        steps = ", ".join(f"{safe(step[name], 60)} {step['status']}" for step in state["plan"][:20])
        emit(f"  plan, {done} of {len(state['plan'])} done: {steps}")
    for name, value in list((state["key_state"] or {}).items())[:20]:
        emit(f"  key fact {safe(name, 60)}: {safe(value, 200)}")
    if header.covered:
        emit(f"  summary of messages 1 to {header.covered} of {header.messages}:")
        emit(f"    {safe(state['summary'], 500)}")
    emit()


def _timeline(events: list[RunEvent], before: int, whole: bool) -> None:
    told = {version: (who, what) for version, _, who, what in timeline.lines(events)}
    start = events[0].at
    for event in events:
        if event.version <= before or (event.version not in told and not whole):
            continue
        who, what = told.get(event.version, (event.actor, event.type))
        emit(f"{event.version:>5} {(event.at - start) / 1000:>9.3f} s  {safe(who, 40):<16} {what}")
        if whole:
            emit(f"{'':>9}{event.type} {safe(event.data, 4_000)}")


def _foot(run: Run, state: dict[str, Any]) -> None:
    header = run.header
    now = now_ms()
    emit()
    for wait in state["waiting_for"]:
        if "approval_id" in wait:
            asked = run.approval(int(wait["approval_id"].rpartition("/a")[2]))
            assert asked is not None
            emit(f"waits for a person ({wait['kind']}): {safe(asked.title, 200)}", "cyan")
            emit(f"  {deadline(asked.expires_at, asked.on_timeout, now)}")
            emit(f"  perdure pending, then: perdure decide {wait['approval_id']} DECISION")
        else:
            until = wait.get("until")
            when = "" if until is None else f", again in {span((until - now) / 1000)}"
            emit(f"waits to try {safe(wait['target'])} again{when}")
    if header.ending is not None and header.finished_at is None:
        emit(f"ending as {header.ending.to}: {safe(header.ending.reason, 300)}")
    usage = state["usage"]
    cost = f", cost {usage['cost']:g}" if usage["cost"] else ""
    attempts = sum(action["attempts"] for action in state["actions"])
    emit(
        f"{usage['steps']} steps, {len(state['actions'])} actions, {attempts} attempts, "
        f"{usage['input_tokens']} + {usage['output_tokens']} tokens{cost}"
    )
    if header.finished_at is not None and header.answer is not None and not header.planned:
        emit("answer:")
        for text in paragraphs(header.answer):
            emit(f"  {text}")


# --- a task without a run ---------------------------------------------------------------------


def _quarantine(scanner: Scanner, run_id: str) -> layout.Quarantine | None:
    """The flag stands in the engine's changelog only; who may not read that does without."""
    try:
        found = live(scanner, run_id).get(layout.quarantine(run_id))
    except NoTopic:
        return None
    if found is None:
        return None
    made: layout.Quarantine = layout.Codecs().decode(layout.quarantine(run_id), found)
    return made


def _elsewhere(scanner: Scanner, run_id: str, as_json: bool) -> None:
    """Say where a task without events is: refused, waiting for the catalog, not yet read, buried."""
    outcome = outcome_of(scanner, run_id)
    if outcome is not None:
        if as_json:
            line(outcome)
        leave(FAILED, f"{run_id} never became a run: {safe(outcome.text, 500)}")
    try:
        known = live(scanner, run_id)
    except NoTopic:
        known = {}
    if layout.waiting(run_id) in known:
        kept = layout.Codecs().decode(layout.waiting(run_id), known[layout.waiting(run_id)])
        leave(
            FAILED,
            f"{run_id} waits for its agent and tools to be announced, until {clock(kept.until)}: "
            "start a worker, or `perdure apply` the agent",
        )
    if layout.stub(run_id) in known:
        leave(FAILED, f"{run_id} has ended long ago; its events were deleted by their retention")
    if layout.quarantine(run_id) in known:
        leave(
            FAILED,
            f"{run_id} is quarantined at its first record: `perdure release {run_id}`, or `perdure cancel {run_id}`",
        )
    sent, buried = _sent(scanner, run_id), _buried(scanner, run_id)
    if sent - buried.keys():
        leave(FAILED, f"{run_id} is on {topics.TASKS}, but no engine has read it: is one running?")
    if buried:
        *_, why = buried.values()
        leave(
            FAILED,
            f"{run_id} never became a run: {safe(why, 500)}; it lies on {topics.DEAD_LETTERS}",
        )
    leave(FAILED, f"there is no run {safe(run_id, 200)}: `perdure runs` lists them")


def _sent(scanner: Scanner, run_id: str) -> set[tuple[int, int]]:
    """Partition and offset of the tasks of this id."""
    return {
        (raw.partition, raw.offset)
        for raw in scanner.scan([topics.TASKS])
        if raw is not None and _is_of(raw, run_id)
    }


def _buried(scanner: Scanner, run_id: str) -> dict[tuple[int, int], str]:
    """Those of them that an engine could not take, and why: by their place on agent.tasks."""
    found: dict[tuple[int, int], str] = {}
    try:
        for raw in scanner.scan([topics.DEAD_LETTERS]):
            if raw is None or not _is_of(raw, run_id):
                continue
            said = {name: value.decode("utf-8", "replace") for name, value in raw.headers}
            if said.get("topic", "").endswith(topics.TASKS):
                where = (int(said.get("partition", -1)), int(said.get("offset", -1)))
                found[where] = f"{said.get('detail', '')} ({said.get('reason', '')})"
    except NoTopic:  # not everybody may read them
        pass
    return found


def _is_of(raw: Raw, run_id: str) -> bool:
    """By its ``task_id``, where that can be read; by its key where nothing can."""
    wanted = run_id.encode()
    if raw.value is None or not (raw.key == wanted or wanted in raw.value):
        return False
    try:
        task = msgspec.json.decode(raw.value)
    except (msgspec.DecodeError, RecursionError):
        return raw.key == wanted
    return isinstance(task, dict) and task.get("task_id") == run_id
