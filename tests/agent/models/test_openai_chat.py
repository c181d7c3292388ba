"""Chat Completions on the wire: requests, and how every kind of answer is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fake_openai import FakeOpenAI

from sayso.agent.models import (
    ModelCall,
    ModelError,
    ModelReply,
    ModelRequest,
    OpenAIChat,
    TextDelta,
    ToolSpec,
)
from sayso.schema import Signature
from sayso.testing.scripted_model import call, calls, refuse, say


def pay(amount: int, note: str = "") -> str:
    """Pay somebody."""
    return ""


PAY = ToolSpec("pay", "Pay somebody.", Signature.of(pay).strict)
LOOK = ToolSpec("look", "Look.", {"type": "object", "properties": {}}, strict=False)
HI = {"role": "user", "content": "Hi"}


def asking(*messages: dict[str, Any], **options: Any) -> ModelRequest:
    options = {"instructions": "Be kind.", "tools": [PAY, LOOK], **options}
    return ModelRequest(messages=[HI, *messages], **options)


def tool(id: str, content: str = "ok", name: str = "pay") -> dict[str, Any]:
    return {"role": "tool", "call_id": id, "name": name, "content": content}


async def test_text_reply_is_read(server: FakeOpenAI, chat: OpenAIChat, ask: Callable) -> None:
    server.add("Good morning to you.")
    reply = await ask(chat, asking())
    assert (reply.text, reply.finish, reply.calls) == ("Good morning to you.", "stop", ())
    assert reply.usage == {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18}
    assert reply.response_id == "chatcmpl_1"
    assert reply.message == {"role": "assistant", "content": reply.text, "calls": []}


async def test_request_has_the_documented_form(server: FakeOpenAI, chat: OpenAIChat) -> None:
    server.add("ok")
    await chat.reply(asking())
    assert server.requests[0].path == "/v1/chat/completions"
    assert server.requests[0].body == {
        "model": "gpt-4o",
        "messages": [{"role": "system", "content": "Be kind."}, HI],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "pay",
                    "description": "Pay somebody.",
                    "parameters": {
                        "type": "object",
                        "properties": {
                            "amount": {"type": "integer"},
                            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                        },
                        "required": ["amount", "note"],
                        "additionalProperties": False,
                    },
                    "strict": True,
                },
            },
            {
                "type": "function",
                "function": {
                    "name": "look",
                    "description": "Look.",
                    "parameters": {"type": "object", "properties": {}},
                },
            },
        ],
    }


async def test_stream_requests_its_usage(server: FakeOpenAI, chat: OpenAIChat) -> None:
    server.add("ok", "ok")
    _ = [piece async for piece in chat.stream(asking())]
    off = asking(settings={"stream_options": None})
    *_, last = [piece async for piece in chat.stream(off)]
    assert server.bodies[0]["stream_options"] == {"include_usage": True}
    assert "stream_options" not in server.bodies[1]
    assert isinstance(last, ModelReply)
    assert last.usage == {}


async def test_text_comes_in_pieces(server: FakeOpenAI, chat: OpenAIChat) -> None:
    server.add("Good morning to you.")
    pieces = [piece async for piece in chat.stream(asking())]
    assert pieces[:2] == [TextDelta("Good mo"), TextDelta("rning t")]


async def test_call_is_read(server: FakeOpenAI, chat: OpenAIChat, ask: Callable) -> None:
    server.add(call("pay", {"amount": 3, "note": None}, id="call_a", text="Paying."))
    reply = await ask(chat, asking())
    assert reply.calls == (ModelCall("call_a", "pay", '{"amount":3,"note":null}'),)
    assert (reply.finish, reply.text) == ("calls", "Paying.")


async def test_parallel_calls_keep_their_order(
    server: FakeOpenAI, chat: OpenAIChat, ask: Callable
) -> None:
    server.add(calls(*(call("pay", {"amount": n}, id=f"c{9 - n}") for n in range(5))))
    reply = await ask(chat, asking())
    assert [c.id for c in reply.calls] == ["c9", "c8", "c7", "c6", "c5"]
    assert [c.arguments for c in reply.calls] == [f'{{"amount":{n}}}' for n in range(5)]


async def test_conversation_is_sent_back_unchanged(
    server: FakeOpenAI, chat: OpenAIChat, ask: Callable
) -> None:
    server.add(calls(call("pay", {"amount": 1}), call("look", text="Two.")), "Done.")
    first = await ask(chat, asking())
    await ask(chat, asking(first.message, tool("call_1"), tool("call_2", "seen", "look")))
    assert server.bodies[1]["messages"][2:] == [
        {
            "role": "assistant",
            "content": "Two.",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "pay", "arguments": '{"amount":1}'},
                },
                {
                    "id": "call_2",
                    "type": "function",
                    "function": {"name": "look", "arguments": "{}"},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "ok"},
        {"role": "tool", "tool_call_id": "call_2", "content": "seen"},
    ]


async def test_every_kind_of_message(server: FakeOpenAI, chat: OpenAIChat) -> None:
    server.add("ok")
    await chat.reply(
        asking(
            {"role": "assistant", "content": "Hello.", "calls": []},
            {"role": "system", "content": "It is late."},
            {"role": "assistant", "content": "", "calls": [], "refusal": "No."},
            {"role": "assistant", "content": "", "calls": [], "items": [{"type": "mcp_call"}]},
            {"role": "approval", "request_id": "mcpr_1", "approve": True, "reason": ""},
            HI,
        )
    )
    assert server.bodies[0]["messages"][2:] == [
        {"role": "assistant", "content": "Hello."},
        {"role": "system", "content": "It is late."},
        {"role": "assistant", "content": None, "refusal": "No."},
        HI,
    ]


@pytest.mark.parametrize(("finish", "ours"), [("length", "length"), ("filter", "filter")])
async def test_truncated_call_is_dropped(
    server: FakeOpenAI, chat: OpenAIChat, ask: Callable, finish: Any, ours: str
) -> None:
    server.add(call("pay", '{"amou', text="Pay", finish=finish))
    reply = await ask(chat, asking())
    assert (reply.text, reply.calls, reply.items, reply.finish) == ("Pay", (), (), ours)


async def test_refusal_is_read(server: FakeOpenAI, chat: OpenAIChat, ask: Callable) -> None:
    server.add(refuse("I will not."))
    reply = await ask(chat, asking())
    assert (reply.finish, reply.refusal, reply.text) == ("refusal", "I will not.", "")
    assert reply.message["refusal"] == "I will not."


async def test_invalid_json_arguments_are_passed_on(
    server: FakeOpenAI, chat: OpenAIChat, ask: Callable
) -> None:
    server.add(call("pay", '{"amount": oops'))
    assert (await ask(chat, asking())).calls[0].arguments == '{"amount": oops'


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("none", "none"),
        ("required", "required"),
        ("pay", {"type": "function", "function": {"name": "pay"}}),
        (
            {"type": "function", "function": {"name": "pay"}},
            {"type": "function", "function": {"name": "pay"}},
        ),
        ({"type": "function", "name": "pay"}, {"type": "function", "function": {"name": "pay"}}),
        (
            {"type": "allowed_tools", "mode": "required", "tools": ["pay"]},
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "function", "function": {"name": "pay"}}],
                },
            },
        ),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "name": "look"}]},
            },
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "auto",
                    "tools": [{"type": "function", "function": {"name": "look"}}],
                },
            },
        ),
    ],
)
async def test_tool_choice_is_sent(
    server: FakeOpenAI, chat: OpenAIChat, given: Any, sent: Any
) -> None:
    server.add("ok")
    await chat.reply(asking(tool_choice=given))
    assert server.bodies[0]["tool_choice"] == sent


async def test_unknown_tool_choice_is_refused(chat: OpenAIChat) -> None:
    with pytest.raises(ModelError, match=r"'requierd' is neither auto, none, .* \(pay, look\)"):
        await chat.reply(asking(tool_choice="requierd"))


@pytest.mark.parametrize("parallel", [True, False])
async def test_parallel_tool_calls(server: FakeOpenAI, chat: OpenAIChat, parallel: bool) -> None:
    server.add("ok", "ok")
    await chat.reply(asking(parallel_tool_calls=parallel))
    await chat.reply(asking(parallel_tool_calls=parallel, tools=[], tool_choice="none"))
    assert server.bodies[0]["parallel_tool_calls"] is parallel
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & server.bodies[1].keys()


async def test_output_schema_is_sent(server: FakeOpenAI, chat: OpenAIChat, ask: Callable) -> None:
    server.add('{"city":"Rome"}', "{}")
    schema = {
        "title": "Trip to…",
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    }
    reply = await ask(chat, asking(output_schema=schema))
    await ask(chat, asking(output_schema={"type": "object", "properties": {}}))
    assert reply.text == '{"city":"Rome"}'
    form = {"name": "Trip_to", "schema": schema, "strict": True}
    assert server.bodies[0]["response_format"] == {"type": "json_schema", "json_schema": form}
    loose = server.bodies[1]["response_format"]["json_schema"]
    assert (loose["name"], loose["strict"]) == ("answer", False)


async def test_settings_of_the_request_win(server: FakeOpenAI) -> None:
    server.add("ok")
    model = OpenAIChat(
        "gpt-4o", base_url=server.base_url, api_key="test", temperature=0.1, seed=7, tools=[]
    )
    extra = {"type": "function", "function": {"name": "hosted", "parameters": {"type": "object"}}}
    await model.reply(asking(settings={"temperature": 0.9, "tools": [extra]}))
    body = server.bodies[0]
    assert (body["temperature"], body["seed"]) == (0.9, 7)
    assert [t["function"]["name"] for t in body["tools"]] == ["pay", "look", "hosted"]


async def test_scripted_finish_reason_is_sent(server: FakeOpenAI, chat: OpenAIChat) -> None:
    server.add(say("cut h", finish="length"))
    reply = await chat.reply(asking())
    assert (reply.text, reply.finish) == ("cut h", "length")
