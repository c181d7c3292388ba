"""What a framework's agent declares, and whether the gate is in front of it.

An adapter's ``guard`` adds what its agent declares to a ``Coverage``: what it gates, and what it
cannot gate because the provider behind it never comes back to the gate. ``check`` then refuses the
agent with a list of the latter, unless the user has named each of them in ``ungated``. So an
overlooked tool is an error where the agent is built, and never a call that runs without approval.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sayso.errors import InvalidCall
from sayso.text import inline

#: How many things an error lists before it says how many more there are.
_MOST_LISTED = 20


@dataclass(frozen=True, slots=True)
class Reached:
    """One thing that an agent can reach."""

    #: The agent, graph or workflow that has it.
    where: str
    #: ``tool``, ``agent``, ``MCP server``, ``hosted tool``, …
    kind: str
    name: str
    #: Whether its calls go through the gate.
    gated: bool
    #: How it is gated, or why it cannot be.
    note: str = ""


class Coverage:
    """What ``guard`` found, in the order in which it was found. Print it to see a table."""

    def __init__(self, ungated: Iterable[str] = ()) -> None:
        if isinstance(ungated, str):
            raise TypeError(f"ungated is a list of names: ungated=[{ungated!r}]")
        #: What the user allows to bypass the gate, by name.
        self.ungated = tuple(dict.fromkeys(ungated))
        self._found: dict[tuple[str, str, str], Reached] = {}

    def gated(self, where: str, kind: str, name: str, note: str = "") -> None:
        """Add something whose calls go through the gate."""
        self._add(Reached(where, kind, name, True, note))

    def missed(self, where: str, kind: str, name: str, why: str) -> None:
        """Add something whose calls cannot go through the gate, and say why and what to do."""
        self._add(Reached(where, kind, name, False, why))

    def hosted(self, where: str, kind: str, name: str) -> None:
        """Add a tool that the model's provider runs: no call of it comes back to the gate."""
        self.missed(where, kind, name, "the provider runs it without asking first")

    def _add(self, item: Reached) -> None:
        self._found.setdefault((item.where, item.kind, item.name), item)

    def __iter__(self) -> Iterator[Reached]:
        return iter(self._found.values())

    def __len__(self) -> int:
        return len(self._found)

    def check(self) -> None:
        """Raise ``InvalidCall`` as ``check_missed`` does, and for a name in ``ungated`` that the
        gate does reach."""
        self.check_missed()
        missed_names = {item.name for item in self if not item.gated}
        for item in self:
            if item.gated and item.name in self.ungated and item.name not in missed_names:
                raise InvalidCall(
                    f"ungated names {item.name!r}, but its calls go through the gate: to let them "
                    f"run without approval, use Rule({item.name!r}, verdict='allow') in the policy",
                    "ungated",
                )

    def check_missed(self) -> None:
        """Raise ``InvalidCall`` with a list of what the gate cannot reach and the user has not
        named."""
        missed = [item for item in self if not item.gated and item.name not in self.ungated]
        if missed:
            raise InvalidCall(_refusal(missed), "ungated")

    def lines(self) -> list[tuple[str, str, str, str, str]]:
        """Return the cells of the table: where, what, name, gate and note."""
        sentences = [
            (item.where, item.kind, item.name, "yes" if item.gated else "NO", item.note)
            for item in self
        ]
        item_names = {item.name for item in self}
        other_names = [name for name in self.ungated if name not in item_names]
        return sentences + [
            ("", "named in ungated", name, "NO", "not found") for name in other_names
        ]

    def __str__(self) -> str:
        head = ("agent", "what", "name", "gated", "note")
        rows = [head, *(tuple(inline(cell) for cell in line) for line in self.lines())]
        widths = [max(len(row[n]) for row in rows) for n in range(len(head) - 1)]
        text = ["  ".join([*map(str.ljust, row[:-1], widths), row[-1]]).rstrip() for row in rows]
        return "\n".join([text[0], "-" * len(text[0]), *text[1:]])

    def __repr__(self) -> str:
        ungated = sum(not item.gated for item in self)
        return f"<Coverage: {len(self) - ungated} gated, {ungated} ungated>"


def _refusal(missed: Sequence[Reached]) -> str:
    listed = [
        f"- {item.kind} {inline(item.name)!r} of {inline(item.where)}: {item.note}"
        for item in missed[:_MOST_LISTED]
    ]
    more = len(missed) - len(listed)
    if more:
        listed.append(f"- and {more} more")
    names = list(dict.fromkeys(item.name for item in missed))
    return (
        "guard(...) cannot put the gate in front of everything that this agent can reach:\n"
        + "\n".join(listed)
        + "\nRemove them, change them as each line says, or allow them without approval: "
        f"guard(..., ungated={names!r})"
    )
