"""The commands against a real broker, an engine and a worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Producer
from perdure.schemas import topics
from perdure.schemas.records import RunEvent
from perdure.streams.engine import layout

from perdure.reading import Scanner, event_of, live

from .desk import Desk

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def desk(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """One deployment for all tests of this file: each uses runs of its own."""
    prefix = f"t-{uuid.uuid4().hex[:8]}."
    made = Desk(tmp_path_factory.mktemp("desk"), broker, prefix)
    made.start()
    yield made
    made.stop()
    made.remove()


def _write(desk: Desk, topic: str, key: bytes, value: bytes, partition: int = -1) -> None:
    producer = Producer({"bootstrap.servers": desk.bootstrap, "partitioner": "murmur2_random"})
    producer.produce(desk.prefix + topic, value, key, partition=partition)
    assert producer.flush(10) == 0


def _scanner(desk: Desk) -> Scanner:
    return Scanner({"bootstrap.servers": desk.bootstrap}, desk.prefix)


def _events(desk: Desk, run_id: str) -> list[RunEvent]:
    found = [event_of(raw) for raw in _scanner(desk).scan([topics.EVENTS], run_id=run_id) if raw]
    return [event for event in found if event is not None and event.run_id == run_id]


def test_apply_says_what_changed_and_refuses_what_no_worker_announces(desk: Desk) -> None:
    again = desk.json("apply", "-f", str(desk.agents))
    assert [(each["agent"], each["change"], each["version"]) for each in again] == [
        ("clerk", "unchanged", 1),
        ("porter", "unchanged", 1),
    ]
    other = desk.directory / "other.yaml"
    other.write_text("agents: {temp: {tools: [notes.ad]}}")
    refused = desk("apply", "-f", str(other))
    assert refused.exit_code == 1
    assert "did you mean notes.add?" in refused.stderr
    other.write_text("agents: {temp: {tools: [notes.add]}}")
    assert "agent/temp  new, version 1" in desk("apply", "-f", str(other)).stdout
    other.write_text("agents: {temp: {tools: [notes.add], handover_after: 4}}")
    assert "changed, version 2: handover_after" in desk("apply", "-f", str(other)).stdout
    assert desk("delete", "agent/temp").exit_code == 0
    gone = desk("delete", "agent/portr")
    assert gone.exit_code == 1
    assert "did you mean agent/porter?" in gone.stderr


def test_submit_waits_and_verify_finds_everything_equal(desk: Desk) -> None:
    task = {"task_id": "note-1", "agent": "clerk", "input": "tea"}
    done = desk("submit", "-", "--wait", "--timeout", "30", "--json", stdin=json.dumps(task))
    assert done.exit_code == 0, done.stderr
    (outcome,) = [json.loads(text) for text in done.stdout.splitlines()]
    assert (outcome["run_id"], outcome["status"]) == ("note-1", "done")
    report = desk.json("verify", "note-1")[0]
    assert report["ok"], report
    assert (report["outcome"], report["live"]) == ("equal", "equal")
    assert report["hash"] == outcome["hash"]
    early = desk.json("verify", "note-1", "--at-version", "3")[0]
    assert (early["ok"], early["version"]) == (True, 3)
    assert desk("submit", "--agent", "clerk", "--input", "x", "--id", "note-1").exit_code == 0
    wait = ("--id", "note-1", "--wait", "--timeout", "20")
    again = desk("submit", "--agent", "clerk", "--input", "tea", *wait)
    assert (again.exit_code, again.stdout.startswith("note-1 done")) == (0, True)
    other = desk("submit", "--agent", "clerk", "--input", "coffee", *wait)
    refused = "note-1 refused: task_id note-1 is taken by another task (conflict)\n"
    assert (other.exit_code, other.stdout) == (1, refused)


def test_a_failed_run_makes_submit_fail(desk: Desk) -> None:
    plan = desk.directory / "plan.yaml"
    plan.write_text("[{id: one, tool: notes.add, arguments: {text: bad}}]")
    failed = desk(
        "submit", "--agent", "clerk", "--plan", str(plan), "--id", "bad-1", "--wait", "--timeout", "30"
    )  # fmt: skip
    assert failed.exit_code == 1
    assert failed.stdout.startswith("bad-1 failed")


def test_a_question_is_shown_covered_and_decided_once(desk: Desk) -> None:
    desk.asks("door-1")
    (question,) = [each for each in desk.json("pending") if each["run_id"] == "door-1"]
    assert question["arguments"] == {"door": "north", "code": "***"}
    assert question["rule"]["arguments"]["code"] == "***"
    every = desk("show", "door-1", "--events").stdout
    told = [text for text in every.splitlines() if not text.lstrip().startswith("run_started")]
    assert "4711" not in desk("pending").stdout + "".join(told)  # the script itself names it
    assert "4711" in desk("pending", "--uncover").stdout
    text = desk("pending").stdout
    assert "perdure approve door-1/a1" in text
    assert "left, until" in text

    own = desk("approve", "door-1/a1", "--as", "guest")
    assert own.exit_code == 1
    assert "is the task's user" in own.stderr
    wrong = desk("decide", "door-1/a1", "mark_done", "--reason", "x")
    assert wrong.exit_code == 1
    assert "takes approve, modify, reject, cancel_run" in wrong.stderr
    other = desk("approve", "door-1/a1", "--digest", "0" * 64)
    assert other.exit_code == 1
    assert "digest" in other.stderr

    said = desk("approve", "door-1/a1", "--json")
    assert said.exit_code == 0, said.stderr
    assert json.loads(said.stdout)["accepted"] is True
    second = desk("approve", "door-1/a1", "--as", "bob", "--json")
    assert second.exit_code == 1
    assert json.loads(second.stdout)["accepted"] is False
    assert "already closed by ann" in second.stderr

    followed = desk("show", "door-1", "--follow")
    assert followed.exit_code == 0
    assert "approver:ann" in followed.stdout
    (state,) = desk.json("show", "door-1")
    assert (state["status"], state["quarantined"], state["paused"]) == ("done", False, False)
    action = next(each for each in state["actions"] if each["tool"] == "door.open")
    assert (action["approved_by"], action["result"]) == ("ann", {"opened": "north", "code": "***"})
    assert "4711" not in json.dumps(state)
    (open_state,) = desk.json("show", "door-1", "--uncover")
    assert "4711" in json.dumps(open_state)


def test_runs_followed_tells_what_happens_until_it_is_interrupted(desk: Desk) -> None:
    desk.asks("door-8")  # before it looks: its story is read from the beginning
    command = [sys.executable, "-m", "perdure", "runs", "--follow", "--agent", "porter"]
    following = subprocess.Popen(
        command, env=os.environ | desk.environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert following.stdout is not None
        assert any("door-8" in line for line in following.stdout), "the list comes first"
        desk("submit", "--agent", "clerk", "--input", "tea", "--id", "note-8")  # another agent's
        assert desk("approve", "door-8/a1").exit_code == 0
        told = []
        for line in following.stdout:
            told.append(line)
            if "Finished: done" in line:
                break
    finally:
        following.send_signal(signal.SIGINT)
        following.communicate(timeout=20)
    assert following.returncode == 130
    story = [line for line in told if "  door-8  " in line]
    assert "ann decided a1: approve" in story[0]
    assert any('succeeded: {"code":"***","opened":"north"}' in line for line in story)
    assert not any("note-8" in line for line in told)


def test_a_rejection_carries_its_reason_and_runs_lists_it(desk: Desk) -> None:
    desk.asks("door-2")
    bare = desk("reject", "door-2/a1")
    assert (bare.exit_code, "needs --reason" in bare.stderr) == (2, True)
    assert desk("reject", "door-2/a1", "--reason", "not today").exit_code == 0
    shown = desk("show", "door-2", "--follow")
    assert "not today" in shown.stdout
    listed = desk.json("runs", "--user", "guest", "--status", "done")
    assert "door-2" in {run["run_id"] for run in listed}
    assert desk.json("runs", "--agent", "nobody") == []
    assert "door-2" in desk("runs").stdout


def test_cancel_pause_and_resume_get_their_verdicts(desk: Desk) -> None:
    desk.asks("door-3")
    assert desk("pause", "door-3").exit_code == 0
    assert desk.json("show", "door-3")[0]["paused"] is True
    twice = desk("pause", "door-3")
    assert (twice.exit_code, "already paused" in twice.stderr) == (1, True)
    assert desk("resume", "door-3").exit_code == 0
    assert desk("extend", "door-3", "--steps", "5").exit_code == 0
    assert desk.json("show", "door-3")[0]["budget"]["steps"] == 25
    late = desk("cancel", "door-3", "--expected-version", "1")
    assert (late.exit_code, "not 1" in late.stderr) == (1, True)
    assert desk("cancel", "door-3", "--reason", "no door").exit_code == 0
    assert desk("show", "door-3", "--follow").exit_code == 0
    assert desk.json("show", "door-3")[0]["status"] == "cancelled"
    assert not [each for each in desk.json("pending") if each["run_id"] == "door-3"]
    again = desk("cancel", "door-3")
    assert (again.exit_code, "the run is cancelled" in again.stderr) == (1, True)


def test_show_says_where_a_task_without_a_run_is(desk: Desk) -> None:
    nowhere = desk("show", "nowhere")
    assert (nowhere.exit_code, "there is no run nowhere" in nowhere.stderr) == (1, True)
    _write(desk, topics.TASKS, b"odd-1", b'{"task_id": "odd-1", "input": "no agent"}')
    for _ in range(20):
        refused = desk("show", "odd-1")
        if "never became a run" in refused.stderr:
            break
    assert refused.exit_code == 1
    assert "never became a run: Refused: agent: is required" in refused.stderr


def test_doctor_and_topics_find_the_deployment_sound(desk: Desk) -> None:
    found = {each["name"]: each for each in desk.json("doctor")}
    assert found["kafka"]["level"] == "ok"
    assert found["engine"]["text"].startswith("1 process")
    assert "engine.desk by process" in found["data directory"]["text"]
    checked = desk.json("topics", "check")[0]
    assert checked["ok"]
    assert "nothing to create" in desk("topics", "create").stderr
    assert f"{desk.prefix}agent.events" in desk("topics", "acls").stdout


def test_verify_finds_a_forged_event(desk: Desk) -> None:
    done = desk(
        "submit", "--agent", "clerk", "--input", "milk", "--id", "forged", "--wait", "--timeout", "30"
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    last = _events(desk, "forged")[-1]
    more = msgspec.structs.replace(last, version=last.version + 1, previous_hash=last.hash)
    _write(desk, topics.EVENTS, b"forged", msgspec.json.encode(more))
    told = desk("verify", "forged", "--json")
    assert told.exit_code == 1
    report = json.loads(told.stdout)
    assert "was changed: its hash is not that of its content" in report["differences"][0]
    assert f"version {more.version}" in report["differences"][0]
    shown = desk("show", "forged")
    assert (shown.exit_code, "perdure verify" in shown.stderr) == (1, True)
    assert "forged" in {run["run_id"] for run in desk.json("runs")}
    before = desk.json("verify", "forged", "--at-version", str(last.version))[0]
    assert before["ok"]


def test_verify_finds_a_live_state_that_no_event_made(desk: Desk) -> None:
    done = desk(
        "submit", "--agent", "clerk", "--input", "eggs", "--id", "bent", "--wait", "--timeout", "30"
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    scanner = _scanner(desk)
    key = layout.record("bent", ("a", 2))
    codecs = layout.Codecs()
    action = codecs.decode(key, live(scanner, "bent")[key])
    bent = msgspec.structs.replace(action, attempt=7)
    (where,) = {
        raw.partition
        for raw in scanner.scan([topics.changelog(topics.ENGINE)], run_id="bent")
        if raw is not None
    }
    _write(desk, topics.changelog(topics.ENGINE), key, codecs.encode(key, bent), where)
    told = desk("verify", "bent")
    assert told.exit_code == 1
    assert "live state: action 2.attempt: 7, but the events give 1" in told.stderr

    flag = layout.Quarantine(reason="KeyError: 'n'", since=1, parked=2)
    mark = layout.quarantine("bent")
    _write(desk, topics.changelog(topics.ENGINE), mark, codecs.encode(mark, flag), where)
    assert desk.json("show", "bent")[0]["quarantined"] is True
    assert "quarantined since" in desk("show", "bent").stdout


def test_nobody_is_left_in_the_dark_without_kafka(tmp_path: Path) -> None:
    lost = Desk(tmp_path, "127.0.0.1:1", "x.")
    looked = lost("runs")
    assert (looked.exit_code, "127.0.0.1:1 does not answer" in looked.stderr) == (3, True)


def test_a_decision_is_signed_where_its_approver_has_a_key(desk: Desk) -> None:
    (made,) = desk.json("keys", "create", "cas")
    assert Path(made["private"]).stat().st_mode & 0o077 == 0
    assert '"d"' not in Path(made["public"]).read_text()
    again = desk("keys", "create", "cas")
    assert again.exit_code == 1
    assert "--replace" in again.stderr
    desk.asks("signed-1")
    approved = desk("approve", "signed-1/a1", "--as", "cas")
    assert approved.exit_code == 0, approved.stderr
    assert "signed as cas" in approved.stderr
    desk.asks("signed-2")
    assert desk("approve", "signed-2/a1", "--as", "dan").exit_code == 0
    found = [
        event.data["verified"]
        for run_id in ("signed-1", "signed-2")
        for event in _events(desk, run_id)
        if event.type == "approval_decided"
    ]
    assert found == ["signature", "none"]
