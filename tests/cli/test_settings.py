"""What an operator sets reaches the processes that run by it."""

from __future__ import annotations

import pytest
from perdure.connectors.breaker import BreakerSettings
from perdure.connectors.offline import OfflineSettings

from perdure.settings import Settings


def test_the_cache_of_decoded_state_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory must be plannable: it is this much, by stored size, for each partition."""
    monkeypatch.setenv("PERDURE_CACHE_BYTES", "1000000")
    assert Settings(bootstrap_servers="h:1").runtime().cache_bytes == 1_000_000


def test_left_out_it_is_the_runtimes_own_default() -> None:
    settings = Settings(bootstrap_servers="h:1").runtime()
    assert settings == type(settings)(
        bootstrap_servers="h:1",
        data_dir=settings.data_dir,
        instance_id=settings.instance_id,
    )


def test_the_breakers_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_BREAKER_FAILURES", "2")
    monkeypatch.setenv("PERDURE_BREAKER_OPEN_SECONDS", "1.5")
    monkeypatch.setenv("PERDURE_OFFLINE_WITHIN_SECONDS", "0")
    made = Settings(instance_id="me", breaker_longest_seconds=60, breaker_within_seconds=5).worker()
    assert made.instance_id == "me"
    assert made.breaker == BreakerSettings(
        failures=2, within_seconds=5, open_seconds=1.5, longest_seconds=60
    )
    assert made.offline == OfflineSettings(within_seconds=0)


def test_left_out_breakers_are_the_connectors_own_defaults() -> None:
    made = Settings(instance_id="me").worker()
    assert made == type(made)(instance_id="me")


def test_a_breaker_that_is_open_longer_than_the_longest_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="breaker_open_seconds 400 must be at most"):
        Settings(breaker_open_seconds=400)
