"""Every record of the contract as a typed struct (contract sections 4 and 5).

One source: the Avro schemas under ``avsc/`` and the JSON Schemas are generated from these
classes (``avro.py``), descriptions included, and a test compares them. A new field has a
default, so that old bytes still decode.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

MAX_TIME_MS = 253_402_300_799_999  # the end of the year 9999
MAX_SECONDS = 315_360_000.0  # ten years: what a duration may be at most
MAX_COUNT = 2**53  # what every reader of JSON has exactly
MAX_COST = sys.float_info.max  # beyond is infinity, which is no JSON

# ``$`` alone would let a line feed at the end through.
ID_PATTERN = r"^(?!\.{1,2}$)[A-Za-z0-9\-_.:@~]{1,200}$(?!\n)"
USER_ID_PATTERN = r"^(?!\.{1,2}$)[A-Za-z0-9\-_.:@]{1,200}$(?!\n)"
NAME_PATTERN = r"^[A-Za-z0-9_\-.]{1,60}$(?!\n)"
APPROVAL_ID_PATTERN = r"^(?!\.{1,2}/)[A-Za-z0-9\-_.:@~]{1,200}/a[1-9][0-9]{0,8}$(?!\n)"
ACTION_ID_PATTERN = r"^(?!\.{1,2}/)[A-Za-z0-9\-_.:@~]{1,200}/[1-9][0-9]{0,8}$(?!\n)"

Json = Any
"""A free-form value: nested JSON in JSON, a string holding JSON in Avro."""

Id = Annotated[str, Meta(pattern=ID_PATTERN)]
UserId = Annotated[str, Meta(pattern=USER_ID_PATTERN)]
Name = Annotated[str, Meta(pattern=NAME_PATTERN)]
ApprovalId = Annotated[str, Meta(pattern=APPROVAL_ID_PATTERN)]
ActionId = Annotated[str, Meta(pattern=ACTION_ID_PATTERN)]
Time = Annotated[int, Meta(ge=0, le=MAX_TIME_MS)]
Seconds = Annotated[float, Meta(ge=0, le=MAX_SECONDS)]
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]

Effect = Literal["read_only", "idempotent", "external"]
Verb = Literal["call", "query", "cancel"]
Status = Literal["running", "waiting_approval", "compensating", "done", "failed", "cancelled"]
ApprovalKind = Literal["action", "clarification", "authority", "handover", "in_doubt", "budget"]
DecisionWord = Literal[
    "approve",
    "modify",
    "reject",
    "answer",
    "retry",
    "mark_done",
    "mark_not_done",
    "extend",
    "cancel_run",
]
ControlWord = Literal["cancel", "pause", "resume", "message", "extend", "retry", "release"]
ResultStatus = Literal[
    "started", "progress", "succeeded", "failed", "unknown", "absent", "running", "cancelled"
]
ErrorKind = Literal[
    "transient", "unavailable", "invalid_arguments", "business", "permission", "unknown", "internal",
    "model_unavailable", "model_invalid", "content_filter", "context_overflow",
]  # fmt: skip


def doc(text: str) -> Meta:
    """A field's description; it goes into the Avro and JSON schemas."""
    return Meta(description=text)


# --- inbound (section 4) ---------------------------------------------------------------------


class Budget(Struct, omit_defaults=True):
    """Limits of a run; a task may only lower its agent's."""

    steps: Annotated[Count | None, doc("steps the run may take")] = None
    tokens: Annotated[Count | None, doc("input and output tokens, summed over all model calls")] = (
        None
    )
    seconds: Annotated[Seconds | None, doc("running time, without the time people take")] = None
    cost: Annotated[
        Annotated[float, Meta(ge=0)] | None, doc("money, in the unit of the agent's prices")
    ] = None


class PlanAction(Struct, omit_defaults=True):
    """A tool and its arguments."""

    tool: Annotated[Name, doc("name of the tool")]
    arguments: Annotated[dict[str, Json], doc("arguments")] = field(default_factory=dict)


