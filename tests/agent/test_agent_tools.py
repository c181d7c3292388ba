"""Tools: what the model sees of them, what they demand, and how they run."""

from __future__ import annotations

import asyncio
import functools
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from agent_world import World, asked, error_in, told

import assent
from assent.agent import intake
from assent.agent.tool import Tool
from assent.audit import verify
from assent.rows import CallStatus
from assent.testing import FakeClock
from assent.testing.scripted_model import call, calls, say

# -- what the model sees


def test_the_schema_comes_from_signature_types_and_docstring() -> None:
    @assent.tool
    def book(city: str, class_: Literal["eco", "first"] = "eco", bags: int | None = None) -> str:
        """Book a flight.

        Args:
            city: Where to.
            class_: How to sit.
        """
        return city

    face = book.face
    assert (face.name, face.description, face.strict) == ("book", "Book a flight.", True)
    parameters = face.parameters
    assert parameters["additionalProperties"] is False
    assert parameters["required"] == ["city", "class_", "bags"]
    assert parameters["properties"]["city"] == {"type": "string", "description": "Where to."}
    assert {"type": "null"} in parameters["properties"]["class_"]["anyOf"]


@pytest.mark.parametrize("name", ["", "with space", "x" * 65, "ümlaut"])
def test_a_name_that_no_model_takes_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match="cannot name a tool"):
        assent.tool(name=name)(lambda: None)


def test_what_has_no_strict_form_is_refused_at_once_and_may_be_loose() -> None:
    def save(data: dict[str, Any]) -> None:
        """Save."""
        raise AssertionError

    with pytest.raises(assent.InvalidCall, match="open dict"):
        assent.tool(save)
    assert assent.tool(strict=False)(save).face.strict is False


def test_misspelt_and_misplaced_options_are_refused() -> None:
    with pytest.raises(TypeError, match="needs_aproval"):
        assent.tool(needs_aproval=True)(lambda: None)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="wait"):
        assent.tool(wait=3)(lambda: None)


@pytest.mark.parametrize("needs", ["yes", 1, None, ["a"]])
def test_a_rule_that_is_neither_yes_nor_no_nor_callable_is_refused(needs: Any) -> None:
    with pytest.raises(TypeError, match="needs_approval"):
        assent.tool(needs_approval=needs)(lambda: None)


def test_two_tools_of_one_name_are_refused(world: World) -> None:
    with pytest.raises(ValueError, match="two tools"):
        world.agent(tools=[world.pay, world.pay])


def test_calling_a_tool_calls_its_function(world: World) -> None:
    assert world.pay(1, to="bo") == "paid 1 to bo"


def test_a_plain_function_is_a_tool_that_needs_nobody(world: World) -> None:
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    agent = world.agent(call("add", {"a": 1, "b": 2}), say("3"), tools=[add])
    agent.run_sync("add")
    assert told(agent) == ["3"]


# -- reading calls


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ("{nope", "not valid JSON"),
        ("[1]", "must be a JSON object"),
        ('{"amount": "much", "to": null}', "amount: Input should be a valid integer"),
        ('{"amount": 1, "to": null, "now": true}', "now: is unknown"),
        ("{}", "amount: is missing"),
        ('{"amount": NaN, "to": null}', "not a JSON number"),
        ('{"amount": 1, "amount": 2, "to": null}', "stands twice"),
        ('{"amount": 9007199254740993, "to": null}', "loses digits"),
    ],
)
async def test_what_cannot_be_read_is_answered_to_the_model_and_nobody_is_asked(
    world: World, arguments: str, wrong: str
) -> None:
    agent = world.agent(call("pay", arguments), say("Sorry."))
    result = await agent.run("go", thread="t")
    assert (result.status, world.ran) == ("done", [])
    assert wrong in error_in(told(agent)[0])
    assert (await world.inbox.pending()).items == ()


async def test_an_unknown_tool_is_answered_to_the_model(world: World) -> None:
    agent = world.agent(calls(call("rm"), call("look", {"what": "x"})), say("Sorry."))
    result = await agent.run("go", thread="t")
    first, second = told(agent)
    assert error_in(first) == "there is no tool 'rm'; the tools are: look, pay"
    assert (second, result.status) == ('{"found":"x"}', "done")


