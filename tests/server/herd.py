"""Worker processes on one store that count what they take, for the test of the herd."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Sequence
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


async def main(url: str) -> None:
    """Work until standard input ends, then print the counts."""
    store, counts = open_store(url), Counter[str]()
    transact, transact_each = store.transact, store.transact_each

    def count(commands: Sequence[Any], results: Sequence[Any]) -> None:
        for command, result in zip(commands, results, strict=True):
            if isinstance(command, Claim):
                counts["claims"] += 1
                counts["in_vain"] += result is None

    def counted(*commands: Any) -> Any:
        results = transact(*commands)
        count(commands, results)
        return results

    def counted_each(batch: Sequence[Sequence[Any]], *, now: bool = False) -> Any:
        outcomes = transact_each(batch, now=now)
        for commands, outcome in zip(batch, outcomes or (), strict=outcomes is not None):
            if isinstance(outcome, list):
                count(commands, outcome)
        return outcomes

    def told(step: Step) -> None:
        counts[step.step] += 1

    store.transact = counted  # type: ignore[method-assign]
    if store.quick_reads:  # else it calls transact
        store.transact_each = counted_each  # type: ignore[method-assign]
    store.transact_now = lambda *commands: counted(*commands)  # type: ignore[method-assign]
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
