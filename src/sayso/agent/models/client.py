"""The official ``openai`` client: found late, kept for as long as its event loop, its errors ours.

An async client belongs to the event loop that opened its connections. Where every call has a loop
of its own (``run_sync``), one client for all would find its connections dead; so each loop has its
own, and closes it when the loop shuts down.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from importlib.util import find_spec
from json import JSONDecodeError
from typing import Any, TypeAlias

from sayso.agent.models.base import ModelError
from sayso.errors import SaysoError

Loop: TypeAlias = asyncio.AbstractEventLoop

INSTALL = 'pip install "sayso[openai]"'

_HINTS = {
    401: "check OPENAI_API_KEY, or pass api_key=",
    403: "the key may not use this model",
    404: "check the model's name, OPENAI_BASE_URL or base_url=",
    429: "the retries of the client are used up; wait, or raise max_retries",
}


def require_openai() -> None:
    """Fail now, with the line to type, where the package is missing."""
    if find_spec("openai") is None:
        raise SaysoError(f"this model needs the openai package: {INSTALL}")


def load_openai() -> Any:
    """Import the package, or say what to type."""
    try:
        return import_module("openai")
    except ImportError as error:
        raise SaysoError(f"this model needs the openai package: {INSTALL}") from error


class Client:
    """One OpenAI endpoint: a client of the caller's, or one of our own per event loop."""

    def __init__(self, client: Any, base_url: str | None, api_key: str | None) -> None:
        if client is None:
            require_openai()
        elif isinstance(client, load_openai().OpenAI):
            raise SaysoError("this model needs an async client: pass openai.AsyncOpenAI(…)")
        self._given = client
        self._options = {"base_url": base_url, "api_key": api_key}
        self._kept: dict[Loop, tuple[Any, AsyncGenerator[None, None]]] = {}

    async def create(self, name: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Make one request and return its JSON; ``path`` names the client's own method."""
        with _as_model_errors(name):
            return _as_dict(name, await (await self._method(path))(**body))

    @asynccontextmanager
    async def stream(
        self, name: str, path: str, body: Mapping[str, Any]
    ) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """Make one streamed request and give its events as JSON."""
        with _as_model_errors(name):
            events = await (await self._method(path))(**body, stream=True)
            if not hasattr(events, "__aiter__"):
                raise _unreadable(name)
            async with events:
                yield (_as_dict(name, event) async for event in events)

    async def _method(self, path: str) -> Any:
        found = await self._client()
        for part in path.split("."):
            found = getattr(found, part)
        return found.create

    async def _client(self) -> Any:
        if self._given is not None:
            return self._given
        loop = asyncio.get_running_loop()
        if loop not in self._kept:
            self._forget_closed_loops()
            client = load_openai().AsyncOpenAI(**self._options)
            keeper = self._keep(loop, client)
            self._kept[loop] = (client, keeper)
            await anext(keeper)
        return self._kept[loop][0]

    async def _keep(self, loop: Loop, client: Any) -> AsyncGenerator[None, None]:
        # A loop that shuts down closes the async generators begun on it: that is our only signal.
        try:
            yield
        finally:
            self._kept.pop(loop, None)
            await client.close()

    def _forget_closed_loops(self) -> None:
        for loop in [loop for loop in self._kept if loop.is_closed()]:
            self._kept.pop(loop, None)


@contextmanager
def _as_model_errors(name: str) -> Iterator[None]:
    openai = load_openai()
    try:
        yield
    except openai.APIStatusError as error:
        hint = _HINTS.get(error.status_code, "")
        text = f"{name} answered {error.status_code}: {_said(error)}" + (
            f" ({hint})" if hint else ""
        )
        raise ModelError(text, status=error.status_code, code=error.code or "") from error
    except openai.APIConnectionError as error:
        where = error.request.url
        raise ModelError(f"{name} cannot be reached at {where}: {_said(error)}") from error
    except openai.OpenAIError as error:
        code = getattr(error, "code", None) or ""
        raise ModelError(f"{name} failed: {_said(error)}", code=code) from error
    except (JSONDecodeError, UnicodeDecodeError) as error:
        raise _unreadable(name) from error
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        hint = "a setting that only the server knows goes into extra_body="
        raise ModelError(f"{name}: {error} ({hint})") from error


def _hint(status: int) -> str:
    return f" ({_HINTS[status]})" if status in _HINTS else ""


def _said(error: Exception) -> str:
    body = getattr(error, "body", None)
    said = body.get("message") if isinstance(body, dict) else None
    reason = error.__cause__ if error.__cause__ is not None else ""
    return str(said or f"{error} {reason}").strip()


def _as_dict(name: str, answer: Any) -> dict[str, Any]:
    if not hasattr(answer, "to_dict"):  # the client hands on what is not JSON as text
        raise _unreadable(name)
    data: dict[str, Any] = answer.to_dict(mode="json", warnings=False)
    return data


def _unreadable(name: str) -> ModelError:
    return ModelError(f"{name} answered something that is not its API; check base_url=")
