"""Which addresses a tool may call whose URL came from a model, a task or another server.

Not those from which only this machine or its network can be reached: loopback, private, link-local
(where clouds tell a machine its credentials), shared, reserved and multicast ones, and what this
machine itself is known under. An address is judged, never a spelling: a name, ``2130706433``,
``0x7f.1`` and ``localhost.`` are looked up first, and one written inside another is taken out of it.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from .errors import InvalidArguments

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

CODE: Final = "forbidden_address"
_LOOPBACK: Final = ipaddress.IPv4Address("127.0.0.1")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_HOST_ONLY: Final = frozenset({ipaddress.ip_address("168.63.129.16")})
"""Public by their number, and answered by the machine's own host: Azure's."""


class Forbidden(InvalidArguments):
    """Nothing was sent: the URL leads where a tool may not call."""

    def __init__(self, what: str, why: str) -> None:
        text = f"{what} may not be called: {why}. Use a public address; a tool's author allows others by name"
        super().__init__(text, code=CODE)


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a tool's author has named: hosts (with a port or for any), and networks."""

    hosts: frozenset[tuple[str, int | None]] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def of(cls, names: Iterable[str]) -> Allowed:
        """From ``host``, ``host:port``, ``[v6]:port`` and ``10.0.0.0/8``. Raises ValueError."""
        hosts: set[tuple[str, int | None]] = set()
        networks: list[Network] = []
        for name in names:
            if "/" in name:
                networks.append(ipaddress.ip_network(name))
                continue
            host, colon, port = name.rpartition(":")
            if not colon or (":" in host and not host.endswith("]")):  # none, or a bare v6 address
                hosts.add((_plain(name), None))
            else:
                hosts.add((_plain(host), int(port)))
        return cls(frozenset(hosts), tuple(networks))

    def names(self, host: str, port: int) -> bool:
        """Whether the host is named as the URL has it: then any of its addresses will do."""
        plain = _plain(host)
        return (plain, None) in self.hosts or (plain, port) in self.hosts

    def holds(self, address: Address) -> bool:
        return any(address in network for network in self.networks)


def _plain(host: str) -> str:
    return host.strip("[]").rstrip(".").lower()


def check_name(host: str, port: int, allowed: Allowed) -> None:
    """What is this machine by its name, whether or not it can be looked up. Raises `Forbidden`."""
    plain = _plain(host)
    named = allowed.names(host, port) or allowed.holds(_LOOPBACK)
    if (plain == "localhost" or plain.endswith(".localhost")) and not named:
        raise Forbidden(f"{host}:{port}", "it is this machine's own name")


def checked(host: str, port: int, found: Iterable[str], allowed: Allowed) -> list[str]:
    """The addresses that ``host`` was found at, if every one may be called. Raises `Forbidden`."""
    addresses = list(dict.fromkeys(found))
    if not allowed.names(host, port):
        for text in addresses:
            why = refusal(text, allowed)
            if why is not None:
                raise Forbidden(f"{host}:{port}", why)
    return addresses


def refusal(text: str, allowed: Allowed) -> str | None:
    """Why an address may not be called; None: it may."""
    address: Address = ipaddress.ip_address(text.partition("%")[0])  # without an interface's name
    inner = _innermost(address)
    if allowed.holds(address) or allowed.holds(inner):
        return None
    for kind, is_so in (
        ("this machine's own", inner.is_loopback or inner.is_unspecified),
        ("link-local", inner.is_link_local),
        ("a multicast address", inner.is_multicast),
        ("not public", not inner.is_global or inner in _HOST_ONLY),
        ("this machine's own", _is_ours(inner)),
    ):
        if is_so:
            return f"{text} is {kind}"
    return None


def _innermost(address: Address) -> Address:
    """The IPv4 address that an IPv6 one only wraps."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64 or (int(address) >> 32 == 0 and int(address) > 1):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _is_ours(address: Address) -> bool:
    """One can bind to nobody else's address."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True
