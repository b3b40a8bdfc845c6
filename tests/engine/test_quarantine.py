"""The two ways out of a quarantine, where what broke the run breaks it again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from perdure.schemas import records, topics
from perdure.schemas.records import ToolSpec
from perdure.streams.engine import layout

from .desk import Desk, agent, tool

Break = Callable[[Callable[[Any], bool]], None]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def bug(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Break:
    """From now on what the test says raises, after all that it leads to was staged."""
    decide = desk.engine._decide

    def buggy(is_bad: Callable[[Any], bool]) -> None:
        def decided(ctx: Any, run_id: str, body: Any) -> Any:
            made = decide(ctx, run_id, body)
            if is_bad(body):
                raise KeyError("the bug")
            return made

        monkeypatch.setattr(desk.engine, "_decide", decided)

    return buggy


def poisonous(body: Any) -> bool:
    return isinstance(body, records.ActionResult) and body.result == "poison"


def nothing(body: Any) -> bool:
    return False


def start(desk: Desk, effect: str, *, two: bool = True, approval: str = "never") -> None:
    pay = ToolSpec(name="pay", effect=effect, approval=approval, compensate="unpay")  # type: ignore[arg-type]
    unpay = tool("unpay", effect="idempotent")
    desk.catalog(pay, tool("look"), unpay, agent("pay", "look"))
    steps: list[dict[str, Any]] = [{"id": "a", "tool": "pay"}]
    if two:
        steps.append({"id": "b", "tool": "look"})
    desk.feed(topics.TASKS, task_id="r", agent="demo", plan=steps, user_id="uma")


def ask(desk: Desk, command: str, **more: Any) -> Any:
    desk.feed(topics.CONTROL, run_id="r", command=command, by="op", **more)
    return desk.on(topics.VERDICTS)[-1]


def sick(desk: Desk) -> bool:
    return layout.quarantine("r") in desk.store


def left(desk: Desk) -> list[bytes]:
    return [key for key in desk.store if key.startswith(b"q/")]


def calls(desk: Desk, target: str) -> list[Any]:
    sent = desk.on("agent.commands.tools")
    return [each for each in sent if each["target"] == target and each["verb"] == "call"]


def letters(desk: Desk) -> list[tuple[str, str]]:
    return [(record.topic, reason) for record, reason, _ in desk.dead]


# --- release ---------------------------------------------------------------------------------


def test_a_decision_that_raises_again_is_refused_to_its_sender(desk: Desk, bug: Break) -> None:
    start(desk, "external", approval="always")
    bug(lambda body: getattr(getattr(body, "decision", None), "approver", "") == "ann")
    desk.feed(topics.APPROVALS, approval_id="r/a1", approver="ann", decision="approve")
    assert sick(desk)
    verdict = ask(desk, "release")
    assert verdict["accepted"] is True
    assert "without 1 that raised again: KeyError: 'the bug' at agent.approvals-0-2" in verdict["reason"]  # fmt: skip
    hers = desk.on(topics.VERDICTS)[-2]
    assert (hers["request_id"], hers["accepted"]) == ("r/a1/ann/approve", False)
    assert letters(desk) == [(topics.APPROVALS, "quarantined")]
    assert not left(desk)
    assert not calls(desk, "pay")
    desk.feed(topics.APPROVALS, approval_id="r/a1", approver="bob", decision="approve")
    assert len(calls(desk, "pay")) == 1


def test_a_call_that_only_reads_is_made_again(desk: Desk, bug: Break) -> None:
    start(desk, "read_only", two=False)
    bug(poisonous)
    desk.answer("poison")
    assert ask(desk, "release")["accepted"] is True
    assert letters(desk) == [(topics.RESULTS, "quarantined")]
    desk.tick(400)
    assert [each["attempt"] for each in calls(desk, "pay")] == [1, 2]
    desk.answer("good")
    assert desk.outcome()["result"] == {"a": "good"}


def test_the_result_of_a_call_that_writes_is_never_set_aside(desk: Desk, bug: Break) -> None:
    start(desk, "external")
    bug(poisonous)
    desk.answer("poison")
    before = dict(desk.store)
    verdict = ask(desk, "release")
    assert verdict["accepted"] is False
    assert "quarantined again at agent.results-0-2: KeyError" in verdict["reason"]
    assert "perdure cancel" in verdict["reason"]
    assert desk.store == before
    assert desk.dead == []
    bug(nothing)  # mended
    assert ask(desk, "release")["accepted"] is True
    desk.answer(1)
    assert desk.outcome()["result"] == {"a": "poison", "b": 1}
    assert len(calls(desk, "pay")) == 1


# --- cancel ----------------------------------------------------------------------------------


def test_a_cancel_ends_a_run_whose_result_raises(desk: Desk, bug: Break) -> None:
    """It had happened, and nobody can tell any more: so the outcome says in doubt, and it is not
    made again."""
    start(desk, "external")
    bug(poisonous)
    desk.answer("poison")
    verdict = ask(desk, "cancel", reason="enough")
    assert (verdict["accepted"], verdict["reason"]) == (True, "cancel")
    assert letters(desk) == [(topics.RESULTS, "quarantined")]
    assert not left(desk)
    desk.tick(400)
    outcome = desk.outcome()
    assert outcome["status"] == "cancelled"
    assert [record["tool"] for record in outcome["in_doubt"]] == ["pay"]
    assert len(calls(desk, "pay")) == 1


def test_what_was_parked_and_is_sound_counts_and_is_undone(desk: Desk, bug: Break) -> None:
    start(desk, "external")
    bug(lambda body: True)
    desk.answer("sound")
    bug(nothing)
    assert ask(desk, "cancel", compensate=True)["accepted"] is True
    assert desk.last_command()["target"] == "unpay"
    desk.answer(1)
    outcome = desk.outcome()
    assert outcome["status"] == "cancelled"
    assert [record["tool"] for record in outcome["compensated"]] == ["pay"]
    assert desk.dead == []


def test_a_run_that_is_ending_already_is_ended_too(desk: Desk, bug: Break) -> None:
    start(desk, "external")
    assert ask(desk, "cancel")["accepted"] is True
    bug(poisonous)
    desk.answer_to(calls(desk, "pay")[0], "poison")
    assert sick(desk)
    assert ask(desk, "release")["accepted"] is False
    verdict = ask(desk, "cancel")
    assert verdict["accepted"] is True
    assert "already ending (cancelled)" in verdict["reason"]
    assert not left(desk)
    desk.tick(400)
    assert [record["tool"] for record in desk.outcome()["in_doubt"]] == ["pay"]


def test_a_cancel_that_is_refused_changes_nothing(desk: Desk, bug: Break) -> None:
    start(desk, "external")
    bug(poisonous)
    desk.answer("poison")
    before = dict(desk.store)
    assert ask(desk, "cancel", expected_version=1)["accepted"] is False
    assert desk.store == before


def test_a_cancel_that_raises_is_refused_and_not_parked(desk: Desk, bug: Break) -> None:
    start(desk, "external")
    bug(lambda body: True)
    desk.answer("sound")
    before = dict(desk.store)
    verdict = ask(desk, "cancel", compensate=True)
    assert verdict["accepted"] is False
    assert "cancel it without undoing" in verdict["reason"]
    assert desk.store == before


@pytest.mark.parametrize("way", ["release", "cancel"])
def test_a_run_that_could_not_begin(desk: Desk, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """A release keeps its task; a cancel refuses it, and whoever waits is told."""
    monkeypatch.setattr(desk.engine, "_start", lambda *_: 1 / 0)
    start(desk, "external")
    desk.feed(topics.CONTROL, run_id="r", command="pause", request_id="p")
    verdict = ask(desk, way)
    if way == "release":
        assert verdict["accepted"] is False
        assert len(left(desk)) == 3
        return
    assert verdict["accepted"] is True
    assert not left(desk)
    assert letters(desk) == [(topics.TASKS, "refused")]
    assert "could not be begun: ZeroDivisionError" in desk.outcome()["text"]
    told = {each["request_id"]: each["accepted"] for each in desk.on(topics.VERDICTS)}
    assert told["p"] is False
