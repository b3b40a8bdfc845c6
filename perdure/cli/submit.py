"""The body of ``perdure submit``: tasks in, run ids out."""

from __future__ import annotations

import sys
from codecs import BOM_UTF8
from pathlib import Path
from typing import Any

import yaml

from perdure.reading import Scanner
from perdure.schemas import codec, topics
from perdure.schemas.canonical import parse
from perdure.schemas.errors import RecordError
from perdure.schemas.records import Task
from perdure.schemas.tasks import check_task
from perdure.settings import Settings

from .console import USAGE, client, leave, line, say
from .terminal import safe
from .waiting import Waiting, ends, few


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
    for number, text in enumerate(raw.removeprefix(BOM_UTF8).split(b"\n"), 1):
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
    check_task(task)
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
        raw = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        leave(USAGE, f"{path} can't be read: {error}")
    try:
        plan = yaml.safe_load(raw) if path.suffix in (".yaml", ".yml") else parse(raw)
    except (yaml.YAMLError, RecordError) as error:
        leave(USAGE, f"{path}: {error}")
    return plan["plan"] if isinstance(plan, dict) and "plan" in plan else plan


# --- submitting -------------------------------------------------------------------------------


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
    before = ends(scanner) if wait else {}
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
    say(f"{len(ids)} {'task' if len(ids) == 1 else 'tasks'} on Kafka: {few(ids)}")
    sent = dict(zip(ids, tasks, strict=True))
    Waiting(scanner, sent, before, timeout, no_input, as_json).until_all()
