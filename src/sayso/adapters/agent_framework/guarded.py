"""An agent of the Microsoft Agent Framework that waits for people, kept by its thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from agent_framework import (
    AgentResponse,
    AgentSession,
    Content,
    FunctionTool,
    HistoryProvider,
    InMemoryHistoryProvider,
    Message,
    MiddlewareFailure,
    RawAgent,
    normalize_messages,
)
from pydantic_core import to_jsonable_python

from sayso.adapters.agent_framework.below import Below, check_layers, wire
from sayso.adapters.agent_framework.gated import Gated
from sayso.adapters.agent_framework.heard import CHANNEL
from sayso.adapters.agent_framework.hosted import Hosted
from sayso.adapters.agent_framework.messages import MessageLog
from sayso.adapters.agent_framework.replies import Replies
from sayso.adapters.agent_framework.tools import face_of
from sayso.adapters.agent_framework.waiting import Waiting
from sayso.errors import Paused, SaysoError
from sayso.gate import Gate
from sayso.gate.driven import Driven
from sayso.gate.foreign import ForeignThread, ForeignTool
from sayso.gate.run_result import RunResult
from sayso.gate.within import Within, within
from sayso.inbox import Inbox
from sayso.policy import Policy
from sayso.types import Json


@dataclass(frozen=True, slots=True)
class Words:
    """The user's words, and what the functions are given beside their arguments."""

    messages: list[Message]
    arguments: dict[str, Json]


class Guarded(Driven):
    """What ``guard`` gives for an agent: servers and workers can run and resume it."""

    channel = CHANNEL

    def __init__(self, agent: Any, gate: Gate, policy: Policy | None = None, **kept: Any) -> None:
        self.inbox: Inbox
        super().__init__(gate, Inbox(gate.store))
        if isinstance(agent, RawAgent):
            check_layers(agent)
            _check_history(agent)
        self.agent = agent
        self.policy = policy
        self.kept = kept
        #: What functions have added to the tools of a thread, as long as this process knows it.
        self._added: dict[str, list[Any]] = {}

    async def run(
        self,
        input: Any,
        *,
        thread: str | None = None,
        requester: str = "",
        arguments: Mapping[str, Json] | None = None,
    ) -> RunResult:
        """Answer the user's words; ``paused`` if people are needed first. ``arguments`` are for the
        functions of this run (``function_invocation_kwargs``), also after a resume elsewhere."""
        words = Words(normalize_messages(input), dict(arguments or {}))
        return await super().run(words, thread=thread, requester=requester)

    def as_agent(self, *, by: str = "user") -> Waiting:
        """The same as an agent of the framework: it asks with ``function_approval_request``."""
        return Waiting(self, by=by)

    async def begin(self, input: Any, thread: str) -> Any:
        log = MessageLog(self.gate, thread)
        await log.load()
        await log.close_calls()
        words = input if isinstance(input, Words) else Words(normalize_messages(input), {})
        await log.say_messages(words.messages, words.arguments)
        return await self._run(log)

    async def go_on(self, thread: str) -> Any:
        log = MessageLog(self.gate, thread)
        await log.load()
        if log.answer is not None:
            return log.answer["output"]
        return await self._run(log)

    def place(self) -> Within | None:
        return within(self.gate)

    async def part(self, input: Any, place: Within) -> Any:
        calls = ForeignThread(self.gate, place.thread, policy=self.policy)
        inside = Below(calls, place.key, Gated(self.gate, self.policy))
        if isinstance(self.agent, RawAgent):
            wire(self.agent)
        given = {**self.kept, "function_invocation_kwargs": self._arguments(input.arguments)}
        run = self.agent.run(input.messages, session=AgentSession(), **given)
        with _failures(), inside.inside(), calls.scope(f"{place.key}/").inside():
            response = await run
        if inside.waits:
            raise Paused(place.run, ())
        _check_known(response.user_input_requests, hosted=False)
        return _output(response)

    def known_tools(self) -> Iterable[ForeignTool]:
        if not isinstance(self.agent, RawAgent):
            return ()
        own, more = self.agent.default_options.get("tools"), self.kept.get("tools")
        given = more if isinstance(more, Sequence) else [more]
        # A server says what it has while it is connected.
        served = [tool for s in self.agent.mcp_tools if s.is_connected for tool in s.functions]
        tools = [*(own or ()), *served, *given]
        return [face_of(tool) for tool in tools if isinstance(tool, FunctionTool)]

    async def order(self, thread: str) -> list[str]:
        log = MessageLog(self.gate, thread)
        await log.load()
        made = log.open_calls
        return [call.id or "" for call in made]

    async def _run(self, log: MessageLog) -> Any:
        with _failures():
            if isinstance(self.agent, RawAgent):
                response, said = await self._chat(log)
            else:
                response, said = await self._custom(log)
        output = _output(response)
        await log.end_with(said, output)
        return output

    async def _chat(self, log: MessageLog) -> tuple[AgentResponse[Any], list[Message]]:
        """An agent with a model: its loop is entered at the last reply."""
        gated = Gated(self.gate, self.policy)
        replies = Replies(log, self._added.get(log.thread, []), gated)
        hosted = Hosted(log, self.policy)
        given: list[Message] = log.history
        while True:
            response = await self.agent.run(
                given, session=log.session, **self._options(log, replies, gated)
            )
            self._remember(log.thread, replies.added)
            waiting = response.user_input_requests
            _check_known(waiting)
            if gated.waits or any(not _is_hosted(content) for content in waiting):
                await log.save_session()
                raise Paused(log.calls.run, ())
            if not waiting:
                self._added.pop(log.thread, None)
                return response, replies.unsaved
            # The provider waits for a yes or a no; the framework wants it as the next message.
            answers = await hosted.answers(waiting)
            replies.unsaved.append(answers)
            given = [answers]

    def _remember(self, thread: str, added: list[Any]) -> None:
        if added:
            self._added[thread] = added

    def _options(self, log: MessageLog, replies: Replies, gated: Gated) -> dict[str, Any]:
        kept = dict(self.kept)
        arguments = self._arguments(log.arguments)
        middleware = [*(kept.pop("middleware", None) or ()), replies, gated]
        return {**kept, "middleware": middleware, "function_invocation_kwargs": arguments}

    def _arguments(self, given: Mapping[str, Json]) -> dict[str, Any]:
        return {**(self.kept.get("function_invocation_kwargs") or {}), **given}

    async def _custom(self, log: MessageLog) -> tuple[AgentResponse[Any], list[Message]]:
        """An agent of one's own: it starts at its top; what it asked and did is in the store."""
        with log.calls.scope(f"{log.turn}/").inside():
            try:
                response = await self.agent.run(list(log.prompt), session=log.session)
            except Paused:
                await log.save_session()
                raise
        return response, list(response.messages)


