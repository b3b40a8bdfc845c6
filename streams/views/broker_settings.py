"""The deployment's `kafka.` settings, which are librdkafka's, as Faust takes them."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from faust import SASLCredentials, SSLCredentials
from yarl import URL


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
    return SASLCredentials(
        username=kafka.get("sasl.username", ""),
        password=kafka.get("sasl.password", ""),
        mechanism=mechanism,
        ssl_context=context,
    )


def _context(kafka: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(
        cafile=kafka.get("ssl.ca.location"), cadata=kafka.get("ssl.ca.pem")
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
