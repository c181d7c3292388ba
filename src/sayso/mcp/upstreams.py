"""``Upstream``: the connection to one MCP server behind the proxy, and what the server offers.

A client of the SDK must be entered and left in one task, so each upstream has a task that owns its
client and connects again when the connection breaks. ``call`` and the other methods may be called
from any task.

A call whose connection breaks raises ``ConnectionLost``: the server may have acted on it. A call
that could not be sent raises ``Unreachable``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Literal, ParamSpec, Protocol, TypeVar

import httpx2
import mcp.client.stdio as stdio_transport
import mcp_types as types
from anyio.abc import ObjectReceiveStream
from mcp import Client, StdioServerParameters
from mcp.client import ClientRequestContext
from mcp.client.session import IncomingMessage
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp.shared.subscriptions import ResourceUpdated
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from sayso.errors import NotExecuted, SaysoError, describe_error
from sayso.mcp.config import VERSION, UpstreamConfig
from sayso.sync import to_thread

log = logging.getLogger("sayso.mcp")

T = TypeVar("T")
P = ParamSpec("P")
ListKind = Literal["prompts", "resources", "resource_templates"]

#: Seconds to wait for a server that is being started or reconnected.
CONNECT_SECONDS = 30.0
#: Seconds between attempts to reconnect.
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 15.0
#: A connection that lasted this many seconds resets the pause between attempts.
_STABLE_SECONDS = 10.0
#: Errors with which a server or its transport gives up on a call that may have had an effect.
_NO_REPLY = (types.REQUEST_TIMEOUT, types.INTERNAL_ERROR, types.PARSE_ERROR)
#: How many resources of one server clients may watch.
_MAX_WATCHED = 1000
#: No server needs more pages than this; one that never ends its list must not hang the proxy.
_MAX_PAGES = 100
#: Seconds that a server may take to exit, after its input is closed and after SIGTERM. With the
#: SDK's own values the proxy could not end within two seconds.
_EXIT_SECONDS = 0.7
_KILL_SECONDS = 0.3

#: Converting more characters than this takes so long that other calls would wait.
_LARGE = 100_000
#: The largest message of a server over HTTP, in bytes. The SDK's limit is 1 MB.
LARGEST_MESSAGE = 64 << 20

_UNAUTHORIZED = (
    "it answered 401 Unauthorized: put a valid token into its headers. The proxy does not sign in "
    "with OAuth; for a server that requires it, use a command that does, such as npx mcp-remote URL"
)

#: The lists that a server can report changes of.
_LISTS = ("tools", "prompts", "resources")
_SERVER_INFO = "io.modelcontextprotocol/serverInfo"

#: The listener of the call that this task makes.
_listening: ContextVar[Listener | None] = ContextVar("sayso_mcp_listening", default=None)


class Listener(Protocol):
    """Receives what a server sends while a call runs, for the client that made the call."""

    @property
    def connection(self) -> str | None:
        """The client's connection. None if no client waits for the call now."""

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Pass on progress."""

    async def elicit(
        self, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Ask the client's user a question of the server."""


class Unreachable(NotExecuted):
    """A server, or its tool, is not there. Nothing was sent to it."""


class ConnectionLost(SaysoError):
    """The connection to a server broke during a call, which may have taken effect."""


class UpstreamError(SaysoError):
    """The server answered with a protocol error."""


class ReplyLost(UpstreamError, ConnectionError):
    """The server, or something in front of it, gave up in the middle of a call."""


