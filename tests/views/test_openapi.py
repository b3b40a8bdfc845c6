"""The description of the API, driven: whatever is sent, the answers are those that it names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from perdure.streams.views.access import Rate
from perdure.streams.views.api.openapi import document
from schemathesis.specs.openapi.checks import positive_data_acceptance

from .histories import golden
from .world import ANN, World, access

SCHEMA = schemathesis.openapi.from_dict(document())


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    made = access(tmp_path_factory.mktemp("tokens") / "tokens.jsonl")
    world = World(made, rate=Rate(10**9, 10**9))
    world.feed(golden("0.1-first-plan", "0"))
    world.ask(approval_id="0/a1", run_id="0")
    with world.served() as where:
        yield where


@SCHEMA.parametrize()
@settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_answers_are_as_described(case: schemathesis.Case, address: str) -> None:
    (case.query or {}).pop("cursor", None)  # a page gives it, nobody makes one up
    # JSON Schema takes 1.0 for an integer; where counts are exact, the records do not.
    excluded = [positive_data_acceptance] if case.method == "POST" else []
    headers = {"Authorization": f"Bearer {ANN}"}
    case.call_and_validate(base_url=address, headers=headers, excluded_checks=excluded)
