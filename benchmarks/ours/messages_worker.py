"""The process of ``messages.py`` that sends. It has no pace, and ends at the end of its input."""

from __future__ import annotations

import asyncio
import sys

import sayso
from sayso.channels.kit.courier import NoObserver
from sayso.channels.kit.service import ChannelService
from sayso.channels.telegram import TelegramChannel
from sayso.stores import open_store


async def main(url: str, api: str) -> None:
    store = open_store(url)
    channel = TelegramChannel("123:bench", api=api, spacing=0)
    channel.per_second = 100_000.0
    service = ChannelService(sayso.Inbox(store), [channel], "https://sayso.test", NoObserver())
    await service.begin()
    running = asyncio.create_task(service.run())
    loop = asyncio.get_running_loop()
    loop.call_later(0.5, lambda: print("ready", flush=True))
    await loop.run_in_executor(None, sys.stdin.read)
    service.stop()
    await running
    store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
