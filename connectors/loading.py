"""Finding the tools of a file or a module."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from .tool import Tool


class LoadError(Exception):
    """Tools can't be loaded; the text says what to do."""


def load_tools(target: str | Path) -> list[Tool[..., Any]]:
    """The tools of ``my_tools.py`` or ``package.module``, by name. Raises `LoadError`."""
    module = _module(str(target))
    found: dict[str, Tool[..., Any]] = {}
    for value in vars(module).values():
        if isinstance(value, Tool):
            _add(found, value)
    if not found:
        raise LoadError(
            f"{target}: has no tools; put `@tool` (from perdure import tool) over a function"
        )
    return [found[name] for name in sorted(found)]


def load_all(targets: Iterable[str | Path]) -> list[Tool[..., Any]]:
    """The tools of several files or modules; a name declared twice is refused."""
    found: dict[str, Tool[..., Any]] = {}
    for target in targets:
        for each in load_tools(target):
            _add(found, each)
    return list(found.values())


def _add(found: dict[str, Tool[..., Any]], new: Tool[..., Any]) -> None:
    old = found.setdefault(new.name, new)
    if old is not new:
        raise LoadError(f"the tool {new.name} is declared twice: {_place(old)} and {_place(new)}")


def _place(tool: Tool[..., Any]) -> str:
    code = getattr(tool.function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else tool.__module__


def _module(target: str) -> ModuleType:
    if target.endswith(".py") or "/" in target:
        return _from_file(Path(target))
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does
    try:
        return importlib.import_module(target)
    except ModuleNotFoundError as error:
        if error.name and (target == error.name or target.startswith(error.name + ".")):
            raise LoadError(
                f"{target}: no such module; give a file (my_tools.py) or a module that Python can import from here"
            ) from error
        raise LoadError(_broken(target, error)) from error
    except (Exception, SystemExit) as error:  # exit() would end the command without a word
        raise LoadError(_broken(target, error)) from error


def _from_file(path: Path) -> ModuleType:
    path = path.expanduser().resolve()
    if not path.is_file():
        raise LoadError(f"{path}: no such file")
    loaded = sys.modules.get(path.stem)
    if loaded is not None and getattr(loaded, "__file__", None) == str(path):
        return loaded
    name = (
        path.stem
        if loaded is None
        else f"{path.stem}_{hashlib.sha256(bytes(path)).hexdigest()[:8]}"
    )
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LoadError(f"{path}: is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # type hints are looked up there
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))  # as `python my_tools.py` does
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise LoadError(_broken(str(path), error)) from error
    return module


def _broken(target: str, error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    place = next(
        (f" ({f.filename}:{f.lineno})" for f in reversed(frames) if "importlib" not in f.filename),
        "",
    )
    return f"{target}: can't be loaded: {type(error).__name__}: {error}{place}"
