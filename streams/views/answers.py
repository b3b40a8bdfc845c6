"""The answers to what people ask of runs: one question each, as plain JSON.

A run's state is folded from its history when somebody looks, and the last few are kept, so that a
page that is looked at again costs only what has come since.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import msgspec
from perdure.schemas.records import ApprovalRequest, RunEvent
from perdure.streams.core.state import Run

from .board import Board
from .index import Index, Page, Query, now_ms
from .masking import (
    covered,
    covered_blind,
    covered_event,
    covered_question,
    sensitive,
    state_of,
)
from .ports import Histories
from .projections.actions import actions
from .projections.timeline import entry
from .projector import fold

_STATUSES: Final = ("running", "waiting_approval", "compensating", "done", "failed", "cancelled")
_KEPT: Final = 16
_KEPT_EVENTS: Final = 20_000
"""Of all stories that are kept together: some 100 MB."""
_DETAIL: Final = (
    "plan", "key_state", "summary", "budget", "last_api_call_status", "metadata", "ending", "messages",
)  # fmt: skip


class NoRun(LookupError):
    """Nothing is known of that run."""


class _Story:
    """A run as far as it was read: its events, the step each stands in, its state."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.begin()

    def begin(self) -> None:
        self.events: list[RunEvent] = []
        self.steps: list[int] = []
        self.run: Run | None = None
        self.whole = True

    @property
    def first(self) -> str | None:
        """As a row has it: hash of the run's first event; None while nothing was read."""
        if not self.events:
            return None
        return self.events[0].hash if self.events[0].version == 1 else ""

    def take(self, new: list[RunEvent]) -> None:
        for event in new:
            step = self.steps[-1] if self.steps else 0
            data = event.data if isinstance(event.data, dict) else {}
            if event.type == "step_started" and isinstance(data.get("step"), int):
                step = data["step"]
            self.events.append(event)
            self.steps.append(step)
        if self.whole and new:
            self.run = fold(new, self.run)
            self.whole = self.run is not None


