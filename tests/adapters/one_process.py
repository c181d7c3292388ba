"""Five agents in one process: they ask, and then it serves them all, on a port that it prints."""

from __future__ import annotations

import asyncio

import five_frameworks as five

from sayso.server import create_app
from sayso.server.serving import run

if __name__ == "__main__":
    agents = [make() for make in five.FIVE.values()]
    asyncio.run(five.ask(agents))
    app = create_app(agents, store=five.STORE, auth=False)
    run(app, "127.0.0.1", 0, lambda url: print(f"Sayso is at {url}", flush=True))
