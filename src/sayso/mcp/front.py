"""The client-facing side: results, waiting clients, tickets, and serving on stdio or HTTP.

The proxy and the advisory server share all of it. Both protocol eras are served at once: the SDK
tells them apart by the first message on stdio, and by the headers over HTTP.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import mcp_types as types
import uvicorn
from mcp.server import Server
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.models import InitializationOptions
from mcp.server.stdio import stdio_server
from pydantic import AnyHttpUrl

from sayso import codec
from sayso import text as visible
from sayso.errors import NotAllowed, SaysoError
from sayso.gate.framework import Outcome
from sayso.inbox import authenticate
from sayso.mcp.calls import Calls, FrontCaller, OpenCall
from sayso.mcp.state import STDIO, Connections
from sayso.mcp.upstreams import off_loop
from sayso.rows import CallStatus
from sayso.stores.base import Store
from sayso.sync import read

log = logging.getLogger("sayso.mcp")

#: What a call of a tool returns. A dict is the server's own result, passed on unchanged.
CallResult = types.CallToolResult | types.InputRequiredResult | dict[str, Any]

WAIT_TOOL = "sayso_wait"
#: The key of the notice about an edit, for clients that show structured content only.
NOTICE = "sayso_notice"
#: How long an unknown ticket takes, so that a model that repeats one does not spin.
_UNKNOWN_SECONDS = 3.0
#: How long a token counts as valid after it was checked.
_TOKEN_SECONDS = 30.0
#: After this many waits without a decision, tell the model to stop.
_MAX_TIMED_OUT_WAITS = 3


# -- results


def text_result(text: str, *, error: bool = False) -> types.CallToolResult:
    content: list[types.ContentBlock] = [types.TextContent(type="text", text=text)]
    return types.CallToolResult(content=content, is_error=error)


async def result_of(outcome: Outcome) -> CallResult:
    """Return an outcome, whose value is JSON text, as the result of a tool call."""
    if not outcome.ok:
        return text_result(outcome.text, error=True)
    if outcome.by_person:
        return text_result(outcome.text)
    value = await off_loop(len(outcome.value), codec.loads, outcome.value)
    if not isinstance(value, dict) or "content" not in value:
        return text_result(outcome.text)
    result = {**value, "resultType": "complete"}
    return with_notice(result, outcome.notice) if outcome.notice else result


def with_notice(result: dict[str, Any], notice: str) -> dict[str, Any]:
    """Return a result that says what a person changed, in both of its forms.

    Some clients show the model the structured content instead of the texts.
    """
    changed = {**result, "content": [{"type": "text", "text": notice}, *result["content"]]}
    structured = result.get("structuredContent")
    if isinstance(structured, dict):
        changed["structuredContent"] = {NOTICE: notice, **structured}
    elif structured is not None:
        changed["structuredContent"] = {NOTICE: notice, "result": structured}
    return changed


#: The tool that waits for a call that returned a ticket.
WAIT = types.Tool(
    name=WAIT_TOOL,
    title="Wait for an approval",
    description=(
        "Wait for a call that needs a person's approval. Pass the ticket that the call "
        "returned. Returns the result of the call once it was approved and has run."
    ),
    input_schema={
        "type": "object",
        "properties": {"ticket": {"type": "string", "description": "The ticket of the call."}},
        "required": ["ticket"],
        "additionalProperties": False,
    },
    annotations=types.ToolAnnotations(read_only_hint=True),
)


# -- a client that waits


class CallResponder:
    """Holds clients while a call waits, returns tickets, and finds calls by ticket."""

    def __init__(self, hold: Callable[[str], float]) -> None:
        #: Returns how many seconds to hold a client with this name.
        self._hold_seconds = hold
        #: By ticket: resolved with the answer to a question that a modern client was asked.
        self._questions: dict[str, asyncio.Future[Any]] = {}

    async def hold(self, calls: Calls, call: OpenCall, caller: FrontCaller) -> CallResult:
        """Hold a client until its call has ended or its limit is reached; then return a ticket."""
        outcome = await calls.wait(call, caller, self._hold_seconds(caller.name))
        if outcome is not None:
            return await result_of(outcome)
        if caller.question is not None:
            params, future = caller.question
            self._questions[call.ticket] = future
            future.add_done_callback(lambda _: self._questions.pop(call.ticket, None))
            return types.InputRequiredResult(
                input_requests={"elicitation": types.ElicitRequest(params=params)},
                request_state=call.ticket,
            )
        return text_result(await _ticket_message(calls, call))

    async def resume_with_answer(
        self,
        calls: Calls,
        caller: FrontCaller,
        params: types.CallToolRequestParams,
        model_args: str,
    ) -> CallResult:
        """Pass on the answer of a modern client's user, and hold the client again."""
        ticket = params.request_state or ""
        call = await calls.find(ticket)
        if call is None or (call.target.name, call.model_args) != (params.name, model_args):
            return await self._unknown_ticket(calls, ticket)
        future = self._questions.get(ticket)
        answer = (params.input_responses or {}).get("elicitation")
        if future is not None and not future.done():
            cancelled = types.ElicitResult(action="cancel")
            future.set_result(answer if isinstance(answer, types.ElicitResult) else cancelled)
        return await self.hold(calls, call, caller)

    async def wait_for_ticket(
        self, calls: Calls, caller: FrontCaller, args: dict[str, Any]
    ) -> CallResult:
        """Serve ``sayso_wait``: hold the client for the call with this ticket."""
        ticket = args.get("ticket")
        if not isinstance(ticket, str) or not ticket:
            await asyncio.sleep(_UNKNOWN_SECONDS)
            return text_result(
                f'Pass the ticket that the call returned: {WAIT_TOOL}({{"ticket": "..."}}).',
                error=True,
            )
        call = await calls.find(ticket.strip())
        if call is None:
            return await self._unknown_ticket(calls, ticket.strip())
        return await self.hold(calls, call, caller)

    async def _unknown_ticket(self, calls: Calls, ticket: str) -> CallResult:
        delivered = calls.delivered(ticket)
        if delivered is not None:
            return await result_of(delivered)
        await asyncio.sleep(_UNKNOWN_SECONDS)
        return text_result(
            f"There is no call with the ticket {visible.inline(ticket)[:80]!r} here. Do not try "
            "other tickets: make the call again instead.",
            error=True,
        )


