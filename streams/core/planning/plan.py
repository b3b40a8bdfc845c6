"""Fixed plans: which steps are ready, what their arguments are, and when the plan is done."""

from __future__ import annotations

from typing import Any, Final

from perdure.schemas.records import AgentSpec, PlanStep

from .. import cel
from ..arguments import RESERVED_TEXT, holds_reserved
from ..decide import ending, moves
from ..decide.decision import Decision
from ..lifecycle import SUCCEEDED
from ..policies.approval import run_variables
from ..state import Run

MAX_STEPS: Final = 200
"""A plan's progress stands in the run's header, which is bounded."""
_REACHED: Final = frozenset({"done"})
_LOST: Final = frozenset({"rejected", "skipped", "failed", "in_doubt", "cancelled"})


def dependencies(plan: list[PlanStep], index: int) -> list[str]:
    """Ids a step waits for; left out means the step before."""
    step = plan[index]
    if step.depends_on is not None:
        return step.depends_on
    return [plan[index - 1].id] if index else []


def problem(plan: list[PlanStep], agent: AgentSpec) -> str | None:
    """Why a plan can't be carried out, or None; checked before the run starts."""
    if not plan:
        return "plan: has no steps"
    if len(plan) > MAX_STEPS:
        return f"plan: has {len(plan)} steps; at most {MAX_STEPS} are taken"
    ids = [step.id for step in plan]
    seen: set[str] = set()
    for index, step in enumerate(plan):
        where = f"plan[{index}] ({step.id})"
        if step.id in seen:
            return f"{where}: the id is used twice"
        seen.add(step.id)
        if step.tool not in agent.tools:
            return f"{where}: agent {agent.name} has no tool {step.tool}; it has {', '.join(agent.tools) or 'none'}"
        for wanted in dependencies(plan, index):
            if wanted not in ids:
                return f"{where}: depends_on names {wanted}, which is no step"
        try:
            for expression in [
                *cel.expressions(step.arguments),
                *([step.when] if step.when is not None else []),
                *(cel.expressions(step.compensate.arguments) if step.compensate else []),
            ]:
                cel.check(expression)
        except cel.ExpressionError as error:
            return f"{where}: {error}"
    return _cycle(plan)


def _cycle(plan: list[PlanStep]) -> str | None:
    waiting = {step.id: set(dependencies(plan, index)) for index, step in enumerate(plan)}
    while waiting:
        free = [step_id for step_id, wants in waiting.items() if not wants]
        if not free:
            return f"plan: these steps wait for each other: {', '.join(waiting)}"
        for step_id in free:
            del waiting[step_id]
        for wants in waiting.values():
            wants.difference_update(free)
    return None


def advance(decision: Decision) -> None:
    """Start every step whose dependencies are met; finish when no step is left."""
    run = decision.run
    plan = run.start.plan
    assert plan is not None
    moved = True
    while moved and run.header.ending is None:
        moved = False
        for index, step in enumerate(plan):
            progress = run.header.plan
            if progress[step.id]["status"] != "pending":
                continue
            wanted = [progress[other]["status"] for other in dependencies(plan, index)]
            lost = [
                other for other in dependencies(plan, index) if progress[other]["status"] in _LOST
            ]
            if lost:
                decision.emit(
                    "action_skipped", {"step_id": step.id, "reason": f"{lost[0]} was not done"}
                )
                moved = True
            elif all(status in _REACHED for status in wanted):
                if ending.over_budget(decision):
                    return
                moved = _start(decision, step) or moved
            if run.header.ending is not None:
                return
    if (
        not run.header.open
        and not run.header.asks
        and all(state["status"] not in ("pending", "running") for state in run.header.plan.values())
    ):
        ending.finish(decision, "done")


def _start(decision: Decision, step: PlanStep) -> bool:
    """Begin one step. True: it ended at once, so that others may be ready now."""
    run = decision.run
    seen = variables(decision)
    if step.when is not None:
        try:
            taken = cel.evaluate(step.when, seen)
            if taken is not True and taken is not False:
                raise cel.ExpressionError(f"{step.when!r} gives neither true nor false")
        except cel.ExpressionError as error:
            _fails(decision, step, str(error))
            return False
        if not taken:
            decision.emit("branch_skipped", {"step_id": step.id, "when": step.when})
            return True
        decision.emit("branch_taken", {"step_id": step.id, "when": step.when})
    try:
        arguments = cel.arguments(decision.lookup.value(step.arguments), seen)
    except cel.ExpressionError as error:
        _fails(decision, step, str(error))
        return False
    if holds_reserved(arguments):  # of a result: no worker could tell it from a reference
        _fails(decision, step, RESERVED_TEXT)
        return False
    tool = decision.lookup.tool(step.tool) or run.start.tools[step.tool]
    number = run.header.step + 1
    decision.emit("step_started", {"step": number, "title": step.id})
    moves.propose(
        decision,
        tool=tool,
        arguments=arguments,
        step=number,
        step_id=step.id,
        always=step.approval == "always",
    )
    return False


def _fails(decision: Decision, step: PlanStep, message: str) -> None:
    error = {
        "kind": "invalid_arguments",
        "code": "PLAN_EXPRESSION",
        "message": f"step {step.id}: {message}",
    }
    ending.end(decision, "failed", f"step {step.id} can't be worked out: {message}", error=error)


def variables(decision: Decision) -> dict[str, Any]:
    """What expressions see: ``input``, ``steps.<id>`` {status, result} and ``run``."""
    run: Run = decision.run
    steps: dict[str, Any] = {}
    for step_id, progress in run.header.plan.items():
        n = progress.get("n")
        if n is not None:
            action = run.action(n)
            result = decision.lookup.value(action.result) if action.status in SUCCEEDED else None
            steps[step_id] = {"status": progress["status"], "result": result}
        elif progress["status"] != "pending":
            steps[step_id] = {"status": progress["status"], "result": None}
    return {
        "input": decision.lookup.value(run.start.input),
        "steps": steps,
        "run": run_variables(run),
    }
