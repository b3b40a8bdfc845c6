"""The judge, and that tasks and agents are what the contract says they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from perdure.schemas import codec
from perdure.schemas.records import AgentSpec, ApprovalRule, Task
from refunds_example import EXAMPLE, TEMPLATES, load

orders = load(EXAMPLE / "orders.py")
judge = load(EXAMPLE / "expected.py")

TASKS = judge.read_tasks(EXAMPLE / "tasks.jsonl")
FILES = [EXAMPLE / "agents.yaml", EXAMPLE / "agents.openai.yaml", TEMPLATES / "agents.yaml"]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("orders") / "orders.db"
    orders.build(path)
    orders.build(path)  # a second build is no error and changes nothing
    return orders.read(path)


@pytest.fixture(scope="module")
def wanted(known: dict[str, Any]) -> Any:
    return judge.expected(TASKS, known)


def agents(path: Path) -> dict[str, AgentSpec]:
    document = yaml.safe_load(path.read_text("utf-8"))
    return {
        name: codec.convert({"name": name, "people": document.get("people", {}), **body}, AgentSpec)
        for name, body in document["agents"].items()
    }


def perfect(wanted: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The reports of a world in which everything went as it should."""
    effects = [
        {"key": f"{r.task_id}/2/aa", "order_id": r.order_id, "amount": r.amount, "count": 1}
        for r in wanted.refunds
    ]
    mails = [
        {"key": f"{m.task_id}/3/aa", "recipients": [m.to], "subject": m.subject}
        for m in wanted.mails
    ]
    return {"effects": effects}, mails


def counts(result: dict[str, Any]) -> tuple[int, int, int]:
    return tuple(result[f"{word}_effects"] for word in ("duplicate", "missing", "unexpected"))


# --- tasks and agents ------------------------------------------------------------------------


@pytest.mark.parametrize("path", [EXAMPLE / "tasks.jsonl", TEMPLATES / "tasks.jsonl"])
def test_every_task_is_a_task_of_a_known_agent_and_its_tools(path: Path) -> None:
    specs = agents(path.with_name("agents.yaml"))
    tasks = [codec.decode(line, Task) for line in path.read_bytes().splitlines()]
    assert len({task.task_id for task in tasks}) == len(tasks)
    for task in tasks:
        assert {step.tool for step in task.plan or []} <= set(specs[task.agent].tools)
        assert task.plan or specs[task.agent].model


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_script_calls_only_tools_of_its_agent(path: Path) -> None:
    for spec in agents(path).values():
        replies = (spec.model and spec.model.replies) or []
        called = {call["name"] for reply in replies for call in reply.get("tool_calls", [])}
        assert called <= set(spec.tools)
        if replies:
            assert list(replies[-1]) == ["content"]


def test_both_files_of_agents_differ_in_the_model_alone() -> None:
    scripted, real = agents(FILES[0]), agents(FILES[1])
    for spec in (*scripted.values(), *real.values()):
        spec.model = None
    assert scripted == real
    assert scripted["refunds"].people["ops"].members == ["ann", "bob"]
    assert isinstance(scripted["refunds"].approvals[0], ApprovalRule)


def test_the_tasks_hold_what_the_demo_promises(known: dict[str, Any], wanted: Any) -> None:
    words = [task.get("metadata", {}).get("demo") for task in TASKS]
    assert len(TASKS) == 32
    assert words.count("approve") == 6
    assert words.count("reject") == 4
    assert wanted.asked == [
        task["task_id"] for task in TASKS if task.get("metadata", {}).get("demo")
    ]
    assert sum("plan" in task for task in TASKS) == 5
    unknown = [t["task_id"] for t in TASKS if t["input"].get("order_id", "A-1001") not in known]
    assert unknown == ["r-013", "r-020", "r-024"]


def test_no_person_decides_on_a_task_of_their_own() -> None:
    assert not {task["user_id"] for task in TASKS} & {"ann", "bob"}


# --- what is expected ------------------------------------------------------------------------


