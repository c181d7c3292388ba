"""The fake server refuses invalid requests, so its acceptance means something."""

from __future__ import annotations

import copy
import json
import re
import threading
import urllib.error
import urllib.request
from typing import Any

import openai
import pytest
from fake_openai import Cut, FakeOpenAI, HttpError, Output

from sayso.agent.models import HostedApproval, ModelReply
from sayso.schema import Signature
from sayso.testing.scripted_model import call, calls, say

Body = dict[str, Any]

USER = {"role": "user", "content": "Hi"}
CALLS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": id, "type": "function", "function": {"name": "pay", "arguments": "{}"}}
        for id in ("a", "b")
    ],
}
STRICT = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}


def result(id: str, content: Any = "ok") -> Body:
    return {"role": "tool", "tool_call_id": id, "content": content}


def post(server: FakeOpenAI, path: str, body: Any, key: str = "test") -> tuple[int, Body]:
    """Send one request without a client library."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(
        server.base_url + path, data, {"authorization": f"Bearer {key}"} if key else {}
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)["error"]


def chat(server: FakeOpenAI, *messages: Body, **more: Any) -> tuple[int, Body]:
    return post(server, "/chat/completions", {"model": "m", "messages": [USER, *messages], **more})


def responses(server: FakeOpenAI, *items: Body, **more: Any) -> tuple[int, Body]:
    return post(server, "/responses", {"model": "m", "input": [USER, *items], **more})


def nested(**function: Any) -> Body:
    return {"type": "function", "function": function}


# --- chat completions ---


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([CALLS], r"did not have response messages: a, b"),
        ([CALLS, USER], r"did not have response messages: a, b"),
        ([CALLS, result("a")], r"did not have response messages: b"),
        ([CALLS, result("a"), USER, result("b")], r"did not have response messages: b"),
        ([CALLS, result("a"), result("b"), result("c")], r"'tool_call_id' of 'c' not found"),
        ([CALLS, result("a"), result("b"), result("b")], r"'tool_call_id' of 'b' not found"),
        ([CALLS, result("b"), result("a")], r"not in the order of their calls"),
        ([result("a")], r"must be a response to a preceeding message"),
        ([CALLS, result("a"), result("b"), USER, result("a")], r"must be a response to a prece"),
        ([CALLS, result("a", None), result("b")], r"expected a string, got null"),
        ([{"role": "assistant", "content": "x", "tool_calls": []}], r"empty array"),
        ([{"role": "assistant", "content": None}], r"expected a string, got null"),
        ([{"role": "person", "content": "x"}], r"Invalid value: 'person'"),
    ],
)
def test_illegal_conversation_is_refused(
    server: FakeOpenAI, messages: list[Body], fault: str
) -> None:
    server.add("ok")
    status, error = chat(server, *messages)
    assert status == 400
    assert re.search(fault, error["message"])
    assert error["type"] == "invalid_request_error"
    assert server.left == 1


def test_legal_conversation_is_accepted(server: FakeOpenAI) -> None:
    server.add("ok", "ok")
    assert chat(server, CALLS, result("a"), result("b"), USER)[0] == 200
    assert chat(server, {"role": "assistant", "content": None, "refusal": "No."}, USER)[0] == 200


@pytest.mark.parametrize(
    ("field", "value"), [("id", ""), ("type", "custom"), ("function", {"name": "a b"})]
)
def test_invalid_call_is_refused(server: FakeOpenAI, field: str, value: Any) -> None:
    broken = copy.deepcopy(CALLS)
    broken["tool_calls"][0][field] = value  # type: ignore[index]
    assert chat(server, broken, result("a"), result("b"))[0] == 400


def test_results_may_come_in_any_order() -> None:
    with FakeOpenAI(["ok"], any_order=True) as server:
        assert chat(server, CALLS, result("b"), result("a"))[0] == 200


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"tools": []}, "empty array"),
        ({"tools": [{"type": "function", "name": "flat"}]}, r"'tools\[0\]\.function'"),
        ({"tools": [nested(name="no spaces")]}, "does not match pattern"),
        ({"tools": [nested(name="x" * 65)]}, "does not match pattern"),
        ({"tools": [nested(name="pay"), nested(name="pay")]}, "must be unique"),
        ({"tools": [nested(name="pay", parameters={"type": "string"})]}, "'type: \"object\"'"),
        ({"tool_choice": "auto"}, "only allowed when 'tools'"),
        ({"parallel_tool_calls": True}, "only allowed when 'tools'"),
        ({"tools": [nested(name="pay")], "tool_choice": "any"}, "Invalid value: 'any'"),
        (
            {"tools": [nested(name="pay")], "tool_choice": nested(name="look")},
            "'look' not found in 'tools'",
        ),
        (
            {"tools": [nested(name="pay")], "tool_choice": {"type": "function", "name": "pay"}},
            "Missing required parameter",
        ),
        (
            {
                "tools": [nested(name="pay")],
                "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []},
            },
            "Missing required parameter",
        ),
        ({"stream_options": {"include_usage": True}}, "only allowed when 'stream'"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a b"}}},
            "does not match pattern",
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "a", "strict": True, "schema": {"type": "object"}},
                }
            },
            "'additionalProperties' is required",
        ),
    ],
)
def test_invalid_options_are_refused(server: FakeOpenAI, options: Body, fault: str) -> None:
    status, error = chat(server, **options)
    assert status == 400
    assert re.search(fault, error["message"])


def test_strict_schemas_are_checked(server: FakeOpenAI) -> None:
    loose = {**STRICT, "additionalProperties": True}
    status, error = chat(server, tools=[nested(name="pay", strict=True, parameters=loose)])
    assert (status, error["code"]) == (400, "invalid_function_parameters")
    assert error["param"] == "tools[0].function.parameters"
    assert error["message"].startswith("Invalid schema for function 'pay': In context=()")


def test_strict_signature_schema_is_accepted(server: FakeOpenAI) -> None:
    def pay(amount: int, to: list[str], note: str = "", urgent: bool | None = None) -> str:
        """Pay.

        Args:
            amount: how much
        """
        return ""

    server.add("ok")
    tool = nested(name="pay", strict=True, parameters=Signature.of(pay).strict)
    assert chat(server, tools=[tool])[0] == 200


# --- responses ---

CALL = {"type": "function_call", "call_id": "a", "name": "pay", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "a", "output": "ok"}
ASKED = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "s", "name": "n"}
ASKED |= {"arguments": "{}"}
ANSWER = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
THOUGHT = {"type": "reasoning", "id": "rs_9", "summary": [], "encrypted_content": "x"}


@pytest.mark.parametrize(
    ("items", "fault"),
    [
        ([CALL], r"No tool output found for function call a\."),
        ([OUTPUT], r"No tool call found for function call output with call_id a\."),
        ([OUTPUT, CALL], r"No tool call found"),
        ([CALL, OUTPUT, OUTPUT], r"Duplicate item found with call_id a"),
        ([CALL, CALL, OUTPUT], r"Duplicate item found with call_id a"),
        (
            [CALL, {**CALL, "call_id": "b"}, {**OUTPUT, "call_id": "b"}, OUTPUT],
            r"not in the order of their calls",
        ),
        ([THOUGHT], r"without its required following item"),
        ([THOUGHT, USER], r"without its required following item"),
        ([CALL, THOUGHT, OUTPUT], r"without its required following item"),
        ([ASKED], r"do not have an approval: mcpr_1"),
        ([ANSWER], r"No approval request found with id mcpr_1"),
        ([ASKED, ANSWER, ANSWER], r"No approval request found with id mcpr_1"),
        ([ASKED, ANSWER], r"MCP server 's' is not among the tools"),
        ([{"type": "function_call", "call_id": "a", "name": "pay"}], r"input\[1\]\.arguments"),
        ([{"type": "tool_use"}], r"Invalid value: 'tool_use'"),
        ([{**CALL, "id": "call_1"}], r"begins with 'fc'"),
        ([{"role": "tool", "content": "x"}], r"Invalid value: 'tool'"),
        ([{"role": "user", "content": [{"type": "text"}]}], r"Invalid value: 'text'"),
        ([{"role": "assistant", "content": [{"type": "input_text"}]}], r"Invalid value"),
    ],
)
def test_invalid_input_is_refused(server: FakeOpenAI, items: list[Body], fault: str) -> None:
    status, error = responses(server, *items)
    assert status == 400
    assert re.search(fault, error["message"])


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"tools": [nested(name="pay")]}, r"'tools\[0\]\.name'"),
        ({"tools": [{"type": "function", "name": "pay"}]}, r"'tools\[0\]\.parameters'"),
        (
            {"tools": [{"type": "function", "name": "p", "parameters": {}, "strict": True}]},
            r"must be a JSON Schema",
        ),
        ({"model": "gpt-4o", "include": ["reasoning.encrypted_content"]}, "Encrypted content"),
        ({"previous_response_id": "resp_x"}, "'resp_x' not found"),
        ({"input": None}, "Missing required parameter: 'input'"),
        ({"model": None}, "must provide a model"),
        (
            {"text": {"format": {"type": "json_schema", "name": "", "schema": {}}}},
            "does not match pattern",
        ),
    ],
)
def test_invalid_response_options_are_refused(
    server: FakeOpenAI, options: Body, fault: str
) -> None:
    status, error = responses(server, **options)
    assert status == 400
    assert re.search(fault, error["message"])


def test_reasoning_needs_its_content(server: FakeOpenAI) -> None:
    bare = {key: value for key, value in THOUGHT.items() if key != "encrypted_content"}
    status, error = responses(server, bare, CALL, OUTPUT, store=False)
    assert status == 404
    assert re.search("Items are not persisted when `store` is set to false", error["message"])


def test_call_needs_its_reasoning(server: FakeOpenAI) -> None:
    made = {**CALL, "id": "fc_7"}
    server.add(Output((THOUGHT, made)), "ok", "ok")
    assert responses(server)[0] == 200
    status, error = responses(server, made, OUTPUT)
    assert status == 400
    assert re.search("'fc_7' .* without its required 'reasoning' item: 'rs_9'", error["message"])
    assert responses(server, THOUGHT, made, OUTPUT)[0] == 200
    nameless = {**CALL, "call_id": "a"}
    assert responses(server, nameless, OUTPUT)[0] == 200


def test_stored_response_can_be_continued(server: FakeOpenAI) -> None:
    server.add(call("pay", id="a"), "ok", "never")
    _, first = responses(server)
    assert responses(server, OUTPUT, previous_response_id=first["id"])[0] == 200
    server.add("kept by nobody")
    status, error = responses(server, previous_response_id=first["id"])
    assert (status, "No tool output found" in error["message"]) == (400, True)


# --- the script, and the rest ---


def test_request_after_script_is_refused(server: FakeOpenAI) -> None:
    status, error = chat(server)
    assert (status, error["code"]) == (400, "script_ended")


def test_steps_may_be_functions_of_the_request(server: FakeOpenAI) -> None:
    server.add(lambda body: say(f"{len(body['messages'])} messages"))
    assert chat(server)[1]["choices"][0]["message"]["content"] == "1 messages"


def test_ids_are_counted(server: FakeOpenAI) -> None:
    server.add(calls(call("a"), call("b", id="mine"), call("c")))
    made = chat(server)[1]["choices"][0]["message"]["tool_calls"]
    assert [one["id"] for one in made] == ["call_1", "mine", "call_2"]


def test_server_checks_the_api_key() -> None:
    with FakeOpenAI(["ok"], api_key="secret") as server:
        body = {"model": "m", "messages": [USER]}
        assert post(server, "/chat/completions", body, key="wrong")[0] == 401
        assert post(server, "/chat/completions", body, key="")[0] == 401
        assert post(server, "/chat/completions", body, key="secret")[0] == 200


def test_unknown_paths_and_bodies_are_refused(server: FakeOpenAI) -> None:
    assert post(server, "/embeddings", {})[0] == 404
    assert post(server, "/chat/completions", b"{")[0] == 400


def test_invalid_script_fails_on_both_sides() -> None:
    with FakeOpenAI([ModelReply(approvals=(HostedApproval("m", "s", "n"),))]) as server:
        status, error = chat(server)
        assert (status, error["code"]) == (400, "fake_server_failed")
        assert isinstance(server.errors[0], TypeError)


def test_server_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    with FakeOpenAI([HttpError(500)]) as server:
        chat(server)
    assert not server._thread.is_alive()
    assert set(threading.enumerate()) <= before  # threads of earlier tests may end meanwhile


async def test_official_client_works_without_sayso(server: FakeOpenAI) -> None:
    """It works without the rest of Sayso: here with the client's own stream helper."""
    server.add(call("pay", {"n": 1}), Cut("never whole", after=1))
    async with openai.AsyncOpenAI(
        base_url=server.base_url, api_key="test", max_retries=0
    ) as client:
        async with client.chat.completions.stream(model="m", messages=[USER]) as stream:  # type: ignore[list-item]
            completion = await stream.get_final_completion()
        made = completion.choices[0].message.tool_calls
        assert made is not None
        assert made[0].function.arguments == '{"n":1}'
        with pytest.raises(openai.APIConnectionError):
            async for _ in await client.responses.create(model="m", input="Hi", stream=True):
                pass


async def test_stream_has_all_response_events(server: FakeOpenAI) -> None:
    server.add(call("pay", {"n": 1}, text="So."))
    async with openai.AsyncOpenAI(base_url=server.base_url, api_key="test") as client:
        stream = await client.responses.create(model="m", input="Hi", stream=True)
        events = [event async for event in stream]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
