"""What has to happen so that a model call's request fits: before it is made, and after it was refused."""

from __future__ import annotations

from typing import Any, Final

from perdure.schemas.records import Usage

from ..decide import asking, models, moves
from ..decide.decision import Decision
from ..decide.ending import closing, over_budget
from ..policies.budget import reserved
from ..state import Action, Run
from . import rendering, summary, window

LONG: Final = "long"
"""The purpose of a call that the window's long model takes."""
_PASSING: Final = frozenset({"transient", "unknown", "unavailable", "model_unavailable"})
"""Errors after which a summary's call is tried again, as often as any call."""


def ready(decision: Decision, index: int) -> window.View | None:
    """The next request, or None where a summary, or a person, is asked first. ``index``: of the
    model whose turn it is."""
    run = decision.run
    layers = window.Layers(run)
    span = summary.wanted(layers)
    if span is not None:
        if over_budget(decision, _uses(run, index, *span)):
            return None
        _summarise(decision, index, *span)
        if run.header.open:
            return None
    shown = layers.view()  # a summary that could not even be asked for changes nothing of it
    if shown.fits and shown.layer >= run.header.floor:
        return shown
    _hand_over(decision, shown)
    return None


def _uses(run: Run, index: int, start: int, stop: int) -> Usage:
    """What a summary's call is likely to use."""
    model = run.model(index)
    asked = summary.messages(run, Action(n=0, covers=[start, stop]))
    tokens = window.corrected(run, window.weight(asked))
    return reserved(model, tokens, summary.output_tokens(run, model.max_output_tokens))


def caller(decision: Decision, shown: window.View) -> dict[str, Any]:
    """What a model call's proposal says of the window: that the long model takes it, if it does."""
    model = window.long_model(decision.run) if shown.long else None
    if model is None:
        return {}
    return {
        "purpose": LONG,
        "target": models.name_of(model),
        "queue": model.queue,
        "timeout_seconds": model.timeout_seconds,
    }


def _summarise(decision: Decision, index: int, start: int, stop: int) -> None:
    """Ask the model in use for a summary. It takes no step."""
    run = decision.run
    said = models.proposal(run, run.model(index), run.header.step)
    about = {"model": index, "purpose": summary.PURPOSE, "covers": [start, stop]}
    decision.emit("action_proposed", {**said, **about})
    moves.request(decision, said["n"])


def summarised(
    decision: Decision, action: Action, result: Any, extra: dict[str, Any], actor: str
) -> None:
    """The answer to a summary's call came: keep it."""
    run = decision.run
    text = summary.text_of(run, decision.lookup.value(result))
    if text is None:
        error = {"kind": "model_invalid", "code": "no_summary", "message": "it holds no text"}
        models.close(decision, action, error, extra, actor)
        return
    decision.emit("action_succeeded", {"n": action.n, "attempt": action.attempt, **extra}, actor)
    start, stop = action.covers
    data = {"n": action.n, "from": start, "to": stop, "summary": text}
    decision.emit("context_summarised", data, actor)


def failed(
    decision: Decision, action: Action, error: dict[str, Any], extra: dict[str, Any], actor: str
) -> bool:
    """Whether this failure of a model's call is the window's to deal with.

    A summary that can't be had loses nothing: the next request takes the third layer. A request that
    was too long is made again at once, with the next one.
    """
    if action.purpose == summary.PURPOSE:
        tries = decision.run.definition.retry.attempts
        again = error["kind"] in _PASSING and action.attempt < tries
        if again and not closing(decision.run, action):
            return False
    elif error["kind"] != "context_overflow":
        return False
    models.close(decision, action, error, extra, actor)
    return True


def beginning(decision: Decision, action: Action, result: Any) -> dict[str, Any]:
    """Of a result kept by reference: what a model is shown of it. Where names are masked nothing is:
    a part of a JSON text can't be searched for them."""
    spec = decision.run.start.tools.get(action.target)
    if action.message is None or spec is None or spec.sensitive:
        return {}
    text = decision.lookup.beginning(result, rendering.BEGINNING)
    return {} if text is None else {"beginning": text}


def _hand_over(decision: Decision, shown: window.View) -> None:
    """No layer fits, or the provider takes none: a person is told the sizes."""
    run = decision.run
    made = window.parts(run, shown)
    refused = "the provider refused it" if run.header.floor else f"{made['limit']} fit"
    asking.ask(
        decision,
        "handover",
        f"The next model request of run {run.header.run_id} is too long",
        question=(
            f"It has about {made['request']} tokens ({made['instructions']} of instructions, summary "
            f"and key facts, {made['tools']} of tools, {made['messages']} of messages), and {refused}. "
            "Answer with a short message to go on with that, retry once the model takes more, or "
            "cancel the run."
        ),
        fired={"window": made},
    )
