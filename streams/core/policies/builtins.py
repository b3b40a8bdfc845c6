"""The tools that every model has and no worker serves, as a model sees them."""

from __future__ import annotations

from typing import Final

from perdure.schemas.records import ToolSpec

from ..state import Run


def _spec(name: str, description: str, **properties: str) -> ToolSpec:
    required = [field for field, text in properties.items() if not text.startswith("Optional")]
    return ToolSpec(
        name=name,
        description=description,
        parameters={
            "type": "object",
            "properties": {
                field: {"type": "string", "description": text} for field, text in properties.items()
            },
            "required": required,
            "additionalProperties": False,
        },
        effect="read_only",
        approval="never",
    )


ASK_USER: Final = _spec(
    "ask_user",
    "Ask the user for information that you lack instead of guessing. The answer is the result.",
    question="The question, complete in itself.",
)
ASK_AUTHORITY: Final = _spec(
    "ask_authority",
    "Ask a person to allow a call that was refused because of missing permission. If it is "
    "allowed, the call is made again for you.",
    reason="Why the call is needed.",
    tool="Optional. The tool whose call was refused; else the last one.",
)
HAND_OVER: Final = _spec(
    "hand_over",
    "Hand over to a person when you can't go on: they see the steps done and the errors.",
    reason="What you tried and what you need.",
)
BUILTINS: Final[dict[str, ToolSpec]] = {
    spec.name: spec for spec in (ASK_USER, ASK_AUTHORITY, HAND_OVER)
}


def of(run: Run) -> dict[str, ToolSpec]:
    """The built-in tools that this run's agent has: those whose names it does not use itself."""
    own = run.definition.tools
    return {name: spec for name, spec in BUILTINS.items() if name not in own}
