"""Which failure case is shown where: each id of these kinds has a test that says so by its name.

Tests under `tests/cases` begin with the id. A case that a test of another module shows as well, or
shows alone, names the module and the test.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from . import inputs

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

HERE_IDS = {
    "malformed input": ["M01", "M02", "M03", "M05"],
    "serialization": ["S01", "S02"],
    "concurrency": ["K01", "K02", "K04"],
    "crash & recovery": ["R01", "R03", "R04", "R05", "R08", "R09"],
    "transactions/rebalance/fencing": ["T04", "T06", "T07"],
    "state store": ["D01", "D05", "D06"],
    "large payloads": ["L01", "L02"],
    "timers/clock": ["C01"],
}

ELSEWHERE = {
    "M01": [("tests/e2e/test_up.py", "test_what_cant_be_read_is_a_dead_letter_with_a_reason")],
    "M02": [("tests/e2e/test_up.py", "test_null_value_stops_nothing")],
    "M03": [("tests/schemas/test_schemas_canonical.py", "test_strict_json_refuses_by_name")],
    "M05": [("tests/schemas/test_schemas_records.py", "test_integers_are_exact")],
    "S01": [("tests/connectors/test_plain.py", "test_refusals_name_the_place")],
    "K02": [
        (
            "tests/core/test_model_loop.py",
            "test_results_stand_in_the_order_of_the_calls_whatever_order_they_arrive_in",
        )
    ],
    "K04": [
        (
            "tests/connectors/test_worker.py",
            "test_external_command_again_gets_the_recorded_result",
        )
    ],
    "R01": [
        (
            "tests/connectors/test_worker.py",
            "test_thread_that_is_over_time_is_unknown_and_still_running_until_it_ends",
        ),
        ("tests/core/test_effects.py", "test_external_without_a_query_is_in_doubt"),
        (
            "tests/core/test_effects.py",
            "test_a_late_success_settles_what_was_in_doubt_and_closes_the_question",
        ),
    ],
    "R02": [("tests/chaos/test_kill_at_each_point.py", "test_r02_killed_at")],
    "R03": [
        (
            "tests/runtime/test_runtime_cycle.py",
            "test_changelog_outputs_and_offsets_are_one_transaction_then_the_store_then_the_acts",
        )
    ],
    "R04": [("tests/core/test_ending.py", "test_the_calls_own_results_count_while_it_ends")],
    "R05": [("tests/core/test_effects.py", "test_a_call_that_never_arrives_is_handed_over_after_its_tries")],
    "T04": [("tests/runtime/test_runtime_cycle.py", "test_a_lost_partition_takes_everything_of_it_along")],
    "T06": [
        ("tests/kafka/test_runtime_takeover.py", "test_lost_records_stop_their_partition_and_are_named"),
        (
            "tests/kafka/test_runtime_takeover.py",
            "test_an_input_made_anew_under_its_name_is_not_read_with_the_old_offsets",
        ),
        ("tests/kafka/test_runtime_takeover.py", "test_records_lost_while_it_runs_stop_it_too"),
    ],
    "D01": [
        (
            "tests/kafka/test_runtime_takeover.py",
            "test_a_lost_store_is_restored_whatever_the_changelog_ends_with",
        )
    ],
    "D02": [
        ("tests/kafka/test_runtime_takeover.py", "test_a_store_that_is_not_the_changelog_is_dropped")
    ],
    "D03": [
        ("tests/runtime/test_runtime_identity.py", "test_a_second_process_is_told_who_holds_the_directory")
    ],
    "D05": [("tests/kafka/test_runtime_takeover.py", "test_partition_counts_that_differ_are_refused")],
    "L01": [("tests/e2e/test_up.py", "test_valid_task_of_two_megabytes_runs")],
}  # fmt: skip
INPUTS_DRIVEN_BY_HAND = {"D01", "R01", "T04", "T06"}
"""Ids of which some input is steps for a harness that a test follows in its own words."""


@cache
def names_in(module: Path) -> frozenset[str]:
    tree = ast.parse(module.read_text())
    return frozenset(
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


def here() -> list[str]:
    return [name for module in HERE.glob("test_*.py") for name in names_in(module)]


@pytest.mark.parametrize("case", [case for cases in HERE_IDS.values() for case in cases])
def test_each_case_has_a_test_that_carries_its_id(case: str) -> None:
    assert any(name.startswith(f"test_{case.lower()}_") for name in here())


def test_no_test_carries_an_id_that_is_not_claimed() -> None:
    claimed = {case.lower() for cases in HERE_IDS.values() for case in cases}
    carried = {name.split("_")[1] for name in here() if name.split("_")[1][1:].isdigit()}
    assert carried == claimed


@pytest.mark.parametrize(
    ("module", "test"), [place for places in ELSEWHERE.values() for place in places]
)
def test_what_is_shown_elsewhere_is_there(module: str, test: str) -> None:
    assert test in names_in(ROOT / module)


def test_each_input_of_the_table_is_used_by_a_test() -> None:
    """By its own id, or by `ids(case)`."""
    text = "".join(
        module.read_text() for module in HERE.glob("*.py") if module.name != "test_index.py"
    )
    for case in [case for cases in HERE_IDS.values() for case in cases]:
        for name in inputs.ids(case):
            used = f'"{name}"' in text or f'ids("{case}")' in text
            assert used or case in INPUTS_DRIVEN_BY_HAND, name
