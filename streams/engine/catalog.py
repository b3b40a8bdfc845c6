"""The catalog as the engine sees it: agents and tools, a global table of agent.catalog."""

from __future__ import annotations

import logging

from perdure.schemas import codec
from perdure.schemas.errors import RecordError
from perdure.schemas.records import AgentSpec, ToolSpec

log = logging.getLogger(__name__)


class Catalog:
    """The only owner of the agents and tools known here. A lower version never replaces a higher."""

    def __init__(self) -> None:
        self.agents: dict[str, AgentSpec] = {}
        self.tools: dict[str, ToolSpec] = {}

    def update(self, key: bytes | None, value: bytes | None) -> None:
        """One record of the topic; a value of None deletes. A broken one is named and left out."""
        try:
            kind, _, name = (key or b"").decode().partition("/")
        except UnicodeDecodeError:
            log.warning("agent.catalog: a key that is no text is left out")
            return
        if kind == "agent":
            self._agent(name, value)
        elif kind == "tool":
            self._tool(name, value)
        else:
            log.warning("agent.catalog: the key %r is neither tool/<name> nor agent/<name>", key)

    def _agent(self, name: str, value: bytes | None) -> None:
        if value is None:
            self.agents.pop(name, None)
            return
        try:
            spec = codec.decode(value, AgentSpec)
        except RecordError as error:
            log.warning("agent.catalog: agent/%s is left out: %s", name, error)
            return
        known = self.agents.get(name)
        if known is None or spec.version >= known.version:
            self.agents[name] = spec

    def _tool(self, name: str, value: bytes | None) -> None:
        if value is None:
            self.tools.pop(name, None)
            return
        try:
            spec = codec.decode(value, ToolSpec)
        except RecordError as error:
            log.warning("agent.catalog: tool/%s is left out: %s", name, error)
            return
        known = self.tools.get(name)
        if known is None or spec.version >= known.version:
            self.tools[name] = spec
