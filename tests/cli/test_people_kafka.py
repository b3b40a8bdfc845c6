"""Commands for those who look back and those who decide: a real broker, an engine and a worker."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from perdure.schemas import topics

from .desk import Desk

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def desk(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """One deployment, in which one door was opened after a person's yes and one stays shut."""
    prefix = f"t-{uuid.uuid4().hex[:8]}."
    made = Desk(tmp_path_factory.mktemp("audit"), broker, prefix)
    made.start()
    made.asks("open-1")
    assert made("approve", "open-1/a1", "--as", "bob", "--reason", "let them in").exit_code == 0
    made.asks("shut-1")
    assert made("reject", "shut-1/a1", "--as", "ann", "--reason", "at night").exit_code == 0
    for run_id in ("open-1", "shut-1"):
        made.until(lambda run_id=run_id: made.json("show", run_id)[0]["status"] == "done")  # type: ignore[misc]
    yield made
    made.stop()
    made.remove()


def _sections(desk: Desk, *words: str) -> dict[str, Any]:
    return {made["section"]: made for made in desk.json("audit", *words)}


def test_audit_tells_a_run_and_finds_everything_equal(desk: Desk) -> None:
    told = desk("audit", "open-1")
    assert told.exit_code == 0, told.stderr
    for text in (
        "user guest asked the agent porter",
        "door.open, proposed by model:",
        "a person was asked: always (open-1/a1)",
        "bob, not proved: approve",
        "equal to the one decided on",
        'result: {"opened":"north","code":"***"}',
        "the outcome names the same version, hash and status",
    ):
        assert text in told.stdout
    assert "4711" not in told.stdout
    assert "4711" in desk("audit", "open-1", "--uncover").stdout
    found = _sections(desk, "open-1")
    assert list(found) == [
        "asked", "model", "versions", "rules", "decisions", "attempts", "notices", "end", "chain",
    ]  # fmt: skip
    assert {made["run_id"] for made in found.values()} == {"open-1"}
    assert found["chain"]["outcome"]["equal"]
    assert "4711" not in json.dumps(found)
    (question,) = found["decisions"]["questions"]
    assert [ran["equal"] for ran in question["ran"]] == [True]
    shut = _sections(desk, "shut-1")["decisions"]["questions"][0]
    assert (shut["decisions"][0]["reason"], shut["ran"]) == ("at night", [])


def test_audit_of_a_run_that_is_not_there(desk: Desk) -> None:
    none = desk("audit", "no-such-run")
    assert none.exit_code == 1
    assert "has no events" in none.stderr


def test_decisions_of_a_time_range(desk: Desk) -> None:
    every = desk.json("audit", "--decisions")
    assert [(each["run_id"], each["approver"], each["decision"]) for each in every] == [
        ("open-1", "bob", "approve"),
        ("shut-1", "ann", "reject"),
    ]
    assert every[0]["arguments"] == {"door": "north", "code": "***"}
    assert every[0]["requested_at"] < every[0]["decided_at"] <= time.time() * 1000
    later = str(every[1]["decided_at"])
    assert [each["run_id"] for each in desk.json("audit", "--decisions", "--since", later)] == [
        "shut-1"
    ]
    assert [each["run_id"] for each in desk.json("audit", "--decisions", "--until", later)] == [
        "open-1"
    ]
    ann = desk.json("audit", "--decisions", "--approver", "ann", "--agent", "porter")
    assert [each["run_id"] for each in ann] == ["shut-1"]
    assert len(desk.json("audit", "open-1", "--decisions")) == 1
    nothing = desk("audit", "--decisions", "--until", "2020-01-01")
    assert (nothing.exit_code, nothing.stdout) == (0, "")


