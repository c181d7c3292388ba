"""A shop behind the proxy, a person who decides, and clients of both eras."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from live_server import LiveServer
from mcp import Client
from sayso_process import Process, PythonForks
from shop_server import make_shop
from waiting import until_async

import sayso
from sayso.gate import Gate
from sayso.mcp.config import parse_config
from sayso.mcp.proxy import Proxy
from sayso.stores import open_store
from sayso.types import Request

SHOP = Path(__file__).with_name("shop_server.py")
ERAS = ("legacy", "2026-07-28")


@functools.cache
def _forks() -> PythonForks:
    """An interpreter that has imported what ``sayso proxy`` imports."""
    modules = ["sayso.cli.proxy", "sayso.mcp.proxy", "sayso.mcp.front", "sayso.mcp.state"]
    modules += ["sayso.client", "sayso.stores.sqlite", "jsonschema", "uvicorn"]
    forks = PythonForks(*modules)
    atexit.register(forks.close)
    return forks


def start_proxy(*args: str, env: Mapping[str, str] | None = None) -> Process:
    """Start ``sayso proxy`` with these arguments, and nothing to read on stdin."""
    given = os.environ if env is None else env
    return _forks().start("sayso", "proxy", *args, cwd=Path.cwd(), env=given)


def start_shop(folder: Path, port: int) -> Process:
    """Start a shop over HTTP in a process of its own."""
    command = [str(SHOP), str(folder), str(port)]
    with open(os.devnull, "wb") as nowhere:
        return _forks().start_logged(*command, cwd=folder, env=os.environ, log=nowhere)


class World:
    """A folder with the shop's effects and the store."""

    def __init__(self, folder: Path, url: str | None = None) -> None:
        self.folder = folder
        self.url = url or f"sqlite:///{folder}/sayso.db"
        self.inbox = sayso.Inbox(self.url)
        self._live: list[LiveServer] = []

    @property
    def effects(self) -> list[str]:
        path = self.folder / "effects"
        return path.read_text().splitlines() if path.exists() else []

    def shop(self, *, folder: Path | None = None, **settings: Any) -> dict[str, Any]:
        """Return the entry in ``mcpServers`` of a shop that this process serves over HTTP."""
        app = make_shop(folder or self.folder).streamable_http_app()
        config = uvicorn.Config(app, log_config=None, ws="none", timeout_graceful_shutdown=1)
        live = LiveServer(config)
        live.start()
        self._live.append(live)
        return _entry({"url": f"{live.url}/mcp"}, settings)

    def stdio_shop(self, **settings: Any) -> dict[str, Any]:
        """Return the entry of a shop that the proxy starts."""
        command = {"command": sys.executable, "args": [str(SHOP), str(self.folder)]}
        return _entry(command, settings)

    def close(self) -> None:
        self.inbox.close()
        for live in self._live:
            live.stop()

    def config(self, *, servers: dict[str, Any] | None = None, **ours: Any) -> dict[str, Any]:
        return {"mcpServers": servers or {"shop": self.shop()}, "sayso": {"hold": 30, **ours}}

    def write(self, config: dict[str, Any]) -> Path:
        path = self.folder / "mcp.json"
        path.write_text(json.dumps(config))
        return path

    @asynccontextmanager
    async def proxy(
        self, config: dict[str, Any] | None = None, policy: str | None = None
    ) -> AsyncIterator[Proxy]:
        """Run a proxy in this process."""
        parsed = parse_config(config or self.config(), self.folder, {})
        rules = None if policy is None else sayso.Policy.from_toml(policy)
        store = open_store(self.url)
        gates: dict[str, Gate] = {}

        def gate_of(agent: str) -> Gate:
            if agent not in gates:
                gates[agent] = Gate(store, policy=rules, agent=agent, wait=None)
            return gates[agent]

        made = Proxy(parsed, gate_of)
        try:
            async with made.running():
                yield made
        finally:
            store.close()

    @asynccontextmanager
    async def client(
        self,
        mode: str = "legacy",
        config: dict[str, Any] | None = None,
        policy: str | None = None,
        **options: Any,
    ) -> AsyncIterator[Client]:
        """Run a proxy in this process with one client."""
        async with (
            self.proxy(config, policy) as proxy,
            Client(proxy.server, mode=mode, cache=None, **options) as client,
        ):
            yield client

    async def asked(self, count: int = 1) -> list[Request]:
        """Return the pending requests, once there are so many."""

        async def look() -> list[Request]:
            found = list(await self.inbox.pending())
            return found if len(found) >= count else []

        return await until_async(look)

    @asynccontextmanager
    async def person(self, decide: Callable[[Request], Any]) -> AsyncIterator[None]:
        """Decide the next request while the block runs."""

        async def act() -> None:
            (request,) = await self.asked()
            await self.inbox.decide(request.id, decide(request), by="ana")

        task = asyncio.create_task(act())
        try:
            yield
            await task
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def _entry(entry: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    return {**entry, **({"sayso": settings} if settings else {})}


def said(result: Any) -> str:
    """Return the texts of a result."""
    return "\n".join(block.text for block in result.content if block.type == "text")


def ticket_in(result: Any) -> str:
    """Return the ticket that a call was handed back with."""
    text = said(result)
    assert "sayso_wait" in text, text
    return str(text.split('{"ticket": "')[1].split('"')[0])
