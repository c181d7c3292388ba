"""``guard`` on DSPy agents: messages to the model about its calls."""

from __future__ import annotations

import json
from typing import Any

from dspy.utils import DummyLM
from harness_dspy import dspy

from sayso import Gate
from sayso.adapters.dspy import guard

END = [
    {"next_thought": "Done.", "next_tool_name": "finish", "next_tool_args": "{}"},
    {"reasoning": "It is over.", "answer": "Done."},
]


def step(name: str, **args: Any) -> dict[str, str]:
    return {"next_thought": "Hm.", "next_tool_name": name, "next_tool_args": json.dumps(args)}


def pay(to: str, amount: int = 1) -> str:
    """Pay somebody."""
    if to == "nobody":
        raise ValueError("no such account")
    return f"paid {amount} to {to}"


async def observed(to: str, change: dict[str, Any] | None = None) -> str:
    """What stands in the trajectory after one call that a person let pass."""
    model = DummyLM([step("pay", to=to), *END])
    gate = Gate("memory://", agent="teller", wait=0)
    agent = guard(dspy.ReAct("question -> answer", tools=[pay]), gate, lm=model)
    (request,) = (await agent.run("go", thread="t")).interruptions
    decision = request.approve() if change is None else request.edit(change)
    assert (await agent.resume("t", decisions=[decision], by="ana")).output == "Done."
    shown = str(model.history[1]["messages"][-1]["content"])
    return shown.split("[[ ## observation_0 ## ]]")[1].split("Respond with")[0].strip()


async def test_failed_tool_gives_sentence_without_traceback() -> None:
    assert await observed("nobody") == "The call failed: ValueError: no such account"


async def test_edit_is_reported_once() -> None:
    told = await observed("ana", {"amount": 2})
    assert told.count("A person changed the arguments") == 1
    assert told.endswith("Its result: paid 2 to ana")


async def test_tool_named_like_final_step_asks() -> None:
    ran: list[str] = []

    def submit(order: str) -> str:
        """Submit an order."""
        ran.append(order)
        return "submitted"

    def finish(order: str) -> str:
        """Finish an order."""
        ran.append(order)
        return "finished"

    gate = Gate("memory://", agent="teller", wait=0)
    model = DummyLM([step("submit", order="4711"), *END])
    react = guard(dspy.ReAct("question -> answer", tools=[submit]), gate, lm=model)
    made = (
        [{"name": "finish", "args": {"order": "4711"}}],
        [{"name": "submit", "args": {"answer": "Done."}}],
    )
    turns = [{"next_thought": "", "tool_calls": json.dumps({"tool_calls": c})} for c in made]
    second = guard(dspy.ReActV2("question -> answer", tools=[finish]), gate, lm=DummyLM(turns))
    for agent, thread in ((react, "one"), (second, "two")):
        result = await agent.run("go", thread=thread)
        assert (result.status, ran) == ("paused", [])
        result = await agent.resume(thread, decisions=[result.interruptions[0].approve()])
        assert (result.output, ran) == ("Done.", ["4711"])
        ran.clear()


async def test_oversized_number_is_reported_to_model() -> None:
    model = DummyLM([step("pay", to="ana", amount=2**60), *END])
    gate = Gate("memory://", agent="teller", wait=0)
    agent = guard(dspy.ReAct("question -> answer", tools=[pay]), gate, lm=model)
    assert (await agent.run("go", thread="t")).output == "Done."
    assert "declare it as str" in str(model.history[1]["messages"][-1]["content"])
