"""Run the channels of one process: plan, send, and take what comes back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from sayso.channels.kit.channel import Channel
from sayso.channels.kit.desk import Desk
from sayso.channels.kit.planner import Planner, wants
from sayso.channels.kit.sender import Observer, Sender
from sayso.inbox import Inbox
from sayso.rows import Event
from sayso.stores.event_follower import EventFollower
from sayso.sync import to_thread

log = logging.getLogger("sayso.channels")

_RETRY = 5.0
_GRACE = 5.0


class ChatChannel(Channel, Protocol):
    """A channel in which people can answer."""

    async def listen(self, desk: Desk) -> None:
        """Take what people send, until cancelled. Returns at once if it arrives over HTTP."""
        ...


class ChannelRunner:
    """Plans, sends and listens for one channel."""

    def __init__(self, inbox: Inbox, channel: ChatChannel, page: str, observer: Observer) -> None:
        store = inbox.store
        self.channel = channel
        self.sender = Sender(store, channel, page, observer)
        self.desk = Desk(inbox, channel.name, page, observer, self.sender.nudge)
        self._stopping = asyncio.Event()
        self._planner = Planner(store, channel)
        self._follower = EventFollower(store, f"channel:{channel.name}", wants, self._plan)

    async def _plan(self, events: Sequence[Event]) -> None:
        if await to_thread(self._planner.plan, events):
            self.sender.nudge()

    async def begin(self) -> None:
        """Start a new channel at the newest event. A known one continues where it was."""
        await self._follower.begin()

    async def run(self) -> None:
        """Run until ``stop`` is called. What fails in one part is retried, and stops no other."""
        sending = asyncio.create_task(self.sender.run())
        others = [asyncio.create_task(self._follower.run()), asyncio.create_task(self._listen())]
        try:
            await self._stopping.wait()
            self.sender.stop()
            await asyncio.wait([sending], timeout=_GRACE)
        finally:
            for task in (sending, *others):
                task.cancel()
            await asyncio.gather(sending, *others, return_exceptions=True)
            await self.channel.close()

    def stop(self) -> None:
        """Start nothing more; messages that are being sent get a few seconds."""
        self._stopping.set()

    async def _listen(self) -> None:
        while True:
            try:
                await self.channel.listen(self.desk)
                return
            except Exception as error:
                log.warning("%s: cannot listen, retrying: %s", self.channel.name, error)
                await asyncio.sleep(_RETRY)


class ChannelService:
    """Runs all channels of a server or a worker."""

    def __init__(
        self, inbox: Inbox, channels: Sequence[ChatChannel], page: str, observer: Observer
    ) -> None:
        if len({channel.name for channel in channels}) < len(channels):
            raise ValueError("two channels have the same name: remove one")
        self.runners = {
            channel.name: ChannelRunner(inbox, channel, page, observer) for channel in channels
        }

    async def begin(self) -> None:
        """Store where new channels start. Call this before requests are accepted."""
        for runner in self.runners.values():
            await runner.begin()

    async def run(self) -> None:
        """Run until ``stop`` is called."""
        await asyncio.gather(*(runner.run() for runner in self.runners.values()))

    def stop(self) -> None:
        for runner in self.runners.values():
            runner.stop()