class Answers:
    def __init__(
        self, index: Index, histories: Histories, board: Board, stuck_seconds: float = 600.0
    ) -> None:
        self.index = index
        self.histories = histories
        self.board = board
        self._stuck_ms = int(stuck_seconds * 1000)
        self._stories: OrderedDict[str, _Story] = OrderedDict()
        self._lock = threading.Lock()

    def _story(self, run_id: str) -> _Story:
        """Everything there is of a run now. Raises `Elsewhere`, `NoRun`."""
        with self._lock:
            story = self._stories.pop(run_id, None) or _Story()
            self._stories[run_id] = story
            while len(self._stories) > 1 and (
                len(self._stories) > _KEPT
                or sum(len(kept.events) for kept in self._stories.values()) > _KEPT_EVENTS
            ):
                self._stories.popitem(last=False)
        with story.lock:
            seen = story.events[-1].version if story.events else 0
            row = self.index.row(run_id)
            if row is not None and story.first not in (None, row.first):
                story.begin()  # the id has begun anew
                seen = 0
            story.take(self.histories.events(run_id, seen))
        if not story.events and row is None:
            raise NoRun(run_id)
        return story

    # --- lists ------------------------------------------------------------------------------

    def find(self, query: Query) -> Page:
        return self.index.find(query, now_ms())

    def stuck_before(self) -> int:
        return now_ms() - self._stuck_ms

    def stats(self) -> dict[str, Any]:
        now = now_ms()
        waiting = self.index.waiting()
        return {
            "totals": dict.fromkeys(_STATUSES, 0) | self.index.totals(),
            "waiting": waiting,
            "rates": self.index.rates(now),
            "stuck": self.index.count(Query(stuck_before=now - self._stuck_ms), now),
            "quarantined": self.index.count(Query(quarantined=True), now),
        }

    # --- one run ----------------------------------------------------------------------------

    def run(self, run_id: str, *, uncover: bool = False) -> dict[str, Any]:
        """Raises `NoRun`, `Elsewhere`."""
        story = self._story(run_id)
        row = self.index.shown(run_id)
        if row is None:
            raise NoRun(run_id)
        # That of a former run of a forgotten id stands until this one has ended.
        outcome = None if row["finished_at"] is None else self.histories.outcome(run_id)
        shown = {
            **row,
            **dict.fromkeys(_DETAIL),
            "input": None,
            "definition": None,
            "fork_of": None,
        }
        with story.lock:
            run = story.run
            if run is not None:
                state = state_of(run, uncover=uncover)
                shown |= {name: state.get(name) for name in _DETAIL}
                definition = run.definition
                shown["input"] = run.start.input
                shown["definition"] = {
                    "agent": definition.name,
                    "version": definition.version,
                    "model": None if definition.model is None else definition.model.name,
                    "provider": None if definition.model is None else definition.model.provider,
                    "tools": list(definition.tools),
                }
                shown["fork_of"] = story.events[0].data.get("fork_of")
            closed = None if outcome is None else msgspec.to_builtins(outcome)
            if closed is not None and not uncover:
                self._cover_outcome(closed, story)
        return {"run": shown, "outcome": closed, "approvals": self._open_of(run_id)}

    def _blind(self, story: _Story) -> frozenset[str] | None:
        """For a run without a state: all names that any of its tools may mark. None: its beginning,
        which holds its tools, is not there."""
        if story.first in (None, ""):
            return None
        tools = story.events[0].data.get("tools")
        if not isinstance(tools, dict):
            return None
        marked = {name for spec in tools.values() for name in spec.get("sensitive") or ()}
        return frozenset(marked) | self.board.all_sensitive()

    def _cover_outcome(self, closed: dict[str, Any], story: _Story) -> None:
        run = story.run
        if run is None:
            names = self._blind(story)
            hidden = frozenset({"arguments", "result", "progress"}) if names is None else names
            closed |= covered(closed, hidden)
            return
        tools = run.start.tools
        for name in ("completed", "not_completed", "in_doubt", "compensated", "degraded"):
            for each in closed[name] if isinstance(closed[name], list) else ():
                names = sensitive(tools, each.get("tool"))
                for part in ("arguments", "result"):
                    each[part] = covered(each.get(part), names)
        if isinstance(closed.get("result"), dict) and run.header.planned:
            for step, found in list(closed["result"].items()):
                n = run.header.plan.get(step, {}).get("n")
                if n is not None:
                    names = sensitive(tools, run.action(n).target)
                    closed["result"][step] = covered(found, names)

    def timeline(self, run_id: str, after: int, limit: int) -> dict[str, Any]:
        """Raises `NoRun`, `Elsewhere`."""
        story = self._story(run_id)
        with story.lock:
            events, run = story.events, story.run
            first = _place(events, after)
            page = list(zip(events[first : first + limit], story.steps[first:], strict=False))
            more = len(events) > first + limit
            masked = self._masking(story)
            entries = [entry(masked(event), run, step) for event, step in page]
        return {"entries": entries, "next": page[-1][0].version if more else None}

    def actions(self, run_id: str) -> dict[str, Any]:
        """Raises `NoRun`, `Elsewhere`."""
        story = self._story(run_id)
        with story.lock:
            run = story.run
            if run is None:
                return {"actions": [], "incomplete": True}
            found = actions(story.events, run)
            for action in found:
                names = sensitive(run.start.tools, action["tool"])
                for part in ("arguments", "result"):
                    action[part] = covered(action[part], names)
                if action["approval"] is not None:
                    action["approval"] = covered(action["approval"], names)
        return {"actions": found}

    def event(self, run_id: str, version: int, *, uncover: bool) -> dict[str, Any] | None:
        """Raises `NoRun`, `Elsewhere`."""
        story = self._story(run_id)
        with story.lock:
            place = _place(story.events, version - 1)
            if place >= len(story.events) or story.events[place].version != version:
                return None
            event = story.events[place]
            if not uncover:
                event = self._masking(story)(event)
            made: dict[str, Any] = msgspec.to_builtins(event)
        return made

    def _masking(self, story: _Story) -> Callable[[RunEvent], RunEvent]:
        """How the story's events are covered; what is to be known for it is looked up once."""
        run = story.run
        if run is not None:
            return lambda event: covered_event(event, run)
        names = self._blind(story)
        return lambda event: covered_blind(event, names)

    # --- people -----------------------------------------------------------------------------

    def questions(self, kind: str | None, agent: str | None) -> list[ApprovalRequest]:
        return [
            asked
            for asked in self.board.questions()
            if (kind is None or asked.kind == kind) and (agent is None or asked.agent == agent)
        ]

    def _open_of(self, run_id: str) -> list[dict[str, Any]]:
        return [self.shown(asked) for asked in self.board.questions() if asked.run_id == run_id]

    def shown(self, asked: ApprovalRequest, *, uncover: bool = False) -> dict[str, Any]:
        """A question as people see it, sensitive arguments covered."""
        made: dict[str, Any] = msgspec.to_builtins(asked)
        if not uncover:
            made |= covered_question(made, self.board.sensitive)
        return made

    def closed_question(self, run_id: str, n: int) -> dict[str, Any] | None:
        """A question that is not open any more, from its run. Raises `NoRun`, `Elsewhere`."""
        story = self._story(run_id)
        with story.lock:
            run = story.run
            found = None if run is None else run.approval(n)
            if run is None or found is None:
                return None
            header = run.header
            tools = run.start.tools
            made = covered_question(msgspec.to_builtins(found), lambda tool: sensitive(tools, tool))
        action = made.pop("action")
        return {
            **made,
            "run_id": run_id,
            "agent": header.agent,
            "user_id": header.user_id,
            "session_id": header.session_id,
            "tenant": header.tenant,
            "metadata": header.metadata,
            "approval_id": f"{run_id}/a{n}",
            "action_id": None if action is None else f"{run_id}/{action}",
            "allowed_decisions": [],
        }

    # --- agents and tools -------------------------------------------------------------------

    def agents(self) -> list[dict[str, Any]]:
        made = []
        for name, spec in sorted(self.board.agents().items()):
            made.append(
                {**msgspec.to_builtins(spec), "name": name, "runs": self.index.totals(name)}
            )
        return made

    def tools(self) -> list[dict[str, Any]]:
        breakers = self.board.breakers()
        calls = self.index.calls()
        made = []
        for name, spec in sorted(self.board.tools().items()):
            held = breakers.get(name)
            is_open = held is not None and held.state == "open"
            made.append(
                {
                    **msgspec.to_builtins(spec),
                    "name": name,
                    **(calls.get(name) or _NO_CALLS),
                    "breaker": {"open_until": held.open_until, "reason": held.reason}
                    if held is not None and is_open
                    else None,
                }
            )
        return made


_NO_CALLS: Final = {"calls": 0, "failures": 0, "last_at": None, "last_status": None}


def _place(events: list[RunEvent], after: int) -> int:
    """Of the first event above a version: they stand in order, a gap or not."""
    low, high = 0, len(events)
    while low < high:
        middle = (low + high) // 2
        if events[middle].version <= after:
            low = middle + 1
        else:
            high = middle
    return low
