"""What a signature proves, and what it can't be moved to."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from joserfc import jws
from joserfc.jwk import OctKey
from perdure.schemas import codec, signing
from perdure.schemas.records import ApprovalDecision, Budget

NOW = 1_700_000_000_000
ANN, BOB = signing.new_key("ann"), signing.new_key("bob")
DIGEST = "d" * 64


def jwks(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": [signing.public(key) for key in keys]}).encode()


KNOWN = signing.read_keys(jwks(ANN, BOB))


def decision(**values: Any) -> ApprovalDecision:
    plain = {"approval_id": "r/a1", "decision": "approve", "approver": "ann", "digest": DIGEST}
    return ApprovalDecision(**{**plain, **values})


def sent(made: ApprovalDecision) -> ApprovalDecision:
    """As the engine gets it."""
    return codec.decode(codec.encode(made), ApprovalDecision)


def check(made: ApprovalDecision, at: int = NOW) -> ApprovalDecision:
    return signing.verify(sent(made), KNOWN.get(made.approver, []), at)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {
            "decision": "modify",
            "arguments": {"amount": 2**70, "note": "é", "half": 0.1},
            "reason": "less",
        },
        {"decision": "answer", "answer": {"a": [1, None]}},
        {"decision": "extend", "budget": Budget(steps=5)},
    ],
)
def test_a_decision_proves_its_approver(values: dict[str, Any]) -> None:
    made = signing.sign(decision(**values), ANN, NOW)
    assert check(made, NOW + 200_000).digest == DIGEST


def test_the_digest_need_not_be_sent_beside_the_signature() -> None:
    made = msgspec.structs.replace(signing.sign(decision(), ANN, NOW), digest=None)
    assert check(made).digest == DIGEST


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("approval_id", "r/a2"),
        ("approval_id", "other/a1"),
        ("decision", "reject"),
        ("approver", "bob"),
        ("digest", "e" * 64),
        ("arguments", {"amount": 9}),
        ("reason", "another"),
        ("answer", 1),
        ("budget", Budget(steps=1)),
    ],
)
def test_it_can_not_be_moved_to_another_decision(field: str, value: Any) -> None:
    made = msgspec.structs.replace(signing.sign(decision(), ANN, NOW), **{field: value})
    with pytest.raises(signing.Refused):
        check(made)


@pytest.mark.parametrize("at", [NOW - signing.CLOCKS_MS - 1, NOW + signing.CLOCKS_MS + 1])
def test_it_can_not_be_moved_to_another_time(at: int) -> None:
    with pytest.raises(signing.Refused, match="another time"):
        check(signing.sign(decision(), ANN, NOW), at)


def test_another_persons_key_proves_nothing() -> None:
    made = signing.sign(decision(), BOB, NOW)
    with pytest.raises(signing.Refused, match="not that of a known key"):
        check(made)


def test_a_person_without_a_key_proves_nothing() -> None:
    made = signing.sign(decision(approver="eve"), signing.new_key("eve"), NOW)
    with pytest.raises(signing.Refused, match="no key is known"):
        check(made)


def test_an_old_key_counts_beside_a_new_one_until_it_is_dropped() -> None:
    new = signing.new_key("ann")
    made = sent(signing.sign(decision(), ANN, NOW))
    signing.verify(made, signing.read_keys(jwks(new, ANN))["ann"], NOW)
    with pytest.raises(signing.Refused):
        signing.verify(made, signing.read_keys(jwks(new))["ann"], NOW)


def forged(header: dict[str, Any], key: Any, algorithm: str) -> str:
    payload = signing.payload_of(decision(), NOW)
    return jws.serialize_compact(header, payload, key, [algorithm])


@pytest.mark.parametrize(
    "text",
    [
        "", "nonsense", "a.b.c", "e30.e30.", "é" * 40,
        forged({"alg": "HS256"}, OctKey.import_key(ANN["x"] + "0" * 10), "HS256"),
    ],
)  # fmt: skip
def test_what_is_no_signature_of_ours_proves_nothing(text: str) -> None:
    with pytest.raises(signing.Refused, match="not that of a known key"):
        check(msgspec.structs.replace(decision(), signature=text))


def test_the_algorithm_none_is_no_signature() -> None:
    head, payload, _ = (signing.sign(decision(), ANN, NOW).signature or "").split(".")
    unsigned = "eyJhbGciOiJub25lIn0." + payload + "."
    assert head != "eyJhbGciOiJub25lIn0"
    with pytest.raises(signing.Refused):
        check(msgspec.structs.replace(decision(), signature=unsigned))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"[]", "is no JWKS"),
        (b'{"keys": [{"kty": "OKP"}]}', "no `approver`"),
        (json.dumps({"keys": [ANN]}).encode(), "private key"),
        (b'{"keys": [{"approver": "a", "kty": "RSA"}]}', "crv Ed25519"),
        (
            b'{"keys": [{"approver": "a", "kty": "OKP", "crv": "Ed25519", "x": "???"}]}',
            "can't be read",
        ),
    ],
)
def test_a_key_file_that_can_not_be_used_says_why(text: bytes, told: str) -> None:
    with pytest.raises(signing.BadKeys) as error:
        signing.read_keys(text)
    assert told in str(error.value)


def test_nothing_is_signed_without_the_questions_digest() -> None:
    with pytest.raises(signing.BadKeys, match="digest"):
        signing.sign(decision(digest=None), ANN, NOW)
