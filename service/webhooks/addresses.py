"""Where messages may go. An address inside a private network is refused: its servers trust who is in their network.

The check is repeated for every attempt, and the connection goes to the address that was checked: a name that resolves
to another address the next time gets nowhere.
"""

from __future__ import annotations

import asyncio
import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

NOT_PUBLIC = "must have a public address: one inside a private network needs CBWK_WEBHOOK_PRIVATE=true"
# Addresses of IPv4 in those of IPv6, of which the last 32 bits are the address.
_TRANSLATED = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"), IPv6Network("::/96"))
RESOLVE_SECONDS_MAX = 5.0


class Refused(Exception):  # noqa: N818 - the address is refused, which is no error of ours
    """A message cannot go to this URL."""


class Target(NamedTuple):
    """A URL whose host was resolved and checked."""

    url: str  # with the address in place of the host
    host: str  # as a header, with the port
    name: str  # for TLS


def is_public(text: str) -> bool:
    """Return whether an IP address belongs to the internet and to nobody's own network.

    >>> [is_public(text) for text in ("1.1.1.1", "10.0.0.1", "127.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1")]
    [True, False, False, False, False, False]
    """
    address: IPv4Address | IPv6Address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if inner is None and any(address in network for network in _TRANSLATED):
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
    return address.is_global and not address.is_multicast


async def target_of(url: str, *, private: bool) -> Target:
    """Resolve and check a URL; raise Refused if no message may go there. `private` allows every address."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        raise Refused("must be a URL such as https://hooks.example/cbwk") from None
    if parts.scheme != "https" and not (private and parts.scheme == "http"):
        raise Refused("must begin with https://")
    if not parts.hostname or parts.username is not None or parts.password is not None or parts.fragment:
        raise Refused("must have a host, and no user, password or fragment")
    try:
        name = parts.hostname.encode("idna").decode()
        async with asyncio.timeout(RESOLVE_SECONDS_MAX):
            found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise Refused("must have a host whose name can be resolved") from None
    addresses = [str(entry[4][0]) for entry in found]
    allowed = [address for address in addresses if private or is_public(address)]
    if not allowed:
        raise Refused(NOT_PUBLIC)
    address = f"[{allowed[0]}]" if ":" in allowed[0] else allowed[0]
    resolved = parts._replace(netloc=f"{address}:{port}", path=parts.path or "/").geturl()
    return Target(resolved, parts.netloc, name)
