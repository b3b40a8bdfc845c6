"""Any history, any window: what is sent is whole in itself and never more than fits."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from perdure.schemas.records import AgentSpec, ModelSpec, ToolSpec, Window
from perdure.streams.core.planning import sizes, summary, window
from perdure.streams.core.state import Action, Header, Message, Notes, RecordKey, Run, Start

from .harness import check_pairing

Round = tuple[str, list[tuple[int, int]], list[int]]
"""What the model said, its calls (bytes of arguments, of the result), the messages after them."""

TEXTS = ("x", "é", "\u4e2d", '"', "\n", "\x01")
SMALL = st.integers(0, 60)
SIZES = st.one_of(SMALL, SMALL, SMALL, SMALL, st.sampled_from([400, 3_000, 12_000]))
SPREAD = st.sampled_from([1, 1, 2, 7])


@st.composite
def rounds(draw: st.DrawFn) -> Round:
    calls = st.lists(st.tuples(st.one_of(st.just(5), SIZES), SIZES), max_size=draw(SPREAD))
    return (
        draw(st.sampled_from(["", "thinking", "y" * 300])),
        draw(calls),
        draw(st.lists(st.integers(1, 200), max_size=2)),
    )


def history(
    told: list[Round], letter: str, before: int, spec: Window, *, provider: str = "openai"
) -> Run:
    """A run with these rounds, as its appliers would have left it."""
    look = ToolSpec(name="look", effect="read_only", approval="never")
    definition = AgentSpec(
        name="demo",
        instructions="Be careful.",
        model=ModelSpec(provider=provider, name="m"),
        tools=["look"],
        window=spec,
    )
    records: dict[RecordKey, Any] = {}
    records["s", 0] = Start(input="the task", definition=definition, tools={"look": look})
    header = Header(run_id="r", agent="demo", user_id="u", session_id="s", tenant="t")
    run = Run(header, records.get)

    def add(message: Message) -> int:
        records["m", header.messages] = message
        if message.role == "user":
            header.last_user = header.messages
        header.messages += 1
        return header.messages - 1

    for n in range(before):
        add(Message(role=("user", "assistant")[n % 2], content=letter * 30))
    header.task_message = add(Message(role="user", content="the task"))
    for said, calls, notes in told:
        made = [
            {"id": f"c{header.messages}_{i}", "name": "look", "arguments": {"q": letter * size}}
            for i, (size, _) in enumerate(calls)
        ]
        add(Message(role="assistant", content=said, calls=made))
        for call, (_, size) in zip(made, calls, strict=True):
            n = header.next_action
            records["a", n] = Action(n=n, target="look", status="succeeded", result=letter * size)
            header.next_action = n + 1
            add(Message(role="tool", call_id=call["id"], action=n))
        for size in notes:
            add(Message(role="user", content="note " + letter * size))
    return run


def test_arguments_kept_by_reference_are_not_resolved_into_a_request_they_do_not_fit() -> None:
    run = history([("", [(5, 20)] * 3, [])], "x", 0, Window(max_tokens=2_000))
    reply = run.message(1)
    reference = {"$blob": "file:///b", "size": 1_500_000, "sha256": "0"}
    for call in reply.calls:
        call["arguments"] = reference
    shown = window.view(run)
    assert (shown.layer, shown.fits) == (window.SHORT, True)
    check_pairing(shown.messages)
    told = [call["arguments"] for call in shown.messages[2]["tool_calls"]]
    assert told == [{"shortened": "[shortened: 1500000 characters in all]"}] * 3


@pytest.mark.parametrize(("size", "asked"), [(185, False), (400, True)])
def test_a_window_that_holds_little_more_than_the_notes_has_none(size: int, asked: bool) -> None:
    run = history([("", [(5, 60)], [])] * 9, "x", 0, Window(max_tokens=size, keep_rounds=1))
    assert (summary.wanted(window.Layers(run)) is not None) == asked


def starts(run: Run) -> list[int]:
    return [n for n in range(run.header.messages) if run.message(n).role == "assistant"]


def summarised(run: Run, covered: int, text: str) -> None:
    run.header.covered, run.header.noted = covered, True
    run.writes["n", 0] = Notes(summary=text, facts={"order": 7}, plan=[])


WINDOWS = st.builds(
    Window,
    max_tokens=st.one_of(st.integers(100, 900), st.integers(900, 6_000), st.just(60_000)),
    keep_rounds=st.integers(1, 6),
    mode=st.sampled_from(["auto", "auto", "summary", "key_state"]),
)


@settings(derandomize=True, max_examples=150, deadline=None, database=None)
@given(
    told=st.lists(rounds(), max_size=9),
    letter=st.sampled_from(TEXTS),
    before=st.integers(0, 5),
    spec=WINDOWS,
    scale=st.sampled_from([750, 1000, 1000, 2300, 4000]),
    floor=st.sampled_from([0, 0, 0, 2, 3]),
    covers=st.one_of(st.none(), st.integers(0, 8)),
)
@example([("", [(5, 40_000)] * 7, [])], "\x01", 0, Window(max_tokens=900), 1000, 0, None)
def test_what_is_sent_is_whole_and_fits(
    told: list[Round],
    letter: str,
    before: int,
    spec: Window,
    scale: int,
    floor: int,
    covers: int | None,
) -> None:
    run = history(told, letter, before, spec)
    run.header.scale, run.header.floor = scale, floor
    begins = [n for n in starts(run) if n > run.header.task_message]
    if covers is not None and spec.mode != "key_state" and covers < len(begins):
        summarised(run, begins[covers], "what happened" * 5)
    shown = window.view(run)
    assert window.view(run) == shown, "the same state, the same request"
    check_pairing(shown.messages)
    assert shown.messages[0]["role"] == "system"
    assert shown.messages[0]["content"].startswith("Be careful.")
    last = run.message(window.last_user(run))
    assert last.content in [m["content"] for m in shown.messages if m["role"] == "user"]
    least = window.tools_weight(run) + window.weight(
        [*window.system(run, run.notes, summary=False), {"role": "user", "content": last.content}]
    )
    assert shown.fits == (least <= window.room(run)), "the third layer can always be made to fit"
    told_size = len(json.dumps(shown.messages, ensure_ascii=False, separators=(",", ":")).encode())
    assert sizes.weigh(shown.messages) <= shown.tokens + 2
    assert told_size <= 3 * (shown.tokens + 2)
    if shown.fits:
        assert window.estimate(run) <= spec.max_tokens
    if spec.mode == "key_state" or floor == 3:
        assert shown.layer == window.SHORT
    _the_summary_can_be_asked_for(run)


def _the_summary_can_be_asked_for(run: Run) -> None:
    found = summary.wanted(window.Layers(run))
    if found is None:
        return
    start, stop = found
    assert start == run.header.covered < stop <= run.header.messages
    assert run.message(start).role != "tool"
    assert stop == run.header.messages or run.message(stop).role != "tool"
    action = Action(n=1, kind="model", purpose="summary", covers=[start, stop])
    made = summary.messages(run, action)
    assert window.weight(made) <= window.room(run)
    assert [message["role"] for message in made] == ["system", "user"]
    assert made[1]["content"].count("\n") >= stop - start, "a line of each message"
    kept = starts(run)[-run.definition.window.keep_rounds :]
    assert stop <= max(kept), "the last round is never summarised unseen"


@settings(derandomize=True, max_examples=60, deadline=None, database=None)
@given(told=st.lists(rounds(), min_size=1, max_size=9), keep=st.integers(1, 6))
def test_the_second_layer_is_the_last_rounds_as_they_were_and_a_summary(
    told: list[Round], keep: int
) -> None:
    run = history(told, "x", 0, Window(max_tokens=10**6, keep_rounds=keep, mode="summary"))
    found = summary.wanted(window.Layers(run))
    begins = starts(run)
    if len(begins) <= keep:
        assert found is None
        assert window.view(run).layer == window.WHOLE
        return
    assert found == (0, begins[-keep])
    summarised(run, begins[-keep], "what happened")
    assert summary.wanted(window.Layers(run)) is None
    shown = window.view(run)
    assert shown.layer == window.SUMMARISED
    assert "So far\n" in shown.messages[0]["content"]
    assert 'Known\n{"order":7}' in shown.messages[0]["content"]
    assert sum(message["role"] == "assistant" for message in shown.messages) == keep
    assert {"role": "user", "content": "the task"} in shown.messages


@given(
    wanted=st.lists(st.integers(0, 5_000), min_size=1, max_size=12),
    together=st.integers(0, 9_000),
    each=st.integers(0, 9_000),
)
@settings(derandomize=True, deadline=None, database=None)
def test_what_is_shared_is_never_more_than_there_is(
    wanted: list[int], together: int, each: int
) -> None:
    given_ = sizes.shares(wanted, together, each)
    assert sum(given_) <= together
    assert all(got <= min(size, each) for got, size in zip(given_, wanted, strict=True))
    if sum(min(size, each) for size in wanted) <= together:
        assert given_ == [min(size, each) for size in wanted]


@given(
    text=st.text(max_size=400), tokens=st.integers(1, 150), whole=st.one_of(st.none(), st.just(999))
)
@settings(derandomize=True, deadline=None, database=None)
def test_a_text_is_cut_to_what_it_may_weigh(text: str, tokens: int, whole: int | None) -> None:
    made = sizes.cut(text, tokens, whole)
    assert len(msgspec.json.encode(made)) <= max(3 * tokens, 2)
    if made != text and len(made) > 5:
        kept, _, marker = made.rpartition("... [shortened: ")
        assert text.startswith(kept)
        assert marker == f"{whole or len(text)} characters in all]"
