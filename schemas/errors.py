"""The one error of the record edge: what is wrong, and in which field."""

from __future__ import annotations


class RecordError(ValueError):
    """A record breaks the contract. ``field`` is a path such as ``plan[2].tool`` ("" = the whole).

    ``code`` is a short stable word for headers and metrics; ``str()`` is a sentence that never
    carries the whole payload.
    """

    def __init__(self, field: str, message: str, code: str = "invalid") -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field
        self.message = message
        self.code = code
