"""Shared by the worlds of several frameworks: a store, decisions, and effects."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sayso
from sayso.stores.sqlite import SqliteStore
from sayso.types import Request


class StoreWorld:
    """A store with any number of agents. Each ``agent()`` is independent, like a new process."""

    def __init__(self, folder: Path, policy: sayso.Policy | None = None, hours: int = 0) -> None:
        self.folder = folder
        clock = lambda: time.time_ns() // 1000 + hours * 3_600_000_000  # noqa: E731
        self.store = SqliteStore(folder / "sayso.db", clock=clock)
        self.gate = sayso.Gate(self.store, policy=policy, agent="teller", wait=0)
        self.inbox = sayso.Inbox(self.store)
        self.ran: list[Any] = []

    async def waits(self) -> Request:
        """Return the only pending request."""
        (request,) = (await self.inbox.pending()).items
        return request

    async def decide(self, make: Callable[[Request], Any], by: str = "ana") -> Request:
        """Decide the only pending request."""
        request = await self.waits()
        return await self.inbox.decide(request.id, make(request), by=by)

    def close(self) -> None:
        self.gate.close()


def pay_of(world: StoreWorld) -> Any:
    """Return a tool that records who was paid."""

    async def pay(to: str, amount: int = 1) -> str:
        """Pay somebody."""
        world.ran.append((to, amount))
        return f"paid {amount} to {to}"

    return pay
