"""Connect many readers to a feed, and time an event until the last of them has it.

python feed.py READERS sayso|bare COMMAND...   the command prints a port as its first line
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time

_EVENTS = 20


async def reader(port: int, path: str, arrivals: list[float], ready: asyncio.Event) -> None:
    stream, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    await stream.readuntil(b"welcome")
    ready.set()
    while data := await stream.read(65_536):
        if b"data: " in data:
            arrivals.append(time.perf_counter())


async def post(port: int, path: str, n: int) -> None:
    stream, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({"tool": "refund", "args": {"n": n}}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await stream.readline()
    writer.close()


async def measure(port: int, readers: int, kind: str) -> dict[str, float]:
    get, write = ("/api/events", "/api/requests") if kind == "sayso" else ("/", "/")
    arrivals: list[float] = []
    ready = [asyncio.Event() for _ in range(readers)]
    tasks = []
    for event in ready:
        tasks.append(asyncio.create_task(reader(port, get, arrivals, event)))
        if len(tasks) % 50 == 0:
            await event.wait()
    for event in ready:
        await event.wait()
    last = []
    for n in range(_EVENTS):
        arrivals.clear()
        began = time.perf_counter()
        await post(port, write, n)
        async with asyncio.timeout(30):
            while len(arrivals) < readers:
                await asyncio.sleep(0.001)
        last.append(max(arrivals) - began)
    for task in tasks:
        task.cancel()
    return {"last_ms": statistics.median(last) * 1e3}


def main(readers: int, kind: str, command: list[str]) -> None:
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            port = int(server.stdout.readline())
            print(json.dumps(asyncio.run(measure(port, readers, kind))))
        finally:
            server.kill()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
