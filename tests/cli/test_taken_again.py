"""An id that was forgotten and taken by another run: what the commands say of it.

The engine forgets an ended run and later its id; agent.events keeps what both did.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from perdure.schemas import codec
from perdure.schemas.records import RunEvent
from perdure.streams.core.policies import outcome

from perdure.cli import find, verify
from perdure.cli.audit import Audit, findings, sections
from perdure.cli.audit_facts import Facts
from perdure.cli.export import Exported, Wanted
from perdure.cli.show import History
from perdure.reading import Overview
from perdure.topics_reader import Raw
from tests.core.test_fork import source
from tests.core.test_taken_again import former

FORMER, NOW = former().events, source().events
BOTH = [*FORMER, *NOW]


def records(events: list[RunEvent]) -> list[tuple[Raw, RunEvent | None]]:
    return [
        (Raw("agent.events", 0, n, e.at, b"r1", msgspec.json.encode(e)), e)
        for n, e in enumerate(events)
    ]


def test_show_tells_the_run_that_has_the_id_now() -> None:
    history = History(uncover=False)
    for event in BOTH:
        history.take(event)
    assert history.events == NOW
    assert history.version == NOW[-1].version


def test_runs_lists_the_one_that_has_the_id_now() -> None:
    overview, alone = Overview(), Overview()
    for event in BOTH:
        overview.take(event)
    for event in NOW:
        alone.take(event)
    assert overview.runs == alone.runs


@pytest.mark.parametrize("at", [None, 3, NOW[-1].version])
def test_verify_looks_through_both_and_reports_the_last(at: int | None) -> None:
    report = verify.Report("r1")
    run = verify._fold(report, records(BOTH), at)
    assert run is not None
    assert report.differences == []
    assert (report.events, report.hash) == (len(NOW), NOW[(at or 0) - 1].hash)


def test_verify_names_what_was_changed_in_the_former_run() -> None:
    forged = [*BOTH]
    forged[2] = msgspec.structs.replace(forged[2], actor="user:mallory")
    report = verify.Report("r1")
    verify._fold(report, records(forged), None)
    assert "offset 2 (version 3" in report.differences[0]


def test_verify_knows_whose_outcome_a_former_one_is() -> None:
    def value(version: int, digest: str) -> bytes:
        ended = outcome.build(former().run)
        return codec.encode(msgspec.structs.replace(ended, version=version, hash=digest))

    report = verify.Report("r1")
    verify._fold(report, records(BOTH), None)
    assert verify._of_a_former_run(report, value(FORMER[-1].version, FORMER[-1].hash))
    assert verify._of_a_former_run(report, value(0, "")), "a refused task's"
    assert not verify._of_a_former_run(report, value(NOW[-1].version, NOW[-1].hash))


def test_verify_takes_no_beginning_in_the_middle_of_a_run() -> None:
    report = verify.Report("r1")
    verify._fold(report, records([*FORMER[:6], *NOW]), None)
    assert "has version 1 where 7 must follow" in report.differences[0]


def test_audit_answers_for_the_run_that_has_the_id_now() -> None:
    made, alone = (Audit(Facts(), None) for _ in range(2))
    for raw, event in records(BOTH):
        made.take(raw, event, "r1")
    for raw, event in records(NOW):
        alone.take(raw, event, "r1")
    assert made.problem is None
    assert sections(made) == sections(alone)
    assert findings(sections(made)) == []


def test_find_finds_the_calls_of_both() -> None:
    wanted = find.wanted("look", [], None, None)
    found = find.Found()
    for event in BOTH:
        found.take(event)
    rows = list(find.rows_of("r1", found, wanted, uncover=True))
    assert [row["arguments"] for row in rows] == [{"q": 1}, *[{"q": 2}] * 4]
    assert [row["run_status"] for row in rows] == ["running", *["done"] * 4]


def exported(events: list[RunEvent], **wanted: Any) -> Exported:
    made = Exported(Wanted(**wanted))
    for event in events:
        made.take(event)
    return made


def test_export_gives_a_document_to_each() -> None:
    documents = exported(BOTH).documents()
    assert [(d["run_id"], d["status"], d["input"]) for d in documents] == [
        ("r1", "done", "an older task"),
        ("r1", "running", "refund order 7"),
    ]
    assert [d["status"] for d in exported(BOTH, statuses=("running",)).documents()] == ["running"]


def test_export_leaves_out_only_the_one_that_can_not_be_followed() -> None:
    made = exported([*FORMER[:3], *FORMER[4:], *NOW])
    assert [d["status"] for d in made.documents()] == ["running"]
    assert list(made.broken) == ["r1/before"]
