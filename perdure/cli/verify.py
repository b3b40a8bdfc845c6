"""The body of ``perdure verify``: a run's events against each other, its outcome, its live state.

The live state is what the engine would load after a crash: snapshot and journal, from the changelog.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from perdure.reading import Raw, Scanner, history, live
from perdure.schemas import codec, topics
from perdure.schemas.errors import RecordError
from perdure.schemas.records import Outcome, RunEvent
from perdure.settings import Settings
from perdure.streams.core.apply import BrokenHistory, begins_anew, follow
from perdure.streams.core.events import hash_of
from perdure.streams.core.lifecycle import FINAL
from perdure.streams.core.state import RecordKey, Run
from perdure.streams.engine import checkpoints, layout
from perdure.topics_reader import NoTopic

from .console import FAILED, leave, line
from .terminal import safe

_AGAIN = 10
_AGAIN_SECONDS = 0.2
_OUR_RECORDS = (b"r", b"s", b"a", b"m", b"p", b"x", b"n")


@dataclass
class Report:
    """What was compared and what differs, the first difference first."""

    run_id: str
    version: int = 0
    hash: str = ""
    status: str = ""
    events: int = 0
    outcome: str = "not compared"
    live: str = "not compared"
    differences: list[str] = field(default_factory=list)
    former: list[str] = field(default_factory=list)
    """The last hashes of the runs that had the id before."""

    def differs(self, text: str) -> None:
        self.differences.append(text)


def verify(made: Settings, run_id: str, at_version: int | None, as_json: bool) -> None:
    """Print the report; ends with 1 where anything differs."""
    scanner = Scanner(made.client_conf(), made.topic_prefix)
    report = _look(scanner, run_id, at_version)
    for _ in range(_AGAIN):  # a run under way: its topics are read one after the other
        if report.live != "later" and report.outcome != "later":
            break
        time.sleep(_AGAIN_SECONDS)
        report = _look(scanner, run_id, at_version)
    for name in ("live", "outcome"):
        if getattr(report, name) == "later":
            report.differs(
                f"{name}: of a later version than the events, which end at {report.version}"
            )
    _print(report, as_json)


def _look(scanner: Scanner, run_id: str, at_version: int | None) -> Report:
    report = Report(run_id)
    run = _fold(report, list(history(scanner, run_id)), at_version)
    if run is None:
        if not report.events:
            leave(FAILED, f"{safe(run_id, 200)} has no events: `perdure show` says where it is")
        return report
    if at_version is not None and run.header.version != at_version:
        report.differs(f"the events end at version {run.header.version}, before {at_version}")
    if report.differences or (at_version is not None and report.events > at_version):
        return report
    _against_outcome(report, run, scanner)
    _against_live(report, run, scanner)
    return report


# --- the events themselves --------------------------------------------------------------------


def _fold(
    report: Report, events: list[tuple[Raw, RunEvent | None]], at_version: int | None
) -> Run | None:
    """The run as far as its events are sound. The first that is not ends it."""
    # Runs that had the id before are looked through as well; what is reported is the last one's.
    first = [i for i, (_, event) in enumerate(events) if event is not None and event.version == 1]
    last = first[-1] if first else 0
    report.events = len(events) - last
    run: Run | None = None
    for number, (raw, event) in enumerate(events):
        if number > last and run is not None and run.header.version == at_version:
            break
        problem = "is no event" if event is None else unsound(report.run_id, run, event)
        if problem is None and event is not None:
            if run is not None and begins_anew(run, event):
                report.former.append(run.header.hash)
            try:
                run = follow(run, event)
            except Exception as error:  # whatever a forged event leads to is the finding
                problem = f"can't be applied: {type(error).__name__}: {safe(str(error), 300)}"
        if problem is not None:
            where = f"{raw.topic}-{raw.partition}, offset {raw.offset}"
            report.differs(f"event at {where} {problem}")
            break
    if run is not None:
        report.version, report.hash = run.header.version, run.header.hash
        report.status = run.header.status
    return run


def unsound(run_id: str, run: Run | None, event: RunEvent) -> str | None:
    """Why an event can't stand after those before it, or None."""
    run = None if begins_anew(run, event) else run
    version, head = (0, "") if run is None else (run.header.version, run.header.hash)
    if event.run_id != run_id:
        return f"names the run {safe(event.run_id)}"
    if event.version != version + 1:
        return f"has version {event.version} where {version + 1} must follow"
    if event.previous_hash != head:
        return f"(version {event.version}) does not continue the chain: its previous_hash is not {head[:12]}..."
    if event.hash != hash_of(event):
        return f"(version {event.version}, {safe(event.type, 40)}) was changed: its hash is not that of its content"
    return None


# --- against what stands elsewhere --------------------------------------------------------------


