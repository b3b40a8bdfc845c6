"""The example's modules, loaded from their files under names of their own."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "refunds"
TEMPLATES = ROOT / "perdure" / "cli" / "templates"


def load(path: Path) -> ModuleType:
    name = f"{path.parent.name}_example_{path.stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


@contextmanager
def process(script: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A service of the example as a process of its own, and the line it says at its start."""
    command = [sys.executable, str(EXAMPLE / script), *arguments, "--end-with-stdin"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        yield child, json.loads(child.stdout.readline())
    finally:
        child.kill()
        child.communicate()
