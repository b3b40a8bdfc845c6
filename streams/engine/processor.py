"""The engine: the core on the runtime. Owns no truth but the layout; decides nothing itself."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from perdure.schemas import records, topics
from perdure.schemas.records import AgentSpec, ToolSpec
from perdure.schemas.signing import Refused
from perdure.streams.core.decide import task as task_decider
from perdure.streams.core.decide.decision import KEPT_INLINE, Decision, Refusal, Unreadable
from perdure.streams.core.decide.dispatch import decide
from perdure.streams.core.decide.fork import fork
from perdure.streams.core.decide.inputs import Control, Decided, StartTask, Timer, Unusable
from perdure.streams.core.keys import nonce
from perdure.streams.core.state import Run
from perdure.streams.runtime.blobs import BlobError
from perdure.streams.runtime.processor import Assignment, Context, Message, Record

from . import layout
from .catalog import Catalog
from .checkpoints import Checkpoints, records_of
from .forks import UNTIL_READ, Forks
from .histories import Histories
from .intake import Intake, NewTask, RefusedRequest, RefusedTask, position, request_id_of
from .kept import Kept
from .measures import EngineMeasures
from .outputs import Outputs
from .quarantine import Quarantines
from .recount import Recount, Uncounted
from .refused import Refusals
from .signatures import Signatures
from .traces import Traces

log = logging.getLogger(__name__)

CATALOG_WAIT_MS: Final = 10_000
"""How long a task waits for its agent and tools to be announced."""
CATALOG_LOOK_MS: Final = 250
CONTROL_WAIT_MS: Final = 30_000
"""How long a control request waits for its task."""
EXPIRY_DELAY_MS: Final = 10_000
"""An approval's expiry waits this long after its partition went live (architecture section 3)."""


class EngineLookup:
    """The core's view of the catalog, the queues and the blob store."""

    def __init__(
        self, catalog: Catalog, outputs: Outputs, queue_problem: Callable[[str], str | None]
    ) -> None:
        self._catalog = catalog
        self._outputs = outputs
        self._queue_problem = queue_problem

    def agent(self, name: str) -> AgentSpec | None:
        return self._catalog.agents.get(name)

    def tool(self, name: str) -> ToolSpec | None:
        return self._catalog.tools.get(name)

    def agent_names(self) -> list[str]:
        return list(self._catalog.agents)

    def queue_problem(self, queue: str) -> str | None:
        return self._queue_problem(queue)

    def value(self, value: Any) -> Any:
        try:
            return self._outputs.value(value)
        except BlobError as error:
            raise Unreadable(str(error)) from error

    def beginning(self, value: Any, most: int) -> str | None:
        return self._outputs.beginning(value, most)

    def keep(self, value: Any, above: int = KEPT_INLINE) -> Any:
        return self._outputs.keep(value, above)


