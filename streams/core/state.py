"""A run's state: a small header and the records beside it.

The header (`Run.header`) is bounded: what grows with a run (messages, actions, approvals)
stands in records of its own, read one by one, so that a step costs the same at step 2,000 as
at step 2. `Run` is a header plus a view of those records: what was written since it was
loaded (``writes``), over what is stored (``base``). Values are frozen once written: an applier
replaces, it never mutates.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from msgspec import Struct, convert, field
from perdure.schemas.records import AgentSpec, Budget, ModelSpec, PlanStep, ToolSpec

from . import keys

RecordKey = tuple[str, int]
"""("a", 3) action 3, ("m", 0) message 0, ("p", 1) approval 1, ("s", 0) the start, ("n", 0) the notes,
("x", 77) the actions whose declared keys have that hash."""


class Start(Struct, omit_defaults=False):
    """What the run began with; changes only when a tool's newer spec is first used."""

    input: Any = None
    plan: list[PlanStep] | None = None
    definition: AgentSpec | None = None
    tools: dict[str, ToolSpec] = field(default_factory=dict)
    digest: str = ""
    origin: dict[str, Any] = field(default_factory=dict)


class Ending(Struct, omit_defaults=True):
    """The first phase of an end: what it will be and why."""

    to: str
    reason: str = ""
    actor: str = "engine"
    compensate: bool = False
    error: dict[str, Any] | None = None


class Header(Struct, kw_only=True, omit_defaults=False):
    """The small record of a run (key ``r/<run>``).

    Of the window: ``task_message`` and ``last_user`` are numbers of messages (-1: written before
    they were kept), ``covered`` of them are in the summary, ``condensed`` says that the last model
    call made one, ``scale`` is provider's tokens by thousand estimated ones, ``refused_tokens`` the
    size (estimated) that a provider refused, ``floor`` the least layer of the turn being asked again.
    """

    run_id: str
    agent: str
    user_id: str
    session_id: str
    tenant: str
    metadata: dict[str, str] = field(default_factory=dict)
    nonce: str = ""
    trace: str = ""
    status: str = "running"
    version: int = 0
    hash: str = ""
    created_at: int = 0
    updated_at: int = 0
    deadline_at: int | None = None
    people_ms: int = 0
    people_since: int | None = None
    paused: bool = False
    ending: Ending | None = None
    planned: bool = False
    step: int = 0
    steps_done: int = 0
    steps_total: int | None = None
    current_step: str = ""
    next_action: int = 1
    next_approval: int = 1
    messages: int = 0
    heard: int = 0
    tokens: int = 0
    invalid: int = 0
    open: list[int] = field(default_factory=list)
    notices: list[int] = field(default_factory=list)
    asks: list[int] = field(default_factory=list)
    plan: dict[str, Any] = field(default_factory=dict)
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    budget: Budget = field(default_factory=Budget)
    api: dict[str, Any] = field(default_factory=dict)
    timers: dict[str, int] = field(default_factory=dict)
    answer: Any = None
    errors: list[dict[str, Any]] = field(default_factory=list)
    finished_at: int | None = None
    undoing: int = 0
    forked_at: int = 0
    fork_ms: int = 0
    used_ms: int = 0
    inherited: int = 0
    model: int = 0
    model_since: int = 0
    next_model: int | None = None
    replacing: int | None = None
    outages: int = 0
    cut: int = 0
    last_call: int = 0
    repeated: int = 0
    streaks: dict[str, Any] = field(default_factory=dict)
    rejected: dict[str, int] = field(default_factory=dict)
    task_message: int = -1
    last_user: int = -1
    noted: bool = False
    covered: int = 0
    condensed: bool = False
    scale: int = 1000
    refused_tokens: int = 0
    floor: int = 0


class Action(Struct, kw_only=True, omit_defaults=False):
    """One call to the outside (key ``a/<run>/<n>``).

    A model call's ``purpose`` is "" (the run's next turn), "long" (the same, by the window's long
    model) or "summary" (``covers`` [first message, the one after the last]); ``layer`` and
    ``estimate`` (tokens before correction) are those of its last request. ``beginning`` is the
    first text of a result that is kept by reference.
    """

    n: int
    kind: str = "tool"
    step: int = 0
    step_id: str | None = None
    message: int | None = None
    target: str = ""
    queue: str = "tools"
    arguments: Any = None
    effect: str = "external"
    has_query: bool = False
    key: str = ""
    why: str | None = None
    timeout_seconds: float = 30.0
    settle_seconds: float | None = None
    status: str = "proposed"
    attempt: int = 0
    first_at: int | None = None
    requested_at: int | None = None
    started_at: int | None = None
    expires_at: int | None = None
    unknown_at: int | None = None
    queried_at: int | None = None
    finished_at: int | None = None
    queries: int = 0
    result: Any = None
    error: dict[str, Any] | None = None
    ambiguous: bool = False
    progress: Any = None
    approval: int | None = None
    approved_by: str | None = None
    worker: str | None = None
    twin: int | None = None
    ask: int | None = None
    undoes: int | None = None
    model: int = 0
    stands_for: int | None = None
    replaced: bool = False
    replaced_by: int | None = None
    circling: bool = False
    answered: bool = False
    degraded: dict[str, Any] | None = None
    purpose: str = ""
    covers: list[int] = field(default_factory=list)
    layer: int = 0
    estimate: int = 0
    beginning: str | None = None
    counted: list[int] = field(default_factory=list)
    """Attempts whose usage counts already: of a result that comes twice it counts once."""


