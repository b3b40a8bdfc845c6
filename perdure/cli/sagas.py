"""The body of ``perdure simulate --sagas``: six writes undone, with a death at every point."""

from __future__ import annotations

import time

from .console import FAILED, leave, line, say


def sagas(as_json: bool) -> None:
    """Print the table; ends with 1 if a course is not balanced and does not say so."""
    from perdure.testing.sagas import all_sagas, document, table

    began = time.perf_counter()
    found = []
    wrong = []
    for saga, ends in all_sagas():
        found.append((saga, ends))
        say(f"{saga.name}: {len(ends)} courses, {time.perf_counter() - began:.0f} s")
        for end in ends:
            if as_json:
                line(document(saga, end))
            if end.wrong:
                wrong.append(f"{saga.name}, {end.id}, {end.point}: {', '.join(end.wrong)}")
    if not as_json:
        print(table(found))
    if wrong:
        for text in wrong:
            say(text)
        leave(FAILED, f"{len(wrong)} courses end wrong; the first: {wrong[0]}")
