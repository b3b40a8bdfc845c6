"""`@tool`: a Python function that agents may call, with what recovery may do about it."""

from __future__ import annotations

import re
import string
import threading
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, Generic, ParamSpec, TypeVar, overload

from perdure.schemas import codec
from perdure.schemas.errors import RecordError
from perdure.schemas.records import NAME_PATTERN, ApprovedBy, RetryPolicy, ToolSpec

from . import conditions
from .errors import Effect
from .signature import DefinitionError, Signature, documentation, is_async

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

EFFECTS: tuple[Effect, ...] = ("read_only", "idempotent", "external")
"""From the mildest to the strictest."""


class Found:
    """A query's answer: the call did happen, and this was (or is) its result."""

    __slots__ = ("result",)

    def __init__(self, result: Any = None) -> None:
        self.result = result

    def __repr__(self) -> str:
        return f"Found({self.result!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Found) and other.result == self.result

    __hash__ = None  # type: ignore[assignment]


class Answer:
    """A query's answer without a result: `ABSENT` (it did not happen) or `UNCLEAR`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


ABSENT = Answer("ABSENT")
UNCLEAR = Answer("UNCLEAR")


class _Saved:
    """What `save_progress` returns where nothing is left to wait for."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


class ToolContext:
    """The call a tool is part of. Tests of a tool make one with the fields they need."""

    __slots__ = (
        "_cancelled", "_save", "action_id", "approval", "attempt", "deadline_at",
        "idempotency_key", "metadata", "progress", "request_id", "run_id", "session_id",
        "tenant", "user_id",
    )  # fmt: skip

    def __init__(
        self,
        run_id: str = "test",
        action_id: str = "test/1",
        attempt: int = 1,
        idempotency_key: str = "test/1/00000000",
        request_id: str = "00000000-0000-0000-0000-000000000000",
        user_id: str = "anonymous",
        session_id: str = "test",
        tenant: str = "default",
        metadata: Mapping[str, str] | None = None,
        approval: ApprovedBy | None = None,
        deadline_at: int | None = None,
        progress: Any = None,
        save: Callable[[Any], Awaitable[None] | None] | None = None,
    ) -> None:
        self.run_id = run_id
        self.action_id = action_id
        self.attempt = attempt
        self.idempotency_key = idempotency_key
        self.request_id = request_id
        self.user_id = user_id
        self.session_id = session_id
        self.tenant = tenant
        self.metadata: Mapping[str, str] = metadata or {}
        self.approval = approval
        self.deadline_at = deadline_at
        """ms; after it nobody waits for this call any more. Saved progress moves it on."""
        self.progress = progress
        """What an earlier attempt (or this one) saved last."""
        self._save = save
        self._cancelled: threading.Event | None = None

    @property
    def cancelled(self) -> bool:
        """The run was cancelled, or the call's time is over: stop where that is safe."""
        return self._cancelled is not None and self._cancelled.is_set()

    def cancel(self) -> None:
        """Make `cancelled` true (the worker does; tests may). Thread-safe."""
        if self._cancelled is None:
            self._cancelled = threading.Event()
        self._cancelled.set()

    def save_progress(self, value: Any) -> Awaitable[None]:
        """Keep ``value`` for the next attempt; durable once awaited (in a ``def``: on return).

        It also tells that the call lives: its ``timeout_seconds`` begin anew, so a tool that runs
        for hours is given up soon after it has fallen silent.
        """
        self.progress = value
        saved = self._save(value) if self._save is not None else None
        return _Saved() if saved is None else saved


class Tool(Generic[P, R]):
    """A declared tool. Calling it calls the function itself, as tests do."""

    def __init__(self, function: Callable[P, R], spec: ToolSpec, signature: Signature) -> None:
        self.function = function
        self.spec = spec
        self.signature = signature
        self.is_async = is_async(function)
        self.query_function: Callable[..., Any] | None = None
        self._query_names: frozenset[str] = frozenset()
        self._query_context: str | None = None
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", spec.name)
        self.__module__ = function.__module__
        self.__wrapped__ = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.spec.name} ({self.spec.effect})>"

    @property
    def name(self) -> str:
        return self.spec.name

    def query(self, function: F) -> F:
        """Declare how to find out whether a call happened: `Found(result)`, ABSENT or UNCLEAR."""
        label = f"{self.name}.query"
        if self.query_function is not None:
            raise DefinitionError(f"{self.name}: has a query already")
        if self.spec.effect == "read_only":
            raise DefinitionError(f"{self.name}: a read_only tool is called again, not queried")
        asked = Signature(function, ToolContext, label)
        for name in asked.names:
            if name not in self.signature.names and name in asked.required:
                raise DefinitionError(
                    f"{label}: `{name}` is no argument of {self.name}{conditions.near(name, self.signature.names)}"
                )
        self.query_function = function
        self._query_names = frozenset(asked.names)
        self._query_context = asked.context
        self.spec.has_query = True
        return function

    def call_arguments(self, context: ToolContext, arguments: dict[str, Any]) -> dict[str, Any]:
        """Keyword arguments of the function for checked ``arguments``."""
        if self.signature.context is not None:
            arguments[self.signature.context] = context
        return arguments

    def query_arguments(self, context: ToolContext, arguments: dict[str, Any]) -> dict[str, Any]:
        """Those of the query: the ones it has parameters for."""
        chosen = {name: value for name, value in arguments.items() if name in self._query_names}
        if self._query_context is not None:
            chosen[self._query_context] = context
        return chosen


