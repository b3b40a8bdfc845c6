from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .deployed import Site
from .fake_service import FakeService


@pytest.fixture
def service() -> Iterator[FakeService]:
    made = FakeService()
    yield made
    made.close()


@pytest.fixture
def make_site(service: FakeService, tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Makes deployments; kills what is left of them."""
    made: list[Site] = []

    def make(bootstrap: str, prefix: str = "t.") -> Site:
        made.append(Site(bootstrap, prefix, tmp_path / "site", service))
        return made[-1]

    yield make
    for site in made:
        site.close()


@pytest.fixture
def site(broker: str, prefix: str, make_site: Callable[..., Site]) -> Site:
    """One on the shared broker."""
    return make_site(broker, prefix)
