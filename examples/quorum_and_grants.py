"""A quorum of two for a dangerous call, and a grant for a daily one."""

from __future__ import annotations

import tempfile

import sayso
from sayso.inbox import create_token

TWO = sayso.Rule("delete_account", quorum=2, reviewers="group:support", risk="high")


def main(store: str) -> None:
    gate = sayso.Gate(store, policy=sayso.Policy([TWO]), wait=0)
    inbox = sayso.Inbox(store)

    @gate.guard
    def delete_account(name: str) -> str:
        """Delete a customer and all their data."""
        return f"{name} is gone"

    @gate.guard(needs_approval=True)
    def send_reminder(to: str) -> str:
        """Remind a customer of an open invoice."""
        return f"reminded {to}"

    def delete() -> str:
        with gate.run("ticket-9"):
            return delete_account("mallory")

    def remind(day: str) -> str:
        with gate.run(f"reminders-{day}"):
            return send_reminder("bob@example.com")

    for person in ("ana", "cy"):
        try:
            print(delete())
        except sayso.Paused as paused:
            (request,) = paused.requests
            token, _ = create_token(inbox.store, person, by="setup", groups=["support"])
            request = inbox.decide_sync(request.id, request.approve(), token=token)
            print(f"{person} approves: {len(request.votes)} of {request.quorum}")
    print(delete())

    try:
        remind("monday")
    except sayso.Paused as paused:
        yes, week = paused.requests[0].approve(), {"uses": 5, "ends_in": 7 * 86_400}
        inbox.decide_sync(paused.requests[0].id, yes, by="ana", grant=week)
    for day in ("monday", "tuesday", "wednesday"):
        print(f"{day}: {remind(day)}")
    (grant,) = inbox.grants_sync()
    print(f"the grant by {grant.by} has {grant.uses_left} uses left")
    gate.close()
    inbox.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(f"sqlite:///{folder}/sayso.db")
