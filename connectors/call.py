"""One call, from the command's arguments to the bytes of its answer.

Everything that leaves a tool ends here as an answer: a value, an exception, a time-out.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from perdure.schemas.records import ActionCommand, ActionResult
from perdure.schemas.topics import RESULTS
from perdure.streams.runtime.blobs import BlobError
from perdure.streams.runtime.ports import PlainProducer
from perdure.streams.runtime.processor import Assignment, Headers, Hold

from .answers import Answers, encode
from .asking import ask
from .errors import (
    Cause,
    Effect,
    Failure,
    InvalidArguments,
    ResultError,
    describe,
    expired,
    failure,
    standard,
)
from .executor import Executor
from .mapping import failure_of
from .models.provider import ModelContext, ModelError
from .models.providers import Providers
from .plain import plain
from .raised import log_raised, stops
from .reach import Reach
from .target import target_of
from .tool import Answer, Found, Tool, ToolContext

log = logging.getLogger(__name__)

QUEUED, ADMITTED, STAGED, RUNNING, ENDED = range(5)
"""A call waits for a place; has one; stands in a ledger not yet committed; runs; has its answer."""


BLOB_SECONDS = 60.0
"""A blob store that takes longer for one value is given up."""

Told = Callable[["Call", ActionResult], None]
"""Told of each call's answer: what measures, what traces."""
GivenUp = Callable[["Call", "asyncio.Future[Any]"], None]
"""Told of a call whose time is over, and of its thread, which goes on."""


class Call:
    """One attempt under way in this process."""

    __slots__ = (
        "assignment", "busy_on", "calling", "cancel_wanted", "command", "context", "dropped", "effect",
        "era", "has_blobs", "headers", "holds", "key", "limit", "made_before", "over", "payload", "phase", "saved",
        "seconds", "staged", "started_at", "target", "task", "threads", "tool",
    )  # fmt: skip

    def __init__(
        self,
        command: ActionCommand,
        tool: Tool[..., Any] | None,
        effect: Effect,
        assignment: Assignment,
        headers: Headers,
        has_blobs: bool,
        made_before: bool = False,
    ) -> None:
        self.made_before = made_before
        self.command = command
        self.tool = tool
        self.effect = effect
        self.assignment = assignment
        self.headers = headers
        self.has_blobs = has_blobs
        self.target = target_of(command)  # whose breaker it asks
        self.era = 0
        self.key = command.run_id.encode()
        self.seconds = command.timeout_seconds
        self.phase = QUEUED
        self.holds: list[Hold] = []
        self.dropped = False
        self.cancel_wanted = False
        self.calling = False  # the tool or model itself runs: only then may it be cancelled
        self.context: ToolContext | None = None
        self.limit: asyncio.Timeout | None = None
        self.saved = False  # it has saved progress
        self.task: asyncio.Task[Any] | None = None
        self.started_at = 0
        self.staged = 0.0
        self.over = 0.0  # s of the monotonic clock, when it ended
        self.threads = 0
        self.payload = b""
        self.busy_on: Assignment | None = None

    @property
    def ident(self) -> tuple[str, int]:
        return self.command.action_id, self.command.attempt


_NOTHING_SENT = frozenset({"transient", "unavailable"})


def in_honesty(made_before: bool, why: Failure) -> Failure:
    """That nothing happened is true of this delivery of the command alone: a process that died
    may have made the same attempt before. So it is unknown, and settled by the call's effect."""
    if not made_before or why.kind not in _NOTHING_SENT:
        return why
    text = f"{why.message} (but this attempt may have been made before)"
    return dataclasses.replace(why, kind="unknown", message=text)


@dataclasses.dataclass(slots=True)
class Progressed:
    """Posted: the call has told how far it is (JSON), so it lives. None: it is over."""

    call: Call
    progress: str | None


