"""The audit of a run, made of events as the core makes them: what it says, covers and finds wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from perdure.schemas.records import ApprovalDecision, Outcome, Person, PlanStep, RunEvent, Window
from perdure.streams.core.decide.inputs import Decided
from perdure.streams.core.events import hash_of

from perdure.cli import audit_text
from perdure.cli.audit import Audit, findings, sections
from perdure.cli.audit_facts import Facts
from perdure.reading import covered_event

from ..core.harness import World, agent, rule, tool
from .desk import run

SECRET = "4711"
ORDER = [
    "asked", "model", "versions", "rules", "decisions", "attempts", "notices", "end", "chain",
]  # fmt: skip
MAIL = {"type": "object", "properties": {"to": {}, "subject": {}, "text": {}}}


def audited(
    events: list[RunEvent], outcome: Outcome | None = None, *, uncover: bool = False
) -> list[dict[str, Any]]:
    found = Audit(Facts(uncover), outcome)
    for event in events:
        found.take(None, event, events[0].run_id)
        if found.problem is not None:
            break
    return sections(found)


def part(made: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(section for section in made if section["section"] == name)


def text_of(made: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    for section in made:
        audit_text.tell(section)
    return capsys.readouterr().out


def rehashed(events: list[RunEvent]) -> Iterator[RunEvent]:
    """The same chain of other events: what somebody who may write to the topic could put there."""
    head = ""
    for event in events:
        made = msgspec.structs.replace(event, previous_hash=head)
        made.hash = head = hash_of(made)
        yield made


def asked() -> World:
    """A run that looks, is asked about a refund, and has told people so."""
    pay = tool(
        "pay", "external", approval="arguments.amount > 100", sensitive=["card"],
        title="Pay {amount} from {card}",
    )  # fmt: skip
    ops = Person(members=["ann", "bob"], notify={"tool": "mail", "arguments": {"to": "ops"}})
    rules = [
        rule(kind="action", tool="pay", when="arguments.amount > 1000", approvers=["ops"]),
        rule(approvers=["ops"]),
    ]
    made = World(
        tool("look"),
        pay,
        tool("mail", "external", parameters=MAIL),
        agent_spec=agent("look", "pay", people={"ops": ops}, approvals=rules),
    )
    made.start("order A-1\n9. The chain of events \x1b[2J")
    made.reply("I look first", ("look", {"order": "A-1"}))
    made.answer(made.command("look"), result={"total": 5000})
    made.reply(
        None,
        ("pay", {"amount": 50, "card": SECRET}),
        ("pay", {"amount": 5000, "card": SECRET, "why": "the customer waits"}),
    )
    made.answer(made.command("pay"), result={"paid": 50, "card": SECRET})
    made.answer(made.command("mail"))
    return made


def finished() -> World:
    made = asked()
    made.decide("modify", "bob", arguments={"amount": 4000, "card": SECRET}, reason="less")
    made.answer(made.command("pay"), result={"paid": 4000, "card": SECRET})
    made.reply("all done")
    return made


def test_nine_sections_in_the_order_in_which_an_auditor_asks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = finished()
    found = audited(made.events, made.outcome())
    assert [section["section"] for section in found] == ORDER
    assert findings(found) == []
    text = text_of(found, capsys)
    places = [text.index(f"\n{n}. ") for n in range(1, 10)]
    assert places == sorted(places)
    for told in (
        "user uma asked the agent demo",
        "assistant: I look first",
        "tool pay, version 1: external, asks: arguments.amount > 100",
        "agent[0]: arguments.amount > 1000: no (arguments.amount = 50)",
        "a person was asked: arguments.amount > 100 (r1/a1)",
        "bob, not proved: modify",
        "equal to the one decided on",
        "key r1/5/abcd1234",
        "to ops about r1/a1 (opened) through mail (r1/6): sent",
        "outcome: done, complete",
        "the outcome names the same version, hash and status",
    ):
        assert told in text


def test_what_a_user_wrote_moves_no_cursor_and_passes_for_no_heading(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = text_of(audited(finished().events), capsys)
    assert "\x1b" not in text
    assert "    | 9. The chain of events \\x1b[2J" in text
    assert sum(line.startswith("9. ") for line in text.splitlines()) == 1


@pytest.mark.parametrize("uncover", [False, True])
def test_sensitive_values_are_covered_unless_asked_for(
    uncover: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    made = finished()
    found = audited(made.events, made.outcome(), uncover=uncover)
    assert (SECRET in json.dumps(found)) is uncover
    assert (SECRET in text_of(found, capsys)) is uncover


def test_of_a_plan_steps_and_results_are_covered_too(capsys: pytest.CaptureFixture[str]) -> None:
    made = World(tool("open", sensitive=["code"]))
    step = PlanStep(id="one", tool="open", arguments={"door": "north", "code": SECRET})
    made.plan(step)
    made.answer(made.command(), result={"opened": "north", "code": SECRET})
    found = audited(made.events, made.outcome())
    assert SECRET not in json.dumps(found) + text_of(found, capsys)
    assert part(found, "end")["outcome"]["result"] == {"one": {"opened": "north", "code": "***"}}
    assert part(found, "asked")["plan"][0]["arguments"] == {"door": "north", "code": "***"}


def test_what_the_model_was_shown_is_what_was_sent() -> None:
    """Made again from the events, for every call: windows, retries, broken calls, messages."""
    made = World(
        tool("look"),
        agent_spec=agent("look", window=Window(max_tokens=400, keep_rounds=2)),
    )
    made.start("begin")
    for n in range(8):
        broken = [("look", "no object")] if n % 2 else []
        made.reply(f"round {n} {'x' * 300}", ("look", {"n": n}), *broken)
        made.answer(made.command("look"), result={"n": n, "more": "y" * 600})
    made.fails(made.command("m"), "transient", "http_503")
    made.control("message", content="hurry")
    made.timer()
    made.reply(None)
    made.control("message", content="stop it")
    made.reply("not yet")
    made.reply("done")
    sent = [command for command in made.sent if command.target == "m"]
    calls = part(audited(made.events, uncover=True), "model")["calls"]
    assert len(calls) == len(sent) > 10
    assert [call["messages"] for call in calls] == [
        command.request["messages"] for command in sent if command.request
    ]
    assert any("left out" in str(call["messages"]) for call in calls)
    turns = [call for call in calls if not call["covers"]]
    assert [call["answer"]["content"] for call in calls if call["covers"]] == [
        event.data["summary"] for event in made.events if event.type == "context_summarised"
    ]
    assert len(turns) < len(calls)
    calls = turns
    retried = calls[-3]
    assert (retried["attempt"], retried["messages"][-1]["content"]) == (2, "hurry")
    assert retried["new"][-1] == len(retried["messages"]) - 1
    assert calls[-4]["error"]["code"] == "http_503"
    assert calls[-2]["answer"]["unread"] == 1, "the model was answering when the message came"
    assert any(message["content"] == "stop it" for message in calls[-1]["messages"])
    assert calls[-1]["answer"]["content"] == "done"


def test_why_nobody_was_asked_and_why_a_person_was() -> None:
    made = World(
        tool("plain"),
        tool("broken", approval="arguments.nothing > 1"),
        tool("lifted", approval="always"),
        tool("once", "external", key=["a"], approval="run.user_id == 'uma'"),
        agent_spec=agent(
            "plain", "broken", "lifted", "once",
            approvals=[rule(kind="action", tool="lifted", when="false", override=True)],
        ),
    )  # fmt: skip
    made.start()
    made.reply(
        None, ("plain", {}), ("broken", {}), ("lifted", {}), ("once", {"a": 1}), ("once", {"a": 1})
    )
    made.decide("approve", n=1)
    made.decide("approve", n=2)
    for _ in range(4):
        made.answer(made.commands[0], result=1)
    made.reply(None, ("ask_user", {"question": "which?"}))
    found = part(audited(made.events), "rules")["proposals"]
    whys = [(each["tool"], each["asked"], each["why"]) for each in found]
    assert whys == [
        ("plain", None, "nobody was asked: no rule that applies says so"),
        (
            "broken",
            "r1/a1",
            "a person was asked: arguments.nothing > 1 can't be evaluated, which counts as true",
        ),
        ("lifted", None, "nobody was asked: no rule that applies says so"),
        ("once", "r1/a2", "a person was asked: run.user_id == 'uma'"),
        ("once", None, "nobody was asked: the call has the key of r1/5"),
        ("ask_user", "r1/a3", "the call is a question itself"),
    ]
    lifted = found[2]["rules"][0]
    assert (lifted["overridden"], lifted["asks"]) == (True, False)
    assert found[3]["rules"][0]["values"] == {"run.user_id": "uma"}


def test_what_came_with_a_decision_and_what_it_released() -> None:
    made = World(tool("pay", "external"), tool("look"))
    made.start()
    made.reply(None, ("pay", {"amount": 5}))
    made.fails(made.command("pay"), "permission", "http_403")
    made.reply(None, ("ask_authority", {"reason": "please"}), ("ask_user", {"question": "who?"}))
    made.decide("approve", "ann", n=1)
    made.answer(made.command("pay"), "unknown")
    made.decide("mark_not_done", "ann", reason="not in the books")
    made.answer(made.command("pay"), "unknown")
    made.decide("mark_done", "ann", answer={"paid": 5}, reason="seen")
    made.decide("answer", "uma", n=2, answer="me")
    questions = part(audited(made.events), "decisions")["questions"]
    told = {
        each["kind"]: (each["given"], [(ran["attempt"], ran["equal"]) for ran in each["ran"]])
        for each in questions
    }
    assert told["authority"] == (None, [(2, True)])
    assert told["clarification"] == ("me", [])
    assert [each["decisions"][0]["decision"] for each in questions] == [
        "approve", "answer", "mark_not_done", "mark_done",
    ]  # fmt: skip
    assert (questions[2]["ran"][0]["attempt"], questions[2]["ran"][0]["equal"]) == (3, True)
    assert questions[3]["given"] == {"paid": 5}


def test_how_a_name_was_proved(capsys: pytest.CaptureFixture[str]) -> None:
    made = asked()
    word = ApprovalDecision(approval_id="r1/a1", decision="approve", approver="ann")
    made.feed(Decided(word, "q", made.now, "signature"))
    assert "ann, proved by signature: approve" in text_of(audited(made.events), capsys)


def test_other_arguments_than_were_decided_on_are_found() -> None:
    """The chain of such events holds: only the digest tells."""
    made = finished()
    forged = []
    for event in made.events:
        data = event.data
        if event.type == "approval_decided":
            data = {**data, "arguments": {**data["arguments"], "amount": 9999}}
        forged.append(msgspec.structs.replace(event, data=data))
    found = audited(list(rehashed(forged)))
    assert part(found, "chain")["holds"]
    assert part(found, "decisions")["questions"][0]["ran"][0]["equal"] is False
    assert findings(found) == [
        "r1/a1: its digest is not that of what it shows",
        "r1/a1: what ran as r1/5 is not what was shown",
    ]


def test_a_changed_event_is_named_and_what_came_before_is_told() -> None:
    made = finished()
    changed = [msgspec.structs.replace(event) for event in made.events]
    changed[20].data = {**changed[20].data, "more": 1}
    found = audited(changed, made.outcome())
    chain = part(found, "chain")
    assert (chain["holds"], chain["events"]) == (False, 20)
    assert "(version 21, " in chain["problem"]
    assert "was changed" in findings(found)[0]
    assert part(found, "model")["calls"][0]["answer"]["content"] == "I look first"


def test_an_event_that_lacks_what_it_must_say_ends_the_audit_with_a_reason() -> None:
    made = finished()
    events = [msgspec.structs.replace(event) for event in made.events]
    place = next(i for i, event in enumerate(events) if event.type == "action_proposed")
    events[place].data = {**events[place].data, "n": 7, "kind": "tool"}
    chain = part(audited(list(rehashed(events))), "chain")
    assert chain["events"] >= place
    assert not chain["holds"]


def test_an_outcome_of_another_history_is_found() -> None:
    made = finished()
    other = msgspec.structs.replace(made.outcome(), hash="0" * 64)
    assert findings(audited(made.events, other)) == ["the outcome is not that of the events"]


def test_a_run_that_waits_says_for_what(capsys: pytest.CaptureFixture[str]) -> None:
    found = audited(asked().events)
    text = text_of(found, capsys)
    assert "it has not ended: waiting_approval" in text
    assert "waits for action: r1/a1" in text
    assert "still open" in text
    assert part(found, "end")["outcome"] is None


def test_who_paused_and_ended_it_stands_with_what_was_asked() -> None:
    made = asked()
    made.control("pause", reason="lunch")
    made.control("resume", by="ann")
    made.control("cancel", reason="enough")
    requests = part(audited(made.events), "asked")["requests"]
    assert [(each["what"], each["actor"], each.get("reason")) for each in requests] == [
        ("run_paused", "user:uma", "lunch"),
        ("run_resumed", "user:ann", None),
        ("ending_started", "user:uma", "enough"),
    ]
    (question,) = part(audited(made.events), "decisions")["questions"]
    assert (question["open"], question["closed_by"], question["ran"]) == (False, "user:uma", [])


def test_a_question_stands_as_it_was_asked_whoever_was_asked_later() -> None:
    ops, top = Person(members=["ann"]), Person(members=["zoe"])
    rules = [
        rule(kind="action", tool="pay", approvers=["ops"], on_timeout="escalate",
             escalate_to=["top"], within_seconds=60),
    ]  # fmt: skip
    made = World(
        tool("pay", "external", approval="always"),
        agent_spec=agent("pay", people={"ops": ops, "top": top}, approvals=rules),
    )
    made.start()
    made.reply(None, ("pay", {"amount": 1}))
    made.timer("ask/1")
    made.decide("modify", "zoe", arguments={"amount": 2}, reason="more")
    (question,) = part(audited(made.events), "decisions")["questions"]
    first, second = question["decisions"]
    assert (question["approvers"], question["on_timeout"]) == (["ann"], "escalate")
    assert question["expires_at"] == first["decided_at"]
    assert question["arguments"] == {"amount": 1}
    assert (first["decision"], first["to"], second["decision"]) == ("escalate", ["zoe"], "modify")
    assert question["digest"] == first["digest"] != second["digest"]
    assert [ran["equal"] for ran in question["ran"]] == [True]


def test_a_modify_into_another_rule_says_whose_word_is_needed_and_stays_covered(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rules = [
        rule(kind="action", tool="pay", when="arguments.amount > 1000", approvers=["boss"]),
        rule(kind="action", tool="pay", when="arguments.amount > 100", approvers=["ann"]),
    ]
    made = World(
        tool("pay", "external", sensitive=["card"]), agent_spec=agent("pay", approvals=rules)
    )
    made.start()
    made.reply(None, ("pay", {"amount": 200, "card": SECRET}))
    made.decide("modify", "ann", arguments={"amount": 4000, "card": SECRET}, reason="more")
    changed = covered_event(made.events[-1], made.run)
    assert changed.data["asks"]["rule"]["arguments"] == {"amount": 4000, "card": "***"}
    made.decide("approve", "boss", digest=made.approval().digest)
    found = audited(made.events)
    (question,) = part(found, "decisions")["questions"]
    first, second = question["decisions"]
    assert (question["approvers"], first["closes"], first["to"]) == (["ann"], False, ["boss"])
    assert (second["approver"], second["closes"]) == ("boss", True)
    text = text_of(found, capsys)
    assert "now asked: boss" in text
    assert SECRET not in text


def test_a_fork_says_what_it_has_taken_over() -> None:
    source = finished()
    made = World(*source.tools.values(), agent_spec=source.agents["demo"])
    last = [event.version for event in source.events if event.type == "model_replied"][-1]
    made.fork(source, last - 2)  # as the model's last call was requested
    found = audited(made.events)
    assert part(found, "asked")["fork_of"]["run_id"] == "r1"
    (question,) = part(found, "decisions")["questions"]
    assert (question["digest_holds"], question["ran"][0]["equal"]) == (None, None)
    assert findings(found) == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("audit",), "name the run"),
        (("audit", "r", "--since", "2026-11-01"), "go with --decisions"),
        (("audit", "--decisions", "--since", "soon"), "is no time"),
        (("audit", "--decisions", "--since", "2026-11-02", "--until", "2026-11-01"), "before"),
        (("find",), "say what to find"),
        (("find", "--argument", "order"), "NAME=VALUE"),
        (("find", "--key", ""), "an empty value"),
    ],
)
def test_wrong_usage_is_told(words: tuple[str, ...], told: str) -> None:
    result = run(*words, environment={"PERDURE_BOOTSTRAP_SERVERS": "127.0.0.1:1"})
    assert result.exit_code == 2
    assert told in result.stderr
