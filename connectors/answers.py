"""Answers to commands: typed, with large values by claim check, and never over the limit."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from perdure.schemas.records import ActionCommand, ActionError, ActionResult, Usage
from perdure.schemas.topics import MAX_RECORD_BYTES
from perdure.streams.runtime.blobs import BlobError, Blobs, is_reference
from perdure.streams.runtime.processor import Headers

from .errors import Failure, ResultError, seconds

log = logging.getLogger(__name__)

MAX_BLOB_BYTES = 64_000_000
"""A result larger than this is refused: no run could use it."""
_OVERHEAD = 2_000  # key, headers and Kafka's own framing
TYPE: tuple[str, bytes] = ("perdure-type", b"ActionResult")
HEADERS: Headers = (TYPE,)

encode = msgspec.json.Encoder().encode
InThread = Callable[[Callable[[], Any]], Awaitable[Any]]


def headers_of(inbound: Headers) -> Headers:
    """Ours, and the trace the command came with."""
    for name, value in inbound:
        if name == "traceparent":
            return (TYPE, (name, value))
    return HEADERS


class Answers:
    """Makes ActionResults of one worker."""

    def __init__(self, worker: str, blobs: Blobs | None, claim_check_bytes: int) -> None:
        self._worker = worker
        self._blobs = blobs
        self._claim = claim_check_bytes

    def of(
        self,
        command: ActionCommand,
        status: str,
        *,
        result: Any = None,
        failure: Failure | None = None,
        usage: Usage | None = None,
        progress: Any = None,
        adopted: bool = False,
        started_at: int | None = None,
        finished_at: int | None = None,
    ) -> ActionResult:
        """The record. A failure of kind ``unknown`` has the status ``unknown``."""
        error = None
        if failure is not None:
            kind: Any = failure.kind
            wait = seconds(failure.retry_after_seconds)
            error = ActionError(kind, failure.code[:200], failure.message[:4000], wait)
        word: Any = status
        return ActionResult(
            command.run_id, command.action_id, command.attempt, word, result, error, usage,
            progress, adopted, started_at, finished_at, self._worker,
        )  # fmt: skip

    def failed(self, command: ActionCommand, failure: Failure, **more: Any) -> ActionResult:
        status = "unknown" if failure.kind == "unknown" else "failed"
        return self.of(command, status, failure=failure, **more)

    async def pack(self, answer: ActionResult, in_thread: InThread) -> bytes:
        """The bytes to send. Raises `ResultError` if they can't be made to fit."""
        raw = encode(answer)
        if len(raw) <= self._claim:
            return raw
        for name in ("result", "progress"):
            value = getattr(answer, name)
            content = encode(value)
            if len(content) > self._claim:
                setattr(answer, name, await self._check_in(name, content, in_thread))
        raw = encode(answer)
        if len(raw) + _OVERHEAD >= MAX_RECORD_BYTES:
            raise ResultError(
                f"the answer has {len(raw)} bytes; at most {MAX_RECORD_BYTES - _OVERHEAD} fit a record",
                "too_large",
            )
        return raw

    async def _check_in(self, name: str, content: bytes, in_thread: InThread) -> dict[str, Any]:
        blobs = self._blobs
        if blobs is None:
            raise ResultError(
                f"the {name} has {len(content)} bytes, more than {self._claim}, and no blob_url is set",
                "too_large",
            )
        if len(content) > MAX_BLOB_BYTES:
            raise ResultError(
                f"the {name} has {len(content)} bytes; at most {MAX_BLOB_BYTES} are stored",
                "too_large",
            )
        try:
            reference: dict[str, Any] = await in_thread(lambda: blobs.put(content))
        except OSError as error:
            raise ResultError(
                f"the {name} of {len(content)} bytes could not be stored in {blobs.shown}: {error}",
                "blob_failed",
            ) from error
        return reference

    def resolve(self, value: Any) -> Any:
        """``value`` with every reference replaced by what it stands for. Blocks. `BlobError`."""
        if isinstance(value, dict):
            if is_reference(value):
                if self._blobs is None:
                    raise BlobError("a value lies in a blob store, and no blob_url is set here")
                return msgspec.json.decode(self._blobs.get(value))
            return {name: self.resolve(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.resolve(inner) for inner in value]
        return value
