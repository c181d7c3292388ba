"""Guard a function: a risky call waits for a person, and what they said yes to runs once."""

from __future__ import annotations

import tempfile

import sayso


def main(store: str) -> None:
    gate = sayso.Gate(store, wait=0)  # 0: never wait here; raise Paused and come back later
    inbox = sayso.Inbox(store)

    @gate.guard(needs_approval=lambda args: args["euros"] > 100)
    def refund(order: str, euros: int, reason: str = "late delivery") -> str:
        """Pay a customer back."""
        print(f"  the bank moves {euros} euros")
        return f"{euros} euros for {order} ({reason})"

    def job() -> list[str]:
        with gate.run("refunds-of-monday"):
            return [refund("A-16", 20), refund("A-17", 1200)]

    print("1. the job begins; 20 euros need nobody, 1200 euros need a person")
    try:
        job()
    except sayso.Paused as paused:
        print(f"  paused: {len(paused.requests)} request")

    print("2. a person looks, and says yes to less")
    (request,) = inbox.pending_sync().items
    print(f"  {request.tool} {dict(request.args)}")
    decided = inbox.decide_sync(request.id, request.edit({"euros": 120}), by="ana")
    print(f"  {decided.status} by ana")

    print("3. the same job again: what ran is not run again, what was approved runs")
    for line in job():
        print(f"  {line}")

    print("4. and once more: every result comes from the store")
    for line in job():
        print(f"  {line}")

    gate.close()
    inbox.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(f"sqlite:///{folder}/sayso.db")
