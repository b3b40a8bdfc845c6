"""Waiting for runs that were submitted: to their outcomes, or to what keeps them from one."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

import msgspec

from perdure.reading import Raw, Scanner, task_digests
from perdure.schemas import codec, topics
from perdure.schemas.canonical import digest
from perdure.schemas.errors import RecordError
from perdure.schemas.records import ApprovalRequest, Outcome, Task
from perdure.topics_reader import NoTopic

from .console import FAILED, WAITS, leave, line, say
from .pending import commands
from .terminal import emit, is_terminal, safe, span

Ends = Mapping[tuple[str, int], int]


def ends(scanner: Scanner) -> Ends:
    """Where the topics end that tell of runs: what stands before was there before the tasks.

    Raises `NoTopic`, `Unreachable`.
    """
    found = scanner.ends([topics.OUTCOMES])
    for name in (topics.PENDING, topics.DEAD_LETTERS):
        with suppress(NoTopic):  # who may only submit need not be allowed to read it
            found |= scanner.ends([name])
    return found


def few(ids: list[str]) -> str:
    return ", ".join(ids[:8]) + (f" and {len(ids) - 8} more" if len(ids) > 8 else "")


def _run_of(approval_id: str) -> str:
    return approval_id.rpartition("/")[0]


def _with_id(task: Task, run_id: str) -> Task:
    """As the client sent it."""
    return msgspec.structs.replace(task, task_id=run_id)


def _nothing() -> None:
    """No progress is shown."""


class Waiting:
    """Runs on their way to an outcome; knows which of them only a person can move."""

    def __init__(
        self,
        scanner: Scanner,
        sent: Mapping[str, Task],
        before: Ends,
        timeout: float | None,
        no_input: bool,
        as_json: bool,
    ) -> None:
        self._scanner = scanner
        self._sent = {run_id: _with_id(task, run_id) for run_id, task in sent.items()}
        self._before = before
        self._total = len(sent)
        self._missing = set(sent)
        self._earlier: dict[str, Outcome] = {}  # that were there before the tasks
        self._asks: dict[str, ApprovalRequest] = {}  # of our runs
        self._asked_earlier: set[str] = set()  # approval ids: there before the tasks
        self._told: set[str] = set()
        self._failed: list[str] = []
        self._timeout = timeout
        self._no_input = no_input
        self._json = as_json
        self._began = time.monotonic()
        self._shown: Callable[[], None] = _nothing

    def until_all(self) -> None:
        """Returns when every run is done; leaves with 1, or 4 with `no_input`."""
        names = list(dict.fromkeys(name for name, _ in self._before))
        letters = {at: end for at, end in self._before.items() if at[0] == topics.DEAD_LETTERS}
        with self._progress():
            for raw in self._scanner.scan(names, follow=True, starts=letters):
                if raw is not None:
                    self._take(raw)
                    continue
                self._judge()
                self._tell_questions()
                self._shown()
                if not self._missing or (self._no_input and self._only_people()) or self._late():
                    break
        if not self._missing:
            if self._failed:
                leave(FAILED, f"{len(self._failed)} of {self._total} runs did not end as done")
            say(f"{self._total} done after {span(time.monotonic() - self._began)}")
        elif self._no_input and self._only_people():
            waits = ", ".join(sorted(self._open()))
            leave(WAITS, f"{len(self._missing)} of {self._total} runs wait for a person: {waits}")
        else:
            leave(
                FAILED,
                f"{len(self._missing)} of {self._total} runs have not ended after {self._timeout:g} s: "
                f"{few(sorted(self._missing))}. They go on; `perdure show RUN` says where they are",
            )

    def _late(self) -> bool:
        return self._timeout is not None and time.monotonic() - self._began > self._timeout

    def _take(self, raw: Raw) -> None:
        key = (raw.key or b"").decode("utf-8", "replace")
        earlier = raw.offset < self._before.get((raw.topic, raw.partition), 0)
        if raw.topic == topics.PENDING:
            self._question(key, raw.value, earlier)
        elif key not in self._missing:
            return
        elif raw.topic == topics.DEAD_LETTERS:
            self._letter(key, raw)
        elif raw.value is None:
            self._earlier.pop(key, None)  # tried again
        elif earlier:
            self._earlier[key] = codec.decode(raw.value, Outcome)
        else:
            self._ended(codec.decode(raw.value, Outcome))

    def _ended(self, outcome: Outcome) -> None:
        self._missing.discard(outcome.run_id)
        if outcome.status != "done":
            self._failed.append(outcome.run_id)
        if self._json:
            line(outcome)
            return
        part = "" if outcome.complete or outcome.status != "done" else " (not complete)"
        style = {"done": "green", "failed": "red"}.get(outcome.status, "yellow")
        emit(f"{outcome.run_id} {outcome.status}{part}: {safe(outcome.text, 300)}", style)

    # --- ids that were taken before ---

    def _judge(self) -> None:
        """What an id has from before is our task's only where its run was started by the same task:
        any other is refused, and that tells no outcome."""
        unsure = {*self._earlier, *(_run_of(each) for each in self._asked_earlier)} & self._missing
        asked = {each for each in self._asked_earlier if _run_of(each) in unsure}
        self._asked_earlier.clear()
        if not unsure:
            return
        started = task_digests(self._scanner, unsure)
        for run_id in sorted(unsure):
            outcome = self._earlier.pop(run_id, None)
            if self._is_ours(run_id, started.get(run_id), outcome):
                if outcome is not None:
                    self._ended(outcome)
                continue
            for each in asked:
                if _run_of(each) == run_id:
                    self._asks.pop(each, None)
            if run_id in started and not self._hears_of_refusals():
                self._refused(run_id, "its id is taken by another task")

    def _is_ours(self, run_id: str, started: str | None, outcome: Outcome | None) -> bool:
        if started is not None:
            # as the engine reads it: what goes through the codec has its defaults
            task = codec.decode(codec.encode(self._sent[run_id]), Task)
            return started == digest(task)
        # no run: an id that was refused is not remembered, and the task is taken anew
        return outcome is None or not any(
            isinstance(error, dict) and error.get("kind") == "refused"
            for error in outcome.errors or ()
        )

    def _hears_of_refusals(self) -> bool:
        return any(name == topics.DEAD_LETTERS for name, _ in self._before)

    def _letter(self, run_id: str, raw: Raw) -> None:
        """A dead letter under one of our ids; with reason ``refused`` an outcome says it too."""
        headers = dict(raw.headers)
        reason = headers.get("reason", b"").decode("utf-8", "replace")
        ours = codec.encode(self._sent[run_id]).startswith(raw.value or b"?")  # it may be cut
        if ours and reason != "refused":
            detail = headers.get("detail", b"").decode("utf-8", "replace")
            self._refused(run_id, f"{detail} ({reason})")

    def _refused(self, run_id: str, why: str) -> None:
        self._missing.discard(run_id)
        self._failed.append(run_id)
        text = f"{run_id} refused: {safe(why, 300)}"
        if self._json:
            say(f"perdure: {text}")
        else:
            emit(text, "red")

    # --- what waits for people ---

    def _question(self, approval_id: str, value: bytes | None, earlier: bool) -> None:
        if _run_of(approval_id) not in self._missing:
            return
        if value is None:
            self._asks.pop(approval_id, None)
            return
        try:
            self._asks[approval_id] = codec.decode(value, ApprovalRequest)
        except RecordError:
            return
        if earlier:
            self._asked_earlier.add(approval_id)

    def _tell_questions(self) -> None:
        """Of those that are open, each once: said when all is read, so that no closed one is."""
        for approval_id in self._open():
            if approval_id not in self._told:
                self._told.add(approval_id)
                asked = self._asks[approval_id]
                first = next(iter(commands(asked)), "perdure pending")
                others = ", ".join(safe(word, 60) for word in asked.allowed_decisions[1:])
                more = f"; or {others}: see `perdure pending`" if others else ""
                say(f"{approval_id} waits for a person: {safe(asked.title, 200)} ({first}{more})")

    def _open(self) -> list[str]:
        return [each for each in self._asks if _run_of(each) in self._missing]

    def _only_people(self) -> bool:
        """All that is left waits for people."""
        return {_run_of(each) for each in self._open()} == self._missing

    @contextmanager
    def _progress(self) -> Iterator[None]:
        if self._json or not is_terminal(sys.stderr) or not is_terminal():
            yield
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        with Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            console=Console(stderr=True),
            transient=True,
        ) as progress:
            bar = progress.add_task("runs", total=self._total)

            def shown() -> None:
                asks = len(self._open())
                progress.update(
                    bar,
                    completed=self._total - len(self._missing),
                    description=f"runs ({asks} wait for a person)" if asks else "runs",
                )

            self._shown = shown
            shown()
            yield
