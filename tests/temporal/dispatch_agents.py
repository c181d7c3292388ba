"""The agents of the tests of the dispatcher: one process asks, another one resumes."""

from __future__ import annotations

from pathlib import Path

import sayso
from sayso.testing import ScriptedModel, call, say


def clerk(*script: object) -> sayso.Agent:
    """An agent whose tool leaves a line in the working folder."""

    @sayso.tool(needs_approval=True, expires_in=2)
    def book(room: str) -> str:
        """Book a room, soon or not at all."""
        return _noted(room)

    @sayso.tool(needs_approval=True, expires_in=3600)
    def hire(name: str) -> str:
        """Hire somebody, today or not at all."""
        return _noted(name)

    @sayso.tool(needs_approval=True)
    def pay(euros: int) -> str:
        """Pay."""
        return _noted(f"{euros} euros")

    @sayso.tool(needs_approval=True)
    def lend(euros: int) -> str:
        """Lend money, which the head of the office hears of if nobody answers."""
        return _noted(f"{euros} euros lent")

    steps = sayso.Rule("lend", reviewers="ana", escalate_after="2s", escalate_to="ben")
    return sayso.Agent(
        "clerk",
        model=ScriptedModel(list(script)),
        tools=[book, hire, pay, lend],
        policy=sayso.Policy([steps]),
    )


def _noted(line: str) -> str:
    with Path("effects").open("a") as effects:
        effects.write(line + "\n")
    return line


def asking(tool: str, args: dict[str, object]) -> sayso.Agent:
    """The clerk who makes one call, and is gone."""
    return clerk(call(tool, args))


def going_on() -> sayso.Agent:
    """The clerk who hears of results, and is done."""
    return clerk(say("Done."), say("Done."))
