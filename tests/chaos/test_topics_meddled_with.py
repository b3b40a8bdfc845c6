"""What others do to the topics: open transactions, deleted records, topics made anew (T06, T07)."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.chaos.deployed import COMMANDS, CONTROL, DECISIONS, RESULTS, TASKS, Site, plan_of
from tests.chaos.judge import Person, check_runs
from tests.kafka.world import until

pytestmark = [pytest.mark.kafka, pytest.mark.chaos, pytest.mark.soak]


def started(site: Site) -> None:
    site.role("engine").start()
    site.role("worker").start()
    site.ready()


def perdure(site: Site, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "perdure", *arguments]
    command += ["--bootstrap-servers", site.bootstrap, "--topic-prefix", site.prefix]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=site.directory)


def log_ends(site: Site, topic: str) -> list[int]:
    """Of its two partitions."""
    admin = AdminClient({"bootstrap.servers": site.bootstrap, "log_level": 0})
    spots = [TopicPartition(site.prefix + topic, p) for p in (0, 1)]
    answers = admin.list_offsets({spot: OffsetSpec.latest() for spot in spots})
    return [answers[spot].result(20).offset for spot in spots]


def delete_records(site: Site, topic: str, upto: list[int]) -> None:
    """All below these offsets."""
    admin = AdminClient({"bootstrap.servers": site.bootstrap, "log_level": 0})
    spots = [TopicPartition(site.prefix + topic, p, at) for p, at in enumerate(upto) if at]
    for answer in (admin.delete_records(spots) if spots else {}).values():
        answer.result(20)


def test_t07_open_foreign_transaction_holds_its_partition_only(site: Site) -> None:
    started(site)
    foreign = Producer(
        {
            "bootstrap.servers": site.bootstrap, "transactional.id": f"{site.prefix}foreign",
            "transaction.timeout.ms": 60_000, "log_level": 0,
        }
    )  # fmt: skip
    foreign.init_transactions(20)
    foreign.begin_transaction()
    foreign.produce(
        site.prefix + TASKS, b'{"task_id": "foreign", "agent": "agent", "plan": []}', b"foreign", 0
    )
    assert foreign.flush(10) == 0
    site.submit(plan_of("held", "put", "pay"), partition=0)
    site.submit(plan_of("free", "put", "pay"), partition=1)
    assert site.outcome("free", 30)["complete"] is True
    told = perdure(site, "doctor")
    assert f"{site.prefix}{TASKS}-0 is held by a transaction open" in told.stdout + told.stderr
    assert site.watch.outcome("held") is None
    assert site.service.count("put", "held") == 0
    foreign.abort_transaction(10)
    assert site.outcome("held", 30)["complete"] is True
    site.watch.read_up()
    assert site.watch.events("foreign") == []
    check_runs(site, ["held", "free"])


def test_t06_first_start_takes_the_tasks_that_wait(site: Site) -> None:
    made = perdure(site, "topics", "create")
    assert made.returncode == 0, made.stderr
    site.submit(*(plan_of(f"early-{n}", "gift") for n in range(4)))
    started(site)
    site.submit(*(plan_of(f"late-{n}", "gift") for n in range(4)))
    person = Person(site)
    for name in ("late", "early"):
        for n in range(4):
            outcome = site.outcome(f"{name}-{n}", 60, person.look)
            # The agent may have become known only after 10 s of waiting for it.
            assert outcome["complete"] is True, outcome["text"]


def test_t06_deleted_records_stop_their_partition_and_are_named(site: Site) -> None:
    started(site)
    site.submit(*(plan_of(f"done-{n}", "pay") for n in range(6)))
    for n in range(6):
        site.outcome(f"done-{n}")
    engine = site.roles[0]
    assert engine.stop() == 0
    first_lost = log_ends(site, TASKS)[0]
    site.submit(*(plan_of(f"lost-{n}", "pay") for n in range(3)), partition=0)
    site.submit(plan_of("kept", "pay"), partition=1)
    delete_records(site, TASKS, [first_lost + 3, 0])
    engine.start()
    engine.until_said(f"the records {first_lost} to {first_lost + 2} of {TASKS}-0 are gone")
    site.submit(*(plan_of(f"on-{n}", "pay") for n in range(8)), partition=1)
    outcomes = 0
    # A run of partition 1 goes on; one that belongs to partition 0 waits for somebody to decide.
    for n in range(8):
        owner = partition_of(f"on-{n}", 2)
        if owner == 1:
            assert site.outcome(f"on-{n}")["complete"] is True
            outcomes += 1
    assert outcomes > 0
    for n in range(6):
        assert site.service.count("pay", f"done-{n}") == 1
    assert all(site.service.count("pay", f"lost-{n}") == 0 for n in range(3))
    assert engine.running()


def test_t06_topic_made_anew_is_not_read_with_the_old_offsets(site: Site) -> None:
    started(site)
    site.submit(*(plan_of(f"old-{n}", "pay") for n in range(4)))
    for n in range(4):
        site.outcome(f"old-{n}")
    engine = site.roles[0]
    assert engine.stop() == 0
    admin = AdminClient({"bootstrap.servers": site.bootstrap, "log_level": 0})
    name = site.prefix + TASKS
    admin.delete_topics([name])[name].result(20)
    until(lambda: name not in admin.list_topics(timeout=5).topics, "gone")
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(20)
    until(lambda: name in admin.list_topics(timeout=5).topics, "made anew")
    site.submit(*(plan_of(f"new-{n}", "pay") for n in range(4)))
    engine.start()
    engine.until_said(f"{TASKS} was deleted and made anew")
    assert engine.running()
    for n in range(4):
        assert site.service.count("pay", f"old-{n}") == 1
        assert site.service.count("pay", f"new-{n}") == 0, "work was taken up without a decision"


def test_t06_retention_of_what_was_read_is_no_loss(site: Site) -> None:
    """Everything inbound has been read and is then deleted, as retention does after some days."""
    started(site)
    site.submit(plan_of("asked", "gift"))
    site.question("asked")
    engine, worker = site.roles
    # What stands in the logs now has been read: the question says so, and nothing else is there.
    assert engine.stop() == 0
    assert worker.stop() == 0
    for topic in (TASKS, RESULTS, DECISIONS, CONTROL, "agent.forwarded", COMMANDS):
        delete_records(site, topic, log_ends(site, topic))
    engine.start()
    worker.start()
    site.decide(site.question("asked"), "approve")
    assert site.outcome("asked")["complete"] is True
    assert site.service.count("gift", "asked") == 1
    site.submit(plan_of("next", "pay"))
    assert site.outcome("next")["complete"] is True
    check_runs(site, ["asked", "next"])


def partition_of(key: str, partitions: int) -> int:
    """Java's default partitioner, which says who owns a run; written here anew."""
    data, seed, m = key.encode(), 0x9747B28C, 0x5BD1E995
    mask = 0xFFFFFFFF
    h = (seed ^ len(data)) & mask
    for i in range(0, len(data) - len(data) % 4, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    tail = data[len(data) - len(data) % 4 :]
    if tail:
        h = ((h ^ int.from_bytes(tail, "little")) * m) & mask
    h = (h ^ h >> 13) * m & mask
    h ^= h >> 15
    return (h & 0x7FFFFFFF) % partitions


@pytest.mark.parametrize("late", [False, True], ids=["in_time", "late"])
def test_a07_engine_down_while_the_decision_arrives(site: Site, late: bool) -> None:
    """What counts is when the broker took the decision, not when an engine came to read it."""
    started(site)
    site.agent(
        {
            "name": "hasty", "tools": ["gift"], "people": {},
            "approvals": [{"approvers": ["ann"], "within_seconds": 4, "on_timeout": "reject"}],
        }
    )  # fmt: skip
    site.submit({**plan_of("asked", "gift"), "agent": "hasty"})
    question = site.question("asked")
    engine = site.roles[0]
    engine.kill()
    over = question["expires_at"] / 1000
    if late:
        until(lambda: time.time() > over + 0.5, "the time is over", 10)
    assert late or time.time() < over - 0.5
    site.decide(question, "approve", request_id="asked-by-ann")
    until(lambda: time.time() > over + 1, "the time is over", 10)
    engine.start()
    outcome = site.outcome("asked", 60)
    site.watch.read_up()
    decided = [e for e in site.watch.events("asked") if e["type"] == "approval_decided"]
    expired = [e for e in site.watch.events("asked") if e["type"] == "approval_expired"]
    (verdict,) = [v.value for v in site.watch.by_key["agent.verdicts", "asked"]]
    if late:
        assert site.service.count("gift", "asked") == 0
        assert verdict["accepted"] is False
        assert len(expired) == 1
        assert not any(e["actor"] == "approver:ann" for e in decided)
        assert outcome["complete"] is False
    else:
        assert site.service.count("gift", "asked") == 1
        assert verdict["accepted"] is True
        assert expired == []
        assert outcome["complete"] is True
    check_runs(site, ["asked"])
