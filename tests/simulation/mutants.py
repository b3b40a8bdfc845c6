"""Pieces of the product, broken one at a time: the simulation must see each of them.

A mutant is a function that breaks its piece through `pytest.MonkeyPatch`, so nothing in the
product knows of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs
from perdure.connectors import ledger
from perdure.streams.core import effects
from perdure.streams.core.decide import fork, notices, undoing
from perdure.streams.core.policies import approval
from perdure.streams.engine.processor import EngineProcessor
from perdure.streams.engine.signatures import Signatures
from perdure.streams.runtime.cycle import Cycle
from perdure.streams.runtime.errors import StoreCorrupt, Unanswered
from perdure.streams.runtime.membership import Membership
from perdure.streams.runtime.overlay import PartitionState
from perdure.streams.runtime.ports import Position, Spot
from perdure.streams.runtime.restore import Restoration
from perdure.streams.runtime.savepoint import Savepoint
from perdure.streams.runtime.work import Work

from perdure.testing.broker.admin import SimulatedAdmin
from perdure.testing.broker.producers import SimulatedTransactionalProducer

Patch = pytest.MonkeyPatch


def ledger_without_started(patch: Patch) -> None:
    """An external call begins, and no ledger knows of it."""
    patch.setattr(ledger, "start", lambda *_: None)


def offsets_left_out(patch: Patch) -> None:
    """Transactions carry no offsets: nothing fences them, and inputs are taken again."""
    patch.setattr(SimulatedTransactionalProducer, "send_offsets", lambda *_: None)


def unstable_offsets_taken(patch: Patch) -> None:
    """A takeover does not wait for the former owner's open transaction."""
    asked = SimulatedAdmin.committed

    def committed(self: SimulatedAdmin, group: str, spots: Sequence[Spot], stable: bool) -> Any:
        return asked(self, group, spots, False)

    patch.setattr(SimulatedAdmin, "committed", committed)


def offsets_taken_last(patch: Patch) -> None:
    """A takeover reads the changelog first and asks for the offsets then."""
    read = Restoration._read

    def end_first(self: Restoration) -> None:
        self._go("changelog's end", self._take_end)

    def offsets_then(self: Restoration) -> None:
        read(self)
        if not self.ready:
            return
        latest = self._admin.committed(self._group, self.own.spots(), True)
        try:
            self._committed = latest.result()
        except Unanswered:  # unstable: ask again
            self.ready = False
            return
        for topic in self.own.topics:
            self.starts[topic] = self._start_of(topic, None)

    patch.setattr(Restoration, "_take_offsets", end_first)
    patch.setattr(Restoration, "_read", offsets_then)


def committed_end_taken(patch: Patch) -> None:
    """A takeover takes the end a read_committed reader sees for the changelog's end."""

    def ends(self: SimulatedAdmin, spots: Sequence[Spot]) -> Any:
        found = self._broker.found
        return self._asked("admin.ends", lambda: {s: found(s).stable for s in spots})

    patch.setattr(SimulatedAdmin, "ends", ends)


def overlay_kept(patch: Patch) -> None:
    """What an aborted transaction staged stays in memory."""
    patch.setattr(PartitionState, "drop_overlay", lambda self: None)


def lost_partitions_kept(patch: Patch) -> None:
    """A process goes on with partitions that the group has given to another."""
    patch.setattr(Membership, "lost", lambda self, spots: None)


def unchanged_offsets_left_out(patch: Patch) -> None:
    """A transaction in which no input advanced (a call has ended) carries no offsets."""
    send = SimulatedTransactionalProducer.send_offsets

    def only_new(self: SimulatedTransactionalProducer, positions: Any, membership: Any) -> None:
        known = self._broker.group(membership.group).offsets
        if any(spot not in known or known[spot] != at for spot, at in positions.items()):
            send(self, positions, membership)

    patch.setattr(SimulatedTransactionalProducer, "send_offsets", only_new)


def acting_before_the_commit(patch: Patch) -> None:
    """Step 5 comes before step 3: a call begins while its intent is not committed."""
    patch.setattr(Savepoint, "after_commit", lambda self, action: action())


def store_before_the_commit(patch: Patch) -> None:
    """Step 4 comes before step 3: the store is ahead of its changelog."""
    commit = Cycle._commit

    def store_first(self: Cycle, work: Work) -> Any:
        for own in work.staged:
            with contextlib.suppress(StoreCorrupt):  # left to be found where it is looked for
                meta = own.state.store.meta()
                assert meta is not None
                own.state.store.write(dict(own.state.overlay.raw), meta)
        return commit(self, work)

    patch.setattr(Cycle, "_commit", store_first)


def decisions_counted_twice(patch: Patch) -> None:
    """A closed question takes another decision."""
    judged = approval.refuse

    def refuse(run: Any, asked: Any, word: Any, at: int) -> str | None:
        found = judged(run, asked, word, at)
        return None if asked is not None and not asked.open else found

    patch.setattr(approval, "refuse", refuse)


def approval_skipped(patch: Patch) -> None:
    """Nobody is asked."""
    judged = approval.evaluate

    def evaluate(*args: Any) -> Any:
        rules = judged(*args)
        rules.asks = False
        return rules

    patch.setattr(approval, "evaluate", evaluate)


