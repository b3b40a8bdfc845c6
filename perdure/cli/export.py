"""The body of ``perdure export``: every run as one JSON document, for evaluation and for whoever keeps it.

One scan of agent.events folds the chosen runs with the core's own appliers. What a person changed
or declined is a label: what should have been proposed instead, by somebody who knew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from perdure.reading import covered, event_of, is_over, sensitive, state_of
from perdure.schemas import topics
from perdure.schemas.records import RunEvent
from perdure.settings import Settings
from perdure.streams.core.apply import BrokenHistory, begins_anew
from perdure.streams.core.policies import outcome
from perdure.streams.core.state import Action, Run
from perdure.topics_reader import Scanner

from .console import FAILED, leave, line, say
from .folded import Folded
from .progress import Progress

_LABELS: Final = {"modify": "modified", "reject": "rejected"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which runs are exported. ``since`` (ms) counts when a run began, ``until`` ends it."""

    since: int | None = None
    until: int | None = None
    agent: str | None = None
    statuses: tuple[str, ...] = ()

    def begins(self, event: RunEvent) -> bool:
        return (
            self.agent in (None, event.agent)
            and (self.since is None or event.at >= self.since)
            and (self.until is None or event.at < self.until)
        )


@dataclass
class Exported:
    """The chosen runs, folded. Owns nothing but what it has read."""

    wanted: Wanted
    uncover: bool = False
    runs: dict[str, Folded] = field(default_factory=dict)
    decisions: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    past: list[tuple[Run, list[dict[str, Any]]]] = field(default_factory=list)
    """Runs whose ids were forgotten and taken again."""
    broken: dict[str, str] = field(default_factory=dict)

    def take(self, event: RunEvent) -> None:
        run_id = event.run_id
        if run_id in self.runs and self._begins_anew(event):
            former, decisions = self.runs.pop(run_id), self.decisions.pop(run_id)
            why = self.broken.pop(run_id, None)
            if why is not None:
                self.broken[f"{run_id}/before"] = why  # no id of a run: those hold no /
            elif former.run is not None:
                self.past.append((former.run, decisions))
        if run_id not in self.runs:
            if event.version != 1 or not self.wanted.begins(event):
                return
            self.runs[run_id] = Folded(uncover=True)
            self.decisions[run_id] = []
        if run_id in self.broken:
            return
        folded = self.runs[run_id]
        try:
            folded.take(event)
        except BrokenHistory as error:
            self.broken[run_id] = str(error)
            return
        if event.type in ("approval_decided", "approval_expired"):
            self.decisions[run_id].append(self._decision(folded.run, event))

    def _begins_anew(self, event: RunEvent) -> bool:
        broken = event.run_id in self.broken and event.version == 1
        return broken or begins_anew(self.runs[event.run_id].run, event)

    def _decision(self, run: Run | None, event: RunEvent) -> dict[str, Any]:
        assert run is not None
        data = event.data
        approval = run.approval(data["n"])
        assert approval is not None
        names = frozenset[str]() if self.uncover else sensitive(run.start.tools, approval.tool)
        made = {
            "approval_id": run.approval_id(data["n"]),
            "kind": approval.kind,
            "action_id": None if approval.action is None else run.action_id(approval.action),
            "tool": approval.tool,
            "decision": data["decision"],
            "approver": data.get("approver", "policy:timeout"),
            "verified": data.get("verified"),
            "reason": data.get("reason"),
            "at": event.at,
        }
        if data.get("arguments") is not None:
            made["arguments"] = covered(data["arguments"], names)
        return made

    def documents(self) -> list[dict[str, Any]]:
        """One a run, the oldest first."""
        found = self.past + [
            (folded.run, self.decisions[run_id])
            for run_id, folded in self.runs.items()
            if folded.run is not None and run_id not in self.broken
        ]
        chosen = [
            (run, decisions)
            for run, decisions in found
            if not self.wanted.statuses or run.header.status in self.wanted.statuses
        ]
        chosen.sort(key=lambda each: (each[0].header.created_at, each[0].header.run_id))
        return [document(run, decisions, self.uncover) for run, decisions in chosen]


def document(run: Run, decisions: list[dict[str, Any]], uncover: bool) -> dict[str, Any]:
    """A run's state, its input, decisions and outcome; sensitive values covered unless ``uncover``."""
    header, definition = run.header, run.definition
    state = state_of(run, uncover=uncover)
    words = {
        d["action_id"]: d
        for d in decisions
        if d["kind"] == "action" and d["decision"] in _LABELS and d["verified"] is not None
    }
    for record in state["actions"]:
        said = words.get(record["action_id"])
        record["label"] = None if said is None else _label(run, record, said, uncover)
    return {
        **state,
        "input": run.start.input,
        "agent_version": definition.version,
        "model": None if definition.model is None else definition.model.name,
        "decisions": decisions,
        "outcome": _outcome(run, uncover) if is_over(run) else None,
        "started_at": header.created_at,
        "finished_at": header.finished_at,
    }


def _label(run: Run, record: dict[str, Any], said: dict[str, Any], uncover: bool) -> dict[str, Any]:
    """What a person made of a proposed call."""
    action = run.action(int(record["action_id"].rpartition("/")[2]))
    made = {
        "verdict": _LABELS[said["decision"]],
        "approver": said["approver"],
        "reason": said["reason"],
        "proposed": record["arguments"],
    }
    if said["decision"] == "modify":
        made["proposed"] = _proposed(run, action, uncover)
        made["corrected"] = said.get("arguments")
    return made


def _proposed(run: Run, action: Action, uncover: bool) -> Any:
    asked = None if action.approval is None else run.approval(action.approval)
    first = action.arguments if asked is None else asked.original_arguments
    names = frozenset[str]() if uncover else sensitive(run.start.tools, action.target)
    return covered(first, names)


def _outcome(run: Run, uncover: bool) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.to_builtins(outcome.build(run))
    if uncover:
        return made
    tools = run.start.tools
    if run.header.planned and isinstance(made["result"], dict):
        steps = {step.id: step.tool for step in run.start.plan or ()}
        made["result"] = {
            step: covered(value, sensitive(tools, steps.get(step)))
            for step, value in made["result"].items()
        }
    for name in ("completed", "not_completed", "in_doubt", "compensated", "degraded"):
        for record in made[name]:
            names = sensitive(tools, record["tool"])
            record["arguments"] = covered(record["arguments"], names)
            record["result"] = covered(record["result"], names)
    return made


def export(made: Settings, wanted: Wanted, *, uncover: bool) -> None:
    """Print the runs; ends with 1 where the events of one can't be followed."""
    exported = Exported(wanted, uncover)
    progress = Progress()
    for raw in Scanner(made.client_conf(), made.topic_prefix).scan([topics.EVENTS]):
        if raw is None:
            continue
        progress.step()
        event = event_of(raw)
        if event is not None and raw.key == event.run_id.encode():
            exported.take(event)
    documents = exported.documents()
    for each in documents:
        line(each)
    say(f"{len(documents)} runs")
    for run_id, why in exported.broken.items():
        say(f"{run_id} is left out: {why}; `perdure verify {run_id.partition('/')[0]}` says more")
    if exported.broken:
        leave(FAILED, f"{len(exported.broken)} runs could not be followed")