async def test_defaults_stand_in_the_request(world: World) -> None:
    agent = world.agent(call("pay", {"amount": 3, "to": None}))
    result = await agent.run("go", thread="t")
    assert result.interruptions[0].args == {"amount": 3, "to": "ana"}


async def test_duplicate_ids_in_one_turn_are_two_calls(world: World) -> None:
    twins = calls(
        call("pay", {"amount": 1, "to": None}, id="same"),
        call("pay", {"amount": 2, "to": None}, id="same"),
    )
    agent = world.agent(twins, say("Done."))
    result = await agent.run("go", thread="t")
    first, second = result.interruptions
    result = await agent.resume("t", decisions=[first.approve(), second.reject("no")])
    assert world.ran == [("pay", (1, "ana"))]
    ids = [m["call_id"] for m in asked(agent)[-1].messages if m["role"] == "tool"]
    assert len(set(ids)) == 2


async def test_an_id_that_was_used_before_is_another_call(world: World) -> None:
    same = call("pay", {"amount": 1, "to": None}, id="call_x")
    changed = call("pay", {"amount": 1_000_000, "to": None}, id="call_x")
    agent = world.agent(same, changed, say("Done."))
    result = await agent.run("go", thread="t")
    result = await agent.resume("t", decisions=[result.interruptions[0].approve()])
    # The yes to the first is no yes to the second, whatever the model calls it.
    assert (result.status, world.effects("pay")) == ("paused", [(1, "ana")])


async def test_a_yes_to_one_tool_is_none_to_another_with_the_same_id(world: World) -> None:
    @assent.tool(needs_approval=True)
    def wipe() -> str:
        """Wipe everything."""
        world.ran.append(("wipe", None))
        return "wiped"

    steps = (call("pay", {"amount": 1, "to": None}, id="same"), call("wipe", id="same"))
    agent = world.agent(*steps, tools=[world.pay, wipe])
    result = await agent.run("go", thread="t")
    result = await agent.resume("t", decisions=[result.interruptions[0].approve()])
    assert (result.interruptions[0].tool, world.ran) == ("wipe", [("pay", (1, "ana"))])


async def test_a_call_without_an_id_gets_one(world: World) -> None:
    from assent.agent.models import ModelCall, ModelReply, ModelRequest

    class Nameless:
        name = "nameless"

        async def reply(self, request: ModelRequest) -> ModelReply:
            if any(m["role"] == "tool" for m in request.messages):
                return ModelReply("Done.")
            made = ModelCall("", "look", '{"what":"x"}')
            return ModelReply(calls=(made, made), finish="calls")

        def stream(self, request: ModelRequest) -> Any:
            raise NotImplementedError

    agent = world.agent(model=Nameless())
    assert (await agent.run("go", thread="t")).output == "Done."
    stored = [json.loads(body) for _, body in world.store.messages("t")]
    ids = [c["id"] for m in stored for c in m.get("calls", ())]
    assert len(set(ids)) == 2
    assert "" not in ids


# -- what they demand


async def test_a_predicate_over_the_arguments_decides(world: World) -> None:
    @assent.tool(needs_approval=lambda args: args["table"] in {"users", "payments"})
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


async def test_a_predicate_may_be_async_and_sees_prepared_arguments(world: World) -> None:
    seen: list[Mapping[str, Any]] = []

    async def bulk(args: Mapping[str, Any]) -> bool:
        seen.append(args)
        return len(args["to"]) > 2

    @assent.tool(needs_approval=bulk)
    def mail(to: list[str], subject: str = "Hello") -> str:
        """Mail."""
        return "sent"

    agent = world.agent(call("mail", {"to": ["a"], "subject": None}), say("Done."), tools=[mail])
    assert (await agent.run("go", thread="t")).status == "done"
    assert seen == [{"to": ["a"], "subject": "Hello"}]


async def test_a_predicate_that_raises_asks(world: World) -> None:
    def broken(args: Mapping[str, Any]) -> bool:
        raise KeyError("nope")

    @assent.tool(needs_approval=broken)
    def act() -> None:
        """Act."""
        raise AssertionError

    result = await world.agent(call("act"), tools=[act]).run("go", thread="t")
    assert result.status == "paused"
    assert "KeyError" in result.interruptions[0].risk.reasons[0]


