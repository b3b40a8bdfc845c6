"""Expressions of users: what could stop the engine is refused with a reason."""

from __future__ import annotations

import ast

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


LARGE = [2**64, 2**64 + 1, 10**40, -(2**63) - 1]
WITH_LARGE = {
    "input": "{}",
    "input.id": "{id}",
    "input['a-b']": "{id}",
    'input["x y"][1].n': "{id}",
    "input.rows[0]": "{id}",
    "input.rows": "[{id}, 5]",
    "input.rows.filter(row, row == row)": "[{id}, 5]",
    "input.rows.map(row, row)": "[{id}, 5]",
    "[input.id, input.small]": "[{id}, 7]",
    "has(input.id) ? input.id : 0": "{id}",
    "input.id == input.other ? 1 : 2": "2",
    "input.id == input.rows[0] ? 1 : 2": "1",
    "input.small + 1": "8",
}


@pytest.mark.parametrize("value", LARGE)
@pytest.mark.parametrize("expression", WITH_LARGE)
def test_an_integer_beyond_64_bits_is_handed_on_exactly(expression: str, value: int) -> None:
    given = {
        "id": value,
        "a-b": value,
        "x y": [0, {"n": value}],
        "rows": [value, 5],
        "other": value + 1 if value > 0 else value - 1,
        "small": 7,
    }
    wanted = WITH_LARGE[expression].replace("{id}", str(value))
    found = cel.fill({"x": {"$": expression}}, {"input": given})["x"]
    assert repr(found) == repr(
        given if wanted == "{}" else ast.literal_eval(wanted)
    )  # 2**64 == 2.0**64


@pytest.mark.parametrize(
    "expression",
    [
        "input.id > 5 ? 1 : 2",
        "input.id < input.other",
        "string(input.id)",
        "input.rows.filter(row, row > 1)",
    ],
)
def test_what_would_be_worked_out_of_a_rounded_integer_is_refused(expression: str) -> None:
    given = {"id": 2**70, "other": 2**71, "rows": [2**70, 5]}
    with pytest.raises(cel.ExpressionError, match="beyond 64 bits, which would be rounded"):
        cel.fill({"$": expression}, {"input": given})


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("input.nosuch", "nosuch"),
        ("input.rows[2]", "out of bounds: 2"),
        ("input.rows['a']", "Unexpected type"),
        ("input.id[0]", ""),
        ("input[0]", "0"),
        ("1 / 0", "division by zero"),
    ],
)
def test_what_is_wrong_with_an_expression_is_said_as_ever(expression: str, words: str) -> None:
    with pytest.raises(cel.ExpressionError) as caught:
        cel.fill({"$": expression}, {"input": {"id": 2**70, "rows": [1, 2]}})
    assert words in str(caught.value)
    assert "64 bits" not in str(caught.value)


def test_the_longest_path_takes_no_time() -> None:
    path = "input" + "['a']" * 50_000
    with pytest.raises(cel.ExpressionError, match="characters"):
        cel.fill({"$": path + "["}, {"input": {}})
