"""Requests to a run: cancel, pause, resume, message, extend (contract section 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from perdure.schemas.records import ControlRequest

from ..lifecycle import FINAL
from ..policies.budget import extended
from ..state import Run
from .decision import Decision, Lookup, Refusal
from .flow import advance
from .inputs import Control
from .moves import end


def on_control(run: Run, message: Control, now: int, lookup: Lookup) -> Decision | Refusal:
    """Do what is asked, or say why not."""
    request = message.request
    header = run.header
    if request.expected_version is not None and request.expected_version != header.version:
        return Refusal(f"the run has version {header.version}, not {request.expected_version}")
    if header.status in FINAL:
        return Refusal(f"the run is {header.status}")
    handler = _HANDLERS.get(request.command)
    if handler is None:
        return Refusal(f"{request.command} is not supported by this version")
    decision = Decision.on(run, now, lookup)
    refused = handler(decision, request, f"user:{request.by or 'unknown'}")
    if refused is not None:
        return refused
    decision.verdict = request.command
    advance(decision)
    return decision


def _cancel(decision: Decision, request: ControlRequest, actor: str) -> Refusal | None:
    ending = decision.run.header.ending
    if ending is not None and ending.to != "failed":
        return Refusal(f"the run is already ending ({ending.to})")
    if request.compensate:
        return Refusal("compensation is not supported by this version: cancel without `compensate`")
    end(decision, "cancelled", request.reason or "cancelled on request", actor=actor)
    return None


def _pause(decision: Decision, request: ControlRequest, actor: str) -> Refusal | None:
    if decision.run.header.paused:
        return Refusal("the run is already paused")
    decision.emit("run_paused", {"reason": request.reason}, actor)
    return None


def _resume(decision: Decision, request: ControlRequest, actor: str) -> Refusal | None:
    if not decision.run.header.paused:
        return Refusal("the run is not paused")
    decision.emit("run_resumed", {"reason": request.reason}, actor)
    return None


def _message(decision: Decision, request: ControlRequest, actor: str) -> Refusal | None:
    header = decision.run.header
    if request.content is None:
        return Refusal("message needs content")
    if header.planned:
        return Refusal("the run follows a plan: nobody reads messages")
    if header.ending is not None:
        return Refusal(f"the run is ending ({header.ending.to})")
    decision.emit("message_received", {"content": request.content, "by": actor}, actor)
    return None


def _extend(decision: Decision, request: ControlRequest, actor: str) -> Refusal | None:
    if request.budget is None:
        return Refusal("extend needs a budget")
    if decision.run.header.ending is not None:
        return Refusal("the run is ending")
    more = extended(decision.run.header.budget, request.budget)
    decision.emit("budget_changed", {"budget": msgspec.to_builtins(more)}, actor)
    return None


_HANDLERS: Final[dict[str, Callable[[Decision, ControlRequest, str], Refusal | None]]] = {
    "cancel": _cancel,
    "pause": _pause,
    "resume": _resume,
    "message": _message,
    "extend": _extend,
}
