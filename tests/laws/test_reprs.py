"""The ``repr`` of public objects: one line, and no secret."""

from __future__ import annotations

from pathlib import Path

import sayso
from sayso.testing import ScriptedModel, call


@sayso.tool(needs_approval=True)
def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


def test_repr_names_the_object(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/sayso.db"
    agent = sayso.Agent("bot", model=ScriptedModel([]), tools=[send], store=url)
    with sayso.Gate(url, agent="shop") as gate, sayso.Inbox(url) as inbox:
        assert repr(gate) == f"Gate({url!r}, agent='shop')"
        assert repr(inbox) == f"Inbox({url!r})"
    assert repr(send) == "Tool('send', needs_approval=True)"
    assert repr(agent) == "Agent('bot', tools=['send'])"


def test_repr_of_result_shows_requests_once() -> None:
    model = ScriptedModel([call("send", {"to": "ana"})])
    agent = sayso.Agent("bot", model=model, tools=[send])
    result = agent.run_sync("Write to Ana")
    (request,) = result.interruptions
    assert repr(result).count(request.digest) == 1
    assert repr(result.state).count(request.digest) == 1
    assert "Store object" not in repr(result.state)
