"""Refunds whose process is killed half-way, on SQLite or PostgreSQL, and that are resumed.

``python shop.py die URL KIND`` is the process that is killed; the tests find the call in doubt.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import sayso
from sayso.stores import open_store
from sayso.stores.base import Store
from sayso.testing import ScriptedModel, call, say

#: How long a process that died keeps its run from others, in seconds.
LEASE = 0.6
RUN = "order-17"


def die(order: str) -> str:
    """Perform the effect, and kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)
    return order


def guarded(store: str | Store, body: Callable[[str], str] = die, **options: Any) -> Any:
    """Return a gate and its guarded refund."""
    gate = sayso.Gate(store, agent="till", wait=options.pop("wait", 0), lease=LEASE)

    def refund(order: str) -> str:
        """Pay an order back."""
        return body(order)

    options = {"needs_approval": False, "effect_key": "refund:{order}", **options}
    return gate, gate.guard(**options)(refund)


def agent(store: str | Store, body: Callable[[str], str] = die, **options: Any) -> sayso.Agent:
    """Return an agent with the same refund as a tool."""

    def refund(order: str) -> str:
        """Pay an order back."""
        return body(order)

    tool = sayso.tool(effect_key="refund:{order}", **options)(refund)
    model = ScriptedModel([call("refund", {"order": "17"}), say("Refunded.")], by_turn=True)
    made = sayso.Agent("till", model=model, tools=[tool], store=store)
    made.gate.backend.lease_length = LEASE
    return made


def kill_in_body(url: str, kind: str = "guard") -> None:
    """Start a refund in another process, which is killed in it."""
    from sayso_process import run_python  # which is not on the path of that process

    done = run_python(__file__, url, kind)
    assert done.returncode == -signal.SIGKILL, done.stderr


def opened(url: str) -> Store:
    return open_store(url)


if __name__ == "__main__":
    if sys.argv[2] == "agent":
        asyncio.run(agent(sys.argv[1], settle=lambda key: None).run("Refund order 17", thread="t"))
    else:
        gate, refund = guarded(sys.argv[1])
        with gate.run(RUN):
            refund("17")
