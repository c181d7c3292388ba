"""Build an agent of a framework for ``AdapterSuite``: subclass ``AdapterHarness``.

A test consists of steps, and each step is *one process*: it opens the store, builds the harness,
runs or resumes the agent once, and closes everything. So a harness keeps nothing in memory between
steps; state of the framework goes into a file in ``context.folder``. The second half of this module
has the tools, policies and model scripts that the tests use, by name, so any process can find them.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from sayso.errors import NotExecuted
from sayso.gate import Gate
from sayso.policy import Policy, Rule
from sayso.types import Json, Question, Request

#: One reply of the model: its tool calls, or its final answer.
Turn = Sequence["ScriptedCall"] | str
#: A result in the model's prompt: the id of the call, the text and, if the framework has a mark for
#: it, whether the call failed.
Heard = tuple[str, str] | tuple[str, str, bool]


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A tool call that the scripted model makes."""

    id: str
    name: str
    args: dict[str, Json]


class ModelScript:
    """The model's replies.

    Each is chosen by how many replies the conversation already has, so the script works across
    processes. Each is counted in a file, so that tests know how often the model was called.
    """

    def __init__(self, turns: Sequence[Turn], log: Path) -> None:
        self._turns = turns
        self._log = log

    def reply(self, replies: int, heard: Sequence[Heard]) -> Turn:
        """Return the next reply. ``heard`` are the results in the prompt, in order."""
        write(self._log, replies, [list(result) for result in heard])
        if replies >= len(self._turns):
            raise AssertionError(f"the model was asked {replies + 1} times: {heard}")
        return self._turns[replies]


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessContext:
    """What the suite passes to a harness."""

    #: The gate of the agent, with the policy of the test.
    gate: Gate
    #: Plain functions with annotations and docstrings; async or not, see ``AdapterHarness.colour``.
    tools: Sequence[Callable[..., Any]]
    script: ModelScript
    #: For the framework's own state only.
    folder: Path


class AdapterHarness:
    """How to run one framework. Most subclasses define ``agent`` only."""

    #: Whether the tools are ``async`` or ``sync`` functions.
    colour: ClassVar[str] = "async"

    def __init__(self, context: HarnessContext) -> None:
        self.context = context

    async def open(self) -> None:
        """Open resources that need the event loop. Called before ``agent``."""

    def agent(self) -> Any:
        """Return the guarded agent: the adapter's ``guard(agent, context.gate)``.

        The agent is a real one of the framework. Its model is a fake of that framework that gets
        its replies from ``context.script``.
        """
        raise NotImplementedError("define agent(): return a guarded agent of the framework")

    def build_clerk(self, tools: Sequence[Callable[..., Any]], script: ModelScript) -> Any:
        """Return an agent of the framework with these tools that is *not* guarded."""
        raise NotImplementedError("define build_clerk(): return an agent that is not guarded")

    async def run_clerk(self, clerk: Any, task: str) -> Any:
        """Run such an agent to its end, in the framework's own way."""
        raise NotImplementedError("define run_clerk(): run what build_clerk() returned")

    def run_clerk_sync(self, clerk: Any, task: str) -> Any:
        """Run such an agent in a plain function, in an OS thread without an event loop."""
        return asyncio.run(self.run_clerk(clerk, task))

    async def answer(self, agent: Any, thread: str, value: Any) -> Any:
        """Resume with an answer in the form that users of the framework give, valid or not."""
        return await agent.resume(thread, decisions=value)

    @classmethod
    def yes(cls, requests: Sequence[Request]) -> Any:
        """Return a valid answer for ``answer`` that approves all of these requests."""
        return [request.approve() for request in requests]

    @classmethod
    def tamper(cls, folder: Path, old: str, new: str) -> bool:
        """Replace a text in the framework's saved state by one of the same length.

        Return whether the text was found. The agent is not running. By default the state is the
        conversation in the store; a framework that saves its own state overrides this.
        """
        with closing(sqlite3.connect(folder.parent / "sayso.db")) as file, file:
            found = file.execute(
                "UPDATE message SET body = replace(body, ?, ?) WHERE instr(body, ?)",
                (old, new, old),
            )
        return found.rowcount > 0

    async def close(self) -> None:
        """Close what ``open`` opened."""


def write(path: Path, *values: Any) -> None:
    """Append a line to a file, so that it survives if this process is killed."""
    with path.open("a") as out:
        out.write(json.dumps(values) + "\n")


