"""When a person is asked, who may answer, and what an answer does (contract sections 5 and 8)."""

from __future__ import annotations

import re
import string
from typing import Any, Final

from msgspec import Struct, structs
from perdure.schemas.canonical import canonical, digest
from perdure.schemas.records import AgentSpec, ApprovalRule, ToolSpec

from .. import cel
from ..state import Action, Approval, Run
from .outcome import stands

ALLOWED: Final[dict[str, tuple[str, ...]]] = {
    "action": ("approve", "modify", "reject", "cancel_run"),
    "clarification": ("answer", "cancel_run"),
    "authority": ("approve", "reject", "cancel_run"),
    "handover": ("retry", "answer", "cancel_run"),
    "in_doubt": ("mark_done", "mark_not_done", "cancel_run"),
    "budget": ("extend", "reject", "cancel_run"),
}
"""The whole table: decisions that count, by kind."""
NEEDS_CONTENT: Final = frozenset({"modify", "extend", "answer"})
"""A policy has no new arguments, budget or answer to give, so it can't decide these."""
POLICY_MAY: Final[dict[str, frozenset[str]]] = {
    kind: frozenset(words) - NEEDS_CONTENT for kind, words in ALLOWED.items()
}
NEEDS_REASON: Final = frozenset({"reject", "modify", "mark_done", "mark_not_done"})
DEFAULT: Final = ApprovalRule()


_SHOWN_BYTES: Final = 4_000
"""Larger arguments are shown once, in the question that is about them."""


class Rules(Struct):
    """What the rules said of one call."""

    asks: bool
    evaluated: list[dict[str, Any]]
    fired: dict[str, Any] | None
    rule: ApprovalRule


def run_variables(run: Run) -> dict[str, Any]:
    """``run`` as conditions see it."""
    header = run.header
    return {
        "run_id": header.run_id,
        "agent": header.agent,
        "user_id": header.user_id,
        "session_id": header.session_id,
        "tenant": header.tenant,
        "metadata": header.metadata,
        "step": header.step,
    }


def evaluate(run: Run, agent: AgentSpec, spec: ToolSpec, arguments: Any, always: bool) -> Rules:
    """Which rules apply to a call. A condition without a true or false value asks, and says so."""
    evaluated: list[dict[str, Any]] = []
    variables = {"arguments": arguments, "run": run_variables(run)}
    overridden = any(rule.override and rule.tool == spec.name for rule in agent.approvals)
    if always:
        evaluated.append({"source": "plan", "when": "always", "asks": True})
    if overridden:
        evaluated.append(
            {"source": "tool", "when": spec.approval, "asks": False, "overridden": True}
        )
    elif spec.approval in ("always", "never"):
        evaluated.append(
            {"source": "tool", "when": spec.approval, "asks": spec.approval == "always"}
        )
    else:
        evaluated.append(_condition("tool", spec.approval, variables))
    chosen: ApprovalRule | None = None
    for index, rule in enumerate(agent.approvals):
        if rule.kind not in (None, "action") or rule.tool not in (None, spec.name):
            continue
        made = (
            {"source": f"agent[{index}]", "when": "always", "asks": True}
            if rule.when is None
            else _condition(f"agent[{index}]", rule.when, variables)
        )
        matched = made["asks"]
        if rule.kind is None:  # such a rule says who answers; it does not make anybody ask
            made = {**made, "asks": False}
        evaluated.append(made)
        if matched:
            chosen = rule
            break
    fired = next((made for made in evaluated if made["asks"]), None)
    if fired is not None and len(canonical(arguments)) <= _SHOWN_BYTES:
        fired = {**fired, "arguments": arguments}  # larger ones stand in the question only
    return Rules(fired is not None, evaluated, fired, chosen or _by_tool(spec))


def _by_tool(spec: ToolSpec) -> ApprovalRule:
    return ApprovalRule(approvers=spec.approvers) if spec.approvers else DEFAULT


def _condition(source: str, expression: str, variables: dict[str, Any]) -> dict[str, Any]:
    try:
        value = cel.evaluate(expression, variables)
    except cel.ExpressionError as error:
        return {"source": source, "when": expression, "asks": True, "error": str(error)}
    if value is True or value is False:
        return {"source": source, "when": expression, "asks": value}
    return {
        "source": source,
        "when": expression,
        "asks": True,
        "error": "gives neither true nor false",
    }


