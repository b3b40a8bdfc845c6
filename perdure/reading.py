"""Runs as the topics tell them: what the commands show where no view runs.

`history` and `Overview` read agent.events, `live` the engine's changelog; nothing here decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

import msgspec

from perdure.schemas import topics
from perdure.schemas.records import RunEvent
from perdure.streams.views.masking import COVER as COVER
from perdure.streams.views.masking import covered as covered
from perdure.streams.views.masking import covered_event as covered_event
from perdure.streams.views.masking import covered_history as covered_history
from perdure.streams.views.masking import is_over as is_over
from perdure.streams.views.masking import sensitive as sensitive
from perdure.streams.views.masking import state_of as state_of

from .topics_reader import Raw, Scanner

# --- events -----------------------------------------------------------------------------------

_event = msgspec.json.Decoder(RunEvent)


def event_of(raw: Raw) -> RunEvent | None:
    """The event of a record of agent.events, or None where it is none."""
    try:
        return _event.decode(raw.value or b"")
    except (msgspec.DecodeError, RecursionError):
        return None


def history(scanner: Scanner, run_id: str) -> Iterator[tuple[Raw, RunEvent | None]]:
    """The records of agent.events that stand under a run's key, and the event that each is.

    Raises `NoTopic`, `Unreachable`.
    """
    wanted = run_id.encode()
    for raw in scanner.scan([topics.EVENTS], run_id=run_id):
        if raw is not None and raw.key == wanted:
            yield raw, event_of(raw)


def task_digests(scanner: Scanner, run_ids: Collection[str]) -> dict[str, str]:
    """By which task each of the runs was started last, as the engine tells two tasks of one id apart.

    Raises `NoTopic`, `Unreachable`.
    """
    keys = {run_id.encode() for run_id in run_ids}
    alone = next(iter(run_ids)) if len(run_ids) == 1 else None
    found: dict[str, str] = {}
    for raw in scanner.scan([topics.EVENTS], run_id=alone):
        event = event_of(raw) if raw is not None and raw.key in keys else None
        if event is not None and event.type == "run_started":
            found[event.run_id] = str(event.data.get("digest", ""))
    return found


class Summary(msgspec.Struct, kw_only=True):
    """A run in one line."""

    run_id: str
    agent: str
    user_id: str
    session_id: str
    tenant: str
    status: str = "running"
    paused: bool = False
    version: int = 0
    step: int = 0
    actions: int = 0
    last: str = ""
    ending: str | None = None
    started_at: int = 0
    updated_at: int = 0
    finished_at: int | None = None
    waiting_for: list[dict[str, Any]] = msgspec.field(default_factory=list)

    def take(self, event: RunEvent) -> None:
        """What one more event says. Events that came before are ignored."""
        if event.version <= self.version:
            return
        self.version = event.version
        self.updated_at = event.at
        change = _CHANGES.get(event.type)
        if change is not None:
            try:
                change(self, event.data)
            except (KeyError, TypeError, AttributeError):
                self.last = f"event {event.version} is not sound"
        if event.type == "run_started":
            self.started_at = event.at
        elif event.type == "run_finished":
            self.finished_at = event.at


def _finished(summary: Summary, data: dict[str, Any]) -> None:
    summary.status = data["status"]
    summary.waiting_for = []


def _status(summary: Summary, data: dict[str, Any]) -> None:
    summary.status = data["to"]
    if (
        data["to"] == "running" and summary.finished_at is not None
    ):  # a retry: nothing has ended yet
        summary.ending = summary.finished_at = None


def _proposed(summary: Summary, data: dict[str, Any]) -> None:
    summary.actions = data["n"]
    summary.last = data["target"]


def _asked(summary: Summary, data: dict[str, Any]) -> None:
    asked = data["approval"]
    summary.waiting_for.append(
        {
            "kind": asked["kind"],
            "approval_id": f"{summary.run_id}/a{asked['n']}",
            "title": asked.get("title", ""),
            "until": asked.get("expires_at"),
        }
    )


def _step(summary: Summary, data: dict[str, Any]) -> None:
    summary.step = data["step"]


def _ending(summary: Summary, data: dict[str, Any]) -> None:
    summary.ending = data["reason"]
    summary.waiting_for = []


def _decided(summary: Summary, data: dict[str, Any]) -> None:
    """A question is closed, or asked on: of others, until another time, about other arguments."""
    about = f"{summary.run_id}/a{data['n']}"
    if data.get("closes", data.get("decision") != "escalate"):
        summary.waiting_for = [w for w in summary.waiting_for if w["approval_id"] != about]
        return
    until = data.get("asks", data).get("expires_at")
    for wait in summary.waiting_for:
        if wait["approval_id"] == about:
            wait.update(
                {"title": data.get("title", wait["title"]), "until": until or wait["until"]}
            )


def _paused(summary: Summary, data: dict[str, Any]) -> None:
    summary.paused = True


def _resumed(summary: Summary, data: dict[str, Any]) -> None:
    summary.paused = False


_CHANGES: Final = {
    "step_started": _step,
    "action_proposed": _proposed,
    "status_changed": _status,
    "approval_requested": _asked,
    "approval_decided": _decided,
    "approval_expired": _decided,
    "ending_started": _ending,
    "run_paused": _paused,
    "run_resumed": _resumed,
    "run_finished": _finished,
}


class Overview:
    """Every run of agent.events in one line each. Owns only what it has read."""

    def __init__(self) -> None:
        self.runs: dict[str, Summary] = {}

    def take(self, event: RunEvent) -> Summary:
        summary = self.runs.get(event.run_id)
        # the first event of an id that was forgotten and is taken again
        if summary is None or (summary.finished_at is not None and event.version == 1):
            summary = self.runs[event.run_id] = Summary(
                run_id=event.run_id,
                agent=event.agent,
                user_id=event.user_id,
                session_id=event.session_id,
                tenant=event.tenant,
            )
        summary.take(event)
        return summary

    def settle(self, open_questions: Iterable[str]) -> None:
        """Drop questions that the pending topic no longer holds (a result may close one)."""
        known = set(open_questions)
        for summary in self.runs.values():
            summary.waiting_for = [w for w in summary.waiting_for if w["approval_id"] in known]


# --- the engine's changelog -------------------------------------------------------------------


def live(scanner: Scanner, run_id: str) -> dict[bytes, bytes]:
    """What the engine holds of a run now: the store's keys and values, from its changelog.

    Raises `NoTopic`, `Unreachable`.
    """
    wanted = run_id.encode()
    longer = wanted + b"/"
    found: dict[bytes, bytes] = {}
    for raw in scanner.scan([topics.changelog(topics.ENGINE)], run_id=run_id):
        if raw is None or raw.key is None or raw.key[1:2] != b"/":
            continue
        rest = raw.key[2:]
        if rest != wanted and not rest.startswith(longer):
            continue
        if raw.value is None:
            found.pop(raw.key, None)
        else:
            found[raw.key] = raw.value
    return found
