"""Whom a call goes to: the name its breaker has, and the host it was on its way to.

A tool is one target, by its name. A model is provider x name; with a ``base_url`` the endpoint
belongs to it, so that two endpoints of one model have a breaker each. A model's target has a
blank in it and a tool's name has none, so the two never meet.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from perdure.schemas.records import ActionCommand

from .errors import chain

_OPENAI_HOST = "api.openai.com"


def base_url(model: dict[str, Any]) -> str | None:
    """Where an OpenAI-compatible model is, unless it is OpenAI's own."""
    return model.get("base_url") or os.environ.get("OPENAI_BASE_URL") or None


def target_of(command: ActionCommand) -> str:
    """The breaker's name. Of a model whose request lies in a blob: as far as it can be told."""
    if command.request is None:
        return command.target
    model = _model(command)
    provider = str(model.get("provider") or "")
    named = f"{provider} {model.get('name') or provider}"
    url = base_url(model) if provider == "openai" else model.get("base_url")
    if not url:
        return named
    host, port = _place(str(url))
    return f"{named} {host}" if port is None else f"{named} {host}:{port}"


def host_of(error: BaseException | None, command: ActionCommand) -> str:
    """The host a call did not reach, from the exception; else whom the call was for."""
    for inner in chain(error) if error is not None else ():
        try:
            host = getattr(getattr(getattr(inner, "request", None), "url", None), "host", None)
        except RuntimeError:  # httpx: the request was never set
            host = None
        host = host or getattr(inner, "host", None)
        if isinstance(host, str) and host:
            return host
    model = _model(command)
    if model.get("provider") == "openai":
        url = base_url(model)
        return _OPENAI_HOST if url is None else _place(url)[0]
    return command.target


def _model(command: ActionCommand) -> dict[str, Any]:
    model = command.request.get("model") if isinstance(command.request, dict) else None
    return model if isinstance(model, dict) else {}


def _place(url: str) -> tuple[str, int | None]:
    """Host and port of a URL, without a password; what can't be read as one stands for itself."""
    try:
        parts = urlsplit(url)
        return parts.hostname or url[:200], parts.port
    except ValueError:
        return url[:200], None
