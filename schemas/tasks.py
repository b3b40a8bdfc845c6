"""What a task must keep beyond its fields' types. The engine's edge judges for itself; who sends can know."""

from __future__ import annotations

from perdure.schemas import codec, topics
from perdure.schemas.canonical import canonical
from perdure.schemas.errors import RecordError
from perdure.schemas.records import Task

MAX_METADATA_BYTES = 16_000


def check_task(task: Task) -> None:
    """Raises `RecordError` for one that no engine takes. An id of our kind would not even get an outcome."""
    if task.task_id is not None and "~" in task.task_id and task.fork_of is None:
        raise RecordError("task_id", "~ is for ids made by Perdure", "bad_id")
    if len(canonical(task.metadata)) > MAX_METADATA_BYTES:
        raise RecordError("metadata", "must be under 16 kB", "too_large")
    size = len(codec.encode(task))
    if size > topics.MAX_INBOUND_BYTES:
        raise RecordError("", f"is {size} bytes; at most 4 MB are taken", "too_large")
