"""What was really done, one JSON line each, if RETRIEVAL_DIARY names a file: for counting."""

from __future__ import annotations

import json
import os
from typing import Any


def note(what: str, **values: Any) -> None:
    """A line that stands in the file before the call is answered, whatever is killed then."""
    path = os.environ.get("RETRIEVAL_DIARY")
    if path:
        with open(path, "a", encoding="utf-8") as diary:
            diary.write(json.dumps({"what": what, "pid": os.getpid(), **values}) + "\n")