def rule_for(agent: AgentSpec, kind: str, tool: str | None) -> ApprovalRule:
    """Who answers a question of a kind that no condition decides."""
    for rule in agent.approvals:
        if (
            rule.kind in (None, kind)
            and (rule.tool is None or rule.tool == tool)
            and rule.when is None
        ):
            return rule
    return ApprovalRule(approvers=["user"]) if kind == "clarification" else DEFAULT


def open_question(
    run: Run,
    *,
    kind: str,
    rule: ApprovalRule,
    now: int,
    title: str,
    action: int | None = None,
    tool: str | None = None,
    arguments: Any = None,
    effect: str | None = None,
    reason: str | None = None,
    fired: Any = None,
    question: str | None = None,
    asked_by: int | None = None,
) -> Approval:
    """The question that the next `approval_requested` opens."""
    header = run.header
    named = rule.approvers or []
    n = header.next_approval
    groups = run.definition.people
    higher = rule.escalate_to or []
    policies = POLICY_MAY[kind] | ({"escalate"} if higher else set())
    approval = Approval(
        n=n,
        kind=kind,
        action=action,
        tool=tool,
        title=title,
        question=question,
        arguments=arguments,
        effect=effect,
        reason=reason,
        rule=fired,
        approvers=_people(run, named),
        anyone=not named,
        self_approval=rule.self_approval or named == ["user"],
        required=rule.required,
        expires_at=now + int(rule.within_seconds * 1000),
        on_timeout=rule.on_timeout if rule.on_timeout in policies else "cancel_run",
        history=history(run),
        asked_by=asked_by,
        groups=[name for name in named if name in groups],
        within_ms=int(rule.within_seconds * 1000),
        remind_ms=None
        if rule.remind_seconds is None
        else max(1000, int(rule.remind_seconds * 1000)),
        escalate_to=_people(run, higher),
        escalate_groups=[name for name in higher if name in groups],
        signed=rule.signed,
    )
    approval.digest = digest_of(run, approval)
    return approval


def _people(run: Run, names: list[str]) -> list[str]:
    """Names, groups and ``user`` as the people they stand for, each once."""
    people: list[str] = []
    for name in names:
        group = run.definition.people.get(name)
        people.extend(group.members if group else [run.header.user_id if name == "user" else name])
    return list(dict.fromkeys(people))


def digest_of(run: Run, approval: Approval) -> str:
    """SHA-256 over what would run (contract section 5)."""
    return digest(
        {
            "approval_id": run.approval_id(approval.n),
            "run_id": run.header.run_id,
            "action_id": None if approval.action is None else run.action_id(approval.action),
            "tool": approval.tool,
            "arguments": approval.arguments,
        }
    )


def _small(arguments: Any) -> Any:
    size = len(canonical(arguments))
    return arguments if size <= _SHOWN_BYTES else f"({size} bytes, see the action)"


def history(run: Run, limit: int = 10) -> dict[str, Any]:
    """What the approver should know: the last actions that are done, and the errors. While a run
    undoes what was done, they are those that are not undone, the one under way among them."""
    header = run.header
    completed: list[dict[str, Any]] = []
    undoings: dict[int, Action] = {}
    for n in range(header.next_action - 1, 0, -1):
        action = run.action(n)
        if action.undoes is not None:
            undoings[action.undoes] = action
        elif action.kind == "tool" and stands(action, undoings.get(n)):
            completed.append(
                {
                    "action_id": run.action_id(n),
                    "tool": action.target,
                    "arguments": _small(action.arguments),
                }
            )
            if len(completed) == limit:
                break
        if not header.undoing and header.next_action - n > 4 * limit:
            break
    return {"completed": completed[::-1], "errors": header.errors[-limit:]}


class _Lenient(string.Formatter):
    """A title's places: missing names stay visible, nothing is looked up inside a value."""

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> tuple[Any, str]:
        return shown(kwargs.get(field_name, f"{{{field_name}}}")), field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        return str(value)


_formatter = _Lenient()


