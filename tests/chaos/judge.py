"""The outside verifier: from the topics and the fake service alone, sharing nothing with the engine.

Of every run: versions 1, 2, 3, ... without gap or double; the chain of hashes, computed here
anew; each attempt's command once; the outcome at the chain's end; and the effects.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Any

from tests.kafka.world import until

from .deployed import COMMANDS, EVENTS, OUTCOMES, PENDING, VERDICTS, Site, Watch


def check_runs(site: Site, run_ids: list[str]) -> None:
    """Everything there is to check without knowing what the runs were to do."""
    site.watch.read_up()
    for run_id in run_ids:
        check_history(site.watch, run_id)
    check_uncommitted(site)


def check_history(watch: Watch, run_id: str) -> None:
    events = watch.events(run_id)
    versions = [event["version"] for event in events]
    assert versions == list(range(1, len(events) + 1)), f"{run_id}: versions {versions}"
    previous = events[0]["previous_hash"]
    for event in events:
        assert event["previous_hash"] == previous, f"{run_id}: chain broken at {event['version']}"
        previous = _hash(event)
        assert event["hash"] == previous, f"{run_id}: hash of {event['version']}"
    outcome = watch.outcome(run_id)
    if outcome is not None:
        head = (outcome["version"], outcome["hash"])
        assert head == (len(events), previous), f"{run_id}: outcome of version {head[0]}"
        finished = [event for event in events if event["type"] == "run_finished"]
        assert len(finished) == 1, f"{run_id}: finished {len(finished)} times"
    calls = Counter(
        (seen.value["action_id"], seen.value["attempt"])
        for seen in watch.by_key[COMMANDS, run_id]
        if seen.value["verb"] == "call"
    )
    assert all(count == 1 for count in calls.values()), f"{run_id}: commands doubled: {calls}"
    requested = Counter(
        (f"{run_id}/{event['data']['n']}", event["data"].get("attempt"))
        for event in events
        if event["type"] == "action_requested"
    )
    named = {action: count for (action, _), count in requested.items()}
    assert {action for action, _ in calls} <= set(named), f"{run_id}: commands without an intent"


def _hash(event: dict[str, Any]) -> str:
    body = {name: value for name, value in event.items() if name != "hash"}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(event["previous_hash"].encode() + text.encode()).hexdigest()


def check_uncommitted(site: Site) -> None:
    """No transaction is left open, and what was rolled back is seen by read_uncommitted alone."""
    topics = [EVENTS, OUTCOMES, PENDING, COMMANDS, VERDICTS]
    everything = Watch(site, "read_uncommitted", topics)
    try:
        everything.read_up()
        site.watch.read_up()
        for topic in topics:
            committed = {(s.partition, s.offset) for s in site.watch.by_topic[topic]}
            all_there = {(s.partition, s.offset) for s in everything.by_topic[topic]}
            assert committed <= all_there, f"{topic}: committed records that nobody wrote"

        def none_open() -> bool:
            ends = everything.ends()
            return {at: end for at, end in site.watch.ends().items() if at in ends} == ends

        until(none_open, "no transaction open", 20)
    finally:
        everything.close()


def rolled_back(site: Site, topic: str) -> int:
    """How many records of a topic only read_uncommitted sees."""
    everything = Watch(site, "read_uncommitted", [topic])
    try:
        everything.read_up()
        site.watch.read_up()
        return len(everything.by_topic[topic]) - len(site.watch.by_topic[topic])
    finally:
        everything.close()


class Person:
    """Answers questions as somebody does who looks outside first."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.answered: dict[str, str] = {}

    def look(self) -> None:
        for key, question in self._site.watch.questions().items():
            if key in self.answered:
                continue
            if question["kind"] == "in_doubt":
                self.answered[key] = self._settle(question)
            elif question["kind"] == "action":
                self.answered[key] = "approve"
                self._site.decide(question, "approve")

    def _settle(self, question: dict[str, Any]) -> str:
        ref, tool = question["arguments"]["ref"], question["tool"]
        happened = self._site.service.count(tool, ref)
        assert happened <= 1, (
            f"{question['action_id']}: {happened} effects before anybody was asked"
        )
        if happened:
            self._site.decide(question, "mark_done", reason="it is there", answer={"by": "ann"})
            return "mark_done"
        self._site.decide(question, "mark_not_done", reason="it is not there")
        return "mark_not_done"

    def doubts(self, run_id: str) -> list[str]:
        """What was said about calls of this run that nobody could tell about."""
        return [
            word
            for key, word in self.answered.items()
            if key.rpartition("/")[0] == run_id and word != "approve"
        ]
