"""Expressions of users: what could stop the engine is refused with a reason."""

from __future__ import annotations

import pytest
from perdure.streams.core import cel

HOSTILE = {
    "long": "'" + "a" * 66_000 + "'",
    "chain": "1" + "+1" * 30_000,
    "path": "a." * 20_000 + "b",
    "index": "a" + "[0]" * 20_000,
    "brackets": "(" * 1_500 + "1" + ")" * 1_500,
    "prefixes": "!" * 3_900 + "true",
    "spaced prefixes": "! " * 1_900 + "true",
    "loops": "input.map(a, input.map(b, a + b))",
    "no text": 5,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_expression_is_refused_with_a_short_reason(name: str) -> None:
    with pytest.raises(cel.ExpressionError) as caught:
        cel.evaluate(HOSTILE[name], {"input": [1, 2], "a": {}})  # type: ignore[arg-type]
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("input.filter(x, x > 1)", [2]),
        ("size(input) == 2 && !(a.b || false)", True),
        ("1" + "+1" * 1_900, 1_901),
        ("-(-(1))", 1),
    ],
)
def test_ordinary_expression_has_its_value(expression: str, value: object) -> None:
    assert cel.evaluate(expression, {"input": [1, 2], "a": {"b": False}}) == value
