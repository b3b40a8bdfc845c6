"""The worker of one queue: a processor that turns commands into calls and calls into results.

Two ways to an answer (architecture section 5):

- `read_only`, `idempotent`, models: the record is held, the call starts at once, its result goes
  out by a plain producer, and once the broker has it the record is finished. No transaction. A
  crash repeats the call, which the effect allows.
- `external` (``external.py``): the ledger says ``started`` in the cycle's transaction; the call
  begins after its commit; result and ``finished`` are one transaction again. A crash in between
  leaves an open entry, and whoever takes the partition over settles it without calling again.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from perdure.schemas import codec, topics
from perdure.schemas.errors import RecordError
from perdure.schemas.records import ActionCommand, ActionResult
from perdure.streams.runtime.blobs import Blobs
from perdure.streams.runtime.ports import PlainProducer
from perdure.streams.runtime.processor import Assignment, Context, Message, Record, Undecodable
from perdure.streams.runtime.spans import Sink

from . import ledger
from .answers import HEADERS, Answers, encode, headers_of
from .breaker import BreakerSettings
from .call import STAGED, Call, Caller, Progressed, in_honesty
from .catalog import Catalog
from .errors import Failure, describe
from .executor import Executor
from .external import Asked, Begin, Ended, External, Late, reply, stricter
from .gate import Gate
from .late import Latecomers
from .measures import WorkerMeasures
from .models.providers import Providers
from .offline import OfflineSettings
from .reach import Reach
from .target import target_of
from .tool import Tool
from .tracing import span_of
from .work import Work

log = logging.getLogger(__name__)

AGAIN_SECONDS = 30.0
"""After these the end of a call, or a timer, that could not be taken is taken again."""

_decode = msgspec.json.Decoder(ActionCommand).decode


def wall_clock() -> int:
    """ms since the epoch."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Limits of one worker process, per queue."""

    instance_id: str
    """Who this process is, also after a restart: what it wrote into the ledger is its own."""
    calls_in_all: int = 1_000
    """Calls at once; more wait."""
    calls_per_target: int = 200
    """Calls of one async tool or model at once."""
    threads_per_tool: int = 16
    """Threads (and so calls at once) of one ``def`` tool."""
    announce_seconds: float = 2.0
    """A call that runs longer is reported as started."""
    claim_check_bytes: int = 262_144
    """Larger results go to the blob store."""
    breaker: BreakerSettings = field(default_factory=BreakerSettings)
    """When a target that fails is called no more."""
    offline: OfflineSettings = field(default_factory=OfflineSettings)
    """When the worker itself has lost the network."""

    def __post_init__(self) -> None:
        for name in ("calls_in_all", "calls_per_target", "threads_per_tool"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")

    def reach(
        self,
        producer: PlainProducer,
        executor: Executor,
        clock: Callable[[], int] = wall_clock,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> Reach:
        """The breakers of one process, for all its queues."""
        return Reach(
            self.instance_id, producer, executor, self.breaker, self.offline, clock, monotonic
        )


class WorkerProcessor:
    """Implements the runtime's `Processor`; the only owner of its queue's ledger."""

    forwarded: str | None = None

    def __init__(
        self,
        queue: str,
        tools: Iterable[Tool[..., Any]],
        *,
        settings: WorkerSettings,
        executor: Executor,
        producer: PlainProducer,
        models: Providers | None = None,
        blobs: Blobs | None = None,
        clock: Callable[[], int] = wall_clock,
        monotonic: Callable[[], float] = time.monotonic,
        reach: Reach | None = None,
        spans: Sink | None = None,
    ) -> None:
        self._spans = spans
        self._me = settings.instance_id
        self._clock = clock
        self.name = f"worker.{queue}"
        self.sources: tuple[str, ...] = (topics.commands(queue),)
        self.changelog = topics.changelog(self.name)
        self.tools = {tool.name: tool for tool in tools}
        own_tools = (topics.CATALOG,) if self.tools else ()
        self.global_topics: tuple[str, ...] = (*own_tools, topics.BREAKERS)
        self.catalog = Catalog(producer)
        self._announced = not self.tools
        self._models = models
        self._executor = executor
        self._answers = Answers(settings.instance_id, blobs, settings.claim_check_bytes)
        self._reach = reach or settings.reach(producer, executor, clock, monotonic)
        threads = settings.threads_per_tool
        caller = Caller(
            executor,
            producer,
            self._answers,
            models,
            self._reach,
            clock,
            threads,
            settings.announce_seconds,
            self._told,
        )
        own = {name: threads for name, tool in self.tools.items() if not tool.is_async}
        in_all, per_target = settings.calls_in_all, settings.calls_per_target
        gate = Gate(in_all, per_target, own, self._reach.may_begin)
        self._reach.wakes(gate.admit)
        late = Latecomers(executor, caller, clock, Late)
        self._work = Work(executor, caller, gate, Begin, Ended, late.watch, clock, monotonic)
        self.measures = WorkerMeasures(
            lambda: gate.inside, lambda: gate.waiting, lambda: self._work.threads
        )
        self._external = External(
            settings.instance_id,
            self.tools,
            self._work,
            caller,
            self._answers,
            executor,
            self._reach,
            clock,
        )
        self._verbs: dict[str, Callable[[Context, Message, ActionCommand], None]] = {
            "call": self._call,
            "query": self._external.query,
            "cancel": self._external.cancel,
        }
        self._events: dict[type, Callable[[Context, Any], None]] = {
            Begin: self._external.begin,
            Progressed: self._external.progressed,
            Ended: self._external.ended,
            Late: self._external.late,
            Asked: self._external.asked,
        }

    @property
    def accepting(self) -> bool:
        """False while the worker is offline: commands stay where they are."""
        return self._reach.accepting

    @property
    def running(self) -> int:
        """Calls that are under way or wait for a place."""
        return len(self._work.calls)

    # --- records -------------------------------------------------------------------------------

    def encode(self, key: bytes, value: Any) -> bytes:
        return ledger.encode(value)

    def decode(self, key: bytes, raw: bytes) -> Any:
        return ledger.decode(raw)

    def read(self, record: Record) -> Message | None:
        try:
            try:
                command = _decode(record.value or b"")
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                command = codec.decode(record.value, ActionCommand)  # names the fault
            if command.attempt < 1 or not command.action_id.startswith(command.run_id + "/"):
                text = "must be <run_id>/<n>, and attempt at least 1"
                raise RecordError("action_id", text, "bad_id")
        except RecordError as error:
            raise Undecodable(error.code, str(error)) from error
        return Message(None, command, record)

    def process(self, ctx: Context, message: Message) -> None:
        self._verbs[message.body.verb](ctx, message, message.body)

    def _call(self, ctx: Context, message: Message, command: ActionCommand) -> None:
        is_model = command.request is not None
        tool = None if is_model else self.tools.get(command.target)
        effect = "read_only" if is_model else stricter(command, tool)
        external = effect == "external"
        made_before = effect == "idempotent" and ctx.taken_before
        if external and self._external.known(ctx, message, command):
            return
        if (self._models is None) if is_model else (tool is None):
            what = "model" if is_model else "tool"
            text = f"this worker serves no {what} {command.target!r}; all workers of a queue must serve the same"
            why = Failure("unavailable", "NO_SUCH_TOOL", text)
            self._refuse(ctx, message, in_honesty(made_before, why))
            return
        if (
            min(ctx.now, self._clock()) >= command.expires_at
        ):  # a clock that ran ahead stays in `now`
            text = "the command came too late; nothing was called"
            why = Failure("transient", "EXPIRED", text)
            self._refuse(ctx, message, in_honesty(made_before, why))
            return
        call = self._again(ctx, command)
        refused = self._reach.refusal(target_of(command)) if call is None else None
        if refused is not None:
            self._refuse(ctx, message, in_honesty(made_before, refused))
        elif call is None:
            record = message.record
            headers = headers_of(record.headers) if record.headers else HEADERS
            has_blobs = b'"$blob"' in (record.value or b"")
            if ctx.taken_before:
                kept = ledger.saved(ctx, command.action_id, command.attempt)
                command.progress = command.progress if kept is None else msgspec.json.decode(kept)
                has_blobs = has_blobs or (kept is not None and '"$blob"' in kept)
            call = Call(command, tool, effect, ctx.assignment, headers, has_blobs, made_before)
            if not external:
                call.holds.append(ctx.hold())
            if not self._work.admit(call):
                if external:
                    call.holds.append(ctx.hold())
            elif external:
                self._external.stage(ctx, call)
            else:
                self._work.go(call)
        elif call.phase == STAGED:
            self._external.stage(ctx, call)  # its transaction was aborted
        # else: the call under way finishes this record too

    def _again(self, ctx: Context, command: ActionCommand) -> Call | None:
        """The call, if this command was delivered before: after an abort, or a rebalance."""
        ident = (command.action_id, command.attempt)
        if ident not in self._work.calls:
            return None
        with self._work.lock:
            call = self._work.calls.get(ident)
            if call is not None and call.phase != STAGED:
                call.holds.append(ctx.hold())
                call.assignment = ctx.assignment
                if call.busy_on is not None and call.busy_on is not ctx.assignment:
                    call.busy_on = ctx.assignment
                    call.busy_on.busy(1)
            return call

    def _told(self, call: Call, answer: ActionResult) -> None:
        self.measures.called(call.command, answer)
        if self._spans is not None:
            span = span_of(call.command, answer, call.headers, self._me)
            if span is not None:
                self._spans(span)

    def _refuse(self, ctx: Context, message: Message, why: Failure) -> None:
        """An answer without a call."""
        answer = encode(self._answers.failed(message.body, why))
        ctx.after_commit(functools.partial(self.measures.refused, message.body, why.kind))
        reply(ctx, message.body, answer, headers_of(message.record.headers))

    # --- partitions, timers, faults ------------------------------------------------------------

    def completed(self, ctx: Context, event: Any) -> None:
        self._events[type(event)](ctx, event)

    def live(self, ctx: Context) -> None:
        """Announce the tools (the catalog has been read), and settle what was left open."""
        if not self._announced:
            self._announced = True
            self._announce()
        if ctx.assignment.began_anew:
            ledger.begin_anew(ctx, self._me)
        self._external.take_over(ctx)

    def _announce(self) -> None:
        def again() -> None:
            self._executor.spawn(later)

        async def later() -> None:
            await asyncio.sleep(1.0)
            self._announce()

        self.catalog.announce([tool.spec for tool in self.tools.values()], failed=again)

    def timer(self, ctx: Context, key: bytes, due: int) -> None:
        if key[:1] == ledger.CLEAN:
            ledger.clean(ctx, key[1:])
        else:
            self._external.settle_timer(ctx, key[1:])

    def timer_delay(self, key: bytes, due: int, live_since: int) -> int:
        return 0

    def revoked(self, assignment: Assignment) -> None:
        self._work.revoke(assignment)

    def failed(
        self,
        ctx: Context,
        message: Message | None,
        timer: bytes | None,
        error: Exception,
        event: Any = None,
    ) -> None:
        """A bug of ours: the record goes to the dead letters, the run gets an answer. What is no
        record is taken again later: nobody else knows how a call ended."""
        if message is None:
            what = type(event).__name__ if timer is None else repr(timer)
            log.error("%s could not be taken", what, exc_info=error)
            if timer is not None:
                ctx.set_timer(ctx.now + int(AGAIN_SECONDS * 1000), timer)
            elif event is not None:
                ctx.after_commit(functools.partial(self._later, ctx.assignment, event))
            return
        command: ActionCommand = message.body
        log.error(
            "%s of %s could not be taken", command.verb, command.action_id,
            exc_info=error, extra={"action_id": command.action_id},
        )  # fmt: skip
        call = self._work.calls.get((command.action_id, command.attempt))
        if call is not None and call.phase == STAGED:
            self._work.not_begun(call)
        ctx.dead_letter(message.record, "worker_error", describe(error))
        if command.verb == "call":
            self._refuse(ctx, message, Failure("internal", "worker_error", describe(error)))

    def _later(self, assignment: Assignment, event: Any) -> None:
        async def post() -> None:
            await asyncio.sleep(AGAIN_SECONDS)
            assignment.post(event)

        self._executor.spawn(post)

    def global_record(self, record: Record) -> None:
        if record.topic == topics.BREAKERS:
            self._reach.heard(record)
        else:
            self.catalog.saw(record)
