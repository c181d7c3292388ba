"""The driver releases calls over HTTP as it does in a store."""

from __future__ import annotations

from collections.abc import Callable

from remote_world import People, Server

from sayso import codec
from sayso.client import RemoteGate
from sayso.gate.plan import Plan
from sayso.gate.scope import RunScope
from sayso.rows import Call, CallStatus
from sayso.schema import remote_tool
from sayso.sync import run_sync
from sayso.types import Terms


def released(gate: RemoteGate, caller: str, wait: float | None = 0) -> Call:
    async def terms(args: object) -> Terms:
        raise AssertionError("only the server asks its policy")

    plan = Plan(
        key=f"hook={caller}",
        kind="approval",
        args=codec.canonical({"command": "make"}).decode(),
        agent=gate.agent,
        terms=terms,
        tool=remote_tool("Bash", {"type": "object"}, None, ""),
        tool_name="Bash",
        wait=wait,
        caller=caller,
    )
    return run_sync(gate.driver.release(RunScope(gate.driver, "session", ""), plan))


def test_released_after_a_decision(
    server: Server, people: People, gate_to: Callable[..., RemoteGate]
) -> None:
    gate = gate_to(server.url)
    people.will(lambda request: request.edit({"command": "make test"}))
    call = released(gate, "use:1", wait=30)
    assert (call.status, call.args) == (CallStatus.RELEASED, '{"command":"make test"}')


def test_not_yet_then_the_same_request(
    server: Server, people: People, gate_to: Callable[..., RemoteGate]
) -> None:
    gate = gate_to(server.url)
    first = released(gate, "use:1")
    assert first.status is CallStatus.ASKED
    people.decide(lambda request: request.approve())
    again = released(gate, "use:2")
    assert (again.id, again.status) == (first.id, CallStatus.RELEASED)
    third = released(gate, "use:3")
    assert (third.id != first.id, third.status) == (True, CallStatus.ASKED)
    people.decide(lambda request: request.reject("no"))
    assert released(gate, "use:4").status is CallStatus.REJECTED
