"""What needs no broker: usage errors, help, the reference, text that can't fool a terminal."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
import typer
from perdure.schemas.records import ApprovalRequest, PlanStep, RunEvent, ToolSpec

from perdure.cli import reference, submit, terminal
from perdure.cli.app import app
from perdure.cli.pending import covered_question
from perdure.reading import Overview, covered
from tests.core.harness import World, agent, tool

from .desk import run

NO_KAFKA = {"PERDURE_BOOTSTRAP_SERVERS": "127.0.0.1:1"}


def _commands() -> list[tuple[str, Any]]:
    root: Any = typer.main.get_command(app)
    return reference._commands(root, "perdure")


@pytest.mark.parametrize(("path", "command"), _commands(), ids=lambda each: str(each))
def test_every_command_has_an_example_of_itself(path: str, command: Any) -> None:
    assert f"Example: {path}" in (command.help or "")


@pytest.mark.parametrize("name", reference.PAGES)
def test_page_is_what_the_code_says(name: str) -> None:
    committed = (reference.DOCS / name).read_text(encoding="utf-8")
    assert committed == reference.PAGES[name](), "run `python -m perdure.cli.reference`"


def test_a_code_span_of_a_page_ends_on_its_line() -> None:
    lines = reference.cli().splitlines()
    assert [line for line in lines if line.count("`") % 2] == []
    assert "Example: `perdure views --dev --rebuild`" in lines


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "line 2: not JSON"),
        ('{"agent": "a", "agent": "b"}', "line 2: agent: the key is there twice"),
        ('{"input": 1}', "line 2: agent: is required"),
        ('{"agent": "a", "plan": [{"id": "x"}]}', "line 2: plan[0].tool: is required"),
        ('{"agent": "a", "task_id": "a b"}', "line 2: task_id: must be 1 to 200 characters"),
        ('{"agent": "a", "task_id": "t~1"}', "line 2: task_id: ~ is for ids made by Perdure"),
        ('{"agent": "a", "task_id": "one"}', "already that of another task, on line 1"),
        ("[1]", "line 2: a task is a JSON object"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_sent(line: str, told: str) -> None:
    good = json.dumps({"agent": "b", "task_id": "one"})
    result = run("submit", "-", environment=NO_KAFKA, stdin=f"{good}\n{line}\n")
    assert result.exit_code == 2
    assert told in result.stderr
    assert result.stdout == ""


def test_a_mark_of_utf_8_before_the_first_task_is_no_part_of_it(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_bytes(b'\xef\xbb\xbf{"agent": "a", "task_id": "one"}\n{"agent": "b"}\n')
    assert [task.agent for task in submit.read_file(str(file))] == ["a", "b"]
    plan = tmp_path / "plan.json"
    plan.write_bytes(b'\xef\xbb\xbf[{"id": "x", "tool": "t"}]')
    made = submit.one_task("a", None, plan, None, None, None)
    assert made.plan is not None
    assert [step.id for step in made.plan] == ["x"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("submit",), "nothing to submit"),
        (("submit", "no-such-file.jsonl"), "can't be read"),
        (("submit", "--agent", "a"), "--agent needs --input or --plan"),
        (("submit", "x.jsonl", "--agent", "a"), "not both"),
        (("submit", "x.jsonl", "--user", "u"), "--user goes with --agent"),
        (("submit", "--agent", "a", "--input", '{"b": '), "--input: not JSON"),
        (("approve",), "name the question"),
        (("approve", "run-1"), "approval_id: must be <run_id>/a<n>"),
        (("decide", "r/a1", "perhaps"), "decision:"),
        (("modify", "r/a1", "--arguments", "{", "--reason", "x"), "--arguments: not JSON"),
        (("answer", "r/a1"), "give the answer"),
        (("extend", "r"), "say what to add"),
        (("cancel", "a/b"), "run_id: must be"),
        (("runs", "--status", "asleep"), "--status takes running"),
        (("delete", "tool/x"), "agent/NAME"),
        (("apply", "-f", "no-such.yaml"), "can't be read"),
    ],
)
def test_wrong_usage_ends_with_two_and_a_sentence(words: tuple[str, ...], told: str) -> None:
    result = run(*words, environment=NO_KAFKA)
    assert result.exit_code == 2, result.stderr
    assert told in result.stderr
    assert result.stdout == ""


def test_no_kafka_given_is_wrong_usage(tmp_path: Path) -> None:
    result = run("runs", environment={"PERDURE_DATA_DIR": str(tmp_path)})
    assert result.exit_code == 2
    assert "no Kafka given" in result.stderr


def test_init_writes_once_and_never_over(tmp_path: Path) -> None:
    where = tmp_path / "new"
    assert run("init", str(where)).exit_code == 0
    assert {each.name for each in where.iterdir()} == {
        "README.md", "agents.yaml", "tasks.jsonl", "tools.py",
    }  # fmt: skip
    assert (where / "tools.py").stat().st_mode & stat.S_IWUSR
    (where / "tools.py").write_text("mine")
    again = run("init", str(where))
    assert (again.exit_code, "already has" in again.stderr) == (2, True)
    assert (where / "tools.py").read_text() == "mine"


def test_schemas_are_exported_as_avro_and_json_schema(tmp_path: Path) -> None:
    assert run("schemas", "export", str(tmp_path)).exit_code == 0
    avro = json.loads((tmp_path / "Task.avsc").read_text())
    schema = json.loads((tmp_path / "Task.schema.json").read_text())
    assert avro["name"] == "Task"
    assert "agent" in schema["$defs"]["Task"]["properties"]


# --- text -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("red \x1b[31m", r"red \x1b[31m"),
        ("a\u202eb", r"a\u202eb"),
        ("a\u200bb", r"a\u200bb"),
        ("two\nlines", r"two\nlines"),
        ("[bold]no markup[/bold]", "[bold]no markup[/bold]"),
        ({"a": "\u0007"}, '{"a":"\\u0007"}'),
    ],
)
def test_what_a_terminal_would_obey_is_shown_as_an_escape(text: Any, seen: str) -> None:
    assert terminal.safe(text) == seen


def test_a_table_that_is_no_terminals_is_aligned_lines(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.table(("run", "status"), [("r-1", "done"), ("run-22", "running")])
    assert capsys.readouterr().out == "run     status\nr-1     done\nrun-22  running\n"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0.0 s"),
        (0.44, "0.4 s"),
        (5, "5 s"),
        (65, "1 min 5 s"),
        (7200, "2 h"),
        (93600, "1 d 2 h"),
    ],
)
def test_durations_are_told_in_two_units(seconds: float, words: str) -> None:
    assert terminal.span(seconds) == words


def test_a_deadline_says_what_happens_then() -> None:
    assert "then the run is cancelled" in terminal.deadline(2_000, "cancel_run", now=1_000)
    assert terminal.deadline(1_000, "reject", now=3_000) == "expired 2 s ago (it is rejected)"


def test_sensitive_values_are_covered_wherever_they_lie() -> None:
    value = {"card": "4711", "list": [{"card": 1, "sum": 2}]}
    assert covered(value, frozenset({"card"})) == {
        "card": "***",
        "list": [{"card": "***", "sum": 2}],
    }
    question = ApprovalRequest(
        run_id="r", agent="a", user_id="u", session_id="r", tenant="default", approval_id="r/a1",
        kind="action", title="t", tool="pay", arguments={"card": "4711", "sum": 2},
        history={"completed": [{"tool": "pay", "arguments": {"card": "4711"}}], "errors": []},
        requested_at=1, expires_at=2, on_timeout="reject", digest="d",
    )  # fmt: skip
    shown = covered_question(question, {"pay": ToolSpec(name="pay", sensitive=["card"])})
    assert shown.arguments == {"card": "***", "sum": 2}
    assert "4711" not in repr(shown)


# --- runs in one line each --------------------------------------------------------------------


def _event(version: int, kind: str, data: dict[str, Any]) -> RunEvent:
    return RunEvent(
        run_id="r", agent="a", user_id="u", session_id="r", tenant="default", version=version,
        type=kind, at=version * 10, actor="engine", data=data, previous_hash="", hash="",
    )  # fmt: skip


def test_an_overview_follows_status_and_questions() -> None:
    overview = Overview()
    asked = {"approval": {"n": 1, "kind": "action", "title": "Pay", "expires_at": 99}}
    for event in (
        _event(1, "run_started", {}),
        _event(2, "action_proposed", {"n": 1, "target": "pay"}),
        _event(3, "approval_requested", asked),
        _event(4, "status_changed", {"from": "running", "to": "waiting_approval"}),
    ):
        summary = overview.take(event)
    assert (summary.status, summary.last, summary.started_at) == ("waiting_approval", "pay", 10)
    assert [each["approval_id"] for each in summary.waiting_for] == ["r/a1"]
    overview.take(_event(3, "run_finished", {"status": "failed"}))
    assert summary.status == "waiting_approval", "an event that came before changes nothing"
    overview.settle(set())
    assert summary.waiting_for == []
    overview.take(_event(5, "run_finished", {"status": "done"}))
    assert (summary.status, summary.finished_at) == ("done", 50)


def test_an_overview_keeps_a_question_that_is_asked_on() -> None:
    overview = Overview()
    asked = {"approval": {"n": 1, "kind": "action", "title": "Pay 5", "expires_at": 99}}
    raised = {"n": 1, "decision": "escalate", "to": ["top"], "expires_at": 200}
    said = {"n": 1, "decision": "modify", "closes": False, "title": "Pay 7"}
    for event in (
        _event(1, "run_started", {}),
        _event(2, "approval_requested", asked),
        _event(3, "approval_expired", raised),
    ):
        summary = overview.take(event)
    assert [(each["title"], each["until"]) for each in summary.waiting_for] == [("Pay 5", 200)]
    overview.take(_event(4, "approval_decided", said))
    assert [(each["title"], each["until"]) for each in summary.waiting_for] == [("Pay 7", 200)]
    asks = {"approvers": ["boss"], "expires_at": 300}
    overview.take(_event(5, "approval_decided", {**said, "asks": asks}))
    assert [each["until"] for each in summary.waiting_for] == [300]
    overview.take(_event(6, "approval_expired", {"n": 1, "decision": "reject"}))
    assert summary.waiting_for == []


def test_a_run_that_is_tried_again_has_not_ended_and_no_failure() -> None:
    made = World(tool("put", "idempotent"), agent_spec=agent("put"))
    made.plan(PlanStep(id="a", tool="put"))
    made.fails(made.command("put"), "business", "x")
    overview = Overview()
    for event in made.events:
        summary = overview.take(event)
    assert (summary.status, summary.finished_at) == ("failed", made.events[-1].at)
    assert summary.ending is not None
    before = len(made.events)
    made.control("retry")
    for event in made.events[before:]:
        overview.take(event)
    assert (summary.status, summary.ending, summary.finished_at) == ("running", None, None)
    made.answer(made.command("put"), result=1)
    for event in made.events[before:]:
        overview.take(event)
    assert (summary.status, summary.ending) == ("done", None)
    assert summary.finished_at is not None
