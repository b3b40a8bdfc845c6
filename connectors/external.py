"""The ledger path: nothing external begins before its intent is committed, and nothing twice."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from perdure.schemas import topics
from perdure.schemas.records import ActionCommand
from perdure.streams.runtime.processor import Context, Headers, Hold, Message

from . import ledger
from .answers import HEADERS, Answers, encode, headers_of
from .call import ENDED, RUNNING, STAGED, Call, Caller, Progressed, in_honesty
from .errors import Effect, Failure
from .executor import Executor
from .ledger import LedgerEntry
from .reach import Reach
from .tool import ABSENT, EFFECTS, UNCLEAR, Answer, Found, Tool
from .work import Work

EXPIRES_AFTER_TIMEOUTS = 10
"""At most: a command's ``expires_at`` is its attempt's ``issued_at`` and so many timeouts."""

_FORGOTTEN = Failure(
    "unknown", "ledger_lost", "the worker's record of this attempt is gone: it may have been made"
)

_command = msgspec.json.Decoder(ActionCommand).decode


@dataclass(slots=True)
class Begin:
    """Posted: a call that waited has its place; or, with ``why``, has none and gets none."""

    call: Call
    why: Failure | None = None


@dataclass(slots=True)
class Ended:
    """Posted: the call has its answer."""

    call: Call


@dataclass(slots=True)
class Late:
    """Posted: a call that was given up has its answer after all. ``told``: once it is committed."""

    call: Call
    payload: bytes
    told: Callable[[], None]


@dataclass(slots=True)
class Asked:
    """Posted: a tool's query has answered. ``payload``: the adopted result, if it was found."""

    command: ActionCommand
    headers: Headers
    hold: Hold | None
    said: Found | Answer
    payload: bytes


def stricter(command: ActionCommand, tool: Tool[..., Any] | None) -> Effect:
    """Of the command's effect and the tool's own."""
    if tool is None:
        return command.effect
    own = tool.spec.effect
    return own if EFFECTS.index(own) > EFFECTS.index(command.effect) else command.effect


def reply(ctx: Context, command: ActionCommand, payload: bytes, headers: Headers) -> None:
    """An answer within the transaction."""
    ctx.send(topics.RESULTS, command.run_id.encode(), payload, headers)


