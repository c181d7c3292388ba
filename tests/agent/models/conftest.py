"""A fake server for each test, and the models that talk to it with the real client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import openai
import pytest
from fake_openai import FakeOpenAI

from sayso.agent.models import (
    Model,
    ModelReply,
    ModelRequest,
    OpenAIChat,
    OpenAIResponses,
    TextDelta,
)

Ask = Callable[[Model, ModelRequest], Awaitable[ModelReply]]


@pytest.fixture
def server() -> Iterator[FakeOpenAI]:
    with FakeOpenAI() as server:
        yield server
    assert server.errors == []


@pytest.fixture
async def client(server: FakeOpenAI) -> AsyncIterator[openai.AsyncOpenAI]:
    """The real client, without loading certificates, which takes longer than any test."""
    http = openai.DefaultAsyncHttpxClient(verify=False)
    url = server.base_url
    async with openai.AsyncOpenAI(base_url=url, api_key="test", http_client=http) as client:
        yield client


@pytest.fixture
def chat(client: openai.AsyncOpenAI) -> OpenAIChat:
    return OpenAIChat("gpt-4o", client=client)


@pytest.fixture
def responses(client: openai.AsyncOpenAI) -> OpenAIResponses:
    return OpenAIResponses("gpt-5", client=client)


@pytest.fixture(params=["chat", "responses"])
def either(request: pytest.FixtureRequest) -> Model:
    return request.getfixturevalue(request.param)


async def whole(model: Model, request: ModelRequest) -> ModelReply:
    return await model.reply(request)


async def streamed(model: Model, request: ModelRequest) -> ModelReply:
    """Return the reply of a stream, after checking that its pieces add up to it."""
    *pieces, last = [piece async for piece in model.stream(request)]
    assert isinstance(last, ModelReply)
    assert all(isinstance(piece, TextDelta) for piece in pieces)
    assert "".join(piece.text for piece in pieces) == last.text
    return last


@pytest.fixture(params=[whole, streamed], ids=["whole", "streamed"])
def ask(request: pytest.FixtureRequest) -> Ask:
    return request.param
