"""Write the table of frameworks and behaviours into docs/adapters/behaviour.md.

Each row is a test of the adapter suite, and each column the file that runs the whole suite for one
framework. A subclass lists the tests that its framework cannot pass in ``cannot``, with the reason.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/adapters/behaviour.md"
UP = "../.."  # from the page to the root
SUITE = Path("src/sayso/testing/adapter_suite.py")
TESTS = Path("tests/adapters")
BEGIN, END = "<!-- adapters: made by scripts/adapter_table.py -->\n", "<!-- /adapters -->\n"

#: The columns: the name of a framework, its page, and the test file that runs the suite for it.
FRAMEWORKS = (
    ("LangChain, LangGraph", "langchain.md", "test_story_langchain.py"),
    ("OpenAI Agents SDK", "openai-agents.md", "test_story_openai_agents.py"),
    ("Agent Framework", "agent-framework.md", "test_story_agent_framework.py"),
    ("DSPy", "dspy.md", "test_story_dspy.py"),
    ("pydantic-ai", "pydantic-ai.md", "test_story_pydantic_ai.py"),
    ("Claude Agent SDK", "claude-agent.md", "test_story_claude_agent.py"),
    ("`sayso.Agent`", "../agent.md", "test_story_agent.py"),
)
#: The rows: a behaviour and the tests of the suite that prove it.
BEHAVIOURS = (
    ("approve", ("test_approve",)),
    ("edit", ("test_edit",)),
    ("reject, with a reason", ("test_reject_with_reason",)),
    ("respond in its place", ("test_respond",)),
    ("ask a question", ("test_question",)),
    ("ask only where a rule says so", ("test_conditional_policy",)),
    ("denied without asking", ("test_denied_without_asking",)),
    (
        "three calls in a turn, decided at different times",
        ("test_two_gated_and_one_free_decided_at_different_times",),
    ),
    ("killed while waiting, resumed elsewhere", ("test_killed_while_waiting",)),
    ("killed between decision and start", ("test_killed_between_decision_and_start",)),
    ("killed during the run: in doubt", ("test_killed_during_the_run",)),
    ("decided twice", ("test_decided_twice",)),
    ("resumed twice, in turn", ("test_resumed_twice_in_turn",)),
    ("resumed three times at once", ("test_resumed_at_once_by_three_processes",)),
    ("its state tampered with", ("test_state_tampered_with_after_the_decision",)),
    ("a row tampered with", ("test_row_tampered_with",)),
    ("tool removed while waiting", ("test_tool_gone",)),
    ("tool changed while waiting", ("test_tool_changed",)),
    ("25 malformed answers", ("test_wrong_answers_one_after_the_other",)),
)


def places() -> dict[str, str]:
    """Map each test of the suite to its file and line."""
    found = {}
    for node in ast.walk(ast.parse((ROOT / SUITE).read_text())):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            found[node.name] = f"{UP}/{SUITE}#L{node.lineno}"
    return found


def cannot(file: str) -> set[str]:
    """Return the tests that a framework declares it cannot pass."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / TESTS / file).read_text())):
        targets = node.targets if isinstance(node, ast.Assign) else ()
        named = any(isinstance(target, ast.Name) and target.id == "cannot" for target in targets)
        if named and isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            names |= {key.value for key in node.value.keys if isinstance(key, ast.Constant)}
    return names


def table() -> str:
    """Return the table as Markdown."""
    where = places()
    refused = {file: cannot(file) for _, _, file in FRAMEWORKS}
    head = " | ".join(f"[{name}]({page})" for name, page, _ in FRAMEWORKS)
    lines = [f"| | {head} |", "|---" * (len(FRAMEWORKS) + 1) + "|"]
    for behaviour, tests in BEHAVIOURS:
        cells = []
        for _, _, file in FRAMEWORKS:
            word = "cannot" if refused[file] & set(tests) else "✓"
            cells.append(f"[{word}]({UP}/{TESTS / file})")
        lines.append(f"| [{behaviour}]({where[tests[0]]}) | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the table; with ``--check``, exit with 1 if the page is out of date."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    fresh = f"{before}{BEGIN}\n{table()}\n{END}{after}"
    if "--check" in sys.argv:
        if fresh != text:
            print("docs/adapters/behaviour.md is not up to date: run `make docs`", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())