class PlanStep(Struct, omit_defaults=True):
    """One step of a fixed plan."""

    id: Annotated[Name, doc("id of the step within its plan")]
    tool: Annotated[Name, doc("tool to call")]
    arguments: Annotated[
        dict[str, Json],
        doc(
            "arguments; an object whose only key is `$` is replaced by that CEL expression's value"
        ),
    ] = field(default_factory=dict)
    depends_on: Annotated[
        list[Name] | None, doc("ids this step waits for; left out: the step before")
    ] = None
    when: Annotated[str | None, doc("CEL; false skips the step")] = None
    approval: Annotated[
        Literal["always"] | None, doc("`always` adds a question; nothing removes one")
    ] = None
    compensate: Annotated[PlanAction | None, doc("what undoes the step")] = None


class ForkOf(Struct, omit_defaults=True):
    """Where a forked run branches off."""

    run_id: Annotated[Id, doc("the run forked from")]
    version: Annotated[Count, doc("its version at the fork")]
    hash: Annotated[str, doc("hash of its event of that version")]


class Task(Struct, omit_defaults=True):
    """A task starts one run, which has the task's id."""

    agent: Annotated[Name, doc("name of the agent that carries the task out")]
    task_id: Annotated[
        Id | None, doc("id of the task and its run; default made from the record's position")
    ] = None
    input: Annotated[Json, doc("the task itself: any JSON")] = None
    plan: Annotated[list[PlanStep] | None, doc("a fixed plan instead of a model's decisions")] = (
        None
    )
    messages: Annotated[list[dict[str, Json]] | None, doc("earlier turns of the conversation")] = (
        None
    )
    user_id: Annotated[UserId, doc("whose task it is")] = "anonymous"
    session_id: Annotated[Id | None, doc("label of the conversation; default: the task's id")] = (
        None
    )
    tenant: Annotated[UserId, doc("tenant")] = "default"
    budget: Annotated[Budget | None, doc("may lower the agent's budget")] = None
    deadline_at: Annotated[Time | None, doc("ms; the run is cancelled then")] = None
    metadata: Annotated[dict[str, str], doc("carried on everything the run writes")] = field(
        default_factory=dict
    )
    fork_of: Annotated[ForkOf | None, doc("set for a fork")] = None


