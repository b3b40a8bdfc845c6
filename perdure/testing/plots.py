"""The sagas that are told: how each comes to its end, and what people answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .matrix import Kind

PLACES: Final = (
    Kind("external", True),
    Kind("idempotent", False),
    Kind("external", False),
    Kind("idempotent", True),
    Kind("external", False),
    Kind("external", True),
)
"""With which kind of tool each place is booked."""
WITH_ITS_OWN: Final = {5: Kind("idempotent", False)}
"""Steps of a plan that say themselves how they are undone."""
BRANCHES: Final = ((1, 2, 3), (4, 5, 6))


@dataclass(frozen=True, kw_only=True)
class Saga:
    """How it ends, and what people answer."""

    name: str
    shape: str = "line"
    """``line``: a plan of six steps; ``branches``: of two times three; ``model``: a loop."""
    full: int | None = None
    """The place that is refused."""
    lost: int | None = None
    """The place of which nobody can tell; a person cancels then."""
    lost_happens: bool = False
    kept: int | None = None
    """The place whose undoing is refused for good."""
    answer: str = "cancel_run"
    """To the handover: ``retry`` (the service gives way then), ``answer`` (undone by hand), or
    ``cancel_run`` (left as it is)."""
    leaves_doubt: bool = False
    """An undoing that may have happened is left so, instead of looked after."""

    @property
    def ends(self) -> str:
        """Status of the run."""
        return "failed" if self.full is not None else "cancelled"


def _sagas() -> list[Saga]:
    made = [Saga(name=f"step {n} of 6 is refused", full=n) for n in range(1, 7)]
    made += [
        Saga(
            name=f"step {n} is lost and did {'' if happens else 'not '}happen",
            lost=n,
            lost_happens=happens,
        )
        for n, happens in ((2, True), (3, True), (3, False), (4, False), (5, True))
    ]
    made += [
        Saga(name=f"two branches, step {n} is refused", shape="branches", full=n) for n in (2, 4, 6)
    ]
    made.append(Saga(name="a model's loop is cancelled", shape="model"))
    made.append(Saga(name="a person leaves what is in doubt", full=6, leaves_doubt=True))
    words = {"retry": "tried again", "answer": "undone by hand", "cancel_run": "left"}
    for answer, told in words.items():
        made += [
            Saga(name=f"undoing {n} is refused, then {told}", full=6, kept=n, answer=answer)
            for n in range(5, 0, -1)
        ]
        made.append(
            Saga(
                name=f"undoing 6 of a model's loop is refused, then {told}",
                shape="model",
                kept=6,
                answer=answer,
            )
        )
    return made


SAGAS: Final = tuple(_sagas())