class Caller:
    """Makes calls; knows the ways to the outside and nothing of partitions."""

    def __init__(
        self,
        executor: Executor,
        producer: PlainProducer,
        answers: Answers,
        models: Providers | None,
        reach: Reach,
        clock: Callable[[], int],
        threads_per_tool: int,
        announce_seconds: float,
        told: Told,
    ) -> None:
        self._told = told
        self._executor = executor
        self._producer = producer
        self.answers = answers
        self._models = models
        self._reach = reach
        self._clock = clock
        self._threads_per_tool = threads_per_tool
        self._announce_seconds = announce_seconds

    async def perform(
        self, call: Call, thread_ended: Callable[[], None], given_up: GivenUp
    ) -> bytes:
        """The answer's bytes. Raises only `CancelledError`, when the worker itself stops."""
        call.task = asyncio.current_task()
        call.started_at = self._clock()
        if call.started_at >= call.command.expires_at:
            return await self.refused(call, expired())
        announce = None
        if call.effect != "external":
            loop = asyncio.get_running_loop()
            announce = loop.call_later(self._announce_seconds, self._announce, call)
        try:
            answer = await (
                self._model(call)
                if call.tool is None
                else self._tool(call, call.tool, thread_ended, given_up)
            )
        except BaseException as error:
            if stops(error):
                raise
            named = {"action_id": call.command.action_id}
            log.exception("a call's own bookkeeping failed", extra=named)
            answer = self._failed(call, failure(error, None, call.effect))
        finally:
            if announce is not None:
                announce.cancel()
        self._told(call, answer)
        return await self.pack(answer, call.command, call.effect)

    async def refused(self, call: Call, why: Failure) -> bytes:
        """The answer of a call that is not made."""
        answer = self._failed(call, why)
        self._told(call, answer)
        return await self.pack(answer, call.command, call.effect)

    async def pack(self, answer: ActionResult, command: ActionCommand, effect: Effect) -> bytes:
        """The bytes of an answer; of the reason, if it can't be told."""
        try:
            return await self.answers.pack(answer, self.in_thread)
        except ResultError as error:
            fault, why = error, error.code
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            fault = ResultError(f"the answer is not JSON: {error}", "bad_result")
            why = type(error).__name__
        except Exception as error:  # a blob store's own: an answer goes out in any case
            fault = ResultError(f"the answer can't be packed: {describe(error)}", "bad_result")
            why = type(error).__name__
        named = {"action_id": command.action_id}  # and no text: it may hold payload
        log.warning("%s of %s: %s", command.target, command.action_id, why, extra=named)
        return encode(
            self.answers.failed(
                command,
                failure(fault, None, effect),
                usage=answer.usage,
                started_at=answer.started_at,
                finished_at=answer.finished_at,
            )
        )

    async def in_thread(self, work: Callable[[], Any]) -> Any:
        """Read or write blobs. `TimeoutError` if their store does not answer: nobody else would end
        the wait, and the call would never be answered."""
        limit = asyncio.timeout(BLOB_SECONDS)
        try:
            async with limit:
                return await self._executor.in_thread("blobs", 8, work, _nothing)
        except TimeoutError as error:
            if not limit.expired():  # the store's own
                raise
            text = f"the blob store did not answer within {BLOB_SECONDS:g} s"
            raise TimeoutError(text) from error

    def _threads(self, pool: str) -> Callable[[Callable[[], Any]], Awaitable[Any]]:
        """Run what blocks in threads of its own: one that hangs takes none from another."""
        limit = self._threads_per_tool
        return functools.partial(self._executor.in_thread, pool, limit, ended=_nothing)

    def send(
        self, key: bytes, payload: bytes, headers: Headers, done: Callable[[Exception | None], None]
    ) -> None:
        """Produce a result outside of any transaction; ``done`` is called in any case."""
        try:
            self._producer.send(RESULTS, key, payload, headers, None, done)
        except Exception as error:
            done(error)

    def _announce(self, call: Call) -> None:
        """A call that takes its time is shown as started."""
        answer = self.answers.of(call.command, "started", started_at=call.started_at)
        self.send(call.key, encode(answer), call.headers, _nothing)

    def _failed(self, call: Call, why: Failure, **more: Any) -> ActionResult:
        why = in_honesty(call.made_before, why)
        return self.answers.failed(
            call.command, why, started_at=call.started_at, finished_at=self._clock(), **more
        )

    def _cancelled(self, call: Call) -> ActionResult:
        if call.made_before:
            why = Failure("unavailable", "CANCELLED", "the call was given up before it began here")
            return self._failed(call, why)
        return self.answers.of(call.command, "cancelled", finished_at=self._clock())

    def _succeeded(self, call: Call, result: Any, **more: Any) -> ActionResult:
        return self.answers.of(
            call.command,
            "succeeded",
            result=result,
            started_at=call.started_at,
            finished_at=self._clock(),
            **more,
        )

    # --- tools ---------------------------------------------------------------------------------

    async def _tool(
        self, call: Call, tool: Tool[..., Any], ended: Callable[[], None], given_up: GivenUp
    ) -> ActionResult:
        command = call.command
        try:
            if call.has_blobs:
                await self._resolve(command)
            keywords = tool.signature.check(command.arguments)
        except InvalidArguments as error:
            # Our own word, not the service's: another worker's schema may have let it through.
            kind = "unavailable" if call.made_before else "invalid_arguments"
            return self._failed(call, Failure(kind, error.code or "", str(error)))
        except (BlobError, OSError) as error:
            return self._failed(call, Failure("transient", "blob_unreadable", describe(error)))
        except (TypeError, ValueError) as error:
            return self._failed(call, Failure("invalid_arguments", "not_json", describe(error)))
        context = call.context = self._context(call, not tool.is_async)
        keywords = tool.call_arguments(context, keywords)
        if call.cancel_wanted:
            return self._cancelled(call)
        if call.seconds <= 0:
            late = "the call's time was over before it could begin; nothing was sent"
            return self._failed(call, Failure("transient", "late_start", late))
        refused = self._begin(call)
        if refused is not None:
            return refused
        limit = call.limit = asyncio.timeout(call.seconds)
        call.calling = True
        thread: asyncio.Future[Any] | None = None
        try:
            async with limit:
                if tool.is_async:
                    value = await tool.function(**keywords)
                else:
                    work = functools.partial(tool.function, **keywords)
                    call.threads += 1
                    pool, most = f"tool {tool.name}", self._threads_per_tool
                    thread = self._executor.in_thread(pool, most, work, ended)
                    value = await asyncio.shield(thread)  # it goes on when its time is over
            result = plain(value)
        except BaseException as error:
            if thread is not None and limit.expired() and isinstance(error, TimeoutError):
                given_up(call, thread)
            elif thread is not None and not thread.done():
                thread.cancel()
            return self._raised(call, tool, error, limit.expired())
        finally:
            call.calling = False
        self._reach.succeeded(call.target, call.era)
        return self._succeeded(call, result)

    def _begin(self, call: Call) -> ActionResult | None:
        """The answer of a call that its target's breaker refuses."""
        era = self._reach.begin(call.target)
        if isinstance(era, Failure):
            return self._failed(call, era)
        call.era = era
        return None

    def _raised(
        self, call: Call, tool: Tool[..., Any], error: BaseException, expired: bool
    ) -> ActionResult:
        if (
            isinstance(error, asyncio.CancelledError)
            and call.task is not None
            and call.task.cancelling()
        ):
            if not call.cancel_wanted:
                raise error  # the worker stops; the command or its ledger entry tells the next one
            call.task.uncancel()
            return self._cancelled(call)
        if call.context is not None:
            call.context.cancel()  # a thread that still runs may see it
        late = expired and isinstance(error, TimeoutError)
        if late:
            error = TimeoutError(f"{tool.name} did not answer within {call.seconds:g} s")
            why = failure(error, Cause("unclear", "read_timeout"), call.effect)
        else:
            why = failure_of(error, call.effect, call.command.idempotency_key)
        self._reach.ended(call.target, call.era, why, error, call.command)
        if why.kind in ("unknown", "internal") and not late:
            log_raised(log, tool.name, call.command.action_id, error)
        return self._failed(call, why)

    def _context(self, call: Call, threaded: bool) -> ToolContext:
        command = call.command
        save = self._save_blocking if threaded else self._save
        return ToolContext(
            command.run_id, command.action_id, command.attempt, command.idempotency_key,
            command.request_id, command.user_id, command.session_id, command.tenant,
            command.metadata, command.approval, call.started_at + int(call.seconds * 1000),
            command.progress, functools.partial(save, call),
        )  # fmt: skip

    async def _resolve(self, command: ActionCommand) -> None:
        def work() -> None:
            command.arguments = self.answers.resolve(command.arguments)
            command.request = self.answers.resolve(command.request)
            command.progress = self.answers.resolve(command.progress)

        await self.in_thread(work)

    async def _save(self, call: Call, value: Any) -> None:
        loop = asyncio.get_running_loop()
        saved: asyncio.Future[Exception | None] = loop.create_future()

        def settle(error: Exception | None) -> None:
            if not saved.done():
                saved.set_result(error)

        def done(error: Exception | None) -> None:
            loop.call_soon_threadsafe(settle, error)

        answer = self.answers.of(call.command, "progress", progress=plain(value, "$.progress"))
        payload = await self.answers.pack(answer, self.in_thread)
        self.send(call.key, payload, call.headers, done)
        error = await saved
        if error is not None:
            raise RuntimeError(f"the progress could not be saved: {error}")
        call.saved = True
        call.assignment.post(Progressed(call, encode(answer.progress).decode()))
        if call.effect != "external":
            await self.lives(call)

    async def lives(self, call: Call) -> None:
        """A call that tells how far it is has its time anew, here as in the engine. An external one
        only once its ledger says so, and while the partition is ours: whoever takes it over waits
        no longer than what stands there."""
        seconds = call.command.timeout_seconds
        if (
            not call.assignment.alive
            or not call.calling
            or call.limit is None
            or call.limit.expired()
        ):
            return
        call.limit.reschedule(asyncio.get_running_loop().time() + seconds)
        if call.context is not None:
            call.context.deadline_at = self._clock() + int(seconds * 1000)

    def _save_blocking(self, call: Call, value: Any) -> None:
        ready = threading.Event()
        outcome: list[BaseException | None] = [None]

        async def save() -> None:
            try:
                await self._save(call, value)
            except BaseException as error:
                outcome[0] = error
            ready.set()

        self._executor.spawn(save)
        ready.wait()
        if outcome[0] is not None:
            raise outcome[0]

    async def ask(self, command: ActionCommand, tool: Tool[..., Any]) -> Found | Answer:
        """What the tool's query says; UNCLEAR if it says nothing."""

        async def arguments() -> dict[str, Any]:
            found: dict[str, Any] = command.arguments
            if b'"$blob"' in encode(found):
                found = await self.in_thread(lambda: self.answers.resolve(found))
            return found

        return await ask(command, tool, self._clock, arguments, self._threads(f"query {tool.name}"))

    # --- models --------------------------------------------------------------------------------

    async def _model(self, call: Call) -> ActionResult:
        command = call.command
        if call.cancel_wanted:
            return self.answers.of(command, "cancelled", finished_at=self._clock())
        limit = asyncio.timeout(call.seconds)
        call.calling = True
        begun = False
        try:
            if call.has_blobs:
                await self._resolve(command)
                call.target = target_of(command)
            request = command.request
            if not isinstance(request, dict) or not isinstance(request.get("model"), dict):
                raise ModelError(
                    "model_invalid", "bad_request", "the command carries no model request"
                )
            assert self._models is not None
            provider = self._models.get(str(request["model"].get("provider")))
            refused = self._begin(call)
            if refused is not None:
                return refused
            begun = True
            model = str(request["model"].get("function") or call.target)
            threads = self._threads(f"model {model}")
            context = ModelContext(command.action_id, call.seconds, threads)
            async with limit:
                reply = await provider.complete(request, context)
        except ModelError as error:
            if begun:
                self._reach.ended(call.target, call.era, error.failure, error, command)
            return self._failed(call, error.failure, usage=error.usage)
        except (BlobError, OSError) as error:
            if limit.expired():
                text = f"{command.target} did not answer within {call.seconds:g} s"
                late = Failure("transient", "read_timeout", text)
                self._reach.ended(call.target, call.era, late, error, command)
                return self._failed(call, late)
            return self._failed(call, Failure("transient", "blob_unreadable", describe(error)))
        except asyncio.CancelledError as error:
            if not stops(error):  # the model's own
                return self._failed(call, failure(error, standard(error), call.effect))
            if not call.cancel_wanted or call.task is None:
                raise
            call.task.uncancel()
            return self.answers.of(command, "cancelled", finished_at=self._clock())
        finally:
            call.calling = False
        self._reach.succeeded(call.target, call.era)
        try:
            result = plain(reply.as_result(), "$.reply")
        except ResultError as error:
            why = Failure("model_invalid", error.code, str(error))
            return self._failed(call, why, usage=reply.usage)
        return self._succeeded(call, result, usage=reply.usage)


def _nothing(_: Any = None) -> None:
    """Nobody waits for this."""