def title_of(spec: ToolSpec, arguments: Any) -> str:
    """One line for a phone, control characters made visible."""
    values = arguments if isinstance(arguments, dict) else {}
    values = {name: "***" if name in spec.sensitive else value for name, value in values.items()}
    if spec.title:
        try:
            return shown(_formatter.vformat(spec.title, (), values), 200)
        except (ValueError, KeyError, IndexError):
            return shown(spec.title, 200)
    inner = ", ".join(f"{name}={shown(value, 60)}" for name, value in values.items())
    return shown(f"{spec.name}({inner})", 200)


_INVISIBLE = re.compile(
    r"[\u034f\u115f\u1160\u17b4\u17b5\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Printable by Unicode's table, and yet nothing is seen of them."""


def shown(value: Any, limit: int = 120) -> str:
    """Text that can't move a cursor or hide: controls, bidi and zero-width marks as escapes."""
    text = value if isinstance(value, str) else str(value)
    safe = "".join(
        c if c.isprintable() and not _INVISIBLE.match(c) else c.encode("unicode_escape").decode()
        for c in text[: limit + 1]
    )
    return safe if len(safe) <= limit else f"{safe[:limit]}... ({len(text)} characters)"


def refuse(
    run: Run, approval: Approval | None, decision: Any, at: int, verified: str
) -> str | None:
    """Why a decision does not count, or None. ``at``: the broker's time of the record (ms);
    ``verified``: how the approver's name was proved."""
    if approval is None:
        return f"no approval {decision.approval_id} was ever asked for"
    if not approval.open:
        return f"already closed by {approval.closed_by}"
    if at >= approval.expires_at:
        return "expired before the decision arrived"
    allowed = ALLOWED[approval.kind]
    word = decision.decision
    if word not in allowed:
        return f"a question of kind {approval.kind} takes {', '.join(allowed)}, not {word}"
    if word in NEEDS_REASON and not decision.reason:
        return f"{word} needs a reason"
    who = _refuse_person(run, approval, decision.approver, verified)
    if who is not None:
        return who
    if decision.digest is not None and decision.digest != approval.digest:
        return "the digest is not that of the question: it was asked about other arguments"
    if word == "modify" and decision.arguments is None:
        return "modify needs the new arguments"
    if word != "modify" and decision.arguments is not None:
        return f"arguments come with modify only, not with {word}"
    if word == "extend" and decision.budget is None:
        return "extend needs a budget"
    if word == "answer" and decision.answer is None:
        return "answer needs an answer"
    if word == "approve" and any(
        entry["approver"] == decision.approver for entry in counted(approval)
    ):
        return f"{decision.approver} has already said yes"
    return None


def counted(approval: Approval) -> list[dict[str, Any]]:
    """The decisions so far that are a yes to the question as it stands."""
    return [entry for entry in approval.decisions if entry.get("counts", True)]


def so_far(approval: Approval) -> str:
    """The verdict on a decision, the last one, after which the question is still open."""
    said = f"counted: {len(counted(approval))} of {approval.required}"
    if approval.decisions[-1].get("counts", True):
        return said
    who = ", ".join(approval.approvers[:10]) or "anyone but the task's user"
    return f"{said}, for another rule asks about these arguments: {who} may decide"


def raised(approval: Approval) -> Approval:
    """The question as it stands once it is escalated."""
    return structs.replace(
        approval,
        approvers=approval.escalate_to,
        groups=approval.escalate_groups,
        anyone=False,
        on_timeout="cancel_run",
        escalated=True,
    )


def may_decide(run: Run, approval: Approval, approver: str, verified: str) -> bool:
    """Whether a person's yes counts for this question."""
    return _refuse_person(run, approval, approver, verified) is None


def _refuse_person(run: Run, approval: Approval, approver: str, verified: str) -> str | None:
    if approval.signed and verified == "none":
        return "this question takes signed decisions only: anyone could have written that name"
    own = approver == run.header.user_id
    if own and not approval.self_approval:
        return f"{approver} is the task's user and may not decide on it"
    if approval.anyone or approver in approval.approvers:
        return None
    return f"{approver} may not decide here; {', '.join(approval.approvers) or 'nobody'} may"
