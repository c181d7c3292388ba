"""Run and resume Claude by its thread, with a gate in front of every tool.

A turn runs in Claude Code until it ends or a call has to wait. Then Claude Code is stopped. A
process that resumes the turn first completes the decided calls, without Claude Code, and then
starts Claude Code again, with a transcript that holds their results.

The gate is called twice for each call that a rule allows. The ``PreToolUse`` hook sees every call
and decides. It never answers "allow", because other hooks, of the options or of a settings file,
may change the arguments at the same time. It answers "ask". Claude Code then calls
``can_use_tool`` after all hooks, and that passes on the arguments that the gate has decided about.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import os
import uuid
import warnings
import weakref
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    CanUseToolShadowedWarning,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    InMemorySessionStore,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultMessage,
    SdkMcpTool,
    ServerToolUseBlock,
    ToolPermissionContext,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
    create_sdk_mcp_server,
    project_key_for_directory,
)
from claude_agent_sdk._cli_version import __cli_version__
from claude_agent_sdk._internal.client import InternalClient
from pydantic import TypeAdapter
from typing_extensions import is_typeddict

from sayso import codec
from sayso.adapters.agents import Stream, StreamingAgent, listener
from sayso.adapters.calls import outcome_with_errors
from sayso.adapters.claude_agent.messages import Block, MessageLog, dump_block, result_block
from sayso.errors import InvalidCall, Paused, SaysoError
from sayso.gate import Gate, outcomes
from sayso.gate.coverage import Coverage
from sayso.gate.framework import MOST_WAITING, FrameworkCall, FrameworkTool, Outcome, check_gate
from sayso.gate.gate import policy_terms
from sayso.gate.guarded_runs import current_place
from sayso.gate.os_threads import wrap_method
from sayso.policy import Policy
from sayso.policy.policy import DEFAULT, NEEDS_APPROVAL
from sayso.rows import Call, CallStatus
from sayso.stores.base import Query
from sayso.sync import read, to_thread
from sayso.types import Json, Terms, ToolCall, Verdict

CHANNEL = "claude-agent"
SERVER = "sayso"
#: How Claude's names of our tools begin.
_PREFIX = f"mcp__{SERVER}__"

_WAITS = "This call waits for a decision. It was not made."
_BARE = "CLAUDE_CODE_SIMPLE"
_FOREVER = 10 * 365 * 86_400.0
_CONTINUE = "Continue."
_ANYTHING = {"type": "object", "additionalProperties": True}
#: The tool with which Claude gives the output of ``output_format``. It has no other effect.
_OUTPUT_TOOL = "StructuredOutput"
#: ``Terms.rule`` of a call that no rule matches.
_UNRULED = (DEFAULT, NEEDS_APPROVAL)


def guard(
    options: ClaudeAgentOptions,
    gate: Gate,
    policy: Policy | None = None,
    *,
    tools: Sequence[SdkMcpTool[Any]] = (),
    ungated: Iterable[str] = (),
) -> Guarded:
    """Make Claude ask through the gate before it uses a tool.

    ``options`` are those of every run and resume; they are not changed. ``tools`` are in-process
    tools (``@tool``), which the gate runs. Claude sees them as ``mcp__sayso__NAME``, and policies
    as ``NAME``. All other tools have the names that Claude Code gives them: ``Bash``,
    ``mcp__files__write``. A call that no rule matches needs approval. With
    ``Policy(..., default="allow")``, in-process tools run then, and for all others Claude Code's
    own permissions decide: what they would ask about is asked at the gate.

    Raises ``InvalidCall`` for options that decide without the gate. What the gate cannot reach ends
    the run where it is used, unless ``ungated`` names it: tools that Claude's API runs
    (``web_search``), and another Claude that a tool starts or asks (``query``,
    ``ClaudeSDKClient``).
    """
    check_gate(gate, policy)
    _check_options(options)
    coverage = Coverage(ungated)
    _list(options, tools, gate.agent, coverage)
    coverage.check()
    return Guarded(options, gate, policy, tools, coverage)


def _check_options(options: Any) -> None:
    if not isinstance(options, ClaudeAgentOptions):
        raise TypeError(
            f"guard(...) takes ClaudeAgentOptions(...), not {type(options).__name__}: the options "
            "that you pass to query or ClaudeSDKClient"
        )
    ours = {
        "can_use_tool": "the gate decides instead",
        "permission_prompt_tool_name": "the gate decides instead",
        "permission_prompt_tool": "the gate decides instead",
        "resume": "the thread keeps the conversation",
        "continue": "the thread keeps the conversation",
        "session_id": "the thread keeps the conversation",
        "continue_conversation": "the thread keeps the conversation",
        "session_store": "the gate's store keeps the conversation",
    }
    for name, why in ours.items():
        if getattr(options, name, None) or name.replace("_", "-") in options.extra_args:
            raise InvalidCall(f"leave {name} out of the options: {why}", name)
    if "PermissionRequest" in (options.hooks or {}):
        raise InvalidCall(
            "leave PermissionRequest out of the hooks: the gate decides instead", "hooks"
        )
    if "bare" in options.extra_args or options.env.get(_BARE):
        raise InvalidCall(
            f"leave --bare and {_BARE} out of the options: Claude Code would not call the gate's "
            "hook",
            "extra_args",
        )
    servers = options.mcp_servers if isinstance(options.mcp_servers, Mapping) else {}
    for name, server in servers.items():
        if isinstance(server, Mapping) and server.get("type") == "sdk":
            raise InvalidCall(
                f"the server {name!r} runs in this process: pass its tools to "
                "guard(..., tools=[...]) instead, so that the gate can run them",
                "mcp_servers",
            )
    if SERVER in servers:
        raise InvalidCall(f"the name {SERVER!r} is taken: give your server another", "mcp_servers")


def _copied(options: ClaudeAgentOptions) -> ClaudeAgentOptions:
    """Return a copy of the options, to which nothing can be added that was not checked."""
    copied = copy.copy(options)
    for name, value in vars(options).items():
        if isinstance(value, list | dict):
            setattr(copied, name, copy.copy(value))
    return copied


def _list(
    options: ClaudeAgentOptions, tools: Sequence[SdkMcpTool[Any]], own: str, found: Coverage
) -> None:
    """Add what Claude can reach to the table.

    The hook sees every call. What the code of our tools starts is refused where it starts.
    """
    for tool in tools:
        found.gated(own, "tool", tool.name, "the gate runs it")
    note = "Claude Code runs it, once the gate has allowed the call"
    tool_names = options.tools if isinstance(options.tools, list) else None
    for name in ["Claude Code's own tools"] if tool_names is None else tool_names:
        found.gated(own, "built-in tool", name, note)
    servers = options.mcp_servers
    if not isinstance(servers, Mapping):
        found.gated(own, "MCP servers", str(servers), note)
    else:
        for name in servers:
            found.gated(own, "MCP server", name, note)
    for plugin in options.plugins:
        found.gated(own, "plugin", str(plugin.get("path")), note)
    for name in options.agents or ():
        found.gated(own, "agent", name, "a call that needs a decision is denied: it cannot wait")


# -- Claude inside a guarded run


#: The clients that run a guarded Claude.
_guarded_clients: weakref.WeakSet[ClaudeSDKClient] = weakref.WeakSet()


@functools.cache
def install() -> None:
    """Refuse to start or ask another Claude inside a guarded run, from now on in this process.

    Code of a tool may find or build one anywhere, and nothing would ask before that Claude uses its
    tools. Every way to one leads through these three methods.
    """
    wrap_method(ClaudeSDKClient, "connect", functools.partial(_run_client, "ClaudeSDKClient"))
    wrap_method(ClaudeSDKClient, "query", functools.partial(_run_client, "ClaudeSDKClient"))
    wrap_method(InternalClient, "process_query", functools.partial(_run_client, "query"))


def _run_client(name: str, original: Any, client: Any, *args: Any, **kwargs: Any) -> Any:
    place = None if client in _guarded_clients else current_place()
    if place is not None and name not in place.ungated:
        raise InvalidCall(
            f"a tool of a guarded agent starts or asks another Claude ({name}), which would use "
            "its tools without the gate: call run(...) of guard(options, gate) there, with its own "
            "thread, and put the effects before it into gate.once(...). To let it use its tools "
            f"without approval: guard(..., ungated=[{name!r}])",
            "ungated",
        )
    return original(client, *args, **kwargs)


class Guarded(StreamingAgent[MessageLog, Stream]):
    """Claude, for servers and workers to run and resume; ``guard`` returns one."""

    channel = CHANNEL
    log_type = MessageLog

    def __init__(
        self,
        options: ClaudeAgentOptions,
        gate: Gate,
        policy: Policy | None,
        tools: Sequence[SdkMcpTool[Any]],
        coverage: Coverage,
    ) -> None:
        super().__init__(gate, policy, coverage)
        self.options = _copied(options)
        self.tools = {tool.name: tool for tool in tools}
        if len(self.tools) < len(tools):
            raise InvalidCall("two tools have the same name: give each its own", "tools")
        self._own_tools = {
            name: FrameworkTool(
                name=name, description=tool.description, parameters=_schema(tool.input_schema)
            )
            for name, tool in self.tools.items()
        }

    def known_tools(self) -> Iterable[FrameworkTool]:
        return self._own_tools.values()

    async def begin(self, input: Any, thread: str) -> Any:
        log = await self.open_log(thread)
        closed = zip(log.open_keys, await log.closing_texts(), strict=True)
        await log.add_results([result_block(id, text) for id, (_, text) in closed])
        await log.say_prompt(input)
        return await Turn(self, log).run(input)

    async def continue_turn(self, log: MessageLog) -> Any:
        if not log.messages:
            raise InvalidCall(f"thread {log.thread!r} has no input to continue with: run it first")
        turn = Turn(self, log)
        await turn.settle()
        spoken = log.messages[-1]
        return await turn.run(spoken["content"] if spoken["role"] == "user" else _CONTINUE)

    def own_tool(self, name: str) -> FrameworkTool | None:
        """Return one of our tools as the gate knows it, by Claude's name for it."""
        return self._own_tools.get(name.removeprefix(_PREFIX))


