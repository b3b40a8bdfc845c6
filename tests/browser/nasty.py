"""Texts of case Z06: what an approval's prompt or a page may be attacked with, and how it must read."""

from __future__ import annotations

SHOWN = [
    # (id, what a model or a user wrote, what must be readable on the page)
    ("Z06.1", "evil\r\x1b[2K   to: bob", "evil\\r\\x1b[2K   to: bob"),
    ("Z06.2", "\u202egnp.live", "\\u202egnp.live"),
    ("Z06.3", "bo\u200bb", "bo\\u200bb"),
    ("Z06.4", "bob\U000e0100", "bob\\U000e0100"),
    ("Z06.5", "bob" + " " * 5000 + "AND evil", "bob5,000 blanksAND evil"),
    ("Z06.6", "\x1b]52;c;ZXZpbA==\x07", "\\x1b]52;c;ZXZpbA==\\x07"),
    (
        "Z06.7",
        "<img src=x onerror=\"document.title='XSS'\">",
        "<img src=x onerror=\"document.title='XSS'\">",
    ),
    (
        "Z06.8",
        "[click](javascript:document.title='XSS')",
        "[click](javascript:document.title='XSS')",
    ),
    (
        "Z06.9",
        "</script><script>document.title='XSS'</script>",
        "</script><script>document.title='XSS'</script>",
    ),
    ("Z06.10", "{{7*7}}${7*7}", "{{7*7}}${7*7}"),
]
