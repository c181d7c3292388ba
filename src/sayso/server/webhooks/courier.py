"""One delivery: signed, to a checked address, without following anybody elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime

import httpx
from standardwebhooks import Webhook

from sayso.errors import SaysoError
from sayso.server.webhooks.address import allowed_addresses
from sayso.server.webhooks.endpoint import Endpoint
from sayso.server.webhooks.payload import Message


class NotDelivered(SaysoError):
    """The receiver did not take it."""


class Courier:
    """Takes messages to endpoints; keeps no connection open, and heeds no proxy."""

    def __init__(self) -> None:
        self._client = httpx.AsyncClient(
            verify=httpx.create_ssl_context(),
            follow_redirects=False,
            trust_env=False,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        )

    async def deliver(self, endpoint: Endpoint, message: Message) -> None:
        """Send it once; raises what kept it from being taken."""
        url = httpx.URL(endpoint.url)
        try:
            async with asyncio.timeout(endpoint.timeout):
                addresses = await allowed_addresses(url, allow_private=endpoint.allow_private)
                status = await self._first(addresses, url, endpoint, message)
        except TimeoutError:
            raise NotDelivered(f"no answer within {endpoint.timeout:g} seconds") from None
        except httpx.HTTPError as error:
            raise NotDelivered(str(error) or type(error).__name__) from None
        if not 200 <= status < 300:
            elsewhere = ": redirects are not followed" if 300 <= status < 400 else ""
            raise NotDelivered(f"it answered {status}{elsewhere}")

    async def _first(
        self, addresses: list[str], url: httpx.URL, endpoint: Endpoint, message: Message
    ) -> int:
        """The status that the first address gives that can be reached at all."""
        *others, last = addresses
        for address in others:
            with contextlib.suppress(httpx.ConnectError):
                return await self._post(address, url, endpoint, message)
        return await self._post(last, url, endpoint, message)

    async def _post(
        self, address: str, url: httpx.URL, endpoint: Endpoint, message: Message
    ) -> int:
        # To the address that was checked; the name is only for the certificate and the receiver.
        async with self._client.stream(
            "POST",
            url.copy_with(host=address),
            content=message.body.encode(),
            headers={"host": url.netloc.decode("ascii"), **_signed(endpoint, message)},
            extensions={"sni_hostname": url.raw_host.decode("ascii")},
            timeout=endpoint.timeout,
        ) as response:
            return response.status_code

    async def close(self) -> None:
        """Let go."""
        await self._client.aclose()


def _signed(endpoint: Endpoint, message: Message) -> dict[str, str]:
    now = datetime.now(UTC)
    return {
        "content-type": "application/json",
        "user-agent": "sayso-webhooks",
        "webhook-id": message.id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(endpoint.secret).sign(message.id, now, message.body),
    }
