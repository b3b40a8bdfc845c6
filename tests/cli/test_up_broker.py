"""What `perdure up` does when its embedded Kafka has died. No broker: see tests/e2e."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from perdure.streams.cluster import ports
from perdure.streams.cluster.broker import EmbeddedKafka
from perdure.streams.cluster.errors import BrokerDied, NoFreePort, NotReady

from perdure.cli import up
from perdure.settings import Settings


class Dead:
    """A broker that has died, and what its next starts raise."""

    def __init__(self, *faults: Exception) -> None:
        self.faults = list(faults)
        self.starts = 0
        self.lives = False

    def alive(self) -> bool:
        return self.lives

    def start(self) -> None:
        self.starts += 1
        if self.faults:
            raise self.faults.pop(0)
        self.lives = True


@pytest.fixture
def deployment(tmp_path: Path) -> up.Deployment:
    return up.Deployment(Settings(data_dir=tmp_path), tools=[], agents=None)


def test_a_start_that_fails_is_tried_again(
    deployment: up.Deployment,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(up, "BROKER_AGAIN_SECONDS", 0.0)
    broker = deployment.broker = Dead(NotReady("it did not answer"), OSError("no more processes"))
    for _ in range(5):
        deployment.check()
    assert (broker.lives, broker.starts) == (True, 3)
    assert "it did not answer" in capsys.readouterr().err


def test_between_two_tries_the_roles_are_looked_after(deployment: up.Deployment) -> None:
    broker = deployment.broker = Dead(NotReady("it did not answer"))
    for _ in range(5):
        deployment.check()
    assert broker.starts == 1


@pytest.mark.parametrize(("restart", "spawned"), [(True, 1), (False, 3)])
def test_only_a_broker_that_was_never_up_takes_another_port(
    restart: bool, spawned: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The roles, and whoever else is connected, were given the port it had."""
    broker = EmbeddedKafka(tmp_path)
    had = broker._port = ports.any_free() if restart else None
    taken: list[int] = []

    def choose(wanted: int | None) -> int:
        taken.append(ports.any_free() if wanted is None else wanted)
        return taken[-1]

    def bind(timeout: float) -> None:
        raise BrokerDied("Socket server failed to bind")

    def nothing(*_: Any) -> None: ...

    monkeypatch.setattr(ports, "choose", choose)
    for name in ("_write_settings", "_spawn", "_reap"):
        monkeypatch.setattr(broker, name, nothing)
    monkeypatch.setattr(broker, "wait_ready", bind)
    with pytest.raises(NoFreePort):
        broker._launch(Path("java"), "", 1.0)
    assert len(taken) == spawned
    if restart:
        assert (taken, broker._port) == ([had], had)