class Message(Struct, kw_only=True, omit_defaults=True):
    """One message of the conversation (key ``m/<run>/<n>``).

    A tool message holds its action's number, not the result: it is rendered from the record.
    """

    role: str
    content: Any = None
    calls: list[dict[str, Any]] = field(default_factory=list)
    call_id: str | None = None
    action: int | None = None


class Approval(Struct, kw_only=True, omit_defaults=False):
    """One question to people (key ``p/<run>/<n>``); kept after it is closed.

    ``action`` is the call it is about, ``asked_by`` the built-in call of the model that asks.
    """

    n: int
    kind: str
    action: int | None = None
    tool: str | None = None
    title: str = ""
    question: str | None = None
    arguments: Any = None
    original_arguments: Any = None
    effect: str | None = None
    reason: str | None = None
    rule: Any = None
    approvers: list[str] = field(default_factory=list)
    anyone: bool = False
    self_approval: bool = False
    required: int = 1
    decisions: list[dict[str, Any]] = field(default_factory=list)
    requested_at: int = 0
    expires_at: int = 0
    on_timeout: str = "cancel_run"
    digest: str = ""
    history: Any = None
    open: bool = True
    closed_by: str | None = None
    asked_by: int | None = None
    groups: list[str] = field(default_factory=list)
    within_ms: int = 0
    remind_ms: int | None = None
    escalate_to: list[str] = field(default_factory=list)
    escalate_groups: list[str] = field(default_factory=list)
    escalated: bool = False
    signed: bool = False


class Keyed(Struct, kw_only=True):
    """Which action a declared key stands for (key ``x/<run>/<hash of the key>``)."""

    actions: dict[str, int] = field(default_factory=dict)


class Notes(Struct, kw_only=True):
    """What a run knows beside its messages (key ``n/<run>/0``): all of it bounded by the window."""

    summary: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    plan: list[dict[str, Any]] = field(default_factory=list)


STATE: tuple[type[Struct], ...] = (Header, Start, Action, Message, Approval, Keyed, Notes)
"""The stored structs; each has a fingerprinted schema under schemas/avsc/state."""


class Run:
    """A header and its records; the unit that is decided on and folded."""

    __slots__ = ("base", "drafted", "header", "writes")

    def __init__(
        self,
        header: Header,
        base: Callable[[RecordKey], Any | None],
        writes: dict[RecordKey, Any] | None = None,
    ) -> None:
        self.header = header
        self.base = base
        self.writes: dict[RecordKey, Any] = {} if writes is None else writes
        self.drafted: tuple[int, int, Any] | None = None
        """A model call's request as it was measured: the action, the messages there were, what is
        shown. No state: made once for a decision and its command."""

    def copy(self) -> Run:
        """A run that may be evolved without this one noticing."""
        return Run(copy.copy(self.header), self.base, dict(self.writes))

    def get(self, key: RecordKey) -> Any | None:
        found = self.writes.get(key)
        return self.base(key) if found is None else found

    @property
    def start(self) -> Start:
        found: Start | None = self.get(("s", 0))
        assert found is not None
        return found

    @property
    def definition(self) -> AgentSpec:
        definition = self.start.definition
        assert definition is not None
        return definition

    def action(self, n: int) -> Action:
        found: Action | None = self.get(("a", n))
        if found is None:
            raise LookupError(f"run {self.header.run_id} has no action {n}")
        return found

    def message(self, n: int) -> Message:
        found: Message | None = self.get(("m", n))
        if found is None:
            raise LookupError(f"run {self.header.run_id} has no message {n}")
        return found

    def approval(self, n: int) -> Approval | None:
        found: Approval | None = self.get(("p", n))
        return found

    @property
    def notes(self) -> Notes:
        """Nothing is looked up for a run that has none."""
        found: Notes | None = self.get(("n", 0)) if self.header.noted else None
        return Notes() if found is None else found

    def keyed(self, name: str) -> int | None:
        """The action of this run that a declared key stands for."""
        found: Keyed | None = self.get(("x", keys.slot(name)))
        return None if found is None else found.actions.get(name)

    def model(self, index: int) -> ModelSpec:
        """The agent's model (0) or one of its fallbacks, in their order."""
        definition = self.definition
        assert definition.model is not None
        return definition.fallback_models[index - 1] if index else definition.model

    def model_of(self, action: Action) -> ModelSpec:
        """The model that a model's call is for."""
        if action.purpose == "long":
            return convert(self.definition.window.long_model, ModelSpec)
        return self.model(action.model)

    def open_actions(self) -> list[Action]:
        return [self.action(n) for n in self.header.open]

    def spec(self, tool: str) -> ToolSpec:
        """The spec recorded in this run for a tool."""
        return self.start.tools[tool]

    def action_id(self, n: int) -> str:
        return f"{self.header.run_id}/{n}"

    def owns(self, action: Action) -> bool:
        """Not so what was over when this run was forked: that has the other run's key."""
        header = self.header
        mine = action.key.startswith(f"{header.run_id}/") and action.key.endswith(header.nonce)
        return mine or not header.forked_at

    def approval_id(self, n: int) -> str:
        return f"{self.header.run_id}/a{n}"