def test_find_leads_from_an_argument_a_key_or_a_user_to_calls(desk: Desk) -> None:
    rows = desk.json("find", "--tool", "door.open", "--argument", "door=north")
    assert [(row["run_id"], row["status"]) for row in rows] == [
        ("shut-1", "rejected"),
        ("open-1", "succeeded"),
    ]
    assert rows[0]["arguments"] == {"door": "north", "code": "***"}
    key = rows[1]["idempotency_key"]
    assert [row["action_id"] for row in desk.json("find", "--key", key)] == ["open-1/2"]
    assert [row["action_id"] for row in desk.json("find", "--key", "open-1/2/")] == ["open-1/2"]
    assert [row["run_id"] for row in desk.json("find", "--user", "guest")] == ["shut-1", "open-1"]
    text = desk("find", "--argument", "door=north", "--limit", "1")
    assert text.exit_code == 0
    assert "shut-1" in text.stdout
    assert "open-1" not in text.stdout
    assert "more runs: 1" in text.stderr
    nothing = desk("find", "--argument", "door=south")
    assert nothing.exit_code == 1
    assert nothing.stdout == ""
    assert "nothing found in" in nothing.stderr


def talk(desk: Desk, *exchange: tuple[str, str]) -> str:
    """`perdure approve` at a terminal: what is waited for, and what is then typed."""
    words = [sys.executable, "-m", "perdure", "approve", "--as", "ann"]
    ours, theirs = pty.openpty()
    environment = os.environ | desk.environment | {"TERM": "dumb", "COLUMNS": "200"}
    process = subprocess.Popen(
        words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, close_fds=True
    )
    os.close(theirs)
    said = ""
    deadline = time.monotonic() + 60
    try:
        for awaited, typed in (*exchange, ("", "")):
            heard = ""
            while awaited not in heard or not awaited:
                assert time.monotonic() < deadline, said + heard
                if not select.select([ours], [], [], 0.2)[0]:
                    continue
                try:
                    heard += os.read(ours, 4096).decode()
                except OSError:  # the other end is closed
                    break
            said += heard
            if awaited:
                assert awaited in heard, said
                os.write(ours, typed.encode() + b"\n")
        assert process.wait(20) == 0, said
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    return said.replace("\r", "")


def test_a_dialogue_hides_what_is_sensitive_until_asked_and_sends_what_was_seen(desk: Desk) -> None:
    desk.asks("talk-1")
    said = talk(
        desk,
        ("which (1 to 1", "1"),
        ("or back", "modify"),
        ("what to change", '{"door": "south"}'),
        ("send it", "n"),
        ("which (1 to 1", "1"),
        ("or back", "uncover"),
        ("or back", "modify"),
        ("what to change", '{"door": "south"}'),
        ("send it", "y"),
        ("why", "the other one"),
    )
    assert "you decide as ann" in said
    before, _, after = said.partition("4711")
    assert before.count("code: ***") == 3, "shown, with what was changed, shown again"
    assert "accepted (modify)" in after
    assert "nothing waits for a person" in after
    desk.until(lambda: desk.json("show", "talk-1")[0]["status"] == "done")
    question = _sections(desk, "talk-1", "--uncover")["decisions"]["questions"][0]
    (ran,) = question["ran"]
    assert (ran["arguments"], ran["equal"]) == ({"door": "south", "code": "4711"}, True)


def test_an_event_that_nobody_but_a_forger_wrote_ends_the_audit(desk: Desk) -> None:
    """Last in this file: the run's events are not sound afterwards."""
    before = _sections(desk, "shut-1")["chain"]["version"]
    forged = {
        "run_id": "shut-1", "agent": "porter", "user_id": "guest", "session_id": "s",
        "tenant": "default", "version": before + 1, "type": "run_paused", "at": 1,
        "actor": "user:guest", "data": {}, "previous_hash": "", "hash": "",
    }  # fmt: skip
    producer = Producer({"bootstrap.servers": desk.bootstrap, "partitioner": "murmur2_random"})
    producer.produce(desk.prefix + topics.EVENTS, json.dumps(forged), b"shut-1")
    assert producer.flush(10) == 0
    told = desk("audit", "shut-1")
    assert told.exit_code == 1
    assert "ann, not proved: reject" in told.stdout
    assert "IT DOES NOT HOLD" in told.stdout
    assert "does not continue the chain" in told.stderr
