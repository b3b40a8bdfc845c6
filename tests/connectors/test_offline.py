"""Whether the network is lost: seconds are numbers, nothing waits."""

from __future__ import annotations

import pytest
from perdure.connectors.offline import Offline, OfflineSettings


def lost(at: float = 100.0) -> Offline:
    made = Offline(OfflineSettings())
    assert [made.unreached("a", at), made.unreached("b", at)] == [False, True]
    return made


def test_two_hosts_are_a_lost_network_and_one_is_a_dead_service() -> None:
    offline = Offline(OfflineSettings())
    assert not any(offline.unreached("a", 100.0 + n) for n in range(50))
    assert offline.unreached("b", 150.0)
    assert offline.hosts == {"a", "b"}


def test_an_answer_between_says_that_there_is_a_network() -> None:
    offline = Offline(OfflineSettings())
    offline.unreached("a", 100.0)
    assert not offline.answered("c")
    assert not offline.unreached("b", 101.0)


def test_two_hosts_long_after_each_other_are_two_dead_services() -> None:
    offline = Offline(OfflineSettings())
    assert not offline.unreached("a", 100.0)
    assert not offline.unreached("b", 110.1)


def test_one_call_at_a_time_and_ever_rarer() -> None:
    offline = lost()
    begun = [n / 10 for n in range(1_000, 2_000) if offline.may_begin(n / 10)]
    waits = [round(b - a, 1) for a, b in zip([100.0, *begun], begun, strict=False)]
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_the_first_answer_ends_it() -> None:
    offline = lost()
    assert offline.answered("a")
    assert offline.since is None
    assert offline.may_begin(100.0)


def test_what_stays_dead_after_that_is_dead_by_itself() -> None:
    """Else two dead services would stop a sound worker again and again."""
    offline = lost()
    offline.answered("c")
    assert not any(offline.unreached(host, 101.0) for host in "abab")
    assert not offline.unreached("d", 101.0)  # alone
    assert not offline.answered("a")  # alive again
    assert not offline.unreached("d", 102.0)
    assert offline.unreached("a", 102.0)


def test_it_can_be_turned_off() -> None:
    offline = Offline(OfflineSettings(within_seconds=0))
    assert not any(offline.unreached(host, 100.0) for host in "abcd")


@pytest.mark.parametrize("wrong", [{"within_seconds": -1.0}, {"first_wait_seconds": 0.0}])
def test_settings_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="offline"):
        OfflineSettings(**wrong)
