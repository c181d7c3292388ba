"""Measure pause → decide → resume with our own agent, n times: milliseconds each.

python cycle.py N [URL]   on a new SQLite file if no URL is given
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile

from scene import OWN, agent_on, cycle, timed

import sayso


async def main(n: int, url: str | None = None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        agent = agent_on(url or f"sqlite:///{folder}/sayso.db")
        inbox = sayso.Inbox(agent.store)
        print(json.dumps(await timed(lambda i: cycle(agent, inbox, f"{OWN}{i}"), n)))
        agent.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), *sys.argv[2:]))
