from __future__ import annotations

from pathlib import Path

import pytest
from perdure.connectors.loading import LoadError, load_all, load_tools

GOOD = '''
from perdure import tool, ToolContext
@tool("{name}", effect="read_only")
def f(context: ToolContext, n: int) -> int:
    """F."""
    return n
again = f
'''


def _write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_tools_of_a_file(tmp_path: Path) -> None:
    target = _write(tmp_path / "loading_good.py", GOOD.format(name="a.b"))
    assert [t.name for t in load_tools(target)] == ["a.b"]
    assert load_tools(target)[0] is load_tools(target)[0]


def test_two_files_of_one_name(tmp_path: Path) -> None:
    for place in ("x", "y"):
        (tmp_path / place).mkdir()
    files = [_write(tmp_path / p / "loading_same.py", GOOD.format(name=p)) for p in ("x", "y")]
    assert [t.name for t in load_all(files)] == ["x", "y"]


def test_a_name_declared_twice_is_refused(tmp_path: Path) -> None:
    files = [_write(tmp_path / f"loading_{p}.py", GOOD.format(name="same")) for p in ("p", "q")]
    with pytest.raises(LoadError, match=r"declared twice: .*loading_p.py:3 and .*loading_q.py:3"):
        load_all(files)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1", "has no tools"),
        ("import no_such_thing_at_all", "can't be loaded: ModuleNotFoundError"),
        ("def", "SyntaxError"),
        ("import sys\nsys.exit(3)", r"can't be loaded: SystemExit: 3 \(.*loading_bad.*.py:2\)"),
        ("\n1 / 0", r"ZeroDivisionError: division by zero \(.*loading_bad.*.py:2\)"),
    ],
)
def test_files_that_can_not_be_used(tmp_path: Path, text: str, says: str) -> None:
    target = _write(tmp_path / f"loading_bad{abs(hash(text))}.py", text)
    with pytest.raises(LoadError, match=says):
        load_tools(target)


def test_missing_file_and_module() -> None:
    with pytest.raises(LoadError, match="no such file"):
        load_tools("nowhere/my_tools.py")
    with pytest.raises(LoadError, match="no such module"):
        load_tools("nowhere.at_all")


def test_a_module() -> None:
    with pytest.raises(LoadError, match="has no tools"):
        load_tools("perdure.connectors.gate")


def test_a_module_that_ends_the_process_can_not_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loading_ends.py").write_text("raise SystemExit")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(LoadError, match=r"loading_ends: can't be loaded: SystemExit"):
        load_tools("loading_ends")
