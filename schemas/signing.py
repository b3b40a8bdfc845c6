"""Signed decisions: a JWS (Ed25519, RFC 8037) over what a person decided.

The payload is the decision itself: approval id, decision, approver, digest, arguments, answer,
budget, reason, and ``at`` (ms). It travels in ``signature`` as a compact JWS. A public key is an
entry of a JWKS file with a member ``approver``; an approver may have several (one that is being
replaced). What a signature binds can't be moved: not to another question or run (the id), not to
other arguments (the digest), not to another time (`CLOCKS_MS` around the question's life).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from joserfc import jws
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import OKPKey

from .canonical import canonical, parse
from .errors import RecordError
from .records import ApprovalDecision

ALGORITHM: Final = "Ed25519"
_TAKEN: Final = ["Ed25519", "EdDSA"]  # RFC 9864's name, and the older one that many libraries use
CLOCKS_MS: Final = 300_000
"""How far a signer's clock may be from the broker's."""
SIGNED: Final = (
    "approval_id",
    "decision",
    "approver",
    "digest",
    "arguments",
    "answer",
    "budget",
    "reason",
)


class BadKeys(ValueError):
    """A key file that can't be used; the text says why."""


class Refused(Exception):
    """A signature that proves nothing; the text says why."""


def new_key(approver: str) -> dict[str, Any]:
    """A private key as a JWK. Its public half is `public`."""
    key = OKPKey.generate_key("Ed25519")
    made: dict[str, Any] = key.as_dict(private=True)
    return {**made, "kid": key.thumbprint(), "alg": ALGORITHM, "use": "sig", "approver": approver}


def public(key: dict[str, Any]) -> dict[str, Any]:
    """The half that anyone may see."""
    return {name: value for name, value in key.items() if name != "d"}


def payload_of(decision: ApprovalDecision, at: int) -> bytes:
    """What is signed: the decision's fields that are set, and when."""
    plain = msgspec.to_builtins(decision)
    signed = {name: plain[name] for name in SIGNED if plain.get(name) is not None}
    return canonical({**signed, "at": at})


def sign(decision: ApprovalDecision, key: dict[str, Any], at: int) -> ApprovalDecision:
    """The decision with its signature. Raises `BadKeys`."""
    if decision.digest is None:
        raise BadKeys("only a decision with the question's digest can be signed")
    header = {"alg": ALGORITHM, "kid": key.get("kid", "")}
    text = jws.serialize_compact(header, payload_of(decision, at), _key(key), [ALGORITHM])
    return msgspec.structs.replace(decision, signature=text, decided_at=at)


def read_keys(text: bytes) -> dict[str, list[OKPKey]]:
    """The public keys of a JWKS, by approver. Raises `BadKeys`."""
    try:
        plain = parse(text)
        entries = plain["keys"]
        if not isinstance(entries, list):
            raise TypeError("keys is no list")
    except (RecordError, KeyError, TypeError) as error:
        raise BadKeys(f'is no JWKS ({{"keys": [...]}}): {error}') from error
    found: dict[str, list[OKPKey]] = {}
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict) or not isinstance(entry.get("approver"), str):
            raise BadKeys(f"keys[{index}] has no `approver`")
        if "d" in entry:
            raise BadKeys(f"keys[{index}] is a private key: keep it with its owner")
        found.setdefault(entry["approver"], []).append(_key(entry))
    return found


def _key(plain: dict[str, Any]) -> OKPKey:
    if plain.get("kty") != "OKP" or plain.get("crv") != "Ed25519":
        raise BadKeys("a key must be of kty OKP and crv Ed25519")
    wanted = ("kty", "crv", "x", "d", "kid")
    try:
        return OKPKey.import_key({name: plain[name] for name in wanted if name in plain})
    except (JoseError, ValueError, TypeError) as error:
        raise BadKeys(f"a key can't be read: {error}") from error


def verify(decision: ApprovalDecision, keys: Sequence[OKPKey], at: int) -> ApprovalDecision:
    """The decision as it was signed (its digest filled in). ``at``: the broker's time (ms).

    Raises `Refused`.
    """
    if not keys:
        raise Refused(f"the signature is of {decision.approver}, of whom no key is known")
    said = _payload(decision.signature or "", keys)
    when = said.pop("at", None)
    if not isinstance(when, int) or abs(at - when) > CLOCKS_MS:
        raise Refused("the signature was made at another time than the decision was sent")
    plain = msgspec.to_builtins(decision)
    if decision.digest is None:
        plain["digest"] = said.get("digest")
    sent = {name: plain[name] for name in SIGNED if plain.get(name) is not None}
    if not isinstance(said.get("digest"), str):
        raise Refused("the signature does not name the question's digest")
    if canonical(said) != canonical(sent):
        differs = [name for name in SIGNED if said.get(name) != sent.get(name)]
        raise Refused(
            f"the signature is over another decision: {', '.join(differs) or 'other fields'}"
        )
    return msgspec.structs.replace(decision, digest=said["digest"])


def _payload(text: str, keys: Sequence[OKPKey]) -> dict[str, Any]:
    for key in keys:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SecurityWarning)
                made = jws.deserialize_compact(text, key, _TAKEN)
            found = parse(made.payload)
        except (JoseError, RecordError, ValueError, TypeError):
            continue
        if isinstance(found, dict):
            return found
        raise Refused("what is signed is no decision")
    raise Refused("the signature is not that of a known key of the approver")
