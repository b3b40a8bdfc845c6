"""What a decision becomes: stored records, timers, events, commands, questions, outcomes, verdicts.

Everything is staged in the savepoint of the message that caused it; nothing here decides.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from perdure.schemas import codec, records, topics
from perdure.schemas.errors import RecordError
from perdure.streams.core.arguments import RESERVED, RESERVED_TEXT
from perdure.streams.core.decide.decision import KEPT_INLINE, Decision
from perdure.streams.core.effects import Command, effects
from perdure.streams.core.lifecycle import FINAL
from perdure.streams.core.policies import outcome
from perdure.streams.core.policies.approval import ALLOWED
from perdure.streams.core.state import Approval, Header, RecordKey, Run
from perdure.streams.runtime.blobs import BlobError, Blobs, is_reference
from perdure.streams.runtime.errors import StoreFailed
from perdure.streams.runtime.processor import Context

from . import layout

_HEADROOM: Final = 2_000  # key, headers, batch overhead
_TYPES: Final = {
    topics.EVENTS: b"RunEvent",
    topics.OUTCOMES: b"Outcome",
    topics.VERDICTS: b"Verdict",
    topics.PENDING: b"ApprovalRequest",
}
_json = msgspec.json.Encoder()


class Outputs:
    """Stages decisions. ``url`` makes the link of a question, or None where no page is served."""

    def __init__(self, blobs: Blobs, url: str | None = None) -> None:
        self._blobs = blobs
        self._url = url

    def keep(self, value: Any, above: int = KEPT_INLINE) -> Any:
        """The value, or a reference to it in the blob store where its JSON is ``above`` bytes."""
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, str) and len(value) < above // 4:
            return value
        raw = _json.encode(value)
        return value if len(raw) <= above else self.put(raw)

    def put(self, content: bytes) -> dict[str, Any]:
        """Store bytes by reference. A store that is out of reach stops the process, not the run."""
        try:
            return self._blobs.put(content)
        except OSError as error:
            raise StoreFailed(
                f"the blob store {self._blobs.shown} can't be written: {error}"
            ) from error

    def fetch(self, reference: dict[str, Any]) -> bytes:
        """The bytes of a reference. Raises `BlobError` where they are gone or are others."""
        try:
            return self._blobs.get(reference)
        except OSError as error:
            raise StoreFailed(
                f"the blob store {self._blobs.shown} can't be read: {error}"
            ) from error

    def value(self, value: Any) -> Any:
        """The value itself, read from the blob store where it is a reference."""
        return msgspec.json.decode(self.fetch(value)) if is_reference(value) else value

    def unreadable(self, value: Any) -> str | None:
        """Why a connector's result can't be used: it holds the key of references and is none, or
        nothing stands behind it. None: it can be."""
        if not (isinstance(value, dict) and RESERVED in value):
            return None
        if not is_reference(value):
            return RESERVED_TEXT
        try:
            return self._blobs.problem(value)
        except OSError as error:
            raise StoreFailed(
                f"the blob store {self._blobs.shown} can't be read: {error}"
            ) from error

    def beginning(self, value: Any, most: int) -> str | None:
        """The first ``most`` bytes of a referenced value's JSON; None where there is none to show:
        a reference that nothing stands behind must not stop the run that got it as a result."""
        if not is_reference(value):
            return None
        try:
            return self.fetch(value)[:most].decode("utf-8", "ignore")
        except BlobError:
            return None

    def stage(self, ctx: Context, before: Run | None, decision: Decision) -> list[tuple[str, str]]:
        """Everything a decision leads to, but the run's own state. Queue and verb of its commands."""
        sent: list[tuple[str, str]] = []
        run = decision.run
        header = run.header
        run_id = header.run_id
        self._timers(ctx, run_id, {} if before is None else before.header.timers, header.timers)
        key = run_id.encode()
        for event in decision.events:
            self._send(ctx, topics.EVENTS, key, codec.encode(event), header, ctx.partition)
            if event.version <= decision.copied:
                continue
            for command in effects(run, event):
                self._command(ctx, key, command, header)
                sent.append((command.queue, command.command.verb))
        self._questions(ctx, run, {} if before is None else before.writes)
        if header.status in FINAL:
            self._outcome(ctx, run, key)
        elif before is not None and before.header.status in FINAL:
            self.no_outcome(ctx, key, header)
        return sent

    def _timers(self, ctx: Context, run_id: str, old: dict[str, int], new: dict[str, int]) -> None:
        if old is new:
            return
        for name, due in old.items():
            if new.get(name) != due:
                ctx.cancel_timer(due, f"{run_id}/{name}".encode())
        for name, due in new.items():
            if old.get(name) != due:
                ctx.set_timer(due, f"{run_id}/{name}".encode())

    def _send(
        self,
        ctx: Context,
        topic: str,
        key: bytes,
        value: bytes,
        header: Header,
        partition: int | None,
    ) -> None:
        if len(value) + len(key) > topics.MAX_RECORD_BYTES - _HEADROOM:
            raise RecordError(topic, f"a record of {len(value)} bytes can't be sent", "too_large")
        ctx.send(topic, key, value, self._headers(_TYPES[topic], header.trace), partition)

    @staticmethod
    def _headers(kind: bytes, trace: str) -> list[tuple[str, bytes | None]]:
        headers: list[tuple[str, bytes | None]] = [("perdure-type", kind)]
        if trace:
            headers.append(("traceparent", trace.encode()))
        return headers

    def _command(self, ctx: Context, key: bytes, command: Command, header: Header) -> None:
        made = command.command
        if made.request is not None and made.request.get("messages"):
            made.request["messages"] = self.keep(made.request["messages"])
        value = codec.encode(made)
        if len(value) > topics.MAX_RECORD_BYTES - _HEADROOM:
            raise RecordError(
                "command", f"a command of {len(value)} bytes can't be sent", "too_large"
            )
        topic = topics.commands(command.queue)
        ctx.send(topic, key, value, self._headers(b"ActionCommand", header.trace), ctx.partition)

    def _questions(self, ctx: Context, run: Run, before: dict[RecordKey, Any]) -> None:
        """The pending topic is the truth of what waits: open questions, null for closed ones."""
        for where, approval in run.writes.items():
            kind, n = where
            if kind != "p" or before.get(where) is approval:
                continue
            key = run.approval_id(n).encode()
            if approval.open:
                value = codec.encode(self._request(run, approval))
                self._send(ctx, topics.PENDING, key, value, run.header, None)
            else:
                ctx.send(
                    topics.PENDING, key, None, self._headers(b"ApprovalRequest", run.header.trace)
                )

    def _request(self, run: Run, approval: Approval) -> records.ApprovalRequest:
        header = run.header
        approval_id = run.approval_id(approval.n)
        return records.ApprovalRequest(
            run_id=header.run_id,
            agent=header.agent,
            user_id=header.user_id,
            session_id=header.session_id,
            tenant=header.tenant,
            metadata=header.metadata,
            approval_id=approval_id,
            kind=approval.kind,  # type: ignore[arg-type]
            title=approval.title,
            tool=approval.tool,
            action_id=None if approval.action is None else run.action_id(approval.action),
            arguments=approval.arguments,
            effect=approval.effect,  # type: ignore[arg-type]
            reason=approval.reason,
            rule=approval.rule,
            question=approval.question,
            history=approval.history,
            input=self.keep(run.start.input),
            allowed_decisions=list(ALLOWED[approval.kind]),
            approvers=approval.approvers,
            required=approval.required,
            decisions=approval.decisions,
            requested_at=approval.requested_at,
            expires_at=approval.expires_at,
            on_timeout=approval.on_timeout,
            digest=approval.digest,
            signed=approval.signed,
            escalated=approval.escalated,
            url=f"{self._url}/approvals/{approval_id}" if self._url else None,
        )

    def _outcome(self, ctx: Context, run: Run, key: bytes) -> None:
        made = outcome.build(run)
        for name in (
            "result",
            "completed",
            "not_completed",
            "in_doubt",
            "compensated",
            "degraded",
            "errors",
        ):
            setattr(made, name, self.keep(getattr(made, name)))
        made.text = made.text[:KEPT_INLINE]
        self._send(ctx, topics.OUTCOMES, key, codec.encode(made), run.header, ctx.partition)

    def no_outcome(self, ctx: Context, key: bytes, header: Header) -> None:
        """The run goes on after its end: what was its outcome is none any more."""
        headers = self._headers(b"Outcome", header.trace)
        ctx.send(topics.OUTCOMES, key, None, headers, ctx.partition)

    def refused_outcome(
        self, ctx: Context, run_id: str, task: records.Task | None, reason: str, at: int
    ) -> None:
        """The outcome of a task that never became a run."""
        made = records.Outcome(
            run_id=run_id,
            agent="" if task is None else task.agent,
            user_id="" if task is None else task.user_id,
            session_id=run_id if task is None else task.session_id or run_id,
            tenant="" if task is None else task.tenant,
            metadata={} if task is None else task.metadata,
            status="failed",
            complete=False,
            text=f"Refused: {reason}",
            errors=[{"kind": "refused", "code": "REFUSED", "message": reason}],
            finished_at=at,
        )
        ctx.send(
            topics.OUTCOMES,
            run_id.encode(),
            codec.encode(made),
            [("perdure-type", b"Outcome")],
            ctx.partition,
        )

    def verdict(
        self, ctx: Context, header: Header | None, made: layout.Remembered, run_id: str
    ) -> None:
        """The answer to a decision or control request."""
        verdict = records.Verdict(
            run_id=run_id,
            request_id=made.request_id,
            accepted=made.accepted,
            reason=made.reason,
            version=made.version,
            at=made.at,
        )
        if header is not None:
            verdict.agent = header.agent
            verdict.user_id = header.user_id
            verdict.session_id = header.session_id
            verdict.tenant = header.tenant
            verdict.metadata = header.metadata
        trace = "" if header is None else header.trace
        ctx.send(
            topics.VERDICTS,
            run_id.encode(),
            codec.encode(verdict),
            self._headers(b"Verdict", trace),
            ctx.partition,
        )