class Upstream:
    """One server. ``start`` connects, ``close`` disconnects and ends its process."""

    def __init__(
        self,
        config: UpstreamConfig,
        changed: Callable[[Upstream, str], None],
        updated: Callable[[str], None],
    ) -> None:
        self.config = config
        self.name = config.name
        #: Called with ``tools``, ``prompts`` or ``resources`` after that list may have changed.
        self._changed = changed
        #: Called with the URI of a watched resource after it has changed.
        self._updated = updated
        #: The resources that clients watch.
        self._watched: dict[str, None] = {}  # in order
        #: Tasks that each read one stream of changes, from a server of the modern era.
        self._followers: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._client: Client | None = None
        #: Set while connected.
        self._ready = asyncio.Event()
        #: Set once the first attempt to connect has succeeded or failed.
        self._attempted = asyncio.Event()
        #: Set when the connection breaks.
        self._lost = asyncio.Event()
        self._error = "it is starting"
        #: What to do about credentials that the server asked for.
        self._unauthorized = ""
        self.tools: tuple[types.Tool, ...] = ()
        self.instructions = ""
        #: The lists that changed and were not read again yet, and the task that reads them.
        self._stale: set[str] = set()
        self._relisting: asyncio.Task[None] | None = None
        #: The listeners of the calls that run.
        self._running: list[Listener] = []

    # -- the connection

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep_connected(), name=f"sayso-mcp-{self.name}")

    async def close(self) -> None:
        """Disconnect. A server that this process started is ended."""
        # The SDK's client can swallow a cancellation while it disconnects, so that alone is not
        # enough to end the task.
        self._closing = True
        self._lost.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def wait_first_attempt(self) -> None:
        """Wait until the first attempt to connect has succeeded or failed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._attempted.wait()

    @property
    def up_to_date(self) -> bool:
        """Whether every list that changed has been read again."""
        return self._relisting is None or self._relisting.done()

    @property
    def error(self) -> str:
        """Why it is not connected, or an empty string."""
        return "" if self._client is not None else self._error

    async def _keep_connected(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            self._lost.clear()
            self._unauthorized = ""
            began = time.monotonic()
            try:
                async with self._connect() as client:
                    await self._list_tools(client)
                    self.instructions = client.instructions or ""
                    self._client = client
                    if self._stale:  # it announced changes while connecting
                        self._schedule_relist("tools")
                    self._ready.set()
                    self._attempted.set()
                    for kind in _LISTS:
                        self._changed(self, kind)
                    async with self._following(client):
                        await self._lost.wait()
                    self._error = "the connection broke"
            except Exception as error:
                self._error = self._unauthorized or _failure_reason(error)
                if not self._closing:
                    log.warning("%s: %s; trying again in %.1f s", self.name, self._error, pause)
            finally:
                self._client = None
                self._ready.clear()
                self._attempted.set()
            if self._closing:
                return
            # A server that dies again soon after it was started must not be started in a loop.
            lasted = time.monotonic() - began > _STABLE_SECONDS
            pause = _FIRST_PAUSE if lasted else min(pause * 2, _LONGEST_PAUSE)
            await asyncio.sleep(pause)

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[Client]:
        client = Client(
            self._transport(),
            mode=self.config.protocol,
            client_info=types.Implementation(name="sayso-proxy", version=VERSION),
            elicitation_callback=self._elicit,
            message_handler=self._on_message,
            cache=None,
        )
        async with contextlib.AsyncExitStack() as stack:
            async with asyncio.timeout(CONNECT_SECONDS):
                await stack.enter_async_context(client)
            # The proxy passes results on unchanged; checking them is up to the client.
            setattr(client.session, "validate_tool_result", _accept_result)  # noqa: B010
            yield client

    @asynccontextmanager
    async def _transport(self) -> AsyncGenerator[Any, None]:
        config = self.config
        async with contextlib.AsyncExitStack() as stack:
            if config.url is not None:
                http = create_mcp_http_client(headers=dict(config.headers))
                http.event_hooks["response"].append(self._check_authorization)
                await stack.enter_async_context(http)
                opened = streamable_http_client(
                    config.url, http_client=http, max_sse_event_size=LARGEST_MESSAGE
                )
            else:
                assert config.command is not None
                stdio_transport.PROCESS_TERMINATION_TIMEOUT = _EXIT_SECONDS
                stdio_transport.FORCE_KILL_TIMEOUT = _KILL_SECONDS
                opened = stdio_transport.stdio_client(
                    StdioServerParameters(
                        command=config.command,
                        args=list(config.args),
                        env=dict(config.env),
                        cwd=config.cwd,
                    ),
                    errlog=sys.stderr,
                )
            read, write = await stack.enter_async_context(opened)
            yield _MonitoredStream(read, self._lost), write

    async def _check_authorization(self, response: httpx2.Response) -> None:
        """Note that the server asks for credentials: the SDK's error does not say so."""
        if response.status_code == httpx2.codes.UNAUTHORIZED:
            self._unauthorized = _UNAUTHORIZED

    @asynccontextmanager
    async def _following(self, client: Client) -> AsyncIterator[None]:
        """Follow changes. A server of the modern era reports them only on request."""
        if _is_modern(client):
            offered = [(kind, getattr(client.server_capabilities, kind)) for kind in _LISTS]
            followed = [kind for kind, has in offered if has and has.list_changed]
            if followed:
                kinds = {f"{kind}_list_changed": kind in followed for kind in _LISTS}
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CONNECT_SECONDS):
                        await self._follow(client, **kinds).wait()
                for kind in followed:  # nothing reported what changed before the stream was open
                    self._schedule_relist(kind)
        for uri in list(self._watched):
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await self._subscribe(client, uri)
            except Exception as error:
                log.warning("%s: %s is not watched: %s", self.name, uri, _failure_reason(error))
            else:
                self._updated(uri)  # it may have changed while nothing watched it
        try:
            yield
        finally:
            followers = set(self._followers)
            for follower in followers:
                follower.cancel()
            if followers:
                await asyncio.wait(followers)

    def _follow(self, client: Client, **wanted: Any) -> asyncio.Event:
        """Read a stream of changes in a task. The event is set once it is open, or has failed."""
        begun = asyncio.Event()

        async def read() -> None:
            try:
                async with client.listen(**wanted) as events:
                    begun.set()
                    async for event in events:
                        if isinstance(event, ResourceUpdated):
                            self._updated(event.uri)
                        else:
                            name = type(event).__name__
                            self._schedule_relist(name.removesuffix("ListChanged").lower())
            except Exception as error:
                why = describe_error(error)
                log.warning("%s: its changes are not followed: %s", self.name, why)
            finally:
                begun.set()

        follower = asyncio.create_task(read())
        self._followers.add(follower)
        follower.add_done_callback(self._followers.discard)
        return begun

    async def watch(self, uri: str) -> None:
        """Watch a resource for changes, also after a reconnect."""
        if uri in self._watched:
            return
        if len(self._watched) >= _MAX_WATCHED:
            raise UpstreamError(f"{self.name}: {_MAX_WATCHED} resources are watched already")
        await self.send(lambda client: self._subscribe(client, uri))
        self._watched[uri] = None

    async def _subscribe(self, client: Client, uri: str) -> None:
        offered = client.server_capabilities.resources
        if offered is None or not offered.subscribe:
            raise UpstreamError(f"{self.name}: it does not report changes of resources")
        if _is_modern(client):
            await self._follow(client, resource_subscriptions=[uri]).wait()
        else:
            request = types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri))
            await client.session.send_request(request, types.EmptyResult)

    async def _on_message(self, message: IncomingMessage) -> None:
        """Record what changed. Must not wait: the reply comes on this connection."""
        modern = self._client is not None and _is_modern(self._client)
        if isinstance(message, types.ResourceUpdatedNotification) and not modern:
            self._updated(str(message.params.uri))  # a modern server's are in its stream
        elif isinstance(message, types.ToolListChangedNotification):
            self._schedule_relist("tools")
        elif isinstance(message, types.PromptListChangedNotification):
            self._schedule_relist("prompts")
        elif isinstance(message, types.ResourceListChangedNotification):
            self._schedule_relist("resources")

    def _schedule_relist(self, kind: str) -> None:
        """Read a list again, in a task. Several changes in a row are read once."""
        self._stale.add(kind)
        if self._relisting is None or self._relisting.done():
            self._relisting = asyncio.create_task(self._relist())

    async def _relist(self) -> None:
        while self._stale:
            kind = self._stale.pop()
            client = self._client
            if client is None:
                return  # connecting reads everything
            if kind == "tools":
                try:
                    await self._list_tools(client)
                except Exception as error:
                    reason = _failure_reason(error)
                    log.warning("%s: its tools cannot be listed: %s", self.name, reason)
                    continue
            self._changed(self, kind)

    async def _list_tools(self, client: Client) -> None:
        if client.server_capabilities.tools is None:
            self.tools = ()
            return
        pages = await _pages(client.list_tools)
        self.tools = tuple(tool for page in pages for tool in page.tools)

    # -- using it

    async def client(self) -> Client:
        """Return the connected client, waiting for a reconnect. Raise ``Unreachable``."""
        if self._client is None or self._lost.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CONNECT_SECONDS):
                    while self._client is None or self._lost.is_set():
                        await self._ready.wait()
                        await asyncio.sleep(0)
                        if self._lost.is_set():
                            await asyncio.sleep(0.05)
        if self._client is None:
            raise Unreachable(
                f"the MCP server {self.name!r} is not connected ({self._error}), so nothing was "
                "sent to it: see the log of sayso proxy, and make the call again"
            )
        return self._client

    async def call(self, tool: types.Tool, args: dict[str, Any], listener: Listener) -> str:
        """Call a tool, and return its result as JSON text.

        Raise ``Unreachable`` if the server no longer declares it like this: it may have been
        restarted while the call waited for it.
        """

        async def send(client: Client) -> types.CallToolResult:
            if tool not in self.tools:
                raise Unreachable(
                    f"the MCP server {self.name!r} changed its tool {tool.name!r}, so nothing was "
                    "sent to it: list the tools, and make the call again"
                )
            token = _listening.set(listener)
            self._running.append(listener)
            try:
                return await client.call_tool(tool.name, args, progress_callback=listener.progress)
            finally:
                self._running.remove(listener)
                _listening.reset(token)

        result = await self.send(send)
        contents = [getattr(block, "resource", block) for block in result.content]
        size = sum(
            len(getattr(content, key, ""))
            for content in contents
            for key in ("text", "data", "blob")
        )
        return await off_loop(size, _result_text, result)

    async def list_all(self, kind: ListKind) -> list[Any]:
        """Return what it has of a kind; none if it is not connected, or does not answer."""
        client = self._client
        capability = "prompts" if kind == "prompts" else "resources"
        if client is None or getattr(client.server_capabilities, capability) is None:
            return []
        try:
            pages = await self.send(lambda client: _pages(getattr(client, f"list_{kind}")))
        except SaysoError as error:
            # Many servers have resources and no templates.
            if not (kind == "resource_templates" and isinstance(error, UpstreamError)):
                log.warning("%s", error)
            return []
        return [item for page in pages for item in getattr(page, kind)]

    async def send(self, send: Callable[[Client], Awaitable[T]]) -> T:
        """Send a request. After a restart of the server, send it again: it had not arrived."""
        again = False
        while True:
            client = await self.client()
            try:
                return await send(client)
            except MCPError as error:
                if error.code == types.CONNECTION_CLOSED:
                    self._lost.set()
                    raise ConnectionLost(
                        f"the connection to the MCP server {self.name!r} broke during the call"
                    ) from error
                if error.code in _NO_REPLY:
                    raise ReplyLost(f"{self.name}: {error.message}") from error
                forgotten = error.code == types.INVALID_REQUEST and "Session" in error.message
                if not forgotten or again:
                    raise UpstreamError(f"{self.name}: {error.message}") from error
                self._lost.set()  # it does not know this session: connect again
                again = True

    async def _elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Pass a question of the server to the client whose call it is about.

        A server of the handshake era does not say which call its question is about. If calls of
        several connections run, none of them may see the question.
        """
        listener = _listening.get()
        if listener is None and len({other.connection for other in self._running}) == 1:
            listener = self._running[-1]
        if listener is None:
            return types.ElicitResult(action="cancel")
        return await listener.elicit(params)


async def off_loop(size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function that converts text of this size.

    If it is large, call it in an OS thread, so that other calls continue.
    """
    if size > _LARGE:
        return await to_thread(function, *args, **kwargs)
    return function(*args, **kwargs)


