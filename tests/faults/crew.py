"""A worker to be killed, stopped and woken: the product's ``Worker`` with an agent that pays.

Each run pays twice, and each payment needs a person. Effects are counted outside the store, in a
file that every process appends to.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from places import open_at
from stories import append

from sayso import Agent, tool
from sayso.agent.context import Context
from sayso.stores.base import Store
from sayso.stores.postgres import store as postgres
from sayso.testing import ScriptedModel, call, say
from sayso.worker import Worker

PAYMENTS = 2

#: Where a process dies or falls asleep: the n-th time at a commit or an effect, before or after.
Fault = Sequence[Any]


def next_step(messages: Sequence[Any]) -> Any:
    """What the model says: it depends on nothing but the conversation."""
    done = sum(message["role"] == "assistant" for message in messages)
    return call("pay", {"to": f"shop {done}"}) if done < PAYMENTS else say("Paid.")


class Hand:
    """One process of the crew, with the point at which something happens to it."""

    def __init__(self, folder: str, fault: Fault | None) -> None:
        self.folder = Path(folder)
        self.fault = None if fault is None else tuple(fault)
        self.counts: Counter[str] = Counter()
        self.store: Store = open_at(folder, boundary=self.cross)

    def cross(self, name: str, when: str) -> None:
        """A point at which the process may be hit."""
        self.counts[name] += when == "before"
        if self.fault is not None and self.fault[:3] == (name, self.counts[name], when):
            number = self.fault[3]
            self.fault = None
            os.kill(os.getpid(), number)

    def effect(self, context: Context, to: str) -> str:
        """Something that must not happen twice."""
        self.cross("effect", "before")
        append(self.folder / "effects", context.call_id, context.attempt, to)
        self.cross("effect", "after")
        return f"paid {to} by attempt {context.attempt}"


def payer(store: Store, effect: Any = None, lease: float = 30.0) -> Agent:
    """The agent; who only asks needs no effect."""

    @tool(needs_approval=True)
    async def pay(context: Context, to: str) -> str:
        return str(effect(context, to))

    return Agent("bot", model=ScriptedModel(next_step), tools=[pay], store=store, lease=lease)


def work(
    folder: str, lease: float, fault: Fault | None = None, skew: float = 0.0, deaf: bool = False
) -> dict[str, int]:
    """Work until SIGTERM, or until something happens; gives how often which point was crossed.

    With ``skew``, this machine's clock is so many seconds ahead; ``deaf`` sends no notifications.
    """
    if skew:
        honest, ahead = time.time_ns, round(skew * 1_000_000_000)
        time.time_ns = lambda: honest() + ahead
    if deaf:
        silence()
    hand = Hand(folder, fault)

    async def body() -> None:
        worker = Worker([payer(hand.store, hand.effect, lease)], hand.store, concurrency=4)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        await worker.run()

    asyncio.run(body())
    hand.store.close()
    return dict(hand.counts)


def silence() -> None:
    """From now on no NOTIFY is sent from this process."""
    postgres.news = lambda *_: None
