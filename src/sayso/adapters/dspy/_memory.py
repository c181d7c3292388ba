"""What a guarded agent remembers of one turn of a thread: replies of the model, outcomes of calls.

The loop is DSPy's own, and DSPy keeps its trajectory in a local variable. So on every resume the
loop runs from the top, and what was there before is given from memory: the model is not asked
again, and no tool runs again.
"""

from __future__ import annotations

import contextvars
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sayso import codec
from sayso.adapters.conversation import Body, ReplayLog
from sayso.errors import Paused, SaysoError
from sayso.gate import Gate
from sayso.gate.foreign import ForeignCall, ForeignThread, Outcome
from sayso.gate.within import kept
from sayso.policy import Policy
from sayso.types import Json

_playing: contextvars.ContextVar[Memory | None] = contextvars.ContextVar("sayso_dspy", default=None)


@dataclass
class Memory:
    """One turn of a thread, while it is being played."""

    thread: ForeignThread
    turn: int
    #: Where the replies are; an agent in the body of a call has rows for them instead.
    log: TurnLog | None = None
    #: What the keys begin with in the body of a call.
    place: str = ""
    _asked: Counter[str] = field(default_factory=Counter)
    _calls: list[ForeignCall] = field(default_factory=list)
    _outcomes: dict[str, Outcome] | None = None

    async def reply(self, name: str, ask: Callable[[], Awaitable[Json]]) -> Json:
        """The n-th reply of a predictor: from memory, else asked and kept before it is given."""
        key = self.key(f"{name} {self._asked[name]}")
        self._asked[name] += 1
        if self.log is None:
            return await kept(self.thread, key, ask)
        reply = self.log.next_reply(name)
        if reply is None:
            reply = await ask()
            await self.log.reply(name, reply, **_shown(reply))
        return reply

    def step(self, name: str) -> str:
        """What the calls of the last reply of this predictor are named after."""
        return self.key(f"{name} {self._asked[name] - 1}")

    def key(self, what: str) -> str:
        """A key of this turn."""
        return f"{self.place}turn {self.turn} {what}"

    def expect(self, calls: Sequence[ForeignCall]) -> None:
        """The calls of the reply that the framework is about to carry out."""
        self._calls = list(calls)
        self._outcomes = None

    async def outcome(self, tool: str) -> Outcome:
        """How the next call of this tool ended; what the turn can do by now is done first."""
        if self._outcomes is None:
            self._outcomes = await self._settle()
        for place, call in enumerate(self._calls):
            if call.tool.name == tool:
                del self._calls[place]
                return self._outcomes[call.id]
        raise SaysoError(f"{tool} was called without a reply of the model that asks for it")

    async def _settle(self) -> dict[str, Outcome]:
        """All calls of the turn: people are asked about all of them at once, and none that may
        run waits for one that may not."""
        await self.thread.ask(self._calls)
        outcomes: dict[str, Outcome] = {}
        paused: Paused | None = None
        for call in self._calls:
            try:
                outcomes[call.id] = await self._ended(call)
            except Paused as pause:
                paused = pause
        if paused is not None:
            raise paused
        return outcomes

    async def _ended(self, call: ForeignCall) -> Outcome:
        try:
            return await self.thread.outcome(call)
        except SaysoError:
            raise
        except Exception:  # of the tool: recorded by now, and the row says it in a sentence
            return await self.thread.outcome(call)


class TurnLog(ReplayLog):
    """The conversation of a thread: inputs, the predictors' replies, answers."""

    format = "dspy"

    def __init__(self, gate: Gate, thread: str, policy: Policy | None = None) -> None:
        super().__init__(gate, thread, policy)
        self.inputs: dict[str, Json] | None = None

    def replay(self, body: Body) -> None:
        super().replay(body)
        self.inputs = body.get("inputs", self.inputs)


def _shown(reply: Json) -> dict[str, Any]:
    """Return a reply in the fields that pages and terminals show."""
    made = (reply.get("tool_calls") or {}).get("tool_calls", [])
    if reply.get("next_tool_name"):
        made = [{"name": reply["next_tool_name"], "args": reply.get("next_tool_args")}]
    calls = [
        {"id": call.get("id") or "", "name": call["name"], "arguments": codec.dumps(call["args"])}
        for call in made
    ]
    content = reply.get("next_thought")
    shown: dict[str, Any] = {"content": content if isinstance(content, str) else ""}
    return {**shown, "calls": calls} if calls else shown


class Stopped(BaseException):
    """An error of ours on its way out: DSPy's loop makes words for the model of any exception."""

    def __init__(self, cause: SaysoError) -> None:
        super().__init__(str(cause))
        self.cause = cause


@contextmanager
def playing(memory: Memory) -> Iterator[None]:
    """Everything that the agent does in here belongs to this turn."""
    token = _playing.set(memory)
    try:
        yield
    finally:
        _playing.reset(token)


def memory() -> Memory:
    """The turn that is being played."""
    found = _playing.get()
    if found is None:
        raise SaysoError(
            "a guarded agent is run by run(...) and resume(...), which know its thread: "
            "await guard(agent, gate).run('…', thread='t-1')"
        )
    return found