@overload
def tool(name: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(
    name: str | None = None,
    /,
    *,
    effect: Effect | None = None,
    approval: str | None = None,
    compensate: str | None = None,
    fallback: str | None = None,
    stale_ok_seconds: float | None = None,
    timeout_seconds: float = 30.0,
    settle_seconds: float | None = None,
    retry: RetryPolicy | Mapping[str, float] | None = None,
    key: list[str] | None = None,
    key_valid_seconds: float = 86_400.0,
    title: str | None = None,
    queue: str = "tools",
    sensitive: list[str] | None = None,
    approvers: list[str] | None = None,
    version: int = 1,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(
    name: Any = None,
    /,
    *,
    effect: Effect | None = None,
    approval: str | None = None,
    compensate: str | None = None,
    fallback: str | None = None,
    stale_ok_seconds: float | None = None,
    timeout_seconds: float = 30.0,
    settle_seconds: float | None = None,
    retry: RetryPolicy | Mapping[str, float] | None = None,
    key: list[str] | None = None,
    key_valid_seconds: float = 86_400.0,
    title: str | None = None,
    queue: str = "tools",
    sensitive: list[str] | None = None,
    approvers: list[str] | None = None,
    version: int = 1,
) -> Any:
    """Declare a function as a tool (contract section 7). Raises `DefinitionError`.

    ``effect``: `read_only`, `idempotent` (the same key twice has one effect) or `external` (no
    promise). Left out it is `external`, and a person is asked before every call.
    """
    if name is not None and not isinstance(name, str):
        return tool()(name)

    def declare(function: Callable[P, R]) -> Tool[P, R]:
        label = str(name or getattr(function, "__name__", "tool"))
        if not re.match(NAME_PATTERN, label):
            raise DefinitionError(
                f"{label!r}: a tool's name is 1 to 60 of letters, digits and _ - ."
            )
        if effect is not None and effect not in EFFECTS:
            raise DefinitionError(
                f"{label}: effect must be one of {', '.join(EFFECTS)}, not {effect!r}"
            )
        signature = Signature(function, ToolContext, label)
        asks = approval or ("always" if effect is None else "never")
        conditions.check(asks, signature.names, label)
        _check_names(label, "key", key or [], signature.names)
        _check_names(label, "title", _places(title, label), signature.names)
        spec = ToolSpec(
            name=label,
            description=documentation(function),
            parameters=signature.schema,
            effect=effect or "external",
            approval=asks,
            approvers=approvers,
            timeout_seconds=float(timeout_seconds),
            settle_seconds=settle_seconds,
            retry=RetryPolicy(**retry) if isinstance(retry, Mapping) else retry,  # type: ignore[arg-type]
            compensate=compensate,
            fallback=fallback,
            stale_ok_seconds=stale_ok_seconds,
            key=key,
            key_valid_seconds=float(key_valid_seconds),
            title=title,
            queue=queue,
            sensitive=sensitive or [],
            version=version,
        )
        return Tool(function, _checked(spec), signature)

    return declare


def _checked(spec: ToolSpec) -> ToolSpec:
    try:
        return codec.decode(codec.encode(spec), ToolSpec)
    except RecordError as error:
        raise DefinitionError(f"{spec.name}: {error}") from error


def _check_names(label: str, what: str, names: list[str], known: tuple[str, ...]) -> None:
    for name in names:
        if name not in known:
            raise DefinitionError(
                f"{label}: {what} names `{name}`, which is no argument of it{conditions.near(name, known)}"
            )


def _places(title: str | None, label: str) -> list[str]:
    try:
        places = [
            field for _, field, _, _ in string.Formatter().parse(title or "") if field is not None
        ]
    except ValueError as error:
        raise DefinitionError(f"{label}: title: {error}") from error
    return [re.split(r"[.\[]", place)[0] for place in places]
