"""The body of ``perdure simulate``: seeds of the simulated world, one after the other."""

from __future__ import annotations

import time
from typing import Any

from .console import FAILED, leave, line, say

_SHOWN = 40
_SAY_EVERY = 5.0


def simulate(seeds: int, first: int, one: int | None, as_json: bool) -> None:
    """Run them; ends with 1 at the first that finds something, which it names."""
    from perdure.testing.simulation import Coverage, Result
    from perdure.testing.simulation import simulate as run

    coverage = Coverage()
    numbers = range(first, first + seeds) if one is None else range(one, one + 1)
    began = told = time.perf_counter()
    simulated = 0.0
    broken: Result | None = None
    for seed in numbers:
        result = run(seed, coverage)
        simulated += result.simulated_seconds
        if not result.ok:
            broken = result
            break
        now = time.perf_counter()
        if now - told >= _SAY_EVERY:
            told = now
            say(f"{coverage.seeds} seeds, {coverage.seeds / (now - began):.1f} a second")
    took = time.perf_counter() - began
    report: dict[str, Any] = {
        "ok": broken is None,
        "seeds_per_second": round(coverage.seeds / took, 2),
        "simulated_hours": round(simulated / 3600, 1),
        **coverage.summary(),
    }
    if len(numbers) == 1 and broken is None:
        report["fingerprint"] = result.fingerprint
    if broken is not None:
        report |= {"seed": broken.seed, "wrong": broken.wrong, "fingerprint": broken.fingerprint}
    if as_json:
        line(report)
    else:
        _print(report, broken)
    if broken is not None:
        leave(FAILED, f"seed {broken.seed}: {broken.wrong[0]}")


def _print(report: dict[str, Any], broken: Any) -> None:
    if broken is not None:
        print("\n".join(broken.trace[-_SHOWN:]))
        print()
        for text in broken.wrong[:10]:
            print(f"  {text}")
        print(f"\nagain: perdure simulate --seed {broken.seed}", flush=True)
        return
    print(
        f"{report['seeds']} seeds, nothing wrong: {report['runs']} runs, {report['effects']} effects, "
        f"{report['simulated_hours']} simulated hours, {report['seeds_per_second']} seeds a second"
    )
    for name in ("ended", "strikes", "questions", "stood_in"):
        print(
            f"  {name.replace('_', ' ')}: "
            + ", ".join(f"{k} {v}" for k, v in sorted(report[name].items()))
        )
    print(f"  crash points: {report['crash_points']}, never: {_list(report['never_crashed_at'])}")
    print(f"  transitions of actions never seen: {_list(report['action_transitions_missing'])}")
    print(f"  transitions of runs never seen: {_list(report['run_transitions_missing'])}")
    if "fingerprint" in report:
        print(f"  fingerprint: {report['fingerprint']}")


def _list(names: list[str]) -> str:
    return ", ".join(names) or "none"
