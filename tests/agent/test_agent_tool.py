"""Tools: what the model sees, how its calls are parsed, and the context of a call."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from agent_world import World, asked, error_in, tool_results

import sayso
from sayso.testing.scripted_model import call, calls, say

# -- what the model sees


def test_schema_comes_from_signature_types_and_docstring() -> None:
    @sayso.tool
    def book(city: str, class_: Literal["eco", "first"] = "eco", bags: int | None = None) -> str:
        """Book a flight.

        Args:
            city: Where to.
            class_: How to sit.
        """
        return city

    face = book.spec
    assert (face.name, face.description, face.strict) == ("book", "Book a flight.", True)
    parameters = face.parameters
    assert parameters["additionalProperties"] is False
    assert parameters["required"] == ["city", "class_", "bags"]
    assert parameters["properties"]["city"] == {"type": "string", "description": "Where to."}
    assert {"type": "null"} in parameters["properties"]["class_"]["anyOf"]


@pytest.mark.parametrize("name", ["", "with space", "x" * 65, "ümlaut"])
def test_invalid_tool_name_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match="is not a valid tool name"):
        sayso.tool(name=name)(lambda: None)


def test_tool_cannot_be_wrapped_again() -> None:
    @sayso.tool(needs_approval=True)
    def book(city: str) -> str:
        return city

    gate = sayso.Gate()
    for wrap in (gate.guard, gate.guard(needs_approval=True), gate.guard(name="b"), sayso.tool):
        with pytest.raises(TypeError, match=r"book is a sayso.tool, .* use .* book\.function"):
            wrap(book)
    assert gate.guard(needs_approval=False)(book.function)("Rome") == "Rome"
    gate.close()


def test_tool_without_strict_form_is_refused() -> None:
    def save(data: dict[str, Any]) -> None:
        """Save."""
        raise AssertionError

    with pytest.raises(sayso.InvalidCall, match="open dict"):
        sayso.tool(save)
    assert sayso.tool(strict=False)(save).spec.strict is False


def test_misspelt_and_misplaced_options_are_refused() -> None:
    with pytest.raises(TypeError, match="needs_aproval"):
        sayso.tool(needs_aproval=True)(lambda: None)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="wait"):
        sayso.tool(wait=3)(lambda: None)


@pytest.mark.parametrize("needs", ["yes", 1, None, ["a"]])
def test_invalid_needs_approval_is_refused(needs: Any) -> None:
    with pytest.raises(TypeError, match="needs_approval"):
        sayso.tool(needs_approval=needs)(lambda: None)


def test_two_tools_of_one_name_are_refused(world: World) -> None:
    with pytest.raises(ValueError, match="two tools"):
        world.agent(tools=[world.pay, world.pay])


@pytest.mark.parametrize("tools", [5, "pay", sayso.ask_user])
def test_tools_are_a_list(world: World, tools: Any) -> None:
    with pytest.raises(TypeError, match="pass a list of tools"):
        world.agent(tools=tools)


def test_calling_a_tool_calls_its_function(world: World) -> None:
    assert world.pay(1, to="bo") == "paid 1 to bo"


def test_plain_function_is_a_tool_without_approval(world: World) -> None:
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    agent = world.agent(call("add", {"a": 1, "b": 2}), say("3"), tools=[add])
    agent.run_sync("add")
    assert tool_results(agent) == ["3"]


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
        ('{"amount": 1, "amount": 2, "to": null}', "appears twice"),
        ('{"amount": 9007199254740993, "to": null}', "loses digits"),
    ],
)
async def test_unreadable_calls_are_errors_for_the_model_only(
    world: World, arguments: str, wrong: str
) -> None:
    agent = world.agent(call("pay", arguments), say("Sorry."))
    result = await agent.run("go", thread="t")
    assert (result.status, world.ran) == ("done", [])
    assert wrong in error_in(tool_results(agent)[0])
    assert (await world.inbox.pending()).items == ()


async def test_unknown_tool_is_answered_to_the_model(world: World) -> None:
    agent = world.agent(calls(call("rm"), call("look", {"what": "x"})), say("Sorry."))
    result = await agent.run("go", thread="t")
    first, second = tool_results(agent)
    assert error_in(first) == "there is no tool 'rm'; the tools are: look, pay"
    assert (second, result.status) == ('{"found":"x"}', "done")


async def test_request_includes_defaults(world: World) -> None:
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


async def test_reused_id_is_another_call(world: World) -> None:
    same = call("pay", {"amount": 1, "to": None}, id="call_x")
    changed = call("pay", {"amount": 1_000_000, "to": None}, id="call_x")
    agent = world.agent(same, changed, say("Done."))
    result = await agent.run("go", thread="t")
    result = await agent.resume("t", decisions=[result.interruptions[0].approve()])
    # The yes to the first is no yes to the second, whatever the model calls it.
    assert (result.status, world.effects("pay")) == ("paused", [(1, "ana")])


async def test_approval_does_not_cover_other_tool(
    world: World,
) -> None:
    @sayso.tool(needs_approval=True)
    def wipe() -> str:
        """Wipe everything."""
        world.ran.append(("wipe", None))
        return "wiped"

    steps = (call("pay", {"amount": 1, "to": None}, id="same"), call("wipe", id="same"))
    agent = world.agent(*steps, tools=[world.pay, wipe])
    result = await agent.run("go", thread="t")
    result = await agent.resume("t", decisions=[result.interruptions[0].approve()])
    assert (result.interruptions[0].tool, world.ran) == ("wipe", [("pay", (1, "ana"))])


async def test_call_without_an_id_gets_one(world: World) -> None:
    from sayso.agent.models import ModelCall, ModelReply, ModelRequest

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


# -- without a body


@dataclass
class Reading:
    degrees: int
    note: str = ""


async def test_tool_without_body_takes_a_response(world: World) -> None:
    @sayso.tool
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
    with pytest.raises(sayso.InvalidDecision, match="degrees"):
        await agent.resume("t", decisions=[request.respond({"degrees": "warm"})])
    with pytest.raises(sayso.InvalidDecision, match="approve"):
        await agent.resume("t", decisions=[request.approve()])
    result = await agent.resume("t", decisions=[request.respond({"degrees": 31})])
    assert (result.output, tool_results(agent)) == ("Warm.", ['{"degrees":31}'])
    with pytest.raises(TypeError, match="no body"):
        read_meter("attic")


def test_wrapper_counts_as_body() -> None:
    def plain(n: int) -> int: ...

    @functools.wraps(plain)
    def wrapped(n: int) -> int:
        return n + 1

    assert sayso.tool(plain).function is None
    assert sayso.tool(wrapped)(1) == 2


@pytest.mark.parametrize("verdict", ["allow", "ask"])
async def test_policy_cannot_run_tool_without_body(world: World, verdict: Any) -> None:
    @sayso.tool
    async def confirm(text: str) -> bool: ...

    policy = sayso.Policy([sayso.Rule(tool="*", verdict=verdict)])
    agent = world.agent(call("confirm", {"text": "?"}), say("Ok."), tools=[confirm], policy=policy)
    (request,) = (await agent.run("go", thread="t")).interruptions
    assert set(request.allowed) == {"respond", "reject"}
    assert (await agent.resume("t", decisions=[request.respond(True)])).output == "Ok."


# -- the context


async def test_context_describes_the_call(world: World) -> None:
    seen: list[sayso.Context] = []

    @sayso.tool(needs_approval=True)
    async def act(ctx: sayso.Context, n: int) -> str:
        """Act."""
        seen.append(ctx)
        return "acted"

    assert "ctx" not in act.spec.parameters["properties"]
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


def test_foreign_context_class_is_an_argument() -> None:
    @dataclass
    class Context:
        room: str

    def look(where: Context) -> str:
        """Look."""
        return where.room

    assert list(sayso.tool(look).spec.parameters["properties"]) == ["where"]


def test_untyped_ctx_is_the_context() -> None:
    def look(ctx, what: str) -> str:  # type: ignore[no-untyped-def]
        """Look."""
        return what

    assert list(sayso.tool(look).spec.parameters["properties"]) == ["what"]


async def test_sync_tool_uses_sync_methods(world: World) -> None:
    @sayso.tool
    def order(ctx: sayso.Context) -> str:
        """Order."""
        size = ctx.ask_sync(sayso.Question("Size?", options=("S", "L")))
        sure = ctx.confirm_sync("Sure?", {"size": size})
        number = ctx.once_sync("number", lambda: world.ran.append(("number", 1)) or 7)
        return f"{size} {sure} {number}"

    agent = world.agent(call("order"), say("Done."), tools=[order])
    result = await agent.run("go", thread="t")
    result = await agent.resume("t", decisions=[result.interruptions[0].respond("L")])
    result = await agent.resume("t", decisions=[result.interruptions[0].approve()])
    assert (result.status, tool_results(agent), world.ran) == (
        "done",
        ["L True 7"],
        [("number", 1)],
    )