async def test_a_predicate_is_not_asked_again_once_somebody_decided(world: World) -> None:
    asked_for: list[Any] = []

    def rule(args: Mapping[str, Any]) -> bool:
        asked_for.append(args)
        return True

    @assent.tool(needs_approval=rule)
    def act(n: int) -> str:
        """Act."""
        return "acted"

    both = calls(call("act", {"n": 1}), call("act", {"n": 2}))
    agent = world.agent(both, say("Done."), tools=[act])
    result = await agent.run("go", thread="t")
    first, second = result.interruptions
    await agent.resume("t", decisions=[first.approve(), second.reject()])
    assert len(asked_for) == 2


async def test_what_a_tool_declares_stands_in_its_request(slow_world: World) -> None:
    @assent.tool(
        needs_approval=True,
        allowed=("approve", "reject"),
        reviewers=["ana", "group:finance"],
        expires_in=3600,
        risk=assent.Risk("medium", ("money",)),
    )
    def wire(amount: int) -> None:
        """Wire money."""
        slow_world.ran.append(("wire", amount))

    agent = slow_world.agent(call("wire", {"amount": 1}), say("Done."), tools=[wire])
    (request,) = (await agent.run("go", thread="t")).interruptions
    assert request.allowed == ("approve", "reject")
    assert request.reviewers == ("ana", "group:finance")
    assert request.risk == assent.Risk("medium", ("money",))
    assert request.expires_at is not None
    assert (request.expires_at - request.created_at).total_seconds() == 3600
    assert request.description == "Wire money."
    with pytest.raises(assent.InvalidDecision, match="edit"):
        await agent.resume("t", decisions=[request.edit({"amount": 2})], by="ana")
    with pytest.raises(assent.NotAllowed, match="mallory"):
        await agent.resume("t", decisions=[request.approve()], by="mallory")
    result = await agent.resume("t", decisions=[request.approve()], by="ana")
    assert (result.status, slow_world.effects("wire")) == ("done", [1])


async def test_what_the_model_said_is_the_note(world: World) -> None:
    agent = world.agent(call("pay", {"amount": 1, "to": None}, text="She asked for it."))
    (request,) = (await agent.run("go", thread="t")).interruptions
    assert request.note == "She asked for it."


async def test_binds_are_compared_again_at_the_start(world: World) -> None:
    place = {"tenant": "a"}

    @assent.tool(needs_approval=True, binds=lambda: place)
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
    @assent.tool(needs_approval=True, binds=lambda deps: {"tenant": deps})
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

    @assent.tool(needs_approval=True, binds=nowhere)
    def wipe() -> str:
        """Wipe."""
        raise AssertionError

    agent = world.agent(call("wipe"), say("Done."), tools=[wipe])
    assert (await agent.run("go", thread="t")).status == "done"
    assert "no network" in error_in(told(agent)[0])


# -- previews


def _previewed(world: World, preview: Any, **options: Any) -> Tool:
    @assent.tool(needs_approval=True, preview=preview, **options)
    def delete(table: str, limit: int = 5) -> str:
        """Delete."""
        world.ran.append(("delete", (table, limit)))
        return "gone"

    return delete


async def test_a_preview_is_shown_with_its_time(slow_world: World) -> None:
    tool = _previewed(slow_world, lambda table, limit: {"rows": limit, "of": table})
    agent = slow_world.agent(call("delete", {"table": "logs", "limit": None}), tools=[tool])
    (request,) = (await agent.run("go", thread="t")).interruptions
    assert request.preview == {
        "at": "2026-01-01T00:00:00+00:00",
        "revision": 1,
        "shows": {"rows": 5, "of": "logs"},
    }


async def test_a_preview_is_not_made_where_nobody_is_asked(world: World) -> None:
    def never(**args: Any) -> None:
        raise AssertionError

    tool = _previewed(world, never)
    policy = assent.Policy([assent.Rule(tool="delete", verdict="allow")])
    steps = (call("delete", {"table": "logs", "limit": None}), say("Done."))
    agent = world.agent(*steps, tools=[tool], policy=policy)
    assert (await agent.run("go", thread="t")).status == "done"


