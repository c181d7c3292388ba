"""``guard`` on agents of pydantic-ai: all that the adapter suite does not cover."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, RunContext
from pydantic_ai.exceptions import ModelRetry
from pydantic_ai.messages import BinaryContent, ToolReturn
from pydantic_ai.tools import (
    DeferredToolRequests,
    DeferredToolResults,
    Tool,
    ToolApproved,
    ToolDenied,
)
from pydantic_ai_world import World, call
from store_world import pay_of
from waiting import until_async

from sayso import Policy, Rule
from sayso.adapters.pydantic_ai import guard, resume
from sayso.agent.agent import Resumable
from sayso.errors import AlreadyDecided, InvalidDecision, StoreError
from sayso.worker import Worker

POLICY = Policy([Rule("pay")])


def pair(world: World, policy: Policy | None = None) -> Any:
    """An agent that makes two gated calls in one turn."""
    calls = [call("pay", "c1", to="ana"), call("pay", "c2", to="bob")]
    return guard(world.agent(calls, "Done.", tools=[pay_of(world)]), world.gate, policy)


# -- the framework's own answers


async def test_partial_answers_run_their_calls(world: World) -> None:
    assert (await pair(world).run("go", thread="t")).status == "paused"
    result = await resume(pair(world), "t", DeferredToolResults(approvals={"c2": True}), by="ana")
    assert (result.status, len(result.interruptions), world.ran) == ("paused", 1, [("bob", 1)])
    no = DeferredToolResults(approvals={"c1": ToolDenied("she left")})
    result = await resume(pair(world), "t", no, by="bob")
    assert (result.status, result.output) == ("done", "Done.")
    assert world.ran == [("bob", 1)]
    assert world.returns["c1"].outcome == "denied"
    assert "she left" in world.returns["c1"].content
    assert world.returns["c2"].content == "paid 1 to bob"
    decided = (await world.inbox.history()).items
    assert {request.decision.by for request in decided} == {"ana", "bob"}
    assert {request.decision.channel for request in decided} == {"pydantic-ai"}


async def test_override_args_are_an_edit(world: World) -> None:
    agent = world.agent([call("pay", to="ana", amount=7)], "Done.", tools=[pay_of(world)])
    await guard(agent, world.gate).run("go", thread="t")
    results = DeferredToolResults(approvals={"c1": ToolApproved(override_args={"to": "bob"})})
    assert (await resume(guard(agent, world.gate), "t", results)).status == "done"
    assert world.ran == [("bob", 1)]  # all of the arguments were replaced, and defaults filled in
    told = world.returns["c1"].content
    assert "paid 1 to bob" in told
    assert '"amount":7' in told
    assert '"to":"bob"' in told


async def test_result_for_call_is_a_decision(world: World) -> None:
    await pair(world).run("go", thread="t")
    given = DeferredToolResults(calls={"c1": "paid in cash", "c2": ModelRetry("ask again later")})
    assert (await resume(pair(world), "t", given)).status == "done"
    assert world.ran == []
    assert world.returns["c1"].content == "paid in cash"
    assert "ask again later" in world.returns["c2"].content
    statuses = {r.args["to"]: r.status for r in (await world.inbox.history()).items}
    assert statuses == {"ana": "responded", "bob": "rejected"}


WRONG: dict[str, Any] = {
    "an unknown call": {"approvals": {"c1": True, "c9": True}},
    "no yes and no no": {"approvals": {"c1": True, "c2": "yes"}},
    "a number": {"approvals": {"c1": True, "c2": 1}},
    "an edit of a wrong type": {
        "approvals": {"c1": True, "c2": ToolApproved(override_args={"to": 5})}
    },
    "an edit without what is needed": {
        "approvals": {"c2": ToolApproved(override_args={"amount": 5})}
    },
    "an edit with too much": {"approvals": {"c2": ToolApproved(override_args={"to": "x", "y": 1})}},
    "a forged result": {"approvals": {"c1": True}, "calls": {"c2": "forged"}},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
async def test_wrong_answers_decide_nothing(world: World, wrong: dict[str, Any]) -> None:
    strict = Policy([Rule("pay", allowed=["approve", "edit", "reject"])])
    await pair(world, strict).run("go", thread="t")
    with pytest.raises(InvalidDecision):
        await resume(pair(world, strict), "t", DeferredToolResults(**wrong))
    assert (world.ran, len((await world.inbox.pending()).items)) == ([], 2)
    yes = DeferredToolResults(approvals={"c1": True, "c2": True})
    assert (await resume(pair(world, strict), "t", yes)).status == "done"


async def test_decided_request_refuses_second_answer(world: World) -> None:
    await pair(world).run("go", thread="t")
    first = next(r for r in (await world.inbox.pending()).items if r.args["to"] == "ana")
    await world.inbox.decide(first.id, first.reject("no"), by="ana")
    with pytest.raises(AlreadyDecided, match="ana"):
        await resume(pair(world), "t", DeferredToolResults(approvals={"c1": True}), by="bob")
    assert world.ran == []


async def test_edit_refused_by_validator_is_asked_again(world: World) -> None:
    def known(ctx: RunContext[Any], to: str, amount: int = 1) -> None:
        if to == "eve":
            raise ModelRetry("eve has no account")

    pay = Tool(pay_of(world), args_validator=known)
    agent = world.agent([call("pay", to="ana")], "Done.", tools=[pay])
    await guard(agent, world.gate).run("go", thread="t")
    await world.decide(lambda request: request.edit({"to": "eve"}))
    result = await guard(agent, world.gate).resume("t")
    assert (result.status, world.ran, len(world.shown)) == ("paused", [], 1)
    request = await world.waits()
    reasons = [event.body for event in await world.inbox.events(request.id)]
    assert any("eve has no account" in (body or "") for body in reasons)
    await world.decide(lambda request: request.edit({"to": "bob"}))
    assert (await guard(agent, world.gate).resume("t")).status == "done"
    assert world.ran == [("bob", 1)]


async def test_retry_after_a_lost_reply_is_in_doubt(world: World) -> None:
    def pay(to: str) -> str:
        world.ran.append(to)
        try:
            raise TimeoutError("no reply")
        except TimeoutError as error:
            raise ModelRetry("try again") from error

    agent = world.agent([call("pay", to="ana")], "Done.", tools=[pay])
    await guard(agent, world.gate, POLICY).run("go", thread="t")
    await world.decide(lambda request: request.approve())
    for _ in range(2):
        result = await guard(agent, world.gate, POLICY).resume("t")
        assert (result.status, (await world.waits()).kind) == ("paused", "in_doubt")
    assert (world.ran, len(world.shown)) == (["ana"], 1)


# -- what tools give


@dataclass
class Bank:
    name: str


class Receipt(BaseModel):
    to: str
    amount: int


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Receipt(to="ana", amount=1), '{"to":"ana","amount":1}'),
        ({"kind": "tool-return", "return_value": 3}, '{"kind":"tool-return","return_value":3}'),
        (ToolReturn("ok", content="and a picture", metadata={"n": 1}), "ok"),
        (None, ""),
        ([1.5, "a"], '[1.5,"a"]'),
    ],
    ids=["a model", "a look-alike", "more than a value", "nothing", "a list"],
)
async def test_stored_result_equals_live_result(world: World, value: Any, said: str) -> None:
    def pay() -> Any:
        world.ran.append(value)
        return value

    agent = world.agent([call("pay")], "Done.", tools=[pay])
    await guard(agent, world.gate).run("go", thread="t")
    await world.decide(lambda request: request.approve())
    away = world.agent([call("pay")], tools=[pay])  # has no second reply
    with pytest.raises(IndexError):
        await guard(away, world.gate).resume("t")
    live = world.returns["c1"]
    assert (await guard(agent, world.gate).resume("t")).status == "done"
    stored = world.returns["c1"]
    assert world.ran == [value]
    assert live.model_response_str() == stored.model_response_str() == said
    assert live.metadata == stored.metadata
    assert world.prompts == (["go", "and a picture"] if isinstance(value, ToolReturn) else ["go"])


async def test_binary_content_survives_a_resume(world: World) -> None:
    picture = BinaryContent(b"\x89PNG", media_type="image/png")

    def pay() -> Any:
        return [picture, "a receipt"]

    agent = world.agent([call("pay")], "Done.", tools=[pay])
    await guard(agent, world.gate).run("go", thread="t")
    await world.decide(lambda request: request.approve())
    with pytest.raises(IndexError):
        await guard(world.agent([call("pay")], tools=[pay]), world.gate).resume("t")
    await guard(agent, world.gate).resume("t")
    shown, text = world.returns["c1"].content
    assert (shown.data, shown.media_type, text) == (b"\x89PNG", "image/png", "a receipt")


async def test_failed_tool_is_not_run_again(world: World) -> None:
    def pay(to: str) -> str:
        world.ran.append(to)
        raise RuntimeError("no connection to the bank")

    agent = world.agent([call("pay", to="ana")], "Done.", tools=[pay])
    await guard(agent, world.gate).run("go", thread="t")
    await world.decide(lambda request: request.approve())
    with pytest.raises(RuntimeError, match="no connection"):  # as without a gate
        await guard(agent, world.gate).resume("t")
    assert (await guard(agent, world.gate).resume("t")).status == "done"
    assert world.ran == ["ana"]  # it is not tried again behind anybody's back
    assert world.returns["c1"].outcome == "failed"
    assert "no connection to the bank" in world.returns["c1"].content


async def test_model_retry_asks_about_the_next_call(world: World) -> None:
    def pay(to: str) -> str:
        world.ran.append(to)
        raise ModelRetry("spell the name out")

    calls = [call("pay", to="ana")], [call("pay", "c2", to="ana maria")]
    agent = world.agent(*calls, "Done.", tools=[pay])
    await guard(agent, world.gate).run("go", thread="t")
    await world.decide(lambda request: request.approve())
    assert (await guard(agent, world.gate).resume("t")).status == "paused"
    assert world.returns["c1"].outcome == "retried"
    assert (await world.waits()).args == {"to": "ana maria"}


async def test_timed_out_tool_is_in_doubt(world: World) -> None:
    async def pay(to: str) -> str:
        world.ran.append(to)
        await asyncio.sleep(60)
        return "never"

    agent = world.agent([call("pay", to="ana")], "Done.", tools=[Tool(pay, timeout=0.01)])
    await guard(agent, world.gate).run("go", thread="t")
    await world.decide(lambda request: request.approve())
    result = await guard(agent, world.gate).resume("t")
    assert (result.status, result.interruptions[0].kind) == ("paused", "in_doubt")
    await world.decide(lambda request: request.respond("it went through"))
    assert (await guard(agent, world.gate).resume("t")).status == "done"
    assert (world.ran, world.returns["c1"].content) == (["ana"], "it went through")


# -- runs


async def test_deps_of_guard_are_used_after_resume(world: World) -> None:
    def pay(ctx: RunContext[Bank], to: str) -> str:
        about = (ctx.tool_call_metadata or {})["sayso"]
        world.ran.append((ctx.deps.name, ctx.tool_call_approved, about["by"]))
        return "paid"

    agent: Agent[Bank, Any] = world.agent([call("pay", to="ana")], "Done.", deps_type=Bank)
    agent.tool(pay)
    await guard(agent, world.gate, deps=Bank("north")).run("go", thread="t")
    await world.decide(lambda request: request.approve())
    assert (await guard(agent, world.gate, deps=Bank("south")).resume("t")).status == "done"
    assert world.ran == [("south", True, "ana")]


async def test_typed_answer_survives_a_resume(world: World) -> None:
    turns = [call("pay", to="ana")], [call("final_result", "c2", to="ana", amount=1)]
    agent = world.agent(*turns, tools=[pay_of(world)], output_type=Receipt)
    await guard(agent, world.gate).run("go", thread="t")
    await world.decide(lambda request: request.approve())
    result = await guard(agent, world.gate).resume("t")
    assert (result.status, result.output) == ("done", Receipt(to="ana", amount=1))
    assert (await guard(agent, world.gate).resume("t")).output == result.output


async def test_death_before_storing_answer_repeats_no_call(world: World) -> None:
    agent = world.agent([call("pay", to="ana")], "Done.", tools=[pay_of(world)], instructions="Hm.")
    await guard(agent, world.gate).run("go", thread="t")
    await world.decide(lambda request: request.approve())

    def full(name: str, when: str) -> None:
        if (name, when) == ("propose+finish", "before"):
            raise OSError("no space left")

    world.store.boundary = full
    with pytest.raises(StoreError, match="no space"):
        await guard(agent, world.gate).resume("t")
    later = world.later()  # the lease of the process that broke is over
    assert (await guard(agent, later).resume("t")).output == "Done."
    later.close()
    assert world.ran == [("ana", 1)]  # only the model was asked again


async def ended(guarded: Any) -> bool:
    return bool((await guarded.resume("t")).status == "done")


async def test_worker_resumes_guarded_agent(world: World) -> None:
    guarded = pair(world)
    assert isinstance(guarded, Resumable)
    result = await guarded.run("go", thread="t")
    worker = Worker([pair(world)], world.store)
    working = asyncio.create_task(worker.run())
    for request in result.interruptions:
        await world.inbox.decide(request.id, request.approve(), by="ana")
    await until_async(lambda: ended(guarded))
    worker.stop()
    await working
    assert sorted(world.ran) == [("ana", 1), ("bob", 1)]


def test_sync_caller_runs_sync_tools(world: World) -> None:
    def pay(to: str) -> str:
        if world.gate.ask_sync("Which bank?", key="bank") == "none":
            return "kept"
        world.ran.append(to)
        return "paid"

    agent = world.agent([call("pay", to="ana")], "Done.", tools=[pay])
    guarded = guard(agent, world.gate, Policy([Rule("pay", verdict="allow")]))
    assert guarded.run_sync("go", thread="t").status == "paused"
    (question,) = world.pending()
    world.inbox.decide_sync(question.id, question.respond("north"), by="ana")
    assert guarded.resume_sync("t").output == "Done."
    assert world.ran == ["ana"]


def test_missing_framework_names_the_extra() -> None:
    code = "import sys; sys.modules['pydantic_ai'] = None; import sayso.adapters.pydantic_ai"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert 'pip install "sayso[pydantic-ai]"' in done.stderr


async def test_raw_equals_bare_result(world: World) -> None:
    def pay(to: str) -> str:
        """Pay a person."""
        return f"paid {to}"

    turns = [call("pay", to="ana")], "Done."
    bare = await world.agent(*turns, tools=[pay]).run("go")
    guarded = guard(world.agent(*turns, tools=[pay]), world.gate, POLICY)
    paused = await guarded.run("go", thread="t")
    assert isinstance(paused.raw.output, DeferredToolRequests)
    result = await guarded.resume("t", decisions=[paused.interruptions[0].approve()])
    assert type(result.raw) is type(bare)
    assert result.raw.output == result.output
    kinds = [[type(part) for part in message.parts] for message in bare.all_messages()]
    made = [[type(part) for part in message.parts] for message in result.raw.all_messages()]
    assert made == kinds
    assert result.raw.new_messages()[-1] == result.raw.all_messages()[-1]
    usage = result.raw.usage
    assert usage.requests == 1  # since the resume

    allow = Policy([Rule("pay", verdict="allow")])
    allowed = guard(world.agent(*turns, tools=[pay]), world.gate, allow)
    direct = (await allowed.run("go", thread="t-2")).raw
    assert len(direct.new_messages()) == len(bare.new_messages())
