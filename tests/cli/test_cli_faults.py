"""What goes wrong around the commands, without a broker: silence, broken settings, misspelt agents."""

from __future__ import annotations

import errno
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from perdure.schemas import codec
from perdure.schemas.records import ToolSpec, Verdict

from perdure import tables, topics_reader
from perdure.agents import AgentsError, check_tools, read_agents
from perdure.cli import bench, console, supervisor
from perdure.client import Client
from perdure.settings import Settings
from perdure.topics_reader import Raw, Scanner, Unreachable

from .desk import run


class Silent:
    """A consumer whose Kafka has gone away."""

    def poll(self, timeout: float) -> None:
        time.sleep(0.01)


def _scanner() -> Scanner:
    return Scanner({"bootstrap.servers": "127.0.0.1:1"}, "")


@pytest.mark.parametrize("follow", [False, True])
def test_a_kafka_that_goes_away_ends_the_reading(
    monkeypatch: pytest.MonkeyPatch, follow: bool
) -> None:
    monkeypatch.setattr(topics_reader, "_SILENT_SECONDS", 0.05)
    with pytest.raises(Unreachable, match="stopped answering"):
        list(_scanner()._records(Silent(), 2, follow, None))  # type: ignore[arg-type]


def test_a_time_out_holds_when_nothing_comes() -> None:
    began = time.monotonic()
    assert list(_scanner()._records(Silent(), 2, True, began + 0.05)) == []  # type: ignore[arg-type]
    assert time.monotonic() - began < 2


def _raw(topic: str, key: str, value: bytes | None) -> Raw:
    return Raw(topic, 0, 0, 0, key.encode(), value)


def _scans(*found: Raw) -> Any:
    return SimpleNamespace(scan=lambda *_, **__: iter([*found, None]))


def test_a_foreign_record_is_left_out_also_by_the_client() -> None:
    client = Client("127.0.0.1:1")
    good = b'{"name":"a"}'
    client.reader = _scans(
        _raw("agent.catalog", "agent/a", good),
        _raw("agent.catalog", "agent/b", b"not JSON"),
        _raw("agent.catalog", "tool/t", b'{"name":"t"}'),
        _raw("agent.catalog", "tool/gone", b'{"name":"gone"}'),
        _raw("agent.catalog", "tool/gone", None),
    )
    assert (set(client.agents()), set(client.tools())) == ({"a"}, {"t"})
    client.reader = _scans(_raw("agent.approvals.pending", "r/a1", b"?"))
    assert client.pending() == {}


def test_an_unreadable_verdict_is_not_ours() -> None:
    ours = Verdict(run_id="r", request_id="q", accepted=True, reason="", at=1)
    found = _scans(_raw("v", "r", b"?"), _raw("v", "r", codec.encode(ours)))
    made = tables.verdict(found, "r", "q", 1.0)
    assert made is not None
    assert made.accepted


# --- settings and exit codes ------------------------------------------------------------------


def test_a_broken_settings_file_is_wrong_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "perdure.toml").write_text("partitions = = 2")
    for words in (("runs",), ("up",), ("bench",)):
        result = run(*words)
        assert result.exit_code == 2, words
        assert "perdure.toml can't be read" in result.stderr


def test_a_bad_log_level_is_wrong_usage() -> None:
    result = run("up", "--log-level", "loud")
    assert result.exit_code == 2
    assert "setting log_level: 'loud' is none of DEBUG" in result.stderr


