"""The cycle's order, and what is left of it when a step fails. No broker: see tests/kafka."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from perdure.streams.runtime.cycle import Cycle
from perdure.streams.runtime.errors import (
    Aborted,
    DoesNotFit,
    GroupFenced,
    OutcomeUnknown,
    ProducerFenced,
    Unanswered,
    Undeliverable,
)
from perdure.streams.runtime.health import Health
from perdure.streams.runtime.memory import MemoryStores
from perdure.streams.runtime.ports import End, Position, Spot
from perdure.streams.runtime.processor import Context, Hold, Message, Record
from perdure.streams.runtime.refusals import PATIENCE
from perdure.streams.runtime.settings import RuntimeSettings
from perdure.streams.runtime.store import REBUILDING_KEY

from tests.kafka.scripted import Scripted
from tests.runtime.fakes import FakeKafka, Now

INPUT, FORWARDED = Spot("left", 0), Spot("forwarded", 0)


class World:
    """A cycle over fakes; a new one of the same world is the process started again."""

    def __init__(self, directory: Path, **behaviour: Callable[..., None]) -> None:
        self.clock = Now()
        self.stores = MemoryStores()
        self.directory = directory
        self.kafka = FakeKafka(Scripted.sources, Scripted.changelog)
        self.processor = Scripted(**behaviour)
        self.start()

    def start(self) -> None:
        settings = RuntimeSettings(
            bootstrap_servers="none", data_dir=self.directory, instance_id="me"
        )
        self.cycle = Cycle(
            self.processor, settings, self.kafka, self.stores, self.clock, Health("c")
        )
        assert self.kafka.listener is not None
        self.kafka.listener.assigned([INPUT, FORWARDED])

    def live(self) -> World:
        for _ in range(20):
            if self.cycle._members.live:
                self.step()
                self.kafka.calls.clear()
                self.kafka.sent.clear()  # the first entry of a new changelog
                return self
            self.step()
        raise AssertionError("never live")

    def step(self) -> None:
        self.clock.ms += 10
        self.cycle.step()

    def put(self, *values: bytes, at: int = 0) -> None:
        self.kafka.coming += [
            Record("left", 0, at + i, 0, b"k", value) for i, value in enumerate(values)
        ]

    def stored(self, key: bytes) -> bytes | None:
        return self.stores.open(0).get(key)


def count(self: Scripted, ctx: Context, message: Message) -> None:
    n = (ctx.get(b"n") or 0) + 1
    ctx.put(b"n", n)
    ctx.send("out", b"k", b"%d" % n)


def test_changelog_outputs_and_offsets_are_one_transaction_then_the_store_then_the_acts(
    tmp_path: Path,
) -> None:
    def act(self: Scripted, ctx: Context, message: Message) -> None:
        count(self, ctx, message)
        ctx.after_commit(lambda: world.kafka.calls.append(("act", world.stored(b"n"))))

    world = World(tmp_path, process=act).live()
    world.put(b"{}")
    world.step()
    assert world.kafka.names() == [
        "poll",
        "begin",
        "send",
        "send",
        "send",
        "send offsets",
        "commit",
        "act",
    ]
    assert world.kafka.calls[-1] == ("act", b"1")
    assert [call[1] for call in world.kafka.calls if call[0] == "send"] == [
        Scripted.changelog
    ] * 2 + ["out"]
    offsets = world.kafka.calls[5][1]
    assert {spot: at.offset for spot, at in offsets.items()} == {INPUT: 1, FORWARDED: 0}
    assert all('"id":"counting.me"' in at.metadata for at in offsets.values())


@pytest.mark.parametrize("call", ["send", "send offsets", "commit"])
@pytest.mark.parametrize("fault", [Aborted, GroupFenced])
def test_an_abort_anywhere_leaves_nothing_and_the_batch_is_taken_again(
    call: str, fault: type[Exception], tmp_path: Path
) -> None:
    acts: list[int] = []

    def act(self: Scripted, ctx: Context, message: Message) -> None:
        count(self, ctx, message)
        ctx.after_commit(lambda: acts.append(1))

    world = World(tmp_path, process=act).live()
    world.kafka.faults[call] = fault("now")
    world.put(b"{}", b"{}")
    world.step()
    assert world.kafka.names()[-1] == "abort"
    assert (world.kafka.sent, world.stored(b"n"), acts) == ([], None, [])
    world.step()
    assert [value for topic, _, value, _ in world.kafka.sent if topic == "out"] == [b"1", b"2"]
    assert (world.stored(b"n"), acts) == (b"2", [1, 1])
    assert world.kafka.positions[INPUT].offset == 2


@pytest.mark.parametrize("fault", [ProducerFenced, OutcomeUnknown])
def test_what_cannot_be_repaired_in_place_ends_the_process_without_a_store_write(
    fault: type[Exception], tmp_path: Path
) -> None:
    world = World(tmp_path, process=count).live()
    world.kafka.faults["commit"] = fault("now")
    world.put(b"{}")
    with pytest.raises(fault):
        world.step()
    assert world.stored(b"n") is None
    assert "abort" not in world.kafka.names()


def test_a_raise_discards_its_own_savepoint_only(tmp_path: Path) -> None:
    def maybe(self: Scripted, ctx: Context, message: Message) -> None:
        count(self, ctx, message)
        ctx.set_timer(5, b"t")
        ctx.after_commit(lambda: world.kafka.calls.append(("act",)))
        if message.body.get("bad"):
            raise ValueError

    world = World(tmp_path, process=maybe).live()
    world.put(b"{}", b'{"bad": 1}', b"{}")
    world.step()
    assert [value for topic, _, value, _ in world.kafka.sent if topic == "out"] == [b"1", b"2"]
    assert world.kafka.names().count("act") == 2
    assert len(world.processor.failures) == 1
    assert world.kafka.positions[INPUT].offset == 3


def test_a_cycle_that_staged_nothing_makes_no_transaction(tmp_path: Path) -> None:
    holds: list[Hold] = []
    world = World(tmp_path, process=lambda self, ctx, message: holds.append(ctx.hold())).live()
    world.put(b"{}", b"{}", b"skip")
    world.clock.ms += 1_000
    world.step()
    assert "begin" not in world.kafka.names()
    assert world.kafka.positions[INPUT].offset == 0
    holds[0].finish()
    world.clock.ms += 1_000
    world.step()
    assert world.kafka.positions[INPUT].offset == 1
    world.kafka.faults["commit plainly"] = GroupFenced("stale epoch")
    holds[1].finish()
    world.clock.ms += 1_000
    world.step()
    world.clock.ms += 1_000
    world.step()
    assert world.kafka.positions[INPUT].offset == 3


def test_a_processor_that_accepts_nothing_leaves_its_records_where_they_are(
    tmp_path: Path,
) -> None:
    """Those polled already wait in memory, and no offset passes them."""
    world = World(tmp_path, process=count).live()
    world.processor.accepting = False
    world.put(b"{}", b"{}")
    for _ in range(60):
        world.step()
    assert world.kafka.names().count("pause") == 1
    assert (world.processor.seen, world.kafka.sent) == ([], [])
    assert world.kafka.positions[INPUT].offset == 0
    world.processor.accepting = True
    world.step()
    assert world.kafka.names().count("resume") == 1
    assert world.stored(b"n") == b"2"


def test_what_is_under_way_ends_while_nothing_is_accepted(tmp_path: Path) -> None:
    world = World(tmp_path, process=count).live()
    world.processor.accepting = False
    world.processor.lives[0].post("ended")
    world.step()
    assert world.processor.events == ["ended"]


def test_a_batch_is_bounded_by_what_it_staged(tmp_path: Path) -> None:
    world = World(
        tmp_path, process=lambda self, ctx, message: ctx.send("out", None, b"x" * 900_000)
    ).live()
    world.put(*[b"{}"] * 7)
    world.step()
    assert world.kafka.positions[INPUT].offset == 5  # 4.5 MB
    world.step()
    assert world.kafka.positions[INPUT].offset == 7


def test_a_takeover_asks_in_the_order_that_loses_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, process=count)
    for _ in range(3):
        world.step()
    wanted = [c for c in world.kafka.names() if c not in ("poll", "take the id")]
    first = ["begin", "send", "send offsets", "commit"]  # an entry before any input is passed
    assert wanted == ["committed", "ends", "commit plainly", "start", *first]
    world.put(b"{}", b"{}")
    world.step()
    world.stores = MemoryStores()  # another machine
    world.kafka.committed_offsets = world.kafka.positions
    world.kafka.calls.clear()
    world.start()
    for _ in range(3):
        world.step()
    wanted = [c for c in world.kafka.names() if c not in ("poll", "take the id")]
    assert wanted == ["committed", "ends", "read", "commit plainly", "start"]
    assert world.kafka.calls[-2 if world.kafka.names()[-1] == "poll" else -1][1] == {
        INPUT: 2,
        FORWARDED: 0,
    }
    assert world.stored(b"n") == b"2"


def test_a_takeover_that_stands_still_aborts_the_former_owner_and_never_itself(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.kafka.positions = {
        INPUT: Position(0, '{"id":"counting.other"}'),
        FORWARDED: Position(0, '{"id":"counting.me"}'),
    }
    world.kafka.committed_offsets = Unanswered("unstable")
    for _ in range(9):
        world.clock.ms += 100
        world.step()
    assert world.kafka.fenced == []
    for _ in range(4):
        world.clock.ms += 100
        world.step()
    assert world.kafka.fenced == ["counting.other"]
    world.kafka.committed_offsets = {}
    world.live()


def test_the_changelogs_readable_end_is_not_its_end(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.kafka.log_end = 1  # an open transaction wrote one
    for _ in range(9):
        world.clock.ms += 100
        world.step()
    assert not world.cycle._members.live
    world.kafka.log.append(Record(Scripted.changelog, 0, 0, 0, b"n", b"7"))
    for spot in world.kafka._reading:
        world.kafka._reading[spot] = 0
    world.live()
    assert world.stored(b"n") == b"7"


def test_a_lost_partition_takes_everything_of_it_along(tmp_path: Path) -> None:
    world = World(tmp_path, process=count).live()
    old = world.processor.lives[0]
    world.put(b"{}")
    listener = world.kafka.listener
    assert listener is not None
    listener.lost([INPUT, FORWARDED, Spot("odd", 7), Spot("left", 9)])
    assert not old.alive
    listener.assigned([INPUT])
    world.step()
    assert not world.cycle._members.owned  # not before all inputs are there
    listener.assigned([FORWARDED])
    world.live()
    old.post("too late")
    world.step()
    assert world.processor.events == []
    assert world.kafka.sent == []


def test_time_never_goes_back(tmp_path: Path) -> None:
    nows: list[int] = []
    world = World(
        tmp_path, process=lambda self, ctx, message: (nows.append(ctx.now), ctx.put(b"n", 1))
    ).live()
    world.put(b"{}")
    world.step()
    world.clock.ms -= 500_000
    world.put(b"{}", at=1)
    world.step()
    world.start()  # on a machine whose clock is behind
    world.live()
    world.put(b"{}", at=2)
    world.step()
    assert nows == sorted(nows)


def test_a_time_far_ahead_of_the_clock_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, process=count).live()
    world.clock.ms += 3_600_000
    world.put(b"{}")
    world.step()
    assert "ahead of this machine's clock" not in caplog.text
    world.clock.ms -= 3_600_000
    for _ in range(3):
        world.step()
    assert caplog.text.count("3599 s ahead of this machine's clock") == 1
    world.start()
    for _ in range(10):
        world.step()
    assert caplog.text.count("ahead of this machine's clock") == 2  # by the new owner, too


@pytest.mark.parametrize(("ahead", "dropped"), [(30 * 86_400_000, True), (300_000, False)])
def test_a_store_written_by_a_clock_far_ahead_is_made_anew(
    ahead: int, dropped: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its age can't be told, so deletions may be gone from the changelog."""
    world = World(tmp_path, process=count).live()
    world.clock.ms += ahead
    world.put(b"{}")
    world.step()
    world.clock.ms -= ahead
    world.stores.open(0).write({b"deleted": b"1"}, world.stores.open(0).meta())
    world.kafka.committed_offsets = dict(world.kafka.positions)
    world.start()
    world.live()
    assert (world.stored(b"deleted") is None) is dropped
    assert ("by a clock that was ahead" in caplog.text) is dropped
    assert world.stored(b"n") == b"1"