def _against_outcome(report: Report, run: Run, scanner: Scanner) -> None:
    value: bytes | None = None
    for raw in scanner.scan([topics.OUTCOMES], run_id=report.run_id):
        if raw is not None and raw.key == report.run_id.encode():
            value = raw.value
    ended = run.header.status in FINAL
    if value is not None and not ended and _of_a_former_run(report, value):
        value = None
    if value is None:
        report.outcome = "none"
        if ended:
            report.differs(f"outcome: the run is {run.header.status} and has none")
        return
    try:
        outcome = codec.decode(value, Outcome)
    except RecordError as error:
        report.differs(f"outcome: can't be read: {error}")
        return
    if outcome.version > run.header.version:
        report.outcome = "later"
        return
    report.outcome = "equal"
    for name, here, there in (
        ("version", run.header.version, outcome.version),
        ("hash", run.header.hash, outcome.hash),
        ("status", run.header.status, outcome.status),
    ):
        if here != there:
            report.outcome = "differs"
            report.differs(f"outcome.{name}: {there}, but the events give {here}")


def _of_a_former_run(report: Report, value: bytes) -> bool:
    """A task that was refused, or a run whose id was forgotten: its outcome stands until this one ends."""
    try:
        outcome = codec.decode(value, Outcome)
    except RecordError:
        return False
    return outcome.version == 0 or outcome.hash in report.former


def _against_live(report: Report, run: Run, scanner: Scanner) -> None:
    try:
        stored = live(scanner, report.run_id)
    except NoTopic:
        return
    reading = checkpoints.Stored(stored)
    try:
        stub = reading.get(layout.stub(report.run_id))
        if stub is not None:
            _against_stub(report, run, stub)
            return
        loaded = checkpoints.load(reading, report.run_id)
        if loaded is None:
            report.live = "none"
            report.differs("live state: the changelog does not know the run")
            return
        there, _ = loaded
        if there.header.version > run.header.version:
            report.live = "later"
            return
        found = _first_difference("header", run.header, there.header)
        found = found or _records_differ(report.run_id, run, there, stored)
    except (RecordError, BrokenHistory) as error:
        found = str(error)
    report.live = "equal" if found is None else "differs"
    if found is not None:
        report.differs(f"live state: {found}")


def _against_stub(report: Report, run: Run, stub: layout.Stub) -> None:
    report.live = "equal (purged: status, version and hash)"
    mine = (run.header.status, run.header.version, run.header.hash)
    if mine != (stub.status, stub.version, stub.hash):
        report.live = "differs"
        report.differs(
            f"live state: what is kept of the purged run is {stub.status}, version {stub.version}, "
            f"{stub.hash[:12]}..., but the events give {mine[0]}, {mine[1]}, {mine[2][:12]}..."
        )


_NAMES = {
    "s": "start",
    "a": "action",
    "m": "message",
    "p": "approval",
    "x": "declared keys",
    "n": "notes",
}


def _records_differ(run_id: str, run: Run, there: Run, stored: dict[bytes, bytes]) -> str | None:
    expected: dict[bytes, RecordKey] = {layout.record(run_id, key): key for key in run.writes}
    for _, where in sorted(expected.items()):
        name = _NAMES[where[0]] + (f" {where[1]}" if where[0] != "s" else "")
        kept = there.get(where)
        if kept is None:
            return f"{name} is missing"
        found = _first_difference(name, run.writes[where], kept)
        if found is not None:
            return found
    for key in stored:
        if key[:1] in _OUR_RECORDS and key not in expected and key != layout.header(run_id):
            return f"a record {key!r} that no event made"
    return None


_LATER: Final = frozenset({"task_message", "last_user"})
"""Numbers of the header that a run begun by an earlier version lacks (-1): they are looked up."""


def _first_difference(name: str, mine: Any, theirs: Any) -> str | None:
    """The first field in which two records differ, both values shown."""
    for field_name in mine.__struct_fields__:
        a, b = getattr(mine, field_name), getattr(theirs, field_name)
        if a != b and not (field_name in _LATER and b == -1):
            return f"{name}.{field_name}: {safe(b, 200)}, but the events give {safe(a, 200)}"
    return None


def _print(report: Report, as_json: bool) -> None:
    ok = not report.differences
    if as_json:
        told = msgspec.to_builtins(report)
        del told["former"]
        line({"ok": ok, **told})
        if not ok:
            leave(FAILED, f"{report.run_id}: {report.differences[0]}")
        return
    print(f"{report.run_id}  {report.status}  version {report.version}  {report.hash}")
    print(f"  events: {report.events}, {'folded, the chain holds' if ok else 'see below'}")
    print(f"  outcome: {report.outcome}")
    print(f"  live state: {report.live}", flush=True)
    if not ok:
        leave(FAILED, f"{report.run_id}: {report.differences[0]}")
