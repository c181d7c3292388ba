"""``Proxy``: one MCP endpoint in front of several servers, gated by a policy.

Every call of a tool goes through the gate. A tool that no rule mentions needs approval; what a
server says about its own tools counts only with ``trust_hints``. Everything else (resources,
prompts, completions, progress, elicitations) is passed through unchanged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import mcp_types as types
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError

from sayso import codec
from sayso import text as visible
from sayso.client import RemoteGate
from sayso.errors import InvalidCall, Paused, SaysoError
from sayso.gate import Gate
from sayso.gate.framework import FrameworkTool
from sayso.gate.gate import policy_terms
from sayso.gate.plan import Plan
from sayso.mcp.calls import Calls, Context, FrontCaller, OpenCall, ServerConnectionLost
from sayso.mcp.config import VERSION, Config, OnAbandon
from sayso.mcp.front import (
    WAIT,
    WAIT_TOOL,
    CallResponder,
    CallResult,
    FrontServer,
    agent_of,
    result_of,
    text_result,
)
from sayso.mcp.state import INSTRUCTIONS, AcceptedDeclarations, Pin, StateFile, declaration_of
from sayso.mcp.upstreams import ConnectionLost, Listener, ListKind, Upstream
from sayso.rows import Call
from sayso.types import Declared, Terms, ToolCall, Verdict

log = logging.getLogger("sayso.mcp")

#: Model APIs refuse tools with longer names.
_MAX_TOOL_NAME = 64
#: How long to wait for lists that are being read again.
_SETTLE_SECONDS = 2.0
#: How long clients wait for the instructions of servers that were never connected before.
_INSTRUCTIONS_SECONDS = 5.0
_CHANGED_RULE = "the tool has changed"
_INSTRUCTIONS = (
    "Some tools need a person's approval before they run. Such a call may return a ticket instead "
    f"of its result: call {WAIT_TOOL} with it later, and do not repeat the call."
)


@dataclass(eq=False)
class ProxyTool:
    """A tool of a server, under the name that clients see."""

    upstream: Upstream
    tool: types.Tool
    gated: FrameworkTool
    pin: Pin

    @property
    def name(self) -> str:
        return self.gated.name

    @property
    def listed(self) -> types.Tool:
        """The tool for clients: as people have accepted it.

        A held call returns a ticket, an edited one a notice: neither fits an output schema. Tasks
        are not passed on.
        """
        hidden = {"output_schema": None, "execution": None}
        accepted = types.Tool.model_validate({**self.pin.accepted, "name": self.name})
        return accepted.model_copy(update=hidden)

    @property
    def on_abandon(self) -> OnAbandon:
        return self.upstream.config.on_abandon

    def plan(self, gate: Gate | RemoteGate, args: str, listener: Listener) -> Plan:
        changes = self.pin.changes

        async def run(row: Call) -> str:
            open_call = listener if isinstance(listener, OpenCall) else None
            if open_call is not None:
                open_call.running = True
            try:
                passed = self.gated.framework_args(codec.loads(row.args))
                return await self.upstream.call(self.tool, passed, listener)
            except BaseException as error:
                if open_call is not None:
                    open_call.running = False
                if isinstance(error, ConnectionLost):
                    raise ServerConnectionLost(str(error)) from error
                raise

        async def terms(values: dict[str, Any]) -> Terms:
            assert isinstance(gate, Gate)
            call = ToolCall(self.name, values)
            needs = self.gated.needs_approval
            judged = await policy_terms(gate, call, self.gated.own, needs)
            if changes and judged.verdict is Verdict.ALLOW:
                return replace(judged, verdict=Verdict.ASK, rule=_CHANGED_RULE)
            return judged

        async def preview(_: str, revision: int) -> str:
            return codec.dumps({"The server changed this tool": changes})

        return Plan(
            key="",
            kind="approval",
            args=args,
            agent=gate.agent,
            terms=terms,
            tool=self.gated.stored,
            tool_name=self.name,
            normalize_args=lambda text: self.gated.intake(codec.loads(text)),
            preview=preview if changes else None,
            run=run,
            # A result is JSON text already.
            dump=str,
            load=str,
            options={"effect": self.gated.own.effect},
        )


class Proxy:
    """The endpoint. ``running`` connects the servers; ``server`` is what to serve."""

    def __init__(
        self,
        config: Config,
        gate_of: Callable[[str], Gate | RemoteGate],
        state: StateFile | None = None,
    ) -> None:
        self.config = config
        #: Keeps what a store would, if the gates have none.
        self._state = state
        #: Returns the gate of an agent.
        self._gate_of = gate_of
        self._upstreams = [
            Upstream(
                server,
                lambda upstream, kind: self._start(self._read_again(upstream, kind)),
                lambda uri: self._start(self._announce_update(uri)),
            )
            for server in config.upstreams
        ]
        self._tools: dict[str, ProxyTool] = {}
        self._accepted: dict[str, AcceptedDeclarations] = {}
        #: What each server tells the model about itself.
        self._instructions: dict[str, Pin] = {}
        self._calls: dict[str, Calls] = {}
        self._responder = CallResponder(config.hold_of)
        self._changes = InMemorySubscriptionBus()
        self._listeners = ListenHandler(self._changes)
        #: Clients of the handshake era, to tell about changes, by the id of their session.
        self._legacy: dict[str, Any] = {}
        #: Those of them that watch a resource, by its URI.
        self._watchers: dict[str, dict[str, Any]] = {}
        self._resource_owners: dict[str, Upstream] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._tools_lock = asyncio.Lock()
        self._listed: dict[str, asyncio.Event] = {
            server.name: asyncio.Event() for server in config.upstreams
        }
        self.server = FrontServer(
            "sayso-proxy",
            version=VERSION,
            instructions=_INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,  # it may return a plain dict
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_completion=self._complete,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
            on_subscriptions_listen=self._listen,
        )

    @asynccontextmanager
    async def running(self, agents: tuple[str, ...] = ()) -> AsyncIterator[None]:
        """Connect the servers, and resume the calls that these agents left open."""
        self.server.connections.share(self._gate_of(self.config.agent), self._state)
        for agent in {self.config.agent, *agents}:
            self._calls_of(agent)
        for upstream in self._upstreams:
            upstream.start()
        try:
            await self._wait_for_instructions()
            yield
        finally:
            await self._close()

    async def _close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        for calls in self._calls.values():
            with contextlib.suppress(SaysoError):
                await calls.close()
        await asyncio.gather(*(upstream.close() for upstream in self._upstreams))

    # -- what the servers offer

    async def _read_again(self, upstream: Upstream, kind: str) -> None:
        try:
            if kind == "tools":
                async with self._tools_lock:  # an older list must not replace a newer one
                    await self._update_tools(upstream)
                for calls in self._calls.values():
                    calls.update_tools()
                    await calls.resume_open_calls()
            await self._announce(kind)
        except SaysoError as error:
            log.error("%s: its %s cannot be offered: %s", upstream.name, kind, error)
        finally:
            if kind == "tools":
                self._listed[upstream.name].set()

    async def _update_tools(self, upstream: Upstream) -> None:
        prefix = self.config.prefix_of(upstream.config)
        offered: dict[str, ProxyTool] = {}
        for tool in upstream.tools:
            name = f"{prefix}{tool.name}"
            other = self._tools.get(name) or offered.get(name)
            in_use = other is not None and other.upstream is not upstream
            if name == WAIT_TOOL or in_use or self._owner_of(name) is not upstream:
                log.error("%s: skipped its tool %s: the name is in use", upstream.name, name)
                continue
            if len(name) > _MAX_TOOL_NAME:
                log.warning("%s: %s is longer than model APIs accept", upstream.name, name)
            if other is not None and other.tool == tool:
                offered[name] = other  # unchanged: its calls continue
                continue
            try:
                offered[name] = _proxy_tool(upstream, tool, name)
            except (SaysoError, ValueError, TypeError) as error:
                log.error("%s: skipped its tool %s: %s", upstream.name, name, error)
        accepted = self._accepted_by(upstream)
        pins = await accepted.pin(
            {proxied.tool.name: proxied.pin.declared for proxied in offered.values()}
            | {INSTRUCTIONS: {"instructions": upstream.instructions}}
        )
        self._instructions[upstream.name] = pins.pop(INSTRUCTIONS)
        for proxied in offered.values():
            proxied.pin = pins[proxied.tool.name]
        others = {n: tool for n, tool in self._tools.items() if tool.upstream is not upstream}
        self._tools = {**others, **offered}
        await self._ask_about_changes()

    def _accepted_by(self, upstream: Upstream) -> AcceptedDeclarations:
        if upstream.name not in self._accepted:
            gate = self._gate_of(self.config.agent)
            self._accepted[upstream.name] = AcceptedDeclarations(gate, upstream.name, self._state)
        return self._accepted[upstream.name]

    async def _ask_about_changes(self) -> None:
        """Ask people to accept what has changed, and serve what they have accepted."""
        for tool in list(self._tools.values()):
            await self._ask_about_tool(tool)
        for name, pin in list(self._instructions.items()):
            if pin.changes:
                await self._accepted[name].ask(pin, f"instructions of {name}")
        texts = [
            f"The MCP server {name} says:\n{pin.accepted['instructions']}"
            for name, pin in self._instructions.items()
            if pin.accepted["instructions"]
        ]
        self.server.instructions = "\n\n".join([_INSTRUCTIONS, *texts])

    async def _ask_about_tool(self, tool: ProxyTool) -> None:
        if not tool.pin.changes:
            return
        if await self._accepted[tool.upstream.name].ask(tool.pin, f"tool {tool.name}"):
            await self._announce("tools")

    async def _wait_for_instructions(self) -> None:
        """Have each server's instructions when clients connect: accepted before, or first seen."""
        unseen: list[Upstream] = []
        for upstream in self._upstreams:
            accepted = self._accepted_by(upstream)
            await accepted.load()
            declared = accepted.newest(INSTRUCTIONS)
            if declared is None:
                unseen.append(upstream)
            else:
                pin = Pin(INSTRUCTIONS, declared, declared)
                self._instructions.setdefault(upstream.name, pin)
        await self._ask_about_changes()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_INSTRUCTIONS_SECONDS):
                await self._wait_until_listed(unseen)

    async def _announce(self, kind: str) -> None:
        """Tell clients of both eras that a list has changed."""
        events: dict[str, ServerEvent] = {
            "tools": ToolsListChanged(),
            "prompts": PromptsListChanged(),
            "resources": ResourcesListChanged(),
        }
        await self._changes.publish(events[kind])
        for key, session in list(self._legacy.items()):
            send = {
                "tools": session.send_tool_list_changed,
                "prompts": session.send_prompt_list_changed,
                "resources": session.send_resource_list_changed,
            }[kind]
            try:
                await send()
            except Exception:  # the client has left
                self._legacy.pop(key, None)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _announce_update(self, uri: str) -> None:
        """Tell the clients that watch a resource that it has changed."""
        await self._changes.publish(ResourceUpdated(uri))
        watchers = self._watchers.get(uri, {})
        for key, session in list(watchers.items()):
            try:
                await session.send_resource_updated(uri)
            except Exception:  # the client has left
                watchers.pop(key, None)

    async def _wait_for_servers(self) -> None:
        """Wait until each server has connected, or has failed to once."""
        await self._wait_until_listed(self._upstreams)
        # Some servers announce their tools one by one while they start.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_SECONDS):
                while self._tasks or not all(server.up_to_date for server in self._upstreams):
                    await asyncio.sleep(0.01)

    async def _wait_until_listed(self, upstreams: Sequence[Upstream]) -> None:
        await asyncio.gather(*(upstream.wait_first_attempt() for upstream in upstreams))
        for upstream in upstreams:
            if not upstream.error:
                await self._listed[upstream.name].wait()

    def _calls_of(self, agent: str) -> Calls:
        if agent not in self._calls:
            gate = self._gate_of(agent)
            session = f"tools:{self.config.session}"
            connections = self.server.connections
            self._calls[agent] = Calls(
                gate, agent, session, self._tool_of, connections, self._state
            )
        return self._calls[agent]

    def _tool_of(self, row: Call | str) -> ProxyTool | None:
        return self._tools.get(row if isinstance(row, str) else row.tool)

    def _register_legacy_client(self, ctx: Context) -> None:
        """Register a client of the handshake era, to tell it about changes."""
        caller = FrontCaller(ctx)
        if not caller.modern:
            self._legacy[caller.connection] = ctx.session
            while len(self._legacy) > 1000:
                self._legacy.pop(next(iter(self._legacy)))

    # -- tools

    async def _list_tools(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        await self._wait_for_servers()
        await self._ask_about_changes()
        self._register_legacy_client(ctx)
        listed = [proxied.listed for proxied in self._tools.values()]
        return types.ListToolsResult(tools=[*listed, WAIT])

    async def _call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> CallResult:
        try:
            return await self._handle_call(FrontCaller(ctx), params)
        except InvalidCall as error:
            return text_result(f"The call cannot be read: {error}", error=True)
        except SaysoError as error:
            return text_result(f"Nothing was run: {error}", error=True)
        except Paused as paused:  # a BaseException would end the whole server
            return text_result(f"Nothing was run: {paused}", error=True)

    async def _handle_call(
        self, caller: FrontCaller, params: types.CallToolRequestParams
    ) -> CallResult:
        agent = agent_of(self.config.agent)
        is_known = agent in self._calls
        calls = self._calls_of(agent)
        if not is_known:  # an agent that had no token when the proxy started
            await calls.resume_open_calls()
        if params.name == WAIT_TOOL:
            return await self._responder.wait_for_ticket(calls, caller, params.arguments or {})
        tool = self._tools.get(params.name)
        if tool is None:
            await self._wait_for_servers()
            tool = self._tools.get(params.name)
        if tool is None:
            return text_result(self._no_tool(params.name), error=True)
        await self._ask_about_tool(tool)
        model_args = _intake(tool, params.arguments or {}, calls.gate)
        if params.request_state is not None:
            return await self._responder.resume_with_answer(calls, caller, params, model_args)
        read = await calls.free_read(tool, model_args, caller)
        if read is not None:
            return await result_of(read)
        call = await calls.open(tool, model_args, caller)
        if isinstance(call, str):
            return text_result(call, error=True)
        return await self._responder.hold(calls, call, caller)

    def _no_tool(self, name: str) -> str:
        short_name = visible.inline(name)[:80]
        for upstream in self._upstreams:
            prefix = self.config.prefix_of(upstream.config)
            if name.startswith(prefix) and upstream.error:
                return (
                    f"Nothing was run: the MCP server {upstream.name!r} is not connected "
                    f"({upstream.error}). It is being reconnected; try again later."
                )
        return f"There is no tool {short_name!r}; nothing was run. List the tools again."

    # -- what is passed through

    async def _list_resources(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        resources = await self._list_all("resources")
        self._register_legacy_client(ctx)
        for upstream, resource in resources:
            self._resource_owners.setdefault(str(resource.uri), upstream)
        return types.ListResourcesResult(resources=[resource for _, resource in resources])

    async def _list_templates(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        owned = await self._list_all("resource_templates")
        for upstream, template in owned:
            self._resource_owners.setdefault(template.uri_template, upstream)
        templates = [template for _, template in owned]
        return types.ListResourceTemplatesResult(resource_templates=templates)

    async def _list_all(self, kind: ListKind) -> list[tuple[Upstream, Any]]:
        """Return what the servers have of a kind, each with its server."""
        await self._wait_for_servers()
        return [
            (server, item) for server in self._upstreams for item in await server.list_all(kind)
        ]

    async def _read_resource(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        await self._wait_for_servers()
        uri = str(params.uri)
        reason = "no server has it"
        for upstream in self._owners_of(uri):
            try:
                return await upstream.send(lambda client: client.read_resource(uri))
            except SaysoError as error:
                reason = str(error)
        raise MCPError(types.INVALID_PARAMS, f"the resource cannot be read: {reason}")

    def _owners_of(self, uri: str) -> list[Upstream]:
        """Return the server that has a resource, or all of them if it is not known."""
        owner = self._resource_owners.get(uri)
        return self._upstreams if owner is None else [owner]

    async def _watch(self, uri: str) -> None:
        """Watch a resource at the servers that may have it. Raise if all of them refuse."""
        await self._wait_for_servers()
        owners = self._owners_of(uri)
        refusals: list[str] = []
        for upstream in owners:
            try:
                await upstream.watch(uri)
            except SaysoError as error:
                refusals.append(str(error))
        if len(refusals) == len(owners):
            reason = refusals[-1] if refusals else "there is no server"
            raise MCPError(types.INVALID_PARAMS, f"the resource cannot be watched: {reason}")

    async def _subscribe(
        self, ctx: Context, params: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        uri = str(params.uri)
        await self._watch(uri)
        self._watchers.setdefault(uri, {})[FrontCaller(ctx).connection] = ctx.session
        return types.EmptyResult()

    async def _unsubscribe(
        self, ctx: Context, params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        watchers = self._watchers.get(str(params.uri), {})
        watchers.pop(FrontCaller(ctx).connection, None)
        return types.EmptyResult()

    async def _listen(
        self, ctx: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Serve a stream of changes to a client of the modern era.

        Resources that no server can watch are ignored.
        """
        for uri in params.notifications.resource_subscriptions or ():
            with contextlib.suppress(MCPError):
                await self._watch(uri)
        return await self._listeners(ctx, params)

    async def _list_prompts(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        owned = await self._list_all("prompts")
        self._register_legacy_client(ctx)
        prompts = [
            prompt.model_copy(
                update={"name": f"{self.config.prefix_of(upstream.config)}{prompt.name}"}
            )
            for upstream, prompt in owned
        ]
        return types.ListPromptsResult(prompts=prompts)

    async def _get_prompt(
        self, ctx: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        upstream, name = self._prompt_owner(params.name)
        try:
            return await upstream.send(lambda client: client.get_prompt(name, params.arguments))
        except SaysoError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from error

    async def _complete(
        self, ctx: Context, params: types.CompleteRequestParams
    ) -> types.CompleteResult:
        await self._wait_for_servers()
        ref = params.ref
        if isinstance(ref, types.PromptReference):
            upstream, name = self._prompt_owner(ref.name)
            ref = ref.model_copy(update={"name": name})
            owners = [upstream]
        else:
            owners = self._owners_of(ref.uri)
        argument = {"name": params.argument.name, "value": params.argument.value}
        context = None if params.context is None else params.context.arguments
        for upstream in owners:
            with contextlib.suppress(SaysoError):
                return await upstream.send(lambda client: client.complete(ref, argument, context))
        return types.CompleteResult(completion=types.Completion(values=[]))

    def _owner_of(self, name: str) -> Upstream | None:
        """Return the server with the longest prefix of a name."""
        owners = [
            (len(prefix), upstream)
            for upstream in self._upstreams
            if name.startswith(prefix := self.config.prefix_of(upstream.config))
        ]
        return max(owners, key=lambda owner: owner[0])[1] if owners else None

    def _prompt_owner(self, name: str) -> tuple[Upstream, str]:
        upstream = self._owner_of(name)
        if upstream is not None:
            return upstream, name.removeprefix(self.config.prefix_of(upstream.config))
        raise MCPError(types.INVALID_PARAMS, f"there is no prompt {visible.inline(name)[:80]!r}")


def _intake(tool: ProxyTool, args: dict[str, Any], gate: Gate | RemoteGate) -> str:
    """Return the arguments of a call as they are stored."""
    changed = SaysoError(
        f"the server changed {tool.name}. A person has to accept the change in the Sayso inbox "
        "first; then list the tools and make the call again."
    )
    if tool.pin.changes and not isinstance(gate, Gate):
        raise changed
    try:
        return tool.gated.intake(args)
    except InvalidCall:
        if tool.pin.changes:  # the error would name parameters that nobody has accepted
            raise changed from None
        raise


def _proxy_tool(upstream: Upstream, tool: types.Tool, name: str) -> ProxyTool:
    """Return a tool with its terms. Raise if it cannot be gated."""
    if not tool.name:
        raise ValueError("it has no name")
    if tool.execution is not None and tool.execution.task_support == "required":
        raise ValueError("it runs only as an MCP task, and the proxy does not pass on tasks")
    hints = tool.annotations
    reads = upstream.config.trust_hints and hints is not None and hints.read_only_hint is True
    own = Declared(
        effect="read" if reads else "once",
        record=upstream.config.record,
        stated=frozenset({"effect", "record"} if reads else {"record"}),
    )
    gated = FrameworkTool(
        name=name,
        description=tool.description or "",
        parameters=tool.input_schema,
        needs_approval=False if reads else None,
        own=own,
    )
    _ = gated.stored  # refuse a schema that cannot be stored now, not at the first call
    declared = declaration_of(tool)
    return ProxyTool(upstream, tool, gated, Pin(tool.name, declared, declared))
