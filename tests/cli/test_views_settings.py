"""What `perdure views` makes of its settings, without a Kafka: TLS and SASL, names, keys, its lock."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

import pytest
import typer
from perdure.schemas import signing
from perdure.streams.runtime.directory_lock import DirectoryLock
from perdure.streams.runtime.errors import DirectoryLocked
from perdure.streams.views.broker_settings import NotForViews, credentials

from perdure.cli import view_tables, views
from perdure.settings import Settings

PLAIN = {"sasl.username": "u", "sasl.password": "p"}


@pytest.mark.parametrize(
    ("kafka", "says"),
    [
        ({"security.protocol": "SSL", "ssl.keystore.location": "/x.p12"}, "ssl.keystore.location"),
        ({"security.protocol": "SSL", "ssl.certificate.pem": "x"}, "ssl.certificate.pem"),
        ({"security.protocol": "SASL_SSL", "ssl.key.pem": "x", **PLAIN}, "ssl.key.pem"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.username": "u"}, "sasl.password is missing"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER"),
        ({"security.protocol": "SSL", "ssl.ca.location": "/not/there"}, "ssl.ca.location"),
        ({"security.protocol": "SSL", "ssl.ca.pem": "no pem"}, "ssl.ca.pem"),
    ],
)
def test_what_the_views_cant_follow_ends_them_at_once_by_its_name(
    kafka: dict[str, str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(NotForViews, match=says):
        credentials(kafka)
    made = Settings(bootstrap_servers="127.0.0.1:1", data_dir=tmp_path, kafka=kafka)
    with pytest.raises(typer.Exit) as ended:
        views._prepare(made, tmp_path, rebuild=False)
    assert ended.value.exit_code == 2
    assert says in capsys.readouterr().err


def test_certificates_may_stand_in_a_directory(tmp_path: Path) -> None:
    made = credentials({"security.protocol": "SSL", "ssl.ca.location": str(tmp_path)})
    assert made.context.verify_mode is ssl.CERT_REQUIRED
    assert credentials({"ssl.keystore.location": "unused in plaintext"}) is None


def test_two_processes_of_one_name_do_not_share_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views.logs, "configure", lambda *given: None)
    made = Settings(bootstrap_servers="127.0.0.1:1", data_dir=tmp_path, instance_id="one")
    directory = tmp_path / "views" / "one"
    held = DirectoryLock(directory)
    try:
        with pytest.raises(DirectoryLocked) as ended:
            views.run_views(made, host="127.0.0.1", port=0, dev=True, rebuild=False)
        assert ended.value.exit_code == 5
        (directory / "v1").mkdir()
        (directory / "made_of.json").write_text("{}")
        view_tables.drop(directory)  # what `--rebuild` does: not the lock itself
        assert [path.name for path in directory.iterdir()] == ["lock"]
        with pytest.raises(DirectoryLocked):
            DirectoryLock(directory)
    finally:
        held.release()


def test_without_tokens_nobodys_own_key_signs(tmp_path: Path) -> None:
    doors = tmp_path / "door.jwk"
    doors.write_text(json.dumps(signing.new_key("door")))
    plain = Settings(data_dir=tmp_path)
    asked = Settings(data_dir=tmp_path, signing_key=doors)
    assert views._keys(plain, True)("ann") is None
    assert views._keys(plain, False)("ann") == (tmp_path / "keys" / "ann.jwk", False)
    assert views._keys(asked, True)("ann") == (doors, True)


def test_the_names_of_a_proxy_in_front() -> None:
    urls = ["https://Runs.example:443/perdure", "http://[::1]:8600"]
    assert views.hosts_of(urls) == {"runs.example", "::1"}
    assert views.origins_of(urls) == {"https://runs.example", "http://[::1]:8600"}
