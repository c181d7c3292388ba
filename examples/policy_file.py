"""A policy file allows, asks or denies; the tool's code does not change."""

from __future__ import annotations

import tempfile
from pathlib import Path

import sayso

POLICY = Path(__file__).with_name("policy.toml")


def main(store: str) -> None:
    gate = sayso.Gate(store, policy=POLICY, wait=0)
    inbox = sayso.Inbox(store)

    @gate.guard
    def run_sql(query: str) -> str:
        """Run one statement on the shop's database."""
        return f"ran: {query}"

    def attempt(run: str, query: str) -> None:
        try:
            with gate.run(run):
                print(run_sql(query))
        except sayso.Denied as denied:
            print(f"denied: {denied}")
        except sayso.Paused as paused:
            (request,) = paused.requests
            print(f"asked by the rule {request.rule!r}, risk {request.risk.level}")
            print(f"  a person may {' or '.join(request.allowed)}")
        except sayso.Rejected as rejected:
            print(f"rejected: {rejected}")

    attempt("report", "SELECT name FROM customers")
    attempt("clean-up", "DROP TABLE customers")
    attempt("address", "UPDATE customers SET city = 'Oslo'")

    (request,) = inbox.pending_sync()
    inbox.reject_sync(request, "all of them? add a WHERE", by="ana")
    attempt("address", "UPDATE customers SET city = 'Oslo'")

    gate.close()
    inbox.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(f"sqlite:///{folder}/sayso.db")
