"""Lines for people: a fact, a value of any length, an error, a rule with the values it saw."""

from __future__ import annotations

from typing import Any

from .terminal import emit, paragraphs, safe


def fact(text: str, depth: int = 1) -> None:
    emit("  " * depth + text)


def said(label: str, value: Any, depth: int = 1) -> None:
    """A label and a value of any length. Its further lines are marked: they can't pass for facts."""
    first, *rest = paragraphs(value, 4_000)
    fact(f"{label}: {first}", depth)
    for text in rest:
        fact(f"| {text}", depth + 1)


def named(value: Any, depth: int) -> None:
    """Arguments, one a line."""
    if isinstance(value, dict):
        for name, inner in value.items():
            said(safe(name, 60), inner, depth)
    elif value is not None:
        said("arguments", value, depth)


def error_text(error: Any) -> str:
    if not isinstance(error, dict):
        return safe(error, 1_000)
    text = f"{error.get('kind', '')} {error.get('code', '')} {error.get('message', '')}"
    return safe(" ".join(text.split()), 1_000)


def rule_text(rule: dict[str, Any]) -> str:
    word = "yes" if rule.get("asks") else "no"
    values = ", ".join(
        f"{safe(name, 100)} = {safe(value, 200)}"
        for name, value in (rule.get("values") or {}).items()
    )
    text = f"{safe(rule.get('source'))}: {safe(rule.get('when'), 500)}: {word}"
    text += f" ({values})" if values else ""
    if rule.get("overridden"):
        text += ", lifted by a rule of the agent"
    return text + (f"; {safe(rule['error'], 300)}" if "error" in rule else "")
