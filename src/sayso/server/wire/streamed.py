"""An answer that is written as it comes, for as long as somebody reads it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send


class Streamed(Response):
    """Sends each piece of text at once; ``last`` ends the piece after which nothing comes."""

    def __init__(
        self, pieces: AsyncGenerator[str, None], headers: Mapping[str, str], last: str
    ) -> None:
        self.status_code = 200
        self.background = None
        self._pieces = pieces
        self._last = last
        self.raw_headers = [(n.encode("latin-1"), v.encode("latin-1")) for n, v in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send, and stop as soon as the client is gone."""
        task, gone = asyncio.current_task(), False
        assert task is not None

        def left(_: object) -> None:
            nonlocal gone
            gone = task.cancel()

        reader = asyncio.ensure_future(_until_gone(receive))
        reader.add_done_callback(left)
        try:
            try:
                await self._send(send)
            finally:
                reader.remove_done_callback(left)
                reader.cancel()
                await self._pieces.aclose()
        except asyncio.CancelledError:
            if not gone or task.uncancel():
                raise  # somebody else stops us, too

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        async for piece in self._pieces:
            more = not piece.endswith(self._last)
            body = {"type": "http.response.body", "body": piece.encode(), "more_body": more}
            await send(body)
            if not more:
                return
        await send({"type": "http.response.body", "body": b""})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
