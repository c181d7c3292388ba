"""How long an import takes."""

from __future__ import annotations

from benchmarks.peers import python_of
from benchmarks.rounds import OURS, alternating, ours
from benchmarks.row import Check, Effort, Measured, ratio, row


@row(
    "`import sayso`",
    beside="`import langchain.agents`",
    goal="a tenth of its time",
    durability="nothing is written",
    shown="wall_ms",
)
def imports(effort: Effort) -> Measured:
    sayso, langchain = alternating(
        effort,
        ours("importing.py", "sayso"),
        (python_of("langgraph"), OURS / "importing.py", "langchain.agents"),
    )
    return Measured(
        {"sayso": sayso, "langchain": langchain},
        [Check("wall, to LangChain", ratio(sayso, langchain, "wall_ms"), most=1 / 10)],
    )
