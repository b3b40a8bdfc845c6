"""What the tasks should have done outside, and whether they did: the judge of the example.

It shares no code with the engine: it reads the tasks and the orders, works out which refunds and
mails must exist, and compares them with what the payment service and the mail sink report.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from cel import evaluate

LIMIT = 100  # a larger refund is asked

Orders = dict[str, dict[str, Any]]


class Refund(NamedTuple):
    task_id: str
    order_id: str
    amount: float


class Mail(NamedTuple):
    task_id: str
    to: str
    subject: str


class Expected(NamedTuple):
    refunds: list[Refund]
    mails: list[Mail]
    statuses: dict[str, str]  # of the outcome, by task
    asked: list[str]  # tasks that ask a person


def read_tasks(path: str | Path) -> list[dict[str, Any]]:
    lines = Path(path).read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def decision(metadata: dict[str, str]) -> str:
    """What the person of the demo says to a question of a task: `approve` or `reject`."""
    return metadata.get("demo", "approve")


def expected(tasks: list[dict[str, Any]], orders: Orders) -> Expected:
    """The effects outside once all tasks have ended; each must be found exactly once."""
    whole = Expected([], [], {}, [])
    for task in tasks:
        {"refunds": _request, "enquiries": _enquiry, "refund-plan": _plan}[task["agent"]](
            task, orders, whole
        )
    return whole


def compare(
    wanted: Expected,
    payments_report: dict[str, Any],
    mails: list[dict[str, Any]],
    check_subjects: bool = True,
) -> dict[str, Any]:
    """{effects_expected, effects_found, duplicate_effects, missing_effects, unexpected_effects, rows}.

    A row is {kind, task_id, what, expected, found, verdict}; the verdict is ok, missing, doubled,
    unexpected or, for a mail that says the wrong thing, `other text`. ``check_subjects`` is for
    the scripted model, whose mails have known subjects.
    """
    refunds: Counter[tuple[str, ...]] = Counter()
    for effect in payments_report["effects"]:
        standing = effect["count"] - effect.get("cancelled", 0)
        what = f"{effect['amount']:.2f} for {effect['order_id']}"
        refunds[(_run_of(effect["key"]), what)] += standing
    sent = Counter((_run_of(mail["key"]), ", ".join(mail["recipients"])) for mail in mails)
    subjects = {_run_of(mail["key"]): mail["subject"] for mail in mails}

    rows = _rows("refund", [(r.task_id, f"{r.amount:.2f} for {r.order_id}") for r in wanted.refunds], refunds)  # fmt: skip
    mail_rows = _rows("mail", [(m.task_id, m.to) for m in wanted.mails], sent)
    if check_subjects:
        said = {mail.task_id: mail.subject for mail in wanted.mails}
        for row in mail_rows:
            run = row["task_id"]
            if row["verdict"] == "ok" and subjects[run] != said[run]:
                row["verdict"] = "other text"
                row["what"] += f": {subjects[run]!r} instead of {said[run]!r}"
    rows += mail_rows
    return {
        "effects_expected": sum(row["expected"] for row in rows),
        "effects_found": sum(row["found"] for row in rows),
        "duplicate_effects": sum(max(0, row["found"] - 1) for row in rows),
        "missing_effects": sum(row["verdict"] == "missing" for row in rows),
        "unexpected_effects": sum(row["verdict"] in ("unexpected", "other text") for row in rows),
        "rows": rows,
    }


def _rows(kind: str, wanted: list[tuple[str, str]], found: Counter[Any]) -> list[dict[str, Any]]:
    rows = []
    for task_id, what in [*wanted, *sorted(set(found) - set(wanted))]:
        count, expects = found[(task_id, what)], int((task_id, what) in wanted)
        verdict = "ok" if count else "missing"
        if count and not expects:
            verdict = "unexpected"
        elif count > 1:
            verdict = "doubled"
        if count or expects:
            rows.append(
                {"kind": kind, "task_id": task_id, "what": what, "expected": expects,
                 "found": count, "verdict": verdict}
            )  # fmt: skip
    return rows


def _run_of(key: str) -> str:
    """The run of an idempotency key, `<run_id>/<n>/<nonce>`; the key itself if it is no such key."""
    parts = key.rsplit("/", 2)
    return parts[0] if len(parts) == 3 else key


def _request(task: dict[str, Any], orders: Orders, whole: Expected) -> None:
    """Agent `refunds`: lookup, refund, one mail whatever came of it."""
    asked = task["input"]
    done = _refund(task, asked["order_id"], asked["amount"], orders, whole)
    word = "Refund" if done else "No refund"
    subject = f"{word} for order {asked['order_id']}"
    whole.mails.append(Mail(task["task_id"], asked["email"], subject))
    whole.statuses[task["task_id"]] = "done"


def _enquiry(task: dict[str, Any], orders: Orders, whole: Expected) -> None:
    """Agent `enquiries` changes nothing."""
    whole.statuses[task["task_id"]] = "done"


def _plan(task: dict[str, Any], orders: Orders, whole: Expected) -> None:
    """A plan, one step after the other; `lost` are the steps not completed."""
    steps: dict[str, Any] = {}
    lost: set[str] = set()
    before: str | None = None
    whole.statuses[task["task_id"]] = "done"
    for step in task["plan"]:
        needs = step.get("depends_on", [before] if before else [])
        before = step["id"]
        known = {"input": task["input"], "steps": steps}
        if lost.intersection(needs):
            lost.add(step["id"])
            continue
        steps[step["id"]] = {"result": None}
        if "when" in step and not evaluate(step["when"], known):
            continue
        arguments = {
            name: evaluate(value["$"], known) if isinstance(value, dict) else value
            for name, value in step["arguments"].items()
        }
        if step["tool"] == "orders.lookup":
            if arguments["order_id"] not in orders:
                whole.statuses[task["task_id"]] = "failed"
                return
            steps[step["id"]] = {"result": orders[arguments["order_id"]]}
        elif step["tool"] == "payments.refund":
            if not _refund(task, arguments["order_id"], arguments["amount"], orders, whole):
                lost.add(step["id"])
        else:
            whole.mails.append(Mail(task["task_id"], arguments["to"], arguments["subject"]))


def _refund(
    task: dict[str, Any], order_id: str, amount: float, orders: Orders, whole: Expected
) -> bool:
    if amount > LIMIT:
        whole.asked.append(task["task_id"])
        if decision(task.get("metadata", {})) != "approve":
            return False
    if order_id not in orders or amount > orders[order_id]["total"]:
        return False
    whole.refunds.append(Refund(task["task_id"], order_id, float(amount)))
    return True
