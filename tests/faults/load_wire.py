"""A minimal HTTP client, so that the client is not the bottleneck: one connection, kept open."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any


class Wire:
    """One principal's connection."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._token = token
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        #: How long the last answer took.
        self.seconds = 0.0

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Send a request. Return the status and the body."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        data = b"" if body is None else json.dumps(body).encode()
        lines = [
            f"{method} {path} HTTP/1.1",
            f"host: 127.0.0.1:{self._port}",
            f"authorization: Bearer {self._token}",
            f"content-length: {len(data)}",
            "content-type: application/json",
            *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
        ]
        began = time.perf_counter()
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + data)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        sizes = [line.split(":")[1] for line in head if line.startswith("content-length:")]
        told = await reader.readexactly(int(sizes[0]))
        self.seconds = time.perf_counter() - began
        return int(head[0].split()[1]), json.loads(told)

    async def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            await self._streams[1].wait_closed()
