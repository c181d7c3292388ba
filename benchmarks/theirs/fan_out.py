"""A bare fan-out for the feed benchmark: uvicorn, one event, many readers, nothing else."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import uvicorn

_fresh = asyncio.Event()
_frame = b""


async def app(scope: Any, receive: Any, send: Any) -> None:
    global _fresh, _frame
    if scope["type"] != "http":
        return
    if scope["method"] == "POST":
        _frame = b"data: " + (await receive())["body"] + b"\n\n"
        fresh, _fresh = _fresh, asyncio.Event()
        fresh.set()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        return
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b": welcome\n\n", "more_body": True})
    while True:
        await _fresh.wait()
        await send({"type": "http.response.body", "body": _frame, "more_body": True})


if __name__ == "__main__":
    taken = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(taken.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off")).run([taken])
