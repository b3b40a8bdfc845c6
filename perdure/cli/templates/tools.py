"""Three tools that keep notes in the directory `notes/` beside this file.

    perdure worker --tools tools.py

Each says what its call does to the world (`effect`), and so what may be done after a crash.
"""

import json
import os
from pathlib import Path

from perdure import ABSENT, BusinessError, Found, ToolContext, tool

NOTES = Path(__file__).with_name("notes")
BOARD = Path(__file__).with_name("board.txt")


@tool("notes.search", effect="read_only")
def search(context: ToolContext, word: str) -> dict:
    """Find the notes that contain a word."""
    texts = [json.loads(path.read_text("utf-8"))["text"] for path in sorted(NOTES.glob("*.json"))]
    return {"notes": [text for text in texts if word.lower() in text.lower()]}


@tool("notes.add", effect="idempotent", title="Note: {text}")
def add(context: ToolContext, text: str) -> dict:
    """Keep a note."""
    if not text.strip():
        raise BusinessError("an empty note is not kept")
    NOTES.mkdir(exist_ok=True)
    # One file per idempotency key (request_id is made from it), put in place in one go: a second
    # call with the same key finds the first one's note.
    note, draft = _note(context), NOTES / f"{context.request_id}.{context.attempt}.draft"
    draft.write_text(json.dumps({"note_id": context.request_id, "text": text}), "utf-8")
    try:
        os.link(draft, note)
    except FileExistsError:
        pass
    finally:
        draft.unlink(missing_ok=True)
    return json.loads(note.read_text("utf-8"))


@add.query
def find_note(context: ToolContext, text: str):
    """Was the note kept? Asked after a crash, instead of guessing."""
    note = _note(context)
    return Found(json.loads(note.read_text("utf-8"))) if note.exists() else ABSENT


@tool("board.publish", effect="external", approval="always", title="Publish: {text}")
def publish(context: ToolContext, text: str) -> dict:
    """Publish a text on the board, for everybody to see. A person is asked first."""
    with BOARD.open("a", encoding="utf-8") as board:
        board.write(f"{text}\n")
    return {"published": text}


def _note(context: ToolContext) -> Path:
    return NOTES / f"{context.request_id}.json"
