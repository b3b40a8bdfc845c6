from __future__ import annotations

import asyncio
import datetime
import enum
from typing import Annotated, Any, Literal

import pytest
from perdure.connectors import ABSENT, InvalidArguments, ToolContext, tool
from perdure.connectors.signature import DefinitionError
from perdure.schemas.records import RetryPolicy
from pydantic import BaseModel, Field


class Colour(enum.Enum):
    RED = "red"


class Item(BaseModel):
    sku: str
    count: int = 1


@tool(
    "shop.order", effect="idempotent", approval="arguments.amount > 100", title="{amount} for {who}"
)
async def order(
    context: ToolContext,
    who: Annotated[str, Field(description="the customer")],
    amount: float,
    items: list[Item] | None = None,
    schema: Literal["a", "b"] = "a",
) -> dict[str, Any]:
    """Orders."""
    return {"who": who, "key": context.idempotency_key, "items": items}


def test_schema_comes_from_the_hints() -> None:
    parameters = order.spec.parameters
    assert parameters["additionalProperties"] is False
    assert parameters["required"] == ["who", "amount"]
    assert parameters["properties"]["who"] == {"type": "string", "description": "the customer"}
    assert parameters["properties"]["schema"]["default"] == "a"
    assert "context" not in parameters["properties"]
    assert "title" not in str(parameters)
    assert order.spec.description == "Orders."


def test_a_tool_is_called_directly_by_tests() -> None:
    got = asyncio.run(order(ToolContext(idempotency_key="k"), "ann", 3.0))
    assert got == {"who": "ann", "key": "k", "items": None}


def test_bare_tool_is_external_and_always_asks() -> None:
    @tool
    def f(n: int) -> int:
        return n

    assert (f.name, f.spec.effect, f.spec.approval) == ("f", "external", "always")
    assert f(2) == 2


def test_declared_effect_never_asks_by_default() -> None:
    @tool(effect="read_only", retry={"attempts": 5})
    def f() -> None: ...

    assert f.spec.approval == "never"
    assert f.spec.retry == RetryPolicy(attempts=5)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"who": 1, "amount": 1}, "arguments.who: input should be a valid string, not 1"),
        ({"who": "a", "amount": "1"}, "arguments.amount: input should be a valid number, not '1'"),
        ({"who": "a", "amount": True}, "arguments.amount"),
        ({"who": "a"}, "arguments.amount: is required"),
        ({"who": "a", "amount": 1, "x": 1}, "arguments.x: is no argument of this tool"),
        (
            {"who": "a", "amount": 1, "items": [{"sku": "s", "count": "2"}]},
            "arguments.items[0].count",
        ),
        ({"who": "a", "amount": 1, "schema": "c"}, "arguments.schema"),
        ([], "arguments"),
    ],
)
def test_arguments_that_change_meaning_are_refused(arguments: Any, says: str) -> None:
    with pytest.raises(InvalidArguments) as raised:
        order.signature.check(arguments)
    assert says in str(raised.value)


def test_arguments_are_read_from_their_json_form() -> None:
    @tool(effect="read_only")
    def f(when: datetime.datetime, tags: set[str], colour: Colour, big: int) -> None: ...

    got = f.signature.check(
        {"when": "2026-01-02T03:04:05Z", "tags": ["a"], "colour": "red", "big": 2**70}
    )
    assert got["when"] == datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    assert (got["tags"], got["colour"], got["big"]) == ({"a"}, Colour.RED, 2**70)
    assert order.signature.check({"who": "a", "amount": 1, "items": [{"sku": "s"}]})["items"] == [
        Item(sku="s")
    ]


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        (
            "arguments.amont > 100",
            "`arguments.amont`, which is no argument of it; did you mean `amount`?",
        ),
        ("arguments['amont'] > 100", "did you mean `amount`?"),
        ("has(arguments.zzz)", "no argument of it"),
        ("amount > 100", "not `amount`; did you mean `arguments.amount`?"),
        ("arguments.amount >", "neither `always`, `never` nor a CEL condition"),
        ("sometimes(", "neither"),
    ],
)
def test_conditions_are_checked_when_declared(condition: str, says: str) -> None:
    with pytest.raises(DefinitionError) as raised:

        @tool("t", effect="external", approval=condition)
        def f(amount: float) -> None: ...

    assert says in str(raised.value)


@pytest.mark.parametrize(
    "condition",
    [
        "arguments.amount > 100.0 && run.user_id != 'arguments.nobody'",
        'arguments["amount"] > 1.0 // arguments.later',
        "arguments.items.exists(item, item.count > 3)",
        "run.metadata.arguments.x == 'y'",
    ],
)
def test_conditions_that_are_right(condition: str) -> None:
    @tool("t", effect="external", approval=condition)
    def f(amount: float, items: list[Any]) -> None: ...

    assert f.spec.approval == condition


def _no_hint(n) -> None: ...  # type: ignore[no-untyped-def]


def _rest(*names: str) -> None: ...


def _lock(lock: asyncio.Lock) -> None: ...


def _fine(n: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "options", "says"),
    [
        (_no_hint, {}, "parameter `n` has no type hint"),
        (_rest, {}, "name every argument"),
        (_lock, {}, "the type hints give no JSON Schema"),
        (_fine, {"effect": "safe"}, "effect must be one of read_only, idempotent, external"),
        (_fine, {"key": ["m"]}, "key names `m`"),
        (_fine, {"title": "{m}"}, "title names `m`"),
        (_fine, {"title": "{n"}, "title:"),
        (_fine, {"timeout_seconds": 0}, "timeout_seconds"),
        (_fine, {"queue": "a b"}, "queue"),
    ],
)
def test_what_is_declared_wrongly(function: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        tool("t", **options)(function)
    assert says in str(raised.value)


def test_names_are_checked() -> None:
    with pytest.raises(DefinitionError, match="1 to 60"):
        tool("a b", effect="read_only")(_fine)


def test_query_is_declared_and_gets_the_arguments_it_has() -> None:
    @tool("t", effect="external")
    def act(n: int, m: int) -> None: ...

    @act.query
    def find(context: ToolContext, m: int) -> Any:
        return ABSENT

    assert act.spec.has_query
    context = ToolContext()
    assert act.query_arguments(context, {"n": 1, "m": 2}) == {"m": 2, "context": context}
    with pytest.raises(DefinitionError, match="has a query already"):
        act.query(find)


def test_query_with_a_foreign_argument_is_refused() -> None:
    @tool("t", effect="external")
    def act(number: int) -> None: ...

    with pytest.raises(DefinitionError, match="did you mean `number`"):

        @act.query
        def find(numbr: int) -> Any: ...


def test_read_only_has_no_query() -> None:
    with pytest.raises(DefinitionError, match="called again"):
        tool("t", effect="read_only")(_fine).query(_fine)


def test_context_saves_progress_without_a_worker() -> None:
    context = ToolContext()

    async def use() -> None:
        await context.save_progress(3)

    asyncio.run(use())
    assert context.progress == 3
    assert not context.cancelled
    context.cancel()
    assert context.cancelled
