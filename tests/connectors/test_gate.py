from __future__ import annotations

from collections.abc import Callable

from perdure.connectors.gate import Gate


def _waiter(log: list[str], name: str, wanted: bool = True) -> Callable[[], bool]:
    def told() -> bool:
        log.append(name)
        return wanted

    return told


def test_limit_of_a_target_and_in_all() -> None:
    log: list[str] = []
    gate = Gate(in_all=3, per_target=2)
    assert gate.enter("a", _waiter(log, "a1"))
    assert gate.enter("a", _waiter(log, "a2"))
    assert not gate.enter("a", _waiter(log, "a3"))
    assert gate.enter("b", _waiter(log, "b1"))
    assert not gate.enter("c", _waiter(log, "c1"))
    gate.leave("b")
    assert log == ["c1"]
    gate.leave("a")
    assert log == ["c1", "a3"]
    assert gate.inside == 3


def test_targets_take_turns() -> None:
    log: list[str] = []
    gate = Gate(in_all=1, per_target=1)
    assert gate.enter("a", _waiter(log, "a0"))
    for name in ("a1", "a2", "b1", "b2"):
        gate.enter(name[0], _waiter(log, name))
    for target in ("a", "a", "b", "a"):
        gate.leave(target)
    assert log == ["a1", "b1", "a2", "b2"]


def test_who_is_not_wanted_any_more_gives_way() -> None:
    log: list[str] = []
    gate = Gate(in_all=1, per_target=1, own={"a": 1})
    gate.enter("a", _waiter(log, "a0"))
    gate.enter("a", _waiter(log, "a1", wanted=False))
    gate.enter("a", _waiter(log, "a2"))
    gate.leave("a")
    assert log == ["a1", "a2"]
    gate.leave("a")
    assert gate.inside == 0


def test_who_gives_up_is_not_told_any_more_and_who_is_told_cannot() -> None:
    log: list[str] = []
    gate = Gate(in_all=1, per_target=1)
    gate.enter("a", _waiter(log, "a0"))
    first, second = _waiter(log, "a1"), _waiter(log, "a2")
    gate.enter("a", first)
    gate.enter("a", second)
    assert gate.give_up("a", first)
    assert not gate.give_up("a", first)
    gate.leave("a")
    assert log == ["a2"]
    assert not gate.give_up("a", second)
    assert (gate.waiting, gate.inside) == (0, 1)
