"""What tools require before a call runs: rules, terms, bindings and previews."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from agent_world import World, error_in, tool_results

import sayso
from sayso.agent.tool import Tool
from sayso.audit import verify
from sayso.testing import FakeClock, person
from sayso.testing.scripted_model import call, calls, say

# -- what they demand


async def test_predicate_selects_calls_to_ask(world: World) -> None:
    @sayso.tool(needs_approval=lambda args: args["table"] in {"users", "payments"})
    def delete(table: str) -> str:
        """Delete."""
        world.ran.append(("delete", table))
        return "gone"

    both = calls(call("delete", {"table": "logs"}), call("delete", {"table": "users"}))
    agent = world.agent(both, say("Done."), tools=[delete])
    result = await agent.run("go", thread="t")
    assert ([r.args["table"] for r in result.interruptions], world.ran) == (
        ["users"],
        [("delete", "logs")],
    )


async def test_predicate_may_be_async_and_sees_prepared_arguments(world: World) -> None:
    seen: list[Mapping[str, Any]] = []

    async def bulk(args: Mapping[str, Any]) -> bool:
        seen.append(args)
        return len(args["to"]) > 2

    @sayso.tool(needs_approval=bulk)
    def mail(to: list[str], subject: str = "Hello") -> str:
        """Mail."""
        return "sent"

    agent = world.agent(call("mail", {"to": ["a"], "subject": None}), say("Done."), tools=[mail])
    assert (await agent.run("go", thread="t")).status == "done"
    assert seen == [{"to": ["a"], "subject": "Hello"}]


async def test_predicate_that_raises_asks(world: World) -> None:
    def broken(args: Mapping[str, Any]) -> bool:
        raise KeyError("nope")

    @sayso.tool(needs_approval=broken)
    def act() -> None:
        """Act."""
        raise AssertionError

    result = await world.agent(call("act"), tools=[act]).run("go", thread="t")
    assert result.status == "paused"
    assert "KeyError" in result.interruptions[0].risk.reasons[0]


async def test_predicate_is_evaluated_before_start(world: World) -> None:
    asked_for: list[Any] = []

    def rule(args: Mapping[str, Any]) -> bool:
        asked_for.append(args)
        return True

    @sayso.tool(needs_approval=rule)
    def act(n: int) -> str:
        """Act."""
        return "acted"

    both = calls(call("act", {"n": 1}), call("act", {"n": 2}))
    agent = world.agent(both, say("Done."), tools=[act])
    result = await agent.run("go", thread="t")
    first, second = result.interruptions
    await agent.resume("t", decisions=[first.approve(), second.reject()])
    # Once for each call, and again directly before the one start.
    assert asked_for == [{"n": 1}, {"n": 2}, {"n": 1}]


async def test_request_has_the_tools_terms(slow_world: World) -> None:
    @sayso.tool(
        needs_approval=True,
        allowed=("approve", "reject"),
        reviewers=["ana", "group:finance"],
        expires_in=3600,
        risk=sayso.Risk("medium", ("money",)),
    )
    def wire(amount: int) -> None:
        """Wire money."""
        slow_world.ran.append(("wire", amount))

    agent = slow_world.agent(call("wire", {"amount": 1}), say("Done."), tools=[wire])
    (request,) = (await agent.run("go", thread="t")).interruptions
    assert request.allowed == ("approve", "reject")
    assert request.reviewers == ("ana", "group:finance")
    assert request.risk == sayso.Risk("medium", ("money",))
    assert request.expires_at is not None
    assert (request.expires_at - request.created_at).total_seconds() == 3600
    assert request.description == "Wire money."
    with pytest.raises(sayso.InvalidDecision, match="edit"):
        await agent.resume("t", decisions=[request.edit({"amount": 2})], by="ana")
    with pytest.raises(sayso.NotAllowed, match="mallory"):
        await agent.resume("t", decisions=[request.approve()], by="mallory")
    result = await agent.resume("t", decisions=[request.approve()], by="ana")
    assert (result.status, slow_world.effects("wire")) == ("done", [1])


async def test_model_text_becomes_the_note(world: World) -> None:
    agent = world.agent(call("pay", {"amount": 1, "to": None}, text="She asked for it."))
    (request,) = (await agent.run("go", thread="t")).interruptions
    assert request.note == "She asked for it."


async def test_binds_are_compared_again_at_the_start(world: World) -> None:
    place = {"tenant": "a"}

    @sayso.tool(needs_approval=True, binds=lambda: place)
    def wipe() -> str:
        """Wipe."""
        world.ran.append(("wipe", place["tenant"]))
        return "wiped"

    agent = world.agent(call("wipe"), say("Done."), tools=[wipe])
    result = await agent.run("go", thread="t")
    place["tenant"] = "b"
    result = await agent.resume("t", decisions=[result.interruptions[0].approve()])
    assert (result.status, world.ran) == ("paused", [])
    assert result.interruptions[0].revision == 2
    result = await agent.resume("t", decisions=[result.interruptions[0].approve()])
    assert (result.status, world.ran) == ("done", [("wipe", "b")])


async def test_binds_may_look_at_the_deps(world: World) -> None:
    @sayso.tool(needs_approval=True, binds=lambda deps: {"tenant": deps})
    def wipe() -> str:
        """Wipe."""
        return "wiped"

    agent = world.agent(call("wipe"), say("Done."), tools=[wipe])
    result = await agent.run("go", thread="t", deps="a")
    yes = result.interruptions[0].approve()
    assert (await agent.resume("t", decisions=[yes], deps="b")).status == "paused"


async def test_binds_that_raise_are_answered_to_the_model(world: World) -> None:
    def nowhere() -> dict[str, str]:
        raise OSError("no network")

    @sayso.tool(needs_approval=True, binds=nowhere)
    def wipe() -> str:
        """Wipe."""
        raise AssertionError

    agent = world.agent(call("wipe"), say("Done."), tools=[wipe])
    assert (await agent.run("go", thread="t")).status == "done"
    assert "no network" in error_in(tool_results(agent)[0])


# -- previews


def _previewed(world: World, preview: Any, **options: Any) -> Tool:
    @sayso.tool(needs_approval=True, preview=preview, **options)
    def delete(table: str, limit: int = 5) -> str:
        """Delete."""
        world.ran.append(("delete", (table, limit)))
        return "gone"

    return delete


async def test_preview_is_shown_with_its_time(slow_world: World) -> None:
    tool = _previewed(slow_world, lambda table, limit: {"rows": limit, "of": table})
    agent = slow_world.agent(call("delete", {"table": "logs", "limit": None}), tools=[tool])
    (request,) = (await agent.run("go", thread="t")).interruptions
    assert request.preview == {
        "at": "2026-01-01T00:00:00+00:00",
        "revision": 1,
        "shows": {"rows": 5, "of": "logs"},
    }


async def test_preview_is_not_made_for_allowed_calls(world: World) -> None:
    def never(**args: Any) -> None:
        raise AssertionError

    tool = _previewed(world, never)
    policy = sayso.Policy([sayso.Rule(tool="delete", verdict="allow")])
    steps = (call("delete", {"table": "logs", "limit": None}), say("Done."))
    agent = world.agent(*steps, tools=[tool], policy=policy)
    assert (await agent.run("go", thread="t")).status == "done"


@pytest.mark.parametrize("kind", ["raises", "hangs", "hangs async", "no JSON"])
async def test_failed_preview_does_not_block(
    world: World, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sayso.gate.guard.PREVIEW_SECONDS", 0.05)
    gone = threading.Event()

    def raises(table: str, limit: int) -> None:
        raise OSError("no database")

    def hangs(table: str, limit: int) -> None:
        gone.wait(2)

    async def hangs_async(table: str, limit: int) -> None:
        await asyncio.sleep(60)

    def no_json(table: str, limit: int) -> Any:
        return object()

    found = {"raises": raises, "hangs": hangs, "hangs async": hangs_async, "no JSON": no_json}
    steps = (call("delete", {"table": "logs", "limit": None}), say("Done."))
    agent = world.agent(*steps, tools=[_previewed(world, found[kind])])
    result = await agent.run("go", thread="t")
    gone.set()
    assert result.interruptions[0].preview["shows"].startswith("no preview")
    result = await agent.resume("t", decisions=[result.interruptions[0].approve()])
    assert result.status == "done"


async def test_preview_is_made_again_after_an_edit(world: World) -> None:
    """With a quorum of two, the second person sees the preview of the first one's edit."""
    tool = _previewed(world, lambda table, limit: f"{limit} rows of {table}", quorum=2)
    agent = world.agent(call("delete", {"table": "logs", "limit": None}), tools=[tool])
    result = await agent.run("go", thread="t")
    (request,) = result.interruptions
    ana = person(world.store, "ana")
    await world.inbox.decide(request.id, request.edit({"limit": 2}), by=ana)
    # The one of the old arguments is gone at once, and the new one there when the agent was.
    assert (await world.inbox.get(request.id)).preview is None
    (request,) = (await agent.resume("t")).interruptions
    assert request.preview["shows"] == "2 rows of logs"
    # What people see has changed, so it is a new revision without votes.
    assert request.preview["revision"] == request.revision == 3
    assert request.votes == ()
    assert verify(world.store).ok


async def test_preview_is_made_again_when_asked_again(slow_world: World, clock: FakeClock) -> None:
    rows = [5]
    place = {"tenant": "a"}
    tool = _previewed(slow_world, lambda table, limit: rows[0], binds=lambda: place)
    agent = slow_world.agent(call("delete", {"table": "logs", "limit": None}), tools=[tool])
    (request,) = (await agent.run("go", thread="t")).interruptions
    rows[0], place["tenant"] = 7, "b"
    clock.advance(60)
    (again,) = (await agent.resume("t", decisions=[request.approve()])).interruptions
    assert (again.preview["shows"], again.preview["revision"]) == (7, 2)
    assert again.preview["at"] == "2026-01-01T00:01:00+00:00"
