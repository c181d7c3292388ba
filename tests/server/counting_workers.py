"""Worker processes on one store that count what they take, for the test of worker processes."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from typing import Any

import sayso
from sayso.engine.commands import Claim
from sayso.stores import open_store
from sayso.testing import ScriptedModel, call, say
from sayso.worker import Worker
from sayso.worker.steps import Step


def clerk(store: Any) -> sayso.Agent:
    @sayso.tool(needs_approval=True)
    def refund(order: str) -> str:
        """Give money back."""
        return f"paid {order}"

    steps = [call("refund", {"order": "A-1"}), say("Done.")]
    model = ScriptedModel(steps, by_turn=True)
    return sayso.Agent("clerk", model=model, tools=[refund], store=store)


class Counting:
    """Counts the claims of a store, and those that came too late."""

    def __init__(self, store: Any, counts: Counter[str]) -> None:
        self._counts = counts
        self._transact = store.transact
        store.transact = self.transact

    def transact(self, *commands: Any) -> list[Any]:
        results: list[Any] = self._transact(*commands)
        for command, result in zip(commands, results, strict=True):
            if isinstance(command, Claim):
                self._counts["claims"] += 1
                self._counts["in_vain"] += result is None
        return results


async def main(url: str) -> None:
    """Work until standard input ends, then print the counts."""
    store, counts = open_store(url), Counter[str]()
    Counting(store, counts)

    def told(step: Step) -> None:
        counts[step.step] += 1

    worker = Worker([clerk(store)], store, on_step=told)
    working = asyncio.create_task(worker.run())
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    worker.stop()
    await working
    store.close()
    print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
