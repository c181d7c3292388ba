"""One turn of a thread: the log of its conversation, and its calls while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from google.adk.events.event import Event
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from sayso import codec
from sayso.adapters.calls import cancel_skipped, closing_text, outcome_with_errors
from sayso.adapters.conversation import Body, ReplayLog, shown
from sayso.errors import CallFailed, Paused, SaysoError
from sayso.gate import outcomes
from sayso.gate.framework import FrameworkCall, Outcome
from sayso.gate.scope import quoted
from sayso.rows import CallStatus
from sayso.sync import to_thread
from sayso.types import Json

#: Under this name, a stored result has what its tool did to the state and to the run.
ACTIONS = "adk_actions"


class TurnLog(ReplayLog):
    """The conversation of a thread: the events of earlier turns, and the replies of this one."""

    format = "google-adk"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.input: types.Content | None = None
        #: The events of the earlier turns.
        self.history: list[Event] = []
        #: The replies of this turn in their order, each with its path and author.
        self.stored: list[Body] = []

    def replay(self, body: Body) -> None:
        super().replay(body)
        if "reply" in body:
            self.stored.append(body)
            return
        self.stored = []
        if "input" in body:
            self.input = types.Content.model_validate(body["input"])
        self.history += map(Event.model_validate, body.get("events", ()))

    async def begin(self, input: types.Content) -> None:
        """Store what the user said, after the events of a turn that has no answer."""
        closed = await self._superseded()
        await self.say(
            text_of(input), input=dumped(input), events=[dumped(event) for event in closed]
        )
        self.input = input
        self.history += closed
        self.stored = []

    async def end_turn(self, output: Json, type: str, events: Sequence[Event]) -> None:
        """Store the answer, and the events that this turn has added to the session."""
        content = output if isinstance(output, str) else codec.dumps(output)
        stored: Any = [dumped(event) for event in events]
        await self.end(output, content=content, type=type, events=stored)

    def key(self, path: str, number: int, id: str) -> str:
        """Return the key of a call in the reply with this number."""
        return f"{self.turn}:{quoted(path)}:{number}:{quoted(id)}"

    def calls_of(self, body: Body) -> list[tuple[str, types.FunctionCall]]:
        """Return the calls of a stored reply, each with its key."""
        replies = [each for each in self.stored if each["path"] == body["path"]]
        number = next(n for n, each in enumerate(replies) if each is body)
        calls = [call for response in responses_of(body["reply"]) for call in calls_in(response)]
        return [(self.key(body["path"], number, call.id or ""), call) for call in calls]

    @property
    def open_keys(self) -> list[str]:
        last = {body["path"]: body for body in self.stored}
        return [key for body in last.values() for key, _ in self.calls_of(body)]

    async def _superseded(self) -> list[Event]:
        """Return the events of a turn that has no answer, with a result for each call."""
        if self.turn == 0 or self.answer is not None:
            return []
        events = [Event(author="user", content=self.input)]
        for body in self.stored:
            branch = body["branch"]
            events += [
                Event(author=body["author"], branch=branch, content=response.content)
                for response in responses_of(body["reply"])
            ]
            calls = self.calls_of(body)
            if calls:
                parts = [await self._closing_part(key, call) for key, call in calls]
                content = types.Content(role="user", parts=parts)
                events.append(Event(author=body["author"], branch=branch, content=content))
        return events

    async def _closing_part(self, key: str, call: types.FunctionCall) -> types.Part:
        row = await to_thread(self.calls.row_in_any_run, key)
        result: dict[str, Any] = {"error": closing_text(row)}
        if row is not None and outcomes.has_result(row):
            stored = codec.loads(row.result or "null")
            result = stored if isinstance(stored, dict) else {"result": stored}
            result.pop(ACTIONS, None)
        response = types.FunctionResponse(id=call.id, name=call.name, response=result)
        return types.Part(function_response=response)


def text_of(content: types.Content | None) -> str:
    """Return the text that people read, without the model's thoughts."""
    parts = (content.parts if content is not None else None) or []
    return "".join(part.text for part in parts if part.text and not part.thought)


def calls_in(response: LlmResponse) -> list[types.FunctionCall]:
    parts = (response.content.parts if response.content is not None else None) or []
    return [part.function_call for part in parts if part.function_call is not None]


def responses_of(stored: Sequence[Any]) -> list[LlmResponse]:
    return [LlmResponse.model_validate(response) for response in stored]


def dumped(value: Any) -> Any:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


def path_of(context: Any) -> str:
    """Return what names an agent in a turn: parallel branches may have agents of one name."""
    return f"{context.branch or ''}:{context.agent.name}"


