"""The Responses API on the wire: items out, items in, and what must be sent again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fake_openai import FakeOpenAI, Output

from sayso.agent.models import (
    ModelCall,
    ModelError,
    ModelReply,
    ModelRequest,
    OpenAIResponses,
    ToolSpec,
)
from sayso.testing.scripted_model import call, calls, refuse

PAY = ToolSpec(
    "pay",
    "Pay somebody.",
    {
        "type": "object",
        "properties": {"amount": {"type": "integer"}},
        "required": ["amount"],
        "additionalProperties": False,
    },
)
HI = {"role": "user", "content": "Hi"}
MCP = {
    "type": "mcp",
    "server_label": "shop",
    "server_url": "https://shop.example/mcp",
    "require_approval": "always",
}
THOUGHT: dict[str, Any] = {"type": "reasoning"}


def asking(*messages: dict[str, Any], **options: Any) -> ModelRequest:
    options = {"instructions": "Be kind.", "tools": [PAY], **options}
    return ModelRequest(messages=[HI, *messages], **options)


def tool(id: str, content: str = "ok") -> dict[str, Any]:
    return {"role": "tool", "call_id": id, "name": "pay", "content": content}


def message(id: str, text: str, **more: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {
        "type": "message",
        "id": id,
        "role": "assistant",
        "status": "completed",
        "content": [part],
        **more,
    }


def function_call(id: str, arguments: str = '{"amount":1}', **more: Any) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": f"fc_{id}",
        "call_id": id,
        "name": "pay",
        "arguments": arguments,
        "status": "completed",
        **more,
    }


async def test_text_response_is_read(
    server: FakeOpenAI, responses: OpenAIResponses, ask: Callable
) -> None:
    server.add("Good morning to you.")
    reply = await ask(responses, asking())
    assert (reply.text, reply.finish, reply.items) == ("Good morning to you.", "stop", ())
    assert reply.usage == {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18}
    assert reply.response_id == "resp_1"


async def test_responses_request_has_the_documented_form(
    server: FakeOpenAI, responses: OpenAIResponses
) -> None:
    server.add("ok")
    await responses.reply(asking())
    assert server.requests[0].path == "/v1/responses"
    assert server.requests[0].body == {
        "model": "gpt-5",
        "instructions": "Be kind.",
        "input": [HI],
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "tools": [
            {
                "type": "function",
                "name": "pay",
                "description": "Pay somebody.",
                "parameters": PAY.parameters,
                "strict": True,
            }
        ],
    }


async def test_other_models_are_not_asked_for_reasoning(server: FakeOpenAI) -> None:
    server.add("ok", "ok")
    for name in ("gpt-4o", "gpt-4.1-mini"):
        model = OpenAIResponses(name, base_url=server.base_url, api_key="test")
        await model.reply(asking())
    assert all("include" not in body for body in server.bodies)


async def test_call_item_is_read(
    server: FakeOpenAI, responses: OpenAIResponses, ask: Callable
) -> None:
    server.add(call("pay", {"amount": 3}, text="Paying."))
    reply = await ask(responses, asking())
    assert reply.calls == (ModelCall("call_1", "pay", '{"amount":3}'),)
    assert (reply.finish, reply.text, reply.items) == ("calls", "Paying.", ())


async def test_plain_conversation_is_sent_without_items(
    server: FakeOpenAI, responses: OpenAIResponses, ask: Callable
) -> None:
    server.add(calls(call("pay", {"amount": 1}, text="Two."), call("pay", "")), "Done.")
    first = await ask(responses, asking())
    await ask(responses, asking(first.message, tool("call_1"), tool("call_2", "no")))
    assert server.bodies[1]["input"] == [
        HI,
        {"role": "assistant", "content": "Two."},
        {"type": "function_call", "call_id": "call_1", "name": "pay", "arguments": '{"amount":1}'},
        {"type": "function_call", "call_id": "call_2", "name": "pay", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "ok"},
        {"type": "function_call_output", "call_id": "call_2", "output": "no"},
    ]


async def test_reasoning_is_sent_before_its_calls(
    server: FakeOpenAI, responses: OpenAIResponses, ask: Callable
) -> None:
    output = (
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "g1"},
        message("msg_1", "First one."),
        function_call("call_a"),
        {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "g2"},
        function_call("call_b", '{"amount":2}'),
    )
    server.add(Output(output), "Done.")
    first = await ask(responses, asking())
    assert [item["type"] for item in first.items] == [item["type"] for item in output]
    await ask(responses, asking(first.message, tool("call_a"), tool("call_b")))
    sent = server.bodies[1]["input"][1:6]
    sent[1]["content"][0]["logprobs"] = []
    assert sent == list(output)


async def test_text_and_arguments_are_stored_once(
    server: FakeOpenAI, responses: OpenAIResponses
) -> None:
    server.add(replace(call("pay", {"amount": 123456}, text="A long text."), items=(THOUGHT,)))
    stored = str((await responses.reply(asking())).message)
    assert stored.count("123456") == stored.count("A long text.") == 1


async def test_nulls_are_not_sent_again(server: FakeOpenAI, responses: OpenAIResponses) -> None:
    thought = {**THOUGHT, "content": None, "status": None}
    server.add(replace(call("pay", {"amount": 1}), items=(thought,)), "ok")
    first = await responses.reply(asking())
    await responses.reply(asking(first.message, tool("call_1")))
    assert server.bodies[1]["input"][1] == {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "encrypted_content": "gAAAArs_1",
    }


async def test_items_other_than_text_are_sent_back_unchanged(
    server: FakeOpenAI, responses: OpenAIResponses, ask: Callable
) -> None:
    noted = message("msg_1", "See here.")
    noted["content"][0]["annotations"] = [{"type": "url_citation", "url": "https://a.example"}]
    phased = message("msg_2", "Thinking.", phase="commentary")
    server.add(Output((noted,)), Output((phased,)), Output((message("msg_3", "a"), phased)), "ok")
    said: list[dict[str, Any]] = []
    for _ in range(3):
        reply = await ask(responses, asking(*said))
        said += [reply.message, HI]
    await ask(responses, asking(*said))
    sent = [item for item in server.bodies[3]["input"] if item != HI]
    assert [item["id"] for item in sent] == ["msg_1", "msg_2", "msg_3", "msg_2"]
    assert sent[0] == noted
    assert sent[1]["phase"] == "commentary"
    assert said[4]["content"] == "aThinking."


async def test_missing_id_differs_from_item_ids(
    server: FakeOpenAI, responses: OpenAIResponses, ask: Callable
) -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "g"}
    server.add(Output((thought, function_call("x") | {"call_id": ""}, function_call("x"))), "ok")
    old = {"role": "assistant", "content": "", "calls": [{"id": "x", "name": "pay"}]}
    old["calls"][0]["arguments"] = '{"amount":0}'
    before = [old, tool("x")]
    first = await ask(responses, asking(*before))
    ids = [made.id for made in first.calls]
    assert len({*ids, "x", ""}) == 4
    await ask(responses, asking(*before, first.message, *(tool(id) for id in ids)))
    sent = [item for item in server.bodies[1]["input"] if item.get("type") == "function_call"]
    assert [item["call_id"] for item in sent] == ["x", *ids]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [("max_output_tokens", "length"), ("content_filter", "filter"), ("max_messages", "length")],
)
async def test_incomplete_response_can_be_continued(
    server: FakeOpenAI, responses: OpenAIResponses, ask: Callable, reason: str, finish: str
) -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "g"}
    asked = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "shop"}
    output = (
        thought,
        message("msg_1", "So."),
        {**asked, "name": "buy", "arguments": "{}"},
        {**thought, "id": "rs_2"},
        function_call("call_a", '{"amou', status="incomplete"),
    )
    more = {"status": "incomplete", "incomplete_details": {"reason": reason}}
    server.add(Output(output, more), "ok")
    first = await ask(responses, asking())
    assert (first.text, first.calls, first.approvals, first.finish) == ("So.", (), (), finish)
    await ask(responses, asking(first.message, HI))
    assert [item.get("id") for item in server.bodies[1]["input"]] == [None, "rs_1", "msg_1", None]


async def test_truncated_call_item_is_dropped(
    server: FakeOpenAI, responses: OpenAIResponses
) -> None:
    server.add(replace(call("pay", '{"amou', finish="length"), items=(THOUGHT,)))
    reply = await responses.reply(asking())
    assert reply == ModelReply(finish="length", usage=reply.usage, response_id="resp_1")


async def test_refusal_item_is_read(
    server: FakeOpenAI, responses: OpenAIResponses, ask: Callable
) -> None:
    server.add(refuse("I will not."), "ok")
    first = await ask(responses, asking())
    assert (first.finish, first.refusal, first.text) == ("refusal", "I will not.", "")
    await ask(responses, asking(first.message, HI))
    assert server.bodies[1]["input"][1]["content"] == [
        {"type": "refusal", "refusal": "I will not."}
    ]


async def test_refusal_of_chat_api_is_sent_as_text(
    server: FakeOpenAI, responses: OpenAIResponses
) -> None:
    server.add("ok")
    extra = {"type": "chat.call", "id": "a", "extra": {}}
    old = {"role": "assistant", "content": "", "calls": [], "refusal": "No.", "items": [extra]}
    await responses.reply(asking(old, HI))
    assert server.bodies[0]["input"][1] == {"role": "assistant", "content": "No."}


# --- options ---


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("none", "none"),
        ("required", "required"),
        ("pay", {"type": "function", "name": "pay"}),
        ({"type": "function", "function": {"name": "pay"}}, {"type": "function", "name": "pay"}),
        ({"type": "mcp", "server_label": "shop"}, {"type": "mcp", "server_label": "shop"}),
        (
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": ["pay", {"type": "mcp", "server_label": "shop"}],
            },
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [
                    {"type": "function", "name": "pay"},
                    {"type": "mcp", "server_label": "shop"},
                ],
            },
        ),
    ],
)
async def test_tool_choice_includes_hosted_tools(
    server: FakeOpenAI, responses: OpenAIResponses, given: Any, sent: Any
) -> None:
    server.add("ok")
    await responses.reply(asking(tool_choice=given, settings={"tools": [MCP]}))
    assert server.bodies[0]["tool_choice"] == sent


async def test_loose_tool_is_sent_as_loose(server: FakeOpenAI, responses: OpenAIResponses) -> None:
    server.add("ok")
    loose = ToolSpec("any", "", {"type": "object"}, strict=False)
    await responses.reply(asking(tools=[loose], parallel_tool_calls=False))
    assert server.bodies[0]["tools"][0]["strict"] is False
    assert server.bodies[0]["parallel_tool_calls"] is False


async def test_output_format_keeps_other_text_settings(
    server: FakeOpenAI, responses: OpenAIResponses, ask: Callable
) -> None:
    server.add('{"amount":1}')
    settings = {"text": {"verbosity": "low"}}
    reply = await ask(responses, asking(output_schema=PAY.parameters, settings=settings))
    form = {"type": "json_schema", "name": "answer", "schema": PAY.parameters, "strict": True}
    assert server.bodies[0]["text"] == {"verbosity": "low", "format": form}
    assert reply.text == '{"amount":1}'


async def test_settings_may_store(server: FakeOpenAI, responses: OpenAIResponses) -> None:
    server.add("ok", "ok")
    kept = {"store": True, "include": []}
    first = await responses.reply(asking(settings=kept))
    await responses.reply(
        asking(settings={**kept, "previous_response_id": first.response_id, "metadata": {"a": "b"}})
    )
    assert server.bodies[1]["previous_response_id"] == "resp_1"


# --- failures ---


@pytest.mark.parametrize("status", ["failed", "cancelled"])
async def test_failed_response_raises(
    server: FakeOpenAI, responses: OpenAIResponses, status: str
) -> None:
    error = {"code": "server_error", "message": "It broke."} if status == "failed" else None
    server.add(Output((), {"status": status, "error": error}))
    with pytest.raises(ModelError, match=r"It broke|the response is cancelled") as caught:
        await responses.reply(asking())
    assert caught.value.code == ("server_error" if status == "failed" else "")
