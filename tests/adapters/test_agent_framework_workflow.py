"""Workflows of the Agent Framework: ``request_info``, and agents in them whose functions wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from agent_framework import (
    Agent,
    AgentExecutor,
    Executor,
    InMemoryCheckpointStorage,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    register_checkpoint_type,
    response_handler,
    tool,
)
from agent_framework_world import World, call
from store_world import pay_of

from sayso import Policy, Rule
from sayso.adapters.agent_framework import Gated, GuardedWorkflow, guard
from sayso.agent.agent import Resumable
from sayso.errors import InvalidDecision, SaysoError

ASK = Policy([Rule("pay")])


@dataclass
class Guess:
    question: str


@dataclass
class Unknown(Guess):
    """Not told to the framework, which therefore keeps no checkpoint of it."""


register_checkpoint_type(Guess)


class Guesser(Executor):
    """Asks until the person says that it is right."""

    def __init__(self, world: World, asks: list[str], kind: type[Guess] = Guess) -> None:
        super().__init__(id="guesser")
        self.world = world
        self.asks = asks
        self.kind = kind

    @handler
    async def start(self, text: str, ctx: WorkflowContext[Any, str]) -> None:
        self.world.ran.append(f"start {text}")
        for ask in self.asks:
            await ctx.request_info(self.kind(ask), int)

    @response_handler
    async def answered(self, asked: Guess, answer: int, ctx: WorkflowContext[Any, str]) -> None:
        self.world.ran.append((asked.question, answer))
        await ctx.yield_output(f"{asked.question} {answer}")


def guessing(world: World, *asks: str) -> GuardedWorkflow:
    def build() -> Any:
        return WorkflowBuilder(name="guessing", start_executor=Guesser(world, list(asks))).build()

    guarded = guard(build, world.gate, checkpoints=world.folder / "checkpoints")
    assert isinstance(guarded, Resumable)
    return guarded


async def test_request_info_is_a_question(world: World) -> None:
    result = await guessing(world, "How old?").run("go", thread="t")
    (request,) = result.interruptions
    assert (result.status, request.kind) == ("paused", "question")
    assert request.question is not None
    assert request.question.text == "How old?"
    with pytest.raises(InvalidDecision):  # checked in front of whoever answers
        await world.inbox.decide(request.id, request.respond("old"), by="ana")
    assert (await guessing(world, "How old?").resume("t")).status == "paused"
    await world.inbox.decide(request.id, request.respond(41), by="ana")
    result = await guessing(world, "How old?").resume("t")
    assert (result.status, result.output) == ("done", "How old? 41")
    again = await guessing(world, "How old?").resume("t")
    assert (again.output, world.ran) == (result.output, ["start go", ("How old?", 41)])


async def test_questions_are_answered_in_any_order(world: World) -> None:
    result = await guessing(world, "one?", "two?").run("go", thread="t")
    asked = {r.question.text: r for r in result.interruptions if r.question is not None}
    await world.inbox.decide(asked["two?"].id, asked["two?"].respond(2), by="ana")
    result = await guessing(world, "one?", "two?").resume("t")
    assert [r.id for r in result.interruptions] == [asked["one?"].id]
    assert world.ran == ["start go", ("two?", 2)]
    await world.inbox.decide(asked["one?"].id, asked["one?"].respond(1), by="ana")
    result = await guessing(world, "one?", "two?").resume("t")
    assert (result.status, result.output) == ("done", ["two? 2", "one? 1"])
    assert world.ran == ["start go", ("two?", 2), ("one?", 1)]


async def test_rejected_question_gets_no_answer(world: World) -> None:
    await guessing(world, "one?", "two?").run("go", thread="t")
    first, second = (await world.inbox.pending()).items
    await world.inbox.decide(first.id, first.reject("private"), by="ana")
    await world.inbox.decide(second.id, second.respond(2), by="ana")
    assert (await guessing(world, "one?", "two?").resume("t")).status == "done"
    assert len(world.ran) == 2  # it began, and one answer came


async def test_threads_and_turns_keep_their_answers(world: World) -> None:
    for thread in ("a", "b"):
        await guessing(world, "How old?").run(thread, thread=thread)
    for request in (await world.inbox.pending()).items:
        age = 1 if request.thread == "a" else 2
        await world.inbox.decide(request.id, request.respond(age), by="ana")
    assert (await guessing(world, "How old?").resume("b")).output == "How old? 2"
    assert (await guessing(world, "How old?").resume("a")).output == "How old? 1"
    assert (await guessing(world, "How old?").run("again", thread="a")).status == "paused"
    await world.decide(lambda request: request.respond(3))
    assert (await guessing(world, "How old?").resume("a")).output == "How old? 3"


async def test_answer_is_delivered_once_after_crash(world: World) -> None:
    """The workflow has taken the answer, and the process ends before we know of it."""
    await guessing(world, "How old?").run("go", thread="t")
    await world.decide(lambda request: request.respond(41))

    def full(name: str, when: str) -> None:
        if "propose" in name and when == "before" and ("How old?", 41) in world.ran:
            raise OSError("no space left")

    world.store.boundary = full
    with pytest.raises(Exception, match="no space"):
        await guessing(world, "How old?").resume("t")
    world.store.boundary = None
    result = await guessing(world, "How old?").resume("t")
    assert result.status == "done"
    assert world.ran == ["start go", ("How old?", 41)]


async def test_workflow_with_unknown_state_is_refused(world: World) -> None:
    start = Guesser(world, ["How old?"], Unknown)
    workflow = WorkflowBuilder(name="guessing", start_executor=start).build()
    guarded = guard(workflow, world.gate, checkpoints=world.folder / "checkpoints")
    with pytest.raises(SaysoError, match="register_checkpoint_type"):
        await guarded.run("go", thread="t")
    assert (await world.inbox.pending()).items == ()


# -- agents in a workflow


def clerk(
    world: World, storage: Any, *, gated: bool, always: bool | None = None
) -> GuardedWorkflow:
    def build() -> Any:
        calls = [call("pay", "c1", to="ana"), call("pay", "c2", to="bob")]
        always_require = not gated if always is None else always
        mode: Any = "always_require" if always_require else "never_require"
        agent = Agent(
            world.client(calls, "Paid."),
            name="clerk",
            tools=[tool(pay_of(world), approval_mode=mode)],
            middleware=[Gated(world.gate, ASK)] if gated else None,
        )
        return WorkflowBuilder(name="office", start_executor=AgentExecutor(agent)).build()

    return guard(build, world.gate, checkpoints=lambda name: storage)


async def test_functions_of_workflow_agents_ask(world: World) -> None:
    storage = InMemoryCheckpointStorage()
    result = await clerk(world, storage, gated=True).run("pay them", thread="t")
    ana, bob = sorted(result.interruptions, key=lambda r: str(r.args["to"]))
    assert (result.status, ana.tool, ana.thread) == ("paused", "pay", "t")
    await world.inbox.decide(ana.id, ana.edit({"amount": 3}), by="ana")
    result = await clerk(world, storage, gated=True).resume("t")
    assert [r.id for r in result.interruptions] == [bob.id]
    await world.inbox.decide(bob.id, bob.reject("he left"), by="ana")
    result = await clerk(world, storage, gated=True).resume("t")
    assert (result.status, result.output) == ("done", "Paid.")
    assert world.ran == [("ana", 3)]
    assert "paid 3 to ana" in world.results["c1"]
    assert "he left" in world.results["c2"]
    await clerk(world, storage, gated=True).resume("t")
    assert world.ran == [("ana", 3)]


async def test_function_requiring_approval_asks_once(world: World) -> None:
    storage = InMemoryCheckpointStorage()
    office = clerk(world, storage, gated=True, always=True)
    result = await office.run("pay them", thread="t")
    ana, bob = sorted(result.interruptions, key=lambda r: str(r.args["to"]))
    answers = [ana.edit({"amount": 3}), bob.reject("he left")]
    result = await office.resume("t", decisions=answers, by="ana")
    assert (result.status, result.output, world.ran) == ("done", "Paid.", [("ana", 3)])
    assert "he left" in world.results["c2"]


async def test_ungated_agents_of_workflow_ask_people(world: World) -> None:
    storage = InMemoryCheckpointStorage()
    result = await clerk(world, storage, gated=False).run("pay them", thread="t")
    assert {set(r.allowed) >= {"approve", "edit", "reject"} for r in result.interruptions} == {True}
    for request in result.interruptions:
        yes = request.args["to"] == "ana"
        decision = request.approve() if yes else request.reject("no")
        await world.inbox.decide(request.id, decision, by="ana")
    result = await clerk(world, storage, gated=False).resume("t")
    assert (result.status, result.output, world.ran) == ("done", "Paid.", [("ana", 1)])
