"""Keys of the people of a simulated world: what they sign with, and what its engines know of them."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from typing import Any, Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from perdure.schemas import signing
from perdure.schemas.records import ApprovalDecision
from perdure.streams.engine.signatures import Signatures

PEOPLE: Final = ("ann", "bob", "cyd", "dot", "eli")


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@functools.cache
def key_of(approver: str) -> dict[str, Any]:
    """A private key that is always the same; nobody else uses it."""
    secret = hashlib.sha256(f"simulated/{approver}".encode()).digest()
    known = Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
    return {
        "kty": "OKP", "crv": "Ed25519", "x": _text(known), "d": _text(secret),
        "kid": approver, "approver": approver,
    }  # fmt: skip


def signed(value: dict[str, Any], at: int, by: str) -> dict[str, Any]:
    """A decision with the signature of ``by``, who may not be whom it names."""
    decision = msgspec.convert(value, ApprovalDecision)
    made: dict[str, Any] = msgspec.to_builtins(signing.sign(decision, key_of(by), at))
    return made


@functools.cache
def _known() -> dict[str, Any]:
    keys = [signing.public(key_of(person)) for person in PEOPLE]
    return dict(signing.read_keys(json.dumps({"keys": keys}).encode()))


class SimSignatures(Signatures):
    """The real check; the keys are there without a file."""

    def __init__(self) -> None:
        super().__init__(None)

    def _read(self) -> None:
        self._keys = _known()
