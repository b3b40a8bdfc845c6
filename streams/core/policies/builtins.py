"""The tools that every model has and no worker serves, as a model sees them."""

from __future__ import annotations

from typing import Any, Final

from perdure.schemas.records import ToolSpec

from ..state import Run

NAME_CHARACTERS: Final = 60
PLAN_ITEMS: Final = 50
_TITLE_CHARACTERS: Final = 200


def _spec(name: str, description: str, required: list[str], /, **properties: Any) -> ToolSpec:
    return ToolSpec(
        name=name,
        description=description,
        parameters={
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        },
        effect="read_only",
        approval="never",
    )


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


ASK_USER: Final = _spec(
    "ask_user",
    "Ask the user for information that you lack instead of guessing. The answer is the result.",
    ["question"],
    question=_text("The question, complete in itself."),
)
ASK_AUTHORITY: Final = _spec(
    "ask_authority",
    "Ask a person to allow a call that was refused because of missing permission. If it is "
    "allowed, the call is made again for you.",
    ["reason"],
    reason=_text("Why the call is needed."),
    tool=_text("Optional. The tool whose call was refused; else the last one."),
)
HAND_OVER: Final = _spec(
    "hand_over",
    "Hand over to a person when you can't go on: they see the steps done and the errors.",
    ["reason"],
    reason=_text("What you tried and what you need."),
)
PIN: Final = _spec(
    "pin",
    "Keep a fact in view for the rest of the work, however long it gets. It stands under Known.",
    ["name", "value"],
    name={"type": "string", "pattern": f"^[A-Za-z_][A-Za-z0-9_]{{0,{NAME_CHARACTERS - 1}}}$"},
    value={"description": "Any JSON, 4 kB at most; null removes the fact."},
)
UPDATE_PLAN: Final = _spec(
    "update_plan",
    "Write down the whole to-do list of this work, again with every change of it.",
    ["items"],
    items={
        "type": "array",
        "maxItems": PLAN_ITEMS,
        "items": {
            "type": "object",
            "properties": {
                "title": {"type": "string", "minLength": 1, "maxLength": _TITLE_CHARACTERS},
                "status": {"enum": ["pending", "in_progress", "done", "skipped"]},
                "id": {"type": "string", "minLength": 1, "maxLength": NAME_CHARACTERS},
            },
            "required": ["title", "status"],
            "additionalProperties": False,
        },
    },
)
BUILTINS: Final[dict[str, ToolSpec]] = {
    spec.name: spec for spec in (ASK_USER, ASK_AUTHORITY, HAND_OVER, PIN, UPDATE_PLAN)
}


def of(run: Run) -> dict[str, ToolSpec]:
    """The built-in tools that this run's agent has: those whose names it does not use itself."""
    own = run.definition.tools
    return {name: spec for name, spec in BUILTINS.items() if name not in own}
