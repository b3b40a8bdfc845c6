"""What a thread brings after its call was given up: told all the same.

A ``def`` tool can't be stopped. When its time is over the call is answered as unknown, and a
person, a query or the next attempt has to settle it - but if this process lives on, its thread
will know: what it returns happened, and an error that says so did not. That is an answer to the
same attempt, which the core takes as long as the action is not settled. Until it is told the
partition counts as busy, so that a stop or a rebalance does not lose it.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import Any

from perdure.schemas.records import ActionResult

from .call import Call, Caller
from .errors import ResultError
from .executor import Executor
from .mapping import failure_of
from .plain import plain
from .raised import log_raised

log = logging.getLogger(__name__)


class Latecomers:
    """Watches the threads of calls given up. ``late`` makes what is posted to the assignment of an
    external call: the call, its answer, what to do once that is committed."""

    def __init__(
        self,
        executor: Executor,
        caller: Caller,
        clock: Callable[[], int],
        late: Callable[[Call, bytes, Callable[[], None]], Any],
    ) -> None:
        self._executor = executor
        self._caller = caller
        self._clock = clock
        self._late = late

    def watch(self, call: Call, thread: asyncio.Future[Any]) -> None:
        """On the loop, when the call's time is over."""
        if call.effect == "read_only":  # the next attempt reads again
            thread.add_done_callback(_seen)
            return
        assignment = call.assignment
        assignment.busy(1)
        told = functools.partial(assignment.busy, -1)
        thread.add_done_callback(functools.partial(self._ended, call, told))

    def _ended(self, call: Call, told: Callable[[], None], thread: asyncio.Future[Any]) -> None:
        try:
            answer = self._answer(call, thread)
        except BaseException as error:  # out of what the tool gave; else nobody tells it is over
            log_raised(log, call.command.target, call.command.action_id, error)
            answer = None
        if answer is None:
            return told()
        log.info(
            "%s of %s has answered after its time",
            call.command.target,
            call.command.action_id,
            extra={"action_id": call.command.action_id},
        )

        async def tell() -> None:
            payload = await self._caller.pack(answer, call.command, call.effect)
            if call.effect == "external":
                call.assignment.post(self._late(call, payload, told))
            else:
                self._caller.send(call.key, payload, call.headers, lambda error: told())

        self._executor.spawn(tell)
        return None

    def _answer(self, call: Call, thread: asyncio.Future[Any]) -> ActionResult | None:
        """None where it is as unknown as before."""
        answers, command, now = self._caller.answers, call.command, self._clock()
        error = asyncio.CancelledError() if thread.cancelled() else thread.exception()
        if error is not None:
            why = failure_of(error, call.effect, command.idempotency_key)
            if thread.cancelled() or why.kind in ("unknown", "internal"):
                return None
            return answers.failed(command, why, started_at=call.started_at, finished_at=now)
        try:
            result = plain(thread.result())
        except ResultError:
            return None
        return answers.of(
            command, "succeeded", result=result, started_at=call.started_at, finished_at=now
        )


def _seen(thread: asyncio.Future[Any]) -> None:
    """Nobody wants its error; asyncio would complain."""
    if not thread.cancelled():
        thread.exception()
