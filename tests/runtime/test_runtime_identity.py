from __future__ import annotations

import os
from pathlib import Path

import pytest
from perdure.streams.runtime.directory_lock import DirectoryLock
from perdure.streams.runtime.errors import DirectoryLocked
from perdure.streams.runtime.settings import RuntimeSettings


def test_a_second_process_is_told_who_holds_the_directory(tmp_path: Path) -> None:
    held = DirectoryLock(tmp_path / "engine.one")
    with pytest.raises(DirectoryLocked, match=str(os.getpid())) as caught:
        DirectoryLock(tmp_path / "engine.one")
    assert caught.value.exit_code == 5
    held.release()
    DirectoryLock(tmp_path / "engine.one").release()  # the file left behind is no lock


def test_names_carry_the_prefix(tmp_path: Path) -> None:
    settings = RuntimeSettings(
        bootstrap_servers="b:1", data_dir=tmp_path, topic_prefix="t-1.", instance_id="host"
    )
    assert settings.group("worker.tools") == "t-1.perdure.worker.tools"
    assert settings.transactional_id("engine") == "t-1.engine.host"
    assert settings.directory("engine") == tmp_path / "engine.host"


@pytest.mark.parametrize(
    "wrong", [{"instance_id": "a/b"}, {"instance_id": ""}, {"topic_prefix": "ä"}, {"max_batch": 0}]
)
def test_wrong_settings_are_refused_at_once(wrong: dict, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RuntimeSettings(bootstrap_servers="b:1", data_dir=tmp_path, **wrong)
