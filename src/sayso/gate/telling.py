"""Getting a request to people: every channel by itself, so that none holds up another, or the run.

A channel runs on the event loop of whoever asks, where its queues, sessions and futures live. Who
has no loop to give, because they called a sync method, has it run in a thread with a loop of its
own; so does one that sits in front of a person, since it reads keys and would block everybody.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence

from sayso.sync import on_callers_loop, to_thread
from sayso.types import Request

Channel = Callable[[Request], Awaitable[None]]

log = logging.getLogger("sayso.gate")

#: What goes on although nobody waits for it any more.
_under_way: set[asyncio.Task[None]] = set()


def is_interactive(channel: Channel) -> bool:
    """Whether a person sits in front of it."""
    return bool(getattr(channel, "interactive", False))


async def deliver(channels: Sequence[Channel], request: Request, patience: float) -> None:
    """Hand a request to them, and wait so many seconds; for an interactive one until it is done."""
    here = [c for c in channels if on_callers_loop() and not is_interactive(c)]
    told = {asyncio.create_task(_told(channel, request)) for channel in here}
    _under_way.update(told)
    for task in told:
        task.add_done_callback(_under_way.discard)
    apart = [channel for channel in channels if channel not in here]
    if apart:
        await to_thread(_deliver_apart, apart, request, patience)
    if told and patience:
        await asyncio.wait(told, timeout=patience)


def _deliver_apart(channels: Sequence[Channel], request: Request, patience: float) -> None:
    threads = [
        threading.Thread(target=lambda c=channel: asyncio.run(_told(c, request)), daemon=True)
        for channel in channels
    ]
    for thread in threads:
        thread.start()
    for channel, thread in zip(channels, threads, strict=True):
        thread.join(None if is_interactive(channel) else patience)


async def _told(channel: Channel, request: Request) -> None:
    try:
        await channel(request)
    except asyncio.CancelledError:
        log.warning("request %s: its loop ended before a channel was done", request.id)
        raise
    except Exception as error:
        log.warning("request %s: a channel failed: %s: %s", request.id, type(error).__name__, error)
