"""A model that is a Python function: ``module:function`` of messages and tools, sync or async.

It returns a text, or ``{"content": ..., "tool_calls": [{"name", "arguments", "id"?}]}``.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import describe
from .provider import ModelContext, ModelError, Reply, ToolCall, object_of, text_of, usage_of


class PythonFunction:
    """Imports each function once."""

    def __init__(self) -> None:
        self._functions: dict[str, Callable[..., Any]] = {}

    async def complete(self, request: dict[str, Any], context: ModelContext) -> Reply:
        model = request.get("model") or {}
        name = str(model.get("function") or "")
        function = self._functions.get(name)
        if function is None:
            function = self._functions[name] = _load(name)
        messages, tools = request.get("messages") or [], request.get("tools") or []
        try:
            if inspect.iscoroutinefunction(function):
                said = await function(messages, tools)
            else:
                said = await context.in_thread(lambda: function(messages, tools))
        except (ModelError, asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # a `SystemExit` too: it would end all calls of the worker
            raise ModelError(
                "model_unavailable", "function_raised", f"{name}: {describe(error)}"
            ) from error
        if isinstance(said, Reply):
            return said
        if said is None or isinstance(said, str):
            said = {"content": said}
        if not isinstance(said, dict):
            raise ModelError(
                "model_invalid",
                "reply_shape",
                f"{name} returned {type(said).__name__}; it must return a text or an object",
            )
        return _reply(said, name, str(model.get("name") or name))


def _reply(said: dict[str, Any], name: str, model: str) -> Reply:
    calls = []
    proposed = said.get("tool_calls") or []
    if not isinstance(proposed, list | tuple):
        raise ModelError("model_invalid", "reply_shape", f"{name}: tool_calls must be a list")
    for made in proposed:
        if not isinstance(made, dict):
            raise ModelError(
                "model_invalid", "reply_shape", f"{name}: a tool call must be an object"
            )
        arguments, raw = object_of(made.get("arguments"))
        calls.append(ToolCall(made.get("id"), str(made.get("name", "")), arguments, raw))
    content = text_of(said.get("content"))
    if not content and not calls:
        raise ModelError("model_invalid", "empty_reply", f"{name} said nothing")
    return Reply(
        content,
        calls,
        said.get("finish_reason") or ("tool_calls" if calls else "stop"),
        model,
        usage=usage_of(said.get("usage")),
    )


def _load(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        function = getattr(importlib.import_module(module), attribute)
    except BaseException as error:
        raise ModelError(
            "model_unavailable",
            "function_missing",
            f"the model function {name!r} (module:function) can't be loaded: {error}",
        ) from error
    if not callable(function):
        raise ModelError("model_unavailable", "function_missing", f"{name!r} is no function")
    return function  # type: ignore[no-any-return]
