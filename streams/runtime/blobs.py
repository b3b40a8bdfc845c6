"""Large values by claim check: the bytes in a blob store, a reference on the topic.

Content-addressed (``<url>/<first 2 hex digits>/<sha256>``), so writing one twice is harmless and
a reader can tell whether it got what was meant. The store is any fsspec URL; a plain path or
``file:`` is written beside and renamed, so that a half-written blob is never seen.
"""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fsspec

KEYS = frozenset({"$blob", "size", "sha256"})
_SHA = re.compile(r"[0-9a-f]{64}")


class BlobError(Exception):
    """A blob is missing, or not what its reference says."""


def is_reference(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == KEYS


class Blobs:
    """One blob store. Blocks: call it in a thread where waiting is not allowed."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._fs, root = fsspec.core.url_to_fs(self.url)
        self._root = str(root).rstrip("/")
        protocol = self._fs.protocol
        self._local = "file" in ((protocol,) if isinstance(protocol, str) else protocol)
        if self._local:
            self.url = Path(self._root).absolute().as_uri()

    @property
    def shown(self) -> str:
        """The URL for people and logs: without a name and a password in it."""
        return re.sub(r"//[^/@]*@", "//", self.url)

    def put(self, content: bytes) -> dict[str, Any]:
        """Store the bytes; returns ``{"$blob", "size", "sha256"}``. Raises OSError."""
        sha = hashlib.sha256(content).hexdigest()
        name = f"{sha[:2]}/{sha}"
        if self._local:
            self._write(Path(self._root) / name, content)
        elif not self._fs.exists(f"{self._root}/{name}"):
            self._fs.pipe_file(f"{self._root}/{name}", content)
        return {"$blob": f"{self.url}/{name}", "size": len(content), "sha256": sha}

    def _write(self, path: Path, content: bytes) -> None:
        if path.exists() and path.stat().st_size == len(content):
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            with beside.open("wb") as out:
                out.write(content)
                out.flush()
                os.fsync(out.fileno())
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)

    def get(self, reference: Mapping[str, Any]) -> bytes:
        """The bytes, checked against size and SHA-256. Raises `BlobError`.

        Only this store is read: a reference to anywhere else is refused, so that nobody can make
        us read a foreign file or address.
        """
        path = self._path(reference)
        url, size, sha = reference["$blob"], reference["size"], reference["sha256"]
        try:
            content: bytes = self._fs.cat_file(path)
        except FileNotFoundError as error:
            raise BlobError(f"the blob {url} is missing") from error
        if len(content) != size:
            raise BlobError(f"the blob {url} has {len(content)} bytes, not {size}")
        if hashlib.sha256(content).hexdigest() != sha:
            raise BlobError(f"the blob {url} has another SHA-256 than its reference")
        return content

    def problem(self, reference: Mapping[str, Any]) -> str | None:
        """Why `get` would refuse a reference, as far as it shows without reading what is stored."""
        try:
            path = self._path(reference)
            found = self._fs.size(path)
        except BlobError as error:
            return str(error)
        except FileNotFoundError:
            return f"the blob {reference['$blob']} is missing"
        if found is not None and found != reference["size"]:
            return f"the blob {reference['$blob']} has {found} bytes, not {reference['size']}"
        return None

    def _path(self, reference: Mapping[str, Any]) -> str:
        url, size, sha = reference.get("$blob"), reference.get("size"), reference.get("sha256")
        if not isinstance(sha, str) or not _SHA.fullmatch(sha) or not isinstance(size, int):
            raise BlobError("a blob reference needs $blob, size and sha256")
        if url != f"{self.url}/{sha[:2]}/{sha}":
            raise BlobError(
                f"the blob {str(url)[:200]} is not in this deployment's store {self.url}"
            )
        return f"{self._root}/{sha[:2]}/{sha}"