@pytest.mark.parametrize("kind", ["raises", "hangs", "hangs async", "no JSON"])
async def test_a_preview_is_never_needed(
    world: World, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "PREVIEW_SECONDS", 0.05)
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


async def test_a_preview_is_made_again_after_an_edit(world: World) -> None:
    """With two people: the second one sees what the first one's edit would do."""
    tool = _previewed(world, lambda table, limit: f"{limit} rows of {table}", quorum=2)
    agent = world.agent(call("delete", {"table": "logs", "limit": None}), tools=[tool])
    result = await agent.run("go", thread="t")
    (request,) = result.interruptions
    ana = assent.Reviewer("ana", assurance="token")
    await world.inbox.decide(request.id, request.edit({"limit": 2}), by=ana)
    # The one of the old arguments is gone at once, and the new one there when the agent was.
    assert (await world.inbox.get(request.id)).preview is None
    (request,) = (await agent.resume("t")).interruptions
    assert request.preview["shows"] == "2 rows of logs"
    assert request.preview["revision"] == request.revision == 2
    assert len(request.votes) == 1
    assert verify(world.store).ok


async def test_a_preview_is_made_again_when_it_is_asked_again(
    slow_world: World, clock: FakeClock
) -> None:
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


# -- without a body


@dataclass
class Reading:
    degrees: int
    note: str = ""


async def test_a_tool_without_a_body_takes_a_persons_result(world: World) -> None:
    @assent.tool
    def read_meter(room: str) -> Reading:
        """Read the meter on the wall."""
        ...

    agent = world.agent(call("read_meter", {"room": "attic"}), say("Warm."), tools=[read_meter])
    result = await agent.run("how warm?", thread="t")
    (request,) = result.interruptions
    assert (request.tool, request.args, request.allowed) == (
        "read_meter",
        {"room": "attic"},
        ("reject", "respond"),
    )
    with pytest.raises(assent.InvalidDecision, match="degrees"):
        await agent.resume("t", decisions=[request.respond({"degrees": "warm"})])
    with pytest.raises(assent.InvalidDecision, match="approve"):
        await agent.resume("t", decisions=[request.approve()])
    result = await agent.resume("t", decisions=[request.respond({"degrees": 31})])
    assert (result.output, told(agent)) == ("Warm.", ['{"degrees":31}'])
    with pytest.raises(TypeError, match="no body"):
        read_meter("attic")


def test_a_wrapper_is_a_body() -> None:
    def plain(n: int) -> int: ...

    @functools.wraps(plain)
    def wrapped(n: int) -> int:
        return n + 1

    assert assent.tool(plain).function is None
    assert assent.tool(wrapped)(1) == 2


@pytest.mark.parametrize("verdict", ["allow", "ask"])
async def test_no_policy_makes_a_tool_without_a_body_run(world: World, verdict: Any) -> None:
    @assent.tool
    async def confirm(text: str) -> bool: ...

    policy = assent.Policy([assent.Rule(tool="*", verdict=verdict)])
    agent = world.agent(call("confirm", {"text": "?"}), say("Ok."), tools=[confirm], policy=policy)
    (request,) = (await agent.run("go", thread="t")).interruptions
    assert set(request.allowed) == {"respond", "reject"}
    assert (await agent.resume("t", decisions=[request.respond(True)])).output == "Ok."


# -- running


async def test_sync_tools_run_off_the_loop_and_side_by_side(world: World) -> None:
    main = threading.get_ident()
    meet = threading.Barrier(2, timeout=5)

    @assent.tool
    def work(n: int) -> bool:
        """Work."""
        meet.wait()
        return threading.get_ident() == main

    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.001)
            ticks += 1

    ticking = asyncio.create_task(tick())
    agent = world.agent(calls(call("work", {"n": 1}), call("work", {"n": 2})), say("Done."))
    agent.tools = {"work": work}
    await agent.run("go", thread="t")
    ticking.cancel()
    assert told(agent) == ["false", "false"]
    assert ticks > 0


