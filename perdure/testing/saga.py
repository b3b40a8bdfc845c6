"""One saga through the simulated world: six writes, an end that undoes them, one death meanwhile.

Theory of operation. An agent books six places with tools of every writing effect. Something ends
the run: a booking is refused, nobody can tell whether one happened, or a person cancels. From
there on every call of a port, every await of a tool's body and every request is a point, and the
engine or the worker is killed at the n-th (see ``dying.py``). People look at the service before
they answer: what is asked of an undoing that may have happened is answered with the truth. An
undoing that the service refuses for good opens a handover, which is answered as the saga says.

It is judged by the service's ledger and by what is public: the questions and the outcome.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

from perdure.connectors.models.provider import ModelContext, Reply, ToolCall
from perdure.connectors.tool import Tool
from perdure.schemas import topics
from perdure.schemas.records import AgentSpec, ModelSpec, RetryPolicy

from .balance import Asked, judge
from .bookings import SETTLE, TIMEOUT, Bookings, name_of, tools_of
from .dying import Case, DyingWorld
from .matrix import Kind
from .network import Network
from .plots import BRANCHES, PLACES, WITH_ITS_OWN, Saga
from .quiet import quiet

AGENT: Final = "traveller"
RUN: Final = "saga"
LATE_SECONDS: Final = 0.8 * SETTLE
PATIENCE: Final = SETTLE + LATE_SECONDS + TIMEOUT + 30.0
"""s that a person gives what may settle itself."""
LONGEST: Final = 48 * 3600.0


@dataclass(frozen=True, slots=True)
class End:
    """What one course gave."""

    case: Case
    number: int
    """Of the point, from 1; 0: nobody was killed."""
    point: str
    status: str
    balance: dict[int, int]
    """By place: booked and not given back."""
    listed: dict[int, str]
    """By place: the outcome's list."""
    asked: tuple[Asked, ...]
    wrong: tuple[str, ...]
    trace: tuple[str, ...] = field(default=(), repr=False)

    @property
    def balanced(self) -> bool:
        return not any(self.balance.values())

    @property
    def id(self) -> str:
        return f"{self.case}/{self.number}"


class Sagas:
    """Courses over one service; declaring its tools is dear, so it is done once."""

    def __init__(self, seed: int = 0) -> None:
        self._network = Network()
        self._bookings = Bookings(self._network)
        self._tools = tools_of(self._bookings)
        self._seed = seed

    def course(self, saga: Saga, case: Case, number: int) -> End:
        """Kill ``case.victim`` at its ``number``-th point (0: nobody)."""
        world = _World(saga, self._bookings, self._tools, case, number, self._seed)
        self._network.goes_through(world)
        with quiet():
            try:
                return world.course()
            finally:
                self._network.goes_through(None)
                world.end()


