"""A DSPy agent behind a gate, run and resumed by its thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import dspy
from pydantic_core import to_jsonable_python

from sayso import codec
from sayso.adapters.dspy._memory import Memory, Stopped, TurnLog, playing
from sayso.adapters.dspy._parts import faces_of, guarded
from sayso.errors import InvalidCall
from sayso.gate import Gate
from sayso.gate.driven import Driven, Stands, check_gate
from sayso.gate.foreign import ForeignThread, ForeignTool
from sayso.gate.within import Within, within
from sayso.inbox import Inbox
from sayso.policy import Policy
from sayso.types import Json, Reviewer


def guard(agent: Any, gate: Gate, policy: Policy | None = None, *, lm: Any = None) -> GuardedReAct:
    """Make a ``dspy.ReAct`` or ``dspy.ReActV2`` durable, and its tool calls go through a gate.

    Without ``policy`` the gate's own decides, and without any every call is asked about. ``lm`` is
    used for its runs, wherever they happen; else what DSPy is configured with there.
    """
    check_gate(gate, policy)
    unruled = policy is None and not gate.policy.rules
    return GuardedReAct(guarded(agent, unruled), gate, policy, lm)


async def resume(
    guarded: GuardedReAct, where: str, decisions: Any = None, *, by: str | Reviewer = "user"
) -> Stands:
    """Go on with a thread, after these decisions; calls that they leave out keep waiting."""
    return await guarded.resume(where, decisions=decisions, by=by)


class GuardedReAct(Driven):
    """What ``guard`` gives. Its input is the words for the first input field, or a mapping."""

    channel = "dspy"

    def __init__(self, agent: Any, gate: Gate, policy: Policy | None, lm: Any) -> None:
        super().__init__(gate, Inbox(gate.store))
        self.agent = agent
        self.policy = policy
        self._lm = lm

    async def begin(self, input: Any, thread: str) -> Any:
        """Start a new turn of the thread with these inputs."""
        inputs = self._inputs(input)
        log = TurnLog(self.gate, thread, self.policy)
        await log.load()
        await log.say(input if isinstance(input, str) else codec.dumps(inputs), inputs=inputs)
        return await self._turn(log, inputs)

    async def go_on(self, thread: str) -> Any:
        """Play the last turn again from its top, with everything that is stored of it."""
        log = TurnLog(self.gate, thread, self.policy)
        await log.load()
        if log.answer is not None:
            return log.answer["output"]
        if log.inputs is None:
            raise InvalidCall(f"thread {thread!r} has no input to continue with: run it first")
        return await self._turn(log, log.inputs)

    async def _turn(self, log: TurnLog, inputs: Mapping[str, Json]) -> Any:
        output = await self._play(Memory(log.calls, log.turn, log), inputs)
        await log.end(output, content=output if isinstance(output, str) else "")
        return output

    def place(self) -> Within | None:
        return within(self.gate)

    async def part(self, input: Any, place: Within) -> Any:
        """The only turn of an agent in the body of a call, from its top each time."""
        now = ForeignThread(self.gate, place.thread, policy=self.policy)
        return await self._play(Memory(now, 1, place=f"{place.key}/"), self._inputs(input))

    def known_tools(self) -> Iterable[ForeignTool]:
        return faces_of(self.agent).values()

    async def _play(self, memory: Memory, inputs: Mapping[str, Json]) -> Any:
        settings = {} if self._lm is None else {"lm": self._lm}
        try:
            with playing(memory), dspy.context(**settings):
                prediction = await self.agent.acall(**inputs)
        except Stopped as stopped:
            raise stopped.cause from None
        outputs = {name: prediction.get(name) for name in self.agent.signature.output_fields}
        told = to_jsonable_python(outputs, fallback=str)
        return next(iter(told.values())) if len(told) == 1 else told

    def _inputs(self, input: Any) -> dict[str, Json]:
        fields = list(self.agent.signature.input_fields)
        inputs = {fields[0]: input} if isinstance(input, str) else input
        if not isinstance(inputs, Mapping) or not set(inputs) <= set(fields):
            raise InvalidCall(f"give text, or a mapping of {', '.join(fields)}", "input")
        told: dict[str, Json] = to_jsonable_python(dict(inputs), fallback=str)
        return told
