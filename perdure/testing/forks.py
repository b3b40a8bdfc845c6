"""Forks: clients that ask for them, and what must become of each.

What the contract says of a fork is folded here from the events up to its version, by the judge's
own fold: whether it is refused, and which calls are another run's and never made again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any, Final

from perdure.schemas import topics

from .history import ENDED, MOVING, RunHistory, Seen
from .world import World

UNDOING: Final = ("compensation_started", "compensation_finished")


class Forks:
    """Asks for forks, and says at the end which were taken or refused by mistake."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self._world = world
        self._chance = chance
        self.must: dict[str, tuple[str, str | None]] = {}
        """By fork: the run it comes from, and why it must be refused (None: it must be taken)."""

    def task(self, runs: Mapping[str, RunHistory]) -> dict[str, Any] | None:
        """A fork of some run at some version; None while there is nothing to fork."""
        if not runs:
            return None
        chance = self._chance
        source = chance.choice(sorted(runs))
        events = self._events(source)
        version = chance.randint(1, len(events))
        told = events[version - 1]
        of = {"run_id": source, "version": version, "hash": told["hash"]}
        fork_id = f"fork-{len(self.must)}"
        why = refusal(events, version)
        if chance.random() < 0.1:
            of["hash"], why = "0" * 64, "it names another hash"
        self.must[fork_id] = (source, why)
        return {"task_id": fork_id, "agent": told["agent"], "fork_of": of}

    def _events(self, run_id: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._world.documents(topics.EVENTS, run_id)
        return found

    def misjudged(self, runs: Mapping[str, RunHistory], sent: Mapping[str, str]) -> Iterator[str]:
        """What was taken and should not have been, or was refused for no reason."""
        for fork_id, (source, why) in self.must.items():
            if fork_id not in sent:
                continue
            taken = fork_id in runs
            if taken and why is not None:
                yield f"fork: {fork_id} was taken, though {why}"
            if not taken and why is None and not runs[source].undone_by:
                yield f"fork: {fork_id} of {source} was refused"


def refusal(events: list[dict[str, Any]], version: int) -> str | None:
    """Why a fork at this version must be refused."""
    then = RunHistory("then", Seen())
    for event in events[:version]:
        then.take(event)
    if then.status in ENDED or then.ending:
        return "the run had ended or was ending"
    last = events[version - 1]
    if last["type"] == "status_changed" and last["data"]["from"] == "failed":
        return "it was just taken up again, by a retry or a cancel"
    if last["type"] == "action_failed" and last["data"].get("replaced"):
        return "a failed call was just giving way to another tool's"
    if any(_looked_at(then, n) for n in then.actions):
        return "a call that goes round in circles was just looked at"
    done = {n for n, action in then.actions.items() if action["status"] == "succeeded"}
    later = (event["data"]["n"] for event in events[version:] if event["type"] in UNDOING)
    if done.intersection(later):
        return "what it would build on was undone since"
    waits = {q["asked_by"] or q["action"] for q in then.questions.values() if q["open"]}
    for n, action in then.actions.items():
        if action["kind"] == "notice":
            continue
        if action["status"] == "approved":
            return f"action {n} was approved and not yet called"
        held = action["status"] in ("failed", "in_doubt") and action["held"]
        if action["effect"] != "read_only" and (action["status"] in MOVING or held):
            return f"action {n} writes and was open then"
        if action["status"] == "waiting_approval" and n not in waits:
            return f"action {n} was just decided"
    if any(question["open"] and question["by"] for question in then.questions.values()):
        return "a question was half answered"
    return None


def _looked_at(then: RunHistory, n: int) -> bool:
    """It goes round in circles, a person was asked about it or its like, and nobody is now."""
    action = then.actions[n]
    if not action.get("circling") or action["status"] != "proposed":
        return False
    asked = [
        q["open"]
        for q in then.questions.values()
        if q["kind"] == "handover" and then.actions.get(q["action"], {}).get("circling")
    ]
    return bool(asked) and not any(asked)
