"""The retrieval example's tools, ranking and model, without a broker."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from perdure.connectors.loading import load_tools
from refunds_example import ROOT, load

import perdure

EXAMPLE = ROOT / "examples" / "retrieval"
TASKS = [json.loads(line) for line in (EXAMPLE / "tasks.jsonl").read_text("utf-8").splitlines()]
CONTEXT = perdure.ToolContext(run_id="r-1", action_id="r-1/2", idempotency_key="r-1/2/aabbccdd")
ANSWERED = {
    "ask-returns": ("returns", "within 30 days"),
    "ask-express": ("shipping", "14 EUR"),
    "ask-repair": ("warranty", "about 3 weeks"),
    "ask-voucher": ("payment", "3 years"),
    "ask-samples": ("made-to-measure", "free of charge"),
}


@pytest.fixture(scope="module")
def example() -> Iterator[dict[str, ModuleType]]:
    """The modules; they import each other from their own directory, as under a worker."""
    sys.path.insert(0, str(EXAMPLE))
    try:
        yield {name: load(EXAMPLE / f"{name}.py") for name in ("tools", "answering")}
    finally:
        sys.path.remove(str(EXAMPLE))
        for name in ("diary", "ranking"):
            sys.modules.pop(name, None)


def talk(example: dict[str, ModuleType], question: str) -> tuple[str, list[str]]:
    """The model with the tools, as an engine would bring them together."""
    tools, called = example["tools"], []
    messages: list[dict[str, Any]] = [{"role": "user", "content": question}]
    while True:
        said = asyncio.run(example["answering"].answer(messages, []))
        if isinstance(said, str):
            return said, called
        call = said["tool_calls"][0]
        called.append(call["name"])
        tool = {"docs.search": tools.search, "docs.read": tools.read}[call["name"]]
        result = tool(CONTEXT, **call["arguments"])
        messages.append({"role": "tool", "content": json.dumps(result)})


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task["task_id"])
def test_each_question_is_answered_out_of_the_document_that_says_it(
    example: dict[str, ModuleType], task: dict[str, Any]
) -> None:
    said, called = talk(example, task["input"])
    if task["task_id"] not in ANSWERED:
        assert (said, called) == ("Our documents say nothing about that.", ["docs.search"])
        return
    document, fact = ANSWERED[task["task_id"]]
    assert fact in " ".join(said.split())
    assert f"({document}, " in said
    assert called == ["docs.search", "docs.read"]


def test_every_tool_named_by_the_agent_is_there_and_only_reads() -> None:
    found = {tool.spec.name: tool.spec for tool in load_tools(EXAMPLE / "tools.py")}
    agents = yaml.safe_load((EXAMPLE / "agents.yaml").read_text("utf-8"))["agents"]
    assert set(agents["helpdesk"]["tools"]) == set(found)
    assert {spec.effect for spec in found.values()} == {"read_only"}
    assert {task["agent"] for task in TASKS} == set(agents)


def test_what_can_not_be_found_is_said(
    example: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = example["tools"]
    with pytest.raises(perdure.BusinessError, match=r"no document '\.\./tools'; there are"):
        tools.read(CONTEXT, document="../tools")
    monkeypatch.setenv("RETRIEVAL_DOCUMENTS", str(tmp_path))
    with pytest.raises(perdure.BusinessError, match="set RETRIEVAL_DOCUMENTS"):
        tools.search(CONTEXT, query="lamps")


def test_own_documents_are_searched(
    example: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "birds.md").write_text("# Birds\nAll of them.\n\n## Parrots\nThey talk.\n", "utf-8")
    monkeypatch.setenv("RETRIEVAL_DOCUMENTS", str(tmp_path))
    assert talk(example, "Parrots?")[0] == "They talk. (birds, Birds: Parrots)"
