"""The scripted model follows its script, with and without streaming."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from sayso.agent.models import Model, ModelError, ModelReply, ModelRequest, TextDelta, resolve
from sayso.testing.scripted_model import ScriptedModel, call, calls, refuse, say

HI = {"role": "user", "content": "Hi"}
ASKING = ModelRequest(messages=[HI])


def after(*replies: ModelReply) -> ModelRequest:
    return ModelRequest(messages=[HI, *(reply.message for reply in replies)])


def test_scripted_model_is_a_model() -> None:
    model = ScriptedModel([])
    assert isinstance(model, Model)
    assert resolve(model) is model


async def test_steps_one_after_the_other(ask: Callable) -> None:
    model = ScriptedModel(["Hello.", say("cut", finish="length"), refuse("No.")])
    assert model.left == 3
    replies = [await ask(model, ASKING) for _ in range(3)]
    assert [(r.text, r.finish, r.refusal) for r in replies] == [
        ("Hello.", "stop", ""),
        ("cut", "length", ""),
        ("", "refusal", "No."),
    ]
    assert model.left == 0


async def test_calls_are_numbered_through_the_conversation(ask: Callable) -> None:
    model = ScriptedModel([calls(call("a", {"n": 1}), call("b")), call("c"), call("d", id="mine")])
    first = await ask(model, ASKING)
    second = await ask(model, after(first))
    third = await ask(model, after(first, second))
    assert [(c.id, c.name, c.arguments) for r in (first, second, third) for c in r.calls] == [
        ("call_1", "a", '{"n":1}'),
        ("call_2", "b", "{}"),
        ("call_3", "c", "{}"),
        ("mine", "d", "{}"),
    ]


async def test_new_call_id_skips_used_numbers() -> None:
    taken = ModelReply(calls=call("a", id="call_2").calls, finish="calls")
    reply = await ScriptedModel([call("b")]).reply(after(taken))
    assert reply.calls[0].id == "call_3"


async def test_broken_arguments_and_cut_calls() -> None:
    model = ScriptedModel([call("a", '{"n'), call("a", '{"n', finish="length")])
    assert (await model.reply(ASKING)).calls[0].arguments == '{"n'
    assert (await model.reply(ASKING)).calls == ()


async def test_texts_of_several_calls_are_joined() -> None:
    reply = calls(call("a", text="One "), call("b", text="two."))
    assert (reply.text, reply.finish) == ("One two.", "calls")


async def test_script_may_be_a_function(ask: Callable) -> None:
    def next_step(messages: Sequence[Any]) -> ModelReply | str:
        return call("look") if len(messages) == 1 else "Seen."

    model = ScriptedModel(next_step)
    first = await ask(model, ASKING)
    assert (await ask(model, after(first))).text == "Seen."
    assert (await ask(model, ASKING)).calls == first.calls


async def test_functions_as_steps() -> None:
    async def later(messages: Sequence[Any]) -> str:
        return messages[-1]["content"] + "!"

    assert (await ScriptedModel([later]).reply(ASKING)).text == "Hi!"


async def test_step_may_raise(ask: Callable) -> None:
    with pytest.raises(ModelError, match="down"):
        await ask(ScriptedModel([ModelError("down")]), ASKING)


async def test_exhausted_script_raises(ask: Callable) -> None:
    model = ScriptedModel(["only one"], name="demo")
    await ask(model, ASKING)
    for _ in range(2):
        with pytest.raises(ModelError, match=r"'demo' has 1 steps, .* asked for step 2"):
            await ask(model, ASKING)
    assert model.left == 0


async def test_by_turn_continues_in_another_process() -> None:
    script = [call("look"), "Seen."]
    first = await ScriptedModel(script, by_turn=True).reply(ASKING)
    again = await ScriptedModel(script, by_turn=True).reply(ASKING)
    assert first == again
    assert (await ScriptedModel(script, by_turn=True).reply(after(first))).text == "Seen."


async def test_text_comes_word_by_word() -> None:
    text = "Good  morning,\n\nyou two. "
    pieces = [p async for p in ScriptedModel([text]).stream(ASKING)]
    words = ["Good", "  morning,", "\n\nyou", " two. "]
    assert pieces == [*map(TextDelta, words), ModelReply(text)]


async def test_delay_slows_the_stream() -> None:
    began = time.monotonic()
    _ = [piece async for piece in ScriptedModel(["a b c"], delay=0.02).stream(ASKING)]
    assert time.monotonic() - began >= 0.06


async def test_requests_are_kept_as_they_were() -> None:
    model = ScriptedModel(["a", "b"])
    messages = [HI]
    await model.reply(ModelRequest("Be kind.", messages))
    messages.append(HI)
    assert model.requests == [ModelRequest("Be kind.", (HI,))]
