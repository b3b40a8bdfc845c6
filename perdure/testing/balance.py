"""Whether a saga ended balanced, or exactly what is not undone was told; by the service's ledger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .bookings import Bookings
from .plots import BRANCHES, PLACES, Saga


@dataclass(frozen=True, slots=True)
class Asked:
    """A question about an undoing, as the person saw it."""

    kind: str
    place: int
    named: tuple[int, ...]
    """Places that it tells are done."""
    standing: tuple[int, ...]
    """Places that were booked at that moment."""


def judge(
    saga: Saga,
    bookings: Bookings,
    outcome: Any,
    listed: dict[int, str],
    asked: list[Asked],
    may_be_in_doubt: set[int],
) -> list[str]:
    """What is wrong; empty: everything is undone, or what is not is named exactly.

    ``listed``: each place's list in the outcome. ``may_be_in_doubt``: places whose booking a death
    may have left so.
    """
    if outcome is None:
        return ["the run did not end"]
    unsure = set(may_be_in_doubt)
    if saga.lost is not None:
        unsure.add(saga.lost)
    if saga.leaves_doubt:
        unsure |= {each.place for each in asked if each.kind == "in_doubt"}
    wrong = []
    if outcome["status"] != saga.ends:
        wrong.append(f"the run is {outcome['status']}, not {saga.ends}")
    for place in range(1, len(PLACES) + 1):
        wrong += _of_place(saga, bookings, place, listed.get(place), place in unsure)
    wrong += _of_order(saga, bookings)
    for each in asked:
        wrong += _of_question(saga, each, unsure)
    if saga.kept is not None:
        wrong += _of_what_is_kept(saga, outcome, asked)
    return wrong


def _of_place(
    saga: Saga, bookings: Bookings, place: int, listed: str | None, unsure: bool
) -> Iterator[str]:
    booked, back = bookings.booked(place), bookings.given_back(place)
    if booked > 1:
        yield f"place {place} was booked {booked} times"
    if back > 1:
        yield f"place {place} was given back {back} times"
    if back > booked:
        yield f"place {place} was given back and not booked"
    if booked > back and not unsure and (place != saga.kept or saga.answer != "cancel_run"):
        yield f"place {place} was booked and is not given back"
    if listed == "in_doubt" and unsure:
        return
    true = (
        {"not_completed", None}
        if not booked
        else {"completed"}
        if booked > back
        else {"compensated"}
    )
    if listed not in true:
        yield f"place {place}: booked {booked}, given back {back}, and the outcome says {listed}"


def _of_order(saga: Saga, bookings: Bookings) -> Iterator[str]:
    """Last first: all of it, or each branch by itself."""
    booked = [entry.place for entry in bookings.ledger if entry.what == "booked"]
    back = [entry.place for entry in bookings.ledger if entry.what != "booked"]
    lines = BRANCHES if saga.shape == "branches" else (tuple(booked),)
    for line in lines:
        mine = [place for place in back if place in line]
        if mine != [place for place in reversed(booked) if place in mine]:
            yield f"booked {booked}, given back in the order {back}"


def _of_question(saga: Saga, asked: Asked, unsure: set[int]) -> Iterator[str]:
    """It names what still stands, neither more nor less; whether the one in doubt does, it asks."""
    if asked.kind == "handover" and asked.place != saga.kept:
        yield f"a handover about place {asked.place}, which could be given back"
    if asked.kind == "in_doubt":
        unsure = unsure | {asked.place}
    named, standing = set(asked.named) - unsure, set(asked.standing) - unsure
    if named != standing:
        yield f"{asked.kind} of place {asked.place} names {sorted(named)}, not {sorted(standing)}"


def _of_what_is_kept(saga: Saga, outcome: Any, asked: list[Asked]) -> Iterator[str]:
    if not any(each.kind == "handover" for each in asked):
        yield f"nobody was asked about place {saga.kept}"
    why = f"give place {saga.kept} back"
    told = any(why in error.get("message", "") for error in outcome["errors"])
    if saga.answer == "cancel_run" and not told:
        yield f"the outcome does not say why place {saga.kept} is not undone"
