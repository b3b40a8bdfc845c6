"""The deployment's `kafka.` settings, which are librdkafka's, as Faust takes them."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from faust import SASLCredentials, SSLCredentials
from yarl import URL

_FOLLOWED: Final = frozenset({
    "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password",
    "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.key.location", "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
})  # fmt: skip


class NotForViews(ValueError):
    """A setting that the views can't follow; the text says which, and what they can."""


def broker_urls(servers: str) -> list[URL]:
    """``host:port,host:port`` as Faust's broker URLs."""
    return [URL(f"kafka://{each.strip()}") for each in servers.split(",") if each.strip()]


def credentials(kafka: Mapping[str, str]) -> Any:
    """What proves who we are to the broker, or None. Raises `NotForViews`."""
    protocol = kafka.get("security.protocol", "plaintext").lower()
    if protocol == "plaintext":
        return None
    kinds = {"ssl": ("ssl.",), "sasl_plaintext": ("sasl.",), "sasl_ssl": ("sasl.", "ssl.")}
    for name in sorted(kafka.keys() - _FOLLOWED):
        if name.startswith(kinds.get(protocol, ())):
            raise NotForViews(
                f"kafka.{name} is not followed by the views; of its kind they take "
                f"{', '.join(sorted(each for each in _FOLLOWED if each[:4] == name[:4]))}"
            )
    context = _context(kafka) if protocol in ("ssl", "sasl_ssl") else None
    if protocol == "ssl":
        return SSLCredentials(context=context)
    if protocol not in ("sasl_plaintext", "sasl_ssl"):
        raise NotForViews(f"kafka.security.protocol {protocol!r} is none that Kafka has")
    mechanism = kafka.get("sasl.mechanism", kafka.get("sasl.mechanisms", "PLAIN")).upper()
    if mechanism not in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        raise NotForViews(
            f"kafka.sasl.mechanism {mechanism} can't be used by the views: give them a user with "
            "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, or a TLS certificate"
        )
    for name in ("sasl.username", "sasl.password"):
        if not kafka.get(name):
            raise NotForViews(f"kafka.{name} is missing: {mechanism} proves who we are by both")
    return SASLCredentials(
        username=kafka.get("sasl.username", ""),
        password=kafka.get("sasl.password", ""),
        mechanism=mechanism,
        ssl_context=context,
    )


def _context(kafka: Mapping[str, str]) -> ssl.SSLContext:
    try:
        return _made(kafka)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        names = [name for name in sorted(kafka) if name.startswith("ssl.") and name in _FOLLOWED]
        raise NotForViews(
            f"of kafka.{', kafka.'.join(names)} no TLS connection can be made ({error}): are they "
            "PEM files that this process may read?"
        ) from error


def _made(kafka: Mapping[str, str]) -> ssl.SSLContext:
    place = kafka.get("ssl.ca.location")
    place = None if place == "probe" else place  # librdkafka's word for the system's own
    is_many = place is not None and Path(place).is_dir()
    context = ssl.create_default_context(
        cafile=None if is_many else place,
        capath=place if is_many else None,
        cadata=kafka.get("ssl.ca.pem"),
    )
    if kafka.get("ssl.endpoint.identification.algorithm", "https") == "none":
        context.check_hostname = False
    if kafka.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate = kafka.get("ssl.certificate.location")
    if certificate:
        context.load_cert_chain(
            certificate, kafka.get("ssl.key.location"), kafka.get("ssl.key.password")
        )
    return context
