"""A user's worker: ``desk_worker.py ADDRESS QUEUE STORE FOLDER`` lives until killed or stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from datetime import date, timedelta
from pathlib import Path

from desk_workflows import Hurry, Loose, Plain, Refund, Rounds, Visit
from temporalio.client import Client
from temporalio.worker import Worker

import sayso
from sayso.adapters.temporal import SaysoPlugin

FOLDER = Path()


def note(line: str) -> None:
    """An effect, where no store and no Temporal can hide it."""
    with (FOLDER / "effects").open("a") as effects:
        effects.write(line + "\n")


async def refund(order: str, euros: int, reason: str = "none given") -> str:
    """Give money back."""
    note(f"{order} {euros} {reason}")
    return f"refunded {euros}"


def slow_refund(order: str, euros: int) -> str:
    """Give money back when the bank gets round to it."""
    note(f"{order} {euros}")
    while not (FOLDER / "go").exists():
        time.sleep(0.02)
    return "late"


def deadly_refund(order: str, euros: int) -> str:
    """Give money back, and take the process along the first time."""
    note(f"{order} {euros}")
    if len((FOLDER / "effects").read_text().splitlines()) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "second time"


def safe_refund(order: str, euros: int) -> str:
    """Give money back, as often as anybody likes: the bank knows the order."""
    return deadly_refund(order, euros)


def lost_refund(order: str, euros: int) -> str:
    """Give money back, and get no reply."""
    note(f"{order} {euros}")
    raise TimeoutError("no reply from the bank")


def empty_refund(order: str, euros: int) -> str:
    """Give nothing back."""
    raise sayso.NotExecuted("there is no money")


def broken_refund(order: str, euros: int) -> str:
    """Give nothing back."""
    raise ValueError("the bank is closed")


def dated_refund(order: str, euros: int) -> date:
    """Give money back, on a day."""
    note(f"{order} {euros}")
    return date(2026, 1, 2)


async def main(address: str, queue: str, store: str) -> None:
    gate = sayso.Gate(store, agent="desk")
    tools = [refund, slow_refund, deadly_refund, broken_refund, dated_refund]
    tools += [lost_refund, empty_refund]
    tools.append(gate.guard(effect="idempotent")(safe_refund))
    client = await Client.connect(address)
    plugin = SaysoPlugin(gate, tools)
    workflows = [Refund, Visit, Hurry, Loose, Rounds, Plain]
    worker = Worker(
        client,
        task_queue=queue,
        workflows=workflows,
        plugins=[plugin],
        # How long Temporal keeps a workflow for a worker that was killed.
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
    )
    stopping = asyncio.Event()

    def stop() -> None:
        (FOLDER / "stopping").touch()
        stopping.set()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    async with worker:
        await stopping.wait()


if __name__ == "__main__":
    FOLDER = Path(sys.argv[4])
    asyncio.run(main(*sys.argv[1:4]))
