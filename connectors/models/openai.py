"""Any OpenAI-compatible endpoint, through the official client. No retries here: the core's are durable.

| what happened | kind | code |
|---|---|---|
| no connection: refused, DNS, TLS, timeout | transient | connect_refused, dns_failed, tls_failed, connect_timeout |
| no answer in time | transient | read_timeout |
| connection dropped | transient | connection_lost |
| 408, 409, 425, 5xx | transient | http_<status> |
| 429 | transient | rate_limited |
| 429 with code `insufficient_quota`, 402 | model_unavailable | insufficient_quota, http_402 |
| 401, 403; no API key | permission | http_<status>, no_api_key |
| 400 or 413 that says the context is too long | context_overflow | context_length |
| 400 that names the content policy | content_filter | content_filter |
| 400 that names `seed` or `temperature` | (sent again without it; in `notes`) | |
| every other 4xx (unknown model, bad request) | model_unavailable | http_<status> |
| 3xx | model_unavailable | http_<status> |
| 200 with an error body | model_invalid | error_body |
| 200 that is no completion, without choices, or with nothing said | model_invalid | bad_body, no_choices, empty_reply |
| finish_reason `content_filter`, a refusal | content_filter | content_filter, refusal |

A 4xx that a repeat can't change moves on to the next fallback model instead of being tried again.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

import httpx2
import openai
from openai import AsyncOpenAI
from perdure.schemas import canonical
from perdure.schemas.errors import RecordError

from ..errors import connecting
from ..http import retry_after
from ..target import base_url
from .provider import ModelContext, ModelError, Reply, ToolCall, object_of, text_of, usage_of

_OPTIONAL = ("seed", "temperature")
_TOO_LONG = (
    "context length",
    "context_length",
    "maximum context",
    "context window",
    "too many tokens",
    "prompt is too long",
)
_POLICY = ("content_filter", "content_policy", "content management policy")


class OpenAI:
    """One client per endpoint and key, kept for its connections."""

    def __init__(self) -> None:
        self._clients: dict[tuple[str | None, str], AsyncOpenAI] = {}

    async def complete(self, request: dict[str, Any], context: ModelContext) -> Reply:
        model = request["model"]
        client = self._client(model)
        body = _body(request, model)
        notes: list[str] = []
        while True:
            try:
                raw = await client.chat.completions.with_raw_response.create(
                    **body, timeout=context.timeout_seconds
                )
                text = raw.http_response.text
                break
            except openai.BadRequestError as error:
                dropped = _refused_option(error, body)
                if dropped is None:
                    raise of_error(error) from error
                notes.append(f"the endpoint does not take `{dropped}`: sent without it")
                del body[dropped]
            except openai.OpenAIError as error:
                raise of_error(error) from error
            except httpx2.HTTPError as error:
                raise of_error(error) from error
        return _reply(text, request, notes)

    async def close(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            await client.close()

    def _client(self, model: dict[str, Any]) -> AsyncOpenAI:
        variable = model.get("api_key_env") or "OPENAI_API_KEY"
        key = os.environ.get(variable, "")
        url = base_url(model)
        if not key:
            if url is None:
                raise ModelError(
                    "permission",
                    "no_api_key",
                    f"set {variable} to the API key of the model's service",
                )
            key = "none"  # local endpoints often want none
        found = self._clients.get((url, key))
        if found is None:
            found = self._clients[url, key] = AsyncOpenAI(api_key=key, base_url=url, max_retries=0)
        return found


def _body(request: dict[str, Any], model: dict[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": model.get("name") or "",
        "messages": [_message(m) for m in request.get("messages") or []],
    }
    for name in _OPTIONAL:
        value = request.get(name, model.get(name))
        if value is not None:
            body[name] = value
    limit = request.get("max_output_tokens") or model.get("max_output_tokens")
    if limit:
        body["max_tokens"] = limit
    schema = request.get("response_schema") or model.get("response_schema")
    if schema:
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": schema},
        }
    if request.get("tools"):
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": outward(tool["name"]),
                    "description": tool.get("description") or "",
                    "parameters": tool.get("parameters") or {"type": "object", "properties": {}},
                },
            }
            for tool in request["tools"]
        ]
    return body


def _message(message: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"role": message.get("role"), "content": text_of(message.get("content"))}
    calls = message.get("tool_calls")
    if calls:
        made["tool_calls"] = [
            {
                "id": call.get("id") or f"call_{i}",
                "type": "function",
                "function": {
                    "name": _made_up(call.get("name") or ""),
                    "arguments": call["raw"]
                    if call.get("raw") is not None
                    else json.dumps(call.get("arguments") or {}, ensure_ascii=False),
                },
            }
            for i, call in enumerate(calls)
        ]
    if message.get("role") == "tool":
        made["tool_call_id"] = message.get("tool_call_id") or "call_0"
        made["content"] = made["content"] if made["content"] is not None else "null"
    return made


def outward(name: str) -> str:
    """A tool's name as the endpoint takes it: a dot becomes ``__``."""
    return name.replace(".", "__")


def _made_up(name: str) -> str:
    """The name of an earlier call as the endpoint takes it: a model may have named a tool that no
    tool can be called, and a history that repeats it is refused for ever."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", outward(name))[:64] or "unknown"


def _inward(name: str, request: dict[str, Any]) -> str:
    """The tool's own name; one that is not among the tools is given back as it came."""
    for tool in request.get("tools") or []:
        if outward(tool["name"]) == name or tool["name"] == name:
            return str(tool["name"])
    return name.replace("__", ".")


