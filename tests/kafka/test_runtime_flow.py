"""What becomes of records, timers, calls in flight and partitions that change hands."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from perdure.streams.runtime.errors import (
    Aborted,
    DirectoryLocked,
    KafkaUnreachable,
    ProducerFenced,
)
from perdure.streams.runtime.health import HealthBoard
from perdure.streams.runtime.processor import Context, Hold, Message
from perdure.streams.runtime.runner import run
from perdure.streams.runtime.settings import RuntimeSettings

from tests.kafka.counting import CHANGELOG, FORWARDED, LEFT, LETTERS, OUT
from tests.kafka.driven import Driven
from tests.kafka.scripted import Scripted, out, owned_by
from tests.kafka.world import World, until

pytestmark = pytest.mark.kafka


@pytest.fixture
def world(broker: str, prefix: str) -> World:
    world = World(broker, prefix)
    world.create(LEFT, FORWARDED, OUT)
    world.create(CHANGELOG, cleanup_policy="compact")
    world.create(LETTERS, partitions=1)
    return world


def put(
    world: World,
    body: Any,
    key: bytes | None = None,
    partition: int = 0,
    headers: Any = None,
    topic: str = LEFT,
) -> None:
    value = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    world.put(topic, value, key, partition, headers)
    world.flush()


# Records


def test_a_record_on_a_foreign_partition_reaches_its_owner_as_it_was(
    world: World, tmp_path: Path
) -> None:
    processor = Scripted()
    driven = Driven(world, processor, tmp_path).live()
    run_id = owned_by(1)
    big = {"owner": run_id, "text": "x" * 3_900_000}
    put(world, {"owner": run_id}, b"\xff\xfe", 0, [("a", None), ("b", b"1")])
    put(world, big, None, 0)
    put(world, {"owner": run_id}, b"at home", 1)
    driven.until(lambda: len(processor.seen) == 3, "all processed")
    by_key = {r.key: r for r in processor.seen}
    first = by_key[b"\xff\xfe"]
    assert (first.topic, first.partition, first.offset, list(first.headers)) == (
        LEFT,
        0,
        0,
        [("a", None), ("b", b"1")],
    )
    assert json.loads(by_key[None].value or b"") == big
    assert first.timestamp == world.read(LEFT)[0].timestamp()[1]
    forwarded = world.read(FORWARDED)
    assert [(m.partition(), m.key()) for m in forwarded] == [(1, run_id.encode())] * 2
    driven.until(lambda: driven.health.forwarded == 2, "counted")
    driven.stop()


def test_a_record_misplaced_on_the_private_topic_is_not_sent_on_for_ever(
    world: World, tmp_path: Path
) -> None:
    processor = Scripted()
    driven = Driven(world, processor, tmp_path).live()
    put(world, {"owner": owned_by(0)}, b"k", 0, topic=FORWARDED)
    driven.until(lambda: driven.health.dead == 1, "buried")
    assert dict(world.read(LETTERS, 1)[0].headers())["reason"] == b"misrouted"
    assert processor.seen == []
    driven.stop()


def test_bad_records_are_buried_and_stop_nothing(world: World, tmp_path: Path) -> None:
    def fails(self: Scripted, ctx: Context, message: Message) -> None:
        if message.body.get("bad"):
            ctx.put(b"x", 1)
            out(ctx, "never seen")
            raise ValueError("a bug in one run")
        out(ctx, "good")

    def gives_up(
        self: Scripted, ctx: Context, message: Message, timer: Any, error: Exception
    ) -> None:
        assert ctx.get(b"x") is None
        ctx.dead_letter(message.record, "failed", str(error))

    processor = Scripted(process=fails, failed=gives_up)
    driven = Driven(world, processor, tmp_path).live()
    for value in (None, b"", b"{", b"\xff", b"skip", b"bug", b"x" * 2_000_000):
        put(world, value, b"\xff", 0, [("h", None)])
    put(world, {"bad": True})
    put(world, {})
    driven.worked_off(9)
    driven.until(lambda: world.values(OUT), "the good one is out")
    assert world.values(OUT) == ["good"]
    letters = world.read(LETTERS, 1)
    assert [(dict(m.headers())["reason"], dict(m.headers())["offset"]) for m in letters] == [
        (b"malformed", b"0"),
        (b"malformed", b"1"),
        (b"malformed", b"2"),
        (b"malformed", b"3"),
        (b"internal_error", b"5"),
        (b"malformed", b"6"),
        (b"failed", b"7"),
    ]
    assert letters[0].value() is None
    assert len(letters[5].value()) == 65_536
    assert dict(letters[5].headers())["length"] == b"2000000"
    driven.until(lambda: driven.health.dropped == 1, "counted")
    driven.stop()


def test_an_output_too_large_fails_its_input_only(world: World, tmp_path: Path) -> None:
    def too_large(self: Scripted, ctx: Context, message: Message) -> None:
        if message.body.get("big"):
            ctx.put(b"k", "x" * 1_000_000)
        out(ctx, "small")

    processor = Scripted(process=too_large)
    driven = Driven(world, processor, tmp_path).live()
    put(world, {"big": True})
    put(world, {})
    driven.worked_off(2)
    driven.until(lambda: world.values(OUT) == ["small"], "the small one is out")
    assert type(processor.failures[0][2]).__name__ == "TooLarge"
    driven.stop()


# Work that goes on after its cycle


def test_finished_records_are_not_handed_out_again(world: World, tmp_path: Path) -> None:
    holds: dict[int, Hold] = {}

    def hold(self: Scripted, ctx: Context, message: Message) -> None:
        holds[message.record.offset] = ctx.hold()

    first = Driven(world, Scripted(process=hold), tmp_path).live()
    for _ in range(6):
        put(world, {})
    first.until(lambda: len(holds) == 6, "all held")
    began = first.health.commits  # the first entries of a new changelog
    for offset in (0, 2, 5):
        holds[offset].finish()
    assert first.health.commits == began
    own = first.cycle._members.owned[0]
    first.until(lambda: own.unfinished == 3 and not own.dirty, "committed plainly")
    first.vanish()  # killed: calls 1, 3 and 4 were under way
    held_before = dict(holds)
    holds.clear()
    second = Driven(world, Scripted(process=hold), tmp_path, "two").live()
    put(world, {})
    second.until(lambda: 6 in holds, "the new one came")
    assert sorted(holds) == [1, 3, 4, 6]
    held_before[1].finish()  # of a dead assignment: ignored
    assert second.cycle._members.owned[0].unfinished == 4
    for held in holds.values():
        held.finish()
    second.until(
        lambda: second.cycle._members.owned[0].offsets[LEFT].committed == 7, "all finished"
    )
    second.stop()


def test_too_many_unfinished_pause_the_partition_and_lose_nothing(
    world: World, tmp_path: Path
) -> None:
    holds: list[Hold] = []

    def hold(self: Scripted, ctx: Context, message: Message) -> None:
        holds.append(ctx.hold())

    processor = Scripted(process=hold)
    driven = Driven(world, processor, tmp_path, max_unfinished=50, max_batch=20).live()
    for _ in range(500):
        world.put(LEFT, b"{}", None, 0)
    world.put(LEFT, b"{}", None, 1)
    world.flush()
    driven.until(lambda: driven.health.paused == (0,), "paused")
    driven.until(lambda: 1 in {r.partition for r in processor.seen}, "the other one goes on")
    assert len(processor.seen) == 51
    while len(processor.seen) < 501:
        for held in holds:
            held.finish()
        holds.clear()
        driven.step()
    assert [r.offset for r in processor.seen if r.partition == 0] == list(range(500))
    for held in holds:
        held.finish()
    driven.stop()


def test_a_posted_event_is_taken_promptly_and_again_after_an_abort(
    world: World, tmp_path: Path
) -> None:
    def emit(self: Scripted, ctx: Context, event: Any) -> None:
        out(ctx, event)

    def abort(_: Any) -> None:
        raise Aborted("as the test wants it")

    processor = Scripted(completed=emit)
    driven = Driven(world, processor, tmp_path).live()
    driven.until(lambda: driven.health.commits, "the first entry of a new changelog")
    began = driven.health.commits
    driven.faults.commit = abort
    threading.Thread(target=lambda: processor.lives[0].post("done")).start()
    driven.until(lambda: driven.health.commits > began, "committed")
    assert processor.events == ["done", "done"]
    assert world.values(OUT) == ["done"]
    driven.stop()


def test_a_call_of_a_former_assignment_is_nobodys(world: World, tmp_path: Path) -> None:
    """The partition goes and comes back while the call runs: its answer is dropped."""
    one = Scripted()
    first = Driven(world, one, tmp_path).live()
    old = {a.partition: a for a in one.lives}
    second = Driven(world, Scripted(), tmp_path, "two")

    def both() -> None:
        first.step()
        second.step()

    until(lambda: second.health.live and len(first.health.live) == 1, "one each", 20, both)
    moved = second.health.live[0]
    assert not old[moved].alive
    assert one.given_up == [old[moved]]
    second.stop()
    first.live()
    new = one.lives[-1]
    assert (new.partition, new.alive) == (moved, True)
    old[moved].post("of the old one")
    new.post("of the new one")
    first.until(lambda: one.events, "the new one's event")
    for _ in range(5):
        first.step()
    assert one.events == ["of the new one"]
    first.stop()


def test_a_revoke_waits_for_calls_that_write(world: World, tmp_path: Path) -> None:
    def emit(self: Scripted, ctx: Context, event: Any) -> None:
        out(ctx, event)
        ctx.put(b"done", event)

    one = Scripted(completed=emit)
    first = Driven(world, one, tmp_path).live()
    for assignment in one.lives:
        assignment.busy(1)

    def calls() -> None:
        until(lambda: one.given_up, "a revoke")
        ends = time.monotonic() + 0.3  # a call that takes so long after the revoke
        until(lambda: time.monotonic() >= ends, "the call's end")
        for assignment in one.lives:
            assignment.post(f"written {assignment.partition}")
            assignment.busy(-1)

    caller = threading.Thread(target=calls)
    caller.start()
    states: list[Any] = []
    two = Scripted(live=lambda self, ctx: states.append((ctx.partition, ctx.get(b"done"))))
    second = Driven(world, two, tmp_path, "two")

    def both() -> None:
        first.step()
        second.step()

    until(lambda: states, "the new owner is live", 20, both)
    caller.join()
    partition = states[0][0]
    assert states == [(partition, f"written {partition}")]
    first.stop()
    second.stop()


# Timers


def test_timers_fire_once_and_survive_their_owner(world: World, tmp_path: Path) -> None:
    def set_timers(self: Scripted, ctx: Context, message: Message) -> None:
        for i in range(3):
            ctx.set_timer(ctx.now + 1 + i, b"run/%d" % i)
        ctx.set_timer(ctx.now + 1, b"cancelled")
        ctx.cancel_timer(ctx.now + 1, b"cancelled")
        ctx.set_timer(ctx.now + 3_600_000, b"later")

    one = Scripted(process=set_timers, timer=lambda self, ctx, key, due: out(ctx, key.decode()))
    first = Driven(world, one, tmp_path).live()
    put(world, {})
    first.until(lambda: len(world.values(OUT)) == 3, "three fired")
    assert [key for key, _ in one.fired] == [b"run/0", b"run/1", b"run/2"]
    put(world, {})
    first.until(lambda: len(one.seen) == 2 and first.health.commits >= 3, "set again")
    first.vanish()
    two = Scripted(timer=lambda self, ctx, key, due: out(ctx, key.decode()))
    second = Driven(world, two, tmp_path, "two").live()
    second.until(lambda: len(world.values(OUT)) >= 6, "fired by the new owner")
    assert sorted(world.values(OUT)) == sorted(["run/0", "run/1", "run/2"] * 2)
    second.stop()


def test_what_came_in_time_beats_its_timeout_after_an_outage(world: World, tmp_path: Path) -> None:
    """The engine was down while the answer came and the timer passed: the answer is taken first."""

    def ask(self: Scripted, ctx: Context, message: Message) -> None:
        if "answer" in message.body:
            ctx.cancel_timer(ctx.get(b"due"), b"timeout")
            out(ctx, "answered")
        else:
            ctx.put(b"due", ctx.now + 400)
            ctx.set_timer(ctx.now + 400, b"timeout")

    first = Driven(world, Scripted(process=ask), tmp_path).live()
    put(world, {})
    first.worked_off(1)
    due = first.cycle._members.owned[0].timers.wake_at
    first.stop()
    for _ in range(3_000):
        world.put(LEFT, b"skip", None, 0)
    put(world, {"answer": 1})
    until(lambda: time.time() * 1000 > due, "the timer has passed")
    two = Scripted(process=ask)
    second = Driven(world, two, tmp_path, max_batch=100).live()
    second.until(lambda: world.values(OUT) == ["answered"], "answered")
    second.until(lambda: second.cycle._members.owned[0].timers.wake_at is None, "no timer left")
    assert two.fired == []
    second.stop()


def test_a_timer_that_fails_is_gone_and_named(world: World, tmp_path: Path) -> None:
    def breaks(self: Scripted, ctx: Context, key: bytes, due: int) -> None:
        raise ValueError("a bug")

    processor = Scripted(process=lambda self, ctx, message: ctx.set_timer(1, b"t"), timer=breaks)
    driven = Driven(world, processor, tmp_path).live()
    put(world, {})
    driven.until(lambda: processor.failures, "failed")
    for _ in range(20):
        driven.step()
    assert [(m, t) for m, t, _ in processor.failures] == [(None, b"t")]
    driven.stop()


# Global topics, starting and stopping


def test_nothing_is_live_before_the_global_topics_are_read(world: World, tmp_path: Path) -> None:
    world.create("agent.catalog", partitions=1, cleanup_policy="compact")
    for i in range(1_000):
        world.put("agent.catalog", b"v%d" % i, b"tool/%d" % (i % 100))
    world.put("agent.catalog", None, b"tool/0")
    world.flush()
    known: list[int] = []

    class WithCatalog(Scripted):
        global_topics = ("agent.catalog",)

    processor = WithCatalog(live=lambda self, ctx: known.append(len(self.table)))
    driven = Driven(world, processor, tmp_path).live()
    assert known == [100, 100]
    assert processor.table[b"tool/0"] is None
    assert processor.table[b"tool/99"] == b"v999"
    put(world, b"new", b"tool/new", topic="agent.catalog")
    driven.until(lambda: processor.table.get(b"tool/new") == b"new", "the new one")
    driven.stop()


def settings(world: World, directory: Path, **others: Any) -> RuntimeSettings:
    return RuntimeSettings(
        **(
            {
                "bootstrap_servers": world.bootstrap,
                "data_dir": directory,
                "topic_prefix": world.prefix,
                "instance_id": "one",
            }
            | others
        )
    )


class Running(threading.Thread):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(daemon=True)
        self.stop = threading.Event()
        self.board = HealthBoard()
        self.raised: BaseException | None = None
        self._arguments, self._named = arguments, named
        self.start()

    def run(self) -> None:
        try:
            run(*self._arguments, self.stop, board=self.board, **self._named)
        except BaseException as e:
            self.raised = e


class Other(Scripted):
    name = "other"


def test_two_processors_run_until_told_to_stop(world: World, tmp_path: Path) -> None:
    processors = [Scripted(), Other()]
    running = Running(processors, settings(world, tmp_path))
    until(
        lambda: (
            all(s.live == (0, 1) for s in running.board.snapshots()) and running.board.snapshots()
        ),
        "live",
    )
    put(world, {})
    until(lambda: all(p.seen for p in processors), "both have seen it")
    running.stop.set()
    running.join(10)
    assert running.raised is None
    assert not running.is_alive()


def test_a_stop_lets_work_in_flight_end(world: World, tmp_path: Path) -> None:
    holds: list[Hold] = []
    processor = Scripted(
        process=lambda self, ctx, message: holds.append(ctx.hold()),
        completed=lambda self, ctx, event: (out(ctx, event), ctx.after_commit(holds[0].finish)),
    )
    running = Running([processor], settings(world, tmp_path))
    until(lambda: len(processor.lives) == 2, "live")
    put(world, {})
    until(lambda: holds, "held")
    running.stop.set()
    until(lambda: processor.given_up, "told to start nothing more")
    put(world, {})
    processor.lives[0].post("the last")
    running.join(10)
    assert not running.is_alive()
    assert world.values(OUT) == ["the last"]
    assert len(processor.seen) == 1


def test_a_stop_does_not_wait_for_records_left_to_the_next_owner(
    world: World, tmp_path: Path
) -> None:
    holds: list[Hold] = []
    processor = Scripted(process=lambda self, ctx, message: holds.append(ctx.hold()))
    running = Running([processor], settings(world, tmp_path, drain_seconds=60))
    until(lambda: len(processor.lives) == 2, "live")
    put(world, {})
    until(lambda: holds, "held")
    holds[0].leave()
    running.stop.set()
    running.join(10)
    assert not running.is_alive()
    after = Scripted(process=lambda self, ctx, message: ctx.hold().finish())
    running = Running([after], settings(world, tmp_path))
    until(lambda: after.seen, "taken by the next")
    running.stop.set()
    running.join(10)
    assert len(after.seen) == 1


def test_who_has_my_identity_fences_me(world: World, tmp_path: Path) -> None:
    running = Running([Scripted(), Other()], settings(world, tmp_path / "a"))
    until(
        lambda: (
            len(running.board.snapshots()) == 2 and all(s.live for s in running.board.snapshots())
        ),
        "live",
    )
    second = Driven(
        world, Scripted(process=lambda self, ctx, message: out(ctx, "x")), tmp_path / "b"
    )
    for i in range(20):
        put(world, b"bug", None, i % 2)
    second.until(lambda: not running.is_alive(), "the first has ended")
    assert isinstance(running.raised, ProducerFenced)
    assert running.raised.exit_code == 5
    second.stop()


def test_a_second_process_on_the_directory_ends(world: World, tmp_path: Path) -> None:
    running = Running([Scripted()], settings(world, tmp_path))
    until(lambda: running.board.snapshots() and running.board.snapshots()[0].live, "live")
    with pytest.raises(DirectoryLocked, match="is in use by process"):
        run([Scripted()], settings(world, tmp_path), threading.Event())
    running.stop.set()
    running.join(10)


def test_kafka_that_cannot_be_reached_is_said_at_once(world: World, tmp_path: Path) -> None:
    unreachable = settings(world, tmp_path, bootstrap_servers="127.0.0.1:9", connect_timeout_ms=500)
    with pytest.raises(KafkaUnreachable, match=r"127\.0\.0\.1:9") as caught:
        run([Scripted()], unreachable, threading.Event())
    assert caught.value.exit_code == 3


def test_the_classic_protocol_works_too(world: World, tmp_path: Path) -> None:
    one, two = Scripted(), Scripted()
    first = Driven(world, one, tmp_path, group_protocol="classic", session_timeout_ms=6_000).live()
    second = Driven(world, two, tmp_path, "two", group_protocol="classic", session_timeout_ms=6_000)

    def both() -> None:
        first.step()
        second.step()

    until(
        lambda: len(second.health.live) == 1 and len(first.health.live) == 1, "one each", 30, both
    )
    put(world, {}, partition=0)
    put(world, {}, partition=1)
    until(lambda: len(one.seen) == len(two.seen) == 1, "each took its own", 20, both)
    first.stop()
    second.live().stop()
