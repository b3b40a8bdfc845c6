"""Runs that wait for people cost nothing but their records; their answers count once.

The short form of each test is part of `make test`, the long one of `make soak`. `pytest -s` prints
the figures.
"""

from __future__ import annotations

import random
import time
import uuid
from collections import Counter
from typing import Any

import pytest

from tests.cases.deployment import Deployment
from tests.cases.watcher import Watcher

from .crowd import (
    LONG,
    PING,
    SHORT,
    Commands,
    Held,
    NewTasks,
    Sender,
    Wave,
    decide,
    held,
    quantiles,
    questions,
    submit,
)

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]

LOOK = 0.1
"""Looking costs time of the machine that is measured."""
PER_RUN_KB = 10
"""More than a waiting run takes in the store's write buffer, less than a call held for it."""


def say(text: str) -> None:
    print("  " + text)


@pytest.mark.parametrize("runs", [100, pytest.param(1000, marks=pytest.mark.soak)])
def test_runs_that_wait(crowd: Deployment, runs: int) -> None:
    stamp, seed = uuid.uuid4().hex[:6], random.randrange(10**6)
    print(f"\n{runs} runs that wait for approval (seed {seed})")
    chance = random.Random(seed)
    names = [f"w-{stamp}-{number}" for number in range(runs)]
    _probe(crowd, f"warm-{stamp}", 20)

    tenth = _opened(crowd, names[: runs // 10], stamp)
    whole = _opened(crowd, names[runs // 10 :], stamp, runs)
    for role in ("engine", "worker"):
        say(f"{role}: {runs // 10} waiting: {tenth[role]}; {runs} waiting: {whole[role]}")
        assert whole[role].threads <= tenth[role].threads + 2
        grown = (whole[role].rss_mb - tenth[role].rss_mb) * 1024
        assert grown < 8_000 + PER_RUN_KB * runs, f"{role}: {grown:.0f} kB more"

    for role in ("engine", "worker"):
        crowd.kill(role)
    _probe(crowd, f"again-{stamp}", 6)
    after = {role: held(crowd.pid(role)) for role in ("engine", "worker")}
    say(f"after kill -9 of both: engine {after['engine']}; worker {after['worker']}")
    assert after["engine"].rss_mb < whole["engine"].rss_mb + 20
    assert _open_on_the_topic(crowd, stamp) == set(names)
    assert not _paid(crowd, names)

    with Commands(crowd) as commands:
        alone, rest = names[: runs // 20], names[runs // 20 :]
        one_by_one = []
        for run_id in alone:
            at = decide(crowd, [run_id], chance)[run_id]
            crowd.until(lambda run_id=run_id: run_id in commands.first, f"command of {run_id}")
            one_by_one.append(commands.first[run_id] - at)
        began = time.monotonic()
        sent = decide(crowd, rest, chance)
        crowd.until(lambda: set(rest) <= set(commands.first), "a command of each run", 120, LOOK)
        burst = time.monotonic() - began
        paid = crowd.until(lambda: _all_paid(crowd, names), "an effect of each run", 120, LOOK)
    say(f"decision to command, one at a time: {quantiles(one_by_one)}")
    together = quantiles([commands.first[run_id] - at for run_id, at in sent.items()])
    say(f"{2 * len(rest)} decisions at once, all commands after {burst:.1f} s: {together}")

    verdicts = crowd.topics.wait(
        "agent.verdicts", lambda seen: seen.key in sent, "verdicts", 60, 2 * len(rest)
    )
    assert all(seen.value["accepted"] for seen in verdicts), "a repeated yes is told the same"
    assert len({(seen.key, seen.value["version"]) for seen in verdicts}) == len(rest)
    crowd.until(lambda: _ended(crowd, names), "every run's outcome", 60, LOOK)
    assert paid == _paid(crowd, names) == dict.fromkeys(names, 1)
    assert {name: commands.count[name] for name in names} == dict.fromkeys(names, 1)
    assert questions(crowd, f"w-{stamp}-") == set()
    end = held(crowd.pid("engine"))
    say(f"engine when all are done: {end}")


def _opened(
    crowd: Deployment, names: list[str], stamp: str, wanted: int | None = None
) -> dict[str, Held]:
    submit(crowd, names)
    count = wanted or len(names)
    crowd.until(
        lambda: len(questions(crowd, f"w-{stamp}-")) == count, f"{count} open questions", 120, LOOK
    )
    return {role: held(crowd.pid(role)) for role in ("engine", "worker")}


def _probe(crowd: Deployment, prefix: str, count: int) -> None:
    """Small runs on both partitions, from their tasks to their outcomes."""
    names = [f"{prefix}-{number}" for number in range(count)]
    sender = Sender(crowd)
    for run_id in names:
        sender.send("agent.tasks", run_id, {"task_id": run_id, "agent": "payer", "plan": PING})
    sender.flush()
    crowd.until(lambda: _ended(crowd, names), f"the outcomes of {prefix}", 60)


def _ended(crowd: Deployment, names: list[str]) -> bool:
    seen = {seen.key for seen in crowd.topics.on("agent.outcomes", lambda seen: seen.raw)}
    return set(names) <= seen


def _open_on_the_topic(crowd: Deployment, stamp: str) -> set[str]:
    """By a reader that comes only now."""
    fresh = Watcher(crowd.bootstrap, crowd.prefix, ["agent.approvals.pending"])
    known = questions(crowd, f"w-{stamp}-")
    try:
        fresh.wait(
            "agent.approvals.pending",
            lambda seen: (seen.key or "").startswith(f"w-{stamp}-"),
            "the open questions",
            count=len(known),
        )
        found = {str(seen.key).rpartition("/")[0] for seen in fresh.on("agent.approvals.pending")}
        assert known == {name for name in found if name.startswith(f"w-{stamp}-")}
        return known
    finally:
        fresh.close()


def _paid(crowd: Deployment, names: list[str]) -> dict[str, int]:
    """Counted outside: what the tool wrote down, by run."""
    wanted = set(names)
    made = (effect["run"] for effect in crowd.all_effects() if effect["tool"] == "pay")
    return dict(Counter(run for run in made if run in wanted))


def _all_paid(crowd: Deployment, names: list[str]) -> dict[str, int] | None:
    paid = _paid(crowd, names)
    return paid if len(paid) == len(names) else None


@pytest.mark.parametrize("wave", [SHORT, pytest.param(LONG, marks=pytest.mark.soak)])
def test_questions_that_expire_together(crowd: Deployment, wave: Wave) -> None:
    stamp = uuid.uuid4().hex[:6]
    count = wave.batches * wave.size
    print(f"\n{count} questions that expire together, while 40 new tasks a second come in")
    with Commands(crowd) as commands, NewTasks(crowd, f"n-{stamp}-", 40) as new:
        began = time.time() * 1000
        crowd.until(lambda: time.time() * 1000 > began + 2_000, "two quiet seconds")
        quiet = time.time() * 1000
        _open_in_batches(crowd, wave, f"e-{stamp}-")
        crowd.until(lambda: _asked(crowd, stamp) == count, f"{count} questions", 60, LOOK)
        expires = sorted(
            seen.value["expires_at"]
            for seen in crowd.topics.on("agent.approvals.pending")
            if seen.raw and str(seen.key).startswith(f"e-{stamp}-")
        )
        seconds = Counter(at // 1000 for at in expires)
        (_, densest), spread = seconds.most_common(1)[0], expires[-1] - expires[0]
        say(f"due within {spread / 1000:.1f} s, {densest} of them in one second")
        crowd.until(
            lambda: len(_expired(crowd, stamp)) >= count,
            "all have expired",
            wave.longest_seconds + 60,
            LOOK,
        )
        over = time.time() * 1000
        new.stop()
        crowd.until(lambda: set(new.sender.stamped) <= set(commands.first), "all new tasks", 60)
    before = new.latencies(commands, began, quiet)
    during = new.latencies(commands, expires[0] - 100, over)
    say(f"task to first command before: {quantiles(before)}")
    say(f"while they expire:            {quantiles(during)}")
    crowd.until(
        lambda: _ended(crowd, [f"e-{stamp}-{n}" for n in range(count)]), "all ended", 60, LOOK
    )
    _probe(crowd, f"later-{stamp}", 6)
    expired = _expired(crowd, stamp)
    assert Counter(event["run_id"] for event in expired) == {
        f"e-{stamp}-{number}": 1 for number in range(count)
    }
    late = sorted(event["at"] - expires[-1] for event in expired)
    say(f"the last has expired {late[-1] / 1000:.1f} s after it was due")
    assert _paid(crowd, [event["run_id"] for event in expired]) == {}
    assert densest > count / 4
    assert sorted(during)[len(during) // 2] < 3_000


def _open_in_batches(crowd: Deployment, wave: Wave, prefix: str) -> None:
    began = time.monotonic()
    for batch in range(wave.batches):
        due = began + batch * wave.step_seconds
        crowd.until(lambda due=due: time.monotonic() >= due, "the batch's time", 60)
        numbers = range(batch * wave.size, (batch + 1) * wave.size)
        submit(crowd, [f"{prefix}{number}" for number in numbers], wave.agent(batch))


def _asked(crowd: Deployment, stamp: str) -> int:
    """How many questions were ever opened."""
    pending = crowd.topics.on("agent.approvals.pending", lambda seen: seen.raw)
    return sum(str(seen.key).startswith(f"e-{stamp}-") for seen in pending)


def _expired(crowd: Deployment, stamp: str) -> list[dict[str, Any]]:
    return [
        seen.value
        for seen in crowd.topics.on(
            "agent.events",
            lambda seen: (
                str(seen.key).startswith(f"e-{stamp}-")
                and b'"type":"approval_expired"' in (seen.raw or b"")
            ),
        )
    ]