def test_the_last_resort_keeps_the_partition_going(tmp_path: Path) -> None:
    def fails(*_: Any) -> None:
        raise ValueError

    world = World(tmp_path, process=fails, failed=fails, completed=fails).live()
    world.processor.lives[0].post("x")
    world.put(b"{}")
    world.step()
    assert [topic for topic, *_ in world.kafka.sent if topic != Scripted.changelog] == [
        "agent.dead-letters"
    ]
    assert world.kafka.positions[INPUT].offset == 1


@pytest.mark.parametrize("source", ["record", "event", "timer"])
def test_an_input_whose_output_kafka_refuses_fails_alone(source: str, tmp_path: Path) -> None:
    def refuse(self: Scripted, ctx: Context, *_: Any) -> None:
        ctx.send("no such topic", None, b"x")

    def process(self: Scripted, ctx: Context, message: Message) -> None:
        if message.body.get("timer"):
            ctx.set_timer(1, b"t")
        elif message.body.get("bad"):
            refuse(self, ctx)
        else:
            count(self, ctx, message)

    world = World(tmp_path, process=process, completed=refuse, timer=refuse).live()
    world.kafka.refused = {"no such topic"}
    if source == "event":
        world.processor.lives[0].post("bad")
    bad = {"record": b'{"bad": 1}', "event": b"{}", "timer": b'{"timer": 1}'}[source]
    world.put(b"{}", b"{}", bad, b"{}")
    world.kafka.coming += [End("left", 0, 1_000), End("forwarded", 0, 1_000)]
    began = world.clock.monotonic()
    for _ in range(100):
        world.step()
        if world.processor.failures:
            break
    assert [type(error) for *_, error in world.processor.failures] == [Undeliverable]
    assert PATIENCE <= world.clock.monotonic() - began < PATIENCE + 10
    for _ in range(10):
        world.step()
    assert len(world.processor.failures) == 1
    assert world.stored(b"n") == (b"4" if source == "event" else b"3")
    assert world.kafka.positions[INPUT].offset >= 4
    world.kafka.calls.clear()
    world.put(b"{}", b"{}", at=1_000)
    world.step()
    assert world.kafka.names().count("commit") == 1  # in batches again