def test_a_kafka_setting_that_is_none_is_wrong_usage() -> None:
    environment = {
        "PERDURE_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "PERDURE_KAFKA": '{"no.such.setting": "1"}',
    }
    for words in (("runs",), ("topics", "check")):
        result = run(*words, environment=environment)
        assert result.exit_code == 2, result.stderr
        assert "no.such.setting" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("up",),
        ("bench",),
        ("views", "--dev"),
        ("keys", "create", "ann"),
        ("rebuild", "--yes"),
    ],
    ids=" ".join,
)
def test_a_data_directory_that_is_a_file_is_said_in_a_sentence(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    file = tmp_path / "file"
    file.touch()
    kafka = {} if words[0] in ("up", "bench") else {"PERDURE_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    result = run(*words, "--data-dir", str(file), environment=kafka)
    assert result.exit_code == 2
    assert f"perdure: {file}" in result.stderr
    assert "can't be used: " in result.stderr


def test_a_tokens_file_in_no_directory_is_said_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "none" / "tokens.jsonl"
    result = run("keys", "token", "ann", "--tokens-file", str(path))
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{path} can't be used: No such file or directory" in result.stderr


def test_a_full_disk_is_no_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    def fill() -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/data/x")

    with pytest.raises(console.typer.Exit) as told:
        console.guarded(fill)
    assert told.value.exit_code == 1
    assert "/data/x can't be used: No space left" in capsys.readouterr().err


def test_a_reader_that_leaves_is_no_path_that_was_given() -> None:
    def write() -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    with pytest.raises(BrokenPipeError):
        console.guarded(write)


def test_a_lost_connection_is_no_kafka(capsys: pytest.CaptureFixture[str]) -> None:
    def lose() -> None:
        raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))

    with pytest.raises(console.typer.Exit) as told:
        console.guarded(lose)
    assert told.value.exit_code == 3
    assert "Kafka:" in capsys.readouterr().err


def test_up_against_a_dead_kafka_ends_with_three_before_a_role_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Settings.runtime

    def hasty(self: Settings) -> Any:
        import dataclasses

        return dataclasses.replace(plain(self), connect_timeout_ms=200)

    monkeypatch.setattr(Settings, "runtime", hasty)
    monkeypatch.setattr(supervisor.Role, "start", lambda self: pytest.fail("a role started"))
    result = run("up", "--bootstrap-servers", "127.0.0.1:1", "--data-dir", str(tmp_path))
    assert result.exit_code == 3, result.stderr
    assert "does not answer" in result.stderr


def test_a_role_is_started_again_on_a_new_port_and_knows_the_drain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = iter([7001, 7002])
    started = []
    monkeypatch.setattr(supervisor, "free_port", lambda: next(ports))
    monkeypatch.setattr(supervisor.Role, "start", lambda self: started.append(self.port))
    settings = Settings(bootstrap_servers="x:1", data_dir=tmp_path, drain_seconds=7)
    watched = supervisor.Supervisor(settings)
    role = watched.add("engine")
    watched.look()
    assert started == [7001, 7002]
    assert role.environment["PERDURE_DRAIN_SECONDS"] == "7.0"


def test_a_long_run_is_long_enough_or_refused() -> None:
    result = run("bench", "--long-steps", "119")
    assert (result.exit_code, "120 or more" in result.stderr) == (2, True)


def test_a_demo_in_a_used_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "orders.db").touch()
    result = run("demo", "--data-dir", str(tmp_path))
    assert (result.exit_code, "choose a new one" in result.stderr) == (2, True)


def test_a_file_that_vanishes_while_bytes_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"12345")
    assert bench._size(tmp_path / "a.log") == 5
    assert bench._size(tmp_path / "gone.log") == 0


# --- agents -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("model: {provider: scripted, temprature: 1}", "agents.a.model.temprature"),
        ("budget: {step: 1}", "agents.a.budget.step: is not a setting; did you mean steps?"),
        ("retry: {attempt: 1}", "agents.a.retry.attempt"),
        ("window: {max_token: 500}", "agents.a.window.max_token"),
        ("checkpoint: {every_step: 1}", "agents.a.checkpoint.every_step"),
        ("fallback_models: [{provider: scripted, nam: x}]", "agents.a.fallback_models[0].nam"),
        ("people: {ops: {member: [ann]}}", "agents.a.people.ops.member"),
        ("approvals: [{kinds: action}]", "agents.a.approvals[0].kinds"),
    ],
)
def test_a_misspelt_setting_is_named_wherever_it_stands(
    tmp_path: Path, setting: str, told: str
) -> None:
    file = tmp_path / "agents.yaml"
    file.write_text(f"agents:\n  a:\n    {setting}\n")
    with pytest.raises(AgentsError) as error:
        read_agents(file)
    assert told in str(error.value)


def test_a_misspelt_setting_of_all_people_is_named(tmp_path: Path) -> None:
    file = tmp_path / "agents.yaml"
    file.write_text("people: {ops: {member: [ann]}}\nagents: {a: {}}\n")
    with pytest.raises(AgentsError, match=r"people\.ops\.member: is not a setting; did you mean"):
        read_agents(file)


