"""``guard`` on agents of the Agent Framework: all that the adapter suite does not cover."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest
from agent_framework import (
    AgentResponse,
    BaseAgent,
    Content,
    ContextProvider,
    FunctionInvocationContext,
    FunctionMiddleware,
    FunctionTool,
    HistoryProvider,
    Message,
    UserInputRequiredException,
    tool,
)
from agent_framework_world import World, call
from pydantic import BaseModel, field_validator
from store_world import pay_of
from waiting import until_async

from sayso import Policy, Rule
from sayso.adapters.agent_framework import guard
from sayso.agent.agent import Resumable
from sayso.errors import SaysoError
from sayso.worker import Worker

ASK = Policy([Rule("pay")])


def paying(world: World, *turns: Any, policy: Policy | None = ASK, **options: Any) -> Any:
    script = turns or ([call("pay", to="ana")], "Done.")
    return guard(world.agent(*script, tools=[pay_of(world)], **options), world.gate, policy)


# -- what is asked about


async def test_tool_requiring_approval_asks_without_policy(world: World) -> None:
    pay = tool(pay_of(world), approval_mode="always_require")

    def look() -> str:
        return "seen"

    calls = [call("pay", to="ana"), call("look", "c2")]
    agent = world.agent(calls, "Done.", tools=[pay, look])
    assert (await guard(agent, world.gate).run("go", thread="t")).status == "paused"
    assert (await world.waits()).tool == "pay"
    await world.decide(lambda request: request.edit({"to": "bob"}))
    assert (await guard(agent, world.gate).resume("t")).status == "done"
    assert world.ran == [("bob", 1)]
    assert world.results["c2"] == "seen"
    assert pay.approval_mode == "always_require"  # the tool itself is left as it was
    assert pay.invocation_count == 1


async def test_rule_overrides_approval_mode(world: World) -> None:
    agent = world.agent(
        [call("pay", to="ana")],
        "Done.",
        tools=[tool(pay_of(world), approval_mode="always_require")],
    )
    free = Policy([Rule("pay", verdict="allow")])
    assert (await guard(agent, world.gate, free).run("go", thread="t")).status == "done"
    assert world.ran == [("ana", 1)]


@pytest.mark.parametrize("verdict", ["ask", "allow"])
async def test_tool_without_body_is_a_question(world: World, verdict: str) -> None:
    schema = {"type": "object", "properties": {"what": {"type": "string"}}}
    where = FunctionTool(name="where", description="Ask the user.", input_model=schema)
    agent = world.agent([call("where", what="size")], "Done.", tools=[where, pay_of(world)])
    guarded = guard(agent, world.gate, Policy([Rule("where", verdict=verdict)]))
    assert (await guarded.run("go", thread="t")).status == "paused"
    assert set((await world.waits()).allowed) == {"respond", "reject"}
    await world.decide(lambda request: request.respond({"city": "Oslo"}))
    assert (await guarded.resume("t")).status == "done"
    assert "Oslo" in world.results["c1"]


async def test_input_requested_in_body_is_a_question(world: World) -> None:
    def pay(to: str) -> str:
        world.ran.append(to)
        raise UserInputRequiredException([Content.from_text("Which account?")], "which account?")

    agent = world.agent([call("pay", to="ana")], "Done.", tools=[pay])
    assert (await guard(agent, world.gate).run("go", thread="t")).status == "paused"
    assert set((await world.waits()).allowed) == {"respond", "reject"}
    await world.decide(lambda request: request.respond("the joint one"))
    assert (await guard(agent, world.gate).resume("t")).status == "done"
    assert (world.ran, world.results["c1"]) == (["ana"], "the joint one")


async def test_people_see_arguments_changed_by_middleware(world: World) -> None:
    class Rewrites(FunctionMiddleware):
        async def process(self, context: FunctionInvocationContext, call_next: Any) -> None:
            context.arguments = {**dict(context.arguments), "to": "ana@example.com"}
            await call_next()

    guarded = paying(world, middleware=[Rewrites()])
    await guarded.run("go", thread="t")
    assert (await world.waits()).args == {"to": "ana@example.com", "amount": 1}
    await world.decide(lambda request: request.approve())
    await paying(world, middleware=[Rewrites()]).resume("t")
    assert world.ran == [("ana@example.com", 1)]


async def test_repeated_call_id_asks_again(world: World) -> None:
    same = [call("pay", "c1", to="ana")], [call("pay", "c1", to="bob")]
    guarded = paying(world, *same, "Done.")
    for to in ("ana", "bob"):
        result = await (guarded.run("go", thread="t") if to == "ana" else guarded.resume("t"))
        assert result.status == "paused"
        assert (await world.waits()).args["to"] == to
        await world.decide(lambda request: request.approve())
    assert (await guarded.resume("t")).status == "done"
    assert world.ran == [("ana", 1), ("bob", 1)]


class Payment(BaseModel):
    to: str

    @field_validator("to")
    @classmethod
    def known(cls, to: str) -> str:
        if to == "eve":
            raise ValueError("eve has no account")
        return to


async def test_edit_refused_by_function_is_asked_again(world: World) -> None:
    pay = FunctionTool(name="pay", func=lambda to: world.ran.append(to), input_model=Payment)
    agent = world.agent([call("pay", to="ana")], "Done.", tools=[pay])
    await guard(agent, world.gate, ASK).run("go", thread="t")
    await world.decide(lambda request: request.edit({"to": "eve"}))
    result = await guard(agent, world.gate, ASK).resume("t")
    assert (result.status, world.ran, len(world.shown)) == ("paused", [], 1)
    await world.decide(lambda request: request.edit({"to": "bob"}))
    assert (await guard(agent, world.gate, ASK).resume("t")).status == "done"
    assert world.ran == ["bob"]


# -- what is kept


async def test_history_contains_no_approval_messages(world: World) -> None:
    await paying(world).run("go", thread="t")
    await world.decide(lambda request: request.reject("not her"))
    assert (await paying(world).resume("t")).status == "done"
    assert world.kinds == {"text", "function_call", "function_result"}
    assert "not her" in world.results["c1"]
    rows = [json.loads(body) for _, body in world.store.messages("t")]
    assert [row["role"] for row in rows] == ["user", "assistant", "tool", "assistant"]
    assert "approval" not in json.dumps(rows)


async def test_run_arguments_survive_a_resume(world: World) -> None:
    def pay(to: str, ctx: FunctionInvocationContext) -> str:
        world.ran.append((ctx.kwargs["tenant"], ctx.kwargs["bank"]))
        return "paid"

    def guarded() -> Any:
        agent = world.agent([call("pay", to="ana")], "Done.", tools=[pay])
        return guard(agent, world.gate, ASK, function_invocation_kwargs={"bank": "north"})

    await guarded().run("go", thread="t", arguments={"tenant": "acme"})
    await world.decide(lambda request: request.approve())
    assert (await guarded().resume("t")).status == "done"
    assert world.ran == [("acme", "north")]


async def test_session_state_survives_a_resume(world: World) -> None:
    class Counts(ContextProvider):
        async def before_run(self, *, agent: Any, session: Any, context: Any, state: Any) -> None:
            state["runs"] = state.get("runs", 0) + 1
            context.extend_instructions(self.source_id, f"run {state['runs']}")

    def note(ctx: FunctionInvocationContext) -> str:
        assert ctx.session is not None
        ctx.session.state["noted"] = True
        return "noted"

    def pay(to: str, ctx: FunctionInvocationContext) -> str:
        assert ctx.session is not None
        world.ran.append((ctx.session.session_id, ctx.session.state.get("noted")))
        return "paid"

    def guarded() -> Any:
        calls = [call("note", "c1"), call("pay", "c2", to="ana")]
        agent = world.agent(calls, "Done.", tools=[note, pay], context_providers=[Counts("n")])
        return guard(agent, world.gate, ASK)

    await guarded().run("go", thread="t")
    await world.decide(lambda request: request.approve())
    assert (await guarded().resume("t")).status == "done"
    assert world.ran == [("t", True)]
    run = world.store.last_run("t")
    assert run is not None
    assert json.loads(run.snapshot or "")["session"]["state"]["n"] == {"runs": 2}


async def test_new_input_supersedes_pending_call(world: World) -> None:
    turns = [call("pay", to="ana")], "Never mind.", "Still here."
    await paying(world, *turns).run("pay ana", thread="t")
    first = await world.waits()
    result = await paying(world, *turns).run("forget it", thread="t")
    assert (result.status, result.output) == ("done", "Never mind.")
    assert (await world.inbox.get(first.id)).status == "superseded"
    assert world.prompts == ["pay ana", "forget it"]
    assert "wrote something new" in world.results["c1"]
    result = await paying(world, *turns).run("and now?", thread="t")
    assert (result.output, world.ran) == ("Still here.", [])
    assert world.prompts == ["pay ana", "forget it", "and now?"]


async def test_threads_resume_in_any_order(world: World) -> None:
    def guarded(name: str) -> Any:
        calls = [call("pay", "c1", to=name), call("pay", "c2", to=name, amount=2)]
        return paying(world, calls, f"{name} is paid.")

    names = ["ana", "bob", "cy"]
    for name in names:
        assert (await guarded(name).run("go", thread=name)).status == "paused"
    waiting = (await world.inbox.pending()).items
    assert len(waiting) == 6
    for request in reversed(waiting):
        await world.inbox.decide(request.id, request.approve(), by="ana")
    ended = await asyncio.gather(*(guarded(name).resume(name) for name in names))
    assert [result.output for result in ended] == [f"{name} is paid." for name in names]
    assert sorted(world.ran) == sorted((name, n) for name in names for n in (1, 2))


async def test_model_failure_keeps_stored_result(world: World) -> None:
    await paying(world).run("go", thread="t")
    await world.decide(lambda request: request.approve())
    with pytest.raises(IndexError):
        await paying(world, [call("pay", to="ana")]).resume("t")  # has no second reply
    assert (await paying(world).resume("t")).output == "Done."
    assert (world.ran, world.results["c1"]) == ([("ana", 1)], "paid 1 to ana")


async def test_failed_model_gets_same_input_again(world: World) -> None:
    words = Message(
        "user",
        ["What is this?", Content.from_uri("https://example.com/a.png", media_type="image/png")],
    )
    with pytest.raises(IndexError):
        await guard(world.agent(), world.gate).run(words, thread="t")
    assert (await guard(world.agent("A picture."), world.gate).resume("t")).output == "A picture."
    assert world.kinds == {"text", "uri"}


def test_custom_history_provider_is_refused(world: World) -> None:
    class Elsewhere(HistoryProvider):
        async def get_messages(self, session_id: str | None, **more: Any) -> list[Message]:
            return []

        async def save_messages(self, session_id: str | None, messages: Any, **more: Any) -> None:
            return None

    agent = world.agent("Hello.", context_providers=[Elsewhere("elsewhere")])
    with pytest.raises(SaysoError, match="remove the provider"):
        guard(agent, world.gate)


# -- results


class Receipt(BaseModel):
    to: str
    amount: int


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Receipt(to="ana", amount=1), '{"to": "ana", "amount": 1}'),
        ({"contents": [1]}, '{"contents": [1]}'),
        ([Content.from_text("a"), Content.from_text("b")], "a\nb"),
        (7, "7"),
    ],
    ids=["a model", "a look-alike", "contents", "a number"],
)
async def test_stored_result_equals_live_result(world: World, value: Any, said: str) -> None:
    def pay() -> Any:
        world.ran.append(value)
        return value

    agent = world.agent([call("pay")], "Done.", tools=[pay])
    await guard(agent, world.gate, ASK).run("go", thread="t")
    await world.decide(lambda request: request.approve())
    away = world.agent([call("pay")], tools=[pay])  # has no second reply
    with pytest.raises(IndexError):
        await guard(away, world.gate, ASK).resume("t")
    live = world.results["c1"]
    assert (await guard(agent, world.gate, ASK).resume("t")).status == "done"
    assert (world.results["c1"], world.ran) == (live, [value])
    assert live == said


async def test_failed_function_hides_error_details(world: World) -> None:
    def pay(to: str) -> str:
        world.ran.append(to)
        raise RuntimeError("secret address of the bank")

    agent = world.agent([call("pay", to="ana")], "Done.", tools=[pay])
    await guard(agent, world.gate, ASK).run("go", thread="t")
    await world.decide(lambda request: request.approve())
    with pytest.raises(IndexError):
        await guard(world.agent([call("pay", to="ana")], tools=[pay]), world.gate, ASK).resume("t")
    live = world.results["c1"]
    assert (await guard(agent, world.gate, ASK).resume("t")).status == "done"
    assert (world.results["c1"], world.ran) == (live, ["ana"])
    assert "secret" not in live


async def test_typed_answer_survives_a_resume(world: World) -> None:
    agent = world.agent(
        [call("pay", to="ana")], '{"to": "ana", "amount": 1}', tools=[pay_of(world)]
    )
    guarded = guard(agent, world.gate, ASK, options={"response_format": Receipt})
    await guarded.run("go", thread="t")
    await world.decide(lambda request: request.approve())
    assert (await guarded.resume("t")).output == Receipt(to="ana", amount=1)


# -- agents of one's own, workers


class Publisher(BaseAgent):
    """An agent without a model: its steps are its own, and one of them needs a yes."""

    def __init__(self, world: World) -> None:
        super().__init__(name="publisher")
        self.world = world

    async def run(self, messages: Any = None, *, session: Any = None, **kwargs: Any) -> Any:
        gate, ran = self.world.gate, self.world.ran
        text = messages[0].text
        await gate.once("draft", ran.append, f"draft of {text}")
        session.state["drafts"] = session.state.get("drafts", 0) + 1
        yes = await gate.confirm("Publish it?", details={"text": text})
        if yes:
            await gate.once("publish", ran.append, f"published {text}")
        said = "published" if yes else "kept back"
        return AgentResponse(messages=[Message("assistant", [said])])


async def test_custom_agent_pauses_and_resumes(world: World) -> None:
    assert (await guard(Publisher(world), world.gate).run("notes", thread="t")).status == "paused"
    assert (await world.waits()).args["details"] == {"text": "notes"}
    assert (await guard(Publisher(world), world.gate).resume("t")).status == "paused"
    await world.decide(lambda request: request.approve())
    assert (await guard(Publisher(world), world.gate).resume("t")).output == "published"
    assert world.ran == ["draft of notes", "published notes"]
    # The same words again are another turn, and ask again.
    assert (await guard(Publisher(world), world.gate).run("notes", thread="t")).status == "paused"
    await world.decide(lambda request: request.reject("once is enough"))
    assert (await guard(Publisher(world), world.gate).resume("t")).output == "kept back"
    assert world.ran == ["draft of notes", "published notes", "draft of notes"]


async def ended(guarded: Any) -> bool:
    return bool((await guarded.resume("t")).status == "done")


async def test_worker_resumes_guarded_agent(world: World) -> None:
    guarded = paying(world)
    assert isinstance(guarded, Resumable)
    await guarded.run("go", thread="t")
    worker = Worker([paying(world)], world.store)
    working = asyncio.create_task(worker.run())
    await world.decide(lambda request: request.approve())
    await until_async(lambda: ended(guarded))
    worker.stop()
    await working
    assert world.ran == [("ana", 1)]


def test_missing_framework_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['agent_framework'] = None; import sayso.adapters.agent_framework"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert 'pip install "sayso[agent-framework]"' in done.stderr