class ApprovalDecision(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A person's word on an open question."""

    approval_id: Annotated[ApprovalId, doc("the question")]
    decision: Annotated[DecisionWord, doc("the decision; which are allowed depends on the kind")]
    approver: Annotated[UserId, doc("who decides")]
    run_id: Annotated[Id | None, doc("the run, must match the approval's")] = None
    request_id: Annotated[
        Annotated[str, Meta(min_length=1, max_length=500)] | None,
        doc("for repeats; default <approval_id>/<approver>/<decision>"),
    ] = None
    reason: Annotated[
        Annotated[str, Meta(max_length=20000)] | None,
        doc("why; required with reject, modify, mark_done, mark_not_done"),
    ] = None
    arguments: Annotated[dict[str, Json] | None, doc("the new arguments, with modify")] = None
    answer: Annotated[
        Json, doc("with answer and mark_done: the answer, or the action's result")
    ] = None
    budget: Annotated[Budget | None, doc("with extend: what is added")] = None
    digest: Annotated[str | None, doc("if given it must match the question's digest")] = None
    decided_at: Annotated[Time | None, doc("ms; shown, never used to decide")] = None
    signature: Annotated[str | None, doc("JWS over the decision")] = None


class ControlRequest(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A request to a run."""

    run_id: Annotated[Id, doc("the run")]
    command: Annotated[ControlWord, doc("what to do")]
    request_id: Annotated[
        Annotated[str, Meta(min_length=1, max_length=500)] | None,
        doc("for repeats; default <topic>-<partition>-<offset>"),
    ] = None
    by: Annotated[UserId | None, doc("who asks")] = None
    reason: Annotated[Annotated[str, Meta(max_length=20000)] | None, doc("why")] = None
    expected_version: Annotated[Count | None, doc("refused if the run has another version")] = None
    compensate: Annotated[bool, doc("cancel: undo what was done")] = False
    content: Annotated[Json, doc("message: what to tell the run")] = None
    budget: Annotated[Budget | None, doc("extend: what is added")] = None


class ActionError(Struct, omit_defaults=True):
    """Why an attempt did not succeed."""

    kind: Annotated[ErrorKind, doc("what the core acts on (lifecycle section 3)")]
    code: Annotated[
        str, doc("`rate_limited`, `http_503`, the tool's own, ..."), Meta(max_length=200)
    ] = ""
    message: Annotated[str, doc("for people and models"), Meta(max_length=20000)] = ""
    retry_after_seconds: Annotated[Seconds | None, doc("the service asked to wait this long")] = (
        None
    )


class Usage(Struct, omit_defaults=True):
    """What an attempt used."""

    input_tokens: Annotated[Count, doc("tokens read by the model")] = 0
    output_tokens: Annotated[Count, doc("tokens written by the model")] = 0
    cost: Annotated[float, doc("money"), Meta(ge=0)] = 0.0


class ActionResult(Struct, omit_defaults=True):
    """A connector's answer to a command."""

    run_id: Annotated[Id, doc("the run")]
    action_id: Annotated[ActionId, doc("the action")]
    attempt: Annotated[int, doc("the attempt answered"), Meta(ge=1, le=1_000_000)]
    status: Annotated[ResultStatus, doc("what happened")]
    result: Annotated[Json, doc("the result, with succeeded")] = None
    error: Annotated[ActionError | None, doc("why not")] = None
    usage: Annotated[Usage | None, doc("tokens and cost; always counted")] = None
    progress: Annotated[Json, doc("what the tool saved; handed to the next attempt")] = None
    adopted: Annotated[bool, doc("a query found that it had happened")] = False
    started_at: Annotated[Time | None, doc("ms")] = None
    finished_at: Annotated[Time | None, doc("ms")] = None
    worker: Annotated[str | None, doc("instance id of the worker")] = None


# --- outbound (section 5) --------------------------------------------------------------------


class ApprovedBy(Struct, omit_defaults=True):
    """The approval a call rests on."""

    approval_id: Annotated[str, doc("the question")]
    approver: Annotated[str, doc("who said yes")]


class ActionCommand(Struct, omit_defaults=True, kw_only=True):
    """One verb of one attempt of one action, for the connectors of its queue."""

    run_id: Annotated[str, doc("the run")]
    agent: Annotated[str, doc("its agent")]
    user_id: Annotated[str, doc("its user")]
    session_id: Annotated[str, doc("its session")]
    tenant: Annotated[str, doc("its tenant")]
    metadata: Annotated[dict[str, str], doc("the task's metadata")] = field(default_factory=dict)
    action_id: Annotated[str, doc("<run_id>/<n>")]
    attempt: Annotated[int, doc("1, 2, ...; all with the same key")]
    verb: Annotated[Verb, doc("call, query or cancel")]
    target: Annotated[str, doc("tool or model")]
    effect: Annotated[Effect, doc("the worker takes the stricter of this and its own")]
    arguments: Annotated[Json, doc("of a tool")] = None
    request: Annotated[
        Json,
        doc(
            "of a model: messages, tools, seed, temperature, max_output_tokens, response_schema, model"
        ),
    ] = None
    idempotency_key: Annotated[str, doc("equal in every attempt")]
    request_id: Annotated[str, doc("UUID v5 of the key")]
    timeout_seconds: Annotated[float, doc("for one call")]
    progress: Annotated[Json, doc("last saved by an earlier attempt")] = None
    approval: Annotated[ApprovedBy | None, doc("the approval it rests on")] = None
    issued_at: Annotated[int, doc("ms")]
    expires_at: Annotated[int, doc("ms; not started at or after it")]


class ApprovalRequest(Struct, omit_defaults=False, kw_only=True):
    """An open question to a person."""

    run_id: Annotated[str, doc("the run")]
    agent: Annotated[str, doc("its agent")]
    user_id: Annotated[str, doc("its user")]
    session_id: Annotated[str, doc("its session")]
    tenant: Annotated[str, doc("its tenant")]
    metadata: Annotated[dict[str, str], doc("the task's metadata")] = field(default_factory=dict)
    approval_id: Annotated[str, doc("<run_id>/a<n>")]
    kind: Annotated[ApprovalKind, doc("what is asked")]
    title: Annotated[str, doc("one line for a phone")]
    tool: Annotated[str | None, doc("the tool")] = None
    action_id: Annotated[str | None, doc("the action")] = None
    arguments: Annotated[Json, doc("exactly what would run")] = None
    effect: Annotated[Effect | None, doc("of the tool")] = None
    reason: Annotated[str | None, doc("the model's own words")] = None
    rule: Annotated[Json, doc("which rule fired, with the values it saw")] = None
    question: Annotated[str | None, doc("what is asked, in words")] = None
    history: Annotated[Json, doc("{completed, errors} so far")] = None
    input: Annotated[Json, doc("the task's input")] = None
    allowed_decisions: Annotated[list[str], doc("decisions that count")] = field(
        default_factory=list
    )
    approvers: Annotated[
        list[str], doc("people and groups that may decide; empty: anyone but the task's user")
    ] = field(default_factory=list)
    required: Annotated[int, doc("how many different people must say yes")] = 1
    decisions: Annotated[Json, doc("decisions so far")] = field(default_factory=list)
    requested_at: Annotated[int, doc("ms")]
    expires_at: Annotated[int, doc("ms")]
    on_timeout: Annotated[str, doc("what happens then")]
    digest: Annotated[str, doc("SHA-256 over {approval_id, run_id, action_id, tool, arguments}")]
    signed: Annotated[bool, doc("only a signed decision counts")] = False
    escalated: Annotated[bool, doc("nobody answered in time: others are asked now")] = False
    url: Annotated[str | None, doc("where to decide")] = None


class ActionRecord(Struct, omit_defaults=False, kw_only=True):
    """An action as people see it."""

    action_id: Annotated[str, doc("<run_id>/<n>")]
    step: Annotated[int, doc("the step it belongs to")] = 0
    tool: Annotated[str, doc("tool or model")]
    arguments: Annotated[Json, doc("arguments")] = None
    effect: Annotated[Effect, doc("what recovery may do")]
    idempotency_key: Annotated[str, doc("the key of every attempt")]
    cache_key: Annotated[str, doc("<session_id>_<action_id>")]
    attempts: Annotated[int, doc("attempts made")] = 0
    status: Annotated[str, doc("lifecycle section 2")]
    phase: Annotated[str, doc("for people")] = "idle"
    result: Annotated[Json, doc("the result")] = None
    error: Annotated[ActionError | None, doc("the last error")] = None
    approval_id: Annotated[str | None, doc("the question asked for it")] = None
    approved_by: Annotated[str | None, doc("who approved")] = None
    degraded: Annotated[Json, doc("null, or {from, age_seconds}")] = None
    started_at: Annotated[int | None, doc("ms")] = None
    finished_at: Annotated[int | None, doc("ms")] = None


class Outcome(Struct, omit_defaults=False, kw_only=True):
    """How a run ended, from the action records alone."""

    run_id: Annotated[str, doc("the run")]
    agent: Annotated[str, doc("its agent")]
    user_id: Annotated[str, doc("its user")]
    session_id: Annotated[str, doc("its session")]
    tenant: Annotated[str, doc("its tenant")]
    metadata: Annotated[dict[str, str], doc("the task's metadata")] = field(default_factory=dict)
    status: Annotated[Literal["done", "failed", "cancelled"], doc("the end")]
    complete: Annotated[bool, doc("nothing is missing, in doubt or degraded")]
    result: Annotated[Json, doc("the agent's answer; a plan's is {step id: result}")] = None
    text: Annotated[str, doc("what a user may be shown; made from the lists")] = ""
    completed: Annotated[Json, doc("list of ActionRecord (or a $blob of it)")] = field(
        default_factory=list
    )
    not_completed: Annotated[Json, doc("list of ActionRecord")] = field(default_factory=list)
    in_doubt: Annotated[Json, doc("list of ActionRecord: may or may not have happened")] = field(
        default_factory=list
    )
    compensated: Annotated[Json, doc("list of ActionRecord: the undone actions")] = field(
        default_factory=list
    )
    degraded: Annotated[Json, doc("list of ActionRecord answered by an old result")] = field(
        default_factory=list
    )
    errors: Annotated[Json, doc("list of {kind, code, message, action_id}")] = field(
        default_factory=list
    )
    usage: Annotated[Json, doc("{steps, input_tokens, output_tokens, cost}")] = None
    version: Annotated[int, doc("of the last event")] = 0
    hash: Annotated[str, doc("of the last event")] = ""
    finished_at: Annotated[int, doc("ms")]


class RunEvent(Struct, omit_defaults=False, kw_only=True):
    """A fact that changed a run's state."""

    run_id: Annotated[str, doc("the run")]
    agent: Annotated[str, doc("its agent")]
    user_id: Annotated[str, doc("its user")]
    session_id: Annotated[str, doc("its session")]
    tenant: Annotated[str, doc("its tenant")]
    metadata: Annotated[dict[str, str], doc("the task's metadata")] = field(default_factory=dict)
    version: Annotated[int, doc("1, 2, 3, ... without gaps")]
    type: Annotated[str, doc("see the contract's list")]
    at: Annotated[int, doc("ms")]
    actor: Annotated[
        str, doc("engine, user:<id>, approver:<id>, worker:<id>, model:<name>, policy:<name>")
    ]
    data: Annotated[Json, doc("by type")] = None
    previous_hash: Annotated[str, doc("hash of the event before; empty for the first")]
    hash: Annotated[
        str, doc("SHA-256 of previous_hash + canonical JSON of the event without it")
    ] = ""


class Verdict(Struct, omit_defaults=False, kw_only=True):
    """The answer to a decision or control request."""

    run_id: Annotated[str, doc("the run")]
    agent: Annotated[str, doc("its agent; empty if the run is unknown")] = ""
    user_id: Annotated[str, doc("its user")] = ""
    session_id: Annotated[str, doc("its session")] = ""
    tenant: Annotated[str, doc("its tenant")] = ""
    metadata: Annotated[dict[str, str], doc("the task's metadata")] = field(default_factory=dict)
    request_id: Annotated[str, doc("the request answered")]
    accepted: Annotated[bool, doc("whether it counted")]
    reason: Annotated[str, doc("why not, or what it did")] = ""
    version: Annotated[int, doc("the run's version after it")] = 0
    at: Annotated[int, doc("ms")]


class RetryPolicy(Struct, omit_defaults=True):
    """How transient errors are tried again."""

    attempts: Annotated[int, doc("tries in all"), Meta(ge=1, le=100)] = 3
    first_wait_seconds: Annotated[float, doc("wait before the second try"), Meta(ge=0, le=300)] = (
        1.0
    )
    longest_wait_seconds: Annotated[
        float, doc("the wait doubles up to this"), Meta(ge=0, le=300)
    ] = 10.0


class ToolSpec(Struct, omit_defaults=True, kw_only=True):
    """What a tool is, as its worker announces it on agent.catalog."""

    name: Annotated[Name, doc("name")]
    description: Annotated[str, doc("what the model reads")] = ""
    parameters: Annotated[dict[str, Json], doc("JSON Schema of the arguments")] = field(
        default_factory=dict
    )
    effect: Annotated[Effect, doc("what recovery may do")] = "external"
    has_query: Annotated[bool, doc("can be asked whether a call happened")] = False
    approval: Annotated[str, doc("`always`, `never` or CEL over arguments and run")] = "always"
    approvers: Annotated[list[str] | None, doc("who may approve")] = None
    timeout_seconds: Annotated[float, doc("for one call"), Meta(gt=0, le=86_400)] = 30.0
    settle_seconds: Annotated[
        Annotated[float, Meta(ge=0, le=86_400)] | None, doc("how long `absent` may still change")
    ] = None
    retry: Annotated[RetryPolicy | None, doc("instead of the agent's")] = None
    compensate: Annotated[str | None, doc("tool that undoes it")] = None
    fallback: Annotated[str | None, doc("tool used when this one is unavailable")] = None
    stale_ok_seconds: Annotated[
        Annotated[float, Meta(ge=0)] | None, doc("age of a result that may stand in")
    ] = None
    key: Annotated[list[str] | None, doc("argument names that make the idempotency key")] = None
    key_valid_seconds: Annotated[float, doc("how long the service remembers a key"), Meta(ge=0)] = (
        86_400.0
    )
    title: Annotated[str | None, doc("one line with {argument} places")] = None
    queue: Annotated[Name, doc("queue of its connectors")] = "tools"
    sensitive: Annotated[list[str], doc("argument or result names to mask")] = field(
        default_factory=list
    )
    version: Annotated[Count, doc("a lower one never replaces a higher one")] = 1


class Prices(Struct, omit_defaults=True):
    """What a model's tokens cost, in the unit of the budget's cost."""

    input: Annotated[float, doc("of a million tokens read"), Meta(ge=0)] = 0.0
    output: Annotated[float, doc("of a million tokens written"), Meta(ge=0)] = 0.0


class ModelSpec(Struct, omit_defaults=True, kw_only=True):
    """A model and how to reach it."""

    provider: Annotated[Literal["openai", "scripted", "python"], doc("which connector")]
    name: Annotated[str, doc("model name")] = ""
    base_url: Annotated[str | None, doc("endpoint")] = None
    api_key_env: Annotated[str | None, doc("environment variable that holds the key")] = None
    seed: Annotated[int | None, doc("sent where the provider takes it")] = 7
    temperature: Annotated[float | None, doc("sent where the provider takes it")] = 0.0
    max_output_tokens: Annotated[int | None, doc("limit of one reply")] = None
    response_schema: Annotated[Json, doc("JSON Schema of the answer")] = None
    timeout_seconds: Annotated[float, doc("for one call"), Meta(gt=0, le=86_400)] = 60.0
    prices: Annotated[Prices | None, doc("left out: what the provider itself names counts")] = None
    replies: Annotated[Json, doc("scripted: the replies in order")] = None
    function: Annotated[str | None, doc("python: module:function of messages and tools")] = None
    queue: Annotated[Name, doc("queue of its connectors")] = "models"


class ApprovalRule(Struct, omit_defaults=True, kw_only=True):
    """When a person is asked, whom, and what happens when nobody answers."""

    kind: Annotated[ApprovalKind | None, doc("left out: every kind")] = None
    tool: Annotated[str | None, doc("left out: every tool")] = None
    when: Annotated[str | None, doc("CEL over arguments and run; anything but false asks")] = None
    approvers: Annotated[
        list[str] | None, doc("people, groups or `user`; left out: anyone but the task's user")
    ] = None
    required: Annotated[int, doc("different people that must say yes"), Meta(ge=1, le=100)] = 1
    within_seconds: Annotated[float, doc("until it expires"), Meta(gt=0, le=MAX_SECONDS)] = (
        604_800.0
    )
    remind_seconds: Annotated[
        Annotated[float, Meta(gt=0, le=MAX_SECONDS)] | None, doc("between reminders")
    ] = None
    on_timeout: Annotated[str, doc("cancel_run, escalate, or a decision the kind allows")] = (
        "cancel_run"
    )
    escalate_to: Annotated[list[str] | None, doc("who is asked then")] = None
    self_approval: Annotated[bool, doc("the task's user may approve")] = False
    override: Annotated[bool, doc("this rule lifts the tool's own")] = False
    signed: Annotated[bool, doc("only a decision whose approver is proved counts")] = False


class BudgetPolicy(Budget, omit_defaults=True):
    """An agent's budget and what happens at its end."""

    then: Annotated[Literal["ask", "stop"], doc("at its end")] = "ask"


class Window(Struct, omit_defaults=True):
    """How much of the history a model call carries."""

    max_tokens: Annotated[int, doc("of one request"), Meta(ge=100, le=100_000_000)] = 8000
    keep_rounds: Annotated[int, doc("rounds kept as they were"), Meta(ge=1, le=10_000)] = 5
    mode: Annotated[Literal["auto", "full", "summary", "key_state"], doc("layer")] = "auto"
    long_model: Annotated[Json, doc("model for what does not fit, with full")] = None


class Checkpoint(Struct, omit_defaults=True):
    """How often a run's snapshot is written."""

    every_steps: Annotated[int, doc("steps"), Meta(ge=1, le=1_000_000)] = 3
    every_seconds: Annotated[float, doc("seconds"), Meta(gt=0)] = 30.0


class Person(Struct, omit_defaults=True):
    """A group of people that may be named as approvers."""

    members: Annotated[list[str], doc("user ids")] = field(default_factory=list)
    notify: Annotated[Json, doc("{tool, arguments}: how they are told")] = None


class AgentSpec(Struct, omit_defaults=True, kw_only=True):
    """An agent as `perdure apply` writes it to agent.catalog."""

    name: Annotated[Name, doc("name")]
    instructions: Annotated[str, doc("the system message")] = ""
    model: Annotated[ModelSpec | None, doc("who decides; not needed for plans")] = None
    fallback_models: Annotated[list[ModelSpec], doc("in order")] = field(default_factory=list)
    tools: Annotated[list[Name], doc("tools it may use")] = field(default_factory=list)
    approvals: Annotated[list[ApprovalRule], doc("first match wins")] = field(default_factory=list)
    people: Annotated[dict[str, Person], doc("the groups its rules may name")] = field(
        default_factory=dict
    )
    budget: Annotated[BudgetPolicy, doc("limits")] = field(
        default_factory=lambda: BudgetPolicy(steps=20, tokens=50_000, seconds=86_400.0)
    )
    window: Annotated[Window, doc("history a model call carries")] = field(default_factory=Window)
    retry: Annotated[RetryPolicy, doc("transient errors")] = field(default_factory=RetryPolicy)
    checkpoint: Annotated[Checkpoint, doc("snapshots")] = field(default_factory=Checkpoint)
    handover_after: Annotated[int, doc("same error in a row"), Meta(ge=1, le=1000)] = 3
    on_failure: Annotated[Literal["compensate", "stop"], doc("after a failure")] = "compensate"
    version: Annotated[Count, doc("raised by every apply")] = 1


class BreakerState(Struct, omit_defaults=True, kw_only=True):
    """Whether a target is being called."""

    target: Annotated[str, doc("tool, or provider x model")]
    state: Annotated[Literal["open", "closed"], doc("open: not called")]
    open_until: Annotated[int, doc("ms")] = 0
    worker: Annotated[str, doc("who says so")] = ""
    reason: Annotated[str, doc("why")] = ""


PUBLIC: tuple[type[Struct], ...] = (
    Task, PlanStep, ApprovalDecision, ControlRequest, ActionResult, ActionCommand, ApprovalRequest,
    Outcome, RunEvent, Verdict, ToolSpec, AgentSpec, BreakerState, ActionRecord,
)  # fmt: skip
"""One .avsc each."""
