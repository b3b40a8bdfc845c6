"""Telling people that they are asked: an ordinary tool, called beside the run (lifecycle section 4).

A notice holds nothing up, never asks, never opens a question, and is not repeated when its effect
is unknown; `approver_notified` says what became of it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from perdure.schemas.records import ActionResult, ToolSpec

from .. import cel, effects, keys
from ..arguments import properties
from ..policies.retry import may_have_happened, wait_seconds
from ..state import Action, Approval, Run
from .decision import Decision
from .moves import request

ACTOR: Final = "policy:notify"
SUBJECTS: Final = ("subject", "title")
TEXTS: Final = ("text", "body", "message", "content")
"""Parameters of a tool that are filled in where the agent gives none."""


def tell(decision: Decision, approval: Approval, occasion: str) -> None:
    """Begin a notice to every group that is asked. ``occasion``: opened, reminder or escalated."""
    for group in approval.groups:
        person = decision.run.definition.people.get(group)
        if person is not None and person.notify is not None:
            _begin(decision, approval, group, person.notify, occasion)


def _begin(
    decision: Decision, approval: Approval, group: str, notify: dict[str, Any], occasion: str
) -> None:
    run = decision.run
    header = run.header
    name = str(notify.get("tool"))
    tool = decision.lookup.tool(name) or run.start.tools.get(name)
    about = {"n": approval.n, "group": group, "occasion": occasion}
    if tool is None:
        _tell(decision, about, "failed", f"no worker announces {name}")
        return
    if header.paused:
        _tell(decision, about, "failed", "the run is paused")
        return
    try:
        arguments = _arguments(decision, approval, tool, notify.get("arguments") or {}, occasion)
    except cel.ExpressionError as error:
        _tell(decision, about, "failed", f"its arguments can't be worked out: {error}")
        return
    n = header.next_action
    data: dict[str, Any] = {
        "n": n,
        "kind": "notice",
        "step": header.step,
        "target": tool.name,
        "queue": tool.queue,
        "arguments": arguments,
        "effect": tool.effect,
        "has_query": tool.has_query,
        "key": keys.idempotency_key(header.run_id, n, header.nonce),
        "timeout_seconds": tool.timeout_seconds,
        "ask": approval.n,
        "group": group,
        "occasion": occasion,
        "rules": [],
    }
    if run.start.tools.get(tool.name) != tool:
        data["spec"] = msgspec.to_builtins(tool)
    decision.emit("action_proposed", data, ACTOR)
    problem = decision.lookup.queue_problem(tool.queue)
    if problem is not None:
        _close(decision, n, {"kind": "unavailable", "code": "NO_QUEUE", "message": problem})
        return
    request(decision, n)


def _arguments(
    decision: Decision, approval: Approval, tool: ToolSpec, given: dict[str, Any], occasion: str
) -> dict[str, Any]:
    """What the agent says, its expressions worked out, and a subject and text where it says none."""
    run = decision.run
    about = {
        "approval_id": run.approval_id(approval.n),
        "run_id": run.header.run_id,
        "agent": run.header.agent,
        "kind": approval.kind,
        "title": approval.title,
        "tool": approval.tool,
        "question": approval.question,
        "reason": approval.reason,
        "expires_at": approval.expires_at,
        "occasion": occasion,
    }
    made = cel.arguments(given, {"approval": about})
    known = properties(tool.parameters)
    heading = {"opened": "", "reminder": "Reminder: ", "escalated": "Escalated: "}[occasion]
    text = "\n".join(
        part
        for part in (
            approval.title,
            approval.question,
            f"Why: {approval.reason}" if approval.reason else None,
            f"perdure approve {run.approval_id(approval.n)}",
        )
        if part
    )
    for names, value in ((SUBJECTS, heading + approval.title), (TEXTS, text)):
        if not any(name in made for name in names):
            made.update({name: value for name in names if name in known})
    return made


def answered(decision: Decision, action: Action, message: ActionResult) -> None:
    """A connector's answer to a notice. Nothing it says reaches the run."""
    if message.status == "started":
        if message.attempt == action.attempt and action.status == "requested":
            due = effects.started_timer(action, decision.now)
            decision.emit("action_started", {"n": action.n, "attempt": message.attempt, "due": due})
        return
    if message.status == "succeeded":
        data = {"n": action.n, "attempt": message.attempt, "result": None}
        decision.emit("action_succeeded", data, f"worker:{message.worker or 'unknown'}")
        _tell(decision, _about(decision.run, action), "sent", None)
        return
    if (
        message.status not in ("failed", "unknown", "cancelled")
        or message.attempt != action.attempt
    ):
        return
    error: dict[str, Any] = (
        {"kind": "unknown", "code": "lost", "message": ""}
        if message.error is None
        else msgspec.to_builtins(message.error)
    )
    if message.status == "unknown":
        error["kind"] = "unknown"
    _again_or_never(decision, action, error)


def overdue(decision: Decision, action: Action) -> None:
    """A notice's timer: its wait is over, or nobody has answered."""
    problem = decision.lookup.queue_problem(action.queue)
    if action.status == "backing_off" and problem is not None:
        error = {"kind": "unavailable", "code": "NO_QUEUE", "message": problem}
        _close(decision, action.n, error)
    elif action.status == "backing_off":
        request(decision, action.n)
    else:
        error = {"kind": "unknown", "code": "no_answer", "message": "no answer came in time"}
        _again_or_never(decision, action, error)


def _again_or_never(decision: Decision, action: Action, error: dict[str, Any]) -> None:
    policy = _policy(decision.run, action)
    unknown = error["kind"] == "unknown" or may_have_happened(action.effect, error)
    harmless = (action.effect != "external" or not unknown) and decision.run.header.ending is None
    if harmless and error["kind"] in ("transient", "unknown") and action.attempt < policy.attempts:
        wait = wait_seconds(policy, decision.run.action_id(action.n), action.attempt, error)
        data = {"n": action.n, "attempt": action.attempt, "error": error, "ambiguous": unknown}
        decision.emit("retry_scheduled", {**data, "due": decision.now + int(wait * 1000)})
    else:
        _close(decision, action.n, error)


def _close(decision: Decision, n: int, error: dict[str, Any]) -> None:
    action = decision.run.action(n)
    unknown = error["kind"] == "unknown" or action.ambiguous
    data = {"n": n, "attempt": action.attempt, "error": error, "ambiguous": unknown, "closed": True}
    decision.emit("action_failed", data)
    what = error.get("message") or error.get("code") or error["kind"]
    _tell(decision, _about(decision.run, action), "unknown" if unknown else "failed", what)


def _policy(run: Run, action: Action) -> Any:
    spec = run.start.tools.get(action.target)
    return spec.retry if spec is not None and spec.retry is not None else run.definition.retry


def _about(run: Run, action: Action) -> dict[str, Any]:
    return {"n": action.ask, "action": action.n}


def _tell(decision: Decision, about: dict[str, Any], outcome: str, why: str | None) -> None:
    data = {**about, "outcome": outcome}
    if why is not None:
        data["error"] = why
    decision.emit("approver_notified", data, ACTOR)
