"""What `submit --wait` takes for the end of its task: never what another task left under its id."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest
import typer
from perdure.schemas import codec, topics
from perdure.schemas.canonical import digest
from perdure.schemas.records import ApprovalRequest, Outcome, Task
from perdure.streams.core.policies.approval import ALLOWED

from perdure.cli.waiting import Waiting, ends
from perdure.topics_reader import NoTopic, Raw
from tests.core.harness import World, agent, tool

TASK = Task(agent="notes", input="hello")
OTHER = Task(agent="notes", input="another")


class Log:
    """Topics of one partition each; the task is sent when `sent` is called."""

    def __init__(self) -> None:
        self.records: list[Raw] = []
        self.forbidden: tuple[str, ...] = ()
        self._next = dict.fromkeys((topics.OUTCOMES, topics.PENDING, topics.DEAD_LETTERS), 0)
        self.before: Any = {}

    def put(self, topic: str, key: str, value: bytes | None, **headers: bytes) -> None:
        at = self._next.get(topic, 0)
        self._next[topic] = at + 1
        self.records.append(Raw(topic, 0, at, 0, key.encode(), value, tuple(headers.items())))

    def ends(self, names: Sequence[str]) -> dict[tuple[str, int], int]:
        if set(names) & set(self.forbidden):
            raise NoTopic("no topic")
        return {(name, 0): self._next[name] for name in names}

    def scan(self, names: Sequence[str], **how: Any) -> Iterator[Raw | None]:
        starts = how.get("starts") or {}
        for raw in self.records:
            if raw.topic in names and raw.offset >= starts.get((raw.topic, 0), 0):
                yield raw
        yield None

    def sent(self) -> None:
        self.before = ends(self)  # type: ignore[arg-type]

    def started(self, task: Task) -> None:
        world = World(tool("look"), agent_spec=agent("look"))
        world.start("x")
        first = world.events[0]
        named = msgspec.structs.replace(task, task_id="note-1")
        made = msgspec.structs.replace(
            first,
            run_id="note-1",
            data=first.data | {"digest": digest(codec.decode(codec.encode(named), Task))},
        )
        self.put(topics.EVENTS, "note-1", msgspec.json.encode(made))

    def ended(self, text: str, status: Any = "done", **more: Any) -> None:
        made = Outcome(
            run_id="note-1", agent="notes", user_id="u", session_id="s", tenant="t",
            status=status, complete=status == "done", text=text, finished_at=1, **more,
        )  # fmt: skip
        self.put(topics.OUTCOMES, "note-1", codec.encode(made))

    def buried(self, task: Task, reason: bytes = b"conflict") -> None:
        named = msgspec.structs.replace(task, task_id="note-1")
        self.put(
            topics.DEAD_LETTERS, "note-1", codec.encode(named), reason=reason, detail=b"is taken"
        )

    def asks(self, kind: Any = "action", run_id: str = "note-1") -> None:
        made = ApprovalRequest(
            run_id=run_id, agent="notes", user_id="u", session_id="s", tenant="t",
            approval_id=f"{run_id}/a1", kind=kind, title="May I?", requested_at=1,
            expires_at=4_000_000_000_000, on_timeout="cancel_run", digest="",
            allowed_decisions=list(ALLOWED[kind]),
        )  # fmt: skip
        self.put(topics.PENDING, f"{run_id}/a1", codec.encode(made))


@pytest.fixture
def log() -> Log:
    return Log()


def wait(log: Log, *, no_input: bool = False, as_json: bool = False) -> int:
    """The exit code; with what is there only, as if the time were up."""
    waiting = Waiting(log, {"note-1": TASK}, log.before, 0.0, no_input, as_json)  # type: ignore[arg-type]
    try:
        waiting.until_all()
    except typer.Exit as left:
        return left.exit_code
    return 0


def test_the_outcome_of_another_task_is_not_that_of_this_one(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    log.started(OTHER)
    log.ended("the other's")
    log.sent()
    log.buried(TASK)
    assert wait(log) == 1
    told = capsys.readouterr()
    assert told.out == "note-1 refused: is taken (conflict)\n"
    assert "1 of 1 runs did not end as done" in told.err


def test_the_refusal_may_still_be_to_come(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    log.started(OTHER)
    log.ended("the other's")
    log.sent()
    assert wait(log) == 1
    told = capsys.readouterr()
    assert (told.out, "have not ended" in told.err) == ("", True)


def test_the_same_task_again_has_the_outcome_it_had(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    log.started(TASK)
    log.ended("as before")
    log.sent()
    assert wait(log) == 0
    assert capsys.readouterr().out == "note-1 done: as before\n"


def test_a_new_outcome_counts_whatever_was_before(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    log.started(OTHER)
    log.ended("of an id that was forgotten")
    log.sent()
    log.ended("this one's")
    assert wait(log) == 0
    assert capsys.readouterr().out == "note-1 done: this one's\n"


def test_a_refused_id_is_taken_anew(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    log.ended("Refused: no such agent", "failed", errors=[{"kind": "refused"}])
    log.sent()
    log.buried(TASK, b"refused")  # an outcome tells this too
    log.ended("now it is there")
    assert wait(log) == 0
    assert capsys.readouterr().out == "note-1 done: now it is there\n"


def test_a_letter_of_another_sender_is_none_of_ours(log: Log) -> None:
    log.sent()
    log.buried(OTHER)
    log.ended("done")
    assert wait(log) == 0


def test_an_outcome_that_was_taken_back_is_none(log: Log) -> None:
    log.started(TASK)
    log.ended("it failed", "failed")
    log.put(topics.OUTCOMES, "note-1", None)  # a retry
    log.sent()
    log.ended("then it was done")
    assert wait(log) == 0


def test_who_may_only_submit_is_told_by_the_events(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    log.forbidden = (topics.DEAD_LETTERS, topics.PENDING)
    log.started(OTHER)
    log.ended("the other's")
    log.sent()
    assert wait(log, as_json=True) == 1
    told = capsys.readouterr()
    assert (told.out, "note-1 refused: its id is taken by another task" in told.err) == ("", True)


@pytest.mark.parametrize(("task", "code"), [(TASK, 4), (OTHER, 1)])
def test_a_question_of_another_task_is_not_waited_for(log: Log, task: Task, code: int) -> None:
    log.started(task)
    log.asks()
    log.sent()
    assert wait(log, no_input=True) == code


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        ("action", "(perdure approve note-1/a1; or modify, reject, cancel_run: see"),
        ("clarification", "(perdure answer note-1/a1 TEXT; or cancel_run: see"),
        ("authority", "(perdure approve note-1/a1; or reject, cancel_run: see"),
        ("handover", "(perdure decide note-1/a1 retry; or answer, cancel_run: see"),
        ("in_doubt", "(perdure decide note-1/a1 mark_done --answer JSON --reason WHY; or mark_not"),
        ("budget", "(perdure decide note-1/a1 extend --steps N; or reject, cancel_run: see"),
    ],
)
def test_a_question_is_told_with_a_command_that_answers_it(
    log: Log, kind: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log.sent()
    log.asks(kind)
    assert wait(log, no_input=True) == 4
    assert f"note-1/a1 waits for a person: May I? {hint}" in capsys.readouterr().err
