"""A pending request to show."""

from __future__ import annotations

import pytest

from sayso import Gate, Paused, Request


@pytest.fixture
def request_() -> Request:
    gate = Gate("memory://", wait=0, agent="assistant")

    @gate.guard(needs_approval=True)
    def send_email(to: str, body: str = "") -> str:
        """Send an email."""
        return "sent"

    with pytest.raises(Paused) as caught, gate.run("r1"):
        send_email("ana@example.com", "Hi")
    return caught.value.requests[0]
