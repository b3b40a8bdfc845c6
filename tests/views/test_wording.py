"""One source of words: what the page says of an event, the terminal says too."""

from __future__ import annotations

import re
from typing import Any

import pytest
from perdure.streams.core.apply import fold
from perdure.streams.core.events import EVENT_TYPES
from perdure.streams.views.projections.timeline import entry
from perdure.streams.views.projections.wording import TITLES, title

from perdure.cli.timeline import lines

from .histories import NAMES, golden


def test_every_event_has_its_words() -> None:
    assert set(EVENT_TYPES) == set(TITLES)


@pytest.mark.parametrize("name", NAMES)
def test_the_terminal_and_the_page_say_the_same(name: str) -> None:
    events = golden(name)
    run = fold(events)
    page = {event.version: entry(event, run, 0)["title"] for event in events}
    told = lines(events)
    assert len(told) > 5
    for version, _, _, text in told:
        assert re.sub(r"(?<=\w) \(\d+\)", "", text) == page[version], version


def test_an_event_that_is_not_what_its_type_says_is_told_by_its_type() -> None:
    (event, *_) = golden("0.1-first-plan")
    event.type, event.data = "action_failed", []
    assert title(event, lambda n: None) == "action failed"
    event.type = "of_a_newer_version\u202e"
    assert title(event, lambda n: None) == "of a newer version\\u202e"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"input": "Refund A-1", "plan": [{}]}, "Started with Refund A-1"),
        ({"input": None, "plan": [{}, {}]}, "Started with a plan of 2 steps"),
        ({"plan": [{}]}, "Started with a plan of 1 step"),
        ({"input": "", "plan": None}, "Started"),
        ({"input": 0}, "Started with 0"),
    ],
)
def test_a_start_is_told_by_what_was_given(given: dict[str, Any], told: str) -> None:
    (event, *_) = golden("0.1-first-plan")
    event.data = given
    assert title(event, lambda n: None) == told
