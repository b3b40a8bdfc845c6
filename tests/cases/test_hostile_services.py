"""Tools whose services refuse, lie or fall silent: what becomes of each call, by its effect.

Each run makes one call, of a plan. The service is hostile once and then answers well, so a call
that is made again ends well; how often it was asked says whether it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.connectors.servers import free_port

from .deployment import Deployment
from .services import DATE_AHEAD, WAYS, Service, hostile_service

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

TOOLS = {"read_only": "http_read", "idempotent": "http_put", "external": "http_post"}
READS, WRITES, PAYS = TOOLS


@dataclass(frozen=True)
class End:
    """``told``: kind and code of the first attempt's result; ``asked``: requests that the service
    saw; ``end``: `done`, `failed`, or what a person is asked."""

    told: tuple[str, str]
    asked: int
    end: str


def known(kind: str, code: str, end: str) -> dict[str, End]:
    """The service said no: one request, whatever the effect."""
    return {effect: End((kind, code), 1, end) for effect in TOOLS}


def nothing_happened(code: str) -> dict[str, End]:
    return {effect: End(("transient", code), 2, "done") for effect in TOOLS}


def no_proof(code: str) -> dict[str, End]:
    """Made again where a second call is harmless, never where it is not."""
    again = End(("transient", code), 2, "done")
    return {READS: again, WRITES: again, PAYS: End(("unknown", code), 1, "in_doubt")}


TABLE: dict[str, dict[str, End]] = {
    "http_400": known("invalid_arguments", "http_400", "handover"),
    "http_422": known("invalid_arguments", "http_422", "handover"),
    "http_401": known("permission", "http_401", "authority"),
    "http_403": known("permission", "http_403", "authority"),
    "http_404": known("business", "http_404", "failed"),
    "http_409": known("business", "http_409", "failed"),
    "in_progress": no_proof("key_in_progress"),
    "http_408": no_proof("http_408"),
    "http_425": no_proof("http_425"),
    "http_500": no_proof("http_500"),
    "http_502": no_proof("http_502"),
    "http_503": no_proof("http_503"),
    "http_503_wait": nothing_happened("http_503"),
    "busy_seconds": nothing_happened("rate_limited"),
    "busy_date": nothing_happened("rate_limited"),
    "dropped": no_proof("connection_lost"),
    "half": no_proof("connection_lost"),
    "silent": no_proof("read_timeout"),
    "garbage": {
        READS: End(("internal", "JSONDecodeError"), 1, "failed"),
        WRITES: End(("unknown", "JSONDecodeError"), 2, "done"),
        PAYS: End(("unknown", "JSONDecodeError"), 1, "in_doubt"),
    },
    "refused": {effect: End(("transient", "connect_refused"), 0, "handover") for effect in TOOLS},
}
WAITS = {"http_503_wait": 1.0, "busy_seconds": 1.0, "busy_date": DATE_AHEAD - 1.0}


def run_of(way: str, effect: str) -> str:
    return f"hostile-{way}-{effect}"


@pytest.fixture(scope="module")
def service(deployment: Deployment) -> Iterator[Service]:
    """All runs start together."""
    with hostile_service() as made:
        for way, effects in TABLE.items():
            for effect in effects:
                run_id = run_of(way, effect)
                url = made.url(way, run_id)
                if way == "refused":
                    url = f"http://127.0.0.1:{free_port()}/"
                arguments: dict[str, Any] = {"url": url}
                if way == "silent":
                    arguments["patience"] = 1
                step = {"id": "a", "tool": TOOLS[effect], "arguments": arguments}
                deployment.task("caller", run_id, plan=[step])
        yield made


def test_each_way_of_the_service_is_in_the_table() -> None:
    assert set(TABLE) == {*WAYS, "refused"}


@pytest.mark.parametrize("effect", TOOLS)
@pytest.mark.parametrize("way", TABLE)
def test_a_call_to_a_hostile_service(
    deployment: Deployment, service: Service, way: str, effect: str
) -> None:
    run_id, wanted = run_of(way, effect), TABLE[way][effect]
    if wanted.end in ("done", "failed"):
        outcome = deployment.outcome(run_id, 60)
        assert outcome["status"] == wanted.end
        assert outcome["complete"] is (wanted.end == "done")
        assert outcome["result"] == {"a": {"done": True} if wanted.end == "done" else None}
        assert outcome["in_doubt"] == []
    else:
        assert deployment.question(run_id)["kind"] == wanted.end
    assert first_told(deployment, run_id) == wanted.told
    asked = service.asked(run_id)
    assert len(asked) == wanted.asked
    assert len({request.key for request in asked}) <= 1
    if way in WAITS:
        assert asked[1].at - asked[0].at >= WAITS[way]


@pytest.mark.parametrize("effect", TOOLS)
def test_a_service_that_is_given_up_is_told(
    deployment: Deployment, service: Service, effect: str
) -> None:
    """It need not keep what it has ready for a caller who has gone."""
    deployment.until(lambda: run_of("silent", effect) in service.left, "the connection is closed")


def first_told(deployment: Deployment, run_id: str) -> tuple[str, str]:
    """What the worker said of the first attempt."""
    error: dict[str, Any] = next(
        seen.value["error"]
        for seen in deployment.topics.on("agent.results", lambda seen: seen.key == run_id)
        if seen.value["attempt"] == 1 and seen.value.get("error")
    )
    return error["kind"], error["code"]


@pytest.mark.parametrize("effect", TOOLS)
def test_a_person_is_told_of_a_service_that_is_not_there(
    deployment: Deployment, service: Service, effect: str
) -> None:
    question = deployment.question(run_of("refused", effect))
    error = question["rule"]["error"]
    assert (error["kind"], error["code"]) == ("unavailable", "API_UNAVAILABLE")
    assert "connect_refused" in error["message"]


def test_what_is_in_doubt_is_called_again_on_a_persons_word_only(
    deployment: Deployment, service: Service
) -> None:
    run_id = run_of("half", PAYS)
    question = deployment.question(run_id)
    assert len(service.asked(run_id)) == 1
    deployment.decide(question["approval_id"], "mark_not_done", reason="the books do not show it")
    outcome = deployment.outcome(run_id)
    assert (outcome["status"], outcome["complete"]) == ("done", True)
    assert len(service.asked(run_id)) == 2
