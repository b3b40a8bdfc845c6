"""The invariants of the lifecycle (section 9), judged from the topics and the outside.

Reads what any client could read, with a fold of its own (``history.py``). Only for "fold of
events = state" the product's appliers and its loader are asked, in `_states_differ` alone.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from perdure.schemas import topics
from perdure.streams.runtime.store import META_KEY

from .broker.log import Log
from .history import ENDED, RunHistory, Seen, canonical
from .notices import misinformed
from .outside import Outside
from .undoings import unbalanced
from .world import World


@dataclass
class Asked:
    """What clients put on the inbound topics, and what must become of it."""

    tasks: dict[str, str] = field(default_factory=dict)
    """Run id: "run" (must end), "refused" (must get a failed outcome) or "either" (its tools may not
    be announced in time)."""
    requests: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(run id, request id) of decisions and control requests: so many verdicts."""
    buried: dict[tuple[str, int, int], str] = field(default_factory=dict)
    """Topic, partition, offset of a record that must be dead-lettered: its reason."""
    conflicts: list[set[tuple[str, int, int]]] = field(default_factory=list)
    """Records of one task id and different content: all but one must be dead-lettered."""
    may_be_buried: set[tuple[str, int, int]] = field(default_factory=set)


class Reader:
    """Reads a topic on from where it stopped, as a read_committed consumer would."""

    def __init__(self, world: World, topic: str) -> None:
        self._logs: list[Log] = world.broker.topics[topic].logs
        self._at = [0] * len(self._logs)

    def news(self) -> list[Any]:
        found: list[Any] = []
        for i, log in enumerate(self._logs):
            if log.stable > self._at[i]:
                self._at[i] = log.committed_from(self._at[i], 10**9, found)
        return found


