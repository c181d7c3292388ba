"""What the two OpenAI APIs share: the official client, and the parts of the wire format.

An async client belongs to the event loop that opened its connections. ``run_sync`` uses a new loop
for every call, so a single client would find its connections dead. ``OpenAIModel`` therefore keeps
one client per loop and closes it when the loop shuts down.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from json import JSONDecodeError
from operator import attrgetter
from typing import Any, ClassVar, TypeAlias

from sayso import codec
from sayso.agent.models.base import ModelError, ModelRequest, ToolSpec
from sayso.errors import SaysoError
from sayso.schema.strict import nodes

Loop: TypeAlias = asyncio.AbstractEventLoop

_MISSING = 'this model needs the openai package: pip install "sayso[openai]"'

_HINTS = {
    401: "check OPENAI_API_KEY, or pass api_key=",
    403: "the key may not use this model",
    404: "check the model's name, OPENAI_BASE_URL or base_url=",
    429: "the client's retries are used up; wait, or raise max_retries",
}

# --- the client ---


class OpenAIModel:
    """What the models behind both APIs share: the client you pass in, or our own per event loop.

    The ``openai`` client reads the key and the address from its own environment variables.
    """

    provider: ClassVar[str]
    #: The client's method, dotted.
    path: ClassVar[str]

    def __init__(
        self,
        model: str,
        *,
        client: Any = None,
        base_url: str | None = None,
        api_key: str | None = None,
        **settings: Any,
    ) -> None:
        if client is None:
            if find_spec("openai") is None:
                raise SaysoError(_MISSING)
        elif isinstance(client, _openai().OpenAI):
            raise SaysoError("this model needs an async client: pass openai.AsyncOpenAI(…)")
        self.name = f"{self.provider}:{model}"
        self._model = model
        self._settings = settings
        self._given = client
        self._options = {"base_url": base_url, "api_key": api_key}
        self._kept: dict[Loop, tuple[Any, AsyncGenerator[None, None]]] = {}

    async def _create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send one request and return its JSON."""
        with _as_model_errors(self.name):
            return _as_dict(self.name, await (await self._method())(**body))

    @asynccontextmanager
    async def _events(
        self, body: Mapping[str, Any]
    ) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """Send one streaming request and yield an iterator over its events as JSON."""
        with _as_model_errors(self.name):
            events = await (await self._method())(**body, stream=True)
            if not hasattr(events, "__aiter__"):
                raise _unreadable(self.name)
            async with events:
                yield (_as_dict(self.name, event) async for event in events)

    async def _method(self) -> Any:
        return attrgetter(f"{self.path}.create")(await self._client())

    async def _client(self) -> Any:
        if self._given is not None:
            return self._given
        loop = asyncio.get_running_loop()
        if loop not in self._kept:
            for closed in [other for other in self._kept if other.is_closed()]:
                self._kept.pop(closed, None)
            client = _openai().AsyncOpenAI(**self._options)
            keeper = self._close_with_loop(loop, client)
            self._kept[loop] = (client, keeper)
            await anext(keeper)
        return self._kept[loop][0]

    async def _close_with_loop(self, loop: Loop, client: Any) -> AsyncGenerator[None, None]:
        # A loop that shuts down closes the async generators begun on it. No other signal exists.
        try:
            yield
        finally:
            self._kept.pop(loop, None)
            await client.close()


def _openai() -> Any:
    try:
        return import_module("openai")
    except ImportError as error:
        raise SaysoError(_MISSING) from error


@contextmanager
def _as_model_errors(name: str) -> Iterator[None]:
    openai = _openai()
    try:
        yield
    except openai.APIStatusError as error:
        hint = _HINTS.get(error.status_code, "")
        text = f"{name} answered {error.status_code}: {_message_of(error)}"
        text += f" ({hint})" if hint else ""
        raise ModelError(text, status=error.status_code, code=error.code or "") from error
    except openai.APIConnectionError as error:
        where = error.request.url
        raise ModelError(f"{name} cannot be reached at {where}: {_message_of(error)}") from error
    except openai.OpenAIError as error:
        code = getattr(error, "code", None) or ""
        raise ModelError(f"{name} failed: {_message_of(error)}", code=code) from error
    except (JSONDecodeError, UnicodeDecodeError) as error:
        raise _unreadable(name) from error
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        hint = "put settings that only the server knows into extra_body="
        raise ModelError(f"{name}: {error} ({hint})") from error


