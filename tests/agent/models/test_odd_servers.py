"""Servers that imitate Chat Completions imperfectly: nothing is lost or mixed up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fake_openai import FakeOpenAI, Raw

from sayso.agent.models import ModelError, ModelReply, ModelRequest, OpenAIChat, OpenAIResponses

HI = {"role": "user", "content": "Hi"}
ASKING = ModelRequest(messages=[HI])


def completion(message: dict[str, Any], finish: str | None = "stop", **more: Any) -> Raw:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return Raw({"id": "x", "object": "chat.completion", "choices": [choice], **more})


def stream(*deltas: dict[str, Any], finish: str | None = "tool_calls") -> Raw:
    chunks = [_chunk(delta, None) for delta in deltas]
    return Raw(events=(*chunks, _chunk({}, finish), "[DONE]"))


def _chunk(delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
    return {"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def piece(name: str = "", arguments: Any = "", **more: Any) -> dict[str, Any]:
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return {"tool_calls": [{**more, "function": function}]}


async def streamed(model: OpenAIChat, request: ModelRequest = ASKING) -> ModelReply:
    *_, last = [piece async for piece in model.stream(request)]
    assert isinstance(last, ModelReply)
    return last


def made(reply: ModelReply) -> list[tuple[str, str]]:
    return [(call.name, call.arguments) for call in reply.calls]


# --- in one piece ---


@pytest.mark.parametrize("calls", [None, []])
async def test_no_calls_however_they_are_written(
    server: FakeOpenAI, chat: OpenAIChat, calls: Any
) -> None:
    server.add(completion({"content": "Hello.", "tool_calls": calls}))
    reply = await chat.reply(ASKING)
    assert (reply.text, reply.calls, reply.finish) == ("Hello.", (), "stop")


@pytest.mark.parametrize("finish", ["stop", None, "", "eos_token"])
async def test_calls_count_with_any_finish_reason(
    server: FakeOpenAI, chat: OpenAIChat, finish: str | None
) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "pay", "arguments": "{}"}}
    server.add(completion({"content": None, "tool_calls": [call]}, finish))
    reply = await chat.reply(ASKING)
    assert (reply.finish, made(reply)) == ("calls", [("pay", "{}")])


@pytest.mark.parametrize("arguments", ["", "  ", None, {}])
async def test_no_arguments_are_an_empty_object(
    server: FakeOpenAI, chat: OpenAIChat, arguments: Any
) -> None:
    call = {"id": "a", "function": {"name": "pay", "arguments": arguments}}
    server.add(completion({"tool_calls": [call]}))
    assert made(await chat.reply(ASKING)) == [("pay", "{}")]


async def test_arguments_as_an_object(server: FakeOpenAI, chat: OpenAIChat) -> None:
    call = {"id": "a", "function": {"name": "pay", "arguments": {"amount": 1}}}
    server.add(completion({"tool_calls": [call]}))
    assert made(await chat.reply(ASKING)) == [("pay", '{"amount":1}')]


@pytest.mark.parametrize("ids", [(None, None), ("", ""), ("a", "a"), ("old", "b"), ("b", None)])
async def test_missing_or_repeated_ids_are_replaced(
    server: FakeOpenAI, chat: OpenAIChat, ids: tuple[str | None, ...]
) -> None:
    calls = [{"id": id, "function": {"name": "pay", "arguments": "{}"}} for id in ids]
    server.add(completion({"tool_calls": calls}))
    old = {"id": "old", "name": "pay", "arguments": "{}"}
    history = [
        HI,
        {"role": "assistant", "content": "", "calls": [old]},
        {"role": "tool", "call_id": "old", "name": "pay", "content": "ok"},
    ]
    reply = await chat.reply(ModelRequest(messages=history))
    given = [call.id for call in reply.calls]
    assert len({*given, "old", ""}) == 4
    for before, after in zip(ids, given, strict=True):
        assert after == before or before in (None, "", "old", "a")


async def test_legacy_function_call_is_read(server: FakeOpenAI, chat: OpenAIChat) -> None:
    old = {"name": "pay", "arguments": '{"amount":1}'}
    server.add(
        completion({"content": None, "function_call": old}, "function_call"),
        stream(
            {"function_call": {"name": "pay", "arguments": ""}},
            {"function_call": {"arguments": '{"amount"'}},
            {"function_call": {"arguments": ":1}"}},
            finish="function_call",
        ),
    )
    for reply in (await chat.reply(ASKING), await streamed(chat)):
        assert (reply.finish, made(reply)) == ("calls", [("pay", '{"amount":1}')])
        assert reply.calls[0].id.startswith("call_")


async def test_content_in_parts(server: FakeOpenAI, chat: OpenAIChat) -> None:
    parts = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Hello."}]
    server.add(
        completion({"content": parts}), stream({"content": parts}, {"content": "!"}, finish="stop")
    )
    assert (await chat.reply(ASKING)).text == "Hello."
    assert (await streamed(chat)).text == "Hello.!"


@pytest.mark.parametrize("finish", ["length", "max_tokens", "model_length"])
async def test_length_finish_reasons_are_mapped(
    server: FakeOpenAI, chat: OpenAIChat, finish: str
) -> None:
    server.add(completion({"content": "cu"}, finish))
    assert (await chat.reply(ASKING)).finish == "length"


async def test_extra_fields_of_call_are_sent_back(server: FakeOpenAI, chat: OpenAIChat) -> None:
    signed = {"extra_content": {"google": {"thought_signature": "s1"}}}
    function = {"name": "pay", "arguments": "{}"}
    call = {"id": "a", "type": "function", "function": function, **signed}
    plain = {"id": "b", "type": "function", "function": function}
    server.add(
        completion({"tool_calls": [call, plain]}),
        stream({"tool_calls": [{**call, "index": 0}]}, {"tool_calls": [{**plain, "index": 1}]}),
    )
    for reply in (await chat.reply(ASKING), await streamed(chat)):
        server.add("ok")
        results = [
            {"role": "tool", "call_id": c.id, "name": "pay", "content": "ok"} for c in reply.calls
        ]
        await chat.reply(ModelRequest(messages=[HI, reply.message, *results]))
        assert server.bodies[-1]["messages"][1]["tool_calls"] == [call, plain]


async def test_details_of_the_usage(server: FakeOpenAI, chat: OpenAIChat) -> None:
    usage = {
        "prompt_tokens": 5,
        "completion_tokens": 2,
        "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": None},
        "completion_tokens_details": {"reasoning_tokens": 1},
        "cost": 0.1,
    }
    server.add(completion({"content": "ok"}, usage=usage))
    assert (await chat.reply(ASKING)).usage == {
        "input_tokens": 5,
        "output_tokens": 2,
        "total_tokens": 7,
        "cached_tokens": 4,
        "reasoning_tokens": 1,
    }


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (Raw("<html>Welcome</html>"), "not its API; check base_url"),
        (Raw({"choices": []}), "sent no answer"),
        (Raw({"error": {"message": "out of credit"}}), "failed: out of credit"),
        (
            Raw({"choices": [{"error": {"message": "upstream"}, "finish_reason": "error"}]}),
            "failed: upstream",
        ),
        (
            completion({"tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "x"}}]}),
            "a call of type 'custom', which the agent cannot run",
        ),
    ],
)
async def test_invalid_answers_of_the_server(
    server: FakeOpenAI, chat: OpenAIChat, raw: Raw, message: str
) -> None:
    server.add(raw)
    with pytest.raises(ModelError, match=message):
        await chat.reply(ASKING)


# --- in pieces ---

TWO = [("pay", '{"amount":1}'), ("look", '{"at":"x"}')]


@pytest.mark.parametrize(
    "deltas",
    [
        pytest.param(
            [
                piece("pay", "", index=0, id="a"),
                piece("look", "", index=1, id="b"),
                piece("", '{"at"', index=1),
                piece("", '{"amount"', index=0),
                piece("", ':"x"}', index=1),
                piece("", ":1}", index=0),
            ],
            id="interleaved",
        ),
        pytest.param(
            [piece("look", '{"at":"x"}', index=1, id="b"), piece("pay", '{"amount":1}', index=0)],
            id="second first",
        ),
        pytest.param(
            [
                piece("pay", '{"amount"', id="a"),
                piece("", ":1}"),
                piece("look", '{"at":', id="b"),
                piece("", '"x"}'),
            ],
            id="no index",
        ),
        pytest.param(
            [
                piece("pay", '{"amount":1}', index=0, id="a"),
                piece("look", '{"at":"x"}', index=0, id="b"),
            ],
            id="one index for all",
        ),
        pytest.param(
            [piece("pay", '{"amount":1}'), piece("look", '{"at":"x"}')], id="neither index nor id"
        ),
        pytest.param(
            [
                piece("pay", '{"amount"', index=0, id="a"),
                piece("pay", ":1}", index=0, id="a"),
                piece("look", '{"at"', index=1, id="b"),
                piece("look", ':"x"}', index=1, id="b"),
            ],
            id="id and name in every piece",
        ),
        pytest.param(
            [
                piece("pay", '{"amount"', index=0, id="a1"),
                piece("", ":1}", index=0, id="a2"),
                piece("look", '{"at"', index=1, id="b1"),
                piece("", ':"x"}', index=1, id="b2"),
            ],
            id="a new id in every piece",
        ),
        pytest.param(
            [
                piece("pay", '{"amount"', index=0, id="a"),
                piece("", ":1}", index=1),
                piece("look", '{"at"', index=2, id="b"),
                piece("", ':"x"}', index=3),
            ],
            id="an index that counts pieces",
        ),
        pytest.param(
            [
                {
                    "content": None,
                    "tool_calls": [
                        {"function": {"name": "pay", "arguments": {"amount": 1}}},
                        {"function": {"name": "look", "arguments": {"at": "x"}}},
                    ],
                }
            ],
            id="all at once, arguments as objects",
        ),
    ],
)
async def test_calls_in_pieces(
    server: FakeOpenAI, chat: OpenAIChat, deltas: list[dict[str, Any]]
) -> None:
    server.add(stream(*deltas))
    reply = await streamed(chat)
    assert made(reply) == TWO
    assert len({call.id for call in reply.calls}) == 2


async def test_two_calls_without_index_stay_separate(server: FakeOpenAI, chat: OpenAIChat) -> None:
    server.add(stream(piece("pay", '{"amount":1}'), piece("pay", '{"amount":2}')))
    assert made(await streamed(chat)) == [("pay", '{"amount":1}'), ("pay", '{"amount":2}')]


async def test_call_without_arguments_is_read(server: FakeOpenAI, chat: OpenAIChat) -> None:
    server.add(stream(piece("pay", "", index=0, id="a"), piece("look", None, index=1, id="b")))
    assert made(await streamed(chat)) == [("pay", "{}"), ("look", "{}")]


async def test_empty_chunks_and_other_choices_are_ignored(
    server: FakeOpenAI, chat: OpenAIChat
) -> None:
    other = {"index": 1, "delta": {"content": "not me"}, "finish_reason": "stop"}
    server.add(
        Raw(
            events=(
                {"id": "x", "choices": [], "prompt_filter_results": []},
                {"choices": [other], "obfuscation": "abc"},
                {"choices": None},
                {"choices": [{"index": 0, "delta": None}]},
                _chunk({"content": "me", "tool_calls": None}, None),
                _chunk({}, "stop"),
                "[DONE]",
            )
        )
    )
    assert (await streamed(chat)).text == "me"


HEL = _chunk({"content": "Hel"}, None)


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ((HEL, {"error": {"message": "overloaded"}}), "failed: overloaded"),
        ((HEL, "{not json"), "not its API"),
        ((HEL, "[DONE]"), "stopped in the middle"),
        ((HEL,), "stopped in the middle"),
        ((), "stopped in the middle"),
    ],
    ids=["error", "no json", "done too early", "ends", "empty"],
)
async def test_failed_chat_stream_raises(
    server: FakeOpenAI, chat: OpenAIChat, events: tuple[Any, ...], message: str
) -> None:
    server.add(Raw(events=events))
    with pytest.raises(ModelError, match=message):
        await streamed(chat)


async def test_answer_without_stream_raises(server: FakeOpenAI, chat: OpenAIChat) -> None:
    server.add(Raw("<html>Welcome</html>"))
    with pytest.raises(ModelError, match="middle of its answer"):
        await streamed(chat)


# --- the Responses API ---


async def test_last_event_without_output_is_completed(
    server: FakeOpenAI, responses: OpenAIResponses, ask: Callable
) -> None:
    call = {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "pay", "arguments": ""}
    server.add(
        Raw(
            body={"id": "r", "output": [call]},
            events=(
                {"type": "response.news.nobody.knows", "sequence_number": 1},
                {"type": "response.output_item.done", "output_index": 0, "item": call},
                {"type": "response.completed", "response": {"id": "r", "output": []}},
            ),
        )
    )
    reply = await ask(responses, ASKING)
    assert (made(reply), reply.finish) == ([("pay", "{}")], "calls")


@pytest.mark.parametrize(
    ("events", "message"),
    [
        (({"type": "error", "code": "x", "message": "overloaded"},), "failed: overloaded"),
        (
            ({"type": "response.failed", "response": {"status": "failed", "error": {}}},),
            "the response is failed",
        ),
        (({"type": "response.created", "response": {}},), "middle of its answer"),
    ],
)
async def test_failed_response_stream_raises(
    server: FakeOpenAI, responses: OpenAIResponses, events: Any, message: str
) -> None:
    server.add(Raw(events=events))
    with pytest.raises(ModelError, match=message):
        _ = [event async for event in responses.stream(ASKING)]