class _World(DyingWorld):
    def __init__(
        self,
        saga: Saga,
        bookings: Bookings,
        tools: list[Tool[..., Any]],
        case: Case,
        number: int,
        seed: int,
    ) -> None:
        queues = ["tools", "models"] if saga.shape == "model" else ["tools"]
        super().__init__(
            tools, queues, case, number, LATE_SECONDS, seed, {"python": lambda: self._model}
        )
        self._saga = saga
        self._bookings = bookings
        self._model = _Booker()
        self._begun = False
        self._late, self.late = self.late, None
        self._outcome: Any = None
        self._open: dict[str, Any] = {}
        self._looked_at = (-1, -1)
        self._asked: list[Asked] = []
        self._announced = len(tools) + 1
        self.on_tick.append(self._look)
        lost = {} if saga.lost is None else {saga.lost: saga.lost_happens}
        bookings.clear(saga.full, lost, saga.kept, self._danger)

    # --- the course ----------------------------------------------------------------------------

    def course(self) -> End:
        """From its beginning to its end."""
        self.add_both()
        self.apply(agent(self._saga))
        self.run_until(lambda: len(self.records(topics.CATALOG)) >= self._announced, 60.0)
        self.run_for(0.5)  # every partition is live
        plan = None if self._saga.shape == "model" else steps(self._saga)
        self.submit(RUN, agent=AGENT, user_id="uma", plan=plan)
        if self._saga.shape == "model":
            self.run_until(lambda: self._model.waits, 600.0)
            self._danger()
            self._send(topics.CONTROL, command="cancel", compensate=True)
        self._to_its_end()
        return self._told()

    def _danger(self) -> None:
        """What ends the run has come: from here on points count, and the first request is late."""
        if not self._begun:
            self._begun = self.watching = True
            self.late, self.sent = self._late, 0

    def _to_its_end(self) -> None:
        answered: set[str] = set()
        until = self.time.us + int(LONGEST * 1_000_000)

        def unanswered() -> list[str]:
            return [name for name in self._open if name not in answered]

        while self._outcome is None and self.time.us < until:
            self.run_until(lambda: self._outcome is not None or bool(unanswered()), 3600.0)
            for name in unanswered():
                question = self._open[name]
                if question["kind"] == "in_doubt":  # it may settle itself, and what is late lands
                    self.run_until(lambda: self._outcome is not None, PATIENCE)
                answered.add(name)
                if name in self._open:
                    self._answer(question)
        self.run_for(PATIENCE)  # what comes late must not come twice
        self._looked_at = (-1, -1)
        self._look()

    def _look(self) -> None:
        """At the public topics, when something new can be read of them."""
        ends = tuple(
            sum(log.stable for log in self.broker.topics[name].logs)
            for name in (topics.PENDING, topics.OUTCOMES)
        )
        if ends != self._looked_at:
            self._looked_at = ends  # type: ignore[assignment]
            self._open = self.questions()
            self._outcome = self.outcome(RUN)
            if self._outcome is not None:
                self.watching = False

    # --- people --------------------------------------------------------------------------------

    def _answer(self, question: dict[str, Any]) -> None:
        saga, bookings, kind = self._saga, self._bookings, question["kind"]
        place = question["arguments"]["place"]
        if question["tool"].startswith("book"):
            if place == saga.lost:
                self._danger()
                self._decide(question, "cancel_run")
            else:
                self._tell_the_truth(question, bookings.booked(place), {"booking": 0})
            return
        named = [each["arguments"]["place"] for each in question["history"]["completed"]]
        standing = [n for n in range(1, len(PLACES) + 1) if bookings.balance(n)]
        self._asked.append(Asked(kind, place, tuple(named), tuple(standing)))
        if kind == "in_doubt" and saga.leaves_doubt:
            self._decide(question, "cancel_run")
        elif kind == "in_doubt":
            self._tell_the_truth(question, bookings.given_back(place), {})
        elif saga.answer == "answer":
            bookings.by_hand(place)
            self._decide(question, "answer", answer="given back over the counter")
        else:
            if saga.answer == "retry":
                bookings.kept = None
            self._decide(question, saga.answer)

    def _tell_the_truth(self, question: dict[str, Any], happened: int, answer: Any) -> None:
        word = "mark_done" if happened else "mark_not_done"
        more = {"answer": answer} if happened else {}
        self._decide(question, word, reason="I looked", **more)

    def _decide(self, question: dict[str, Any], word: str, **more: Any) -> None:
        self.say(f"a person answers {question['kind']} of {question['arguments']} with {word}")
        self._send(
            topics.APPROVALS, approval_id=question["approval_id"], decision=word, approver="ann",
            **more,
        )  # fmt: skip

    def _send(self, topic: str, **value: Any) -> None:
        self.produce(topic, {"run_id": RUN, **value}, RUN)

    # --- what came of it -----------------------------------------------------------------------

    def _told(self) -> End:
        places = range(1, len(PLACES) + 1)
        listed: dict[int, str] = {}
        for name in ("completed", "not_completed", "in_doubt", "compensated", "degraded"):
            for record in (self._outcome or {}).get(name, ()):
                listed[record["arguments"]["place"]] = name
        return End(
            self.case,
            self.number if self.died_at is not None else 0,
            self.died_at or "nobody is killed",
            "stuck" if self._outcome is None else self._outcome["status"],
            {place: self._bookings.balance(place) for place in places},
            listed,
            tuple(self._asked),
            (*self._judged(listed), *self.oddities),
            tuple(self.trace),
        )

    def _judged(self, listed: dict[int, str]) -> list[str]:
        in_doubt = {
            place
            for place, kind in enumerate(PLACES, 1)
            if self._saga.shape == "branches" and kind == Kind("external", False)
        }  # a booking under way when the run ended, and its worker died
        may_be = in_doubt if self.died_at is not None else set()
        return judge(self._saga, self._bookings, self._outcome, listed, self._asked, may_be)


# --- the agent -----------------------------------------------------------------------------------


class _Booker:
    """A model that books one place after the other, and then thinks for ever."""

    def __init__(self) -> None:
        self.waits = False

    async def complete(self, request: dict[str, Any], context: ModelContext) -> Reply:
        done = sum(message["role"] == "tool" for message in request["messages"])
        if done == len(PLACES):
            self.waits = True
            await asyncio.sleep(1e6)
        call = ToolCall(f"c{done}", name_of("book", PLACES[done]), {"place": done + 1})
        return Reply(None, [call], "tool_calls")


def agent(saga: Saga) -> AgentSpec:
    """The one that carries it out."""
    model = ModelSpec(provider="python", function="books:all", timeout_seconds=5.0)
    return AgentSpec(
        name=AGENT,
        tools=sorted({name_of("book", kind) for kind in PLACES}),
        model=model if saga.shape == "model" else None,
        on_failure="compensate",
        retry=RetryPolicy(attempts=2, first_wait_seconds=0.5),
    )


def steps(saga: Saga) -> list[dict[str, Any]]:
    """Its plan."""
    made = []
    for place, kind in enumerate(PLACES, 1):
        step: dict[str, Any] = {"id": f"s{place}", "tool": name_of("book", kind)}
        step["arguments"] = {"place": place}
        if saga.shape == "branches":
            branch = next(each for each in BRANCHES if place in each)
            step["depends_on"] = [f"s{place - 1}"] if place - 1 in branch else []
        if place in WITH_ITS_OWN:
            step["compensate"] = {
                "tool": name_of("give_back", WITH_ITS_OWN[place]),
                "arguments": {"place": place, "result": {"$": f"steps.s{place}.result"}},
            }
        made.append(step)
    return made
