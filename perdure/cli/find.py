"""The body of ``perdure find``: from what is known outside to runs and calls.

Two scans of agent.events. The first picks the runs, decoding only events that may name what is
looked for; the second folds those runs with the core's appliers, so that a call's state and its
arguments, also those that a person changed, are exactly what the engine holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from perdure.reading import covered, event_of, sensitive
from perdure.schemas import topics
from perdure.schemas.canonical import canonical, parse
from perdure.schemas.errors import RecordError
from perdure.schemas.records import RunEvent
from perdure.settings import Settings
from perdure.streams.core import keys
from perdure.streams.core.apply import BrokenHistory, begins_anew
from perdure.streams.core.state import Action, Run
from perdure.topics_reader import Scanner

from .console import FAILED, leave, line, say
from .folded import Folded
from .progress import Progress
from .terminal import clock, safe, table

_NOTHING: Final = object()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is looked for; all that is given must hold."""

    tool: str | None = None
    arguments: tuple[tuple[str, str], ...] = ()
    key: str | None = None
    user: str | None = None

    @property
    def calls(self) -> bool:
        """Whether calls are looked for, not runs."""
        return self.tool is not None or self.key is not None or bool(self.arguments)

    def hints(self) -> tuple[bytes, ...]:
        """Event types that can make a run one of those looked for."""
        return (b"action_proposed", b"approval_decided") if self.calls else (b"run_started",)

    def may_be(self, event: RunEvent) -> bool:
        """Whether the event's run may hold what is looked for. True too often, never too seldom."""
        if self.user not in (None, event.user_id):
            return False
        data = event.data
        if not self.calls:
            return event.type == "run_started"
        if not isinstance(data, dict):
            return False
        if event.type == "approval_decided":  # a `modify` brings arguments of its own
            return bool(self.arguments) and self._has(data.get("arguments"))
        return (
            event.type == "action_proposed"
            and self.tool in (None, data.get("target"))
            and self._keyed(str(data.get("key")))
            and self._has(data.get("arguments"))
        )

    def fits(self, run: Run, action: Action) -> bool:
        """Whether a call is one of those looked for, by what it was proposed with or ran with."""
        if self.tool not in (None, action.target) or not self._keyed(action.key):
            return False
        approval = None if action.approval is None else run.approval(action.approval)
        before = None if approval is None else approval.original_arguments
        return self._has(action.arguments) or (before is not None and self._has(before))

    def _keyed(self, key: str) -> bool:
        return (
            self.key is None or key.startswith(self.key) or keys.request_id(key) == self.key.lower()
        )

    def _has(self, arguments: Any) -> bool:
        return all(_same(_at(arguments, path), text) for path, text in self.arguments)


def wanted(tool: str | None, given: list[str], key: str | None, user: str | None) -> Wanted:
    """What the flags ask for. Raises ValueError with a sentence."""
    pairs = []
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ValueError(f"--argument takes NAME=VALUE, not {text!r}")
        pairs.append((name, value))
    if key == "" or user == "" or tool == "":
        raise ValueError("an empty value finds everything: leave the option out")
    made = Wanted(tool, tuple(pairs), key, user)
    if not made.calls and user is None:
        raise ValueError("say what to find: --tool, --argument, --key or --user")
    return made


def _at(arguments: Any, path: str) -> Any:
    """The argument of that name, else what the dotted path leads to."""
    if isinstance(arguments, dict) and path in arguments:
        return arguments[path]
    found = arguments
    for name in path.split("."):
        if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, dict) and name in found:
            found = found[name]
        else:
            return _NOTHING
    return found


def _same(value: Any, text: str) -> bool:
    """Whether a value is what somebody typed: a text as it is, anything else as JSON."""
    if value is _NOTHING:
        return False
    if isinstance(value, str):
        return value == text
    try:
        meant = parse(text)
    except RecordError:
        return False
    numbers = (int, float)
    if isinstance(value, numbers) and isinstance(meant, numbers):
        return isinstance(value, bool) == isinstance(meant, bool) and value == meant
    return canonical(value) == canonical(meant)


# --- scanning ------------------------------------------------------------------------------------


