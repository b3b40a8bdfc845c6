"""A fork: a new run that begins with the first events of another (contract section 4).

The fork's history is the other's up to the fork's version, told again under the fork's own id
and chain; then it is a run like any other, and folding its events gives its state. Finished
actions keep results and keys; a call still to come has a key of the fork's. What was under way
then and changes nothing outside is called again; a writing call under way, or an answer half
given, refuses the fork.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from perdure.schemas.records import RunEvent, Task

from .. import keys
from ..apply import BrokenHistory, follow, last_life
from ..events import hash_of
from ..lifecycle import FINAL, SUCCEEDED
from ..policies import approval as approvals
from ..policies.budget import lowered, seconds_used
from ..state import Action, Approval, Header, Run
from .decision import Decision, Lookup, Refusal
from .flow import advance
from .inputs import StartTask
from .moves import request

MAX_EVENTS: Final = 20_000
"""A longer history is not told again in one transaction."""
_RESTING: Final = frozenset({"proposed", "waiting_approval"})
_MOVES_A_DEADLINE: Final = frozenset({"approval_expired", "approver_notified"})
_TIMES: Final = ("expires_at", "remind_at", "next_at")
_UNDOING: Final = frozenset({"compensation_started", "compensation_finished"})


def fork(
    message: StartTask, history: Sequence[RunEvent], base: Any, now: int, lookup: Lookup
) -> Decision | Refusal:
    """The fork's first events. ``history``: all events there are of the run forked from."""
    task = message.task
    assert task.fork_of is not None
    version = task.fork_of.version
    history = last_life(history)
    source = _source(task, history)
    if isinstance(source, Refusal):
        return source
    refused = _state_refuses(source) or _later_refuses(source, history[version:])
    if "retry" in history[version - 1].data:
        refused = refused or "fork_of.version: a retry had just begun then: choose a later version"
    if refused is not None:
        return Refusal(refused)
    decision = _tell_again(message, source, history[:version], base, now, lookup)
    decision.copied = version
    run = decision.run
    if task.budget is not None:
        budget = lowered(_policy(run), task.budget)
        decision.emit("budget_changed", {"budget": msgspec.to_builtins(budget)})
    for n in run.header.notices:  # the other run's; people hear of the fork's own questions anew
        decision.emit("action_cancelled", {"n": n, "reason": "the run was forked"})
    decision.opened.extend(run.header.asks)
    for action in run.open_actions():
        if action.status not in _RESTING:
            _take_up(decision, action)
    advance(decision)
    return decision


def _source(task: Task, history: Sequence[RunEvent]) -> Run | Refusal:
    """The run forked from, as of the fork's version."""
    wanted = task.fork_of
    assert wanted is not None
    if not history:
        return Refusal(f"fork_of.run_id: {wanted.run_id} has no events")
    if not 1 <= wanted.version <= len(history):
        return Refusal(f"fork_of.version: {wanted.run_id} has {len(history)} versions")
    if wanted.version > MAX_EVENTS:
        return Refusal(f"fork_of.version: at most {MAX_EVENTS} events are told again")
    run: Run | None = None
    for event in history[: wanted.version]:
        head = "" if run is None else run.header.hash
        if event.previous_hash != head or event.hash != hash_of(event):
            return Refusal(f"fork_of: the history of {wanted.run_id} is broken at {event.version}")
        try:
            run = follow(run, event)
        except BrokenHistory as error:
            return Refusal(f"fork_of: the history of {wanted.run_id} is broken: {error}")
    assert run is not None
    if run.header.hash != wanted.hash:
        return Refusal(f"fork_of.hash: version {wanted.version} has another: {run.header.hash}")
    if run.header.agent != task.agent:
        return Refusal(f"agent: a fork goes on with its run's agent, {run.header.agent}")
    if task.plan is not None or task.messages is not None or task.input is not None:
        return Refusal("a fork takes input, plan and messages from its run: send it a message")
    return run