def _is_hosted(content: Content) -> bool:
    call = content.function_call if content.type == "function_approval_request" else None
    return call is not None and bool(call.hosted)


def _check_known(waiting: Sequence[Content], *, hosted: bool = True) -> None:
    """What no person can decide at a gate must not look as if it waited for one."""
    for content in waiting:
        ours = hosted and _is_hosted(content)
        if not ours and "sayso" not in content.additional_properties:
            raise SaysoError(
                f"the agent asks for {content.type}, which cannot be put to people at a gate: run "
                "it without one until that is settled"
            )


@contextmanager
def _failures() -> Iterator[None]:
    """An error of ours comes out of the framework as itself."""
    try:
        yield
    except MiddlewareFailure as failure:
        if isinstance(failure.__cause__, SaysoError):
            raise failure.__cause__ from None
        raise


def _output(response: AgentResponse[Any]) -> Any:
    value = response.value
    return response.text if value is None else to_jsonable_python(value, by_alias=True)


def _check_history(agent: RawAgent[Any]) -> None:
    for provider in agent.context_providers:
        in_memory = isinstance(provider, InMemoryHistoryProvider)
        if isinstance(provider, HistoryProvider) and provider.load_messages and not in_memory:
            raise SaysoError(
                f"the history provider {provider.source_id!r} would tell the model everything "
                "twice: a guarded agent's conversation is kept in the gate's store, so leave the "
                "provider out (or give it load_messages=False)"
            )
