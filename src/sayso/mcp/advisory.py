"""``AdvisoryServer``: tools with which an agent asks people, over MCP.

An agent that has these tools can ask a question or for approval. Nothing makes it ask, and nothing
makes it obey: use the proxy for that. Requests are handled like the proxy's calls, so a client may
time out, disconnect and come back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import mcp_types as types

from sayso import codec, schema
from sayso.client import RemoteGate
from sayso.errors import InvalidCall, Paused, SaysoError
from sayso.gate import Gate
from sayso.gate.framework import Outcome
from sayso.gate.options import checked_string, question_terms
from sayso.gate.plan import Plan
from sayso.mcp.calls import Calls, Context, FrontCaller
from sayso.mcp.config import DEFAULT_HOLD, VERSION, OnAbandon
from sayso.mcp.front import FrontServer, agent_of, text_result
from sayso.mcp.state import StateFile
from sayso.mcp.upstreams import Listener
from sayso.rows import Call
from sayso.types import Json, Question, Terms
from sayso.views import stored_question

log = logging.getLogger("sayso.mcp")

_TICKET_SCHEMA = {
    "type": "object",
    "properties": {
        "ticket": {"type": "string", "description": "The ticket that the request returned."}
    },
    "required": ["ticket"],
    "additionalProperties": False,
}
_TOOLS = (
    types.Tool(
        name="ask_human",
        title="Ask a person",
        description=(
            "Ask a person a question and return the answer. If nobody answers in time, it returns "
            "a ticket: call check_request with it later."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "question": {"type": "string", "minLength": 1},
                "options": {
                    "type": "array",
                    "description": "Answers to choose from. Without any, the person writes one.",
                    "items": {
                        "type": "object",
                        "properties": {
                            "label": {"type": "string", "minLength": 1},
                            "description": {"type": "string"},
                        },
                        "required": ["label"],
                        "additionalProperties": False,
                    },
                },
                "multiple": {"type": "boolean", "description": "Several options may be chosen."},
                "free_text": {"type": "boolean", "description": "Another answer may be written."},
            },
            "required": ["question"],
            "additionalProperties": False,
        },
    ),
    types.Tool(
        name="request_approval",
        title="Request approval",
        description=(
            "Ask a person to approve an action before you take it. Only act if the status is "
            "approved. If nobody decides in time, it returns a ticket: call check_request later."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "action": {
                    "type": "string",
                    "minLength": 1,
                    "description": "What you want to do, in one sentence.",
                },
                "details": {
                    "type": "object",
                    "description": "Everything the person needs to judge it, by name.",
                },
                "reason": {"type": "string", "description": "Why you want to do it."},
            },
            "required": ["action"],
            "additionalProperties": False,
        },
    ),
    types.Tool(
        name="check_request",
        title="Check a request",
        description="Wait a little for a request, and return its status and answer.",
        input_schema=_TICKET_SCHEMA,
        annotations=types.ToolAnnotations(read_only_hint=True),
    ),
    types.Tool(
        name="cancel_request",
        title="Cancel a request",
        description="Withdraw a request that nobody has decided yet.",
        input_schema=_TICKET_SCHEMA,
    ),
)
_SCHEMAS = {tool.name: tool.input_schema for tool in _TOOLS}
_UNKNOWN_SECONDS = 3.0


@dataclass(frozen=True)
class AskTarget:
    """A question, or a text to approve. Nothing runs when it is answered."""

    name: str
    #: The agent's reason.
    note: str = ""
    on_abandon: OnAbandon = "keep"

    @property
    def kind(self) -> str:
        return "question" if self.name == "ask_human" else "approval"

    def intake(self, args: Mapping[str, Json]) -> str:
        if self.kind == "question":
            question = Question(
                args["question"],
                args.get("options") or (),
                multiple=args.get("multiple", False),
                free_text=args.get("free_text"),
            )
            content = stored_question(question)
        else:
            content = {"text": args["action"], "details": args.get("details") or {}}
        return codec.canonical(content).decode()

    def plan(self, gate: Gate | RemoteGate, args: str, listener: Listener) -> Plan:
        allowed = ("respond", "reject") if self.kind == "question" else ("approve", "reject")
        own = question_terms(self.kind, allowed, {})

        async def terms(_: dict[str, Any]) -> Terms:
            return own

        return Plan(
            key="", kind=self.kind, args=args, agent=gate.agent, terms=terms, note=self.note
        )


class AdvisoryServer:
    """The server behind ``sayso mcp``."""

    def __init__(
        self,
        gate_of: Callable[[str], Gate | RemoteGate],
        *,
        agent: str,
        hold: float = DEFAULT_HOLD,
        state: StateFile | None = None,
    ) -> None:
        self._gate_of = gate_of
        self._agent = agent
        self._hold = hold
        self._state = state
        self._calls: dict[str, Calls] = {}
        self.server = FrontServer(
            "sayso",
            version=VERSION,
            instructions="Ask a person before you act on anything that is hard to undo.",
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )

    @asynccontextmanager
    async def running(self, agents: tuple[str, ...] = ()) -> AsyncIterator[None]:
        """Serve. Requests that are still open at the end stay open."""
        self.server.connections.share(self._gate_of(self._agent), self._state)
        for agent in {self._agent, *agents}:
            await self._calls_of(agent).resume_open_calls()
        try:
            yield
        finally:
            for calls in self._calls.values():
                await calls.close()

    def _calls_of(self, agent: str) -> Calls:
        if agent not in self._calls:
            gate = self._gate_of(agent)
            connections = self.server.connections
            self._calls[agent] = Calls(
                gate, agent, "ask:default", _target_of, connections, self._state
            )
        return self._calls[agent]

    async def _list_tools(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=list(_TOOLS))

    async def _call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        try:
            return await self._handle_call(ctx, params.name, params.arguments or {})
        except InvalidCall as error:
            return text_result(f"The call cannot be read: {error}", error=True)
        except SaysoError as error:
            return text_result(f"Nobody was asked: {error}", error=True)
        except Paused as paused:  # a BaseException would end the whole server
            return text_result(str(paused), error=True)

    async def _handle_call(
        self, ctx: Context, name: str, args: dict[str, Any]
    ) -> types.CallToolResult:
        if name not in _SCHEMAS:
            return text_result(f"There is no tool {name[:80]!r}.", error=True)
        if wrong := schema.errors(_SCHEMAS[name], args):
            path, message = wrong[0]
            raise InvalidCall(f"{path}: {message}" if path else message, path)
        calls = self._calls_of(agent_of(self._agent))
        caller = FrontCaller(ctx)
        if name in ("check_request", "cancel_request"):
            call = await calls.find(args["ticket"])
            delivered = calls.delivered(args["ticket"])
            if call is None and delivered is not None:
                return _status_result(args["ticket"], delivered)
            if call is None:
                await asyncio.sleep(_UNKNOWN_SECONDS)
                return text_result("There is no request with this ticket.", error=True)
            if name == "cancel_request" and not call.task.done():
                await calls.cancel(call, "the agent withdrew it")
        else:
            note = checked_string(args.get("reason") or "", "reason")
            target = AskTarget(name, note)
            opened = await calls.open(target, target.intake(args), caller)
            if isinstance(opened, str):
                return text_result(opened, error=True)
            call = opened
        outcome = await calls.wait(call, caller, self._hold)
        return _status_result(call.ticket, outcome)


def _target_of(row: Call | str) -> AskTarget:
    if isinstance(row, str):
        return AskTarget(row)
    return AskTarget("ask_human" if row.kind == "question" else "request_approval")


def _status_result(ticket: str, outcome: Outcome | None) -> types.CallToolResult:
    """Return the status of a request, as text and as structured content."""
    if outcome is None:
        status: dict[str, Any] = {
            "ticket": ticket,
            "status": "pending",
            "message": (
                "Nobody has decided yet. Do not ask again: do other work or tell the user, and "
                f'call check_request with {{"ticket": "{ticket}"}} later.'
            ),
        }
    elif outcome.call is None:
        return text_result(outcome.text, error=True)
    elif not outcome.ok:
        status = {"ticket": ticket, "status": str(outcome.call.status), "message": outcome.text}
    elif outcome.call.kind == "question":
        status = {"ticket": ticket, "status": "answered", "answer": outcome.value}
    else:
        status = {"ticket": ticket, "status": "approved"}
    if outcome is not None and outcome.call is not None and outcome.call.decision is not None:
        status["by"] = outcome.call.decision.by
    content: list[types.ContentBlock] = [
        types.TextContent(type="text", text=codec.dumps(status)),
    ]
    return types.CallToolResult(content=content, structured_content=status)