async def _ticket_message(calls: Calls, call: OpenCall) -> str:
    row = await calls.status(call)
    request = "" if row is None else f" (request {row.id})"
    how = f'{WAIT_TOOL} with {{"ticket": "{call.ticket}"}}'
    if row is not None and row.status is CallStatus.IN_DOUBT:
        return (
            f"It is unknown whether {call.target.name} took effect{request}: its server stopped "
            "in the middle of the call. A person has to find out and settle it. Do not make the "
            f"call again. To wait for the outcome, call {how}."
        )
    if row is None:
        return (
            f"Not run: Sayso cannot be reached, so nobody could be asked about {call.target.name} "
            "yet. Tell the user. People are asked as soon as Sayso is back; to wait for the "
            f"result, call {how}."
        )
    if call.running:
        return (
            f"{call.target.name} is still running{request}. It runs once: do not make the call "
            f"again. To wait for its result, call {how}."
        )
    if call.timed_out_waits > _MAX_TIMED_OUT_WAITS:
        return (
            f"Still no decision on {call.target.name}{request}. Stop waiting now: tell the user "
            "that this call needs approval in the Sayso inbox, and end your turn. Nothing is "
            f"lost: the call runs once when it is approved. Later, {how} returns its result."
        )
    return (
        f"Not run yet: {call.target.name} needs a person's approval{request}, and nobody has "
        "decided. The request stays open and runs once when it is approved. Do other work that "
        "does not depend on it, or tell the user that it needs approval. Do not repeat the call. "
        f"To wait for its result, call {how}."
    )


# -- serving


