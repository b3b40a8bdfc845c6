"""A savepoint within a savepoint: it sees its own changes, and nobody else does before it is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from perdure.streams.engine import layout
from perdure.streams.engine.draft import Draft
from perdure.streams.runtime.errors import TooLarge

from .desk import Context, Desk


def flag(reason: str) -> layout.Quarantine:
    return layout.Quarantine(reason=reason, since=1)


@pytest.fixture
def ctx(tmp_path: Path) -> Any:
    made = Context(Desk(tmp_path))
    for name in "ac":
        made.put(layout.quarantine(name), flag(name))
    made.remember(b"m", "old")
    return made


def seen(ctx: Any) -> dict[str, str]:
    return {key.decode(): value.reason for key, value in ctx.scan(layout.quarantines())}


def test_it_reads_through_its_own_changes(ctx: Any) -> None:
    draft = Draft(ctx, ctx._desk.engine.encode)
    draft.put(layout.quarantine("b"), flag("new"))
    draft.put(layout.quarantine("c"), flag("changed"))
    draft.delete(layout.quarantine("a"))
    draft.remember(b"m", "new")
    assert seen(draft) == {"q/b": "new", "q/c": "changed"}
    assert [key for key, _ in draft.scan(b"q/", b"q/c")] == [b"q/c"]
    assert (draft.get(layout.quarantine("a")), draft.recall(b"m")) == (None, "new")
    assert draft.get(layout.quarantine("b")).reason == "new"


def test_nothing_is_done_before_it_is_kept(ctx: Any) -> None:
    draft = Draft(ctx, ctx._desk.engine.encode)
    draft.put(layout.quarantine("b"), flag("new"))
    draft.remember(b"m", None)
    draft.set_timer(5, b"r/x")
    draft.cancel_timer(7, b"r/y")
    draft.send("agent.verdicts", b"r", b"{}")
    draft.after_commit(lambda: None)
    assert seen(ctx) == {"q/a": "a", "q/c": "c"}
    assert (ctx.recall(b"m"), ctx.staged_timers, ctx.sent, ctx.actions) == ("old", {}, [], [])
    draft.keep()
    assert seen(ctx) == {"q/a": "a", "q/b": "new", "q/c": "c"}
    assert (ctx.recall(b"m"), ctx.staged_timers) == (None, {b"r/x": 5, b"r/y": None})
    assert (len(ctx.sent), len(ctx.actions)) == (1, 1)


def test_what_can_not_be_stored_or_sent_raises_before_anything_is_done(ctx: Any) -> None:
    draft = Draft(ctx, ctx._desk.engine.encode)
    with pytest.raises(TooLarge):
        draft.send("agent.verdicts", b"r", b"x" * 1_000_001)
    draft.put(layout.quarantine("b"), flag("new"))
    draft.put(layout.quarantine("d"), flag("x" * 1_000_001))
    with pytest.raises(TooLarge):
        draft.keep()
    assert seen(ctx) == {"q/a": "a", "q/c": "c"}
