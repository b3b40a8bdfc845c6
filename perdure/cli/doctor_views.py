"""What `perdure doctor` says of the views: who may call, where the page is, whether the tables fit."""

from __future__ import annotations

import json
import stat
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from perdure.settings import Settings
from perdure.streams.cluster.ports import is_free
from perdure.streams.runtime.errors import KafkaUnreachable, Unanswered
from perdure.streams.runtime.kafka import ConfluentKafka
from perdure.streams.views.access import BadTokens, read_tokens

from . import view_tables
from .finding import OK, PROBLEM, WARN, Finding
from .up import PAGE_PORT

_ANSWER_SECONDS: Final = 3.0


def here(made: Settings) -> Iterator[Finding]:
    """What can be seen on this machine."""
    up = _noted(made.data_dir / "up.json")
    given = up.get("tokens_file")
    yield _tokens(made.tokens_file or (Path(given) if isinstance(given, str) else None))
    yield _page(up.get("url"))


def _tokens(path: Path | None) -> Finding:
    if path is None:
        text = "no tokens_file: `perdure up` lets in whoever is on this machine, `perdure views` needs one or --dev"
        return Finding("tokens", OK, text)
    try:
        known = read_tokens(path)
        mode = path.stat().st_mode
    except BadTokens as error:
        return Finding("tokens", PROBLEM, str(error))
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        text = f"others may write {path}, and so let themselves in: chmod 600 {path}"
        return Finding("tokens", PROBLEM, text)
    if mode & stat.S_IROTH:
        text = (
            f"everybody on this machine may read {path}, who may call and as what: chmod 600 {path}"
        )
        return Finding("tokens", WARN, text)
    people = sorted({caller.user for _, caller in known})
    return Finding(
        "tokens", OK, f"{path} lets in {len(people)}: {', '.join(people)[:200] or 'nobody'}"
    )


def _page(url: Any) -> Finding:
    """Where the running `perdure up` of this data directory serves it, if one does."""
    if not isinstance(url, str):
        if is_free(PAGE_PORT):
            return Finding("page", OK, f"port {PAGE_PORT} is free for it")
        text = f"port {PAGE_PORT} is taken: `perdure up` takes the next free one, `perdure views` needs --port"
        return Finding("page", OK, text)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/ready", timeout=_ANSWER_SECONDS):
            return Finding("page", OK, f"{url} is served and ready")
    except urllib.error.HTTPError as error:
        with error:
            text = f"{url} is served and not ready ({error.code}): it is still reading the log"
        return Finding("page", WARN, text)
    except OSError as error:
        text = f"{url} does not answer ({getattr(error, 'reason', error)}): see the log of `perdure up`"
        return Finding("page", WARN, text)


def _noted(up: Path) -> dict[str, Any]:
    """What the running `perdure up` of this data directory has noted."""
    try:
        noted = json.loads(up.read_text())
    except (OSError, ValueError):
        return {}
    return noted if isinstance(noted, dict) else {}


def tables(made: Settings) -> Iterator[Finding]:
    """The directories of view processes that have run here. Asks Kafka for its topics."""
    found = view_tables.directories(made.data_dir)
    if not found:
        return
    try:
        ids = view_tables.ids_now(ConfluentKafka(made.runtime()).admin())
    except (KafkaUnreachable, Unanswered) as error:
        yield Finding("view tables", WARN, f"can't be compared with their topics: {error}")
        return
    for directory in found:
        if view_tables.fits(directory, ids):
            yield Finding("view tables", OK, f"{directory} was made of these topics")
        else:
            text = (
                f"{directory} was made of other topics than these: the next `perdure views` of that "
                "name drops it and makes it anew from agent.events; it can be deleted"
            )
            yield Finding("view tables", WARN, text)
