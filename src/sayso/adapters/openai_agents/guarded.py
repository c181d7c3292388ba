"""An agent of the SDK that waits for people: kept by its thread, resumed anywhere."""

from __future__ import annotations

import contextvars
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypedDict, Unpack

from agents import (
    Agent,
    RunConfig,
    RunErrorHandlers,
    RunHooks,
    Runner,
    RunResultStreaming,
    UserError,
)
from agents import RunResult as SdkRunResult
from pydantic_core import to_jsonable_python

from sayso.adapters.openai_agents import settling, states
from sayso.adapters.openai_agents.drive import Drive, open_drive
from sayso.adapters.openai_agents.messages import ItemLog
from sayso.adapters.openai_agents.streaming import Stream
from sayso.adapters.openai_agents.tools import faces_of
from sayso.adapters.openai_agents.wiring import wire
from sayso.errors import Paused, SaysoError
from sayso.gate import Gate
from sayso.gate.driven import Driven, check_gate
from sayso.gate.foreign import ForeignThread, ForeignTool
from sayso.gate.options import check_known
from sayso.gate.run_result import RunResult
from sayso.gate.within import Within, within
from sayso.inbox import Inbox
from sayso.policy import Policy
from sayso.twin import look
from sayso.types import Json, Reviewer

_listener: contextvars.ContextVar[Callable[[Any], None] | None] = contextvars.ContextVar(
    "sayso_openai_listener", default=None
)


class Options(TypedDict, total=False):
    """What the SDK's runner is given on every run and resume."""

    context: Any
    max_turns: int | None
    hooks: RunHooks[Any] | None
    run_config: RunConfig | None
    error_handlers: RunErrorHandlers[Any] | None


def guard(
    agent: Agent[Any], gate: Gate, policy: Policy | None = None, **options: Unpack[Options]
) -> Guarded:
    """Make an agent, and every agent that it hands off to or has as a tool, ask through the gate.

    The agents are changed in place. ``options`` (``context``, ``max_turns``, ``hooks``,
    ``run_config``, ``error_handlers``) are given to the SDK's runner on every run and resume; the
    conversation is kept with the thread, so there is no session.
    """
    check_gate(gate, policy)
    return Guarded(agent, gate, policy, **options)


async def resume(
    guarded: Guarded, where: str, decisions: Any = None, *, by: str | Reviewer = "user"
) -> RunResult:
    """Go on with a thread, after these decisions; calls that they leave out keep waiting."""
    return await guarded.resume(where, decisions=decisions, by=by)


