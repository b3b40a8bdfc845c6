from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .world import World


@pytest.fixture
def world() -> Iterator[Callable[..., World]]:
    """Makes worlds and stops their threads."""
    made: list[World] = []

    def make(*tools: Any, **settings: Any) -> World:
        made.append(World(tools, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()
