"""The body of ``perdure keys create``, and signing with a key that is there."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

from perdure.schemas import signing
from perdure.schemas.canonical import parse
from perdure.schemas.errors import RecordError
from perdure.schemas.records import USER_ID_PATTERN, ApprovalDecision
from perdure.settings import Settings

from .console import FAILED, USAGE, leave, line, say


def create(
    made: Settings, approver: str, directory: Path | None, replace: bool, as_json: bool
) -> None:
    """A private key for its owner, its public half for the engines."""
    if not re.match(USER_ID_PATTERN, approver):
        leave(USAGE, f"{approver!r} can't be an approver's name: letters, digits and - _ . : @")
    private = private_key_of(made, approver) if directory is None else directory / _file(approver)
    public = made.keys_of_approvers()
    if private.exists() and not replace:
        leave(
            FAILED, f"{private} is there already: --replace makes a new key and drops the old one"
        )
    key = signing.new_key(approver)
    known = _known(public)
    if replace:
        known = [each for each in known if each.get("approver") != approver]
    _write(private, json.dumps(key, indent=1), 0o600)
    text = json.dumps({"keys": [*known, signing.public(key)]}, indent=1)
    _write(public, text, 0o644)
    if as_json:
        line(
            {
                "approver": approver,
                "private": str(private),
                "public": str(public),
                "kid": key["kid"],
            }
        )
        return
    print(f"private key of {approver}: {private} (keep it with them)")
    print(f"public keys: {public} (every engine needs it: approver_keys)")


def _file(approver: str) -> str:
    return approver.replace(":", "_") + ".jwk"  # ids hold no path separator


def _known(path: Path) -> list[dict[str, object]]:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return []
    try:
        signing.read_keys(raw)
        found: list[dict[str, object]] = parse(raw)["keys"]
        return found
    except (signing.BadKeys, RecordError) as error:
        leave(FAILED, f"{path} {error}; move it away first")


def _write(path: Path, text: str, mode: int) -> None:
    """All of it or nothing, readable to whom it is meant for from the first byte on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".new")
    beside.unlink(missing_ok=True)
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "w") as file:
        file.write(text + "\n")
    beside.replace(path)


def private_key_of(made: Settings, approver: str) -> Path:
    """Where an approver's private key lies: `signing_key`, else under the data directory."""
    return made.signing_key or made.data_dir / "keys" / _file(approver)


def signed(made: Settings, decision: ApprovalDecision) -> ApprovalDecision:
    """The decision, signed where the approver's key is there and the question is known."""
    path = private_key_of(made, decision.approver)
    if decision.digest is None or not path.exists():
        if made.signing_key is not None and not path.exists():
            leave(USAGE, f"the signing key {path} is not there")
        return decision
    try:
        key = parse(path.read_bytes())
        if key.get("approver") != decision.approver:
            leave(USAGE, f"{path} is the key of {key.get('approver')}, not of {decision.approver}")
        made_of = signing.sign(decision, key, time.time_ns() // 1_000_000)
    except (OSError, RecordError, signing.BadKeys, AttributeError) as error:
        leave(USAGE, f"{path} can't be used to sign: {error}")
    say(f"signed as {decision.approver}")
    return made_of
