"""The breaker by itself: seconds are numbers, nothing waits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.connectors.breaker import JITTER, Breaker, BreakerSettings

SETTINGS = BreakerSettings(failures=3, within_seconds=30, open_seconds=10, longest_seconds=100)


def opened(at: float = 100.0, jitter: float = 0.0) -> Breaker:
    made = Breaker(SETTINGS, jitter)
    assert [made.failed(made.era, at, "http_503") for _ in range(3)] == [False, False, True]
    return made


def probed(breaker: Breaker, at: float) -> int:
    era = breaker.admit(at)
    assert era is not None
    return era


def test_it_opens_after_so_many_failures_in_a_row() -> None:
    breaker = opened()
    assert (breaker.phase(100.0), breaker.until, breaker.reason) == ("open", 110.0, "http_503")
    assert breaker.admit(109.9) is None
    assert breaker.phase(110.0) == "half-open"


def test_an_answer_between_begins_the_count_anew() -> None:
    breaker = Breaker(SETTINGS)
    for _ in range(5):
        breaker.failed(0, 100.0, "no")
        breaker.failed(0, 100.0, "no")
        assert not breaker.answered(0)
    assert breaker.closed


def test_failures_far_apart_are_not_in_a_row() -> None:
    breaker = Breaker(SETTINGS)
    assert not any(breaker.failed(0, at, "no") for at in (0.0, 20.0, 40.0, 60.0, 80.0))
    assert breaker.failed(0, 81.0, "no")


def test_it_never_opens_if_told_so() -> None:
    breaker = Breaker(BreakerSettings(failures=0))
    assert not any(breaker.failed(0, 1.0, "no") for _ in range(100))
    assert not breaker.heard_open(1.0, 10.0, 10.0, 0.0, "no")
    assert breaker.admit(1.0) == 0


def test_one_probe_an_interval_and_its_answer_closes() -> None:
    breaker = opened()
    era = probed(breaker, 110.0)
    assert [breaker.admit(at) for at in (110.0, 115.0, 119.9)] == [None, None, None]
    assert breaker.answered(era)
    assert breaker.admit(115.0) == breaker.era != era


def test_a_probe_that_never_comes_back_blocks_nothing() -> None:
    breaker = opened()
    first = probed(breaker, 110.0)
    assert breaker.admit(120.0) == first
    assert breaker.answered(first)  # the slow one may close it all the same


def test_each_probe_that_fails_doubles_the_time_up_to_the_longest() -> None:
    breaker = opened()
    times = []
    now = breaker.until
    for _ in range(6):
        assert breaker.failed(probed(breaker, now), now, "still no")
        times.append(breaker.until - now)
        now = breaker.until
    assert times == [20.0, 40.0, 80.0, 100.0, 100.0, 100.0]
    assert breaker.answered(probed(breaker, now))
    again = [breaker.failed(breaker.era, now, "no") for _ in range(3)]
    assert (again[-1], breaker.until - now) == (True, 10.0)


def test_late_results_from_before_change_nothing() -> None:
    breaker = opened()
    before = 0  # the era they began in
    assert not breaker.answered(before)
    assert not breaker.failed(before, 105.0, "late")
    assert (breaker.closed, breaker.until) == (False, 110.0)
    assert breaker.answered(probed(breaker, 111.0))
    assert not any(breaker.failed(before, 112.0, "late") for _ in range(5))
    assert breaker.closed


@pytest.mark.parametrize(("asked", "left"), [(5.0, 10.0), (40.0, 40.0), (5_000.0, 100.0)])
def test_a_longer_retry_after_is_waited_for(asked: float, left: float) -> None:
    breaker = Breaker(SETTINGS)
    breaker.failed(0, 100.0, "http_503", asked)
    breaker.failed(0, 100.0, "http_503")
    breaker.failed(0, 100.0, "http_503")
    assert breaker.until - 100.0 == left


def test_one_retry_after_alone_opens_nothing() -> None:
    breaker = Breaker(SETTINGS)
    breaker.failed(0, 100.0, "rate_limited", 60.0)
    assert breaker.admit(100.0) == 0


def test_the_time_left_is_that_until_the_probe() -> None:
    breaker = opened(jitter=1.0)
    assert breaker.left(104.0) == pytest.approx(6.0 + 10 * JITTER)
    now = breaker.probe_at
    breaker.failed(probed(breaker, now), now, "no")
    breaker.failed(probed(breaker, breaker.probe_at), breaker.probe_at, "no")
    now = breaker.probe_at
    probed(breaker, now)  # out: the next is 40 s away, its answer is not
    assert breaker.left(now + 1) == 10.0


def test_workers_probe_one_after_the_other() -> None:
    first, last = opened(jitter=0.0), opened(jitter=1.0)
    assert first.until == last.until
    assert (first.probe_at, last.probe_at) == (110.0, 112.0)


# --- another worker's word --------------------------------------------------------------------


def test_anothers_word_opens_it_for_the_time_left_and_a_probe_is_our_own() -> None:
    breaker = Breaker(SETTINGS, 0.5)
    assert breaker.heard_open(100.0, 4.0, 10.0, 6.0, "w2 says so")
    assert (breaker.phase(100.0), breaker.since, breaker.until) == ("open", 94.0, 104.0)
    assert not breaker.failed(0, 101.0, "what began before")
    now = breaker.probe_at
    assert breaker.failed(probed(breaker, now), now, "still no")
    assert breaker.until - now == 20.0  # it goes on where the other was


def test_a_state_past_its_time_is_none() -> None:
    breaker = Breaker(SETTINGS)
    assert not breaker.heard_open(100.0, 0.0, 10.0, 10.0, "old")
    assert not breaker.heard_open(100.0, -5.0, 10.0, 15.0, "old")
    assert breaker.closed


def test_a_clock_far_ahead_closes_nothing_for_days() -> None:
    breaker = Breaker(SETTINGS)
    assert breaker.heard_open(100.0, 86_400.0, 86_400.0, -50.0, "from the future")
    assert (breaker.until, breaker.since) == (200.0, 100.0)


def test_what_we_know_already_is_no_news() -> None:
    breaker = opened()
    assert not breaker.heard_open(101.0, 5.0, 10.0, 0.0, "shorter")
    assert breaker.until == 110.0
    assert breaker.heard_open(101.0, 30.0, 30.0, 0.0, "longer")
    assert breaker.until == 131.0
    assert breaker.heard_closed()
    assert not breaker.heard_closed()


def test_the_probe_of_a_breaker_closed_meanwhile_counts_for_nothing() -> None:
    breaker = opened()
    era = probed(breaker, 110.0)
    assert breaker.heard_closed()
    assert not breaker.failed(era, 111.0, "late")
    assert breaker.closed


# --- our own network --------------------------------------------------------------------------


def test_failures_that_were_our_own_are_taken_back() -> None:
    breaker = Breaker(SETTINGS)
    breaker.failed(0, 80.0, "its own")
    breaker.failed(0, 95.0, "ours")
    assert not breaker.take_back(90.0)
    assert not breaker.failed(0, 96.0, "no")
    assert breaker.failed(0, 97.0, "no")


def test_it_closes_if_they_opened_it_and_only_then() -> None:
    assert opened(95.0).take_back(90.0)
    assert not opened(85.0).take_back(90.0)
    told = Breaker(SETTINGS)
    told.heard_open(95.0, 10.0, 10.0, 0.0, "another's")
    assert not told.take_back(90.0)
    assert not told.closed


@pytest.mark.parametrize(
    "wrong",
    [{"failures": -1}, {"open_seconds": 0}, {"open_seconds": 301}, {"within_seconds": 0}],
)
def test_settings_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="breaker"):
        BreakerSettings(**wrong)


# --- whatever happens ----------------------------------------------------------------------------

_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.floats(0.0, 40.0)),
        st.tuples(st.just("call"), st.just(0.0)),
        st.tuples(st.just("answer"), st.floats(0.0, 1.0)),
        st.tuples(st.just("fail"), st.floats(0.0, 1.0)),
        st.tuples(st.just("ask for"), st.floats(0.0, 200.0)),
        st.tuples(st.just("hear open"), st.floats(-10.0, 200.0)),
        st.tuples(st.just("hear closed"), st.just(0.0)),
        st.tuples(st.just("take back"), st.floats(0.0, 20.0)),
    ),
    max_size=60,
)


def everything(breaker: Breaker) -> list[Any]:
    return [
        list(value) if name == "_failed_at" else value
        for name in Breaker.__slots__
        for value in [getattr(breaker, name)]
    ]


@given(_STEPS, st.floats(0.0, 1.0))
def test_probes_keep_their_distance_and_old_results_change_nothing(
    steps: list[tuple[str, float]], jitter: float
) -> None:
    breaker = Breaker(SETTINGS, jitter)
    now, era, out, last_probe = 1_000.0, 0, [0], None
    for step, value in steps:
        if step == "wait":
            now += value
        elif step == "call":
            got = breaker.admit(now)
            assert got is not None or breaker.refuses(now)
            if got is not None:
                out.append(got)
                if not breaker.closed:
                    assert now >= breaker.until
                    assert last_probe is None or now - last_probe >= SETTINGS.open_seconds
                    last_probe = now
        elif step in ("answer", "fail", "ask for"):
            of = out[int(value * 997) % len(out)]
            before = everything(breaker)
            if step == "answer":
                breaker.answered(of)
            else:
                breaker.failed(of, now, "no", value if step == "ask for" else None)
            if of != era:
                assert everything(breaker) == before
        elif step == "hear open":
            breaker.heard_open(now, value, abs(value), 0.0, "another")
        elif step == "hear closed":
            breaker.heard_closed()
        else:
            breaker.take_back(now - value)
        assert breaker.era >= era
        if breaker.closed:
            last_probe = None
            assert breaker.admit(now) == breaker.era
            assert not breaker.refuses(now)
        else:
            assert breaker.until - now <= SETTINGS.longest_seconds + 1e-6
            assert 0 < breaker.left(now) <= SETTINGS.longest_seconds * (1 + JITTER) + 1e-6
        era = breaker.era
