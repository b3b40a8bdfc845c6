"""Whether what the outcomes call undone is undone outside, once, and nothing else is.

An undoing carries the result of what it undoes, and that names the effect: the fake outside can
tell what is left of each without asking the product.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .history import RunHistory
from .outside import Outside
from .services import UNDOING


def unbalanced(
    runs: Mapping[str, RunHistory], outside: Outside, outcome_of: Callable[[str], Any]
) -> Iterator[str]:
    """What is wrong, all of invariant 3."""
    undone = times_undone(outside)
    for number, times in undone.items():
        if times > 1:
            effect = outside.effects[number - 1]
            yield f"3: {effect.tool} of {effect.action_id} was undone {times} times"
    left: dict[str, int] = {}
    for number, effect in enumerate(outside.effects, 1):
        left[effect.action_id] = left.get(effect.action_id, 0) + 1 - undone[number]
    for run_id, run in runs.items():
        outcome = outcome_of(run_id)
        if outcome is None:
            continue
        for record in outcome["completed"]:
            action_id = record["action_id"]
            by = run.undone_by.get(_number(action_id))
            if by is not None and outside.by_action[f"{run_id}/{by}"]:
                yield f"3: {action_id} is completed, and {run_id}/{by} has undone it"
            elif left.get(action_id, 1) < 1:
                yield f"3: {action_id} is completed, and was undone"
        for record in outcome["compensated"]:
            action_id = record["action_id"]
            by = run.undone_by.get(_number(action_id))
            if by is None:
                yield f"3: {action_id} is compensated, and no action undoes it"
                continue
            times = outside.by_action[f"{run_id}/{by}"]
            if times > 1 or (times == 0 and not run.actions[by].get("by_hand")):
                yield f"3: {action_id} is compensated, and was undone {times} times"


def times_undone(outside: Outside) -> Counter[int]:
    """By the number of the effect."""
    found: Counter[int] = Counter()
    for effect in outside.effects:
        if effect.tool in UNDOING:
            of = effect.arguments["result"]
            number = of.get("n", 0) if isinstance(of, dict) else 0
            if number:
                found[number] += 1
    return found


def _number(action_id: str) -> int:
    return int(action_id.rpartition("/")[2])
