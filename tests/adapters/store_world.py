"""What the worlds of several frameworks share: one store, its people, and what tools did."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sayso
from sayso.stores.sqlite import SqliteStore
from sayso.types import Request


class StoreWorld:
    """One store, and as many agents over it as a test likes: each ``agent()`` knows nothing of the
    others, like a process of its own."""

    def __init__(self, folder: Path, policy: sayso.Policy | None = None, hours: int = 0) -> None:
        self.folder = folder
        clock = lambda: time.time_ns() // 1000 + hours * 3_600_000_000  # noqa: E731
        self.store = SqliteStore(folder / "sayso.db", clock=clock)
        self.gate = sayso.Gate(self.store, policy=policy, agent="teller", wait=0)
        self.inbox = sayso.Inbox(self.store)
        self.ran: list[Any] = []

    async def waits(self) -> Request:
        """The only request that waits."""
        (request,) = (await self.inbox.pending()).items
        return request

    async def decide(self, make: Callable[[Request], Any], by: str = "ana") -> Request:
        """A person decides the only request that waits."""
        request = await self.waits()
        return await self.inbox.decide(request.id, make(request), by=by)

    def close(self) -> None:
        self.gate.close()


def pay_of(world: StoreWorld) -> Any:
    """The tool that notes who was paid."""

    async def pay(to: str, amount: int = 1) -> str:
        """Pay somebody."""
        world.ran.append((to, amount))
        return f"paid {amount} to {to}"

    return pay