def _result_text(result: types.CallToolResult) -> str:
    # Both describe this connection; the proxy's own answers describe the proxy.
    meta = {key: value for key, value in (result.meta or {}).items() if key != _SERVER_INFO}
    passed = result.model_copy(update={"meta": meta or None})
    return passed.model_dump_json(by_alias=True, exclude_none=True, exclude={"result_type"})


def _is_modern(client: Client) -> bool:
    return client.protocol_version in MODERN_PROTOCOL_VERSIONS


async def _accept_result(name: str, result: types.CallToolResult) -> None:
    """Accept any result."""


async def _pages(fetch: Callable[..., Awaitable[Any]]) -> Sequence[Any]:
    pages: list[Any] = []
    cursor = None
    for _ in range(_MAX_PAGES):
        page = await fetch(cursor=cursor)
        pages.append(page)
        cursor = page.next_cursor
        if cursor is None:
            break
    return pages


def _failure_reason(error: BaseException) -> str:
    """Return a short reason why a connection failed."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    if isinstance(error, FileNotFoundError):
        return f"the command {error.filename!r} was not found"
    if isinstance(error, TimeoutError):
        return f"it did not answer within {CONNECT_SECONDS:.0f} seconds"
    if isinstance(error, MCPError):
        return error.message
    if isinstance(error, httpx2.HTTPError):
        return f"it cannot be reached: {error}"
    return describe_error(error)


class _MonitoredStream(ObjectReceiveStream[SessionMessage | Exception]):
    """A stream that sets an event when it ends."""

    def __init__(self, stream: Any, ended: asyncio.Event) -> None:
        self._stream = stream
        self._ended = ended

    @property
    def last_context(self) -> Any:
        """The context of the sender, on streams that have one."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        try:
            received: SessionMessage | Exception = await self._stream.receive()
        except BaseException:
            self._ended.set()
            raise
        return received

    async def aclose(self) -> None:
        await self._stream.aclose()
