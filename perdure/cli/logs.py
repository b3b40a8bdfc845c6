"""Log lines of a role, as text or as one JSON object a line, on stderr.

What a run carries never stands in them: an exception is told by its type and its way, not by its
text, which may hold what a user sent or a key in a URL; and of other libraries only warnings come
through, because at DEBUG some write whole requests. ``--log-level`` is of Perdure's own loggers.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.settings import Settings

_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class Lines(logging.Formatter):
    """A record as text, without the texts of exceptions."""

    def formatException(self, ei: Any) -> str:
        return "\n".join(_way(ei[1])) if ei[1] is not None else ""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = _shown(record)
        return super().formatMessage(record)

    def told(self, text: str) -> str:
        """A line for people that is no record of a logger."""
        return text


class JsonLines(Lines):
    """One JSON object a line: ts, level, logger, message; role, instance, run_id, action_id and
    error (an exception's way) where there are any."""

    def __init__(self, role: str, instance: str) -> None:
        super().__init__()
        self._own = {
            name: value for name, value in (("role", role), ("instance", instance)) if value
        }

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        more = dict(_about(record))
        if record.exc_info and record.exc_info[1] is not None:
            more["error"] = self.formatException(record.exc_info)
        return self._line(at, record.levelname, record.name, _shown(record), more)

    def told(self, text: str) -> str:
        return self._line(datetime.now(UTC), "INFO", "perdure", text, {})

    def _line(
        self, at: datetime, level: str, logger: str, message: str, more: dict[str, str]
    ) -> str:
        made = {
            "ts": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": level,
            "logger": logger,
            "message": message,
            **self._own,
            **more,
        }
        return json.dumps(made, ensure_ascii=True)  # a lone surrogate can't break the stream


def _about(record: logging.LogRecord) -> Iterator[tuple[str, str]]:
    """The run and the action, where the place that logs knows them (``extra``)."""
    action_id = getattr(record, "action_id", None)
    run_id = getattr(record, "run_id", None)
    if action_id and not run_id:
        run_id = str(action_id).rpartition("/")[0]
    if run_id:
        yield "run_id", str(run_id)
    if action_id:
        yield "action_id", str(action_id)


def _shown(record: logging.LogRecord) -> str:
    text = record.getMessage()
    if record.name == "asyncio":  # below its first line it shows futures with their exceptions
        return text.partition("\n")[0]
    return text


def _way(error: BaseException) -> Iterator[str]:
    """Where an exception came along and what it is; then what was behind it."""
    seen: set[int] = set()
    behind: BaseException | None = error
    while behind is not None and id(behind) not in seen:
        seen.add(id(behind))
        yield f"{'' if behind is error else 'behind it: '}{type(behind).__name__}"
        for frame in traceback.extract_tb(behind.__traceback__):
            yield f"  {frame.filename}:{frame.lineno} in {frame.name}"
        behind = behind.__cause__ or (None if behind.__suppress_context__ else behind.__context__)


def configure(settings: Settings, role: str = "") -> None:
    """Log to stderr as the settings say. A process that has handlers of its own keeps them."""
    made = JsonLines(role, settings.instance_id) if settings.log_format == "json" else Lines(_TEXT)
    root = logging.getLogger()
    ours = [each for each in root.handlers if isinstance(each.formatter, Lines)]
    if not ours:
        if root.handlers:
            return
        root.addHandler(logging.StreamHandler(sys.stderr))
        ours = root.handlers
    for handler in ours:
        handler.setFormatter(made)
    level = settings.log_level.upper()
    root.setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[level]))
    logging.getLogger("perdure").setLevel(level)
    if level == "WARNING":  # librdkafka warns of every retry that then succeeds
        logging.getLogger("perdure.kafka").setLevel(logging.ERROR)


def told(text: str) -> str:
    """A line for people in the format of this process's log."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, Lines):
            return handler.formatter.told(text)
    return text
