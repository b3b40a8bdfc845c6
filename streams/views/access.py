"""Who calls, what they may do, how often: bearer tokens from a file, roles, a limit per caller."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from perdure.schemas.records import USER_ID_PATTERN

log = logging.getLogger("perdure.views")

ROLES: Final = ("viewer", "operator", "approver")


class BadTokens(ValueError):
    """A tokens file that can't be used; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls. Operators and approvers may view as well."""

    user: str
    roles: frozenset[str]
    dev: bool = False

    def may(self, role: str) -> bool:
        return role in self.roles or (role == "viewer" and bool(self.roles))


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def new_token() -> str:
    return secrets.token_urlsafe(32)


def entry(token: str, user: str, roles: list[str]) -> dict[str, Any]:
    """What the file holds of a token: never the token."""
    return {"token_sha256": digest_of(token), "user": user, "roles": roles}


def read_tokens(path: Path) -> list[tuple[str, Caller]]:
    """The file's entries, one JSON object a line (or a list of them). Raises `BadTokens`."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadTokens(f"the tokens file {path} can't be read: {error}") from error
    try:
        if text.lstrip().startswith("["):
            plain = json.loads(text)
        else:
            plain = [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise BadTokens(f"the tokens file {path} is not JSON: {error}") from error
    return [_caller(path, number, each) for number, each in enumerate(plain, 1)]


def _caller(path: Path, number: int, each: Any) -> tuple[str, Caller]:
    where = f"entry {number} of the tokens file {path}"
    if not isinstance(each, dict):
        raise BadTokens(f"{where} must be an object with token_sha256, user and roles")
    digest, user, roles = each.get("token_sha256"), each.get("user"), each.get("roles")
    if not isinstance(digest, str) or not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise BadTokens(
            f"{where}: token_sha256 must be 64 hex digits: `perdure keys token` makes one"
        )
    if not isinstance(user, str) or not re.match(USER_ID_PATTERN, user):
        raise BadTokens(f"{where}: user must be a user id")
    if not isinstance(roles, list) or not roles or not set(map(str, roles)) <= set(ROLES):
        raise BadTokens(f"{where}: roles must be some of {', '.join(ROLES)}")
    return digest, Caller(user, frozenset(roles))


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size


class Access:
    """The tokens of a file, read again when it changes; or, with ``dev``, one local user for all."""

    HALF_WRITTEN_SECONDS: Final = 5.0
    """So long the entries of before count while the file can't be read: an editor is at it."""

    def __init__(
        self,
        path: Path | None,
        dev: Caller | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._dev = dev
        self._monotonic = monotonic
        self._stamp: tuple[int, int] | None = None
        self._bad_since: float | None = None
        self._known: list[tuple[str, Caller]] = []
        if path is not None:
            self._known, self._stamp = read_tokens(path), _stamp(path)

    def _look(self, path: Path) -> None:
        """A file that is broken, or gone, lets nobody in: somebody may have been taken out of it."""
        stamp = _stamp(path)
        if stamp == self._stamp and self._bad_since is None:
            return
        try:
            self._known = read_tokens(path)
        except BadTokens as error:
            if self._bad_since is None or stamp != self._stamp:
                log.error("nobody is let in until it is mended: %s", error)
            now = self._monotonic()
            self._bad_since = now if self._bad_since is None else self._bad_since
            if stamp is None or now - self._bad_since > self.HALF_WRITTEN_SECONDS:
                self._known = []
        else:
            self._bad_since = None
        self._stamp = stamp

    def caller(self, token: str | None) -> Caller | None:
        """Who holds this token. Every entry is compared, each in constant time."""
        if self._dev is not None:
            return self._dev
        if token is None:
            return None
        if self._path is not None:
            self._look(self._path)
        asked = digest_of(token)
        found = None
        for digest, caller in self._known:
            if hmac.compare_digest(digest, asked):
                found = caller
        return found


class Rate:
    """A bucket for each caller: ``burst`` at once, ``per_second`` after that."""

    MOST_CALLERS: Final = 10_000

    def __init__(self, per_second: float = 50.0, burst: float = 200.0) -> None:
        self._per_second = per_second
        self._burst = burst
        self._left: dict[str, tuple[float, float]] = {}

    def allows(self, who: str, now: float) -> bool:
        """``now``: seconds of any clock that only goes on."""
        left, at = self._left.pop(who, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._per_second)
        allowed = left >= 1
        self._left[who] = (left - 1 if allowed else left, now)
        if len(self._left) > self.MOST_CALLERS:  # oldest first: who was not heard of longest
            del self._left[next(iter(self._left))]
        return allowed
