"""The plugin as a user's test run has it: loaded everywhere, costing nothing until it is asked."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.simulation

ROOT = Path(__file__).parents[2]
PLUGIN = "perdure.testing.plugin"
CONFTEST = f'pytest_plugins = ["{PLUGIN}"]'  # once it is installed, it is loaded anyhow
TOOL = '''
from perdure import ToolContext, tool

done = []

@tool("send", effect="{effect}", timeout_seconds=5)
def send(context: ToolContext, text: str) -> None:
    """Send a text."""
    done.append(context.idempotency_key)

def test_send(crashes):
    report = crashes(
        send, {{"text": "hello"}}, effects=lambda: len(done), reset=done.clear, then=["restart"]
    )
    report.assert_effects({expected})
'''


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest(CONFTEST)
    return pytester


def test_a_good_tool_passes(project: pytest.Pytester) -> None:
    project.makepyfile(TOOL.format(effect="external", expected="at_most=1"))
    project.runpytest_inprocess("-W", "error").assert_outcomes(passed=1)


def test_a_bad_one_fails_naming_the_point_and_how_to_repeat_it(project: pytest.Pytester) -> None:
    project.makepyfile(TOOL.format(effect="idempotent", expected=""))
    result = project.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*send (idempotent, no query): expected exactly 1; * courses are wrong (seed 0)",
            "*2  completed     worker/restart  after tool.idempotent: expected exactly 1",
            "*The first of them, worker/restart/*: 2 effects, expected exactly 1.",
            "*worker-1 is killed",
        ]
    )
    again = next(line for line in result.outlines if "again: pytest" in line).split()
    assert [again[3].rpartition("::")[2], *again[4:6:2]] == ["test_send", "--perdure-point"]
    alone = project.runpytest_inprocess(*again[3:])
    alone.assert_outcomes(failed=1)
    alone.stdout.fnmatch_lines(["*1 of 2 courses are wrong (seed 0)"])


def test_a_point_that_nobody_named_is_an_error(project: pytest.Pytester) -> None:
    project.makepyfile(TOOL.format(effect="external", expected=""))
    result = project.runpytest_inprocess("--perdure-point", "nowhere")
    result.stdout.fnmatch_lines(["*TestingError: 'nowhere' is no point; one is worker/restart/12"])


def test_a_run_that_does_not_ask_for_it_pays_nothing(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import sys

        def test_nothing_was_imported():
            paid = ("perdure.connectors", "perdure.client", "perdure.testing.world", "msgspec",
                    "confluent_kafka", "cel")
            assert [name for name in paid if name in sys.modules] == []
        """
    )
    result = project.runpytest_subprocess("-p", "no:anyio", "-W", "error")
    result.assert_outcomes(passed=1)


def test_it_is_installed_with_perdure() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {PLUGIN: PLUGIN}


def test_its_names_are_there_and_no_others() -> None:
    import perdure.testing

    for name in perdure.testing.__all__:
        assert getattr(perdure.testing, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        perdure.testing.Nothing  # noqa: B018


def test_the_example_keeps_what_it_promises() -> None:
    """examples/testing_tools, as its reader runs it."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"]
    if not _installed():
        command += ["-p", PLUGIN]
    shown = subprocess.run(
        command,
        cwd=ROOT / "examples" / "testing_tools",
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert shown.returncode == 0, shown.stdout
    assert "4 passed" in shown.stdout


def _installed() -> bool:
    from importlib.metadata import entry_points

    return PLUGIN in {point.name for point in entry_points(group="pytest11")}