class External:
    """Calls, queries and cancels that touch the ledger."""

    def __init__(
        self,
        owner: str,
        tools: dict[str, Tool[..., Any]],
        work: Work,
        caller: Caller,
        answers: Answers,
        executor: Executor,
        reach: Reach,
        clock: Callable[[], int],
    ) -> None:
        self._owner = owner
        self._tools = tools
        self._work = work
        self._caller = caller
        self._answers = answers
        self._executor = executor
        self._reach = reach
        self._clock = clock

    def _entry(self, ctx: Context, of: ActionCommand, state: str, **more: Any) -> LedgerEntry:
        return LedgerEntry(
            state=state,
            owner=self._owner,
            target=of.target,
            at=ctx.now,
            timeout_seconds=of.timeout_seconds,
            **more,
        )

    # --- call ----------------------------------------------------------------------------------

    def known(self, ctx: Context, message: Message, command: ActionCommand) -> bool:
        """The ledger has this attempt: answered again, barred, or under way elsewhere."""
        entry = ledger.find(ctx, command.action_id, command.attempt)
        if entry is None:
            return self._waits_for_another(ctx, message, command) or self._unnoted(
                ctx, message, command
            )
        if entry.result is not None:
            reply(ctx, command, entry.result.encode(), headers_of(message.record.headers))
        return True

    def _waits_for_another(self, ctx: Context, message: Message, command: ActionCommand) -> bool:
        """An earlier attempt has not ended, whatever made the engine, or a person, sure that it never
        happened (a clock that ran ahead): until then this one would be a second effect."""
        action_id = command.action_id
        for attempt in range(command.attempt - 1, 0, -1):
            open_ = ctx.get(ledger.OPEN + ledger.attempt_key(action_id, attempt)) is not None
            if open_ or self._work.to_come((action_id, attempt)):
                break
        else:
            return False
        text = f"attempt {attempt} has not ended: it is not known whether it happens"
        self._never_told(ctx, message, command, Failure("unknown", "earlier_attempt", text))
        return True

    def _unnoted(self, ctx: Context, message: Message, command: ActionCommand) -> bool:
        """A process that died may have called it, which the ledger was not told of, or does not know
        any more."""
        if not ctx.taken_before:
            return False
        if command.effect != "external":
            text = "this attempt may have been made before its tool became external"
            self._never_told(ctx, message, command, Failure("unknown", "made_before", text))
        elif command.issued_at < ledger.began(ctx):
            self._never_told(ctx, message, command, _FORGOTTEN)
        else:
            return False
        return True

    def _untold(self, ctx: Context, command: ActionCommand) -> bool:
        """That there is no entry does not mean that this attempt never began. A query carries the
        attempt's expiry, hence the earliest time it was sent."""
        sent = command.expires_at - int(EXPIRES_AFTER_TIMEOUTS * command.timeout_seconds * 1000)
        return command.effect != "external" or min(sent, command.issued_at) < ledger.began(ctx)

    def _never_told(
        self, ctx: Context, message: Message, command: ActionCommand, why: Failure
    ) -> None:
        """Not called, and unknown for good: the same to whoever asks again."""
        headers = headers_of(message.record.headers)
        self._finish(ctx, command, encode(self._answers.failed(command, why)), headers)

    def stage(self, ctx: Context, call: Call) -> None:
        """Note the call as started; it begins once that is committed."""
        command = call.command
        call.phase = STAGED
        call.assignment = ctx.assignment
        asks = call.tool is not None and call.tool.query_function is not None
        kept = encode(command).decode() if asks else None
        entry = self._entry(ctx, command, "started", command=kept)
        ledger.start(ctx, command.action_id, command.attempt, entry)
        started = self._answers.of(command, "started", started_at=self._clock())
        reply(ctx, command, encode(started), call.headers)
        call.staged = self._work.monotonic()
        ctx.after_commit(functools.partial(self._started, call))

    def _started(self, call: Call) -> None:
        if not self._work.go(call):
            return
        with self._work.lock:
            holds, call.holds = call.holds, []
        for hold in holds:
            hold.finish()

    def begin(self, ctx: Context, event: Begin) -> None:
        """A call that waited: a query or cancel may have barred it since, or its time be over."""
        if event.why is not None:
            return self._refused(ctx, event.call, event.why)
        call, command = event.call, event.call.command
        if call.dropped:
            return None
        if ledger.find(ctx, command.action_id, command.attempt) is not None:
            ctx.after_commit(functools.partial(self._work.not_begun, call))
            return None
        why = self._reach.refusal(call.target)
        if min(ctx.now, self._clock()) >= command.expires_at:
            late = "the command waited too long for a place; nothing was called"
            why = Failure("transient", "EXPIRED", late)
        if why is None:
            return self.stage(ctx, call)
        reply(ctx, command, encode(self._answers.failed(command, why)), call.headers)
        return ctx.after_commit(functools.partial(self._work.not_begun, call))

    def _refused(self, ctx: Context, call: Call, why: Failure) -> None:
        """It waited in vain, and has no place to give back."""
        command = call.command
        if call.dropped:
            return
        if ledger.find(ctx, command.action_id, command.attempt) is None:
            reply(ctx, command, encode(self._answers.failed(command, why)), call.headers)
        ctx.after_commit(functools.partial(self._work.forget, call))

    def progressed(self, ctx: Context, event: Progressed) -> None:
        """Kept for a delivery of the same attempt after a crash; and whoever takes the partition
        over waits for an external call as long as from now."""
        command = event.call.command
        ident = command.action_id, command.attempt
        if event.progress is None or not self._work.under_way(ident):
            ledger.unsave(ctx, *ident)
            return
        kept = self._entry(ctx, command, "progress", result=event.progress)
        ledger.save(ctx, kept, *ident)
        entry = ledger.find(ctx, *ident)
        if entry is not None and entry.state == "started":
            ledger.start(ctx, *ident, msgspec.structs.replace(entry, at=ctx.now))
            lives = functools.partial(self._caller.lives, event.call)
            ctx.after_commit(functools.partial(self._executor.spawn, lives))

    def ended(self, ctx: Context, event: Ended) -> None:
        """Result and ``finished``, in one transaction; unless it was settled meanwhile."""
        call, command = event.call, event.call.command
        entry = ledger.find(ctx, command.action_id, command.attempt)
        if entry is not None and entry.state == "started":
            self._finish(ctx, command, call.payload, call.headers)
        ctx.after_commit(functools.partial(self._work.forget, call))

    def late(self, ctx: Context, event: Late) -> None:
        """The thread knows better than "unknown", or than a query that saw nothing yet."""
        command = event.call.command
        entry = ledger.find(ctx, command.action_id, command.attempt)
        if entry is not None and not (entry.result is not None and _told(entry.result)):
            self._finish(ctx, command, event.payload, event.call.headers)
        ctx.after_commit(event.told)

    def _finish(
        self, ctx: Context, command: ActionCommand, payload: bytes, headers: Headers
    ) -> None:
        entry = self._entry(ctx, command, "finished", result=payload.decode())
        ledger.unsave(ctx, command.action_id, command.attempt)
        ledger.close(ctx, command.action_id, command.attempt, entry)
        reply(ctx, command, payload, headers)

    def _bar(self, ctx: Context, command: ActionCommand) -> None:
        entry = self._entry(ctx, command, "barred")
        ledger.close(ctx, command.action_id, command.attempt, entry)

    # --- query ---------------------------------------------------------------------------------

    def query(self, ctx: Context, message: Message, command: ActionCommand) -> None:
        """From the ledger if it can tell, else from the tool."""
        tool = self._tools.get(command.target)
        headers = headers_of(message.record.headers)
        running = encode(self._answers.of(command, "running"))
        if self._work.under_way((command.action_id, command.attempt)):
            return reply(ctx, command, running, headers)
        if stricter(command, tool) == "external":
            entry = ledger.find(ctx, command.action_id, command.attempt)
            if entry is None:
                if not self._untold(ctx, command):
                    self._bar(ctx, command)  # it never began; now it never will
            elif entry.result is not None and _told(entry.result):
                return reply(ctx, command, entry.result.encode(), headers)
            elif entry.state == "started" and self._anothers(ctx, entry):
                return reply(ctx, command, running, headers)
        if tool is not None and tool.query_function is not None:
            return self._ask(ctx, command, tool, headers, ctx.hold())
        return self.asked(ctx, Asked(command, headers, None, UNCLEAR, b""))

    def _anothers(self, ctx: Context, entry: LedgerEntry) -> bool:
        """A call of another process that may still run."""
        return entry.owner != self._owner and ctx.now < ledger.foreign_due(entry)

    def _ask(
        self,
        ctx: Context,
        command: ActionCommand,
        tool: Tool[..., Any],
        headers: Headers,
        hold: Hold | None,
    ) -> None:
        assignment = ctx.assignment

        async def ask() -> None:
            said = await self._caller.ask(command, tool)
            payload = b""
            if isinstance(said, Found):
                answer = self._answers.of(
                    command,
                    "succeeded",
                    result=said.result,
                    adopted=True,
                    finished_at=self._clock(),
                )
                payload = await self._caller.pack(answer, command, "external")
            assignment.post(Asked(command, headers, hold, said, payload))

        self._executor.spawn(ask)

    def asked(self, ctx: Context, event: Asked) -> None:
        """Answer a query; or settle what a dead process left (the command is a ``call``)."""
        command, headers = event.command, event.headers
        external = stricter(command, self._tools.get(command.target)) == "external"
        entry = ledger.find(ctx, command.action_id, command.attempt) if external else None
        state = entry.state if entry is not None else None
        if event.hold is not None:
            ctx.after_commit(event.hold.finish)
        if command.verb == "call" and state != "started":
            return  # settled meanwhile
        if event.payload and external:
            self._finish(ctx, command, event.payload, headers)
        elif event.payload:
            reply(ctx, command, event.payload, headers)
        elif command.verb == "call":
            self._unknown(ctx, command)
        elif event.said is ABSENT or state == "barred":
            if external and state not in ("barred", "absent"):
                entry = self._entry(ctx, command, "absent")
                ledger.close(ctx, command.action_id, command.attempt, entry)
            reply(ctx, command, encode(self._answers.of(command, "absent")), headers)
        else:
            why = Failure("unknown", "unclear", "nobody can tell whether the call happened")
            reply(ctx, command, encode(self._answers.failed(command, why)), headers)

    # --- cancel --------------------------------------------------------------------------------

    def cancel(self, ctx: Context, message: Message, command: ActionCommand) -> None:
        """``cancelled`` if it never begins; else it is told, and its own result is the answer."""
        headers = headers_of(message.record.headers)
        never = encode(self._answers.of(command, "cancelled"))
        call = self._work.calls.get((command.action_id, command.attempt))
        tool = self._tools.get(command.target)
        if command.request is None and stricter(command, tool) == "external":
            entry = ledger.find(ctx, command.action_id, command.attempt)
            if entry is not None and entry.result is not None:
                return reply(ctx, command, entry.result.encode(), headers)
            if entry is None and call is None and self._untold(ctx, command):
                forgotten = encode(self._answers.failed(command, _FORGOTTEN))
                return self._finish(ctx, command, forgotten, headers)
            if entry is None:
                self._bar(ctx, command)
            if entry is None or entry.state == "barred":
                reply(ctx, command, never, headers)
                if call is not None:
                    self._work.drop(call)
                    ctx.after_commit(functools.partial(self._work.withdraw, call))
                return None
        if call is not None and call.effect != "external" and self._work.drop(call):
            reply(ctx, command, self._never_here(call) or never, headers)
            ctx.after_commit(functools.partial(self._work.withdraw, call))
        elif call is not None:
            self._work.stop(call)
        return None

    def _never_here(self, call: Call) -> bytes | None:
        """The answer where the same attempt may have been made by a process that died."""
        if not call.made_before:
            return None
        why = Failure("unavailable", "CANCELLED", "the call was given up before it began here")
        return encode(self._answers.failed(call.command, in_honesty(True, why)))

    # --- taking over ---------------------------------------------------------------------------

    def take_over(self, ctx: Context) -> None:
        """Every open entry is a call of ours that still runs, one of a dead process, or another's."""
        for key, entry in list(ctx.scan(ledger.OPEN)):
            call = self._work.calls.get(ledger.action_of(key))
            if call is not None and call.phase >= RUNNING:
                with self._work.lock:
                    call.assignment = ctx.assignment  # its end is posted here
                    moved = call.busy_on is not ctx.assignment
                    call.busy_on = ctx.assignment
                    over = call.phase == ENDED
                if moved:  # not when an aborted `live` is taken again
                    ctx.assignment.busy(1)
                if over:
                    self.ended(ctx, Ended(call))
            elif entry.owner == self._owner:
                self._settle(ctx, key, entry)
            else:
                ctx.set_timer(max(ctx.now, ledger.foreign_due(entry)), ledger.SETTLE + key)
        for call in self._work.left_over(ctx.partition):
            if ctx.get(ledger.OPEN + ledger.attempt_key(*call.ident)) is None:  # settled elsewhere
                ctx.after_commit(functools.partial(self._work.forget, call))

    def settle_timer(self, ctx: Context, key: bytes) -> None:
        """A call of another owner is over by now."""
        entry: LedgerEntry | None = ctx.get(key)
        if entry is not None and not self._work.under_way(ledger.action_of(key)):
            self._settle(ctx, key, entry)

    def _settle(self, ctx: Context, key: bytes, entry: LedgerEntry) -> None:
        """The process that made the call is dead, or its time is over: ask, or say unknown."""
        if entry.command is not None:
            command = _command(entry.command.encode())
            tool = self._tools.get(command.target)
            if tool is not None and tool.query_function is not None:
                return self._ask(ctx, command, tool, HEADERS, None)
        action_id, attempt = ledger.action_of(key)
        command = ActionCommand(
            run_id=action_id.rpartition("/")[0], agent="", user_id="", session_id="", tenant="",
            action_id=action_id, attempt=attempt, verb="call", target=entry.target,
            effect="external", idempotency_key="", request_id="",
            timeout_seconds=entry.timeout_seconds, issued_at=0, expires_at=0,
        )  # fmt: skip
        return self._unknown(ctx, command)

    def _unknown(self, ctx: Context, command: ActionCommand) -> None:
        text = "the worker ended while the call was under way: it may or may not have happened"
        answer = self._answers.failed(command, Failure("unknown", "worker_lost", text))
        self._finish(ctx, command, encode(answer), HEADERS)


def _told(result: str) -> bool:
    """The recorded result says what happened."""
    return bool(msgspec.json.decode(result)["status"] != "unknown")