class EngineProcessor:
    """Runs of agents, one savepoint a message."""

    name = "engine"
    sources = (topics.TASKS, topics.RESULTS, topics.APPROVALS, topics.CONTROL, topics.FORWARDED)
    forwarded: str | None = topics.FORWARDED
    changelog = topics.changelog("engine")
    accepting = True
    global_topics = (topics.CATALOG,)

    def __init__(
        self,
        outputs: Outputs,
        topic_id: Callable[[str], str],
        queue_problem: Callable[[str], str | None],
        histories: Histories | None = None,
        signatures: Signatures | None = None,
        traces: Traces | None = None,
    ) -> None:
        self._traces = traces
        self.catalog = Catalog()
        self._outputs = outputs
        self._topic_id = topic_id
        self._intake = Intake(topic_id)
        self._lookup = EngineLookup(self.catalog, outputs, queue_problem)
        self._codecs = layout.Codecs()
        self._kept = Kept(outputs)
        self._checkpoints = Checkpoints()
        self.measures = EngineMeasures()
        self._refused = Refusals(outputs)
        self._quarantines = Quarantines(
            self._dispatch,
            self._verdict,
            self._refused.refuse,
            self.encode,
            self._checkpoints,
            self._intake,
            self._kept,
            self.measures,
        )
        self._signatures = signatures or Signatures(None)
        self._counted = Recount(self._checkpoints, self.measures)
        self._forks = Forks(histories, self._intake, self._kept, self._start)
        self.refusals: dict[str, int] = {}
        self._handlers: dict[type, Callable[[Context, Message], None]] = {
            NewTask: self._new_task,
            RefusedTask: self._refused_task,
            RefusedRequest: self._refused_request,
            records.ActionResult: self._result,
            records.ApprovalDecision: self._decision,
            records.ControlRequest: self._control,
        }

    # --- the port -----------------------------------------------------------------------------

    def encode(self, key: bytes, value: Any) -> bytes:
        return self._codecs.encode(key, value)

    def decode(self, key: bytes, raw: bytes) -> Any:
        return self._codecs.decode(key, raw)

    def read(self, record: Record) -> Message:
        return self._intake.read(record)

    def process(self, ctx: Context, message: Message) -> None:
        assert message.owner is not None
        if self._quarantines.park(ctx, message):
            return
        self._dispatch(ctx, message)

    def timer(self, ctx: Context, key: bytes, due: int) -> None:
        run_id, _, name = key.decode().partition("/")
        if ctx.get(layout.quarantine(run_id)) is not None:
            return  # its timers are set again at the release
        what, _, rest = name.partition("/")
        if what == "wait":
            self._look_again(ctx, run_id)
        elif what == "hold":
            self._give_up_holding(ctx, run_id, rest)
        elif what == "purge":
            self._purge(ctx, run_id)
        elif what == "stub":
            ctx.delete(layout.stub(run_id))
        elif what == "refused":
            self._refused.timer(ctx, run_id)
        else:
            self._decide(ctx, run_id, Timer(name))

    def timer_delay(self, key: bytes, due: int, live_since: int) -> int:
        return EXPIRY_DELAY_MS if b"/ask/" in key else 0

    def completed(self, ctx: Context, event: Any) -> None:
        """What the engine does beside its records: reading what a fork begins with, counting."""
        if isinstance(event, Uncounted):
            self._counted.go_on(ctx, event)
        else:
            self._forks.completed(ctx, event)

    def live(self, ctx: Context) -> None:
        """Nothing else waits in a process: the store and its timers hold all there is."""
        self._forks.live(ctx)
        self._counted.begin(ctx)

    def revoked(self, assignment: Assignment) -> None:
        """Nothing to stop; what waits there is counted by its next owner."""
        self.measures.gone(assignment.partition)

    def failed(
        self, ctx: Context, message: Message | None, timer: bytes | None, error: Exception,
        event: Any = None,
    ) -> None:  # fmt: skip
        """The run's own processing raised: quarantine it and keep what came for it."""
        if message is None and timer is None:
            self._give_up_fork(ctx, error)
            return
        run_id = message.owner if message is not None else (timer or b"").decode().partition("/")[0]
        assert run_id is not None
        self._quarantines.begin(ctx, run_id, message, error)

    def global_record(self, record: Record) -> None:
        self.catalog.update(record.key, record.value)

    # --- messages -----------------------------------------------------------------------------

    def _dispatch(self, ctx: Context, message: Message) -> None:
        self._handlers[type(message.body)](ctx, message)

    def _decide(self, ctx: Context, run_id: str, body: Any) -> Decision | Refusal:
        """Decide on a run and stage what follows. A refusal is counted; nothing is written."""
        run = self._checkpoints.load(ctx, run_id)
        if run is None:
            known: layout.Stub | None = ctx.get(layout.stub(run_id))
            return self._count(
                Refusal(
                    f"the run is {known.status} and was purged" if known else "there is no such run"
                )
            )
        made = decide(run, body, ctx.now, self._lookup)
        if isinstance(made, Refusal):
            return self._count(made)
        self._stage(ctx, run, made)
        return made

    def _stage(self, ctx: Context, before: Run | None, made: Decision) -> None:
        self._checkpoints.save(ctx, made)
        sent = self._outputs.stage(ctx, before, made)
        told = self.measures.of(made, sent)
        ctx.after_commit(partial(self.measures.decided, ctx.partition, told))
        if self._traces is not None:
            ctx.after_commit(partial(self._traces.decided, made))

    def _count(self, refusal: Refusal) -> Refusal:
        kind = refusal.reason.split(":", 1)[0][:40]
        self.refusals[kind] = self.refusals.get(kind, 0) + 1 if len(self.refusals) < 200 else 1
        return refusal

    def _result(self, ctx: Context, message: Message) -> None:
        result: records.ActionResult = message.body
        if result.status == "succeeded":
            why = self._outputs.unreadable(result.result)
            if why is not None:
                result.result = None
                self._decide(ctx, result.run_id, Unusable(result, why))
                return
        result.result = self._outputs.keep(result.result)
        result.progress = self._outputs.keep(result.progress)
        self._decide(ctx, result.run_id, result)

    # --- tasks --------------------------------------------------------------------------------

    def _new_task(self, ctx: Context, message: Message) -> None:
        new: NewTask = message.body
        run_id = new.run_id
        known = self._known_digest(ctx, run_id)
        if known is not None:
            if known != new.digest:
                ctx.dead_letter(
                    message.record, "conflict", f"task_id {run_id} is taken by another task"
                )
            return
        if new.task.fork_of is not None and self._forks.possible:
            self._forks.take(ctx, message, new)
            return
        if task_decider.wants(new.task, self._lookup) is not None:
            record = message.record
            waiting = self._kept.store(record, ctx.now + CATALOG_WAIT_MS, new.digest)
            ctx.put(layout.waiting(run_id), waiting)
            ctx.set_timer(ctx.now + CATALOG_LOOK_MS, f"{run_id}/wait".encode())
            return
        self._start(ctx, message.record, new)

    def _known_digest(self, ctx: Context, run_id: str) -> str | None:
        if ctx.get(layout.header(run_id)) is not None:
            start: Any = ctx.get(layout.record(run_id, ("s", 0)))
            return str(start.digest)
        stub: layout.Stub | None = ctx.get(layout.stub(run_id))
        if stub is not None:
            return stub.digest
        waiting: layout.Waiting | None = ctx.get(layout.waiting(run_id))
        return None if waiting is None else waiting.digest

    def _look_again(self, ctx: Context, run_id: str) -> None:
        """A task that waits for the catalog: start it, wait on, or refuse it after 10 s."""
        waiting: layout.Waiting | None = ctx.get(layout.waiting(run_id))
        if waiting is None:
            return
        record = self._kept.record(waiting)
        new: NewTask = self._intake.read(record).body
        if waiting.until == UNTIL_READ:
            self._forks.read(ctx, new)
            return
        if task_decider.wants(new.task, self._lookup) is not None and ctx.now < waiting.until:
            ctx.set_timer(ctx.now + CATALOG_LOOK_MS, f"{run_id}/wait".encode())
            return
        ctx.delete(layout.waiting(run_id))
        self._start(ctx, record, new)

    def _start(
        self,
        ctx: Context,
        record: Record,
        new: NewTask,
        history: list[records.RunEvent] | None = None,
    ) -> None:
        run_id = new.run_id
        task = new.task
        task.input = self._outputs.keep(task.input)
        topic_id = self._topic_id(record.topic)
        origin = {
            "topic": record.topic,
            "topic_id": topic_id,
            "partition": record.partition,
            "offset": record.offset,
        }
        trace = dict(record.headers).get("traceparent")
        if trace:
            origin["traceparent"] = trace.decode("ascii", "replace")[:200]
        once = nonce(topic_id, record.partition, record.offset)
        if not trace and self._traces is not None:
            origin["traceparent"] = self._traces.begin(run_id, once)
        start = StartTask(task, run_id, once, new.digest, origin)
        base = records_of(ctx, run_id)
        if task.fork_of is not None:
            made = fork(start, history or [], base, ctx.now, self._lookup)
        else:
            made = task_decider.start(start, base, ctx.now, self._lookup)
        if isinstance(made, Refusal):
            self._refused.refuse(ctx, record, run_id, task, made.reason)
            return
        self._stage(ctx, None, made)
        self._refused.begun(ctx, made.run.header)
        for key, held in sorted(ctx.scan(layout.held(run_id)), key=_as_taken):
            ctx.delete(key)
            ctx.cancel_timer(held.until, _hold_timer(run_id, self._kept.record(held)))
            self._dispatch(ctx, self._intake.read(self._kept.record(held)))

    def _give_up_fork(self, ctx: Context, error: Exception) -> None:
        """Making a fork raised: it is refused, its source is unharmed."""
        run_id = self._forks.doing
        waiting: layout.Waiting | None = ctx.get(layout.waiting(run_id))
        named = {"run_id": run_id}
        log.error("the fork %s is refused: %s", run_id, type(error).__name__, extra=named)
        log.debug("the fork %s", run_id, exc_info=error, extra=named)
        if waiting is not None:
            record = self._kept.record(waiting)
            ctx.delete(layout.waiting(run_id))
            task = self._intake.read(record).body.task
            self._refused.refuse(
                ctx, record, run_id, task, f"fork_of: {type(error).__name__}: {error}"[:2000]
            )

    def _refused_task(self, ctx: Context, message: Message) -> None:
        refused: RefusedTask = message.body
        if self._known_digest(ctx, refused.run_id) is not None:
            ctx.dead_letter(
                message.record,
                "conflict",
                f"task_id {refused.run_id} is taken; and {refused.error}",
            )
            return
        self._refused.refuse(ctx, message.record, refused.run_id, None, str(refused.error))

    # --- requests -----------------------------------------------------------------------------

    def _decision(self, ctx: Context, message: Message) -> None:
        word: records.ApprovalDecision = message.body
        run_id = word.approval_id.rpartition("/")[0]
        request_id = request_id_of(word, message.record)
        at = message.record.timestamp
        verified, refused = "none", None
        try:
            word, verified = self._signatures.proved(word, at)
        except Refused as error:
            refused = str(error)
        word.answer = self._outputs.keep(word.answer)
        word.arguments = self._outputs.keep(word.arguments)
        body = Decided(word, request_id, at, verified, refused)
        self._answer(ctx, run_id, request_id, word.request_id is not None, body)

    def _control(self, ctx: Context, message: Message) -> None:
        request: records.ControlRequest = message.body
        request.content = self._outputs.keep(request.content)
        run_id = request.run_id
        request_id = request_id_of(request, message.record)
        if request.command == "release":
            self._verdict(ctx, run_id, request_id, False, "the run is not quarantined")
            return
        if self._known_digest(ctx, run_id) is None or ctx.get(layout.waiting(run_id)) is not None:
            held = self._kept.store(message.record, ctx.now + CONTROL_WAIT_MS, "")
            ctx.put(layout.held(run_id, position(message.record)), held)
            ctx.set_timer(held.until, _hold_timer(run_id, message.record))
            return
        self._answer(
            ctx, run_id, request_id, request.request_id is not None, Control(request, request_id)
        )

    def _give_up_holding(self, ctx: Context, run_id: str, where: str) -> None:
        held: layout.Waiting | None = ctx.get(layout.held(run_id, where))
        if held is None:
            return
        ctx.delete(layout.held(run_id, where))
        request: records.ControlRequest = self._intake.read(self._kept.record(held)).body
        self._verdict(ctx, run_id, request.request_id or where, False, "there is no such run")

    def _refused_request(self, ctx: Context, message: Message) -> None:
        refused: RefusedRequest = message.body
        known = layout.remembered(refused.run_id, refused.request_id) if refused.given else None
        if known is None or not self._repeat(ctx, refused.run_id, known):
            self._verdict(ctx, refused.run_id, refused.request_id, False, refused.reason, known)

    def _answer(self, ctx: Context, run_id: str, request_id: str, given: bool, body: Any) -> None:
        """One verdict for a request; a repeated one gets the same again.

        A yes without an id of its own is judged first: after a modify the count starts again, and
        the same person's new yes must count - if it says by its digest that it is one.
        """
        word = body.decision if isinstance(body, Decided) and not given else None
        plain_yes = word is not None and word.decision == "approve"
        known = layout.remembered(run_id, request_id)
        if word is not None and word.decision == "modify":
            known = layout.remembered_modify(run_id, request_id, word.arguments)
        if plain_yes:
            body.again = ctx.get(known) is not None
        elif self._repeat(ctx, run_id, known):
            return
        made = self._decide(ctx, run_id, body)
        if isinstance(made, Refusal):
            if made.final or not (plain_yes and self._repeat(ctx, run_id, known)):
                self._verdict(ctx, run_id, request_id, False, made.reason, known if given else None)
        else:
            self._verdict(ctx, run_id, request_id, True, made.verdict, known)

    def _repeat(self, ctx: Context, run_id: str, key: bytes) -> bool:
        known: layout.Remembered | None = ctx.get(key)
        if known is None:
            return False
        self._outputs.verdict(ctx, self._checkpoints.header(ctx, run_id), known, run_id)
        ctx.after_commit(partial(self.measures.verdict, known.accepted))
        return True

    def _verdict(
        self,
        ctx: Context,
        run_id: str,
        request_id: str,
        accepted: bool,
        reason: str,
        remembered: bytes | None = None,
    ) -> None:
        """``remembered``: the key under which a repetition finds it, if it is to be found."""
        header = self._checkpoints.header(ctx, run_id)
        version = 0 if header is None else header.version
        made = layout.Remembered(
            request_id=request_id, accepted=accepted, reason=reason, version=version, at=ctx.now
        )
        if remembered is not None and header is not None:
            ctx.put(remembered, made)
        self._outputs.verdict(ctx, header, made, run_id)
        ctx.after_commit(partial(self.measures.verdict, accepted))

    # --- the end ------------------------------------------------------------------------------

    def _purge(self, ctx: Context, run_id: str) -> None:
        """A finished run's records go; a stub keeps its id taken."""
        header = self._checkpoints.header(ctx, run_id)
        if header is None:
            return
        start: Any = ctx.get(layout.record(run_id, ("s", 0)))
        stub = layout.Stub(
            digest=start.digest, status=header.status, version=header.version, hash=header.hash
        )
        self._checkpoints.forget(ctx, run_id)
        ctx.put(layout.stub(run_id), stub)
        ctx.set_timer(ctx.now + layout.IDS_KEPT_MS, f"{run_id}/stub".encode())


def _as_taken(kept: tuple[bytes, layout.Waiting]) -> tuple[int, int, int]:
    """The order in which held requests came: their keys are texts, in which 10 stands before 9."""
    held = kept[1]
    return held.until, held.partition, held.offset


def _hold_timer(run_id: str, record: Record) -> bytes:
    return f"{run_id}/hold/{position(record)}".encode()