class Guarded(Driven):
    """What ``guard`` gives: an agent that servers and workers can run and resume."""

    channel = settling.CHANNEL

    def __init__(
        self,
        agent: Agent[Any],
        gate: Gate,
        policy: Policy | None = None,
        **options: Unpack[Options],
    ) -> None:
        check_known(options, Options)
        super().__init__(gate, Inbox(gate.store))
        self._agents = wire(agent)
        self.agent = agent
        self.policy = policy
        self._context = options.pop("context", None)
        self._config = options.pop("run_config", None) or RunConfig()
        self._options: dict[str, Any] = {
            **options,
            # Whose tool is gone is told to the model, and each agent's own model stands in front.
            "run_config": replace(
                self._config, model=None, tool_not_found_behavior="return_error_to_model"
            ),
        }

    # -- by us

    async def begin(self, input: Any, thread: str) -> Any:
        drive, log = await self._enter(thread)
        await log.say_input(input)
        return await self._go(drive, log)

    async def go_on(self, thread: str) -> Any:
        drive, log = await self._enter(thread)
        if log.answer is not None:
            return log.answer["output"]
        if log.input is None:
            raise Paused(drive.calls.run, ())  # driven by hand: there is nothing to go on with
        return await self._go(drive, log)

    def place(self) -> Within | None:
        """Only in a tool of an agent of the SDK, whose log has room for its replies."""
        around = open_drive()
        if around is None or around.by_hand:
            return None
        place = within(self.gate)
        return place if place is not None and place.thread == around.calls.thread else None

    async def part(self, input: Any, place: Within) -> Any:
        around = open_drive()
        assert around is not None
        calls = ForeignThread(self.gate, place.thread, policy=self.policy)
        drive = Drive(calls, around.log, self._config)
        with drive.open(), drive.inside(place.key):
            result = await self._played(input, resumed=False)
        if drive.stopped or result.interruptions:
            raise Paused(place.run, ())
        return to_jsonable_python(result.final_output, by_alias=True, fallback=str)

    def known_tools(self) -> Iterable[ForeignTool]:
        return [face for agent in self._agents for face in faces_of(agent)]

    async def _enter(self, thread: str) -> tuple[Drive, ItemLog]:
        log = ItemLog(self.gate, thread, self.policy)
        await log.load()
        return Drive(log.calls, log, self._config), log

    async def _go(self, drive: Drive, log: ItemLog) -> Json:
        with drive.open():
            state = await states.restored(drive, log, self.agent, self._context)
            result = await self._run(drive, log, state)
            conversation = result.to_input_list()
            await settling.settle(drive, conversation)
        output: Json = to_jsonable_python(result.final_output, by_alias=True, fallback=str)
        await log.end_with(conversation, output)
        return output

    async def _run(self, drive: Drive, log: ItemLog, state: Any) -> Any:
        """Let the SDK run until it ends or waits for people."""
        start = log.conversation() if state is None else state
        while True:
            result = await self._played(start, resumed=start is state)
            if drive.stopped:
                raise Paused(drive.calls.run, ())
            if not result.interruptions:
                return result
            ready = await look(self.gate.store, states.settled, drive, result.interruptions)
            if not ready:
                await states.keep(drive, log, result)
                raise Paused(drive.calls.run, ())
            start = state = result.to_state()
            await states.pass_on(drive, ready, state.approve, state.reject)

    async def _played(self, start: Any, *, resumed: bool) -> SdkRunResult | RunResultStreaming:
        options = self._options if resumed else {**self._options, "context": self._context}
        listener = _listener.get()
        try:
            if listener is None:
                return await Runner.run(self.agent, start, **options)
            streamed = Runner.run_streamed(self.agent, start, **options)
            async for event in streamed.stream_events():
                listener(event)
            return streamed
        except UserError as error:
            if isinstance(error.__cause__, SaysoError):
                raise error.__cause__ from None
            raise

    # -- streaming

    def stream(self, input: Any, *, thread: str | None = None, requester: str = "") -> Stream:
        """The same as ``run``; the SDK's events come while it does."""
        return self._streamed(lambda: self.run(input, thread=thread, requester=requester))

    def stream_resume(
        self, where: str, *, decisions: Any = None, by: str | Reviewer = "user"
    ) -> Stream:
        """The same as ``resume``, likewise."""
        return self._streamed(lambda: self.resume(where, decisions=decisions, by=by))

    def _streamed(self, work: Callable[[], Any]) -> Stream:
        async def listened(listener: Callable[[Any], None]) -> RunResult:
            _listener.set(listener)
            stands: RunResult = await work()
            return stands

        return Stream(listened)

    # -- by hand

    @asynccontextmanager
    async def thread(
        self, name: str, *, by: str | Reviewer = "user", requester: str = ""
    ) -> AsyncIterator[Agent[Any]]:
        """Drive the SDK by hand in here: ``Runner.run(guarded.agent, …)``, ``result.to_state()``,
        ``state.approve(item)``. Calls stand in the inbox under this thread; what is decided on a
        state is written down as decided by ``by``."""
        calls = ForeignThread(self.gate, name, requester=requester, policy=self.policy)
        with Drive(calls, None, self._config, by).open():
            yield self.agent
        await self.gate.backend.finish(calls.scope(), "done")
