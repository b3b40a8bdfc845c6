"""What a model's answer says of its calls, against the records (contract section 5, `Outcome`).

A text can't be understood by rule, so this is kept narrow: a sentence counts as a claim when it
names a tool (as the model or a person would write it) or uses its verb in the past, and holds no
word of denial, doubt or intent. What it finds is a flag beside the lists, which are the truth.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_SENTENCE: Final = re.compile(r"[^.!?;\n]+(?:[.!?;](?=\S)[^.!?;\n]+)*[.!?;]?")
"""Up to a full stop that a blank or the end follows: names of tools hold dots."""
_NOT_DONE: Final = re.compile(
    r"\b(?:not|no|never|none|nothing|without|cannot|unable|fail(?:ed|s|ure)?|error|declin\w+|reject\w+"
    r"|refus\w+|denied|cancel\w+|skipp\w+|unknown|unclear|doubt|pending|wait\w*|instead|unless|if|would"
    r"|could|should|can|may|might|will|shall|must|need\w*|want\w*|plan\w*|going to|try|tried|attempt\w*"
    r"|please|whether)\b|n't\b|n\u2019t\b|\?",
    re.IGNORECASE,
)
_PAST: Final = {
    "buy": "bought", "make": "made", "pay": "paid", "put": "put", "sell": "sold", "send": "sent",
    "set": "set", "tell": "told", "write": "written",
}  # fmt: skip
_LONGEST: Final = 20_000
"""Characters of an answer that are read; claims stand at the beginning or nowhere."""


def spoken_of(text: str, tools: Iterable[str]) -> list[str]:
    """Those of the tools that a text speaks of as used, in their order."""
    sentences = [
        part.group().strip()
        for part in _SENTENCE.finditer(text[:_LONGEST])
        if not _NOT_DONE.search(part.group())
    ]
    claims = " \n ".join(sentences).lower()
    return [tool for tool in tools if any(re.search(form, claims) for form in _forms(tool))]


def _forms(tool: str) -> list[str]:
    """How a tool is named: as it is, as a model sees it, in words, and as what was done."""
    words = [word for word in re.split(r"[._\-]+", tool.lower()) if word]
    named = {re.escape(tool.lower()), re.escape(tool.lower().replace(".", "__"))}
    if len(words) > 1:
        named.add(r"\s+".join(map(re.escape, words)))
    forms = [rf"(?<![\w.]){name}(?![\w])" for name in sorted(named)] if len(tool) > 3 else []
    verb = words[-1] if words else ""
    past = _PAST.get(verb)
    who = "i|we"  # "was sent" is said of anything, "was refunded" hardly
    if past is None:
        who += "|have|has|been|was|were|is|are"
    if past is None and len(verb) > 3 and verb.isalpha():
        past = rf"{verb[:-1]}ed" if verb.endswith("e") else rf"{verb}{verb[-1]}?ed"
    if past is not None:
        forms.append(rf"\b(?:{who})\b(?:['\u2019]\w+)?(?:\s+\w+){{0,3}}\s+{past}\b")
        forms.append(rf"(?m)^\s*{past}\b")
    return forms
