"""The condition in a tool's ``approval``: CEL over `arguments` and `run`, checked when declared.

A misspelt argument would make the condition fail at run time, and so ask a person about every
call; here it is refused with the names that come near.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

import cel

from .signature import DefinitionError

WORDS = ("always", "never")
_TEXTS = re.compile(
    r"""[rRbB]*(\"\"\".*?\"\"\"|'''.*?'''|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')""", re.S
)
_COMMENT = re.compile(r"//[^\n]*")
_BOUND = re.compile(r"\.\s*(?:all|exists|exists_one|existsOne|map|filter)\s*\(\s*(\w+)\s*,")
_MEMBER = re.compile(r"(?<![\w.])arguments\s*\.\s*\??\s*([A-Za-z_]\w*)(?!\w*\s*\()")
_INDEX = re.compile(r"(?<![\w.])arguments\s*\[\s*\x00(\d+)\x00\s*\]")


def check(condition: str, parameters: Sequence[str], label: str) -> None:
    """Raise `DefinitionError` unless the condition compiles and names only what there is."""
    if condition in WORDS:
        return
    try:
        program = cel.compile(condition)
    except ValueError as error:
        raise DefinitionError(
            f"{label}: approval is neither `always`, `never` nor a CEL condition: {condition!r}: {_syntax(error)}"
        ) from None
    texts: list[str] = []

    def keep(match: re.Match[str]) -> str:
        texts.append(match.group(0))
        return f"\x00{len(texts) - 1}\x00"

    bare = _COMMENT.sub("", _TEXTS.sub(keep, condition))
    bound = set(_BOUND.findall(bare))
    for name in program.variables():
        if name not in ("arguments", "run") and name not in bound:
            hint = f"; did you mean `arguments.{name}`?" if name in parameters else ""
            raise DefinitionError(
                f"{label}: approval knows `arguments` and `run`, not `{name}`{hint}"
            )
    named = _MEMBER.findall(bare)
    named += [texts[int(i)].strip("rRbB").strip("\"'") for i in _INDEX.findall(bare)]
    for name in named:
        if name not in parameters:
            raise DefinitionError(
                f"{label}: approval names `arguments.{name}`, which is no argument of it{near(name, parameters)}"
            )


def near(name: str, known: Iterable[str]) -> str:
    """``; did you mean ...?`` or what there is."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return "; did you mean " + " or ".join(f"`{c}`" for c in close) + "?"
    return "; there is " + ", ".join(f"`{n}`" for n in names) if names else "; it has none"


def _syntax(error: ValueError) -> str:
    lines = [line for line in str(error).splitlines() if "ERROR" in line]
    text = lines[-1] if lines else str(error)
    return text.split("Syntax error: ")[-1].split(" expecting ")[0][:200]
