"""What is on the stage: the tools, the policies and the scripts, by name, so that any process can
be told which."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sayso.gate import Gate
from sayso.policy import Policy, Rule
from sayso.testing.story.stage import Called, Turn, write
from sayso.types import Question

SIZE = Question("Which size?", ["small", "large"])
LAST = "All done."
SLOW = 0.2


class Life:
    """A process that may be told to die at a point: ``start before``, ``effect after``, …"""

    def __init__(self, folder: Path, kill: str = "") -> None:
        self.folder = folder
        self._kill = kill

    def commit(self, name: str, when: str) -> None:
        """The store's commit boundary; a commit of several commands has several names."""
        for part in name.split("+"):
            self.passes(f"{part} {when}")

    def passes(self, point: str) -> None:
        if point == self._kill:
            os.kill(os.getpid(), signal.SIGKILL)


def pay_ana(amount: int = 5, id: str = "call_1") -> Called:
    return Called(id, "pay", {"to": "ana", "amount": amount})


SCRIPTS: Mapping[str, Sequence[Turn]] = {
    "pay": ([pay_ana()], LAST),
    "three": (
        [
            pay_ana(),
            Called("call_2", "look", {"what": "sky"}),
            Called("call_3", "pay", {"to": "bob", "amount": 7}),
        ],
        LAST,
    ),
    "pair": ([pay_ana(), Called("call_2", "pay", {"to": "bob", "amount": 700})], LAST),
    "twice": ([pay_ana(5)], [pay_ana(500, "call_2")], LAST),
    "order": ([Called("call_1", "order", {"dish": "pizza"})], LAST),
    "wipe": ([Called("call_1", "wipe", {"disk": "sda"})], LAST),
}

_FREE = (Rule("look", verdict="allow"), Rule("order", verdict="allow"))
_NEVER = Rule("wipe", verdict="deny", name="no-wiping", description="disks are not ours")
POLICIES: Mapping[str, Policy] = {
    "plain": Policy([*_FREE, _NEVER, Rule("pay")]),
    "large": Policy([*_FREE, Rule("pay", where="amount > 100"), Rule("pay", verdict="allow")]),
    "strict": Policy(
        [Rule("pay", where="amount > 100", allowed=["approve", "reject"]), Rule("pay")]
    ),
}


def tools(which: str, colour: str, gate: Gate, life: Life) -> list[Callable[..., Any]]:
    """The tools: as they are (``plain``), with a ``slow`` effect, or after somebody changed them:
    ``changed``, ``other`` (takes something else), ``gone``."""

    def effect(name: str, **args: Any) -> None:
        life.passes("effect before")
        write(life.folder / "effects", name, args)
        if which == "slow":
            time.sleep(SLOW)  # an effect that takes a while, so that others come in between
        life.passes("effect after")

    def paid(to: str, amount: int, note: str) -> str:
        effect("pay", to=to, amount=amount, note=note)
        return f"paid {amount} to {to}"

    def seen(what: str) -> str:
        effect("look", what=what)
        return f"saw the {what}"

    def wiped(disk: str) -> str:
        effect("wipe", disk=disk)
        return f"wiped {disk}"

    def ordered(dish: str, size: str) -> str:
        effect("order", dish=dish, size=size)
        return f"ordered a {size} {dish}"

    made = _sync if colour == "sync" else _async
    pay, look, wipe, order, pay_other = made(gate, paid, seen, wiped, ordered)
    if which == "changed":
        pay.__doc__ = "Pay somebody, with a fee."
    if which == "other":
        pay = pay_other
    return [look, wipe, order] if which == "gone" else [pay, look, wipe, order]


def _async(gate: Gate, paid: Any, seen: Any, wiped: Any, ordered: Any) -> list[Any]:
    async def pay(to: str, amount: int, note: str = "none") -> str:
        """Pay somebody."""
        return str(paid(to, amount, note))

    async def look(what: str) -> str:
        """Look at something."""
        return str(seen(what))

    async def wipe(disk: str) -> str:
        """Wipe a disk."""
        return str(wiped(disk))

    async def order(dish: str) -> str:
        """Order a dish; the guest says which size."""
        return str(ordered(dish, await gate.ask(SIZE)))

    async def pay_other(account: int) -> str:
        """Pay into an account."""
        return str(paid(str(account), 0, ""))

    pay_other.__name__ = pay_other.__qualname__ = "pay"
    return [pay, look, wipe, order, pay_other]


def _sync(gate: Gate, paid: Any, seen: Any, wiped: Any, ordered: Any) -> list[Any]:
    def pay(to: str, amount: int, note: str = "none") -> str:
        """Pay somebody."""
        return str(paid(to, amount, note))

    def look(what: str) -> str:
        """Look at something."""
        return str(seen(what))

    def wipe(disk: str) -> str:
        """Wipe a disk."""
        return str(wiped(disk))

    def order(dish: str) -> str:
        """Order a dish; the guest says which size."""
        return str(ordered(dish, gate.ask_sync(SIZE)))

    def pay_other(account: int) -> str:
        """Pay into an account."""
        return str(paid(str(account), 0, ""))

    pay_other.__name__ = pay_other.__qualname__ = "pay"
    return [pay, look, wipe, order, pay_other]