@pytest.mark.parametrize("error", [ValueError("bad"), StopIteration("end"), TimeoutError("late")])
@pytest.mark.parametrize("colour", ["sync", "async"])
async def test_a_tool_error_is_told_without_a_traceback(
    world: World, error: Exception, colour: str
) -> None:
    def fail() -> None:
        """Fail."""
        raise error

    async def fail_async() -> None:
        """Fail."""
        raise error

    tool = assent.tool(name="fail")(fail if colour == "sync" else fail_async)
    agent = world.agent(call("fail"), say("Sorry."), tools=[tool])
    result = await asyncio.wait_for(agent.run("go", thread="t"), 10)
    assert result.status == "done"
    said = error_in(told(agent)[0])
    assert str(error) in said or "coroutine raised StopIteration" in said


async def test_a_result_that_cannot_be_stored_is_said_to_have_run(world: World) -> None:
    @assent.tool
    def odd():  # type: ignore[no-untyped-def]
        """Give something odd."""
        return object()

    agent = world.agent(call("odd"), say("Sorry."), tools=[odd])
    await agent.run("go", thread="t")
    assert "it ran, but the result" in error_in(told(agent)[0])


async def test_a_failing_call_does_not_disturb_its_siblings(world: World) -> None:
    @assent.tool
    async def fail() -> None:
        """Fail."""
        raise OSError("smoke")

    @assent.tool
    async def slow() -> str:
        """Take a while."""
        await asyncio.sleep(0.05)
        world.ran.append(("slow", None))
        return "slow"

    agent = world.agent(calls(call("fail"), call("slow")), say("Done."), tools=[fail, slow])
    await agent.run("go", thread="t")
    assert told(agent)[1] == "slow"


async def test_a_pause_never_cancels_a_sibling_in_mid_effect(world: World) -> None:
    @assent.tool
    async def asks(ctx: assent.Context) -> str:
        """Ask at once."""
        return str(await ctx.ask("Why?"))

    @assent.tool
    async def slow() -> str:
        """Take a while."""
        await asyncio.sleep(0.05)
        world.ran.append(("slow", None))
        return "slow"

    agent = world.agent(calls(call("asks"), call("slow")), say("Done."), tools=[asks, slow])
    result = await agent.run("go", thread="t")
    assert (result.status, world.ran) == ("paused", [("slow", None)])
    await agent.resume("t", decisions=[result.interruptions[0].respond("because")])
    assert (told(agent), world.ran) == (["because", "slow"], [("slow", None)])


async def cut_short(agent: assent.Agent, started: threading.Event) -> None:
    """Cancel a run as soon as its tool has started."""
    task = asyncio.create_task(agent.run("go", thread="t"))
    while not started.is_set():
        await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("colour", ["sync", "async"])
async def test_cancellation_after_the_start_is_in_doubt(world: World, colour: str) -> None:
    started = threading.Event()
    end = threading.Event()

    def slow() -> str:
        """Take a while."""
        started.set()
        end.wait(5)
        return "done"

    async def slow_async() -> str:
        """Take a while."""
        started.set()
        await asyncio.sleep(60)
        return "done"

    tool = assent.tool(name="slow")(slow if colour == "sync" else slow_async)
    agent = world.agent(call("slow"), say("Done."), tools=[tool])
    await cut_short(agent, started)
    end.set()
    result = await agent.resume("t")
    (request,) = result.interruptions
    assert (result.status, request.kind) == ("paused", "in_doubt")
    result = await agent.resume("t", decisions=[request.respond("it did")], by="ana")
    assert (result.status, told(agent)) == ("done", ["it did"])


async def test_a_doubt_may_be_given_up(world: World) -> None:
    started = threading.Event()

    @assent.tool
    async def slow() -> str:
        """Take a while."""
        started.set()
        await asyncio.sleep(60)
        return "done"

    agent = world.agent(call("slow"), say("Sorry."), tools=[slow])
    await cut_short(agent, started)
    result = await agent.resume("t")
    result = await agent.resume("t", decisions=[result.interruptions[0].reject("lost")])
    assert "nobody knows whether it took effect" in error_in(told(agent)[0])


