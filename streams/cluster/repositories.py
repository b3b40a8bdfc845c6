"""Where this machine gets Maven artifacts from: the user's own settings, none of ours.

First that says something: ``PERDURE_MAVEN_URL``; the mirror for ``central`` in Maven's
``~/.m2/settings.xml`` (with its server's name and password, where they are not encrypted);
jgo's own settings file. Otherwise jgo's default, Maven Central.
"""

from __future__ import annotations

import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit


@dataclass(frozen=True, slots=True)
class MavenSettings:
    """The two things we need of a settings.xml: the mirror of central, the local repository."""

    mirror: str | None = None
    local_repository: Path | None = None


@dataclass(frozen=True, slots=True)
class Repositories:
    """``remote`` (name: URL), asked in order; ``local`` (directories), looked at first."""

    remote: dict[str, str] = field(default_factory=dict)
    local: tuple[Path, ...] = ()


def find(environ: Mapping[str, str], home: Path) -> Repositories:
    """The repositories in force; ``remote`` is empty when only jgo's default is."""
    maven = read_settings(home / ".m2" / "settings.xml", environ)
    local = [maven.local_repository or Path(environ.get("M2_REPO", home / ".m2" / "repository"))]
    if url := environ.get("PERDURE_MAVEN_URL"):
        remote = {"PERDURE_MAVEN_URL": url.rstrip("/")}
    elif maven.mirror:
        remote = {"settings.xml": maven.mirror}
    else:
        remote = _jgo_repositories()
    return Repositories(remote, tuple(path for path in local if path.is_dir()))


def _jgo_repositories() -> dict[str, str]:
    from jgo.config import GlobalSettings
    from jgo.constants import MAVEN_CENTRAL_URL

    own = {name: url.rstrip("/") for name, url in GlobalSettings.load().repositories.items()}
    return {**own, "central": MAVEN_CENTRAL_URL} if own and "central" not in own else own


def read_settings(path: Path, environ: Mapping[str, str]) -> MavenSettings:
    """Reads what it can; a file that is absent or no XML says nothing."""
    try:
        root = ET.fromstring(path.read_bytes())
    except (OSError, ET.ParseError):
        return MavenSettings()
    for element in root.iter():  # the namespace is optional in Maven too
        element.tag = element.tag.rpartition("}")[2]

    def text(parent: ET.Element, tag: str) -> str:
        return _interpolate((parent.findtext(tag) or "").strip(), path, environ)

    servers = {text(s, "id"): s for s in root.findall("servers/server")}
    mirror = None
    for element in root.findall("mirrors/mirror"):
        if mirrors_central(text(element, "mirrorOf")) and text(element, "url"):
            mirror = text(element, "url").rstrip("/")
            if (server := servers.get(text(element, "id"))) is not None:
                mirror = _with_login(mirror, text(server, "username"), text(server, "password"))
            break
    local = text(root, "localRepository")
    return MavenSettings(mirror, Path(local).expanduser() if local else None)


def mirrors_central(mirror_of: str) -> bool:
    """Maven's rule for one repository: names and wildcards, and ``!central`` outweighs all."""
    names = [name.strip() for name in mirror_of.split(",")]
    return "!central" not in names and any(n in ("central", "*", "external:*") for n in names)


def _with_login(url: str, user: str, password: str) -> str:
    if not user or password.startswith("{"):  # encrypted with a key that is Maven's own
        return url
    parts = urlsplit(url)
    login = f"{quote(user, safe='')}:{quote(password, safe='')}@"
    return urlunsplit(parts._replace(netloc=login + parts.netloc))


def _interpolate(text: str, settings: Path, environ: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name == "user.home":
            return str(settings.parent.parent)
        return environ.get(name.removeprefix("env."), match[0])

    return re.sub(r"\$\{(user\.home|env\.[^}]+)\}", value, text)


def without_login(text: str) -> str:
    """For messages: a URL's name and password never reach a screen or a log."""
    return re.sub(r"//[^/@\s]+@", "//", text)


def here() -> Repositories:
    return find(os.environ, Path.home())
