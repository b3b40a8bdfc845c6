"""Records golden histories: `python -m tests.core.golden.record VERSION` writes one file a scenario.

A file is never written again: it holds what a version wrote, and every later one must fold it to
the same state (see `tests/core/test_golden.py`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from perdure.schemas import codec
from perdure.schemas.records import ModelSpec, Person, Window

from tests.core.harness import BEGAN, Budget, PlanStep, World, agent, rule, tool

HERE = Path(__file__).parent


def model_loop() -> World:
    made = World(
        tool("look"),
        tool("pay", "external", approval="arguments.amount > 10", has_query=True),
        tool("put", "idempotent"),
    )
    made.start({"order": 2**70, "note": "é\u2028"}, session_id="s", metadata={"a": "b"})
    made.reply(None, ("look", {"q": 0.1}), ("nosuch", {}), ("pay", {"amount": 20, "why": "asked"}))
    made.answer(made.command("look"), result={"total": 20})
    made.decide("modify", reason="less", arguments={"amount": 15})
    made.answer(made.command("pay"), "started")
    made.answer(made.command("pay"), "progress", progress={"half": True})
    made.answer(made.command("pay"), "unknown", error={"kind": "unknown", "code": "lost"})
    made.answer(made.command("pay", "query"), "succeeded", result={"paid": 15}, adopted=True)
    made.reply(None, ("put", {"k": 1}))
    made.fails(made.command("put"), "transient", "rate_limited", retry_after_seconds=3)
    made.timer("act/5")
    made.answer(made.command("put"), result={})
    made.control("pause", reason="lunch")
    made.control("message", content="hurry")
    made.control("resume")
    made.control("extend", budget=Budget(steps=5))
    made.reply(None, ("look", "no object"))
    made.reply("all done")
    return made


def plan() -> World:
    made = World(
        tool("look"),
        tool("pay", "external", approval="always"),
        agent_spec=agent(
            "look",
            "pay",
            approvals=[rule(kind="action", tool="pay", approvers=["ann", "bob"], required=2)],
        ),
    )
    made.plan(
        PlanStep(id="a", tool="look", arguments={"n": {"$": "input.n"}}),
        PlanStep(id="b", tool="pay", when="steps.a.result.total > 5"),
        PlanStep(id="c", tool="look", when="false", depends_on=["a"]),
        PlanStep(id="d", tool="pay", depends_on=["a"]),
        PlanStep(id="e", tool="look", depends_on=["d"]),
        input={"n": 3},
        deadline_at=BEGAN + 10**9,
    )
    made.answer(made.command("look"), result={"total": 6})
    made.decide("approve", "ann", 1)
    made.decide("approve", "bob", 1)
    made.decide("reject", "ann", 2, reason="no")
    made.answer(made.command("pay"), result={})
    return made


def doubt_and_cancel() -> World:
    made = World(tool("pay", "external"), tool("look"), tool("ask", approval="always"))
    made.start()
    made.reply(None, ("pay", {}), ("look", {}), ("ask", {}))
    made.answer(made.command("look"), result=1)
    made.answer(made.command("pay"), "unknown", error={"kind": "unknown", "code": "lost"})
    made.control("cancel", reason="enough")
    made.answer(made.sent[1], "succeeded", result={"late": True})
    return made


def expired() -> World:
    asks = agent(
        "pay", approvals=[rule(kind="action", tool="pay", within_seconds=60, on_timeout="reject")]
    )
    made = World(tool("pay", "external", approval="always"), agent_spec=asks)
    made.start()
    made.reply(None, ("pay", {}))
    made.timer("ask/1")
    made.reply("nothing was paid")
    return made


def handover() -> World:
    made = World(tool("put", "idempotent"))
    made.plan(PlanStep(id="a", tool="put"), PlanStep(id="b", tool="put"))
    made.fails(made.command(), "unavailable", "down")
    made.decide("retry")
    made.answer(made.command(), result={})
    made.fails(made.command(), "business", "no")
    return made


def retried() -> World:
    made = World(tool("pay", "external", key=["order"]), tool("look"))
    made.plan(
        PlanStep(id="a", tool="pay", arguments={"order": 1}),
        PlanStep(id="b", tool="pay", arguments={"order": 1}),
        PlanStep(id="c", tool="look"),
    )
    made.answer(made.command("pay"), result={"paid": 1})
    made.fails(made.command("look"), "business", "none")
    made.control("retry", reason="again")
    made.answer(made.command("look"), result={})
    return made


def forked() -> World:
    source = World(tool("look"), tool("ask", "external", approval="always"))
    source.start("go")
    source.reply(None, ("look", {}), ("ask", {}))
    source.answer(source.command("look"), result=1)
    made = World(tool("look"), tool("ask", "external", approval="always"))
    made.fork(source)
    made.decide("approve")
    made.answer(made.command("ask"), result={})
    return made


def troubles() -> World:
    """What stands in: the next model, another tool, an older result; then a person is asked."""
    amount = {"type": "object", "properties": {"amount": {"type": "integer"}}}
    made = World(
        tool("look", stale_ok_seconds=60, parameters=amount),
        tool("put", "external", fallback="spare", parameters=amount),
        tool("spare", "idempotent", parameters=amount),
        tool("pay", "external", approval="always", parameters=amount),
        agent_spec=agent(
            "look",
            "put",
            "pay",
            handover_after=2,
            fallback_models=[ModelSpec(provider="scripted", name="m2", replies=[])],
        ),
    )
    made.start("do it")
    made.fails(made.command("m"), "model_unavailable", "http_404")
    for _ in range(3):  # then all are tried again, each once
        made.fails(made.command("m2"), "transient", "http_503")
        made.timer()
    made.fails(made.command("m"), "transient", "http_503")
    made.reply(None, ("look", {"amount": 1}), ("put", {"amount": 2}), target="m2")
    made.answer(made.command("look"), result="there")
    made.fails(made.command("put"), "unavailable", "BREAKER_OPEN", retry_after_seconds=5)
    made.answer(made.command("spare"), result="put")
    made.reply(None, ("look", {"amount": 1}), target="m2")
    made.answer(made.command("look"), result="there")
    made.reply(None, ("look", {"amount": 1}), target="m2")
    made.decide("retry")
    made.fails(made.command("look"), "unavailable", "http_503")
    for number in (5, 6):
        made.reply(None, ("pay", {"amount": number}), target="m2")
        made.decide("reject", reason="no")
    made.decide("answer", answer="leave it")
    made.reply(None, finish_reason="length", target="m2")
    made.reply("I used pay.", target="m2")
    return made


def windowed() -> World:
    """A summary, key facts, a to-do list, a request that was too long."""
    spec = agent("look", window=Window(max_tokens=900, keep_rounds=2))
    made = World(tool("look"), agent_spec=spec)
    made.start("the task")
    items = [{"title": "look", "status": "in_progress"}, {"title": "end", "status": "pending"}]
    made.reply(None, ("pin", {"name": "order", "value": 2**70}), ("update_plan", {"items": items}))
    made.summary = "looked so far"
    for step in range(12):
        made.reply(None, ("look", {"step": step}))
        made.answer(made.command("look"), result=f"result {step} " + "x" * 300)
    made.reply(None, ("pin", {"name": "order", "value": None}))
    made.fails(made.command("m"), "context_overflow", "context_length")
    made.reply("done")
    return made


def undone() -> World:
    """Two writes are undone, the first undoing is handed over, and people are told."""
    told = {"type": "object", "properties": {"to": {}, "subject": {}, "text": {}}}
    ops = Person(members=["ann"], notify={"tool": "mail", "arguments": {"to": "ops@example.org"}})
    made = World(
        tool("put", "idempotent", compensate="unput"),
        tool("unput", "idempotent"),
        tool("stop"),
        tool("mail", "external", parameters=told),
        agent_spec=agent(
            "put",
            "stop",
            people={"ops": ops},
            approvals=[rule(kind="handover", approvers=["ops"], remind_seconds=10)],
        ),
    )
    made.plan(*(PlanStep(id=f"s{n}", tool="put" if n < 2 else "stop") for n in range(3)))
    for n in range(2):
        made.answer(made.command("put"), result=n)
    made.fails(made.command("stop"), "business", "no")
    made.fails(made.command("unput"), "business", "gone")
    made.answer(made.command("mail"), result=None)
    made.timer("remind/1")
    made.decide("cancel_run", reason="by hand")
    made.answer(made.command("unput"), result=None)
    return made


SCENARIOS: dict[str, Callable[[], World]] = {
    each.__name__: each
    for each in (
        model_loop, plan, doubt_and_cancel, expired, handover, retried, forked,
        troubles, windowed, undone,
    )
}  # fmt: skip


def state(made: World) -> dict[str, Any]:
    """What a run's state is, as plain JSON."""
    records = {f"{kind}/{n}": value for (kind, n), value in sorted(made.records.items())}
    return json.loads(msgspec.json.encode({"header": made.header, "records": records}))


def main(version: str) -> None:
    for name, play in SCENARIOS.items():
        made = play()
        lines = [json.loads(codec.encode(event)) for event in made.events]
        whole = {"events": lines, "state": state(made)}
        path = HERE / f"{version}-{name}.json"
        assert not path.exists(), f"{path} is what {version} wrote: it is never written again"
        path.write_text(json.dumps(whole, ensure_ascii=False, indent=0) + "\n")
        print(path.name, len(lines), "events,", made.status)


if __name__ == "__main__":
    main(sys.argv[1])
