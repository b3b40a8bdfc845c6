"""The body of ``perdure keys token``."""

from __future__ import annotations

import json
import os
import re

from perdure.schemas.records import USER_ID_PATTERN
from perdure.settings import Settings
from perdure.streams.views.access import ROLES, entry, new_token

from .console import USAGE, leave, line


def token(made: Settings, user: str, roles: list[str], as_json: bool) -> None:
    """A new token, told once; its entry is added to the tokens file, or told too."""
    if not re.match(USER_ID_PATTERN, user):
        leave(USAGE, f"{user!r} can't be a user's name: letters, digits and - _ . : @")
    if unknown := sorted(set(roles) - set(ROLES)):
        leave(USAGE, f"--role {unknown[0]} is none of {', '.join(ROLES)}")
    secret = new_token()
    added = entry(secret, user, list(dict.fromkeys(roles)))
    path = made.tokens_file
    if path is not None:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(handle, "a") as file:
            file.write(json.dumps(added) + "\n")
    if as_json:
        line({"token": secret, "entry": added})
        return
    print(f"token of {user}: {secret} (told only now)")
    if path is None:
        print(f"entry for the tokens file: {json.dumps(added)}")
