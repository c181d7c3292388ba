"""Where a webhook may go: the name is resolved once, checked, and that very address is used.

A receiver's name is configuration, but whoever owns the name decides where it points, now or a
minute later. So nothing inside the own network is reached unless that was said.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket

import httpx

from sayso.errors import SaysoError

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class Forbidden(SaysoError):
    """An address that webhooks must not go to."""


async def allowed_addresses(url: httpx.URL, *, allow_private: bool) -> list[str]:
    """The checked addresses behind a URL; ``Forbidden`` says what is wrong with one of them."""
    host = url.raw_host.decode("ascii")
    port = url.port or (443 if url.scheme == "https" else 80)
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Forbidden(f"{host} has no address: {error}") from None
    addresses = [ipaddress.ip_address(str(info[4][0]).partition("%")[0]) for info in found]
    inside = [address for address in addresses if not is_public(address)]
    if inside and not allow_private:
        raise Forbidden(f"{host} is {inside[0]}, inside the own network: allow_private is needed")
    if url.scheme != "https" and len(inside) < len(addresses):
        raise Forbidden(f"{host} is {addresses[0]}, on the open network: use https")
    return [str(address) for address in addresses]


def is_public(address: _Address) -> bool:
    """Whether it belongs to the open network, also by what is wrapped in it."""
    return all(
        part.is_global and not part.is_multicast and not part.is_reserved
        for part in _wrapped(address)
    )


def _wrapped(address: _Address) -> list[_Address]:
    """The address that counts: for old ways to carry IPv4 in IPv6, the one inside."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    inner: list[_Address | None] = [address.ipv4_mapped, address.sixtofour]
    inner += address.teredo or ()
    if address in _NAT64:
        inner.append(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
    return [part for part in inner if part is not None] or [address]