async def test_an_idempotent_tool_that_was_cut_short_runs_again_with_the_same_key(
    world: World,
) -> None:
    keys: list[tuple[str, int]] = []
    started = threading.Event()

    @assent.tool(idempotent=True)
    async def sync_up(ctx: assent.Context) -> str:
        """Sync."""
        keys.append((ctx.key, ctx.attempt))
        started.set()
        if ctx.attempt == 1:
            await asyncio.sleep(60)
        return "synced"

    agent = world.agent(call("sync_up"), say("Done."), tools=[sync_up])
    await cut_short(agent, started)
    result = await agent.resume("t")
    assert (result.status, told(agent)) == ("done", ["synced"])
    assert [attempt for _, attempt in keys] == [1, 2]
    assert len({key for key, _ in keys}) == 1


async def test_a_lease_that_lapsed_before_the_effect_is_a_doubt(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = world.agent(call("look", {"what": "x"}))
    monkeypatch.setattr("assent.agent.hold.Hold.lapsed", property(lambda self: True))
    result = await agent.run("go", thread="t")
    assert (world.ran, [r.kind for r in result.interruptions]) == ([], ["in_doubt"])


# -- the context


async def test_the_context_tells_of_the_call(world: World) -> None:
    seen: list[assent.Context] = []

    @assent.tool(needs_approval=True)
    async def act(ctx: assent.Context, n: int) -> str:
        """Act."""
        seen.append(ctx)
        return "acted"

    assert "ctx" not in act.face.parameters["properties"]
    agent = world.agent(call("act", {"n": 1}), say("Done."), tools=[act])
    result = await agent.run("go", thread="t", requester="ana")
    (request,) = result.interruptions
    yes = request.edit({"n": 2})
    await agent.resume("t", decisions=[yes], by="bea", deps={"db": 1})
    (ctx,) = seen
    assert (ctx.run, ctx.thread, ctx.call_id, ctx.attempt) == (result.run, "t", request.id, 1)
    assert (ctx.key, ctx.requester, ctx.deps) == (request.id, "ana", {"db": 1})
    assert ctx.decision is not None
    assert (ctx.decision.by, ctx.edited_from) == ("bea", {"n": 1})
    assert [m["role"] for m in ctx.messages] == ["user", "assistant"]
    with pytest.raises(TypeError):
        ctx.messages[0]["content"] = "something else"  # type: ignore[index]


def test_a_class_of_that_name_which_is_not_ours_is_the_models() -> None:
    @dataclass
    class Context:
        room: str

    def look(where: Context) -> str:
        """Look."""
        return where.room

    assert list(assent.tool(look).face.parameters["properties"]) == ["where"]


def test_a_bare_ctx_is_ours() -> None:
    def look(ctx, what: str) -> str:  # type: ignore[no-untyped-def]
        """Look."""
        return what

    assert list(assent.tool(look).face.parameters["properties"]) == ["what"]


async def test_a_sync_tool_asks_with_the_sync_twins(world: World) -> None:
    @assent.tool
    def order(ctx: assent.Context) -> str:
        """Order."""
        size = ctx.ask_sync(assent.Question("Size?", options=("S", "L")))
        sure = ctx.approve_sync("Sure?", {"size": size})
        number = ctx.once_sync("number", lambda: world.ran.append(("number", 1)) or 7)
        return f"{size} {sure} {number}"

    agent = world.agent(call("order"), say("Done."), tools=[order])
    result = await agent.run("go", thread="t")
    result = await agent.resume("t", decisions=[result.interruptions[0].respond("L")])
    result = await agent.resume("t", decisions=[result.interruptions[0].approve()])
    assert (result.status, told(agent), world.ran) == ("done", ["L True 7"], [("number", 1)])


async def test_a_long_start_is_not_hidden_from_the_clock(world: World) -> None:
    """A tool that takes longer than its lease keeps it: heartbeats run in a thread of their own."""

    @assent.tool
    def slow() -> str:
        """Take a while."""
        time.sleep(1.5)
        return "slow"

    agent = world.agent(call("slow"), say("Done."), tools=[slow], lease=1.0)
    assert (await agent.run("go", thread="t")).status == "done"
    (found,) = [c for c in world.store.calls_of(world.store.last_run("t").id)]  # type: ignore[union-attr]
    assert (found.status, found.attempt) == (CallStatus.DONE, 1)