def test_a_long_model_that_is_never_used_is_said(tmp_path: Path) -> None:
    file = tmp_path / "agents.yaml"
    file.write_text("agents: {a: {window: {long_model: {provider: openai, name: long}}}}\n")
    (told,) = read_agents(file)[1]
    assert "agents.a.window.long_model: is used in mode full alone, and the mode is auto" in told


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("x", "must be a model, such as {provider: openai, name: NAME}"),
        ("{provider: openai, nam: x}", "long_model.nam: is not a setting; did you mean name?"),
        ("{provider: nobody}", "long_model"),
    ],
)
def test_a_long_model_is_checked_like_any_model(tmp_path: Path, model: str, told: str) -> None:
    file = tmp_path / "agents.yaml"
    file.write_text(f"agents:\n  a:\n    window: {{mode: full, long_model: {model}}}\n")
    with pytest.raises(AgentsError) as error:
        read_agents(file)
    assert told in str(error.value)


def test_what_has_an_effect_is_not_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "agents.yaml"
    file.write_text(
        "people: {ops: {members: [ann]}}\n"
        "agents: {a: {window: {mode: full, long_model: {provider: openai}}, on_failure: stop, budget: {steps: 3}}}\n"
    )
    assert read_agents(file)[1] == []


# --- verify -----------------------------------------------------------------------------------


def test_a_record_that_holds_what_is_its_default_does_not_differ() -> None:
    from perdure.streams.core.state import Ending, Header

    from perdure.cli.verify import _first_difference

    def header(actor: str) -> Header:
        made = Header(run_id="r", agent="a", user_id="u", session_id="s", tenant="t")
        made.ending = Ending(to="failed", actor=actor)
        return made

    assert _first_difference("header", header("engine"), header("".join(["eng", "ine"]))) is None
    found = _first_difference("header", header("engine"), header("user:eve"))
    assert found is not None
    assert "user:eve" in found


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("{on_timeout: escalate}", "approvals[0].on_timeout: escalate needs escalate_to"),
        ("{escalate_to: [ann]}", "approvals[0].escalate_to: is for on_timeout: escalate"),
        (
            "{approvers: [ops], required: 3}",
            "3 different people must say yes, and approvers are 2: ann, bob",
        ),
        ("{approvers: [nobody]}", "the group nobody has no members"),
        (
            "{on_timeout: escalate, required: 2, escalate_to: [ann]}",
            "2 different people must say yes, and escalate_to are 1: ann",
        ),
    ],
)
def test_a_rule_that_can_not_work_is_refused(tmp_path: Path, rule: str, told: str) -> None:
    file = tmp_path / "agents.yaml"
    file.write_text(
        "people: {ops: {members: [ann, bob]}, nobody: {members: []}}\n"
        f"agents: {{a: {{approvals: [{rule}]}}}}\n"
    )
    with pytest.raises(AgentsError) as error:
        read_agents(file)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("notify", "told"),
    [
        ("{tool: mail.sent}", "no worker announces mail.sent; did you mean mail.send?"),
        ("{tool: mail.send, arguments: {too: x}}", "mail.send has no argument too; it takes to"),
        ("{arguments: {}}", "must be {tool: NAME"),
    ],
)
def test_a_notice_that_can_not_be_sent_is_said(tmp_path: Path, notify: str, told: str) -> None:
    file = tmp_path / "agents.yaml"
    file.write_text(f"people: {{ops: {{members: [ann], notify: {notify}}}}}\nagents: {{a: {{}}}}\n")
    mail = ToolSpec(name="mail.send", parameters={"properties": {"to": {"type": "string"}}})
    (problem,) = check_tools(read_agents(file)[0], {"mail.send": mail})
    assert told in problem


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"fallback": "loook"}, "look names loook as its fallback, and no worker announces it"),
        ({"compensate": "gone"}, "look names gone as its compensate, and no worker announces it"),
        ({"fallback": "look"}, "look names itself as its fallback"),
        ({"fallback": "put", "effect": "idempotent"}, "has a fallback that would never be called"),
    ],
)
def test_a_tool_that_could_never_be_called_is_said(
    tmp_path: Path, spec: dict[str, Any], told: str
) -> None:
    """It would be missed when it is needed."""
    file = tmp_path / "agents.yaml"
    file.write_text("agents: {a: {tools: [look]}}\n")
    announced = {"look": ToolSpec(name="look", **spec), "put": ToolSpec(name="put")}
    (problem,) = check_tools(read_agents(file)[0], announced)
    assert told in problem