class _Stopped(BaseException):
    """Ends the run through ADK, which makes text for the model of every ``Exception``."""


class Turn:
    """A turn while ADK runs it, from its beginning."""

    def __init__(self, log: TurnLog) -> None:
        self.log = log
        #: What ends the run: a call waits for a decision, or the gate raised an error.
        self.stop: Paused | SaysoError | None = None
        #: Whether anything happened that is not in the store yet.
        self.live = False
        self._keys: dict[tuple[str, str], str] = {}
        self._skipped: set[str] = set()
        self._arrived: list[FrameworkCall] = []
        self._running = 0
        self._idle = asyncio.Event()
        self._asking = asyncio.Lock()

    # -- replies

    async def reply(
        self, context: Any, tools: Mapping[str, Any], responses: AsyncIterator[LlmResponse]
    ) -> AsyncIterator[LlmResponse]:
        """Yield the stored reply, or that of the model, which is stored before its calls run."""
        path = path_of(context)
        number = self.log.given.get(path, 0)
        stored = self.log.next_reply(path)
        if stored is None:
            self.live = True
            response_list: list[LlmResponse] = []
            async for response in responses:
                if response.partial:
                    yield response
                else:
                    response_list.append(response)
            calls = name_calls(response_list, f"{path}:{number}")
            body = shown(
                "".join(text_of(response.content) for response in response_list),
                [(call.id, call.name, codec.dumps(call.args or {})) for call in calls],
            )
            more = {"author": context.agent.name, "branch": context.branch}
            await self.log.reply(
                path, [dumped(response) for response in response_list], **body, **more
            )
        else:
            response_list = responses_of(stored)
        for call in (call for response in response_list for call in calls_in(response)):
            id = call.id or ""
            key = self.log.key(path, number, id)
            self._keys[path, id] = key
            self._skipped.add(key)
            if call.name not in tools:
                await self.log.calls.gone(key, call.name or "")
        for response in response_list:
            yield response

    # -- calls

    def key_of(self, context: ToolContext) -> str | None:
        """Return the key of a call that the model made; None for any other."""
        path = path_of(context._invocation_context)
        return self._keys.get((path, context.function_call_id or ""))

    async def outcome(self, call: FrameworkCall, context: ToolContext) -> Outcome:
        """Complete a call.

        ADK runs the calls of a reply side by side and cancels them if one raises, so a call that
        waits for a decision raises only when no other one runs.
        """
        # Results of the last stored reply are new: the run pauses before all of them are known.
        self.live = self.live or sum(self.log.given.values()) == len(self.log.stored)
        self._skipped.discard(call.id)
        self._arrived.append(call)
        self._running += 1
        try:
            outcome = await self._settled(call)
        except (Paused, SaysoError) as stop:
            self.stop = stop
        finally:
            self._running -= 1
            if self._running == 0:
                self._idle.set()
        if self.stop is not None:
            await self._idle.wait()
            raise _Stopped
        failed = outcome.call is not None and outcome.call.status is CallStatus.FAILED
        if (failed or outcome.error) and _handles_errors(context):
            raise outcome.error or CallFailed(outcome.text)
        return outcome

    async def _settled(self, call: FrameworkCall) -> Outcome:
        await asyncio.sleep(0)  # so that the other calls of the reply arrive
        async with self._asking:
            arrived = self._arrived
            self._arrived = []
            if arrived:
                await self.log.calls.ask(arrived)
        return await outcome_with_errors(self.log.calls, call)

    async def close(self) -> None:
        """Cancel the calls that ADK has answered without running their tools."""
        await cancel_skipped(self.log.calls, self._skipped)


def name_calls(responses: Sequence[LlmResponse], prefix: str) -> list[types.FunctionCall]:
    """Return the calls in these responses.

    Calls without an id, or with that of another one, get an id that the model never sees, as in
    ADK.
    """
    calls = [call for response in responses for call in calls_in(response)]
    ids: set[str] = set()
    for number, call in enumerate(calls):
        if not call.id or call.id in ids:
            call.id = f"adk-{prefix}:{number}"
        ids.add(call.id)
    return calls


def _handles_errors(context: ToolContext) -> bool:
    """Return whether the user's own code wants to see the errors of tools."""
    invocation = context._invocation_context
    if getattr(invocation.agent, "canonical_on_tool_error_callbacks", None):
        return True
    plugins: Sequence[BasePlugin] = invocation.plugin_manager.plugins
    default = BasePlugin.on_tool_error_callback
    return any(type(plugin).on_tool_error_callback is not default for plugin in plugins)


#: The turn of a guarded agent that runs here.
current_turn: ContextVar[Turn | None] = ContextVar("sayso_adk_turn", default=None)
