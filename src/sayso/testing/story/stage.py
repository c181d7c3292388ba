"""What the tests of an adapter write: how an agent of the framework is put on the stage.

A step of the story is *one process*: it opens the store, builds the stage, runs or resumes the
agent once, and closes everything. So a stage keeps nothing in memory between steps, and whatever
the framework itself wants to keep goes into a file in ``cast.folder``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from sayso.gate import Gate
from sayso.types import Json, Request

#: The calls of one reply of the model, or its last words.
Turn = Sequence["Called"] | str


@dataclass(frozen=True, slots=True)
class Called:
    """A tool call that the scripted model makes."""

    id: str
    name: str
    args: dict[str, Json]


class Script:
    """The model's part. Each reply is chosen by how many the conversation holds already, so that
    the play goes on in another process; each is counted in a file outside of all of them."""

    def __init__(self, turns: Sequence[Turn], diary: Path) -> None:
        self._turns = turns
        self._diary = diary

    def reply(self, replies: int, heard: Sequence[tuple[str, str]]) -> Turn:
        """The next reply, after so many; ``heard`` are the tool results that the model is shown,
        each with the id of its call, in the order in which they stand."""
        write(self._diary, replies, [[id, text] for id, text in heard])
        if replies >= len(self._turns):
            raise AssertionError(f"the model was asked {replies + 1} times: {heard}")
        return self._turns[replies]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """Everything that a stage gets."""

    #: The agent's door, with the policy of the play.
    gate: Gate
    #: Plain functions with annotations and docstrings, async or not as ``Stage.colour`` says.
    tools: Sequence[Callable[..., Any]]
    script: Script
    #: For the framework's own state, and for nothing else.
    folder: Path


class Stage:
    """Subclass it per framework. ``agent`` is all that most need beside ``tamper``."""

    #: ``async`` or ``sync``: the colour of the tools that the framework likes best.
    colour: ClassVar[str] = "async"

    def __init__(self, cast: Cast) -> None:
        self.cast = cast

    async def open(self) -> None:
        """Open what has to be opened on the loop, before ``agent``."""

    def agent(self) -> Any:
        """The framework's real agent, with a fake model of that framework that asks
        ``cast.script``, guarded: what ``guard(agent, cast.gate)`` of the adapter gives."""
        raise NotImplementedError("say how an agent of this framework is made")

    async def answer(self, agent: Any, thread: str, value: Any) -> Any:
        """Hand in an answer the way people of this framework do, be it sense or nonsense."""
        return await agent.resume(thread, decisions=value)

    @classmethod
    def yes(cls, requests: Sequence[Request]) -> Any:
        """A right answer, as ``answer`` takes it: yes to all of these."""
        return [request.approve() for request in requests]

    @classmethod
    def tamper(cls, folder: Path, old: str, new: str) -> bool:
        """Change a text (to one of the same length) wherever the framework's own state holds it;
        tells whether it was found. The agent is not running."""
        raise NotImplementedError("say how the framework's saved state is changed")

    async def close(self) -> None:
        """Let go of what was opened."""


def write(path: Path, *values: Any) -> None:
    """Add a line to a file: it stays, whatever becomes of the process."""
    with path.open("a") as out:
        out.write(json.dumps(values) + "\n")


def lines(path: Path) -> list[list[Any]]:
    """The lines of such a file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
