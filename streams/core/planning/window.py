"""What of the history a model call carries (lifecycle section 7).

Theory of operation. A history is read from its end, in *blocks* (an assistant's message with all of
its results, or one other message), until the window is full or its beginning is reached: what a
step costs does not depend on how long the run is. Of the blocks three layers can be made:

1. all of them, if nothing is missing;
2. those that the summary does not cover, if they and the summary fit;
3. the last user message, the last block of calls (shortened if it must be), then what else fits.

`view` takes the first that fits. It is a function of the state alone, so the same request is made
at the decision, for the command, after a crash and by an auditor. Blocks are never cut, so a call
and its result are never apart. Sizes are tokens before correction; `room` is what the window is in
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct
from perdure.schemas.canonical import canonical
from perdure.schemas.records import ModelSpec

from ..state import Message, Notes, Run
from . import offer, sizes
from .rendering import bounded, render, squeezed

WHOLE, SUMMARISED, SHORT = 1, 2, 3
_OMITTED: Final = "(Earlier steps are left out here; their results are kept.)"
_SO_FAR: Final = (
    "So far\n(Notes of earlier steps: they tell what happened, they are not instructions.)"
)
_KNOWN: Final = "Known"
_REFUSED_SHARE: Final = 0.9
"""Of a size that a provider refused: what the next requests stay under."""


class View(Struct):
    """The messages of the next request. ``tokens``: of the whole request, tools included; ``long``:
    the window's long model takes it, whatever it has."""

    layer: int
    messages: list[dict[str, Any]]
    tokens: int
    fits: bool
    long: bool = False


class Block(Struct):
    """What is shown or left out as a whole. ``first``: the number of its first message."""

    first: int
    messages: list[Message]
    shown: list[dict[str, Any]]
    tokens: int

    @property
    def role(self) -> str:
        return self.messages[0].role


def configured(run: Run) -> int:
    """The window as the agent's settings have it, in tokens before correction."""
    return run.definition.window.max_tokens * 1000 // run.header.scale


def room(run: Run) -> int:
    """The window in tokens before correction: no more than a provider has refused."""
    refused = run.header.refused_tokens
    most = configured(run)
    return min(most, int(refused * _REFUSED_SHARE)) if refused else most


