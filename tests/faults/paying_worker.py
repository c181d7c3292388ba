"""A worker to be killed, stopped and continued: the product's ``Worker`` with an agent that pays.

Each run pays twice, and each payment needs a person. Effects are counted outside the store, in a
file that every process appends to.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from places import open_at
from stories import append

from sayso import Agent, tool
from sayso.agent.tool import Context
from sayso.stores.base import Store
from sayso.stores.postgres import store as postgres
from sayso.testing import ScriptedModel, call, say
from sayso.worker import Worker

PAYMENTS = 2

#: Where a process dies or falls asleep: the n-th time at a commit or an effect, before or after.
Fault = Sequence[Any]


def next_step(messages: Sequence[Any]) -> Any:
    """Return the model's reply, which depends on the conversation only."""
    done = sum(message["role"] == "assistant" for message in messages)
    return call("pay", {"to": f"shop {done}"}) if done < PAYMENTS else say("Paid.")


class WorkerProcess:
    """One worker process, and the point at which it is hit."""

    def __init__(self, folder: str, fault: Fault | None) -> None:
        self.folder = Path(folder)
        self.fault = None if fault is None else tuple(fault)
        self.counts: Counter[str] = Counter()
        self.store: Store = open_at(folder, boundary=self.cross)
        with (self.folder / "opened").open("a") as opened:
            opened.write(f"{os.getpid()}\n")

    def cross(self, name: str, when: str) -> None:
        """Count a point, at which the process may be hit."""
        self.counts[name] += when == "before"
        if self.fault is not None and self.fault[:3] == (name, self.counts[name], when):
            number = self.fault[3]
            self.fault = None
            os.kill(os.getpid(), number)

    def effect(self, context: Context, to: str) -> str:
        """Perform an effect, which must not happen twice."""
        self.cross("effect", "before")
        append(self.folder / "effects", context.call_id, context.attempt, to)
        self.cross("effect", "after")
        return f"paid {to} by attempt {context.attempt}"


def payer(store: Store, effect: Any = None, lease: float = 30.0) -> Agent:
    """Return the agent. A process that only asks needs no effect."""

    @tool(needs_approval=True)
    async def pay(context: Context, to: str) -> str:
        return str(effect(context, to))

    return Agent("bot", model=ScriptedModel(next_step), tools=[pay], store=store, lease=lease)


def work(
    folder: str,
    lease: float,
    fault: Fault | None = None,
    skew: float = 0.0,
    deaf: bool = False,
    lag: float = 0.0,
) -> dict[str, int]:
    """Work until SIGTERM or a fault. Return how often each point was crossed.

    With ``skew``, this machine's clock is so many seconds ahead; ``deaf`` sends no notifications;
    with ``lag``, what it writes is based on what it read up to so many seconds ago.
    """
    if skew:
        honest, ahead = time.time_ns, round(skew * 1_000_000_000)
        time.time_ns = lambda: honest() + ahead
    if deaf:
        silence()
    hand = WorkerProcess(folder, fault)
    if lag:
        slow_down(hand.store, lag)

    async def body() -> None:
        worker = Worker([payer(hand.store, hand.effect, lease)], hand.store, concurrency=4)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        await worker.run()

    asyncio.run(body())
    hand.store.close()
    return dict(hand.counts)


def silence() -> None:
    """Send no NOTIFY from this process any more."""
    postgres.notify = lambda *_: None


def slow_down(store: Store, lag: float) -> None:
    """Sleep for a random time between half of the reads and the write that follows."""
    transact = store.transact

    def later(*commands: Any) -> list[Any]:
        if random.random() < 0.5:
            time.sleep(random.random() * lag)
        return transact(*commands)

    store.transact = later  # type: ignore[method-assign]


def resume_at_once(folder: str, runs: list[str], threads: int, lag: float) -> list[str]:
    """Resume every run in several OS threads at once. Return what was raised."""
    store = open_at(folder)
    slow_down(store, lag)
    hand = WorkerProcess(folder, None)
    agent = payer(store, hand.effect)
    raised: list[str] = []

    def resume(run: str, ready: threading.Barrier) -> None:
        ready.wait()
        try:
            agent.resume_sync(run)
        except Exception as error:
            raised.append(f"{run}: {type(error).__name__}: {error}")

    for run in runs:
        ready = threading.Barrier(threads)
        contenders = [threading.Thread(target=resume, args=(run, ready)) for _ in range(threads)]
        for thread in contenders:
            thread.start()
        for thread in contenders:
            thread.join()
    store.close()
    hand.store.close()
    return raised
