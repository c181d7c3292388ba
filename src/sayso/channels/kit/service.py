"""Run the channels of one process: plan, send, and take what comes back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from sayso.channels.kit.channel import Channel
from sayso.channels.kit.courier import ChatCourier, Observer
from sayso.channels.kit.desk import Desk
from sayso.channels.kit.lease import Lease
from sayso.channels.kit.planner import Planner
from sayso.channels.kit.sender import Courier, Sender
from sayso.inbox import Inbox
from sayso.rows import Event
from sayso.stores.base import Store
from sayso.stores.event_follower import EventFollower
from sayso.sync import to_thread

log = logging.getLogger("sayso.channels")

_RETRY = 5.0
#: Seconds in which messages that are being sent may end, and then all else.
_GRACE = 5.0
_END = 1.0


class ChatChannel(Channel, Protocol):
    """A channel in which people can answer."""

    async def listen(self, desk: Desk) -> None:
        """Take what people send, until cancelled. Returns at once if it arrives over HTTP."""


class EventPlanner(Protocol):
    """Turns events into rows of a channel."""

    def wants(self, event: Event) -> bool:
        """Return whether an event may change what messages there are."""

    def plan(self, events: Sequence[Event]) -> int:
        """Write the rows that these events ask for; return how many were written."""


class Runner:
    """Plans and sends for one channel, in one process at a time."""

    def __init__(self, store: Store, courier: Courier, planner: EventPlanner) -> None:
        self.name = courier.name
        self.sender = Sender(store, courier)
        self._courier = courier
        self._planner = planner
        self._stopping = asyncio.Event()
        self._lease = Lease(store, f"channel:{courier.name}")
        self._follower = EventFollower(store, f"channel:{courier.name}", planner.wants, self._plan)

    async def _plan(self, events: Sequence[Event]) -> None:
        if await to_thread(self._planner.plan, events):
            self.sender.nudge()

    async def begin(self) -> None:
        """Start a new channel at the newest event. A known one continues where it was."""
        await self._follower.begin()

    async def run(self) -> None:
        """Run until ``stop`` is called. What fails in one part is retried, and stops no other."""
        leading = asyncio.create_task(self._lease.run(self._lead, self._stopping))
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({leading, stopping}, return_when="FIRST_COMPLETED")
            self.sender.stop()
            await asyncio.wait({leading}, timeout=_GRACE)
        finally:
            for task in (leading, stopping):
                task.cancel()
            # The store may be away: what would still be written there is not waited for.
            await asyncio.wait({leading, stopping}, timeout=_END)
            await self._courier.close()

    def stop(self) -> None:
        """Start nothing more; messages that are being sent get a few seconds."""
        self._stopping.set()

    async def _lead(self) -> None:
        others = [asyncio.create_task(self._follower.run()), asyncio.create_task(self._listen())]
        try:
            await self.sender.run()
        finally:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

    async def _listen(self) -> None:
        """Take what people send back, if the channel allows that."""


class ChannelRunner(Runner):
    """Plans, sends and listens for one channel to people."""

    def __init__(self, inbox: Inbox, channel: ChatChannel, page: str, observer: Observer) -> None:
        store = inbox.store
        super().__init__(
            store, ChatCourier(store, channel, page, observer), Planner(store, channel)
        )
        self.channel = channel
        self.desk = Desk(inbox, channel.name, page, observer, self.sender.nudge)

    async def _listen(self) -> None:
        while True:
            try:
                await self.channel.listen(self.desk)
                return
            except Exception as error:
                log.warning("%s: cannot listen, retrying: %s", self.channel.name, error)
                await asyncio.sleep(_RETRY)


class ChannelService:
    """Runs all channels of a server or a worker, and its webhooks (``others``)."""

    def __init__(
        self,
        inbox: Inbox,
        channels: Sequence[ChatChannel],
        page: str,
        observer: Observer,
        others: Sequence[Runner] = (),
    ) -> None:
        #: The channels to people, by name.
        self.runners = {
            channel.name: ChannelRunner(inbox, channel, page, observer) for channel in channels
        }
        self._all = [*self.runners.values(), *others]
        if len({runner.name for runner in self._all}) < len(channels) + len(others):
            raise ValueError("two channels have the same name or two webhooks one URL: remove one")

    async def begin(self) -> None:
        """Store where new channels start. Call this before requests are accepted."""
        for runner in self._all:
            await runner.begin()

    async def run(self) -> None:
        """Run until ``stop`` is called."""
        await asyncio.gather(*(runner.run() for runner in self._all))

    def stop(self) -> None:
        for runner in self._all:
            runner.stop()