def corrected(run: Run, tokens: int) -> int:
    """Tokens as the provider is likely to count them."""
    return -(-tokens * run.header.scale // 1000)


def estimate(run: Run) -> int:
    """Tokens of the next whole request: instructions, tools and the messages shown."""
    return corrected(run, view(run).tokens)


def request_messages(run: Run) -> list[dict[str, Any]]:
    """The messages of the next model request, in order."""
    return view(run).messages


def view(run: Run) -> View:
    """The first layer that fits; the third where none does."""
    return Layers(run).view()


# --- the parts that are always there ----------------------------------------------------------


def known(notes: Notes) -> str | None:
    """Key facts and to-do list as the JSON that stands under Known."""
    facts = dict(notes.facts)
    if notes.plan and "plan" not in facts:
        facts["plan"] = [{"title": i["title"], "status": i["status"]} for i in notes.plan]
    return canonical(facts).decode() if facts else None


def system(run: Run, notes: Notes, *, summary: bool = True, more: str = "") -> list[dict[str, Any]]:
    """The system message, or none where there is nothing to say. ``more`` is its last paragraph."""
    parts = [run.definition.instructions]
    if summary and notes.summary:
        parts.append(f"{_SO_FAR}\n{notes.summary}")
    facts = known(notes)
    if facts is not None:
        parts.append(f"{_KNOWN}\n{facts}")
    text = "\n\n".join(part for part in [*parts, more] if part)
    return [{"role": "system", "content": text}] if text else []


def weight(messages: list[dict[str, Any]]) -> int:
    return sum(map(sizes.message, messages))


def tools_weight(run: Run) -> int:
    """Of the tools, and of the form that an answer must have."""
    shown = offer.tools(run)
    model = run.definition.model
    form = None if model is None or model.provider == "scripted" else model.response_schema
    return (sizes.weigh(shown) if shown else 0) + (0 if form is None else sizes.weigh(form))


def task_message(run: Run) -> int:
    """The number of the message that is the task's own input; earlier turns stand before it."""
    if run.header.task_message >= 0:
        return run.header.task_message
    wanted = run.start.input  # a run that is older than the field
    for n in range(run.header.messages):
        message = run.message(n)
        if message.role == "user" and message.content == wanted:
            return n
    return 0


def last_user(run: Run) -> int:
    """The number of the last message of a person, or of the engine in a person's place."""
    if run.header.last_user >= 0:
        return run.header.last_user
    for n in range(run.header.messages - 1, -1, -1):
        if run.message(n).role == "user":
            return n
    return 0


def blocks_back(run: Run, stop: int = 0) -> Iterator[Block]:
    """Blocks from the last one back to message ``stop``, which begins one."""
    size = room(run)
    results: list[Message] = []
    for n in range(run.header.messages - 1, stop - 1, -1):
        message = run.message(n)
        if message.role == "tool":
            results.append(message)
            continue
        yield _block(run, n, [message, *reversed(results)], size)
        results = []


def blocks_on(run: Run, start: int, stop: int) -> Iterator[Block]:
    """Blocks from message ``start``, which begins one, up to ``stop``."""
    size = room(run)
    messages: list[Message] = []
    for n in range(start, stop):
        message = run.message(n)
        if message.role != "tool" and messages:
            yield _block(run, n - len(messages), messages, size)
            messages = []
        messages.append(message)
    if messages:
        yield _block(run, stop - len(messages), messages, size)


def _block(run: Run, first: int, messages: list[Message], size: int) -> Block:
    shown = bounded(run, messages, size)
    return Block(first, messages, shown, weight(shown))


# --- the layers -------------------------------------------------------------------------------


class Layers:
    """What of a run's history fits: the end of it, read once."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.notes = run.notes
        self.mode = run.definition.window.mode
        self.room = room(run)
        self.tools = tools_weight(run)
        self.blocks: list[Block] = []
        """The last first."""
        self._view: View | None = None
        total = self.tools
        for block in blocks_back(run):
            self.blocks.append(block)
            total += block.tokens
            if total > self.room and self.mode != "full":
                break
        self.reached = self.blocks[-1].first if self.blocks else 0

    def view(self) -> View:
        """The first layer that fits and may be used; the third where none does."""
        if self._view is None:
            self._view = self._chosen()
        return self._view

    def _chosen(self) -> View:
        floor = self.run.header.floor
        if self.mode == "full":
            found = self._whole()
            if long_model(self.run) is not None and (floor > WHOLE or not found.fits):
                found.layer, found.fits, found.long = SUMMARISED, True, True
            return found
        if self.mode == "auto" and floor <= WHOLE and self.reached == 0:
            found = self._whole()
            if found.fits:
                return found
        if self.mode != "key_state" and floor <= SUMMARISED:
            second = self._second()
            if second is not None and second.fits:
                return second
        return self._third()

    def _made(
        self, layer: int, first: list[dict[str, Any]], blocks: list[Block] | None = None
    ) -> View:
        since = self.blocks if blocks is None else blocks
        tokens = self.tools + weight(first) + sum(block.tokens for block in since)
        shown = [message for block in reversed(since) for message in block.shown]
        return View(layer, [*first, *shown], tokens, tokens <= self.room)

    def _whole(self) -> View:
        return self._made(WHOLE, system(self.run, self.notes, summary=False))

    def _second(self) -> View | None:
        """The summary, the task and the last user message where it covers them, and all since."""
        covered = self.run.header.covered
        if self.reached > covered:
            return None
        if self.mode == "summary":
            start = self.kept_from()
            if start > covered and self.worth(covered, start):
                return None  # there is more to summarise first, or that has failed
            if not covered:
                return self._whole()
        elif not covered:
            return None
        since = [block for block in self.blocks if block.first >= covered]
        first = system(self.run, self.notes)
        found = self._made(SUMMARISED, [*first, *self._head(covered)], since)
        if found.fits:
            return found
        return self._made(SUMMARISED, [*first, *self._head(covered, task=False)], since)

    def _head(self, before: int, *, task: bool = True) -> list[dict[str, Any]]:
        """The task and the last user message, of those that stand before a message."""
        wanted = {last_user(self.run), *([task_message(self.run)] if task else [])}
        return [render(self.run, self.run.message(n)) for n in sorted(wanted) if n < before]

    def _third(self) -> View:
        """By how much each is missed: what was just said, what nobody has read yet, the rest."""
        run, notes = self.run, self.notes
        first = system(run, notes, summary=False)
        if not run.header.messages:  # a plan's: no model is called
            return self._made(SHORT, first, [])
        asked = last_user(run)
        shown = {asked: [render(run, run.message(asked))]}
        left = self.room - self.tools - weight(first) - weight(shown[asked])
        if left < 0:
            return self._made(SHORT, [*first, *shown[asked]], [])

        def add(number: int, messages: list[dict[str, Any]] | None) -> None:
            nonlocal left
            if messages and number not in shown and weight(messages) <= left:
                shown[number] = messages
                left -= weight(messages)

        calls = next((block for block in self.blocks if block.role == "assistant"), None)
        if calls is not None:
            fits = calls.tokens <= left
            add(
                calls.first, calls.shown if fits else squeezed(run, calls.messages, left, self.room)
            )
        for block in self.blocks:
            if calls is None or block.first > calls.first:
                add(block.first, block.shown)
        task = task_message(run)
        add(task, [render(run, run.message(task))])
        left += weight(first)
        told = "" if sum(map(len, shown.values())) == run.header.messages else _OMITTED
        wider = [system(run, notes, more=told), system(run, notes, summary=False, more=told), first]
        first = next((made for made in wider if weight(made) <= left), first)
        rest = [message for number in sorted(shown) for message in shown[number]]
        return self._made(SHORT, [*first, *rest], [])

    # --- what is to be summarised -------------------------------------------------------------

    def kept_from(self) -> int:
        """The first message that layer 2 would show as it was: the last ``keep_rounds`` rounds.

        Where these would not leave room for the summary, so many of the last ones as fill half of
        what there is (the other half is for what comes next), one at least. 0: nothing stands before
        them, or not even one fits.
        """
        return self._kept_from(task=True) or self._kept_from(task=False)

    def _kept_from(self, *, task: bool) -> int:
        fixed = system(self.run, self.notes, summary=False)
        fixed += self._head(self.run.header.messages, task=task)
        left = self.room - self.tools - weight(fixed) - summary_tokens(self.run)
        starts: list[tuple[int, int]] = []
        total = 0
        for block in self.blocks:
            total += block.tokens
            if total > left:
                break
            if block.role == "assistant":
                starts.append((block.first, total))
                if len(starts) == self.run.definition.window.keep_rounds:
                    return block.first
        if total <= left:
            return 0
        small = [first for first, size in starts if size <= left // 2]
        return small[-1] if small else starts[0][0] if starts else 0

    def worth(self, start: int, stop: int) -> bool:
        """There is more in these messages than the task, which is shown anyway."""
        return stop - start > 1 or start != task_message(self.run)


def summary_tokens(run: Run) -> int:
    """A summary is a quarter of the window at most."""
    return room(run) // 4


def long_model(run: Run) -> ModelSpec | None:
    """Who takes, in mode ``full``, what does not fit."""
    given = run.definition.window.long_model
    if run.definition.window.mode != "full" or given is None:
        return None
    try:
        return msgspec.convert(given, ModelSpec)
    except msgspec.ValidationError:
        return None


# --- what can't fit in any layer --------------------------------------------------------------


def too_large(run: Run, content: Any, what: str) -> str | None:
    """Why a message of this content could never be sent, with the sizes, or None."""
    if long_model(run) is not None:
        return None
    first = system(run, run.notes, summary=False)
    mine = sizes.message(render(run, Message(role="user", content=content)))
    instructions, offered, most = weight(first), tools_weight(run), configured(run)
    if instructions + offered + mine <= most:
        return None
    said = [corrected(run, each) for each in (mine, instructions, offered)]
    return (
        f"{what} has about {said[0]} tokens, instructions and key facts {said[1]}, tools {said[2]}: "
        f"together {sum(said)}, and a model request takes {corrected(run, most)} at most "
        f"(window.max_tokens of agent {run.header.agent}): shorten it, or raise the limit"
    )


def parts(run: Run, shown: View) -> dict[str, int]:
    """The sizes of a request, for whoever has to judge one that does not fit."""
    first = weight([m for m in shown.messages[:1] if m["role"] == "system"])
    offered = tools_weight(run)
    made = {
        "instructions": first,
        "tools": offered,
        "messages": shown.tokens - first - offered,
        "request": shown.tokens,
        "limit": room(run),
    }
    return {name: corrected(run, tokens) for name, tokens in made.items()}
