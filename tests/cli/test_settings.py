"""What an operator sets reaches the processes that run by it."""

from __future__ import annotations

import pytest

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
