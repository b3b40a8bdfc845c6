"""Identities made by the core: the same on every machine, in every attempt."""

from __future__ import annotations

import hashlib
import uuid

_NAMESPACE = uuid.UUID("6f1d9c52-6f0c-5f0e-9c0e-0d9a51c3b7aa")


def nonce(topic_id: str, partition: int, offset: int) -> str:
    """8 hex digits fixed by where the task's record lies (contract section 6)."""
    return hashlib.sha256(f"{topic_id}/{partition}/{offset}".encode()).hexdigest()[:8]


def idempotency_key(run_id: str, n: int | str, run_nonce: str) -> str:
    return f"{run_id}/{n}/{run_nonce}"


def declared(tool: str, values: bytes) -> str:
    """What stands for the number in the key of a tool that declares which arguments make it
    (``values``: their canonical JSON). The key stays the run's: runs and users share no result."""
    return f"{tool}~{hashlib.sha256(values).hexdigest()[:32]}"


def slot(name: str) -> int:
    """Where a declared key is remembered; few share one."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")


def request_id(key: str) -> str:
    """UUID v5 of an idempotency key, for services that insist on a UUID.

    By hand, as RFC 9562 section 5.5 says: `uuid.uuid5` takes 8 us, which every command would pay.
    """
    digest = hashlib.sha1(_NAMESPACE.bytes + key.encode(), usedforsecurity=False).hexdigest()
    variant = "89ab"[int(digest[16], 16) & 3]
    return f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:32]}"


def spread(text: str) -> float:
    """A number in [0, 1) that depends on nothing but ``text``: jitter without randomness."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") / 2**32