class Judge:
    """Follows a world; ``wrong`` is what it found, the first first."""

    def __init__(
        self, world: World, outside: Outside, asked: Asked, *, asks_always: frozenset[str]
    ) -> None:
        self.world = world
        self.outside = outside
        self.asked = asked
        self.asks_always = asks_always
        self.seen = Seen()
        self.runs: dict[str, RunHistory] = {}
        self.wrong: list[str] = []
        self.commands: list[dict[str, Any]] = []
        self._events = Reader(world, topics.EVENTS)
        self._commands = [Reader(world, topics.commands(queue)) for queue in topics.QUEUES]
        self._committed: dict[tuple[str, int], str] = {}
        self._groups = [f"perdure.{p}" for p in ("engine", "worker.tools", "worker.models")]
        self._positions: dict[tuple[str, Any], int] = {}
        self._looks = 0
        self.unfinished = 0
        self.more: list[Callable[[], Iterable[str]]] = []
        """What else is judged at rest."""

    # --- after each step -----------------------------------------------------------------------

    def look(self) -> None:
        """What is cheap: the new events, the new commands, the outside, the offsets."""
        touched = {self._event(msgspec.json.decode(r.value)) for r in self._events.news()}
        for run_id in sorted(touched):
            held = self.runs[run_id].held_up()
            if held is not None:
                self.wrong.append(f"5: run {run_id} version {self.runs[run_id].version}: {held}")
        for reader in self._commands:
            for record in reader.news():
                self.commands.append(msgspec.json.decode(record.value))
        if self.outside.violations:
            self.wrong += self.outside.violations
            self.outside.violations = []
        if self.world.oddities:
            self.wrong += [f"odd: {text}" for text in self.world.oddities]
            self.world.oddities = []
        self._looks += 1
        if self._looks % 16 == 0:
            self._offsets_go_on()

    def _event(self, event: dict[str, Any]) -> str:
        run = self.runs.get(event["run_id"])
        if run is None:
            run = self.runs[event["run_id"]] = RunHistory(event["run_id"], self.seen)
            self.unfinished += 1
        ended = run.status in ENDED
        run.take(event)
        self.unfinished += ended - (run.status in ENDED)
        at = (event["run_id"], event["version"])
        if self._committed.setdefault(at, event["hash"]) != event["hash"]:
            self.wrong.append(f"9: run {at[0]} has two events of version {at[1]}")
        if run.wrong:
            self.wrong += run.wrong
            run.wrong = []
        return run.run_id

    def _offsets_go_on(self) -> None:
        """9: what a group has committed never goes back."""
        for name in self._groups:
            for spot, position in self.world.broker.offsets(name).items():
                known = self._positions.get((name, spot), 0)
                if position.offset < known:
                    self.wrong.append(f"9: {name} went back on {spot} to {position.offset}")
                self._positions[name, spot] = position.offset

    @property
    def at_rest(self) -> bool:
        """All that was asked has ended, as far as the events tell."""
        if self.unfinished:
            return False
        return all(
            what == "refused" or run_id in self.runs or self._refused(run_id, what)
            for run_id, what in self.asked.tasks.items()
        )

    def _refused(self, run_id: str, what: str) -> bool:
        return what == "either" and self.world.outcome(run_id) is not None

    # --- at rest -------------------------------------------------------------------------------

    def judge(self) -> list[str]:
        """Everything, once nothing moves any more."""
        self.look()
        checks: tuple[Callable[[], None], ...] = (
            self._tasks_ended,
            self._outcomes_agree,
            lambda: self.wrong.extend(unbalanced(self.runs, self.outside, self.world.outcome)),
            lambda: self.wrong.extend(misinformed(self.runs, self.outside)),
            self._approved_calls_only,
            self._each_command_once,
            self._each_request_answered,
            self._pending_is_open,
            self._dead_letters,
            self._stores,
            self._states,
        )
        for check in checks:
            check()
        self.wrong += [text for each in self.more for text in each()]
        return self.wrong

    def _no(self, text: str) -> None:
        self.wrong.append(text)

    def _tasks_ended(self) -> None:
        for run_id, what in self.asked.tasks.items():
            run = self.runs.get(run_id)
            outcome = self.world.outcome(run_id)
            if what == "refused" or (what == "either" and run is None):
                if run is not None or outcome is None or outcome["status"] != "failed":
                    self._no(f"1: the refused task {run_id} has no failed outcome")
            elif run is None or run.status not in ENDED:
                self._no(f"1: task {run_id} is {'lost' if run is None else run.status}")
        for run_id in self.runs:
            if self.asked.tasks.get(run_id) not in ("run", "either"):
                self._no(f"1: run {run_id} was never asked for")

    def _outcomes_agree(self) -> None:
        """3: completed happened, not completed did not."""
        happened = self.outside.by_action
        for run_id, run in self.runs.items():
            outcome = self.world.outcome(run_id)
            if outcome is None:
                self._no(f"3: run {run_id} has no outcome")
                continue
            if (outcome["version"], outcome["hash"]) != (run.version, run.hash):
                self._no(f"3: the outcome of {run_id} is not of its last event")
            listed: set[str] = set()
            for name in ("completed", "not_completed", "in_doubt", "compensated", "degraded"):
                for record in outcome[name]:
                    action_id = record["action_id"]
                    listed.add(action_id)
                    if record["effect"] == "read_only":
                        continue
                    n = int(action_id.rpartition("/")[2])
                    done = name in ("completed", "compensated")
                    by_hand = run.actions[n].get("by_hand", False)
                    if done and not happened[self._origin(action_id)] and not by_hand:
                        self._no(f"3: {action_id} is {name} and did not happen")
                    if name == "not_completed" and happened[action_id]:
                        self._no(f"3: {action_id} is not completed and happened")
            for n in run.actions:
                action_id = f"{run_id}/{n}"
                if action_id not in listed and (
                    run.counts(n) or (happened[action_id] and run.is_tool(n))
                ):
                    self._no(f"3: {action_id} is in no list of the outcome")
        for key, count in self.outside.by_key.items():
            if count > 1:
                self._no(f"2: {key} happened {count} times")

    def _origin(self, action_id: str) -> str:
        """Where an action happened: a fork's finished ones in the run it is of."""
        run_id, _, n = action_id.rpartition("/")
        found = self.runs[run_id].inherited.get(int(n))
        return action_id if found is None else self._origin(found)

    def _approved_calls_only(self) -> None:
        """6: what asks was answered yes before it ran, and what ran is what was shown."""
        keys: dict[str, str] = {}
        for command in self.commands:
            action_id, key = command["action_id"], command["idempotency_key"]
            if keys.setdefault(action_id, key) != key:
                self._no(f"2: two keys for {action_id}")
            if not key.startswith(f"{command['run_id']}/"):
                self._no(f"2: {action_id} is called with another run's key {key}")
            if self._origin(action_id) != action_id:
                self._no(f"2: {action_id} is called, and was {self._origin(action_id)}'s call")
            if command["verb"] != "call" or command["run_id"] not in self.runs:
                continue
            run = self.runs[command["run_id"]]
            n = int(action_id.rpartition("/")[2])
            asked = [q for q in run.questions.values() if (q["kind"], q["action"]) == ("action", n)]
            if command["target"] in self.asks_always and not asked:
                self._no(f"6: {action_id} was called and nobody was asked")
            for question in asked:
                if question["yes"] is None:
                    self._no(f"6: {action_id} was called without a yes")
                elif canonical(question["arguments"]) != canonical(command.get("arguments")):
                    self._no(f"6: {action_id} ran with other arguments than shown")
        if len(set(keys.values())) != len(keys):
            self._no("2: two actions have one key")

    def _each_command_once(self) -> None:
        made: Counter[tuple[str, int, str]] = Counter()
        for command in self.commands:
            made[command["action_id"], command["attempt"], command["verb"]] += 1
        wanted: Counter[tuple[str, int, str]] = Counter()
        cancels: Counter[str] = Counter()
        for run_id, run in self.runs.items():
            for (n, attempt), times in run.requested.items():
                wanted[f"{run_id}/{n}", attempt, "call"] += times
                if times > 1:
                    self._no(f"2: attempt {attempt} of {run_id}/{n} was requested {times} times")
            for (n, attempt), times in run.queried.items():
                wanted[f"{run_id}/{n}", attempt, "query"] += times
            for n, times in run.cancels.items():
                cancels[f"{run_id}/{n}"] += times
        for (action_id, attempt, verb), times in made.items():
            if verb == "cancel":
                cancels[action_id] -= times
            elif wanted[action_id, attempt, verb] != times:
                self._no(
                    f"command: {verb} of {action_id} attempt {attempt} stands there {times} times"
                )
        for at, times in wanted.items():
            if made[at] != times:
                self._no(f"command: {at} was decided {times} times and sent {made[at]} times")
        for action_id, left in cancels.items():
            if left:
                self._no(f"command: {left} cancels of {action_id} are missing")

    def _each_request_answered(self) -> None:
        given: Counter[tuple[str, str]] = Counter()
        for verdict in self.world.documents(topics.VERDICTS):
            given[verdict["run_id"], verdict["request_id"]] += 1
        for at, times in self.asked.requests.items():
            if given[at] != times:
                self._no(f"verdict: {at} was asked {times} times and answered {given[at]} times")
        for at in given:
            if at not in self.asked.requests:
                self._no(f"verdict: {at} was never asked")

    def _pending_is_open(self) -> None:
        there = set(self.world.questions())
        open_now = {
            f"{run_id}/a{n}"
            for run_id, run in self.runs.items()
            for n, question in run.questions.items()
            if question["open"]
        }
        if there != open_now:
            self._no(f"10: pending has {sorted(there ^ open_now)} more or less than is open")

    def _dead_letters(self) -> None:
        found: dict[tuple[str, int, int], str] = {}
        for record in self.world.records(topics.DEAD_LETTERS):
            headers = {name: (value or b"").decode() for name, value in record.headers}
            at = (headers["topic"], int(headers["partition"]), int(headers["offset"]))
            if at in found:
                self._no(f"dead letter: {at} is there twice")
            found[at] = headers["reason"]
            if at not in self.asked.buried and not (
                (headers["reason"] == "refused" and at in self.asked.may_be_buried)
                or (headers["reason"] == "conflict" and any(at in c for c in self.asked.conflicts))
            ):
                self._no(f"dead letter: {at} ({headers['reason']}: {headers['detail']})")
        for at, reason in self.asked.buried.items():
            if at not in found:
                self._no(f"dead letter: {at} ({reason}) is missing")
        for group in self.asked.conflicts:
            if len(group & found.keys()) != len(group) - 1:
                self._no(f"dead letter: of {sorted(group)} one must stand and the others not")

    # --- stores and state ----------------------------------------------------------------------

    def _changelog(self, processor: str, partition: int) -> dict[bytes, bytes]:
        kept: dict[bytes, bytes] = {}
        for record in self.world.broker.read(topics.changelog(processor), partition):
            if record.value is None:
                kept.pop(record.key or b"", None)
            else:
                kept[record.key or b""] = record.value
        return kept

    def _stores(self) -> None:
        """4: the store of a live partition is its changelog."""
        for process in self.world.processes.values():
            life = process.life
            if life is None:
                continue
            for run in life.runs:
                name = run.processor.name
                for partition in life.board.of(name).snapshot().live:
                    image = process.disk.images.get((name, partition))
                    if image is None:
                        continue
                    stored = {k: v for k, v in image.scan(b"") if k != META_KEY}
                    if stored != self._changelog(name, partition):
                        self._no(
                            f"4: the store of {name}-{partition} at {process.name} is not its changelog"
                        )

    def _states(self) -> None:
        kept: dict[bytes, bytes] = {}
        for partition in range(self.world.broker.partition_count(topics.EVENTS)):
            kept.update(self._changelog("engine", partition))
        for key in kept:
            if key[:2] == b"q/":
                self._no(f"quarantine: {key!r}")
            elif key[:2] in (b"h/", b"w/"):
                self._no(f"1: {key!r} still waits")
        events: dict[str, list[bytes]] = {}
        for record in self.world.records(topics.EVENTS):
            events.setdefault((record.key or b"").decode(), []).append(record.value or b"")
        again = {
            (e["run_id"], e["version"]): e["hash"]
            for raws in events.values()
            for e in map(json.loads, raws)
        }
        if again != self._committed:
            self._no("9: the events are not those that were seen")
        for run_id, raws in events.items():
            wanted = run_id.encode()
            own = {
                key: raw
                for key, raw in kept.items()
                if key[1:2] == b"/" and (key[2:] == wanted or key[2:].startswith(wanted + b"/"))
            }
            found = _states_differ(run_id, raws, own)
            if found is not None:
                self._no(f"4: run {run_id}: {found}")


def _states_differ(run_id: str, events: list[bytes], stored: dict[bytes, bytes]) -> str | None:
    """Fold the events with the product's appliers, and compare with what its loader makes of the
    changelog. The one place that asks the product."""
    from perdure.schemas import codec
    from perdure.schemas.records import RunEvent
    from perdure.streams.core.apply import fold
    from perdure.streams.engine import checkpoints

    mine = fold(codec.decode(raw, RunEvent) for raw in events)
    loaded = checkpoints.load(checkpoints.Stored(stored), run_id)
    if mine is None or loaded is None:
        return "it is not in the changelog"
    theirs = loaded[0]
    if mine.header != theirs.header:
        names = [
            name
            for name in mine.header.__struct_fields__
            if getattr(mine.header, name) != getattr(theirs.header, name)
        ]
        return f"the header differs in {', '.join(names)}"
    for key, value in mine.writes.items():
        if theirs.get(key) != value:
            return f"the record {key} differs"
    return None