def _state_refuses(run: Run) -> str | None:
    """Why a run can't be forked as it was then."""
    header = run.header
    if header.status in FINAL or header.ending is not None:
        return "fork_of.version: the run had ended or was ending: choose an earlier version"
    if header.replacing is not None:
        return "fork_of.version: a failed call was just giving way to another tool's: choose another version"
    for action in run.open_actions():
        named = f"fork_of.version: {action.target} ({run.action_id(action.n)})"
        if action.circling and action.status == "proposed" and not header.repeated:
            return f"{named} was just looked at by a person: choose an earlier or later version"
        if action.status == "approved":
            return f"{named} was approved and not yet called: choose an earlier version"
        if action.status not in _RESTING and action.effect != "read_only":
            return f"{named} writes and was open then: choose an earlier or later version"
        if action.status == "waiting_approval" and not _asked(run, action.approval).open:
            return f"{named} was just decided then: choose an earlier or later version"
    for n in header.asks:
        found = run.approval(n)
        if found is not None and found.decisions:
            return "fork_of.version: a question was half answered then: choose another version"
    return None


def _asked(run: Run, n: int | None) -> Approval:
    found = None if n is None else run.approval(n)
    assert found is not None
    return found


def _later_refuses(run: Run, later: Sequence[RunEvent]) -> str | None:
    done = {n for n in range(1, run.header.next_action) if run.action(n).status in SUCCEEDED}
    if any(event.type in _UNDOING and event.data.get("n") in done for event in later):
        return f"fork_of: {run.header.run_id} has since undone what the fork would build on"
    return None


def _tell_again(
    message: StartTask,
    source: Run,
    history: Sequence[RunEvent],
    base: Any,
    now: int,
    lookup: Lookup,
) -> Decision:
    """The same events in the fork's name. Times stay: they are when it happened."""
    task, was = message.task, source.header
    header = Header(
        run_id=message.run_id,
        agent=was.agent,
        user_id=was.user_id,  # whoever forks it does not become the one it works for
        session_id=was.session_id,
        tenant=was.tenant,
        metadata=task.metadata or was.metadata,
    )
    deadline = task.deadline_at
    if deadline is None and was.deadline_at is not None and was.deadline_at > now:
        deadline = was.deadline_at
    first = {
        **history[0].data,
        "fork_of": msgspec.to_builtins(task.fork_of),
        "forked_at": now,
        "used_ms": int(1000 * seconds_used(source, was.updated_at)),
        "nonce": message.nonce,
        "digest": message.digest,
        "origin": message.origin,
        "deadline_at": deadline,
    }
    decision = Decision.starting(header, base, now, lookup, first, history[0].at)
    at = history[0].at
    for event in history[1:]:
        data, at = event.data, max(event.at, at)
        if event.type == "action_proposed" and data["n"] in was.open:  # its call is still to come
            own = keys.idempotency_key(
                message.run_id, data.get("keyed") or data["n"], message.nonce
            )
            data = {**data, "key": own}
        elif event.type == "approval_requested" and data["approval"]["n"] in was.asks:
            data, at = _asked_anew(decision, event), now
        elif event.type in _MOVES_A_DEADLINE and data["n"] in was.asks:
            moved = {name: now + data[name] - event.at for name in _TIMES if name in data}
            data, at = {**data, **moved}, now if moved else at
        decision.emit(event.type, data, event.actor, at)
    return decision


def _asked_anew(decision: Decision, event: RunEvent) -> dict[str, Any]:
    """A question that is open in the fork is the fork's own: digest and deadline are new."""
    plain = event.data["approval"]
    asked = msgspec.convert({**plain, "requested_at": decision.now}, Approval)
    asked.expires_at = decision.now + plain["expires_at"] - event.at
    asked.digest = approvals.digest_of(decision.run, asked)
    return {"approval": msgspec.to_builtins(asked)}


def _policy(run: Run) -> Any:
    """The limits in force, as a policy that a task may lower."""
    budget = run.header.budget
    return msgspec.structs.replace(
        run.definition.budget, **{name: getattr(budget, name) for name in budget.__struct_fields__}
    )


def _take_up(decision: Decision, action: Action) -> None:
    """A reading call that was under way: the fork makes it again."""
    if action.status == "failed":
        if not any(action.n == _asked(decision.run, n).action for n in decision.run.header.asks):
            request(decision, action.n)  # it was about to be asked about
        return
    error = {"kind": "transient", "code": "FORKED", "message": "the run was forked here"}
    data = {"n": action.n, "attempt": action.attempt, "error": error, "ambiguous": False}
    if action.status != "backing_off":
        decision.emit("retry_scheduled", {**data, "due": decision.now})
    request(decision, action.n)
