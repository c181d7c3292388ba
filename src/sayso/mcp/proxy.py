"""``Proxy``: one MCP endpoint in front of several servers, gated by a policy.

Every call of a tool goes through the gate. A tool that no rule mentions needs approval; what a
server says about its own tools counts only with ``trust_hints``. Everything else (resources,
prompts, completions, progress, elicitations) is passed through.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
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
from sayso.mcp.calls import Calls, OpenCall, ServerConnectionLost
from sayso.mcp.config import VERSION, Config, OnAbandon
from sayso.mcp.front import (
    TOOL_USE_ID,
    WAIT_TOOL,
    Context,
    FrontCaller,
    FrontServer,
    HeldCallers,
    agent_of,
    result_of,
    text_result,
    wait_tool,
)
from sayso.mcp.journal import Declaration, Journal, Pins, declaration_of
from sayso.mcp.upstreams import ConnectionLost, Listener, Upstream
from sayso.rows import Call
from sayso.types import Declared, Json, Terms, ToolCall, Verdict

log = logging.getLogger("sayso.mcp")

#: Model APIs refuse tools with longer names.
_LONGEST_NAME = 64
#: How long to wait for lists that are being read again.
_SETTLE_SECONDS = 2.0
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
    declared: Declaration
    #: How it differs from what people accepted; empty if it does not.
    changes: str = ""

    @property
    def name(self) -> str:
        """The name that clients see."""
        return self.gated.name

    @property
    def on_abandon(self) -> OnAbandon:
        """What happens to a call whose client leaves."""
        return self.upstream.config.on_abandon

    def intake(self, args: Mapping[str, Json]) -> str:
        """Return the arguments with defaults. Raise ``InvalidCall``."""
        return self.gated.intake(args)

    def plan(self, gate: Gate | RemoteGate, args: str, listener: Listener) -> Plan:
        """Return the plan of a call."""

        async def run(row: Call) -> dict[str, Any]:
            held = listener if isinstance(listener, OpenCall) else None
            if held is not None:
                held.running = True
            try:
                passed = self.gated.framework_args(codec.loads(row.args))
                return await self.upstream.call(self.tool.name, passed, listener)
            except ConnectionLost as lost:
                raise ServerConnectionLost(str(lost)) from lost
            finally:
                if held is not None:
                    held.running = False

        async def terms(values: dict[str, Any]) -> Terms:
            assert isinstance(gate, Gate)
            call = ToolCall(self.name, values)
            needs = self.gated.needs_approval
            judged = await policy_terms(gate, call, self.gated.own, needs)
            if self.changes and judged.verdict is Verdict.ALLOW:
                return replace(judged, verdict=Verdict.ASK, rule=_CHANGED_RULE)
            return judged

        async def preview(_: str, revision: int) -> str:
            return codec.dumps({"The server changed this tool": self.changes})

        return Plan(
            key="",
            kind="approval",
            args=args,
            agent=gate.agent,
            terms=terms,
            tool=self.gated.stored,
            tool_name=self.name,
            reads=lambda text: self.gated.intake(codec.loads(text)),
            preview=preview if self.changes else None,
            run=run,
            dump=codec.dumps,
            options={"effect": self.gated.own.effect},
        )


class Proxy:
    """The endpoint. ``running`` connects the servers; ``server`` is what to serve."""

    def __init__(
        self,
        config: Config,
        gate_of: Callable[[str], Gate | RemoteGate],
        journal: Journal | None = None,
    ) -> None:
        self.config = config
        #: Where to note what a store would keep, if the gates have none.
        self._journal = journal
        #: Returns the gate of an agent.
        self._gate_of = gate_of
        self._upstreams = [
            Upstream(
                one,
                lambda upstream, kind: self._start(self._read_again(upstream, kind)),
                lambda uri: self._start(self._announce_update(uri)),
            )
            for one in config.upstreams
        ]
        self._tools: dict[str, ProxyTool] = {}
        self._pins: dict[str, Pins] = {}
        self._calls: dict[str, Calls] = {}
        self._callers = HeldCallers(config.hold_of)
        self._changes = InMemorySubscriptionBus()
        self._listeners = ListenHandler(self._changes)
        #: Clients of the handshake era, to tell about changes, by the id of their session.
        self._legacy: dict[str, Any] = {}
        #: Those of them that watch a resource, by its URI.
        self._watchers: dict[str, dict[str, Any]] = {}
        self._resource_owners: dict[str, Upstream] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._taking = asyncio.Lock()
        self._listed: dict[str, asyncio.Event] = {
            one.name: asyncio.Event() for one in config.upstreams
        }
        self.server = FrontServer(
            "sayso-proxy",
            version=VERSION,
            instructions=_INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,  # type: ignore[arg-type]  # it may return a plain dict
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
        """Connect the servers, and carry on with the calls that these agents left open."""
        for agent in {self.config.agent, *agents}:
            self._calls_of(agent)
        for upstream in self._upstreams:
            upstream.start()
        try:
            yield
        finally:
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
                async with self._taking:  # a later list must not be overtaken by an earlier one
                    await self._take_tools(upstream)
                for calls in self._calls.values():
                    calls.update_tools()
                    await calls.resume_open_calls()
            await self._announce(kind)
        except SaysoError as error:
            log.error("%s: its %s cannot be offered: %s", upstream.name, kind, error)
        finally:
            if kind == "tools":
                self._listed[upstream.name].set()

    async def _take_tools(self, upstream: Upstream) -> None:
        """Replace the tools of a server."""
        prefix = self.config.prefix_of(upstream.config)
        found: dict[str, ProxyTool] = {}
        for tool in upstream.tools:
            name = f"{prefix}{tool.name}"
            other = self._tools.get(name) or found.get(name)
            if name == WAIT_TOOL or (other is not None and other.upstream is not upstream):
                log.error("%s: its tool %s is left out: the name is taken", upstream.name, name)
                continue
            if len(name) > _LONGEST_NAME:
                log.warning("%s: %s is longer than model APIs accept", upstream.name, name)
            if other is not None and other.tool == tool:
                found[name] = other  # leave its calls alone
                continue
            try:
                found[name] = _proxy_tool(upstream, tool, name)
            except (SaysoError, ValueError, TypeError) as error:
                log.error("%s: its tool %s is left out: %s", upstream.name, name, error)
        pins = self._pins.get(upstream.name)
        if pins is None:
            gate = self._gate_of(self.config.agent)
            pins = self._pins[upstream.name] = Pins(gate, upstream.name, self._journal)
        changed = await pins.check({one.tool.name: one.declared for one in found.values()})
        for one in found.values():
            if changes := changed.get(one.tool.name):
                await self._notice_change(pins, one, changes)
            else:
                one.changes = ""
        kept = {n: one for n, one in self._tools.items() if one.upstream is not upstream}
        self._tools = {**kept, **found}

    async def _notice_change(self, pins: Pins, tool: ProxyTool, changes: str) -> None:
        tool.changes = changes  # until the answer is known
        if await pins.accepted(tool.tool.name, tool.name, tool.declared, changes):
            tool.changes = ""
        else:
            log.warning("%s has changed: its calls need approval until it is accepted", tool.name)

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

    async def _all_tried(self) -> None:
        """Wait until each server has connected or failed to, once."""
        await asyncio.gather(*(upstream.tried() for upstream in self._upstreams))
        for upstream in self._upstreams:
            if not upstream.error:
                await self._listed[upstream.name].wait()
        # Some servers announce their tools one by one while they start.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_SECONDS):
                while self._tasks or not all(one.settled for one in self._upstreams):
                    await asyncio.sleep(0.01)

    def _calls_of(self, agent: str) -> Calls:
        if agent not in self._calls:
            gate = self._gate_of(agent)
            session = f"tools:{self.config.session}"
            self._calls[agent] = Calls(gate, agent, session, self._tool_of, self._journal)
        return self._calls[agent]

    def _tool_of(self, row: Call | str) -> ProxyTool | None:
        return self._tools.get(row if isinstance(row, str) else row.tool)

    def _remember(self, ctx: Context) -> None:
        """Note a client of the handshake era, to tell it about changes."""
        caller = FrontCaller(ctx)
        if not caller.modern:
            self._legacy[caller.connection] = ctx.session
            while len(self._legacy) > 1000:
                self._legacy.pop(next(iter(self._legacy)))

    # -- tools

    async def _list_tools(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        await self._all_tried()
        self._remember(ctx)
        # A held call returns a ticket, an edited one a notice: neither fits an output schema.
        listed = [
            one.tool.model_copy(update={"name": name, "output_schema": None})
            for name, one in self._tools.items()
        ]
        return types.ListToolsResult(tools=[*listed, wait_tool()])

    async def _call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult | dict[str, Any]:
        caller = FrontCaller(ctx)
        try:
            return await self._called(ctx, caller, params)
        except InvalidCall as error:
            return text_result(f"The call cannot be read: {error}", error=True)
        except SaysoError as error:
            return text_result(f"Nothing was run: {error}", error=True)
        except Paused as paused:  # a BaseException would end the whole server
            return text_result(f"Nothing was run: {paused}", error=True)

    async def _called(
        self, ctx: Context, caller: FrontCaller, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult | dict[str, Any]:
        agent = agent_of(self.config.agent)
        known, calls = agent in self._calls, self._calls_of(agent)
        if not known:  # an agent that had no token when the proxy started
            await calls.resume_open_calls()
        if params.name == WAIT_TOOL:
            return await self._callers.wait(calls, caller, params.arguments or {})
        tool = self._tools.get(params.name)
        if tool is None:
            await self._all_tried()
            tool = self._tools.get(params.name)
        if tool is None:
            return text_result(self._no_tool(params.name), error=True)
        if params.request_state is not None:
            wrote = tool.intake(params.arguments or {})
            return await self._callers.answered(calls, caller, params, wrote)
        if tool.changes:
            tool = await self._accepted_since(tool)
        if tool.changes and not isinstance(calls.gate, Gate):
            return text_result(
                f"Nothing was run: the server changed {tool.name}. A person has to accept the "
                "change in the Sayso inbox first; then make the call again.",
                error=True,
            )
        args = params.arguments or {}
        read = await calls.free_read(tool, tool.intake(args), caller)
        if read is not None:
            return result_of(read)
        meta: Mapping[str, Any] = ctx.meta or {}
        id = meta.get(TOOL_USE_ID)
        held = await calls.open(tool, args, id if isinstance(id, str) and id else None)
        if isinstance(held, str):
            return text_result(held, error=True)
        return await self._callers.held(calls, held, caller)

    async def _accepted_since(self, tool: ProxyTool) -> ProxyTool:
        pins = self._pins[tool.upstream.name]
        if await pins.accepted(tool.tool.name, tool.name, tool.declared, tool.changes):
            tool.changes = ""
        return tool

    def _no_tool(self, name: str) -> str:
        shown = visible.inline(name)[:80]
        for upstream in self._upstreams:
            prefix = self.config.prefix_of(upstream.config)
            if name.startswith(prefix) and upstream.error:
                return (
                    f"Nothing was run: the MCP server {upstream.name!r} is not connected "
                    f"({upstream.error}). It is being reconnected; try again later."
                )
        return f"There is no tool {shown!r}; nothing was run. List the tools again."

    # -- what is passed through

    async def _list_resources(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        await self._all_tried()
        self._remember(ctx)
        found: list[types.Resource] = []
        for upstream in self._upstreams:
            for resource in await _if_up(upstream.resources):
                self._resource_owners.setdefault(str(resource.uri), upstream)
                found.append(resource)
        return types.ListResourcesResult(resources=found)

    async def _list_templates(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        await self._all_tried()
        found: list[types.ResourceTemplate] = []
        for upstream in self._upstreams:
            for template in await _if_up(upstream.templates):
                self._resource_owners.setdefault(template.uri_template, upstream)
                found.append(template)
        return types.ListResourceTemplatesResult(resource_templates=found)

    async def _read_resource(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        await self._all_tried()
        uri, said = str(params.uri), "no server has it"
        owner = self._resource_owners.get(uri)
        for upstream in self._upstreams if owner is None else (owner,):
            try:
                return await upstream.read_resource(uri)
            except SaysoError as error:
                said = str(error)
        raise MCPError(types.INVALID_PARAMS, f"the resource cannot be read: {said}")

    async def _watch(self, uri: str) -> None:
        """Watch a resource at the server that has it, or at each that may. Raise if none does."""
        await self._all_tried()
        owner = self._resource_owners.get(uri)
        owners = self._upstreams if owner is None else [owner]
        refusals: list[str] = []
        for upstream in owners:
            try:
                await upstream.watch(uri)
            except SaysoError as error:
                refusals.append(str(error))
        if len(refusals) == len(owners):
            said = refusals[-1] if refusals else "there is no server"
            raise MCPError(types.INVALID_PARAMS, f"the resource cannot be watched: {said}")

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

        What no server reports never comes; the client gets the rest.
        """
        for uri in params.notifications.resource_subscriptions or ():
            with contextlib.suppress(MCPError):
                await self._watch(uri)
        return await self._listeners(ctx, params)

    async def _list_prompts(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        await self._all_tried()
        self._remember(ctx)
        found: list[types.Prompt] = []
        for upstream in self._upstreams:
            prefix = self.config.prefix_of(upstream.config)
            for prompt in await _if_up(upstream.prompts):
                found.append(prompt.model_copy(update={"name": f"{prefix}{prompt.name}"}))
        return types.ListPromptsResult(prompts=found)

    async def _get_prompt(
        self, ctx: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        upstream, name = self._prompt_owner(params.name)
        try:
            return await upstream.get_prompt(name, params.arguments)
        except SaysoError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from error

    async def _complete(
        self, ctx: Context, params: types.CompleteRequestParams
    ) -> types.CompleteResult:
        await self._all_tried()
        ref = params.ref
        if isinstance(ref, types.PromptReference):
            upstream, name = self._prompt_owner(ref.name)
            ref = ref.model_copy(update={"name": name})
            owners = [upstream]
        else:
            owner = self._resource_owners.get(ref.uri)
            owners = self._upstreams if owner is None else [owner]
        argument = {"name": params.argument.name, "value": params.argument.value}
        context = None if params.context is None else params.context.arguments
        for upstream in owners:
            with contextlib.suppress(SaysoError):
                return await upstream.complete(ref, argument, context)
        return types.CompleteResult(completion=types.Completion(values=[]))

    def _prompt_owner(self, name: str) -> tuple[Upstream, str]:
        for upstream in self._upstreams:
            prefix = self.config.prefix_of(upstream.config)
            if name.startswith(prefix):
                return upstream, name.removeprefix(prefix)
        raise MCPError(types.INVALID_PARAMS, f"there is no prompt {visible.inline(name)[:80]!r}")


def _proxy_tool(upstream: Upstream, tool: types.Tool, name: str) -> ProxyTool:
    """Return a tool with its terms. Raise if it cannot be gated."""
    config, hints = upstream.config, tool.annotations
    reads = config.trust_hints and hints is not None and hints.read_only_hint is True
    own = Declared(
        effect="read" if reads else "once",
        record=config.record,
        stated=frozenset({"effect", "record"} if reads else {"record"}),
    )
    gated = FrameworkTool(
        name=name,
        description=tool.description or "",
        parameters=tool.input_schema,
        needs_approval=not reads,
        own=own,
    )
    _ = gated.stored  # refuse a schema that cannot be stored now, not at the first call
    return ProxyTool(upstream, tool, gated, declaration_of(tool))


async def _if_up(fetch: Callable[[], Any]) -> list[Any]:
    """Return a list of a server, or nothing if it cannot be reached: the others still count."""
    try:
        found: list[Any] = await fetch()
    except SaysoError as error:
        log.warning("%s", error)
        return []
    return found