@dataclass
class Turn:
    """One turn of a thread while Claude Code runs it."""

    guarded: Guarded
    log: MessageLog
    #: The calls of this turn that wait for a decision.
    _waiting: set[str] = field(default_factory=set)
    #: Parts of the reply that are not stored yet, and the ids of the calls that were seen.
    _unsaved: list[tuple[str, Block]] = field(default_factory=list)
    _seen: dict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    _results: dict[str, Block] = field(default_factory=dict)
    #: The calls of our tools that Claude Code is about to make: name, arguments and id.
    _next: list[tuple[str, str, str]] = field(default_factory=list)
    #: The calls that the hook has let through, with the arguments that may run.
    _cleared: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Claude Code calls our hooks.
    _hooked: bool = False
    _saving: asyncio.Lock = field(default_factory=asyncio.Lock)
    #: The first error at the gate, which must end the run.
    _error: BaseException | None = None

    # -- running Claude Code

    async def run(self, prompt: Any) -> Any:
        """Run Claude Code until it ends. Return the output, or raise ``Paused``."""
        client = ClaudeSDKClient(await self._options(prompt))
        _guarded_clients.add(client)
        try:
            with warnings.catch_warnings():
                # Some calls do not reach can_use_tool, which it warns about. All reach the hook.
                warnings.simplefilter("ignore", CanUseToolShadowedWarning)
                await client.connect(_prompt_stream(prompt))
            result = await self._listen(client)
        except SaysoError:
            await client.interrupt()  # first: disconnect() waits for the current turn
            raise
        finally:
            await client.disconnect()
        self.guarded.keep_raw(self.log.run, result)
        if self._error is not None:
            raise self._error
        if self._waiting:
            raise Paused(self.log.run)
        if result is None or result.is_error:
            why = "it closed the connection" if result is None else result.result or result.subtype
            raise SaysoError(f"Claude Code did not finish: {why}. Resume the thread to try again")
        output = result.result if result.structured_output is None else result.structured_output
        await self._save(last=True)
        await self.log.end(self.guarded.dump_output(output), content="")
        return output

    async def _listen(self, client: ClaudeSDKClient) -> ResultMessage | None:
        emit = listener() or (lambda message: None)
        async for message in client.receive_messages():
            emit(message)
            if isinstance(message, ResultMessage):
                return message
            if isinstance(message, AssistantMessage):
                self._take_reply(message)
            elif isinstance(message, UserMessage) and isinstance(message.content, list):
                for part in message.content:
                    if isinstance(part, ToolResultBlock):
                        id, failed = part.tool_use_id, bool(part.is_error)
                        self._results[id] = result_block(id, part.content or "", is_error=failed)
        return None

    def _take_reply(self, message: AssistantMessage) -> None:
        """Note a reply. Raise, which stops Claude Code, if the gate does not see its calls."""
        self._check_reply(message)
        if message.parent_tool_use_id is not None:
            return
        for block in filter(None, map(dump_block, message.content)):
            self._unsaved.append((message.message_id or "", block))
            if block["type"] == "tool_use":
                self._seen[block["id"]].set()

    def _check_reply(self, message: AssistantMessage) -> None:
        for block in message.content:
            if isinstance(block, ToolUseBlock) and not self._hooked:
                raise SaysoError(
                    "Claude Code calls no hooks, so the gate cannot see what it runs: it was "
                    f"stopped. Find out what turns hooks off ({_BARE}?), and resume the thread"
                )
            if isinstance(block, ServerToolUseBlock) and not block.name.startswith("tool_search"):
                coverage = self.guarded.coverage()
                why = "Claude's API runs it without asking: turn it off in Claude Code"
                coverage.missed(self.guarded.name, "hosted tool", block.name, why)
                coverage.check()

    async def _options(self, prompt: Any) -> ClaudeAgentOptions:
        user_options = self.guarded.options
        options = replace(
            user_options,
            can_use_tool=self._may_use,
            hooks=self._hooks(user_options.hooks or {}),
            # Not inherited from the environment of this process either.
            env={**user_options.env, _BARE: "0"},
            mcp_servers=self._servers(user_options.mcp_servers),
        )
        # Claude Code adds the last message itself: it is the prompt of this run.
        before = copy.copy(self.log)
        before.messages = list(self.log.messages)
        last = before.messages[-1]
        as_blocks = [{"type": "text", "text": prompt}]
        if last["role"] == "user" and last["content"] in (prompt, as_blocks):
            before.messages.pop()
        session, folder = (
            str(uuid.uuid4()),
            await to_thread(os.path.realpath, user_options.cwd or "."),
        )
        entries: Any = before.transcript(session, folder, __cli_version__)
        if entries:
            store = InMemorySessionStore()
            key = await to_thread(project_key_for_directory, folder)
            await store.append({"project_key": key, "session_id": session}, entries)
            options = replace(options, resume=session, session_store=store)
        return options

    def _hooks(self, given: Mapping[Any, Any]) -> Any:
        ours = {
            "UserPromptSubmit": self._before_reply,
            "PreToolUse": self._before_call,
            "PostToolBatch": self._after_calls,
        }
        hooks = {name: list(matchers) for name, matchers in given.items()}
        for name, hook in ours.items():
            matcher = HookMatcher(hooks=[hook], timeout=_FOREVER, on_failure="block")
            hooks[name] = [matcher, *hooks.get(name, ())]
        return hooks

    def _servers(self, given: Any) -> Any:
        if not self.guarded.tools:
            return given
        tools = [self._gated(tool) for tool in self.guarded.tools.values()]
        servers = dict(given) if isinstance(given, Mapping) else {}
        if given and not servers:
            raise InvalidCall("pass mcp_servers as a mapping, beside tools of this process")
        return {**servers, SERVER: create_sdk_mcp_server(SERVER, tools=tools)}

    def _gated(self, tool: SdkMcpTool[Any]) -> SdkMcpTool[Any]:
        async def handler(args: dict[str, Any]) -> dict[str, Any]:
            id = self._id_of_call(tool.name, args)
            block = await self._run_own_tool(id, tool.name, args)
            if block is None:
                return {"content": [{"type": "text", "text": _WAITS}], "is_error": True}
            content = block["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            return {"content": blocks, "is_error": block.get("is_error", False)}

        schema = self.guarded._own_tools[tool.name].parameters
        return replace(tool, input_schema=dict(schema), handler=handler)

    def _id_of_call(self, name: str, args: Mapping[str, Any]) -> str:
        """Return the id of the call: Claude Code does not pass it on to the tool."""
        canonical_args = codec.canonical(dict(args))
        for index, (tool, written, id) in enumerate(self._next):
            if tool == name and written == canonical_args.decode():
                del self._next[index]
                return id
        raise SaysoError(f"{name} was called, but no reply of the model asks for it")

    # -- called by Claude Code

    async def _before_reply(self, input: Any, id: str | None, context: Any) -> Any:
        """Note, before the model is called, that Claude Code calls hooks."""
        self._hooked = True
        return {}

    async def _before_call(self, input: Any, id: str | None, context: Any) -> Any:
        """Decide a call of any tool."""
        name, args = str(input["tool_name"]), dict(input["tool_input"])
        if id is None or self._error is not None:
            return _deny("Nothing was run: the call has no id, or the run has failed.")
        if input.get("agent_id"):
            return await self._decide_sub_agents_call(id, name, args)
        await asyncio.wait_for(self._seen[id].wait(), 60)
        try:
            await self._save()
            own = self.guarded.own_tool(name)
            if own is not None:
                self._next.append((own.name, codec.canonical(args).decode(), id))
                return self._clear(id, args)
            return await self._decide_claudes_call(id, name, args)
        except (SaysoError, Paused) as error:
            return self._keep_error(error)

    async def _may_use(
        self, name: str, args: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResultAllow | PermissionResultDeny:
        """Allow a call that the hook has let through, with those arguments.

        Ask about a call that Claude Code's own permissions would ask about.
        """
        id = context.tool_use_id or ""
        if id and id not in self._cleared and not context.agent_id:
            try:
                answer = await self._decide_claudes_call(id, name, args, needs_approval=True)
            except (SaysoError, Paused) as error:
                answer = self._keep_error(error)
            if id not in self._cleared:
                why = answer["hookSpecificOutput"]["permissionDecisionReason"]
                return PermissionResultDeny(message=why)
        if id not in self._cleared:
            return PermissionResultDeny(
                message="This call needs approval, but it has no thread to pause."
            )
        return PermissionResultAllow(updated_input=self._cleared.pop(id))

    def _clear(self, id: str, args: dict[str, Any]) -> Any:
        """Let a call through with these arguments, and no others: see ``_may_use``."""
        self._cleared[id] = args
        return _answer("ask", "The gate has decided about this call.")

    async def _after_calls(self, input: Any, id: str | None, context: Any) -> Any:
        """End the turn before the model is called again, if a call waits."""
        if input.get("agent_id"):
            return {}
        try:
            await self._save()
            done = [block for id, block in self._results.items() if id not in self._waiting]
            await self.log.add_results(done)
        except SaysoError as error:
            self._keep_error(error)
        if self._waiting or self._error is not None:
            return {"continue_": False, "stopReason": "A call waits for a decision."}
        return {}

    def _keep_error(self, error: BaseException) -> Any:
        self._error = self._error or error
        return _deny(f"Nothing was run: {error}")

    # -- calls

    async def _save(self, *, last: bool = False) -> None:
        """Store what the model said so far: before its calls are made, or with the end."""
        async with self._saving:
            while self._unsaved:
                id = self._unsaved[0][0]
                blocks = [block for own, block in self._unsaved if own == id]
                self._unsaved = [part for part in self._unsaved if part[0] != id]
                await self.log.add_reply(id, blocks, last=last)

    async def _run_own_tool(self, id: str, name: str, args: Mapping[str, Any]) -> Block | None:
        """Complete a call of one of our tools. Return its result; None if it waits."""
        tool, own = self.guarded.tools[name], self.guarded._own_tools[name]
        call = FrameworkCall(id=self.log.key(id), tool=own, args=args, run=tool.handler)
        try:
            outcome = await outcome_with_errors(self.log.calls, call)
        except Paused:
            self._waiting.add(id)
            return None
        except SaysoError as error:
            self._keep_error(error)
            return result_block(id, f"Nothing was run: {error}", is_error=True)
        block = _result(id, outcome)
        self._results[id] = block
        return block

    async def _decide_claudes_call(
        self, id: str, name: str, args: dict[str, Any], *, needs_approval: bool | None = None
    ) -> Any:
        """Decide whether Claude Code may make a call of one of its own tools, or of a server."""
        calls = self.log.calls
        terms = await self._terms(name, args, needs_approval)
        if terms.verdict is Verdict.ALLOW and _is_left(terms):
            return {}
        row = await read(calls.store, self._approved_before, name, args)
        key = self.log.key(id) if row is None else row.key
        tool = FrameworkTool(name=name, parameters=_ANYTHING, needs_approval=needs_approval)
        call = FrameworkCall(id=key, tool=tool, args=args, run=_allowed)
        try:
            outcome = await calls.outcome(call)
        except Paused:
            self._waiting.add(id)
            return _deny(_WAITS)
        if not outcome.ok or outcome.by_person:
            return _deny(outcome.text)
        stored = args if outcome.call is None else codec.loads(outcome.call.args)
        return self._clear(id, stored)

    def _approved_before(self, name: str, args: Mapping[str, Any]) -> Call | None:
        """Return the approved call that this one repeats: the model was asked to make it again."""
        written = codec.canonical(dict(args)).decode()
        for status in ("approved", "edited"):
            query = Query(status=status, run=self.log.run, tool=name, limit=MOST_WAITING)
            for _, row in self.log.calls.store.page(query):
                if row.status is CallStatus.READY and written in (row.original, row.args):
                    return row
        return None

    async def _decide_sub_agents_call(self, id: str, name: str, args: dict[str, Any]) -> Any:
        """Decide a call of a sub-agent. It cannot wait: one that needs approval is denied."""
        if self.guarded.own_tool(name) is None:
            terms = await self._terms(name, args)
            if terms.verdict is Verdict.ALLOW:
                return {} if _is_left(terms) else self._clear(id, args)
        return _deny(
            "A sub-agent cannot use this tool, because its calls need approval or are recorded: "
            "make the call in the main conversation."
        )

    async def _terms(
        self, name: str, args: dict[str, Any], needs_approval: bool | None = None
    ) -> Terms:
        call = ToolCall(name, args)
        guarded = self.guarded
        if name == _OUTPUT_TOOL and guarded.options.output_format is not None:
            needs_approval = False
        return await policy_terms(guarded.gate, call, Terms(), needs_approval, guarded.policy)

    # -- completing calls without Claude Code

    async def settle(self) -> None:
        """Complete the open calls of the last reply. Raises ``Paused`` if one waits."""
        log = self.log
        for block in log.open_calls:
            id, name = block["id"], block["name"]
            short = name.removeprefix(_PREFIX)
            if short in self.guarded.tools:
                result = await self._run_own_tool(id, short, block["input"])
            elif name != short:
                gone = await log.calls.gone(log.key(id), short)
                result = result_block(id, gone.text, is_error=True)
            else:
                result = await self._result_of_claudes_call(id)
            if self._error is not None:
                raise self._error
            if result is not None:
                await log.add_results([result])
        if self._waiting:
            raise Paused(log.run)

    async def _result_of_claudes_call(self, id: str) -> Block | None:
        """Return what the model reads about a call of Claude Code's own; None if it waits."""
        row = await self.log.calls.find(self.log.key(id))
        if row is None:
            return result_block(id, "It is not known whether this call was made.", is_error=True)
        if row.status is CallStatus.ASKED or row.status is CallStatus.IN_DOUBT:
            self._waiting.add(id)
            return None
        if row.status is CallStatus.READY:
            changed = "" if row.original is None else " Its arguments were changed."
            text = f"A person approved this call.{changed} Make it now, with exactly {row.args}"
            return result_block(id, text)
        if outcomes.has_result(row):
            return result_block(id, outcomes.as_text(codec.loads(row.result or "null")))
        return result_block(id, outcomes.why_not(row), is_error=True)


def _is_left(terms: Terms) -> bool:
    """Return whether Claude Code's own permissions decide: no rule of the user's matches."""
    return terms.preset or terms.rule in _UNRULED


async def _prompt_stream(prompt: Any) -> AsyncIterator[dict[str, Any]]:
    yield {"type": "user", "message": {"role": "user", "content": prompt}}


def _deny(why: str) -> Any:
    return _answer("deny", why)


def _answer(decision: str, why: str) -> Any:
    answer = {"hookEventName": "PreToolUse", "permissionDecision": decision}
    return {"hookSpecificOutput": {**answer, "permissionDecisionReason": why}}


async def _allowed(args: dict[str, Json]) -> str:
    return "Claude Code was allowed to make the call."


_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}


def _schema(given: Any) -> dict[str, Any]:
    """Return the JSON Schema of a tool, from any form that the SDK takes."""
    if isinstance(given, Mapping):
        if isinstance(given.get("type"), str) and "properties" in given:
            return dict(given)
        declared = {
            name: {"type": _TYPES[kind]} if kind in _TYPES else TypeAdapter(kind).json_schema()
            for name, kind in given.items()
        }
        return {"type": "object", "properties": declared, "required": list(declared)}
    if is_typeddict(given) or isinstance(given, type):
        return TypeAdapter(given).json_schema()
    raise InvalidCall(f"the input schema {given!r:.60} is not one that the SDK takes", "tools")


def _result(id: str, outcome: Outcome) -> Block:
    """Return the outcome of a call of one of our tools."""
    if not outcome.ok or outcome.by_person:
        return result_block(id, outcome.text, is_error=not outcome.ok)
    value = outcome.value if isinstance(outcome.value, Mapping) else {"content": outcome.text}
    content = value.get("content", "")
    if outcome.notice:
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
        content = [{"type": "text", "text": outcome.notice}, *blocks]
    return result_block(id, content, is_error=bool(value.get("is_error")))
