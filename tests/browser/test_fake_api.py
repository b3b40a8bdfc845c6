"""The stand-in speaks as the contract and the API say: else the page would be tested against a fancy."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import msgspec
import pytest
from perdure.schemas.records import (
    ActionRecord,
    AgentSpec,
    ApprovalRequest,
    BreakerState,
    Outcome,
    ToolSpec,
    Verdict,
)
from perdure.streams.core.events import EVENT_TYPES
from perdure.streams.core.policies.approval import ALLOWED

from . import scenes
from .fake_api import PAGE, FakeApi, World, outward

ROW = {
    "run_id", "agent", "user_id", "session_id", "tenant", "status", "paused", "quarantined", "title", "current_step",
    "steps_done", "steps_total", "waiting_for", "usage", "errors", "complete", "version", "started_at", "updated_at",
    "finished_at",
}  # fmt: skip
OF_A_RUN = ROW | {
    "plan", "key_state", "summary", "budget", "last_api_call_status", "input", "metadata", "definition", "fork_of",
}  # fmt: skip
ENTRY = {"version", "at", "type", "actor", "step", "action_id", "title", "tone", "data"}
OF_AN_ACTION = {"kind", "attempts_list", "approval", "tokens", "cost"}
ATTEMPT = {"attempt", "requested_at", "started_at", "ended_at", "outcome", "error"}
TONES = {"plain", "good", "bad", "wait", "person", "model"}


def names(record: type) -> set[str]:
    return {field.name for field in msgspec.structs.fields(record)}


def ask(api: FakeApi, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(api.url + path, data)) as answer:
        return json.loads(answer.read())


def test_rows_are_the_apis(api: FakeApi) -> None:
    answer = ask(api, "/api/runs?limit=3")
    assert set(answer) == {"runs", "next", "total"}
    assert [set(row) for row in answer["runs"]] == [ROW] * 3
    assert ask(api, f"/api/runs?limit=3&cursor={answer['next']}")["runs"][0] not in answer["runs"]


def test_rows_are_filtered(api: FakeApi) -> None:
    waiting = ask(api, "/api/runs?status=waiting_approval&agent=support")["runs"]
    assert {row["run_id"] for row in waiting} == {"address-301", "sub-88"}


def test_a_run_and_its_actions_are_the_contracts(api: FakeApi) -> None:
    for run_id in api.world.scenes:
        whole = ask(api, f"/api/runs/{run_id}")
        assert set(whole["run"]) == OF_A_RUN
        assert whole["outcome"] is None or set(whole["outcome"]) == names(Outcome)
        for asked in whole["approvals"]:
            assert set(asked) == names(ApprovalRequest) | {"may_decide"}
        for action in ask(api, f"/api/runs/{run_id}/actions")["actions"]:
            assert set(action) == names(ActionRecord) | OF_AN_ACTION
            assert all(set(attempt) == ATTEMPT for attempt in action["attempts_list"])


def test_entries_are_the_apis_and_their_versions_have_no_gap(api: FakeApi) -> None:
    for run_id in api.world.scenes:
        entries = ask(api, f"/api/runs/{run_id}/timeline")["entries"]
        assert [set(entry) for entry in entries] == [ENTRY] * len(entries)
        assert [entry["version"] for entry in entries] == list(range(1, len(entries) + 1))
        assert {entry["type"] for entry in entries} <= set(EVENT_TYPES)
        assert {entry["tone"] for entry in entries} <= TONES


def test_questions_allow_what_the_core_allows(api: FakeApi) -> None:
    assert {kind: tuple(words) for kind, words in scenes.ALLOWED.items()} == ALLOWED
    for asked in ask(api, "/api/approvals")["approvals"]:
        one = ask(api, f"/api/approvals/{asked['approval_id']}")
        assert set(one) == names(ApprovalRequest) | {"may_decide", "open", "closed_by"}


def test_the_catalog_is_the_contracts(api: FakeApi) -> None:
    for agent in ask(api, "/api/agents")["agents"]:
        assert set(agent) - {"runs"} <= names(AgentSpec)
        msgspec.convert({k: v for k, v in agent.items() if k != "runs"}, AgentSpec)
    for tool in ask(api, "/api/tools")["tools"]:
        of_the_view = {"calls", "failures", "last_status", "breaker"}
        assert set(tool) - of_the_view <= names(ToolSpec)
        msgspec.convert({k: v for k, v in tool.items() if k not in of_the_view}, ToolSpec)
        assert tool["breaker"] is None or set(tool["breaker"]) <= names(BreakerState)


def test_figures_are_the_apis(api: FakeApi) -> None:
    stats = ask(api, "/api/stats")
    assert set(stats) == {"totals", "waiting", "rates", "stuck", "quarantined"}
    assert set(stats["rates"][0]) == {
        "at",
        "started",
        "finished",
        "failed",
        "steps",
        "tokens",
        "cost",
    }
    health = ask(api, "/api/health")
    assert set(health) == {
        "ready",
        "lag",
        "processors",
        "views",
        "dead_letters",
        "oldest_task_age_seconds",
    }


def test_a_decision_gets_a_request_and_a_verdict(api: FakeApi) -> None:
    made = ask(api, "/api/approvals/refund-4718/a1/decisions", {"decision": "approve"})
    verdict = ask(
        api, f"/api/verdicts/refund-4718/{made['request_id'].replace('/', '%2F')}?wait=10"
    )
    assert set(verdict) <= names(Verdict)
    assert verdict["accepted"]


def test_an_unknown_run_is_an_error_that_says_what_to_do(api: FakeApi) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask(api, "/api/runs/nobody")
    with caught.value as answer:
        assert answer.code == 404
        assert set(json.loads(answer.read())["error"]) == {"code", "message"}


def test_large_integers_leave_as_digits() -> None:
    assert outward({"a": 2**53, "b": [-(2**53)], "c": 2**53 - 1, "d": True}) == {
        "a": {"$int": "9007199254740992"},
        "b": [{"$int": "-9007199254740992"}],
        "c": 9007199254740991,
        "d": True,
    }
    assert outward({"$int": 5}) == {"$int_": 5}


def test_every_file_of_the_page_is_asked_for_by_the_page() -> None:
    """A module that nothing imports, or a style that nothing links, is a leftover."""
    texts = {path.name: path.read_text() for path in PAGE.iterdir()}
    for name in set(texts) - {"index.html"}:
        assert any(f"/{name}" in text for other, text in texts.items() if other != name), name


def test_nothing_of_the_page_writes_markup_or_reaches_elsewhere() -> None:
    for path in PAGE.iterdir():
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "http:",
            "https:",
            "Function(",
        ):
            assert word not in text, (path.name, word)


def test_ten_thousand_rows_are_newest_first() -> None:
    rows = World(10_000).rows
    assert len(rows) == 10_000 + 7
    assert [row["updated_at"] for row in rows] == sorted(
        (row["updated_at"] for row in rows), reverse=True
    )
