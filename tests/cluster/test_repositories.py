"""Where the jars come from is the user's setting: a mirror is found where Maven's users put it."""

from __future__ import annotations

from pathlib import Path

import pytest
from perdure.streams.cluster.repositories import find, mirrors_central, without_login


def settings(home: Path, body: str, attributes: str = "") -> None:
    (home / ".m2").mkdir()
    (home / ".m2" / "settings.xml").write_text(f"<settings{attributes}>{body}</settings>")


MIRROR = "<mirrors><mirror><id>m</id><mirrorOf>*</mirrorOf><url>https://mirror.test/maven/</url></mirror></mirrors>"


@pytest.fixture
def no_jgo_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JGO_CONFIG_FILE", str(tmp_path / "none.conf"))


@pytest.mark.usefixtures("no_jgo_settings")
def test_without_settings_only_jgos_default_is_used(tmp_path: Path) -> None:
    found = find({}, tmp_path)
    assert (found.remote, found.local) == ({}, ())


@pytest.mark.parametrize("attributes", ["", ' xmlns="http://maven.apache.org/SETTINGS/1.2.0"'])
def test_the_mirror_of_settings_xml_is_used_with_and_without_namespace(
    tmp_path: Path, attributes: str
) -> None:
    settings(tmp_path, MIRROR, attributes)
    assert list(find({}, tmp_path).remote.values()) == ["https://mirror.test/maven"]


def test_the_environment_outweighs_settings_xml(tmp_path: Path) -> None:
    settings(tmp_path, MIRROR)
    found = find({"PERDURE_MAVEN_URL": "https://own.test/m/"}, tmp_path)
    assert list(found.remote.values()) == ["https://own.test/m"]


def test_a_server_lends_its_login_to_its_mirror_and_messages_never_show_it(tmp_path: Path) -> None:
    server = "<servers><server><id>m</id><username>ann</username><password>${env.PASS}</password></server></servers>"
    settings(tmp_path, server + MIRROR)
    (url,) = find({"PASS": "p@ss/1"}, tmp_path).remote.values()
    assert url == "https://ann:p%40ss%2F1@mirror.test/maven"
    assert without_login(f"GET {url}/x failed") == "GET https://mirror.test/maven/x failed"


def test_an_encrypted_password_is_left_alone(tmp_path: Path) -> None:
    server = "<servers><server><id>m</id><username>ann</username><password>{abc=}</password></server></servers>"
    settings(tmp_path, server + MIRROR)
    assert list(find({}, tmp_path).remote.values()) == ["https://mirror.test/maven"]


def test_the_local_repository_may_be_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    settings(tmp_path, "<localRepository>${user.home}/elsewhere</localRepository>" + MIRROR)
    assert find({}, tmp_path).local == (tmp_path / "elsewhere",)


@pytest.mark.usefixtures("no_jgo_settings")
def test_a_broken_settings_xml_says_nothing(tmp_path: Path) -> None:
    settings(tmp_path, "<mirrors>")
    assert find({}, tmp_path).remote == {}


def test_repositories_of_jgos_own_settings_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jgo.conf").write_text("[repositories]\ninhouse = https://inhouse.test/m\n")
    monkeypatch.setenv("JGO_CONFIG_FILE", str(tmp_path / "jgo.conf"))
    names = list(find({}, tmp_path).remote)
    assert names == ["inhouse", "central"]


@pytest.mark.parametrize(
    ("mirror_of", "answer"),
    [
        ("central", True),
        ("*", True),
        ("external:*", True),
        ("snapshots, central", True),
        ("*,!central", False),
        ("snapshots", False),
        ("", False),
    ],
)
def test_mirror_of(mirror_of: str, answer: bool) -> None:
    assert mirrors_central(mirror_of) is answer