def lines(path: Path) -> list[list[Any]]:
    """Read the lines that ``write`` wrote."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


SIZE = Question("Which size?", ["small", "large"])
LAST = "All done."
SLOW = 0.2


class KillSwitch:
    """Kill this process at a named point: ``start before``, ``effect after``, …"""

    def __init__(self, folder: Path, kill: str = "") -> None:
        self.folder = folder
        self._kill = kill

    def commit(self, name: str, when: str) -> None:
        """Check a commit. The store calls this; ``name`` joins its commands with ``+``."""
        for part in name.split("+"):
            self.reach(f"{part} {when}")

    def reach(self, point: str) -> None:
        if point == self._kill:
            os.kill(os.getpid(), signal.SIGKILL)


def pay_ana(amount: int = 5, id: str = "call_1") -> ScriptedCall:
    return ScriptedCall(id, "pay", {"to": "ana", "amount": amount})


BOB: dict[str, Json] = {"to": "bob", "amount": 7}
_LOOK = ScriptedCall("call_1", "look", {"what": "sky"})
SCRIPTS: Mapping[str, Sequence[Turn]] = {
    "pay": ([pay_ana()], LAST),
    "three": (
        [
            pay_ana(),
            ScriptedCall("call_2", "look", {"what": "sky"}),
            ScriptedCall("call_3", "pay", BOB),
        ],
        LAST,
    ),
    "double": ([pay_ana(), pay_ana(id="call_2")], LAST),
    "pair": ([pay_ana(), ScriptedCall("call_2", "pay", {"to": "bob", "amount": 700})], LAST),
    "twice": ([pay_ana(5)], [pay_ana(500, "call_2")], LAST),
    "repeat": (
        *([pay_ana(id=f"call_{n}")] for n in range(1, 10)),
        LAST,
        [pay_ana(id="call_10")],
        LAST,
    ),
    # Providers that count the calls of each reply from zero.
    "same id": ([pay_ana()], [pay_ana()], LAST),
    "same id, other call": ([pay_ana()], [ScriptedCall("call_1", "pay", BOB)], LAST),
    "same id, free": ([_LOOK], [_LOOK], LAST),
    "same id, later": ([pay_ana()], LAST, [pay_ana()], LAST),
    "one id": ([pay_ana(), ScriptedCall("call_1", "pay", BOB)], LAST),
    "no ids": ([pay_ana(id=""), ScriptedCall("", "pay", BOB)], LAST),
    "looks": ([_LOOK], LAST) * 3,
    "order": ([ScriptedCall("call_1", "order", {"dish": "pizza"})], LAST),
    "wipe": ([ScriptedCall("call_1", "wipe", {"disk": "sda"})], LAST),
}

_ALLOWED = (Rule("look", verdict="allow"), Rule("order", verdict="allow"))
_DENIED = Rule("wipe", verdict="deny", name="no-wiping", description="disks are not ours")
POLICIES: Mapping[str, Policy] = {
    "plain": Policy([*_ALLOWED, _DENIED, Rule("pay")]),
    "large": Policy([*_ALLOWED, Rule("pay", where="amount > 100"), Rule("pay", verdict="allow")]),
    "keyed": Policy([Rule("pay", effect_key="pay:{to}")]),
    "strict": Policy(
        [Rule("pay", where="amount > 100", allowed=["approve", "reject"]), Rule("pay")]
    ),
}


#: What the tools of these names raise after their effect.
RAISED: Mapping[str, Exception] = {
    "times out": TimeoutError("no reply"),
    "breaks": ValueError("half a reply"),
}


def tools(which: str, colour: str, gate: Gate, kill_switch: KillSwitch) -> list[Callable[..., Any]]:
    """Return the tools: ``plain``, with a ``slow`` effect, one of ``RAISED``, ``declines`` (raises
    ``NotExecuted`` instead of the effect), or after a change of the code: ``changed``
    (description), ``other`` (parameters) or ``gone``."""

    def effect(name: str, **args: Any) -> None:
        kill_switch.reach("effect before")
        if which == "declines":
            raise NotExecuted("no funds")
        write(kill_switch.folder / "effects", name, args)
        if which == "slow":
            time.sleep(SLOW)  # so that other processes run meanwhile
        if which in RAISED:
            raise RAISED[which]
        kill_switch.reach("effect after")

    pay, pay_account, look, wipe, order, order_async = _functions(gate, effect)
    if which == "changed":
        pay.__doc__ = "Pay somebody, with a fee."
    paying = {"gone": [], "other": [pay_account]}.get(which, [pay])
    if colour == "sync":
        return [*paying, look, wipe, order]
    return [*map(as_async, [*paying, look, wipe]), order_async]


def as_async(function: Callable[..., str]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> str:
        return function(*args, **kwargs)

    return call


def _functions(gate: Gate, effect: Callable[..., None]) -> list[Callable[..., Any]]:
    def pay(to: str, amount: int, note: str = "none") -> str:
        """Pay somebody."""
        effect("pay", to=to, amount=amount, note=note)
        return f"paid {amount} to {to}"

    def pay_account(account: int) -> str:
        """Pay into an account."""
        return pay(str(account), 0, "")

    def look(what: str) -> str:
        """Look at something."""
        effect("look", what=what)
        return f"saw the {what}"

    def wipe(disk: str) -> str:
        """Wipe a disk."""
        effect("wipe", disk=disk)
        return f"wiped {disk}"

    def ordered(dish: str, size: str) -> str:
        effect("order", dish=dish, size=size)
        return f"ordered a {size} {dish}"

    def order(dish: str) -> str:
        """Order a dish; the guest says which size."""
        return ordered(dish, gate.ask_sync(SIZE))

    @functools.wraps(order)
    async def order_async(dish: str) -> str:
        return ordered(dish, await gate.ask(SIZE))

    pay_account.__name__ = pay_account.__qualname__ = "pay"
    return [pay, pay_account, look, wipe, order, order_async]
