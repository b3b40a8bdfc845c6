"""The body of ``perdure fork``: a task that goes on from an earlier version of a run."""

from __future__ import annotations

from perdure.reading import history
from perdure.schemas.errors import RecordError
from perdure.schemas.records import ForkOf, RunEvent, Task
from perdure.settings import Settings
from perdure.topics_reader import Scanner

from .console import FAILED, USAGE, leave
from .submit import checked
from .terminal import safe


def fork_task(made: Settings, run_id: str, at_version: int | None, task_id: str | None) -> Task:
    """The task that asks for the fork. Ends the command where the run has no such version."""
    scanner = Scanner(made.client_conf(), made.topic_prefix)
    found: RunEvent | None = None
    for _, event in history(scanner, run_id):
        if event is not None and (at_version is None or event.version <= at_version):
            found = event
    if found is None:
        leave(FAILED, f"{safe(run_id, 200)} has no events: `perdure runs` lists what there is")
    if at_version is not None and found.version != at_version:
        leave(FAILED, f"{safe(run_id, 200)} has {found.version} versions, not {at_version}")
    try:
        task = checked({"agent": found.agent} | ({"task_id": task_id} if task_id else {}))
    except RecordError as error:
        leave(USAGE, str(error))
    task.fork_of = ForkOf(run_id, found.version, found.hash)
    return task
