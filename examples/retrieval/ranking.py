"""Documents as sections, ranked by BM25: no network, no index to build.

The formula is Okapi BM25 (Robertson and Zaragoza, 2009) with the usual k1 = 1.5 and b = 0.75 over
lower-case words; a few endings are cut, so that "returned" finds "return".
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

K1, B = 1.5, 0.75
STOP_WORDS = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "by",
        "can",
        "do",
        "does",
        "for",
        "from",
        "have",
        "how",
        "i",
        "if",
        "in",
        "is",
        "it",
        "my",
        "of",
        "on",
        "or",
        "that",
        "the",
        "to",
        "was",
        "we",
        "what",
        "when",
        "which",
        "will",
        "with",
        "you",
        "your",
    ]
)
ENDINGS = re.compile(r"(ings?|ed|es|s|e)$")


@dataclass(frozen=True)
class Section:
    """One ``##`` of a document, or what stands before the first."""

    document: str
    title: str
    text: str


def words(text: str) -> list[str]:
    """What is compared."""
    found = re.findall(r"[a-z0-9]+", text.lower())
    return [ENDINGS.sub("", w) if len(w) > 3 else w for w in found if w not in STOP_WORDS]


def sections(directory: Path) -> list[Section]:
    """Of every ``*.md`` in a directory, in the order of their names."""
    made = []
    for path in sorted(directory.glob("*.md")):
        head, *rest = re.split(r"^## ", path.read_text("utf-8"), flags=re.MULTILINE)
        name, _, intro = head.removeprefix("# ").partition("\n")
        made.append(Section(path.stem, name.strip(), intro.strip()))
        for part in rest:
            title, _, text = part.partition("\n")
            made.append(Section(path.stem, f"{name.strip()}: {title.strip()}", text.strip()))
    return made


def ranked(query: str, among: list[Section]) -> list[tuple[float, Section]]:
    """The sections that have a word of the query, the best first."""
    bags = [Counter(words(f"{each.title} {each.text}")) for each in among]
    lengths = [sum(bag.values()) for bag in bags]
    average = sum(lengths) / len(lengths) if lengths else 0.0
    scores = [0.0] * len(among)
    for word in set(words(query)):
        holding = sum(word in bag for bag in bags)
        weight = math.log(1 + (len(bags) - holding + 0.5) / (holding + 0.5))
        for n, bag in enumerate(bags):
            often = bag[word]
            scores[n] += (
                weight * often * (K1 + 1) / (often + K1 * (1 - B + B * lengths[n] / average))
            )
    found = [(score, each) for score, each in zip(scores, among, strict=True) if score > 0]
    return sorted(found, key=lambda pair: -pair[0])
