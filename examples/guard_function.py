"""Guard a function: a risky call needs approval, and what was approved runs once."""

from __future__ import annotations

import tempfile

import sayso


def main(store: str) -> None:
    gate = sayso.Gate(store, wait=0)  # 0: raise Paused immediately, and come back later
    inbox = sayso.Inbox(store)

    @gate.guard(needs_approval=lambda args: args["euros"] > 100)
    def refund(order: str, euros: int, reason: str = "late delivery") -> str:
        """Refund a customer."""
        print(f"  the bank moves {euros} euros")
        return f"{euros} euros for {order} ({reason})"

    def job() -> list[str]:
        with gate.run("refunds-of-monday"):
            return [refund("A-16", 20), refund("A-17", 1200)]

    print("1. the job starts; 20 euros need no approval, 1200 euros do")
    try:
        job()
    except sayso.Paused as paused:
        print(f"  paused: {len(paused.requests)} request")

    print("2. a reviewer approves less")
    (request,) = inbox.pending_sync()
    print(f"  {request.tool} {dict(request.args)}")
    decided = inbox.edit_sync(request, {"euros": 120}, by="ana")
    print(f"  {decided.status} by ana")

    print("3. the same job again: the first refund does not repeat, the approved one runs")
    for line in job():
        print(f"  {line}")

    print("4. once more: all results come from the store")
    for line in job():
        print(f"  {line}")

    gate.close()
    inbox.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(f"sqlite:///{folder}/sayso.db")
