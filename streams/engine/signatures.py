"""Who decided, as far as it is proved: the engine's view of the approvers' public keys.

The file is read again when it has changed, so a new key needs no restart. A file that can't be
read refuses signed decisions (a signature is never taken for none) and is logged once.
"""

from __future__ import annotations

import logging
from pathlib import Path

from perdure.schemas import signing
from perdure.schemas.records import ApprovalDecision

log = logging.getLogger(__name__)


class Signatures:
    """``path``: a JWKS with a member ``approver`` in each key, or None where there is none."""

    def __init__(self, path: Path | None, required: bool = False) -> None:
        self._path = path
        self.required = required
        self._seen: tuple[int, int] | None = None
        self._keys: dict[str, list[signing.OKPKey]] = {}
        self._problem: str | None = None

    def proved(self, decision: ApprovalDecision, at: int) -> tuple[ApprovalDecision, str]:
        """The decision and how its approver was proved: ``signature`` or ``none``.

        Raises `signing.Refused`.
        """
        if decision.signature is None:
            if self.required:
                raise signing.Refused("this deployment takes signed decisions only")
            return decision, "none"
        self._read()
        if self._problem is not None:
            raise signing.Refused(self._problem)
        return signing.verify(decision, self._keys.get(decision.approver, ()), at), "signature"

    def _read(self) -> None:
        if self._path is None:
            self._problem = "the engine has no keys of approvers (approver_keys): it can't verify"
            return
        try:
            stat = self._path.stat()
            seen = (stat.st_mtime_ns, stat.st_size)
            if seen == self._seen:
                return
            self._keys = signing.read_keys(self._path.read_bytes())
            self._seen, self._problem = seen, None
        except (OSError, signing.BadKeys) as error:
            self._seen = None
            problem = f"the engine's keys of approvers can't be used: {type(error).__name__}"
            if problem != self._problem:
                log.error("%s can't be used: %s", self._path, error)
            self._problem = problem
