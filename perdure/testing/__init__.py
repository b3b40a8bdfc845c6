"""Crash tests for your own tools; see docs/testing.md. Comes with pytest: use the fixture `crashes`.

`Crashes` is what the fixture gives, `Network` carries requests to your fake service, `Report` is
what a test asserts on, `Cell` one course in it; all for type hints. `TestingError` says that the
test itself is wrong. The rest of this package is the simulated world they run in.

The names are imported when they are first asked for: the plugin is loaded in every test run.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .course import Cell
    from .crashes import Crashes, TestingError
    from .network import Network
    from .report import Report

__all__ = ["Cell", "Crashes", "Network", "Report", "TestingError"]

_PLACES = {"Cell": "course", "Crashes": "crashes", "Network": "network", "Report": "report", "TestingError": "crashes"}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
