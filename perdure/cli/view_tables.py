"""Of which topics the tables in a view process's directory were made.

Topics that were deleted and made anew have other ids under the same names: tables of the old ones hold
runs that are no more, and offsets that mean nothing.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from perdure.schemas import topics

if TYPE_CHECKING:
    from perdure.streams.runtime.ports import Admin

NAMES: Final = (topics.EVENTS, *map(topics.changelog, topics.VIEW_TABLES))
_NOTE: Final = "made_of.json"


def directories(data_dir: Path) -> list[Path]:
    """Of all view processes that have run on this data directory."""
    return sorted(path for path in (data_dir / "views").glob("*") if path.is_dir())


def ids_now(admin: Admin) -> dict[str, str]:
    """The ids of the topics that tables are made of, as they are now."""
    return dict(admin.topic_ids(list(NAMES)).result())


def fits(directory: Path, ids: Mapping[str, str]) -> bool:
    """Whether what lies there was made of these."""
    try:
        return bool(json.loads((directory / _NOTE).read_text()) == ids)
    except (OSError, ValueError):
        return False


def drop(directory: Path) -> None:
    """All that lies there, but for the lock that this process holds."""
    for path in directory.iterdir() if directory.is_dir() else ():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != "lock":
            path.unlink(missing_ok=True)


def note(directory: Path, ids: Mapping[str, str]) -> None:
    (directory / _NOTE).write_text(json.dumps(ids))
