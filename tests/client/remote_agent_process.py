"""An agent in a separate process, which a test kills: address, token, and its task."""

from __future__ import annotations

import sys
import time

import sayso
from sayso.client import RemoteGate


def main(url: str, token: str, act: str) -> None:
    gate = RemoteGate(url, token=token, wait=0 if act == "ask" else None, lease=4)

    @gate.guard(effect="idempotent" if act == "idempotent" else "once")
    def pay(amount: int) -> str:
        print("running", flush=True)
        if act != "finish":
            time.sleep(120)
        return f"paid {amount}"

    try:
        with gate.run("order-17"):
            print(pay(5), flush=True)
    except sayso.Paused as paused:
        print(paused.requests[0].kind, flush=True)
    gate.close_sync()


if __name__ == "__main__":
    main(*sys.argv[1:])
