"""Many readers of the live feed in one process. Each counts its events.

Print a line when all are connected, read the number of events from standard input, and print what
the readers got: the fewest, the most, and how many were disconnected.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

_MARK = b"event: change\n"
_PATIENCE = 300.0
#: How many knock at once.
_DOORS = 50


class Reader(asyncio.Protocol):
    """One connection that stays open."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.seen = 0
        self.welcome = asyncio.get_running_loop().create_future()
        self.lost = False
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        data = self._tail + data
        if not self.welcome.done() and b": welcome" in data:
            self.welcome.set_result(None)
        self.seen += data.count(_MARK)
        self._tail = data[1 - len(_MARK) :]

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        if not self.welcome.done():
            self.welcome.set_exception(ConnectionError("no reader was let in"))


async def main(port: int, count: int, *tokens: str) -> None:
    head = f"GET /api/events HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\naccept: text/event-stream\r\n"
    loop = asyncio.get_running_loop()
    doors = asyncio.Semaphore(_DOORS)

    async def enter(n: int) -> Reader:
        async with doors:
            token = tokens[n % len(tokens)]  # one person may have only so many streams
            request = f"{head}authorization: Bearer {token}\r\n\r\n".encode()
            _, reader = await loop.create_connection(lambda: Reader(request), "127.0.0.1", port)
            await asyncio.wait_for(reader.welcome, _PATIENCE)
            return reader

    readers = await asyncio.gather(*map(enter, range(count)))
    print("in", flush=True)
    told = await asyncio.to_thread(sys.stdin.readline)
    end = time.monotonic() + _PATIENCE
    while any(r.seen < int(told) and not r.lost for r in readers) and time.monotonic() < end:
        await asyncio.sleep(0.05)
    seen = [reader.seen for reader in readers]
    lost = sum(reader.lost for reader in readers)
    print(json.dumps({"fewest": min(seen), "most": max(seen), "cut_off": lost}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
