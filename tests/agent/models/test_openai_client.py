"""The client behind the models: errors, retries, and one client per event loop."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace

import openai
import pytest
from fake_openai import Cut, FakeOpenAI, HttpError, Slow

from sayso.agent.models import (
    Model,
    ModelError,
    ModelRequest,
    OpenAIChat,
    OpenAIResponses,
    resolve,
)
from sayso.errors import SaysoError

ASKING = ModelRequest(messages=[{"role": "user", "content": "Hi"}])


# --- errors ---


@pytest.mark.parametrize("status", [429, 500, 503, 408, 409])
async def test_client_retries_transient_errors(
    server: FakeOpenAI, either: Model, ask: Callable, status: int
) -> None:
    server.add(HttpError(status), HttpError(status), "ok")
    assert (await ask(either, ASKING)).text == "ok"
    assert len(server.requests) == 3


async def test_exhausted_retries_raise(server: FakeOpenAI, either: Model, ask: Callable) -> None:
    server.add(*[HttpError(429, "Slow down.", "rate_limit_exceeded")] * 4)
    with pytest.raises(ModelError, match=r"answered 429: Slow down\. \(the client") as caught:
        await ask(either, ASKING)
    assert (caught.value.status, caught.value.code) == (429, "rate_limit_exceeded")
    assert isinstance(caught.value.__cause__, openai.RateLimitError)
    assert server.left == 1


@pytest.mark.parametrize(
    ("status", "hint"), [(401, "OPENAI_API_KEY"), (403, "may not use"), (404, "model's name")]
)
async def test_error_contains_a_hint(
    server: FakeOpenAI, either: Model, status: int, hint: str
) -> None:
    server.add(HttpError(status, "No."))
    with pytest.raises(ModelError, match=hint) as caught:
        await either.reply(ASKING)
    assert isinstance(caught.value, SaysoError)


async def test_bad_request_has_the_servers_message(server: FakeOpenAI, chat: OpenAIChat) -> None:
    lost = {"role": "tool", "call_id": "x", "name": "pay", "content": "ok"}
    with pytest.raises(ModelError, match="must be a response to a preceeding message"):
        await chat.reply(ModelRequest(messages=[*ASKING.messages, lost]))
    assert len(server.requests) == 1


async def test_unknown_setting_is_refused(server: FakeOpenAI, either: Model, ask: Callable) -> None:
    with pytest.raises(ModelError, match=r"argument 'top_z'.* extra_body="):
        await ask(either, replace(ASKING, settings={"top_z": 1}))
    server.add("ok")
    await ask(either, replace(ASKING, settings={"extra_body": {"top_z": 1}}))
    assert server.bodies[0]["top_z"] == 1


async def test_unreachable_server_is_named() -> None:
    settings = {"base_url": "http://127.0.0.1:9/v1", "api_key": "test"}
    client = openai.AsyncOpenAI(**settings, max_retries=0)
    async with client:
        model = OpenAIChat("m", client=client)
        with pytest.raises(
            ModelError, match=r"openai:m cannot be reached at http://127\.0\.0\.1:9"
        ):
            await model.reply(ASKING)


async def test_broken_stream_raises(server: FakeOpenAI, either: Model) -> None:
    server.add(Cut("A rather long text.", after=4))
    with pytest.raises(ModelError, match="cannot be reached"):
        _ = [piece async for piece in either.stream(ASKING)]
    assert len(server.requests) == 1


async def test_truncated_stream_raises(server: FakeOpenAI, either: Model) -> None:
    server.add(Cut("A rather long text.", after=4, politely=True))
    with pytest.raises(ModelError, match="stopped in the middle of its answer"):
        _ = [piece async for piece in either.stream(ASKING)]


async def test_broken_body_is_requested_again(server: FakeOpenAI, either: Model) -> None:
    server.add(Cut("A rather long text."), "ok")
    assert (await either.reply(ASKING)).text == "ok"


async def test_slow_request_can_be_cancelled(server: FakeOpenAI, either: Model) -> None:
    server.add(Slow("late", 30))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(either.reply(ASKING), 0.3)


async def test_client_time_out_raises(server: FakeOpenAI) -> None:
    server.add(*[Slow("late", 30)] * 3)
    client = openai.AsyncOpenAI(base_url=server.base_url, api_key="test", max_retries=0)
    async with client:
        model = OpenAIChat("m", client=client, timeout=0.2)
        with pytest.raises(ModelError, match="timed out"):
            await model.reply(ASKING)


async def test_stream_can_be_closed_early(server: FakeOpenAI, either: Model) -> None:
    server.add("A rather long text.", "ok")
    async with aclosing(either.stream(ASKING)) as pieces:  # type: ignore[type-var]
        async for _ in pieces:
            break
    assert (await either.reply(ASKING)).text == "ok"


# --- the client's life ---


@pytest.mark.parametrize("cls", [OpenAIChat, OpenAIResponses])
def test_each_event_loop_has_its_own_client(server: FakeOpenAI, cls: type[OpenAIChat]) -> None:
    """As with ``run_sync``; an open connection would be a ResourceWarning, and so an error."""
    server.add("one", "two", "three")
    model = cls("m", base_url=server.base_url, api_key="test")
    said = [asyncio.run(model.reply(ASKING)).text for _ in range(3)]
    gc.collect()
    assert said == ["one", "two", "three"]
    assert model._kept == {}


async def test_requests_of_one_loop_share_a_client(server: FakeOpenAI) -> None:
    server.add(*["ok"] * 5)
    model = OpenAIChat("m", base_url=server.base_url, api_key="test")
    await asyncio.gather(*(model.reply(ASKING) for _ in range(5)))
    assert len(model._kept) == 1
    assert len(server.requests) == 5


def test_client_of_closed_loop_is_forgotten(server: FakeOpenAI) -> None:
    server.add("one", "two")
    model = OpenAIChat("m", base_url=server.base_url, api_key="test")
    loop = asyncio.new_event_loop()
    loop.run_until_complete(model.reply(ASKING))
    client, _ = model._kept[loop]
    loop.run_until_complete(client.close())
    loop.close()
    assert asyncio.run(model.reply(ASKING)).text == "two"
    assert model._kept == {}


async def test_passed_client_stays_open(server: FakeOpenAI) -> None:
    server.add("ok")
    async with openai.AsyncOpenAI(base_url=server.base_url, api_key="test") as client:
        assert (await OpenAIResponses("m", client=client).reply(ASKING)).text == "ok"
        assert not client.is_closed()


def test_sync_client_is_refused() -> None:
    with openai.OpenAI(api_key="test") as client, pytest.raises(SaysoError, match="AsyncOpenAI"):
        OpenAIChat("m", client=client)


async def test_environment_gives_key_and_address(
    server: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-env")
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    server.add("ok")
    assert (await resolve("openai:gpt-4o").reply(ASKING)).text == "ok"
    assert server.requests[0].headers["authorization"] == "Bearer from-env"


async def test_missing_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ModelError, match="api_key"):
        await OpenAIChat("m").reply(ASKING)


# --- names ---


def test_names_of_models() -> None:
    assert isinstance(resolve("openai:gpt-4o"), OpenAIChat)
    assert isinstance(resolve("openai-responses:gpt-5"), OpenAIResponses)
    assert resolve("openai:ft:gpt-4o:me").name == "openai:ft:gpt-4o:me"
    for name in ("openai:gpt-4o", "openai-responses:gpt-5"):
        assert resolve(name).name == name


def test_model_object_is_used_unchanged(chat: OpenAIChat) -> None:
    assert resolve(chat) is chat


@pytest.mark.parametrize("name", ["gpt-4o", "anthropic:claude", "openai:", ":x", ""])
def test_invalid_model_name_is_refused(name: str) -> None:
    with pytest.raises(ModelError, match=r"openai:NAME .* openai-responses:NAME .* Model object"):
        resolve(name)


def test_other_object_is_no_model() -> None:
    with pytest.raises(ModelError, match="int is not a model"):
        resolve(3)  # type: ignore[arg-type]


# --- the package ---


def test_openai_package_is_imported_late() -> None:
    code = (
        "import sys\n"
        "from sayso.agent.models import resolve\n"
        "import sayso.testing.scripted_model\n"
        "resolve('openai:gpt-4o')\n"
        "assert 'openai' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


@pytest.mark.parametrize("cls", [OpenAIChat, OpenAIResponses])
def test_missing_package_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, cls: type[OpenAIChat]
) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(SaysoError, match=r'pip install "sayso\[openai\]"'):
        cls("m")
    with pytest.raises(SaysoError, match=r'pip install "sayso\[openai\]"'):
        cls("m", client=object())
