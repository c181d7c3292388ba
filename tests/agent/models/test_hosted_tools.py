"""Tools that the provider runs: their approvals and their results are stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fake_openai import FakeOpenAI, Output

from sayso.agent.models import (
    HostedApproval,
    ModelError,
    ModelReply,
    ModelRequest,
    OpenAIResponses,
)

HI = {"role": "user", "content": "Hi"}
MCP = {
    "type": "mcp",
    "server_label": "shop",
    "server_url": "https://shop.example/mcp",
    "require_approval": "always",
}


def asking(*messages: dict[str, Any], **options: Any) -> ModelRequest:
    return ModelRequest(messages=[HI, *messages], **options)


def message(id: str, text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    said = {"type": "message", "id": id, "role": "assistant", "status": "completed"}
    return {**said, "content": [part]}


async def test_hosted_tool_continues_after_approval(
    server: FakeOpenAI, responses: OpenAIResponses, ask: Callable
) -> None:
    listed = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "shop", "tools": []}
    asked = HostedApproval("mcpr_1", "shop", "buy", '{"what":"hat"}')
    other = HostedApproval("mcpr_2", "shop", "buy", "{}")
    server.add(ModelReply(approvals=(asked, other), items=(listed,), finish="calls"))
    hosted = {"settings": {"tools": [MCP]}}
    first = await ask(responses, asking(**hosted))
    assert (first.approvals, first.calls, first.finish) == ((asked, other), (), "calls")
    done = {"type": "mcp_call", "id": "mcp_1", "server_label": "shop", "name": "buy"}
    done |= {"arguments": "{}", "output": "sold", "error": None, "approval_request_id": "mcpr_1"}
    server.add(Output((done, message("msg_1", "Bought."))), "Bye.")
    answers = [
        {"role": "approval", "request_id": "mcpr_1", "approve": True, "reason": ""},
        {"role": "approval", "request_id": "mcpr_2", "approve": False, "reason": "Too dear."},
    ]
    second = await ask(responses, asking(first.message, *answers, **hosted))
    assert server.bodies[1]["tools"] == [MCP]
    assert server.bodies[1]["input"][1:] == [
        listed,
        {
            "type": "mcp_approval_request",
            "id": "mcpr_1",
            "server_label": "shop",
            "name": "buy",
            "arguments": '{"what":"hat"}',
        },
        {
            "type": "mcp_approval_request",
            "id": "mcpr_2",
            "server_label": "shop",
            "name": "buy",
            "arguments": "{}",
        },
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
        {
            "type": "mcp_approval_response",
            "approval_request_id": "mcpr_2",
            "approve": False,
            "reason": "Too dear.",
        },
    ]
    assert (second.text, second.finish) == ("Bought.", "stop")
    await ask(responses, asking(first.message, *answers, second.message, HI, **hosted))
    assert server.bodies[2]["input"][6]["output"] == "sold"


async def test_unanswered_approval_is_refused(
    server: FakeOpenAI, responses: OpenAIResponses
) -> None:
    asked = HostedApproval("mcpr_1", "shop", "buy")
    server.add(ModelReply(approvals=(asked,), finish="calls"))
    first = await responses.reply(asking(settings={"tools": [MCP]}))
    with pytest.raises(ModelError, match="do not have an approval: mcpr_1"):
        await responses.reply(asking(first.message, HI, settings={"tools": [MCP]}))


async def test_unsupported_call_is_an_error(
    server: FakeOpenAI, responses: OpenAIResponses, ask: Callable
) -> None:
    server.add(Output(({"type": "computer_call", "id": "cu_1", "call_id": "c"},)))
    with pytest.raises(ModelError, match="made a computer_call, which the agent cannot run"):
        await ask(responses, asking())


async def test_unknown_items_are_kept(
    server: FakeOpenAI, responses: OpenAIResponses, ask: Callable
) -> None:
    found = {"type": "web_search_call", "id": "ws_1", "status": "completed", "news": {"a": [1]}}
    server.add(Output((found, message("msg_1", "Found."))), "ok")
    first = await ask(responses, asking())
    await ask(responses, asking(first.message, HI))
    assert server.bodies[1]["input"][1] == found
