"""The tools of the retrieval example: search a directory of documents, and read one of them.

RETRIEVAL_DOCUMENTS names the directory (default: `documents` beside this file). Both tools only
read, so a crash may call one again; what does not happen is that a search whose result the run has
is made a second time.
"""

from __future__ import annotations

import os
from pathlib import Path

from diary import note
from ranking import ranked, sections

from perdure import BusinessError, ToolContext, tool


def directory() -> Path:
    """Where the documents are. Raises `BusinessError` if there are none."""
    path = Path(os.environ.get("RETRIEVAL_DOCUMENTS", Path(__file__).with_name("documents")))
    if not any(path.glob("*.md")):
        raise BusinessError(f"there are no documents (*.md) in {path}: set RETRIEVAL_DOCUMENTS")
    return path


@tool("docs.search", effect="read_only", title="Search the documents for: {query}")
def search(context: ToolContext, query: str, limit: int = 3) -> dict:
    """Find the passages of the shop's documents that fit a question best, the best first."""
    note("search", run_id=context.run_id, query=query)
    found = ranked(query, sections(directory()))[: max(1, min(limit, 10))]
    return {
        "passages": [
            {"document": s.document, "title": s.title, "text": s.text, "score": round(score, 3)}
            for score, s in found
        ]
    }


@tool("docs.read", effect="read_only", title="Read {document}")
def read(context: ToolContext, document: str) -> dict:
    """Read one of the shop's documents, by the name that a search gave, such as `shipping`."""
    note("read", run_id=context.run_id, document=document)
    known = {path.stem: path for path in sorted(directory().glob("*.md"))}
    if document not in known:
        raise BusinessError(f"there is no document {document!r}; there are {', '.join(known)}")
    return {"document": document, "text": known[document].read_text("utf-8")}
