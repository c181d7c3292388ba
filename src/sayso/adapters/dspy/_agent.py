"""A DSPy agent behind a gate, run and resumed by its thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import dspy
from pydantic_core import to_jsonable_python

from sayso.adapters.dspy._memory import Memory, Stopped, playing
from sayso.adapters.dspy._parts import faces_of, guarded
from sayso.errors import InvalidCall
from sayso.gate import Gate
from sayso.gate.driven import Driven, Stands, check_gate
from sayso.gate.foreign import ForeignThread, ForeignTool
from sayso.gate.within import Within, within
from sayso.inbox import Inbox
from sayso.policy import Policy
from sayso.twin import look
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
        """A new turn of the thread, with these inputs."""
        inputs = self._inputs(input)
        now = ForeignThread(self.gate, thread, policy=self.policy)
        turn = await self._last_turn(now) + 1

        async def keep() -> Json:
            return inputs

        kept = await now.once(_input_key(turn), keep)
        return await self._play(Memory(now, turn), kept)

    async def go_on(self, thread: str) -> Any:
        """The last turn again from its top, with everything it remembers."""
        now = ForeignThread(self.gate, thread, policy=self.policy)
        turn = await self._last_turn(now)

        async def lost() -> Json:
            raise InvalidCall(f"thread {thread!r} has nothing to go on with: run it first")

        return await self._play(Memory(now, turn), await now.once(_input_key(turn), lost))

    def place(self) -> Within | None:
        return within(self.gate)

    async def part(self, input: Any, place: Within) -> Any:
        """The only turn of an agent in the body of a call, from its top each time."""
        now = ForeignThread(self.gate, place.thread, policy=self.policy)
        return await self._play(Memory(now, 1, f"{place.key}/"), self._inputs(input))

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

    async def _last_turn(self, now: ForeignThread) -> int:
        turn = 0
        while await look(now.store, now.row, _input_key(turn + 1)) is not None:
            turn += 1
        return turn


def _input_key(turn: int) -> str:
    return f"turn {turn} input"
