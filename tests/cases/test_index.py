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

# Of R08 what needs no compensation; its order and counts come with compensation itself.
HERE_IDS = {
    "malformed input": ["M01", "M02", "M03", "M05"],
    "serialization": ["S01", "S02"],
    "approvals/interrupts": ["A01", "A02", "A03", "A05", "A07", "A08"],
    "concurrency": ["K01", "K02", "K04"],
    "crash & recovery": ["R01", "R03", "R04", "R05", "R08", "R09"],
    "transactions/rebalance/fencing": ["T04", "T06", "T07"],
    "state store": ["D01", "D05", "D06"],
    "large payloads": ["L01", "L02"],
    "timers/clock": ["C01"],
    "security": ["Z01", "Z02", "Z03", "Z04"],
    "operations": ["O01", "O02"],
    "context window": ["W01", "W02"],
    "model API quirks": ["Q01", "Q02", "Q03", "Q04", "Q05", "Q07"],
    "tool/MCP quirks": ["X01"],
}

CHAOS, TAKEOVER, EFFECTS = (
    "tests/chaos/test_",
    "tests/kafka/test_runtime_takeover",
    "tests/core/test_effects",
)
UP, CYCLE, WORKER = (
    "tests/e2e/test_up",
    "tests/runtime/test_runtime_cycle",
    "tests/connectors/test_worker",
)
LOOP, TROUBLE, OPENAI = (
    "tests/core/test_model_loop",
    "tests/core/test_trouble",
    "tests/connectors/test_openai",
)
ASKING, VERDICTS = "tests/core/test_approvals", "tests/engine/test_verdict_table.py::test_the_table"
ELSEWHERE = {
    "M01": [f"{UP}.py::test_what_cant_be_read_is_a_dead_letter_with_a_reason"],
    "M02": [f"{UP}.py::test_null_value_stops_nothing"],
    "M03": ["tests/schemas/test_schemas_canonical.py::test_strict_json_refuses_by_name"],
    "M05": ["tests/schemas/test_schemas_records.py::test_integers_are_exact"],
    "S01": ["tests/connectors/test_plain.py::test_refusals_name_the_place"],
    "A01": [f"{ASKING}.py::test_three_calls_take_three_decisions_in_any_order"],
    "A02": [VERDICTS, f"{ASKING}.py::test_a_second_decision_is_refused"],
    "A05": [
        f"{ASKING}.py::test_after_a_modify_the_old_digest_is_refused",
        "tests/engine/test_signatures.py::test_a_signature_over_the_arguments_of_before_a_modify_is_refused",
    ],
    "A07": [f"{ASKING}.py::test_a_decision_in_time_counts_though_it_is_read_late"],
    "A08": [
        f"{ASKING}.py::test_a_decision_before_the_question_is_refused_and_does_not_count_later"
    ],
    "Z01": [
        VERDICTS,
        "tests/schemas/test_schemas_signing.py::test_another_persons_key_proves_nothing",
        "tests/cluster/test_acls.py::test_connectors_answer_and_people_ask",
    ],
    "Z02": ["tests/views/test_api.py::test_a_wrong_parameter_is_named"],
    "K02": [
        f"{LOOP}.py::test_results_stand_in_the_order_of_the_calls_whatever_order_they_arrive_in"
    ],
    "K04": [f"{WORKER}.py::test_external_command_again_gets_the_recorded_result"],
    "R01": [
        f"{WORKER}.py::test_thread_that_is_over_time_is_unknown_and_still_running_until_it_ends",
        f"{WORKER}_late.py::test_late_result_is_told_as_the_same_attempts",
        f"{EFFECTS}.py::test_external_without_a_query_is_in_doubt",
        f"{EFFECTS}.py::test_a_late_success_settles_what_was_in_doubt_and_closes_the_question",
    ],
    "R02": [f"{CHAOS}kill_at_each_point.py::test_r02_killed_at"],
    "R03": [
        f"{CYCLE}.py::test_changelog_outputs_and_offsets_are_one_transaction_then_the_store_then_the_acts"
    ],
    "R04": ["tests/core/test_ending.py::test_the_calls_own_results_count_while_it_ends"],
    "R05": [
        f"{EFFECTS}.py::test_a_call_that_never_arrives_is_handed_over_after_its_tries",
        f"{CHAOS}stopping.py::test_r05_runs_cancelled_in_backoff_are_never_called_again",
    ],
    "T01": [f"{CHAOS}under_fire.py::test_t01_members_join_and_leave_in_a_loop"],
    "T02": [
        f"{CHAOS}under_fire.py::test_t02_stopped_with_a_transaction_open",
        f"{CHAOS}runtime_expelled.py::test_an_expelled_member_commits_nothing_more",
    ],
    "T03": [
        f"{CHAOS}under_fire.py::test_t03_broker_killed_and_stopped_under_load",
        f"{CHAOS}under_fire.py::test_t03_transactional_id_forgotten_while_idle",
    ],
    "T04": [
        f"{CYCLE}.py::test_a_lost_partition_takes_everything_of_it_along",
        f"{CHAOS}store_damage.py::test_t04_store_that_cant_be_opened_ends_the_engine",
    ],
    "T06": [
        f"{TAKEOVER}.py::test_lost_records_stop_their_partition_and_are_named",
        f"{TAKEOVER}.py::test_an_input_made_anew_under_its_name_is_not_read_with_the_old_offsets",
        f"{TAKEOVER}.py::test_records_lost_while_it_runs_stop_it_too",
        f"{CHAOS}topics_meddled_with.py::test_t06_deleted_records_stop_their_partition_and_are_named",
    ],
    "T07": [
        f"{CHAOS}topics_meddled_with.py::test_t07_open_foreign_transaction_holds_its_partition_only"
    ],
    "D01": [
        f"{TAKEOVER}.py::test_a_lost_store_is_restored_whatever_the_changelog_ends_with",
        f"{TAKEOVER}.py::test_state_that_is_lost_is_named_at_once_and_gone_on_without_on_a_persons_word",
        f"{CHAOS}store_damage.py::test_d01_store_deleted_while_a_transaction_is_left_open",
    ],
    "D02": [
        f"{TAKEOVER}.py::test_a_store_that_is_not_the_changelog_is_dropped",
        f"{CHAOS}store_damage.py::test_d02_old_image_put_back",
    ],
    "D03": [
        f"{CHAOS}store_damage.py::test_d03_second_process_is_told_who_holds_the_directory",
        f"{CHAOS}under_fire.py::test_d03_partition_goes_back_and_forth_quickly",
    ],
    "D05": [f"{TAKEOVER}.py::test_partition_counts_that_differ_are_refused"],
    "L01": [f"{UP}.py::test_valid_task_of_two_megabytes_runs"],
    "Q01": [f"{LOOP}.py::test_broken_arguments_are_told_and_nothing_is_called"],
    "Q02": [
        f"{LOOP}.py::test_call_ids_of_the_provider_are_not_relied_on",
        f"{OPENAI}.py::test_a_made_up_name_in_the_history_is_sent_as_one_that_is_taken",
    ],
    "Q03": [
        f"{TROUBLE}.py::test_half_arguments_never_run_and_there_is_more_room_next_time",
        f"{LOOP}.py::test_a_handover_says_what_was_wrong_with_each_reply",
    ],
    "Q04": [
        f"{OPENAI}.py::test_answers",
        f"{OPENAI}.py::test_what_the_provider_said_is_kept_shortly",
    ],
    "Q05": [f"{TROUBLE}.py::test_a_filtered_reply_is_not_asked_for_again"],
    "Q07": [f"{TROUBLE}.py::test_the_same_call_in_a_row_goes_to_a_person_before_it_is_made"],
    "X01": [
        "tests/core/test_late_results.py::test_a_success_of_any_attempt_counts",
        "tests/core/test_late_results.py::test_a_foreign_result_is_refused",
        f"{WORKER}.py::test_async_call_over_time",
    ],
}
INPUTS_DRIVEN_BY_HAND = {"A07", "D01", "R01", "T04", "T06"}
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


@pytest.mark.parametrize("place", [place for places in ELSEWHERE.values() for place in places])
def test_what_is_shown_elsewhere_is_there(place: str) -> None:
    module, _, test = place.partition("::")
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