def _reply(text: str, request: dict[str, Any], notes: list[str]) -> Reply:
    try:
        body = canonical.parse(text)
    except RecordError as error:
        why = f"the endpoint's answer is not JSON ({_words(text)}): {error}"
        raise ModelError("model_invalid", "bad_body", why) from error
    if not isinstance(body, dict):
        why = f"the endpoint's answer is no object: {_words(text)}"
        raise ModelError("model_invalid", "bad_body", why)
    usage = usage_of(body.get("usage"), "prompt_tokens", "completion_tokens")
    if body.get("error"):
        why = f"status 200 with an error: {_error_said(body['error'])}"
        raise ModelError("model_invalid", "error_body", why, usage=usage)
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        why = f"the endpoint's answer has no choices: {_words(text)}"
        raise ModelError("model_invalid", "no_choices", why, usage=usage)
    finish = choice.get("finish_reason")
    if finish == "content_filter":
        why = "the provider's content filter stopped the reply"
        said = _content(message.get("content")) or message.get("refusal")
        if said:
            why = f"{why}: {_words(str(said))}"
        raise ModelError("content_filter", "content_filter", why, usage=usage)
    proposed = message.get("tool_calls") or []
    if not isinstance(proposed, list):
        why = f"the reply's tool_calls are no list: {_words(text_of(proposed) or '')}"
        raise ModelError("model_invalid", "bad_body", why, usage=usage)
    calls = [_call(made, request) for made in proposed if isinstance(made, dict)]
    content = _content(message.get("content"))
    if message.get("refusal") and not calls and not content:
        raise ModelError("content_filter", "refusal", str(message["refusal"])[:1000], usage=usage)
    if not calls and not (content and content.strip()):
        text = f"the model said nothing (finish_reason {finish})"
        raise ModelError("model_invalid", "empty_reply", text, usage=usage)
    model = request["model"].get("name") or ""
    answered = body.get("model")
    if isinstance(answered, str) and answered and answered != model:
        notes.append(f"answered by {answered}")
    return Reply(
        content, calls, str(finish or ("tool_calls" if calls else "stop")), model, notes, usage
    )


def _words(text: str) -> str:
    """What a provider sent, as short as a person reads it."""
    short = text.strip()
    return f"{short[:500]}..." if len(short) > 500 else short or "it is empty"


def _error_said(error: Any) -> str:
    """The text of an error body, and its code; the whole of it if there is no text."""
    if not isinstance(error, dict) or not error.get("message"):
        return _words(text_of(error) or "")
    code = error.get("code")
    return _words(str(error["message"]) + (f" (code {code})" if code else ""))


def _content(content: Any) -> str | None:
    """A text, or the texts of a list of parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return text_of(content)


def _call(made: dict[str, Any], request: dict[str, Any]) -> ToolCall:
    function = made.get("function")
    function = function if isinstance(function, dict) else {}
    arguments, raw = object_of(function.get("arguments"))
    given = made.get("id")
    return ToolCall(
        str(given) if given else None,
        _inward(str(function.get("name") or ""), request),
        arguments,
        raw,
    )


def _refused_option(error: openai.BadRequestError, body: dict[str, Any]) -> str | None:
    """The optional parameter a 400 complains about, if we sent it."""
    text = f"{error.param or ''} {error.message}".lower()
    return next((name for name in _OPTIONAL if name in body and name in text), None)


def of_error(error: Exception) -> ModelError:
    """The table."""
    text = str(error) or type(error).__name__
    if isinstance(error, openai.APIStatusError):
        return _of_status(error, text)
    if isinstance(error, openai.APITimeoutError | httpx2.TimeoutException):
        inner = error.__cause__ if isinstance(error, openai.APITimeoutError) else error
        connect = isinstance(inner, httpx2.ConnectTimeout | httpx2.PoolTimeout)
        return ModelError("transient", "connect_timeout" if connect else "read_timeout", text)
    if isinstance(error, openai.APIConnectionError | httpx2.TransportError):
        inner = error.__cause__ if isinstance(error, openai.APIConnectionError) else error
        if isinstance(inner, httpx2.ConnectError):
            return ModelError("transient", connecting(inner).code, f"{text} {inner}".strip())
        return ModelError("transient", "connection_lost", f"{text} {inner or ''}".strip())
    return ModelError("model_invalid", "bad_body", text)


def _of_status(error: openai.APIStatusError, text: str) -> ModelError:
    status, code = error.status_code, f"http_{error.status_code}"
    lower = f"{text} {error.code or ''}".lower()
    wait = retry_after(error.response.headers)
    if status == 429:
        if "insufficient_quota" in lower:
            return ModelError("model_unavailable", "insufficient_quota", text)
        return ModelError("transient", "rate_limited", text, retry_after_seconds=wait)
    if status in (408, 409, 425) or status >= 500:
        return ModelError("transient", code, text, retry_after_seconds=wait)
    if status in (401, 403):
        return ModelError("permission", code, text)
    if status in (400, 413) and any(words in lower for words in _TOO_LONG):
        return ModelError("context_overflow", "context_length", text)
    if status == 400 and any(words in lower for words in _POLICY):
        return ModelError("content_filter", "content_filter", text)
    return ModelError("model_unavailable", code, text)