@dataclass
class Candidates:
    """The runs that may hold it. Owns the order: the one seen last is the latest."""

    wanted: Wanted
    runs: dict[str, int] = field(default_factory=dict)

    def take(self, event: RunEvent | None) -> None:
        if event is not None and self.wanted.may_be(event):
            self.runs[event.run_id] = max(event.at, self.runs.get(event.run_id, 0))

    def latest(self, limit: int) -> list[str]:
        return sorted(self.runs, key=lambda run_id: self.runs[run_id], reverse=True)[:limit]


class Found:
    """The runs of an id folded whole, the last one last, with when each call was proposed."""

    def __init__(self) -> None:
        self.runs: list[tuple[Folded, dict[int, int]]] = []
        self.broken: str | None = None

    def take(self, event: RunEvent) -> None:
        if self.broken is not None:
            return
        if not self.runs or begins_anew(self.runs[-1][0].run, event):
            self.runs.append((Folded(uncover=True), {}))
        folded, proposed = self.runs[-1]
        try:
            folded.take(event)
        except BrokenHistory as error:
            self.broken = str(error)
            return
        if event.type == "action_proposed":
            proposed[event.data["n"]] = event.at


def find(made: Settings, wanted: Wanted, limit: int, *, uncover: bool, as_json: bool) -> None:
    """Print what is found, the latest first; ends with 1 where there is nothing."""
    scanner = Scanner(made.client_conf(), made.topic_prefix)
    progress = Progress()
    candidates = Candidates(wanted)
    hints = wanted.hints()
    for raw in scanner.scan([topics.EVENTS]):
        if raw is None or raw.value is None:
            continue
        progress.step()
        if any(hint in raw.value for hint in hints):
            candidates.take(event_of(raw))
    names = candidates.latest(limit)
    folded: dict[str, Found] = {name: Found() for name in names}
    only = names[0] if len(names) == 1 else None
    for raw in scanner.scan([topics.EVENTS], run_id=only) if names else ():
        if raw is None:
            continue
        progress.step()
        run = folded.get((raw.key or b"").decode("utf-8", "replace"))
        event = None if run is None else event_of(raw)
        if run is not None and event is not None:
            run.take(event)
    rows = [row for name in names for row in rows_of(name, folded[name], wanted, uncover)]
    _print(rows, as_json)
    if len(candidates.runs) > len(names):
        say(f"more runs: {len(candidates.runs) - len(names)}; --limit {len(candidates.runs)}")
    if not rows:
        leave(FAILED, f"nothing found in {progress.read} events")


def rows_of(name: str, found: Found, wanted: Wanted, uncover: bool) -> Iterator[dict[str, Any]]:
    """A row a call that fits, or one for the run where no call was asked for."""
    if found.broken is not None:
        say(f"perdure: {safe(name, 200)}: {found.broken}. `perdure verify` says where")
    for folded, proposed in reversed(found.runs):
        if folded.run is not None and wanted.user in (None, folded.run.header.user_id):
            yield from _of_run(folded.run, proposed, wanted, uncover)


def _of_run(
    run: Run, proposed: dict[int, int], wanted: Wanted, uncover: bool
) -> Iterator[dict[str, Any]]:
    header = run.header
    about = {
        "run_id": header.run_id,
        "agent": header.agent,
        "user_id": header.user_id,
        "run_status": header.status,
    }
    if not wanted.calls:
        yield {**about, "action_id": None, "tool": None, "arguments": None, "status": None} | {
            "idempotency_key": None,
            "at": header.created_at,
        }
        return
    for n in range(1, header.next_action):
        action = run.action(n)
        if not wanted.fits(run, action):
            continue
        names = frozenset() if uncover else sensitive(run.start.tools, action.target)
        yield {
            **about,
            "action_id": run.action_id(n),
            "tool": action.target,
            "arguments": covered(action.arguments, names),
            "status": action.status,
            "idempotency_key": action.key,
            "at": proposed.get(n, header.created_at),
        }


def _print(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        for row in rows:
            line(row)
        return
    if rows:
        table(("run", "run is", "action", "is", "when", "call"), [_cells(row) for row in rows])


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    call = "" if row["tool"] is None else f"{row['tool']} {safe(row['arguments'], 200)}"
    return (
        safe(row["run_id"], 200),
        row["run_status"],
        "" if row["action_id"] is None else row["action_id"].rpartition("/")[2],
        row["status"] or "",
        clock(row["at"]),
        safe(call, 300),
    )