def bad_or_count(self: Scripted, ctx: Context, message: Message) -> None:
    if message.body.get("bad"):
        ctx.send("sick", None, b"x")
    else:
        count(self, ctx, message)


def test_a_record_too_large_for_its_topic_is_found_at_once(tmp_path: Path) -> None:
    world = World(tmp_path, process=bad_or_count).live()
    world.kafka.refused, world.kafka.refusal = {"sick"}, DoesNotFit
    world.put(b"{}", b'{"bad": 1}', b"{}")
    began = world.clock.monotonic()
    for _ in range(10):
        world.step()
    assert [type(error) for *_, error in world.processor.failures] == [Undeliverable]
    assert world.clock.monotonic() - began < 10
    assert world.stored(b"n") == b"2"


@pytest.mark.parametrize("source", ["record", "event"])
@pytest.mark.parametrize("aborts", [3, 6, 20, 1_100])
def test_a_fault_of_kafka_of_any_length_is_no_inputs(
    aborts: int, source: str, tmp_path: Path
) -> None:
    world = World(tmp_path, process=count, completed=lambda self, ctx, e: ctx.put(b"e", 1)).live()
    world.put(b"{}", b"{}")
    if source == "event":
        world.processor.lives[0].post("e")
    for _ in range(aborts):
        world.kafka.refused = {Scripted.changelog}
        world.step()
    world.kafka.refused.clear()
    for _ in range(5):
        world.step()
    assert world.processor.failures == []
    assert world.stored(b"n") == b"2"
    assert world.kafka.positions[INPUT].offset == 2