def _message_of(error: Exception) -> str:
    body = getattr(error, "body", None)
    message = body.get("message") if isinstance(body, dict) else None
    reason = error.__cause__ if error.__cause__ is not None else ""
    return str(message or f"{error} {reason}").strip()


def _as_dict(name: str, answer: Any) -> dict[str, Any]:
    if not hasattr(answer, "to_dict"):  # the client returns a body that is not JSON as text
        raise _unreadable(name)
    data: dict[str, Any] = answer.to_dict(mode="json", warnings=False)
    return data


def _unreadable(name: str) -> ModelError:
    return ModelError(f"{name} answered something that is not its API; check base_url=")


# --- the wire format ---

_MODES = ("auto", "none", "required")
_DETAILS = tuple(f"{kind}_tokens_details" for kind in ("prompt", "completion", "input", "output"))
_COUNTS = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}


def arguments_text(value: Any) -> str:
    """Return a call's arguments as JSON text. Missing arguments become an empty object."""
    if isinstance(value, str):
        return value if value.strip() else "{}"
    return "{}" if value is None else codec.dumps(value)


def content_text(content: Any) -> str:
    """Return the text of a message or delta. Some servers send it as typed parts."""
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content if part.get("type") == "text")
    return content or ""


def token_counts(usage: Any) -> dict[str, int]:
    """Return the provider's usage under the names that both APIs share here."""
    counts: dict[str, int] = {}
    if not isinstance(usage, Mapping):
        return counts
    parts = [usage, *(usage[key] for key in _DETAILS if isinstance(usage.get(key), Mapping))]
    for part in parts:
        for key, value in part.items():
            if isinstance(value, int):
                counts[_COUNTS.get(key, key)] = value
    return counts


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """How one of the two APIs writes tools and tool choices."""

    tool: Callable[[ToolSpec], dict[str, Any]]
    named: Callable[[str], dict[str, Any]]
    allowed: Callable[[str, list[Any]], dict[str, Any]]


def tool_options(
    request: ModelRequest, settings: dict[str, Any], form: ToolFormat
) -> dict[str, Any]:
    """Return the tool fields of a request body. OpenAI refuses them when there are no tools.

    Tools in the settings (hosted tools, for example) are removed from there and listed after the
    agent's own.
    """
    tools = [*(form.tool(tool) for tool in request.tools), *(settings.pop("tools", None) or ())]
    choice = request.tool_choice
    options: dict[str, Any] = {"tools": tools} if tools else {}
    if tools and request.parallel_tool_calls is not None:
        options["parallel_tool_calls"] = request.parallel_tool_calls
    if choice != "auto" and (tools or choice != "none"):
        options["tool_choice"] = _tool_choice(request, form)
    return options


def _tool_choice(request: ModelRequest, form: ToolFormat) -> Any:
    """Convert a tool choice from either API's form to the form of this one."""
    choice = request.tool_choice
    if isinstance(choice, str):
        return choice if choice in _MODES else form.named(_checked_name(choice, request))
    if choice.get("type") != "allowed_tools":
        return _chosen_tool(choice, request, form)
    inner = choice.get("allowed_tools", choice)
    tools = [_chosen_tool(tool, request, form) for tool in inner["tools"]]
    return form.allowed(inner.get("mode", "auto"), tools)


def _chosen_tool(
    tool: str | Mapping[str, Any], request: ModelRequest, form: ToolFormat
) -> dict[str, Any]:
    if isinstance(tool, str):
        return form.named(_checked_name(tool, request))
    if tool.get("type") == "function":
        name = tool.get("function", tool).get("name", "")
        return form.named(_checked_name(name, request))
    return dict(tool)  # possibly a hosted tool, which only the provider knows


def _checked_name(name: str, request: ModelRequest) -> str:
    names = [tool.name for tool in request.tools]
    if name not in names:
        raise ModelError(
            f"tool_choice {name!r} is neither auto, none, required nor a tool of this agent "
            f"({', '.join(names) or 'it has none'})"
        )
    return name


def output_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the named schema of a structured answer, strict if the schema allows it."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", str(schema.get("title", ""))).strip("_")[:64]
    plain = dict(schema)
    strict = all(
        node.get("additionalProperties") is False
        and set(node.get("required", ())) == set(node.get("properties", {}))
        for node in nodes(plain, plain.get("$defs", {}))
        if node.get("type") == "object" or "properties" in node
    )
    return {"name": name or "answer", "schema": plain, "strict": strict}
