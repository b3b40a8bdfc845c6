"""The body of ``perdure simulate --matrix``: what happens, by crash point and kind of tool."""

from __future__ import annotations

import time

from .console import FAILED, leave, line, say


def matrix(as_json: bool) -> None:
    """Print the matrix; ends with 1 if a number of effects is not the promised one."""
    from perdure.testing.matrix import document, table
    from perdure.testing.matrix import matrix as columns

    began = time.perf_counter()
    reports = []
    wrong = []
    for kind, report in columns():
        reports.append((kind, report))
        killed = [cell for cell in report.cells if cell.number]
        say(f"{kind}: {len(killed)} deaths, {time.perf_counter() - began:.0f} s")
        for cell in killed:
            why = report.wrong(cell, report.promise)
            if why:
                wrong.append(f"{kind}, {cell.id}, {cell.point}: {cell.effects} effects, {why}")
            if as_json:
                line(document(kind, report, cell))
    if not as_json:
        print(table(reports))
        print("\npromised and observed:")
        for kind, report in reports:
            counts = sorted({cell.effects for cell in report.cells})
            told = " or ".join(str(count) for count in counts)
            print(f"  {kind}: {report.promise}; observed {told} in {len(report.cells) - 1} deaths")
    if wrong:
        for text in wrong:
            say(text)
        leave(FAILED, f"{len(wrong)} deaths did not give what was promised; the first: {wrong[0]}")
