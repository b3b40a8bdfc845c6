"""The tools of a model request, as the model sees them."""

from __future__ import annotations

from typing import Any, Final

from perdure.schemas.records import ModelSpec, ToolSpec

from ..arguments import properties, required
from ..policies import builtins
from ..state import Run
from . import sizes

_BUILTINS_SHARE: Final = 4
"""Built-in tools take a quarter of the window at most: a small one is for the agent's own work."""


_PARTS: Final = (("properties", dict), ("required", list))


def tools(run: Run, model: ModelSpec | None = None) -> list[dict[str, Any]]:
    """The agent's own tools, then the built-in ones that there is room for.

    A scripted model's request has none: its replies are fixed.
    """
    definition = run.definition
    model = model or definition.model
    if model is None or model.provider == "scripted":
        return []
    own = [_own(run, name) for name in definition.tools if name in run.start.tools]
    left = definition.window.max_tokens // _BUILTINS_SHARE
    added: list[dict[str, Any]] = []
    for spec in builtins.of(run).values():
        made = _shown(spec, spec.parameters)
        left -= sizes.weigh(made)
        if left < 0:
            break
        added.append(made)
    return [*own, *added]


def _shown(spec: ToolSpec, parameters: dict[str, Any]) -> dict[str, Any]:
    """A part of the schema that no provider could read, and refuse all for, is left out."""
    for name, kind in _PARTS:
        if name in parameters and not isinstance(parameters[name], kind):
            parameters = {other: part for other, part in parameters.items() if other != name}
    return {"name": spec.name, "description": spec.description, "parameters": parameters}


def _own(run: Run, name: str) -> dict[str, Any]:
    """A tool as the model sees it; one that may ask also takes the model's reason."""
    spec = run.start.tools[name]
    parameters = spec.parameters
    asks = spec.approval != "never" or any(
        rule.kind == "action" and rule.tool in (None, name) for rule in run.definition.approvals
    )
    if asks:
        why = why_name(parameters)
        parameters = {
            **parameters,
            "properties": {
                **properties(parameters),
                why: {
                    "type": "string",
                    "description": "Why this call is needed, for the person who may have to approve it.",
                },
            },
            "required": [*required(parameters), why],
        }
    return _shown(spec, parameters)


def why_name(parameters: dict[str, Any]) -> str:
    """``why``, or ``why_`` where the tool has its own."""
    return "why_" if "why" in properties(parameters) else "why"
