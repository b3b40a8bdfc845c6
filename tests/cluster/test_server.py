from __future__ import annotations

from perdure.streams.cluster import server


def test_addresses_follow_the_ports_and_stay_on_this_machine() -> None:
    lines = server.properties(9094, 40001, "logs", fsync=False).splitlines()
    assert "advertised.listeners=PLAINTEXT://127.0.0.1:9094" in lines
    assert "controller.quorum.voters=1@127.0.0.1:40001" in lines
    assert all("127.0.0.1" in line for line in lines if "listeners=" in line)


def test_fsync_waits_for_the_disk_at_each_record_and_only_if_asked() -> None:
    assert "log.flush.interval.messages=1" in server.properties(1, 2, "logs", fsync=True)
    assert "log.flush" not in server.properties(1, 2, "logs", fsync=False)
