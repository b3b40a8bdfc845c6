"""The pytest plugin: a fixture that kills the worker at each point around a tool.

It is loaded in every test run of an environment that has Perdure, so it imports nothing until the
fixture is used.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .crashes import Crashes


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("perdure", "crash tests of tools")
    group.addoption(
        "--perdure-point",
        metavar="POINT",
        help="kill the worker at this point only, as a failed crash test has named it",
    )
    group.addoption(
        "--perdure-seed",
        type=int,
        default=0,
        metavar="N",
        help="seed of the schedules of crash tests (0)",
    )


@pytest.fixture
def crashes(request: pytest.FixtureRequest) -> Crashes:
    """Run a tool in a simulated world, once for each point at which its worker can be killed.

    Call it: ``report = crashes(tool, arguments, effects=count, reset=clear)``.
    """
    from .crashes import Crashes

    test = request.node.nodeid

    def repeat(point: str, seed: int) -> str:
        return f"pytest {shlex.quote(test)} --perdure-point {point} --perdure-seed {seed}"

    return Crashes(
        seed=request.config.getoption("--perdure-seed"),
        only=request.config.getoption("--perdure-point"),
        repeat=repeat,
    )
