"""A program whose disk loses writes: people decide and an agent pays, in OS threads."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

from paying_worker import PAYMENTS, payer
from places import open_at
from stories import append

from sayso import Inbox
from sayso.stores.postgres import connections, transaction
from sayso.stores.sqlite import SqliteStore

THREADS = 3


def main(folder: Path, runs: int, careless: bool) -> None:
    if careless:
        connections.DURABLE = transaction.DURABLE = "1"
    store: Any = open_at(folder)
    if careless and isinstance(store, SqliteStore):
        store._writer.execute("PRAGMA synchronous=OFF")  # type: ignore[union-attr]
    inbox = Inbox(store)

    def effect(context: Any, to: str) -> str:
        append(folder / "effects", context.call_id, context.attempt, to)
        return f"paid {to} by attempt {context.attempt}"

    agent = payer(store, effect)

    def body(number: int) -> None:
        for _ in range(number, runs, THREADS):
            result = agent.run_sync("Pay 2 shops.")
            append(folder / "begun", result.run)
            for _ in range(PAYMENTS):
                (request,) = result.interruptions
                inbox.decide_sync(request.id, request.approve(), by="ana")
                append(folder / "acks", request.id, "approve", "ana")
                result = agent.resume_sync(result.run)
            assert result.status == "done"

    threads = [threading.Thread(target=body, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    inbox.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), "careless" in sys.argv)
