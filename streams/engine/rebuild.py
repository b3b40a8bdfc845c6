"""The engine's state made of nothing but agent.events: for when store and changelog are lost.

Folding a run's events gives its state; what else the store holds of a run follows from it: its
timers, the verdicts of accepted requests (their ids stand in the events), the stub of a run that
would have been purged by now. Not in the events, and so not made again: tasks that waited for
their agent (the newest of agent.tasks are read again), requests held for a task that had not come
(30 s at most), and what was parked for a quarantined run, which is no longer quarantined.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from perdure.schemas.records import RunEvent
from perdure.streams.core.apply import begins_anew, follow
from perdure.streams.core.events import hash_of
from perdure.streams.core.lifecycle import FINAL
from perdure.streams.core.policies.approval import so_far
from perdure.streams.core.state import Header, Run
from perdure.streams.runtime.timers import timer_key

from . import layout
from .checkpoints import snapshot_of
from .intake import decision_id

TIMER_SET: Final = b"\x01"


class Rebuilt:
    """One partition's runs, folded as their events come. ``now`` (ms) tells which are past keeping.

    All runs of the partition are held in memory until they are written: one that has ended may go on.
    """

    def __init__(self, now: int) -> None:
        self._now = now
        self._runs: dict[str, Run] = {}
        self._unreadable: dict[str, str] = {}  # broken runs: their ids stay taken
        self._verdicts: dict[str, dict[bytes, layout.Remembered]] = {}
        self.broken: dict[str, str] = {}
        """Runs whose history can't be folded, and why: they are not in what is made."""
        self.events = 0
        self.last_at = 0

    @property
    def runs(self) -> int:
        return len(self._runs)

    @property
    def under_way(self) -> int:
        return sum(run.header.status not in FINAL for run in self._runs.values())

    def take(self, event: RunEvent) -> None:
        """The next event of its run. One that does not fit breaks that run alone."""
        self.events += 1
        self.last_at = max(self.last_at, event.at)
        run_id = event.run_id
        run = self._runs.get(run_id)
        if begins_anew(run, event) or (run_id in self.broken and event.version == 1):
            # The id was forgotten and taken again: of the run before nothing was kept.
            run = None
            for known in (self._runs, self._unreadable, self._verdicts, self.broken):
                known.pop(run_id, None)
        if run_id in self.broken:
            return
        problem = self._problem(run, event)
        if problem is None:
            try:
                run = self._runs[run_id] = follow(run, event)
            except Exception as error:  # whatever a damaged event leads to is the finding
                problem = (
                    f"version {event.version} can't be applied: {type(error).__name__}: {error}"
                )
        if problem is not None or run is None:
            self.broken[run_id] = str(problem)
            known = self._runs.pop(run_id, None)
            data = event.data if isinstance(event.data, dict) else {}
            self._unreadable[run_id] = (
                str(data.get("digest", "")) if known is None else known.start.digest
            )
            self._verdicts.pop(run_id, None)
            return
        self._remember(run, event)

    def _problem(self, run: Run | None, event: RunEvent) -> str | None:
        version, head = (0, "") if run is None else (run.header.version, run.header.hash)
        if event.version != version + 1:
            return f"version {event.version} where {version + 1} must follow: events are missing"
        if event.previous_hash != head or event.hash != hash_of(event):
            return f"version {event.version} breaks the chain of hashes"
        return None

    def _remember(self, run: Run, event: RunEvent) -> None:
        data: Any = event.data
        request_id = data.get("request_id") if isinstance(data, dict) else None
        if request_id is None or event.version <= run.header.forked_at:
            return  # the copies of a fork are answers to requests to another run
        key = layout.remembered(event.run_id, request_id)
        if event.type == "approval_decided":
            reason = data["decision"]
            approval = run.approval(data["n"])
            default = decision_id(run.approval_id(data["n"]), data["approver"], "modify")
            if reason == "modify" and request_id == default:
                key = layout.remembered_modify(event.run_id, request_id, data["arguments"])
            if not data["closes"] and approval is not None:
                reason = so_far(approval)
        else:
            reason = data.get("request", "")
        made = layout.Remembered(
            request_id=request_id, accepted=True, reason=reason, version=event.version, at=event.at
        )
        self._verdicts.setdefault(event.run_id, {})[key] = made

    def records(self) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values of the changelog."""
        encode = layout.Codecs().encode
        for run_id, run in self._runs.items():
            purge_at = run.header.timers.get("purge")
            if run.header.status in FINAL and purge_at is not None and purge_at <= self._now:
                header = run.header
                yield from _stub(encode, run_id, run.start.digest, header, purge_at)
                continue
            for key, value in snapshot_of(run):
                yield key, encode(key, value)
            for name, due in run.header.timers.items():
                yield timer_key(due, f"{run_id}/{name}".encode()), TIMER_SET
            for key, verdict in self._verdicts.get(run_id, {}).items():
                yield key, encode(key, verdict)
        for run_id, digest in self._unreadable.items():
            yield from _stub(encode, run_id, digest, None, self._now)


def _stub(
    encode: Any, run_id: str, digest: str, header: Header | None, since: int
) -> Iterator[tuple[bytes, bytes]]:
    """What keeps an id taken: of a run past keeping, or of one that can't be folded."""
    stub = layout.Stub(digest=digest, status="unreadable", version=0, hash="")
    if header is not None:
        stub = layout.Stub(
            digest=digest, status=header.status, version=header.version, hash=header.hash
        )
    key = layout.stub(run_id)
    yield key, encode(key, stub)
    yield timer_key(since + layout.IDS_KEPT_MS, f"{run_id}/stub".encode()), TIMER_SET
