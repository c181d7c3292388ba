"""Post to URLs that other people name: receivers of webhooks, push services of browsers.

Private addresses are refused, and no proxy or redirect is followed, so nobody can use the server to
reach its own network.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Mapping

import httpx

from sayso.errors import SaysoError

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class Forbidden(SaysoError):
    """Nothing may be posted to this address."""


async def allowed_addresses(url: httpx.URL, *, allow_private: bool) -> list[str]:
    """Resolve a URL's host and return its addresses. Raise ``Forbidden`` if one is not allowed.

    The owner of the name decides where it points, even a minute after it was checked. So the name
    is resolved once, and exactly the checked addresses are used.
    """
    host = url.raw_host.decode("ascii")
    port = url.port or (443 if url.scheme == "https" else 80)
    loop = asyncio.get_running_loop()
    try:
        resolved = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Forbidden(f"{host} cannot be resolved: {error}") from None
    addresses = [ipaddress.ip_address(str(info[4][0]).partition("%")[0]) for info in resolved]
    inside = [address for address in addresses if not is_public(address)]
    if inside and not allow_private:
        raise Forbidden(f"{host} is {inside[0]}, a private address: set allow_private")
    if url.scheme != "https" and len(inside) < len(addresses):
        raise Forbidden(f"{host} is {addresses[0]}, a public address: use https")
    return [str(address) for address in addresses]


#: All global unicast addresses of IPv6 that were ever assigned. Outside it are site-local addresses
#: (fec0::/10) and everything reserved.
_UNICAST = ipaddress.IPv6Network("2000::/3")
#: Networks for special purposes that `is_global` takes for public in some versions of Python.
_SPECIAL = [
    ipaddress.ip_network(network)
    for network in (
        *("192.0.0.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24"),
        *("192.175.48.0/24", "198.18.0.0/15", "100.64.0.0/10", "64:ff9b:1::/48", "100::/64"),
        *("2001::/23", "2001:db8::/32", "2620:4f:8000::/48", "3fff::/20", "5f00::/16"),
    )
]


def is_public(address: _Address) -> bool:
    """Return whether an address is public, including the IPv4 address that it may embed."""
    return all(
        part.is_global
        and (part.version == 4 or part in _UNICAST)
        and not part.is_multicast
        and not part.is_reserved
        and not any(part in network for network in _SPECIAL if network.version == part.version)
        for part in _effective(address)
    )


def _effective(address: _Address) -> list[_Address]:
    """Return the embedded IPv4 addresses of a transition address, otherwise the address."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    inner: list[_Address | None] = [address.ipv4_mapped, address.sixtofour]
    inner += address.teredo or ()
    if address in _NAT64:
        inner.append(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
    return [part for part in inner if part is not None] or [address]


class Poster:
    """Posts to checked addresses, without keep-alive, proxies or redirects."""

    def __init__(self) -> None:
        self._client = httpx.AsyncClient(
            verify=httpx.create_ssl_context(),
            follow_redirects=False,
            trust_env=False,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        )

    async def post(
        self,
        url: str,
        content: bytes,
        headers: Mapping[str, str],
        *,
        allow_private: bool,
        timeout: float,
    ) -> httpx.Response:
        """Post to the first reachable address of a URL; return the response without its body.

        Raises ``Forbidden``, ``TimeoutError`` or ``httpx.HTTPError``.
        """
        target = httpx.URL(url)
        async with asyncio.timeout(timeout):
            *others, last = await allowed_addresses(target, allow_private=allow_private)
            for address in others:
                with contextlib.suppress(httpx.ConnectError):
                    return await self._post(address, target, content, headers, timeout)
            return await self._post(last, target, content, headers, timeout)

    async def _post(
        self,
        address: str,
        url: httpx.URL,
        content: bytes,
        headers: Mapping[str, str],
        timeout: float,
    ) -> httpx.Response:
        # Connect to the checked address; the name is only for TLS and the Host header.
        async with self._client.stream(
            "POST",
            url.copy_with(host=address),
            content=content,
            headers={"host": url.netloc.decode("ascii"), **headers},
            extensions={"sni_hostname": url.raw_host.decode("ascii")},
            timeout=timeout,
        ) as response:
            return response

    async def close(self) -> None:
        await self._client.aclose()
