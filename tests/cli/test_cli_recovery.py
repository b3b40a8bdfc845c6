"""Losses and ways back, with the commands, against a real broker: retry, fork, rebuild, accepted losses."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from perdure.schemas import topics

from .desk import Desk

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(150)]


@pytest.fixture(scope="module")
def desk(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    made = Desk(tmp_path_factory.mktemp("desk"), broker, f"t-{uuid.uuid4().hex[:8]}.")
    made.start()
    yield made
    made.stop()
    admin = AdminClient({"bootstrap.servers": broker, "log_level": 0})
    names = [name for name in admin.list_topics(timeout=10).topics if name.startswith(made.prefix)]
    for future in admin.delete_topics(names).values():
        future.exception()


def lose(desk: Desk, topic: str) -> None:
    """All records of a topic are deleted."""
    admin = AdminClient({"bootstrap.servers": desk.bootstrap, "log_level": 0})
    known = admin.list_topics(timeout=10).topics[desk.prefix + topic].partitions
    all_of = [TopicPartition(desk.prefix + topic, number, -1) for number in known]
    for future in admin.delete_records(all_of).values():
        future.result(10)


PLAN = """
- {id: note, tool: notes.add, arguments: {text: {$: input}}}
- {id: open, tool: door.open, arguments: {door: north, code: "1"}}
"""


def test_lost_state_is_rebuilt_and_runs_go_on(desk: Desk) -> None:
    desk.asks("waits-1")
    done = desk("submit", "--agent", "clerk", "--input", "x", "--id", "done-1", "--wait", "--timeout", "30")  # fmt: skip
    assert done.exit_code == 0, done.stderr
    paused = desk("pause", "waits-1")
    assert paused.exit_code == 0, paused.stderr
    refused = desk("rebuild", "--yes")
    assert refused.exit_code == 5
    assert "is in use by process" in refused.stderr
    elsewhere = desk("rebuild", "--yes", "--data-dir", str(desk.directory / "elsewhere"))
    assert elsewhere.exit_code == 1
    assert "1 engines are running" in elsewhere.stderr
    desk.stop()
    admin = AdminClient({"bootstrap.servers": desk.bootstrap, "log_level": 0})
    (gone,) = admin.delete_topics([desk.prefix + topics.changelog(topics.ENGINE)]).values()
    gone.result(10)
    made = desk("rebuild", "--yes", "--json")
    assert made.exit_code == 0, made.stderr
    desk.again()
    for run_id in ("waits-1", "done-1"):
        verified = desk("verify", run_id)
        assert verified.exit_code == 0, verified.stderr
    assert desk.json("show", "waits-1")[0]["paused"] is True
    assert desk("resume", "waits-1").exit_code == 0
    assert desk("approve", "waits-1/a1").exit_code == 0
    (outcome,) = desk.json("submit", "--agent", "clerk", "--input", "x", "--id", "done-1", "--wait")
    assert outcome["status"] == "done", "the same task is known: its outcome is the first one"
    assert (
        len([e for e in desk.json("show", "done-1", "--events") if e.get("type") == "run_started"])
        <= 1
    )


def test_lost_tasks_stop_their_partition_until_the_loss_is_accepted(desk: Desk) -> None:
    desk.asks("before-1")
    desk.stop()
    whole = desk("topics", "check", "--accept-loss", f"{topics.TASKS}-0")
    assert whole.exit_code == 1, whole.stderr
    assert "nothing is lost of agent.tasks-0" in whole.stderr
    for number in range(8):  # unread, on every partition
        assert (
            desk(
                "submit", "--agent", "clerk", "--input", "lost", "--id", f"lost-{number}"
            ).exit_code
            == 0
        )
    lose(desk, topics.TASKS)
    desk.again(wait=False)
    names = [f"{topics.TASKS}-{number}" for number in (0, 1)]
    desk.until(lambda: all(f"--accept-loss {name}" in desk.said("engine") for name in names))
    refused = desk("topics", "check", "--accept-loss", names[0])
    assert refused.exit_code == 1
    assert "stop them first" in refused.stderr
    desk.stop()
    accepted = desk("topics", "check", "--accept-loss", names[0], "--accept-loss", names[1])
    assert f"goes on at {names[1]}" in accepted.stderr
    desk.again()
    done = desk("submit", "--agent", "clerk", "--input", "x", "--id", "after-1", "--wait", "--timeout", "30")  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert desk("approve", "before-1/a1").exit_code == 0, "state is untouched by a loss of tasks"


def test_a_failed_run_is_tried_again_and_an_earlier_version_forked(desk: Desk) -> None:
    plan = desk.directory / "plan.yaml"
    plan.write_text(PLAN)
    failed = desk(
        "submit", "--agent", "porter", "--input", "bad", "--plan", str(plan), "--id", "again-1",
        "--user", "guest", "--wait", "--timeout", "30",
    )  # fmt: skip
    assert failed.exit_code == 1, failed.stderr
    refused = desk("resume", "again-1")
    assert refused.exit_code == 1
    retried = desk("retry", "again-1", "--reason", "once more")
    assert retried.exit_code == 0, retried.stderr
    desk.until(lambda: desk.json("show", "again-1")[0]["status"] == "failed")
    (action,) = desk.json("show", "again-1")[0]["actions"]
    assert (action["status"], action["attempts"]) == ("failed", 2)
    assert desk("verify", "again-1").exit_code == 0

    desk.asks("fork-1")
    forked = desk("fork", "fork-1", "--id", "fork-2", "--wait", "--no-input", "--timeout", "30")
    assert forked.exit_code == 4, forked.stderr
    assert "fork-2/a1" in desk.json("pending")[-1]["approval_id"] or len(desk.json("pending")) >= 2
    assert desk("approve", "fork-2/a1").exit_code == 0
    desk.until(lambda: desk.json("show", "fork-2")[0]["status"] == "done")
    assert desk("verify", "fork-2").exit_code == 0
    assert desk.json("show", "fork-1")[0]["status"] == "waiting_approval"
    nothing = desk("fork", "fork-1", "--at-version", "999")
    assert nothing.exit_code == 1
    assert "versions, not 999" in nothing.stderr