def test_a_topic_that_is_sick_for_some_seconds_is_waited_for(tmp_path: Path) -> None:
    """The rest of Kafka takes everything meanwhile: a new leader is being elected."""
    world = World(tmp_path, process=bad_or_count).live()
    world.kafka.refused = {"sick"}
    world.put(b"{}", b'{"bad": 1}', b"{}")
    began = world.clock.monotonic()
    while world.clock.monotonic() < began + 30:
        world.step()
    world.kafka.refused.clear()
    for _ in range(5):
        world.step()
    assert world.processor.failures == []
    assert world.stored(b"n") == b"2"
    assert [topic for topic, *_ in world.kafka.sent].count("sick") == 1


def test_what_stands_in_for_poison_and_is_refused_too_clears_the_input(tmp_path: Path) -> None:
    def failed(self: Scripted, ctx: Context, *_: Any) -> None:
        ctx.send("sick, too", None, b"x")

    world = World(tmp_path, process=bad_or_count, failed=failed).live()
    world.kafka.refused = {"sick", "sick, too"}
    world.put(b'{"bad": 1}', b"{}")
    for _ in range(200):
        world.step()
        if world.processor.failures:
            break
    world.kafka.refused.clear()
    for _ in range(5):
        world.step()
    assert len(world.processor.failures) == 1
    sent = [topic for topic, *_ in world.kafka.sent]
    assert (sent.count("sick"), sent.count("sick, too")) == (1, 0)


