"""The tables are whole: every status is a row, every event type has an applier."""

from __future__ import annotations

import typing

import pytest
from perdure.schemas import records
from perdure.streams.core import effects, lifecycle
from perdure.streams.core.apply import APPLIERS, BrokenHistory, fold
from perdure.streams.core.decide.control import _HANDLERS as CONTROLS
from perdure.streams.core.decide.decided import _ACTS
from perdure.streams.core.decide.dispatch import DECIDERS
from perdure.streams.core.decide.inputs import Control, Decided, Timer, Unusable
from perdure.streams.core.decide.result import _HANDLERS as RESULTS
from perdure.streams.core.events import EVENT_TYPES
from perdure.streams.core.policies.approval import ALLOWED, POLICY_MAY

from .harness import STATUS, World, tool


def words(literal: object) -> set[str]:
    return set(typing.get_args(literal))


def test_every_event_type_has_an_applier() -> None:
    assert set(APPLIERS) == set(EVENT_TYPES)
    assert len(EVENT_TYPES) == len(set(EVENT_TYPES))


def test_event_types_are_those_of_the_contract() -> None:
    contract = """run_started step_started model_replied plan_updated branch_taken branch_skipped
    action_proposed action_requested action_started action_progressed action_succeeded action_failed
    action_unknown action_adopted action_cancelled action_skipped action_queried action_in_doubt
    effect_found retry_scheduled approval_requested approval_decided approval_expired
    approver_notified status_changed ending_started budget_changed message_received
    context_summarised key_state_changed compensation_started compensation_finished run_paused
    run_resumed run_finished"""
    assert set(EVENT_TYPES) == set(contract.split())


def test_run_table_is_that_of_the_lifecycle() -> None:
    assert {status: set(to) for status, to in lifecycle.RUN_TRANSITIONS.items()} == STATUS
    assert set(lifecycle.RUN_TRANSITIONS) == words(records.Status)


def test_every_action_status_is_a_row_and_leads_to_rows() -> None:
    table = lifecycle.ACTION_TRANSITIONS
    assert {to for row in table.values() for to in row} <= set(table)
    reachable, frontier = {"proposed", "skipped"}, {"proposed"}
    while frontier:
        frontier = {to for status in frontier for to in table[status]} - reachable
        reachable |= frontier
    assert reachable == set(table)


def test_a_missing_cell_is_an_illegal_transition() -> None:
    with pytest.raises(lifecycle.IllegalTransition, match="from done to running"):
        lifecycle.run_may("done", "running")
    with pytest.raises(lifecycle.IllegalTransition, match="from rejected to requested"):
        lifecycle.action_may("rejected", "requested")


def test_every_input_has_a_decider() -> None:
    assert set(DECIDERS) == {records.ActionResult, Decided, Control, Timer, Unusable}


def test_every_result_status_has_a_handler() -> None:
    assert set(RESULTS) == words(records.ResultStatus)


def test_every_approval_kind_has_its_decisions_and_each_decision_acts() -> None:
    assert set(ALLOWED) == words(records.ApprovalKind)
    given = {word for allowed in ALLOWED.values() for word in allowed}
    assert given == words(records.DecisionWord)
    assert set(_ACTS) | {"cancel_run"} == given


def test_a_policy_only_decides_what_needs_no_content() -> None:
    for kind, allowed in POLICY_MAY.items():
        assert allowed <= set(ALLOWED[kind])
        assert not allowed & {"modify", "extend", "answer"}


def test_control_commands_are_of_the_contract() -> None:
    assert set(CONTROLS) <= words(records.ControlWord)


def test_every_effect_has_a_way_to_settle() -> None:
    assert set(effects.SETTLE) == {
        (effect, has_query) for effect in words(records.Effect) for has_query in (False, True)
    }


def test_a_gap_in_the_versions_is_no_history() -> None:
    world = World(tool("look"))
    world.start()
    with pytest.raises(BrokenHistory, match="can't follow version 2"):
        fold([*world.events[:2], world.events[3]])
    with pytest.raises(BrokenHistory, match="begins with run_started"):
        fold(world.events[1:])
