"""Who is let in, as the tokens' file changes under a running view."""

from __future__ import annotations

from pathlib import Path

import pytest
from perdure.streams.views.access import Access, BadTokens, entry
from perdure.streams.views.table_histories import TableHistories

ANN, BOB = "a" * 20, "b" * 20


def write(path: Path, *tokens: str, more: str = "") -> None:
    import json

    lines = [json.dumps(entry(token, token[0] * 3, ["viewer"])) for token in tokens]
    path.write_text("\n".join([*lines, more]))


def users(access: Access) -> list[str]:
    return [who.user for who in map(access.caller, (ANN, BOB)) if who is not None]


def test_a_revoked_token_is_out_at_once(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    write(path, ANN, BOB)
    access = Access(path)
    assert users(access) == ["aaa", "bbb"]
    write(path, BOB)
    assert users(access) == ["bbb"]


def test_a_file_that_is_broken_lets_nobody_in_once_an_editor_has_had_its_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = [100.0]
    path = tmp_path / "tokens"
    write(path, ANN, BOB)
    access = Access(path, monotonic=lambda: now[0])
    write(path, BOB, more="{half")
    assert users(access) == ["aaa", "bbb"]
    now[0] += 6
    assert users(access) == []
    assert "nobody is let in" in caplog.text
    write(path, BOB)
    assert users(access) == ["bbb"]


def test_a_file_that_is_gone_lets_nobody_in(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    write(path, ANN)
    access = Access(path)
    path.unlink()
    assert users(access) == []
    with pytest.raises(BadTokens):
        Access(path)


class Group:
    """What a view process knows of its group."""

    def __init__(self, given: set[int], holders: dict[str, list[int]]) -> None:
        self.settings = type("Settings", (), {"partitions": 2})
        self._given, self._holders = given, holders
        self.recovered = type("Set", (), {"is_set": staticmethod(lambda: True)})

    def alive(self) -> bool:
        return True

    def held(self) -> list[int]:
        return sorted(self._given)

    def given(self) -> set[int]:
        return self._given

    def holders(self) -> dict[str, list[int]]:
        return self._holders


@pytest.mark.parametrize(
    ("given", "holders", "whole"),
    [
        ({0, 1}, {"http://a:1/": [0, 1]}, True),
        ({0}, {"http://a:1": [0], "http://b:1": [1]}, True),
        (set(), {"http://b:1": [0, 1]}, True),
        ({0}, {"http://a:1": [0]}, False),  # who has the other half?
        ({0}, {"http://a:1": [1]}, False),  # another process says that it is at our address
        ({0}, {}, False),
    ],
)
def test_lists_are_whole_only_if_every_partition_is_somebodys(
    given: set[int], holders: dict[str, list[int]], whole: bool
) -> None:
    histories = TableHistories(Group(given, holders), "http://a:1")  # type: ignore[arg-type]
    assert histories.whole() is whole
