"""What the engine makes of a record before it looks at any state."""

from __future__ import annotations

import re

import pytest
from perdure.schemas import topics
from perdure.schemas.records import ID_PATTERN
from perdure.streams.engine.intake import Intake
from perdure.streams.runtime.processor import Record


@pytest.mark.parametrize(
    ("topic_id", "run_id"),
    [
        ("JE053xp7TVqFSGzFJ7m5Ng", "t~JE053xp7-1-4"),
        ("JE053/p7TVqFSGzFJ7m5Ng", "t~JE053_p7-1-4"),
        ("+/+/+/+/TVqFSGzFJ7m5Ng", "t~-_-_-_-_-1-4"),
    ],
)
def test_a_task_without_an_id_has_one_that_a_run_may_have(topic_id: str, run_id: str) -> None:
    """librdkafka's text of a topic's id has + and / (1 topic in 5): as a run's id it was refused
    when the first result came, and the run stood still."""
    record = Record(topics.TASKS, 1, 4, 0, None, b'{"agent": "a"}')
    message = Intake({topics.TASKS: topic_id}.__getitem__).read(record)
    assert (message.owner, message.body.run_id) == (run_id, run_id)
    assert re.match(ID_PATTERN, run_id)


@pytest.mark.parametrize(
    ("topic", "value"),
    [
        (topics.APPROVALS, b'"approval_id": "r/a1", "decision": "modify", "approver": "ann", "arguments": {%s: 1}'),
        (topics.APPROVALS, b'"approval_id": "r/a1", "decision": "answer", "approver": "ann", "answer": [{%s: 1}]'),
        (topics.CONTROL, b'"run_id": "r", "command": "message", "content": {"a": {%s: 1}}'),
        (topics.TASKS, b'"task_id": "r", "agent": "a", "input": {%s: 1}'),
    ],
)  # fmt: skip
@pytest.mark.parametrize("key", [b'"$blob"', b'"\\u0024blob"', b'"$\\u0062lob"'])
def test_what_would_be_taken_for_a_reference_is_refused(
    topic: str, value: bytes, key: bytes
) -> None:
    """It was read as one in the midst of a decision, which raised, and the run stood still."""
    record = Record(topic, 0, 1, 0, None, b"{" + value % key + b"}")
    message = Intake(lambda topic: "AbCdEfGh").read(record)
    assert message.owner == "r"
    said = getattr(message.body, "reason", None) or str(message.body.error)
    assert "the key $blob is reserved" in said
