"""An id that the engine has forgotten is taken by another run: agent.events holds both, in turn."""

from __future__ import annotations

import pytest
from perdure.streams.core.apply import BrokenHistory, fold, last_life

from .harness import World, accepted, agent, refused, tool
from .test_fork import TOOLS, source


def former() -> World:
    """Another run of the id that `source` has: longer, and ended."""
    made = World(*TOOLS)
    made.start("an older task")
    for _ in range(4):
        made.reply(None, ("look", {"q": 2}))
        made.answer(made.command("look"), result={"total": 1})
    made.reply("done")
    return made


def test_both_in_turn_fold_to_the_one_that_has_the_id_now() -> None:
    made = fold([*former().events, *source().events])
    assert made is not None
    assert made.header == source().header
    assert made.start.input == "refund order 7"


def test_one_that_goes_on_has_not_given_its_id_away() -> None:
    world = World(tool("look"), agent_spec=agent("look"))
    world.start("goes on")
    with pytest.raises(BrokenHistory, match="can't follow"):
        fold([*world.events, *source().events])


def test_a_fork_is_of_the_run_that_has_the_id_now() -> None:
    both = source()
    length, head = len(both.events), both.events[-1].hash
    expected = World(*TOOLS)
    expected.fork(source())
    both.events[:0] = former().events
    assert last_life(both.events) == source().events
    forked = World(*TOOLS)
    accepted(forked.fork(both, length, hash=head))
    assert [(c.target, c.action_id) for c in forked.sent] == [("m", "r2/4")]
    assert forked.header == expected.header


def test_a_version_that_only_the_former_run_had_is_refused() -> None:
    both, had = source(), former()
    assert len(had.events) > len(both.events) + 1
    length = len(both.events)
    both.events[:0] = had.events
    refused(World(*TOOLS).fork(both, len(had.events) - 1), f"has {length} versions")
