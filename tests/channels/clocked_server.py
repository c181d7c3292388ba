"""A server with Telegram, as a process whose store has a clock in a file: URL, API and file.

It plans, sends and listens, reminds people and escalates, as ``sayso serve`` does.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import sayso
from sayso.channels.kit import sender
from sayso.channels.kit.courier import NoObserver
from sayso.channels.kit.service import ChannelService
from sayso.channels.telegram import TelegramChannel
from sayso.stores import open_store
from sayso.worker import Worker, worker


async def serve(url: str, api: str, clock: Path) -> None:
    # The clock jumps without a commit, which would be noticed seconds later.
    sender._POLL = worker.POLL_SECONDS = 0.1
    store = open_store(url, clock=lambda: int(clock.read_text()))
    channel = TelegramChannel("123:fake", api=api, spacing=0)
    service = ChannelService(sayso.Inbox(store), [channel], "https://sayso.example", NoObserver())
    await service.begin()
    print("ready", flush=True)
    await asyncio.gather(service.run(), Worker([], store).run())


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
