"""Kill a process in the middle of a call: the call is in doubt, and a person settles it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time

import sayso


def job(store: str, *, slow: bool) -> str:
    # A short lease, so that the dead process is noticed quickly.
    gate = sayso.Gate(store, wait=0, lease=0.5)

    @gate.guard(needs_approval=False)
    def charge(card: str, euros: int) -> str:
        """Take money from a card."""
        print(f"the bank takes {euros} euros", flush=True)
        if slow:
            time.sleep(60)
        return "receipt 4711"

    try:
        with gate.run("order-17"):
            return charge("…1234", 120)
    finally:
        gate.close()


def main(store: str) -> None:
    print("1. another process starts the call and is killed halfway")
    command = [sys.executable, __file__, store]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        print(f"  it says: {child.stdout.readline().strip()}")
        child.kill()

    print("2. come back: the outcome is unknown, so the call does not repeat")
    try:
        job(store, slow=False)
    except sayso.Paused as paused:
        (request,) = paused.requests
        print(f"  {request.kind}: {request.tool} {dict(request.args)}")
        print(f"  a person may {' or '.join(request.allowed)}")

    print("3. a person checks with the bank: it did happen, here is the receipt")
    inbox = sayso.Inbox(store)
    inbox.respond_sync(request, "receipt 4711", by="ana")
    inbox.close()
    print(f"  the job continues with: {job(store, slow=False)}")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        job(sys.argv[1], slow=True)
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(f"sqlite:///{folder}/sayso.db")