def test_timers_that_were_all_cancelled_are_forgotten(tmp_path: Path) -> None:
    def set_or_cancel(self: Scripted, ctx: Context, message: Message) -> None:
        due = 1_005_000
        (ctx.cancel_timer if "cancel" in message.body else ctx.set_timer)(due, b"t")

    world = World(tmp_path, process=set_or_cancel).live()
    timers = world.cycle._members.owned[0].timers
    world.put(b"{}", b'{"cancel": 1}')
    world.step()
    world.put(b"{}", at=2)
    world.step()
    world.put(b'{"cancel": 1}', at=3)
    world.step()
    assert timers.wake_at is not None
    world.clock.ms += 10_000
    world.kafka.coming += [End("left", 0, 1_000), End("forwarded", 0, 1_000)]
    world.step()
    world.step()
    assert (timers.wake_at, timers.asking, world.processor.fired) == (None, False, [])


def test_inputs_that_were_read_and_no_state_stop_the_partition(tmp_path: Path) -> None:
    before_us: list[bool] = []

    def noting(self: Scripted, ctx: Context, message: Message) -> None:
        before_us.append(ctx.taken_before)
        count(self, ctx, message)

    world = World(tmp_path, process=noting).live()
    assert not world.processor.lives[-1].began_anew
    world.put(b"{}")
    world.step()
    world.kafka.committed_offsets = dict(world.kafka.positions)
    world.kafka.log.clear()  # the changelog is deleted
    world.stores = MemoryStores()
    world.start()
    for _ in range(10):
        world.step()
    stopped = world.cycle._members.stopped[0]
    assert "holds no state, but the inputs have been read (left up to 1, " in stopped
    assert "--accept-loss counting.changelog-0" in stopped
    # The same offsets without our note are an operator's: go on without the state.
    world.kafka.committed_offsets = {
        spot: Position(at.offset) for spot, at in world.kafka.positions.items()
    }
    world.kafka.faults["begin"] = ProducerFenced("killed before its first transaction")
    world.start()
    with pytest.raises(ProducerFenced):
        world.live()
    assert world.processor.lives[-1].began_anew
    world.kafka.committed_offsets = dict(world.kafka.positions)
    world.start()
    world.live()
    assert world.processor.lives[-1].began_anew
    world.put(b"{}", at=1)
    world.step()
    assert world.stored(b"n") == b"1"
    assert before_us == [False, True]
    world.kafka.committed_offsets = dict(world.kafka.positions)
    world.start()
    world.live()
    assert not world.processor.lives[-1].began_anew


def test_a_rebuild_that_was_not_finished_stops_the_partition(tmp_path: Path) -> None:
    world = World(tmp_path, process=count)
    world.kafka.log.append(Record(Scripted.changelog, 0, 0, 0, REBUILDING_KEY, b"1"))
    for _ in range(10):
        world.step()
    assert "not finished: run it again" in world.cycle._members.stopped[0]


def test_lost_state_is_noticed_where_retention_has_reached_what_was_read(tmp_path: Path) -> None:
    world = World(tmp_path, process=count).live()
    world.put(b"{}")
    world.step()
    world.kafka.committed_offsets = dict(world.kafka.positions)
    world.kafka.starts_at = {spot: at.offset for spot, at in world.kafka.positions.items()}
    world.kafka.log.clear()
    world.stores = MemoryStores()
    world.start()
    for _ in range(10):
        world.step()
    assert "holds no state" in world.cycle._members.stopped[0]


def test_a_death_before_the_first_transaction_loses_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, process=count)
    world.kafka.faults["begin"] = ProducerFenced("killed here")

    def go_on() -> None:
        for _ in range(10):
            world.step()

    with pytest.raises(ProducerFenced):
        go_on()
    assert world.kafka.positions, "its id stands beside the offsets"
    world.kafka.committed_offsets = dict(world.kafka.positions)
    world.start()
    world.live()