def test_refunds_are_expected_below_the_limit_or_approved(wanted: Any) -> None:
    amounts = {(r.task_id, r.order_id): r.amount for r in wanted.refunds}
    assert len(amounts) == len(wanted.refunds) == 25
    assert amounts[("r-001", "A-1001")] == 24.90
    assert amounts[("r-015", "A-1011")] == 100.0  # the limit itself is not asked
    assert amounts[("r-019", "A-1018")] == 100.01
    assert "r-015" not in wanted.asked
    assert "r-019" in wanted.asked
    refunded = {r.task_id for r in wanted.refunds}
    assert not refunded & {"r-009", "r-018", "r-027"}, "rejected"
    assert not refunded & {"r-013", "r-020", "r-024"}, "unknown orders"
    assert "r-026" not in refunded, "more than the order's total"


def test_every_request_is_answered_by_one_mail(wanted: Any) -> None:
    subjects = {mail.task_id: mail.subject for mail in wanted.mails}
    assert len(subjects) == len(wanted.mails) == 27
    assert subjects["r-001"] == "Refund for order A-1001"
    assert subjects["r-009"] == "No refund for order A-1019"
    assert subjects["r-020"] == "No refund for order B-7002"
    assert subjects["r-030"] == "Refunds for orders A-1029 and A-1030"
    assert not {"r-013", "r-024", "r-025"} & set(subjects), "enquiries"


def test_plans_skip_what_is_rejected_and_what_depends_on_it(wanted: Any) -> None:
    of = {t: [r.order_id for r in wanted.refunds if r.task_id == t] for t in wanted.statuses}
    assert of["r-028"] == ["A-1025", "A-1026"]
    assert of["r-029"] == ["A-1027"], "the other one was refunded long ago"
    assert of["r-031"] == ["A-1032"], "the other one is rejected"
    assert "r-031" not in {mail.task_id for mail in wanted.mails}
    assert of["r-032"] == []
    assert {t for t, status in wanted.statuses.items() if status != "done"} == {"r-032"}


# --- what is found ---------------------------------------------------------------------------


def test_a_perfect_world_has_nothing_missing_and_nothing_doubled(wanted: Any) -> None:
    result = judge.compare(wanted, *perfect(wanted))
    assert counts(result) == (0, 0, 0)
    assert result["effects_expected"] == result["effects_found"] == 52
    assert {row["verdict"] for row in result["rows"]} == {"ok"}


def test_an_empty_world_misses_everything(wanted: Any) -> None:
    result = judge.compare(wanted, {"effects": []}, [])
    assert counts(result) == (0, 52, 0)
    assert result["effects_found"] == 0


def test_a_refund_executed_twice_is_doubled(wanted: Any) -> None:
    report, mails = perfect(wanted)
    report["effects"][0]["count"] = 2
    result = judge.compare(wanted, report, mails)
    assert counts(result) == (1, 0, 0)
    assert [row["task_id"] for row in result["rows"] if row["verdict"] == "doubled"] == ["r-001"]


def test_a_refund_under_a_second_key_is_doubled(wanted: Any) -> None:
    report, mails = perfect(wanted)
    report["effects"].append({**report["effects"][0], "key": "r-001/5/aa"})
    assert counts(judge.compare(wanted, report, mails)) == (1, 0, 0)


def test_a_mail_sent_twice_is_doubled(wanted: Any) -> None:
    report, mails = perfect(wanted)
    assert counts(judge.compare(wanted, report, [*mails, mails[3]])) == (1, 0, 0)


def test_a_refund_taken_back_is_missing(wanted: Any) -> None:
    report, mails = perfect(wanted)
    report["effects"][0]["cancelled"] = 1
    assert counts(judge.compare(wanted, report, mails)) == (0, 1, 0)


def test_a_rejected_refund_that_was_paid_is_unexpected(wanted: Any) -> None:
    report, mails = perfect(wanted)
    paid = {"key": "r-009/2/aa", "order_id": "A-1019", "amount": 1250.0, "count": 1}
    report["effects"].append(paid)
    assert counts(judge.compare(wanted, report, mails)) == (0, 0, 1)


def test_another_amount_is_missing_and_unexpected(wanted: Any) -> None:
    report, mails = perfect(wanted)
    report["effects"][0]["amount"] = 2.49
    assert counts(judge.compare(wanted, report, mails)) == (0, 1, 1)


def test_a_mail_that_says_the_wrong_thing_is_seen(wanted: Any) -> None:
    report, mails = perfect(wanted)
    mails[0]["subject"] = "No refund for order A-1001"
    assert counts(judge.compare(wanted, report, mails)) == (0, 0, 1)
    assert counts(judge.compare(wanted, report, mails, check_subjects=False)) == (0, 0, 0)