def external_called_again(patch: Patch) -> None:
    """An external call without a query is made again when its outcome is unknown."""
    patch.setitem(effects.SETTLE, ("external", False), "call")


def no_query_before_the_call(patch: Patch) -> None:
    """An external call with a query is made again without asking."""
    patch.setitem(effects.SETTLE, ("external", True), "call")


def settle_time_ignored(patch: Patch) -> None:
    """``absent`` is believed while the request may still be on its way."""
    from perdure.streams.core.decide import result, settling

    for module in (result, settling):
        patch.setattr(module, "settled_at", lambda action: 0)


def duplicates_taken(patch: Patch) -> None:
    """A task that was taken already is taken again."""
    patch.setattr(EngineProcessor, "_known_digest", lambda *_: None)


def commands_sent_twice(patch: Patch) -> None:
    """Every command goes out twice in its transaction."""
    from perdure.streams.engine.outputs import Outputs

    send = Outputs._command

    def twice(self: Outputs, *args: Any) -> None:
        send(self, *args)
        send(self, *args)

    patch.setattr(Outputs, "_command", twice)


def failed_undoings_called_undone(patch: Patch) -> None:
    """An undoing that somebody gave up counts as having undone."""
    patch.setattr(undoing, "SUCCEEDED", {*undoing.SUCCEEDED, "failed", "in_doubt"})


def undone_first_first(patch: Patch) -> None:
    """What was done first is undone first."""

    def first_done(run: Any) -> Any:
        for n in range(run.header.inherited + 1, run.header.next_action):
            action = run.action(n)
            done = action.kind == "tool" and action.status == "succeeded"
            if done and undoing._undoing_tool(run, action) is not None:
                return action
        return None

    patch.setattr(undoing, "_last_done", first_done)


def undone_twice(patch: Patch) -> None:
    """An undoing that succeeded is made once more, as another action."""
    finished = undoing._finished
    begun: set[tuple[str, int]] = set()

    def again(decision: Any, action: Any) -> None:
        at = (decision.run.header.run_id, action.undoes)
        if at in begun or action.status != "succeeded":
            finished(decision, action)
            return
        begun.add(at)
        undone = decision.run.action(action.undoes)
        decision.run.header.undoing = 0
        decision.run.writes["a", undone.n] = structs.replace(undone, status="succeeded")

    patch.setattr(undoing, "_finished", again)


def notices_sent_again(patch: Patch) -> None:
    """A notice whose effect is unknown is sent again."""
    decide = notices._again_or_never

    def again(decision: Any, action: Any, error: dict[str, Any]) -> None:
        decide(decision, action, {**error, "kind": "transient"})

    patch.setattr(notices, "_again_or_never", again)
    patch.setattr(notices, "may_have_happened", lambda *_: False)


def notices_hold_up(patch: Patch) -> None:
    """A notice under way counts as work of the run."""
    from perdure.streams.core.state import Run

    own = Run.open_actions

    def with_notices(self: Run) -> Any:
        return [*own(self), *(self.action(n) for n in self.header.notices)]

    patch.setattr(Run, "open_actions", with_notices)


def forks_taken_always(patch: Patch) -> None:
    """A fork begins where a writing call was open, or where its run had ended."""
    patch.setattr(fork, "_state_refuses", lambda run: None)


def forks_call_with_other_keys(patch: Patch) -> None:
    """Calls still to come have a key that is not the fork's."""
    other = SimpleNamespace(idempotency_key=lambda run_id, n, nonce: f"{run_id}-other/{n}/{nonce}")
    patch.setattr(fork, "keys", other)


def signatures_taken_unseen(patch: Patch) -> None:
    """Whoever writes a name is taken for its owner."""
    patch.setattr(Signatures, "proved", lambda self, decision, at: (decision, "signature"))


def positions_go_back(positions: Mapping[Spot, Position]) -> dict[Spot, Position]:
    return {spot: Position(max(at.offset - 1, 0), at.metadata) for spot, at in positions.items()}


def offsets_one_short(patch: Patch) -> None:
    """Each transaction commits the offset of its last record, not of the next."""
    send = SimulatedTransactionalProducer.send_offsets

    def short(self: SimulatedTransactionalProducer, positions: Any, membership: object) -> None:
        send(self, positions_go_back(positions), membership)

    patch.setattr(SimulatedTransactionalProducer, "send_offsets", short)


MUTANTS: tuple[Callable[[Patch], None], ...] = (
    ledger_without_started,
    offsets_left_out,
    offsets_one_short,
    unstable_offsets_taken,
    offsets_taken_last,
    committed_end_taken,
    overlay_kept,
    lost_partitions_kept,
    unchanged_offsets_left_out,
    acting_before_the_commit,
    store_before_the_commit,
    decisions_counted_twice,
    approval_skipped,
    external_called_again,
    no_query_before_the_call,
    settle_time_ignored,
    duplicates_taken,
    commands_sent_twice,
    failed_undoings_called_undone,
    undone_first_first,
    undone_twice,
    notices_sent_again,
    notices_hold_up,
    forks_taken_always,
    forks_call_with_other_keys,
    signatures_taken_unseen,
)
