"""A world for the pure core: a catalog, the commands in flight and a clock moved by hand.

Every test goes through `World.feed`, which checks each decision: folding all events, after they
went through JSON, gives the live state; the chain of hashes and the versions hold; each status
change is in the table (a copy of lifecycle section 1, not the core's); the open questions are the
header's; a run that has not ended waits for something; a refusal changes nothing.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec
from perdure.schemas import codec
from perdure.schemas.records import (
    ActionCommand,
    ActionError,
    ActionRecord,
    ActionResult,
    AgentSpec,
    ApprovalDecision,
    ApprovalRule,
    Budget,
    BudgetPolicy,
    ControlRequest,
    ForkOf,
    ModelSpec,
    Outcome,
    PlanStep,
    RunEvent,
    Task,
    ToolSpec,
    Usage,
)
from perdure.streams.core.apply import begin, evolve, fold
from perdure.streams.core.decide.decision import Decision, Refusal
from perdure.streams.core.decide.dispatch import decide
from perdure.streams.core.decide.fork import fork
from perdure.streams.core.decide.inputs import Control, Decided, StartTask, Timer
from perdure.streams.core.decide.task import start
from perdure.streams.core.effects import effects
from perdure.streams.core.planning import window
from perdure.streams.core.policies import outcome
from perdure.streams.core.state import Action, Approval, RecordKey, Run

BEGAN = 1_700_000_000_000
NOTHING_SENT = {"kind": "transient", "code": "connect_refused", "message": "refused"}

STATUS = {  # lifecycle section 1, written down once more
    "running": {"waiting_approval", "compensating", "done", "failed", "cancelled"},
    "waiting_approval": {"running", "cancelled"},
    "compensating": {"failed", "cancelled"},
    "failed": {"running", "cancelled"},
    "done": set(),
    "cancelled": set(),
}
FINAL = {"done", "failed", "cancelled"}
WAITS_FOR_OUTSIDE = {"requested", "started", "unknown", "querying", "backing_off"}
SMALL = 150
"""Up to so many events everything is compared after each decision; beyond, what was written."""


def tool(name: str, effect: str = "read_only", **values: Any) -> ToolSpec:
    """A tool that asks nobody unless told so."""
    return ToolSpec(name=name, effect=effect, **{"approval": "never", **values})


def agent(*tools: str, **values: Any) -> AgentSpec:
    """An agent named ``demo`` whose model is a script kept by the test."""
    defaults = {
        "name": "demo",
        "instructions": "Be careful.",
        "model": ModelSpec(provider="scripted", name="m", replies=[]),
        "tools": list(tools),
        "budget": BudgetPolicy(),
        "handover_after": 1000,  # most tests repeat one call
    }
    return AgentSpec(**{**defaults, **values})


def rule(**values: Any) -> ApprovalRule:
    return ApprovalRule(**values)


def check_pairing(messages: list[dict[str, Any]]) -> None:
    """Each call is followed by its own result, in order, and no result stands alone."""
    waiting: list[str] = []
    seen: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            assert waiting, "a result without its call"
            assert message["tool_call_id"] == waiting.pop(0)
            assert isinstance(message["content"], str)
            continue
        assert not waiting, f"calls without results: {waiting}"
        assert message["role"] in ("system", "user", "assistant")
        for call in message.get("tool_calls", ()):
            assert call["id"] not in seen
            assert isinstance(call["arguments"], dict)
            seen.add(call["id"])
            waiting.append(call["id"])
    assert not waiting, f"calls without results: {waiting}"


def waits_for_key(action: Action) -> bool:
    """Another call has its declared key: it goes on when that one is over."""
    return action.status == "backing_off" and (action.error or {}).get("code") == "SAME_KEY"


def summarises(command: ActionCommand) -> bool:
    return (command.request or {}).get("purpose") == "summary"


class World:
    """One run and what is around it."""

    def __init__(self, *tools: ToolSpec, agent_spec: AgentSpec | None = None) -> None:
        self.tools = {spec.name: spec for spec in tools}
        self.agents = {"demo": agent_spec or agent(*self.tools)}
        self.queue_problems: dict[str, str] = {}
        self.now = BEGAN
        self.events: list[RunEvent] = []
        self.commands: list[ActionCommand] = []
        self.sent: list[ActionCommand] = []
        self.records: dict[RecordKey, Any] = {}
        self._run: Run | None = None
        self._folded: Run | None = None
        self._folded_records: dict[RecordKey, Any] = {}
        self._status = ""
        self.summary = "what happened so far"
        """The answer to each call for a summary; empty: the test answers it itself."""

    # --- the lookup that the core sees -------------------------------------------------------

    def agent(self, name: str) -> AgentSpec | None:
        return self.agents.get(name)

    def tool(self, name: str) -> ToolSpec | None:
        return self.tools.get(name)

    def agent_names(self) -> list[str]:
        return list(self.agents)

    def queue_problem(self, queue: str) -> str | None:
        return self.queue_problems.get(queue)

    def value(self, value: Any) -> Any:
        return value

    def beginning(self, value: Any, most: int) -> str | None:
        return None

    def keep(self, value: Any, above: int = 0) -> Any:
        return value

    # --- what a test does --------------------------------------------------------------------

    def start(self, input: Any = "do it", run_id: str = "r1", **task: Any) -> Decision | Refusal:
        made = Task(
            **{"agent": "demo", "task_id": run_id, "input": input, "user_id": "uma", **task}
        )
        made = codec.decode(codec.encode(made), Task)
        origin = {"topic": "agent.tasks", "partition": 0, "offset": 1}
        message = StartTask(made, run_id, "abcd1234", "digest", origin)
        found = start(message, lambda key: None, self.now, self)
        if isinstance(found, Decision):
            self._accept(found)
        return found

    def fork(
        self, source: World, version: int | None = None, run_id: str = "r2", **task: Any
    ) -> Decision | Refusal:
        """This world's run begins as a fork of another world's."""
        self.now = max(self.now, source.now)
        at = len(source.events) if version is None else version
        head = source.events[at - 1].hash if 0 < at <= len(source.events) else "none"
        made = Task(
            agent=task.pop("agent", "demo"),
            task_id=run_id,
            fork_of=ForkOf(task.pop("source_id", "r1"), at, task.pop("hash", head)),
            **task,
        )
        made = codec.decode(codec.encode(made), Task)
        origin = {"topic": "agent.tasks", "partition": 1, "offset": 9}
        message = StartTask(made, run_id, "dcba4321", "digest2", origin)
        found = fork(message, source.events, lambda key: None, self.now, self)
        if isinstance(found, Decision):
            self._accept(found)
        return found

    def feed(self, message: Any, seconds: float = 0.01) -> Decision | Refusal:
        """The one way to the core; ``seconds`` pass first."""
        self.now += int(seconds * 1000)
        before = self._picture()
        found = decide(self.run, message, self.now, self)
        assert self._picture() == before, "decide changed the run it was given"
        if isinstance(found, Decision):
            assert found.events
            self._accept(found)
        else:
            assert found.reason
        return found

    def summarise(self, text: str | None = None) -> None:
        """The answer to the call for a summary that is in flight."""
        command = next(command for command in self.commands if summarises(command))
        made = {"content": text or self.summary, "tool_calls": [], "finish_reason": "stop"}
        self.answer(command, result=made, usage=Usage(20, 10, 0.25))

    def plan(self, *steps: PlanStep, **task: Any) -> Decision | Refusal:
        return self.start(plan=list(steps), **task)

    def command(self, target: str | None = None, verb: str | None = None) -> ActionCommand:
        """The oldest command in flight (of a target, of a verb)."""
        for command in self.commands:
            if target in (None, command.target) and verb in (None, command.verb):
                return command
        raise AssertionError(f"no command {verb} {target}; there are {self.commands}")

    def answer(
        self, command: ActionCommand, status: str = "succeeded", **values: Any
    ) -> Decision | Refusal:
        """A worker's answer, by the command it answers."""
        if status not in ("started", "progress") and command in self.commands:
            self.commands.remove(command)
        seconds = values.pop("seconds", 0.01)
        if isinstance(values.get("error"), dict):
            values["error"] = ActionError(**values["error"])
        result = ActionResult(
            command.run_id,
            command.action_id,
            values.pop("attempt", command.attempt),
            status,
            worker="w1",
            **values,
        )
        return self.feed(codec.decode(codec.encode(result), ActionResult), seconds)

    def fails(
        self, command: ActionCommand, kind: str, code: str = "", **error: Any
    ) -> Decision | Refusal:
        made = {"kind": kind, "code": code, "message": "it went wrong", **error}
        return self.answer(command, "failed", error=made)

    def reply(
        self,
        content: str | None = None,
        *calls: tuple[str, Any],
        target: str = "m",
        **values: Any,
    ) -> Decision | Refusal:
        """The model's reply to the request in flight."""
        made = {
            "content": content,
            "tool_calls": [{"name": name, "arguments": given} for name, given in calls],
            "finish_reason": "tool_calls" if calls else "stop",
            **{name: value for name, value in values.items() if name != "seconds"},
        }
        passed = values.get("seconds", 0.01)
        return self.answer(
            self.command(target), result=made, usage=Usage(10, 5, 0.5), seconds=passed
        )

    def decide(
        self, decision: str, approver: str = "ann", n: int | None = None, **values: Any
    ) -> Decision | Refusal:
        """A person's decision on the newest question, or on number ``n``."""
        number = n if n is not None else self.header.next_approval - 1
        at = values.pop("at", self.now)
        values.setdefault("approval_id", self.run.approval_id(number))
        word = ApprovalDecision(decision=decision, approver=approver, **values)
        word = codec.decode(codec.encode(word), ApprovalDecision)
        return self.feed(Decided(word, f"{word.approval_id}/{approver}/{decision}", at))

    def control(self, command: str, **values: Any) -> Decision | Refusal:
        request = ControlRequest(
            run_id=self.header.run_id, command=command, **{"by": "uma", **values}
        )
        return self.feed(Control(request, "q1"))

    def timer(self, name: str | None = None) -> Decision | Refusal:
        """The clock moves to the next timer (or to the one named), which fires."""
        timers = self.header.timers
        chosen = name or min(timers, key=lambda key: (timers[key], key))
        self.now = max(self.now, timers[chosen])
        return self.feed(Timer(chosen), 0)

    # --- what a test looks at ----------------------------------------------------------------

    @property
    def run(self) -> Run:
        assert self._run is not None
        return self._run

    @property
    def header(self) -> Any:
        return self.run.header

    @property
    def status(self) -> str:
        return str(self.header.status)

    def action(self, n: int) -> Action:
        return self.run.action(n)

    def approval(self, n: int | None = None) -> Approval:
        found = self.run.approval(self.header.next_approval - 1 if n is None else n)
        assert found is not None
        return found

    def step(self, step_id: str) -> str:
        return str(self.header.plan[step_id]["status"])

    def types(self) -> list[str]:
        return [event.type for event in self.events]

    def waits(self) -> list[dict[str, Any]]:
        return outcome.waiting_for(self.run)

    def outcome(self) -> Outcome:
        """The outcome as a reader of its topic gets it."""
        return codec.decode(codec.encode(outcome.build(self.run)), Outcome)

    def listed(self) -> dict[str, list[str]]:
        """Tool names by the outcome's lists."""
        made = self.outcome()
        names = ["completed", "not_completed", "in_doubt"] + (["degraded"] if made.degraded else [])
        return {name: [record["tool"] for record in getattr(made, name)] for name in names}

    # --- the checks --------------------------------------------------------------------------

    def _picture(self) -> bytes:
        if len(self.events) > SMALL:
            return msgspec.json.encode(self.run.header)
        records = [[*key, value] for key, value in sorted(self.records.items())]
        return msgspec.json.encode([self.run.header, records])

    def _accept(self, decision: Decision) -> None:
        written = decision.run.writes
        self.records.update(written)  # as a store does: the next decision reads these
        self._run = Run(decision.run.header, self.records.get)
        for event in decision.events:
            raw = codec.encode(event)
            self._check_chain(event, raw)
            copied = msgspec.json.decode(raw, type=RunEvent)
            self.events.append(copied)
            if self._folded is None:
                self._folded = begin(copied, self._folded_records.get)
            else:
                evolve(self._folded, copied)
        self._check_fold(written)
        self._check_shape()
        for event in decision.events[decision.copied :]:
            for found in effects(decision.run, event):
                self._take(found.command)
        if self.summary and any(map(summarises, self.commands)):
            self.summarise()

    def _take(self, command: ActionCommand) -> None:
        copied = command
        if len(self.events) <= SMALL:
            copied = codec.decode(codec.encode(command), ActionCommand)
            assert copied == command
        if copied.request is not None:
            check_pairing(copied.request["messages"])
        self.commands.append(copied)
        self.sent.append(copied)

    def _check_chain(self, event: RunEvent, raw: bytes) -> None:
        last = self.events[-1] if self.events else None
        assert event.previous_hash == (last.hash if last else "")
        assert event.version == (last.version + 1 if last else 1)
        assert event.at >= (last.at if last else 0)
        if event.version <= SMALL or event.version % 8 == 0:
            plain = json.loads(raw)
            told = plain.pop("hash")
            text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            assert told == hashlib.sha256((event.previous_hash + text).encode()).hexdigest()
        after = {
            "run_started": lambda data: "running",
            "status_changed": lambda data: data["to"],
            "run_finished": lambda data: data["status"],
        }.get(event.type)
        if after is not None:
            status = after(event.data)
            assert not self._status or status in STATUS[self._status], (self._status, status)
            self._status = status

    def _check_fold(self, written: dict[RecordKey, Any]) -> None:
        made = self._folded
        assert made is not None
        assert made.header == self.header
        assert made.writes == written
        self._folded_records.update(made.writes)
        made.writes = {}
        if len(self.events) <= SMALL:
            whole = fold(self.events)
            assert whole is not None
            assert whole.header == self.header
            assert whole.writes == self.records

    def _check_shape(self) -> None:
        header, run = self.run.header, self.run
        assert header.status == self._status
        assert header.version == self.events[-1].version
        assert header.hash == self.events[-1].hash
        asked = [run.approval(n) for n in range(1, header.next_approval)]
        assert [approval.n for approval in asked if approval.open] == sorted(header.asks)
        if header.status in FINAL:
            self._check_final()
            return
        open_actions = [run.action(n) for n in header.open]
        moving = [a for a in open_actions if a.status in WAITS_FOR_OUTSIDE and not waits_for_key(a)]
        if (header.ending is None or header.undoing) and not header.paused:
            assert moving or header.asks, "the run waits for nothing"
        for action in moving:
            timed = f"act/{action.n}" in header.timers
            assert timed or (action.status == "backing_off" and header.paused)
        assert all(f"ask/{n}" in header.timers for n in header.asks)
        if header.undoing or header.status == "compensating":
            assert header.status == "compensating"
        else:
            asks = header.asks and not moving
            assert header.status == ("waiting_approval" if asks else "running")
        asks = {"clarification", "authority", "handover"}  # what a built-in call may wait for
        held = {"failed": {"handover", "authority"}, "in_doubt": {"in_doubt"}}
        for action in open_actions:
            questions = [asked[n - 1] for n in header.asks]
            kinds = [q.kind for q in questions if (q.asked_by or q.action) == action.n]
            may = held.get(action.status)
            if action.status == "waiting_approval":
                may = asks if action.kind == "builtin" else {"action"}
            elif action.status == "proposed" and kinds:  # it goes round in circles
                may = {"handover"}
            assert len(kinds) == (0 if may is None else 1)
            assert may is None or kinds[0] in may
        for n in header.notices:
            assert f"act/{n}" in header.timers

    def _check_final(self) -> None:
        header = self.run.header
        assert not header.open
        assert not header.asks
        assert list(header.timers) == ["purge"]
        if len(self.events) > SMALL:
            return
        made = self.outcome()
        numbers = set()
        for name in ("completed", "not_completed", "in_doubt", "compensated", "degraded"):
            for plain in getattr(made, name):
                record = msgspec.convert(plain, ActionRecord)
                assert record.phase == "finished"
                numbers.add(record.action_id)
        actions = [self.run.action(n) for n in range(1, header.next_action)]
        anew = {
            a.n for a in actions if a.step_id and header.plan[a.step_id].get("n") not in (None, a.n)
        }
        anew |= {a.n for a in actions if a.replaced}
        tools = [a.n for a in actions if a.kind == "tool" and a.n not in anew]
        assert numbers == {f"{header.run_id}/{n}" for n in tools}
        state = outcome.run_state(self.run, window.request_messages(self.run))
        assert json.loads(msgspec.json.encode(state))["status"] == header.status


def refused(found: Decision | Refusal, *words: str) -> None:
    """It was refused, with a reason that has these words in it."""
    assert isinstance(found, Refusal), "it was accepted"
    for word in words:
        assert word in found.reason, found.reason


def accepted(found: Decision | Refusal) -> Decision:
    assert isinstance(found, Decision), found
    return found


__all__ = [
    "BEGAN", "NOTHING_SENT", "Budget", "BudgetPolicy", "PlanStep", "World", "accepted", "agent",
    "check_pairing", "refused", "rule", "tool",
]  # fmt: skip
