"""Built-in calls that write down what stays in view: `pin` a key fact, `update_plan` the to-do list.

Both succeed at once, or fail with a text that says what to shorten.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from perdure.schemas.canonical import canonical

from ..decide.decision import Decision
from ..policies.builtins import NAME_CHARACTERS
from ..state import Notes
from . import sizes, window
from .rendering import render

VALUE_BYTES: Final = 4_096
MOST_BYTES: Final = 100_000
"""Of all key facts and the plan, however large the window is: they stand in one record."""
_NAME: Final = re.compile(rf"[A-Za-z_][A-Za-z0-9_]{{0,{NAME_CHARACTERS - 1}}}")


def pin(decision: Decision, n: int, arguments: dict[str, Any]) -> None:
    """Keep a key fact; null removes it."""
    notes = decision.run.notes
    name, value = str(arguments["name"]), arguments["value"]
    facts = {key: kept for key, kept in notes.facts.items() if key != name}
    size = len(canonical(value))
    problem = None
    if not _NAME.fullmatch(name):
        problem = f"name: must be an identifier of at most {NAME_CHARACTERS} characters"
    elif size > VALUE_BYTES:
        problem = f"value: has {size} bytes of JSON; at most {VALUE_BYTES} are kept: shorten it"
    elif value is not None:
        facts[name] = value
        problem = _too_much(decision, msgspec.structs.replace(notes, facts=facts))
    if problem is not None:
        _fail(decision, n, problem)
        return
    decision.emit("key_state_changed", {"n": n, "name": name, "value": value})
    done = "removed" if value is None else "kept"
    decision.emit("action_succeeded", {"n": n, "result": {done: name, "facts": sorted(facts)}})


def update_plan(decision: Decision, n: int, arguments: dict[str, Any]) -> None:
    """Keep the to-do list, whole."""
    items = [
        {"id": item.get("id", str(number)), "title": item["title"], "status": item["status"]}
        for number, item in enumerate(arguments["items"], 1)
    ]
    ids = [item["id"] for item in items]
    twice = next((each for each in ids if ids.count(each) > 1), None)
    problem = None if twice is None else f"items: the id {twice} stands there twice"
    if problem is None:
        problem = _too_much(decision, msgspec.structs.replace(decision.run.notes, plan=items))
    if problem is not None:
        _fail(decision, n, problem)
        return
    decision.emit("plan_updated", {"n": n, "plan": items})
    left = sum(item["status"] in ("pending", "in_progress") for item in items)
    decision.emit("action_succeeded", {"n": n, "result": {"items": len(items), "left": left}})


def _too_much(decision: Decision, notes: Notes) -> str | None:
    """Why these notes would take too much of every request from now on, or None."""
    run = decision.run
    text = window.known(notes) or ""
    tokens, most = sizes.weigh(text), window.room(run) // 4
    if tokens > most or len(text.encode()) > MOST_BYTES:
        kept = ", ".join(f"{name} {len(canonical(value))}" for name, value in _largest(notes))
        return (
            f"the key facts and the plan would have about {window.corrected(run, tokens)} tokens; "
            f"at most {window.corrected(run, most)} are kept, a quarter of the window. Shorten or "
            f"remove (value null) some first; bytes: {kept}"
        )
    asked = sizes.message(render(run, run.message(window.last_user(run))))
    always = window.weight(window.system(run, notes, summary=False)) + window.tools_weight(run)
    if always + asked > window.room(run) and tokens > sizes.weigh(window.known(run.notes) or ""):
        return (
            "the window has no room for more key facts beside the last message: remove some first"
        )
    return None


def _largest(notes: Notes) -> list[tuple[str, Any]]:
    facts: dict[str, Any] = dict(notes.facts)
    if notes.plan:
        facts["plan"] = notes.plan
    return sorted(facts.items(), key=lambda item: -len(canonical(item[1])))[:5]


def _fail(decision: Decision, n: int, problem: str) -> None:
    error = {"kind": "invalid_arguments", "code": "NOT_KEPT", "message": problem}
    data = {"n": n, "attempt": 0, "error": error, "ambiguous": False, "closed": True}
    decision.emit("action_failed", data)