class FrontServer(Server[Any]):
    """A server that announces its changes to clients of both eras, and knows their connections."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(name, **options)
        self.connections = Connections()

    async def run(self, *args: Any, **options: Any) -> None:
        """Serve one client over a pair of streams."""
        with self.connections.live(STDIO):
            await super().run(*args, **options)

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        changes = NotificationOptions(
            prompts_changed=True, resources_changed=True, tools_changed=True
        )
        return super().create_initialization_options(
            notification_options or changes, experimental_capabilities, extensions
        )


def agent_of(default: str) -> str:
    """Return the agent that makes this request: the token's, if the front authenticates."""
    token = get_access_token()
    return default if token is None else token.client_id


class StoreTokens:
    """Accepts the agent tokens of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the agent that a token belongs to, or None if it is no valid agent token."""
        try:
            principal = await read(self._store, authenticate, self._store, token)
        except NotAllowed:
            return None
        if principal.role != "agent":
            return None
        name = principal.name
        return AccessToken(token=token, client_id=name, scopes=["agent"], subject=name)


class ServerTokens:
    """Accepts the agent tokens of ``sayso serve``, by asking it."""

    def __init__(self, server: str, accepted: Callable[[str, str], None]) -> None:
        self._client = httpx.AsyncClient(base_url=server, timeout=10)
        #: Called with the name that an agent gets here, and its token.
        self._accepted = accepted
        #: Until when each checked token counts as valid, by the agent's name.
        self._valid_until: dict[str, float] = {}

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the agent that a token belongs to, or None if it is no valid agent token."""
        name = f"agent-{codec.sha256(token.encode('utf-8', 'replace'))[:16]}"
        if self._valid_until.get(name, 0.0) < time.monotonic():
            headers = {"Authorization": f"Bearer {token}"}
            try:
                # Only agents may wait for a request. This one does not exist.
                answer = await self._client.get(
                    "/api/requests/req_0000000000000000/wait?timeout=0", headers=headers
                )
            except httpx.HTTPError as error:
                log.warning("a token could not be checked: %s", error)
                return None
            if answer.status_code != 404:
                return None
            self._valid_until[name] = time.monotonic() + _TOKEN_SECONDS
        self._accepted(name, token)
        return AccessToken(token=token, client_id=name, scopes=["agent"], subject=name)


async def serve_stdio(server: Server[Any]) -> None:
    """Serve one client on standard input and output, until it closes the input."""
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


class _HttpServer(uvicorn.Server):
    """A server that leaves signals to us: uvicorn would raise them again after it has stopped."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve_http(
    server: FrontServer,
    listening: socket.socket,
    tokens: Any | None,
    ready: Callable[[str], None],
) -> None:
    """Serve clients over streamable HTTP, until a signal arrives."""
    host, port = listening.getsockname()[:2]
    base = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    auth = None
    if tokens is not None:
        auth = AuthSettings(
            issuer_url=AnyHttpUrl(base),
            resource_server_url=AnyHttpUrl(f"{base}/mcp"),
            required_scopes=["agent"],
            validate_token_resource=False,  # the store's tokens name no resource
        )
    app = server.streamable_http_app(host=host, auth=auth, token_verifier=tokens)
    config = uvicorn.Config(
        server.connections.counting(app),
        log_config=None,
        access_log=False,
        lifespan="on",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    runner = _HttpServer(config)
    stopped = asyncio.ensure_future(stopped_by_signals().wait())
    serving = asyncio.create_task(runner.serve(sockets=[listening]))
    while not runner.started and not serving.done():
        await asyncio.sleep(0.005)
    if runner.started:
        ready(f"{base}/mcp")
    await asyncio.wait({stopped, serving}, return_when=asyncio.FIRST_COMPLETED)
    runner.should_exit = True
    await serving


def stopped_by_signals() -> asyncio.Event:
    """Return an event that SIGTERM and Ctrl-C set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


def bind(host: str, port: int) -> socket.socket:
    """Return a socket to listen on. Raise ``SaysoError`` if the address is in use."""
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except (OSError, OverflowError) as error:
        raise SaysoError(
            f"cannot listen on {host}:{port} ({error}): use another --listen"
        ) from None
