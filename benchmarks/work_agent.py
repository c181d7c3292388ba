"""Pause → decide → resume with our own agent on SQLite, n times; milliseconds each."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time

import assent
from assent.testing import ScriptedModel
from assent.testing.scripted_model import call, say


@assent.tool(needs_approval=True)
def send_email(to: str, body: str) -> str:
    """Send an email."""
    return f"sent to {to}"


async def main(n: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        wanted = {"to": "a@example.com", "body": "hello"}

        def answer(messages: list[dict[str, str]]) -> object:
            return say("done") if messages[-1]["role"] == "tool" else call("send_email", wanted)

        agent = assent.Agent(
            "bench",
            model=ScriptedModel(answer),
            tools=[send_email],
            store=f"sqlite:///{folder}/assent.db",
        )
        inbox = assent.Inbox(agent.store)

        async def once(i: int) -> float:
            began = time.perf_counter()
            paused = await agent.run("send it", thread=f"t{i}")
            request = paused.interruptions[0]
            await inbox.decide(request.id, request.approve(), by="ann")
            done = await agent.resume(f"t{i}")
            assert done.output == "done"
            return time.perf_counter() - began

        for i in range(20):
            await once(-i - 1)
        cpu = time.process_time()
        walls = [await once(i) for i in range(n)]
        cpu = (time.process_time() - cpu) / n
        print(json.dumps({"wall_ms": statistics.median(walls) * 1e3, "cpu_ms": cpu * 1e3}))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
