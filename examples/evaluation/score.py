"""Scores agents against what has run: ``perdure export > runs.jsonl``, then ``python score.py runs.jsonl``.

One line for each version of each agent: how many runs ended complete, how many of its proposals people
let through as they were, changed or declined, what a run cost. What people changed or declined is listed
below, as examples of what the agent should have proposed.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from typing import Any


def score(runs: Iterable[dict[str, Any]]) -> dict[tuple[str, int], dict[str, Any]]:
    """By agent and version: counts, and the examples that people have left."""
    found: dict[tuple[str, int], dict[str, Any]] = defaultdict(
        lambda: {
            "runs": 0,
            "complete": 0,
            "asked": 0,
            "as_proposed": 0,
            "cost": 0.0,
            "tokens": 0,
            "examples": [],
        }
    )
    for run in runs:
        made = found[run["agent"], run["agent_version"]]
        made["runs"] += 1
        made["complete"] += bool(run["outcome"] and run["outcome"]["complete"])
        made["cost"] += run["usage"]["cost"]
        made["tokens"] += run["usage"]["input_tokens"] + run["usage"]["output_tokens"]
        for action in run["actions"]:
            if action["approval_id"] is None or action["tool"] not in _asked_tools(run):
                continue
            made["asked"] += 1
            if action["label"] is None:
                made["as_proposed"] += action["approved_by"] is not None
            else:
                made["examples"].append(
                    {"input": run["input"], "tool": action["tool"], **action["label"]}
                )
    return dict(found)


def _asked_tools(run: dict[str, Any]) -> set[str]:
    return {decision["tool"] for decision in run["decisions"] if decision["kind"] == "action"}


def main(path: str) -> None:
    """Print the table and the examples."""
    with open(path, encoding="utf-8") as lines:
        scores = score(json.loads(line) for line in lines)
    print(
        f"{'agent':<20} {'version':>7} {'runs':>6} {'complete':>9} {'as proposed':>12} {'tokens/run':>11} {'cost/run':>9}"
    )
    for (agent, version), made in sorted(scores.items()):
        runs, asked = made["runs"], made["asked"]
        kept = f"{made['as_proposed']} of {asked}" if asked else "-"
        print(
            f"{agent:<20} {version:>7} {runs:>6} {made['complete'] / runs:>9.0%} {kept:>12} "
            f"{made['tokens'] / runs:>11.0f} {made['cost'] / runs:>9.4f}"
        )
    for (agent, version), made in sorted(scores.items()):
        for example in made["examples"]:
            print(
                f"\n{agent} {version}, {example['tool']} {example['verdict']} by {example['approver']}: {example['reason']}"
            )
            print(f"  proposed   {json.dumps(example['proposed'], ensure_ascii=False)}")
            if "corrected" in example:
                print(f"  corrected  {json.dumps(example['corrected'], ensure_ascii=False)}")


if __name__ == "__main__":
    main(sys.argv[1])
