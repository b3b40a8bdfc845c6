"""The command ``perdure``: commands are imported when called, so that ``--help`` is quick."""

from __future__ import annotations


def main() -> None:
    from .app import run

    run()
