"""How long an import takes."""

from __future__ import annotations

from benchmarks.peers import python_of
from benchmarks.rounds import OURS, alternating, ours
from benchmarks.row import Check, Effort, Measured, ratio, row


@row(
    "`import assent`",
    beside="`import langchain.agents`",
    goal="a tenth of its time",
    durability="nothing is written",
    shown="wall_ms",
)
def imports(effort: Effort) -> Measured:
    assent, langchain = alternating(
        effort,
        ours("importing.py", "assent"),
        (python_of("langgraph"), OURS / "importing.py", "langchain.agents"),
    )
    return Measured(
        {"assent": assent, "langchain": langchain},
        [Check("wall, to LangChain", ratio(assent, langchain, "wall_ms"), most=1 / 10)],
    )
