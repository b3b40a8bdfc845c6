"""docs/grafana.json and docs/operations.md name only figures that a role serves."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from perdure.streams.engine.measures import EngineMeasures
from perdure.streams.runtime.health import HealthBoard
from perdure.streams.views.access import Access
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from perdure.cli import health
from perdure.cli.view_measures import families, http_seconds
from tests.cli.test_health import get
from tests.cli.test_metrics import Kafka, Watch, backlog
from tests.connectors.world import World
from tests.views.world import World as Views

DOCS = Path(__file__).resolve().parents[2] / "docs"
NAME = re.compile(r"\bperdure_[a-z_]+")
DASHBOARD: dict[str, Any] = json.loads((DOCS / "grafana.json").read_text())


@pytest.fixture(scope="module")
def served() -> set[str]:
    """The names of all families of an engine, a worker and a view process."""
    w = World(())
    board = HealthBoard(["engine", "worker.tools"])
    board.of("engine").also(EngineMeasures().families)
    board.of("worker.tools").also(w.worker.measures.families)
    behind = backlog(Kafka(), Watch(), live=(0,))
    port = health.serve(board, 0, lambda: True, reach=w.worker._reach, backlog=behind)
    page = get(port, "metrics")[1]
    w.close()
    world = Views(Access(None))
    mine = families(world.index, world.projector, world.histories, http_seconds(), lambda: 0)
    page += generate_latest(health.registry_of(mine)).decode()
    world.index.close()
    return {family.name for family in text_string_to_metric_families(page)} | {
        "perdure_trace_spans"
    }


def unknown(text: str, served: set[str]) -> set[str]:
    found = {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in NAME.findall(text)}
    assert found
    return found - served


def test_every_figure_of_the_dashboard_is_served(served: set[str]) -> None:
    expressions = [
        target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())
    ]
    assert len(expressions) > 30
    assert unknown("\n".join(expressions), served) == set()
    variables = " ".join(str(each.get("query")) for each in DASHBOARD["templating"]["list"])
    assert unknown(variables, served) == set()


def test_every_figure_of_operations_is_served_and_every_served_one_is_told(
    served: set[str],
) -> None:
    text = (DOCS / "operations.md").read_text()
    assert unknown(text, served) == set()
    told = {re.sub(r"_total$", "", name) for name in NAME.findall(text)}
    assert served - told == set()


def test_panels_have_ids_of_their_own_and_lie_beside_each_other() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= 24
        assert not taken & cells
        taken |= cells
