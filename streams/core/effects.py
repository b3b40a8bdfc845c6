"""What the outside is to do because of an event: commands, and how an unknown one is settled."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct
from perdure.schemas.records import ActionCommand, ApprovedBy, RunEvent

from . import keys
from .planning import offer, summary, window
from .policies.budget import output_limit
from .state import Action, Run

EXPIRES_AFTER_TIMEOUTS: Final = 10
"""``expires_at`` = ``issued_at`` + this many timeouts (lifecycle section 2)."""
GRACE_MS: Final = 5_000
"""How much later than its own timeout a call's answer is waited for."""

SETTLE: Final[dict[tuple[str, bool], str]] = {
    ("read_only", False): "call",
    ("read_only", True): "call",
    ("idempotent", False): "call",
    ("idempotent", True): "query",
    ("external", True): "query",
    ("external", False): "ask",
}
"""(effect, has a query) -> what settles an unknown outcome (contract section 6)."""


class Command(Struct):
    """A command and the queue whose connectors carry it out."""

    queue: str
    command: ActionCommand


def effect_now(run: Run, action: Action, now: int) -> str:
    """The action's effect; a key that the service may have forgotten protects nothing."""
    if action.effect != "idempotent" or action.first_at is None:
        return action.effect
    spec = run.start.tools.get(action.target)
    valid_seconds = spec.key_valid_seconds if spec else 86_400.0
    return "external" if now - action.first_at >= valid_seconds * 1000 else "idempotent"


def settles_by(run: Run, action: Action, now: int) -> str:
    """``call``, ``query`` or ``ask``: what settles an unknown outcome."""
    return SETTLE[effect_now(run, action, now), action.has_query]


def expires_at(run: Run, action: Action, now: int) -> int:
    """From when on the command is not begun any more (ms).

    Once the run is ending the deadline has done what it is for: what settles or undoes its calls, and
    tells people of it, has its time.
    """
    at = now + int(EXPIRES_AFTER_TIMEOUTS * action.timeout_seconds * 1000)
    deadline = run.header.deadline_at if run.header.ending is None else None
    return at if deadline is None else min(at, max(deadline, now + 1))


def call_timer(action: Action, expires: int) -> int:
    """When a call that nobody answered is looked into (ms).

    A command may wait in its queue until it expires, so that a backlog doesn't multiply itself;
    what repeats freely then gets its next attempt, what doesn't is asked about.
    """
    return expires + int(action.timeout_seconds * 1000) + GRACE_MS


def started_timer(action: Action, now: int) -> int:
    """When a call that began is overdue (ms)."""
    return now + int(action.timeout_seconds * 1000) + GRACE_MS


def effects(run: Run, event: RunEvent) -> list[Command]:
    """The commands an event stands for, given the run after the decision it belongs to."""
    make = _EFFECTS.get(event.type)
    return [] if make is None else make(run, event)


def _requested(run: Run, event: RunEvent) -> list[Command]:
    return [_command(run, run.action(event.data["n"]), "call", event.at)]


def _queried(run: Run, event: RunEvent) -> list[Command]:
    return [_command(run, run.action(event.data["n"]), "query", event.at)]


def _ending(run: Run, event: RunEvent) -> list[Command]:
    return [_command(run, run.action(n), "cancel", event.at) for n, _ in event.data["in_flight"]]


_EFFECTS: Final = {
    "action_requested": _requested,
    "action_queried": _queried,
    "ending_started": _ending,
}


def _command(run: Run, action: Action, verb: str, at: int) -> Command:
    header = run.header
    approval = None
    if action.approval is not None and action.approved_by is not None:
        approval = ApprovedBy(run.approval_id(action.approval), action.approved_by)
    model = action.kind == "model"
    command = ActionCommand(
        run_id=header.run_id,
        agent=header.agent,
        user_id=header.user_id,
        session_id=header.session_id,
        tenant=header.tenant,
        metadata=header.metadata,
        action_id=run.action_id(action.n),
        attempt=action.attempt,
        verb=verb,  # type: ignore[arg-type]
        target=action.target,
        effect=action.effect,  # type: ignore[arg-type]
        arguments=None if model else action.arguments,
        request=_model_request(run, action) if model and verb == "call" else None,
        idempotency_key=action.key,
        request_id=keys.request_id(action.key),
        timeout_seconds=action.timeout_seconds,
        progress=action.progress,
        approval=approval,
        issued_at=at,
        expires_at=action.expires_at or at,
    )
    return Command(action.queue, command)


def _shown(run: Run, action: Action) -> window.View:
    made = run.drafted
    if made is not None and made[:2] == (action.n, run.header.messages):
        shown: window.View = made[2]
        return shown
    return summary.request_of(run, action)


def _model_request(run: Run, action: Action) -> dict[str, Any]:
    """The window, the tools and the settings. Of a script only the reply whose turn it is."""
    model = run.model_of(action)
    summarises = action.purpose == summary.PURPOSE
    spec = {
        "provider": model.provider,
        "name": model.name,
        "timeout_seconds": model.timeout_seconds,
    }
    request: dict[str, Any] = {
        "model": spec,
        "turn": action.step,
        **({"purpose": summary.PURPOSE} if summarises else {}),
        "messages": _shown(run, action).messages,
    }
    if model.provider == "scripted":
        replies = model.replies or []
        if summarises:
            request["reply"] = summary.by_script(run, action)
            return request
        request["reply"] = replies[action.step - 1] if action.step <= len(replies) else None
        request["input"] = run.start.input
        return request
    for name in ("base_url", "api_key_env", "function"):
        if getattr(model, name) is not None:
            spec[name] = getattr(model, name)
    for name in ("seed", "temperature", "response_schema"):
        if summarises and name == "response_schema":
            continue
        if getattr(model, name) is not None:
            request[name] = getattr(model, name)
    if summarises:
        request["max_output_tokens"] = summary.output_tokens(run, model.max_output_tokens)
        return request
    limit = output_limit(run, model)
    if limit is not None:
        request["max_output_tokens"] = limit
    request["tools"] = offer.tools(run, model)
    return request
