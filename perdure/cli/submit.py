"""The body of ``perdure submit``: tasks in, run ids out, and waiting for their ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml

from perdure.reading import Raw, Scanner
from perdure.schemas import codec, topics
from perdure.schemas.canonical import canonical, parse
from perdure.schemas.errors import RecordError
from perdure.schemas.records import Outcome, Task
from perdure.settings import Settings

from .console import FAILED, USAGE, WAITS, client, leave, line, say
from .terminal import emit, is_terminal, safe, span


def no_other_flags(**given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            leave(USAGE, f"--{name} goes with --agent; a file's tasks bring their own")


# --- what is submitted ------------------------------------------------------------------------


def read_file(source: str) -> list[Task]:
    """The tasks of a file, all checked. Ends the command at the first bad line, naming its field."""
    name = "stdin" if source == "-" else source
    try:
        raw = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        leave(USAGE, f"{source} can't be read: {error.strerror}")
    tasks: list[Task] = []
    seen: dict[str, tuple[int, Task]] = {}
    for number, text in enumerate(raw.split(b"\n"), 1):
        if not text.strip():
            continue
        try:
            task = checked(parse(text.strip()))
        except RecordError as error:
            leave(USAGE, f"{name}, line {number}: {error}; nothing was sent")
        if task.task_id is not None:
            before = seen.setdefault(task.task_id, (number, task))
            if before[1] != task:
                leave(
                    USAGE,
                    f"{name}, line {number}: task_id: {task.task_id} is already that of another "
                    f"task, on line {before[0]}; nothing was sent",
                )
        tasks.append(task)
    if not tasks:
        leave(USAGE, f"{name} holds no task: one JSON object a line is needed")
    return tasks


def checked(value: Any) -> Task:
    """A task that the engine's edge takes. Raises `RecordError`."""
    if not isinstance(value, dict):
        raise RecordError("", "a task is a JSON object", "not_an_object")
    for name in value:
        if name not in Task.__struct_fields__:
            say(f"perdure: note: {safe(name, 60)} is not a field of a task and is ignored")
    task = codec.convert(value, Task)
    if task.task_id is not None and "~" in task.task_id:
        raise RecordError("task_id", "~ is for ids made by Perdure", "bad_id")
    if len(canonical(task.metadata)) > 16_000:
        raise RecordError("metadata", "must be under 16 kB", "too_large")
    size = len(codec.encode(task))
    if size > topics.MAX_INBOUND_BYTES:
        raise RecordError("", f"is {size} bytes; at most 4 MB are taken", "too_large")
    return task


def one_task(
    agent: str | None,
    text: str | None,
    plan: Path | None,
    user: str | None,
    session: str | None,
    task_id: str | None,
) -> Task:
    """The task that the flags describe. Ends the command where they describe none."""
    if agent is None:
        leave(USAGE, "nothing to submit: give a file of tasks, - for stdin, or --agent and --input")
    if text is None and plan is None:
        leave(USAGE, "--agent needs --input or --plan")
    fields = {
        "agent": agent,
        "task_id": task_id,
        "input": None if text is None else _input(text),
        "plan": None if plan is None else _plan(plan),
        "user_id": user,
        "session_id": session,
    }
    try:
        return checked({name: value for name, value in fields.items() if value is not None})
    except RecordError as error:
        leave(USAGE, str(error))


def _input(text: str) -> Any:
    """JSON where it is an object or a list, else the text as it is."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return parse(text)
    except RecordError as error:
        if text.lstrip().startswith("["):  # "[urgent] please ..." is a text
            return text
        leave(USAGE, f"--input: {error}")


def _plan(path: Path) -> Any:
    try:
        raw = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        leave(USAGE, f"{path} can't be read: {error}")
    try:
        plan = yaml.safe_load(raw) if path.suffix in (".yaml", ".yml") else parse(raw)
    except (yaml.YAMLError, RecordError) as error:
        leave(USAGE, f"{path}: {error}")
    return plan["plan"] if isinstance(plan, dict) and "plan" in plan else plan


# --- submitting and waiting -------------------------------------------------------------------


def submit(
    made: Settings,
    tasks: list[Task],
    *,
    wait: bool,
    timeout: float | None,
    no_input: bool,
    as_json: bool,
) -> None:
    """Produce the tasks; says only what Kafka has acknowledged."""
    scanner = Scanner(made.client_conf(), made.topic_prefix)
    scanner.partitions(topics.TASKS)  # a Kafka that is away is noticed before anything is sent
    ids = client(made).submit(tasks)
    if not wait:
        for run_id in ids:
            if as_json:
                line({"run_id": run_id})
            else:
                print(run_id)
        sys.stdout.flush()
        if not as_json:
            say(f"{len(ids)} {'task' if len(ids) == 1 else 'tasks'} on Kafka")
        return
    say(f"{len(ids)} {'task' if len(ids) == 1 else 'tasks'} on Kafka: {_few(ids)}")
    Waiting(scanner, list(dict.fromkeys(ids)), timeout, no_input, as_json).until_all()


def _few(ids: list[str]) -> str:
    return ", ".join(ids[:8]) + (f" and {len(ids) - 8} more" if len(ids) > 8 else "")


def _nothing() -> None:
    """No progress is shown."""


class Waiting:
    """Runs on their way to an outcome; knows which of them only a person can move."""

    def __init__(
        self, scanner: Scanner, ids: list[str], timeout: float | None, no_input: bool, as_json: bool
    ) -> None:
        self._scanner = scanner
        self._total = len(ids)
        self._missing = set(ids)
        self._asks: dict[str, str] = {}  # approval id: title, of our runs
        self._told: set[str] = set()
        self._failed: list[str] = []
        self._timeout = timeout
        self._no_input = no_input
        self._json = as_json
        self._began = time.monotonic()
        self._shown: Callable[[], None] = _nothing

    def until_all(self) -> None:
        """Returns when every run is done; leaves with 1, or 4 with `no_input`."""
        with self._progress():
            for raw in self._scanner.scan([topics.OUTCOMES, topics.PENDING], follow=True):
                if raw is not None:
                    self._take(raw)
                    continue
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
                f"{_few(sorted(self._missing))}. They go on; `perdure show RUN` says where they are",
            )

    def _late(self) -> bool:
        return self._timeout is not None and time.monotonic() - self._began > self._timeout

    def _take(self, raw: Raw) -> None:
        key = (raw.key or b"").decode("utf-8", "replace")
        if raw.topic == topics.PENDING:
            self._question(key, raw.value)
        elif key in self._missing and raw.value is not None:
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

    def _question(self, approval_id: str, value: bytes | None) -> None:
        if approval_id.rpartition("/")[0] not in self._missing:
            return
        if value is None:
            self._asks.pop(approval_id, None)
            return
        try:
            asked = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return
        self._asks[approval_id] = str(asked.get("title", ""))

    def _tell_questions(self) -> None:
        """Of those that are open, each once: said when all is read, so that no closed one is."""
        for approval_id in self._open():
            if approval_id not in self._told:
                self._told.add(approval_id)
                say(
                    f"{approval_id} waits for a person: {safe(self._asks[approval_id], 200)} "
                    f"(perdure approve {approval_id})"
                )

    def _open(self) -> list[str]:
        return [each for each in self._asks if each.rpartition("/")[0] in self._missing]

    def _only_people(self) -> bool:
        """All that is left waits for people."""
        return {each.rpartition("/")[0] for each in self._open()} == self._missing

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
