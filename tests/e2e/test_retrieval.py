"""An agent that retrieves, killed between the retrieval and the answer, does not retrieve again."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from perdure.schemas import topics

from tests.cases.deployment import Deployment
from tests.cases.model_server import model_server

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "retrieval"
WATCHED = ["agent.events", "agent.outcomes", "agent.commands.tools"]
FACTS = {
    "ask-returns": "within 30 days", "ask-express": "14 EUR", "ask-repair": "about 3 weeks",
    "ask-voucher": "3 years", "ask-samples": "free of charge",
}  # fmt: skip


class Helpdesk:
    """The example under `perdure up`, and its diary."""

    def __init__(self, deployment: Deployment, directory: Path) -> None:
        self.deployment = deployment
        self.hold = directory / "hold"
        self._diary = directory / "diary.jsonl"

    @property
    def environment(self) -> dict[str, str]:
        return {"RETRIEVAL_DIARY": str(self._diary), "RETRIEVAL_HOLD": str(self.hold)}

    def diary(self, what: str) -> list[dict[str, Any]]:
        raw = self._diary.read_bytes() if self._diary.exists() else b""
        lines = raw[: raw.rfind(b"\n") + 1].splitlines()
        return [made for made in map(json.loads, lines) if made["what"] == what]

    def asked_to_answer(self) -> list[dict[str, Any]]:
        """Requests to the model that hold a search's and a reading's result."""
        return [made for made in self.diary("model") if len(results(made)) == 2]


def results(request: dict[str, Any]) -> list[str]:
    return [each["content"] for each in request["messages"] if each["role"] == "tool"]


def succeeded(deployment: Deployment, run_id: str) -> int:
    return sum(event["type"] == "action_succeeded" for event in deployment.events(run_id))


def put_away(deployment: Deployment) -> bool:
    """The worker has committed its place behind every call it was given.

    Its answers are out before that, and who dies in between is given the call again: a read is then
    read again, which its effect allows.
    """
    given: dict[tuple[str, int], int] = {}
    for seen in deployment.topics.on("agent.commands.tools"):
        given[deployment.prefix + seen.topic, seen.partition] = seen.offset
    group = topics.group_id(deployment.prefix, "worker.tools")
    admin = AdminClient({"bootstrap.servers": deployment.bootstrap, "log_level": 0})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    places = asked[group].result(10).topic_partitions
    return given.keys() <= {
        spot for s in places if s.offset > given.get(spot := (s.topic, s.partition), -1)
    }


@pytest.fixture
def helpdesk(broker: str, tmp_path: Path) -> Iterator[Helpdesk]:
    agents = yaml.safe_load((EXAMPLE / "agents.yaml").read_text("utf-8"))["agents"]
    with model_server() as unused:
        deployment = Deployment(tmp_path, broker, f"t-{uuid.uuid4().hex[:8]}.", unused)
        deployment.create_topics()
        made = Helpdesk(deployment, tmp_path)
        made.hold.touch()
        deployment.start(agents, tools=[EXAMPLE / "tools.py"], watched=WATCHED, **made.environment)
        yield made
        assert deployment.stop() == 0


def test_what_was_retrieved_before_a_kill_is_not_retrieved_again(helpdesk: Helpdesk) -> None:
    deployment = helpdesk.deployment
    tasks = [json.loads(line) for line in (EXAMPLE / "tasks.jsonl").read_text().splitlines()]
    tasks = [task for task in tasks if task["task_id"] in FACTS]
    for task in tasks:
        deployment.put("agent.tasks", **task)
    before = deployment.until(
        lambda: len(found := helpdesk.asked_to_answer()) == len(tasks) and found,
        "every model is asked for its answer",
    )
    for task in tasks:  # all but the answer is committed: the model's two replies, two results
        deployment.until(
            lambda run_id=task["task_id"]: succeeded(deployment, run_id) == 4, "retrieved"
        )
    deployment.until(lambda: put_away(deployment), "the calls are behind the worker", every=0.2)
    deployment.kill("engine")
    deployment.kill("worker")
    helpdesk.hold.unlink()

    for task in tasks:
        outcome = deployment.outcome(task["task_id"])
        assert outcome["status"] == "done"
        assert FACTS[task["task_id"]] in " ".join(outcome["result"].split())

    searched = Counter((each["run_id"], each["query"]) for each in helpdesk.diary("search"))
    assert searched == {(task["task_id"], task["input"]): 1 for task in tasks}
    read = Counter(each["run_id"] for each in helpdesk.diary("read"))
    assert read == {task["task_id"]: 1 for task in tasks}

    killed = {each["pid"] for each in before}
    after = [each for each in helpdesk.asked_to_answer() if each["pid"] not in killed]
    told_before = sorted(results(each) for each in before)
    assert sorted(results(each) for each in after) == told_before
    for passages, document in told_before:
        best = json.loads(passages)["passages"][0]
        assert best["text"] in json.loads(document)["text"]
