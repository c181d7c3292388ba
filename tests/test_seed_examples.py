"""The seeds' samples: three or four changed lines put them behind a gate, and each is marked.

An added line ends with ``# added``, a changed line with ``# was:`` and what it said before. So each
example is two programs: both run, and print the same.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SEEDS = Path(__file__).resolve().parent.parent / "examples" / "seeds"
MOST_CHANGED = 3
#: DSPy's users call the agent itself, so that this line changes too.
MORE_CHANGED = {"pizza_dspy.py": 4}

#: Lines that both programs print, in this order.
EXPECTED = {
    "deploy_openai_agents.py": [
        "  staging runs 2.5.0",
        "approval required: deploy_to_production {'version': '2.5.0'}",
        "approval required: rollback {'environment': 'production', 'version': '2.4'}",
        "  production runs 2.5.0",
        "Version 2.5.0 is in production.",
    ],
    "flight_agent_framework.py": [
        "approve? book_flight {'destination': 'Paris', 'day': 'Friday'}",
        "  booked: Paris on Friday",
        "Your flight to Paris is booked.",
    ],
    "pizza_dspy.py": [
        "What do you mean by rocks?",
        "> rocks like you'd find on a hill",
        "We have no rocks. Something else instead?",
        "> meatballs",
        "Order: [{'size': 'small', 'toppings': ['meatballs'], 'special_instructions': None}]",
    ],
    "sql_langchain.py": [
        "  read records",
        "Tool execution pending approval: execute_sql",
        "  executed DELETE FROM records WHERE created_at < NOW() - INTERVAL '30 days';",
        "The old records are gone.",
    ],
}
_MARK = re.compile(r"  # (added|was: (?P<was>.+))$")


def before(program: str) -> tuple[str, int]:
    """The program without the gate, and how many lines differ."""
    lines, changed = [], 0
    for line in program.splitlines():
        mark = _MARK.search(line)
        if mark is None:
            lines.append(line)
            continue
        changed += 1
        if mark["was"] is not None:
            lines.append(mark["was"])
    return "\n".join(lines), changed


def printed(program: Path, folder: Path) -> list[str]:
    command = [sys.executable, "-W", "ignore", str(program)]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", sorted(path.name for path in SEEDS.glob("*.py")))
def test_few_lines_put_it_behind_a_gate(name: str, tmp_path: Path) -> None:
    program = (SEEDS / name).read_text()
    bare, changed = before(program)
    assert 1 <= changed <= MORE_CHANGED.get(name, MOST_CHANGED)
    assert "sayso" not in bare
    (tmp_path / f"bare_{name}").write_text(bare)
    for file in (SEEDS / name, tmp_path / f"bare_{name}"):
        assert printed(file, tmp_path) == EXPECTED[name]
    assert (tmp_path / "sayso.db").exists()  # only one of them has a store
