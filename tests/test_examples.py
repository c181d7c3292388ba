"""Every example runs without a terminal and prints what it should.

The seeds' samples are examples of another kind: three or four changed lines put them behind a gate,
and each is marked. An added line ends with ``# added``, a changed line with ``# was:`` and what it
said before. So each is two programs: both run, and print the same.

Examples with frameworks are forks of one interpreter that has imported the frameworks, and nothing
of Sayso. The others are new interpreters.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sayso_process import PythonForks

pytestmark = pytest.mark.long

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
MOST_LINES = 60
#: Examples that need more lines.
MORE_LINES = {"dspy_pizza.py": 110, "openai_loop.py": 125, "five_frameworks.py": 180}
MOST_SECONDS = 60

#: What examples with frameworks import. DSPy is first: it looks through all modules that are
#: loaded, again and again.
FRAMEWORKS = (
    *("dspy.utils", "langchain.agents", "langgraph.checkpoint.memory"),
    *("langgraph.checkpoint.sqlite", "agents.testing", "agent_framework"),
    "pydantic_ai.models.function",
)
_USES_ONE = re.compile(
    r"^ *(from|import) (dspy|langchain|agents|agent_framework|pydantic_ai)\b", re.M
)

FIVE = ("langchain", "openai_agents", "agent_framework", "dspy", "pydantic_ai")

#: Lines that must be printed, in this order.
EXPECTED = {
    "agent_framework_flight.py": [
        "wants: book_flight {'destination': 'Paris', 'day': 'Friday', 'seat': 'aisle'}",
        "  booked: Paris on Friday, window",
        "Your flight to Paris is booked.",
    ],
    "ai_sdk_fastapi.py": [
        "needs approval: send_email {'to': 'bob', 'subject': 'WELCOME!'}",
        "  sent 'Welcome' to bob",
        "the answer: Bob knows.",
    ],
    "ask_question.py": [
        "asked: Which size?",
        "  not an answer: answer with 'small' or 'large'",
        "  answered: small",
        "asked: What goes on it?",
        "  answered: ['cheese']",
        "asked: Where to?",
        "the order: ['small', ['cheese'], {'floor': 2, 'street': 'Elm Road 3'}]",
    ],
    "async_gate.py": [
        "str: rain in Oslo",
        "Rejected: ana rejected it: too big for this example",
    ],
    "bulk_email.py": [
        "  sent 'WELCOME!!!' to 3 recipients",
        "needs approval: 250 people get 'WELCOME!!!'",
        "  sent 'Welcome' to 250 recipients",
        "Everybody was greeted.",
    ],
    "crash_and_resume.py": [
        "  it says: the bank takes 120 euros",
        "  in_doubt: charge {'card': '…1234', 'euros': 120}",
        "  a person may approve or respond or reject",
        "  the job continues with: receipt 4711",
    ],
    "delete_data.py": [
        "  deleted from logs where age > 30",
        "needs approval: {'table': 'users', 'where': 'true'}",
        "needs approval: {'table': 'users', 'where': 'closed and age > 365'}",
        "  deleted from users where closed and age > 365",
        "The old rows are gone.",
    ],
    "deployment_assistant.py": [
        "  staging runs 2.5.0 now",
        "approval required: deploy_to_production {'version': '2.5.0'}",
        "  production runs 2.5.0 now",
        "Version 2.5.0 is everywhere.",
    ],
    "dspy_pizza.py": [
        "asked: We have no rocks. What do you mean by them?",
        "  answered: rocks like you'd find on a hill",
        "asked: Something else instead?",
        "the order: [{'size': 'small', 'toppings': ['meatballs'], "
        "'special_instructions': 'crumbled'}]",
    ],
    "five_frameworks.py": [
        *(f"{name}: paused" for name in FIVE),
        *(f"{name} needs approval: pay {{'to': 'ana', 'euros': 20}}" for name in FIVE),
        *(f"{name}: Ana has her money." for name in FIVE),
        *(f"{name} paid 20 euros to ana" for name in FIVE),
    ],
    "flight_agent.py": [
        "the agent says: I found a good one.",
        "it wants: book_flight {'destination': 'Paris', 'day': 'Friday'}",
        "  booked: Paris on Friday",
        "Your flight to Paris is booked, seat 12A.",
    ],
    "guard_function.py": [
        "  the bank moves 20 euros",
        "  paused: 1 request",
        "  edited by ana",
        "  the bank moves 120 euros",
        "  120 euros for A-17 (late delivery)",
        "  120 euros for A-17 (late delivery)",
    ],
    "langchain_mail.py": [
        "paused: ana@example.com and all@example.com need approval",
        "  sent 'Welcome' to ana@example.com",
        "1 left",
        "Ana was greeted, the others were not.",
    ],
    "openai_agents_deploy.py": [
        "approval required: deploy {'version': '2.5.0'}",
        "  production runs 2.5.0 now",
        "  staging runs 2.4.0 now",
        "approval required: rollback {'place': 'production', 'version': '2.4.0'}",
        "Production stays with 2.5.0.",
    ],
    "openai_loop.py": [
        "asked: Which sign-in?",
        "waits: add_login {'provider': 'passkey', 'minutes': 600}",
        "waits: add_login {'provider': 'mail codes', 'minutes': 30}",
        "  added: passkey, for 60 minutes",
        "  added: mail codes, for 60 minutes",
        "the answer: Passkeys it is.",
    ],
    "pizza_agent.py": [
        "agent: We offer no rocks as a topping. What do you mean by them?",
        "you: do you have meatballs?",
        "agent: Whole meatballs, or crumbled ones?",
        "order: [{'size': 'small', 'toppings': ['meatballs'], 'special_instructions': 'crumbled'}]",
    ],
    "policy_file.py": [
        "ran: SELECT name FROM customers",
        "asked by the rule 'writing', risk medium",
        "  a person may approve or reject",
        "rejected: ana rejected it: all of them? add a WHERE",
    ],
    "pydantic_ai_refunds.py": [
        "needs approval: refund {'order': 'A-17', 'euros': 20, 'reason': 'none given'}",
        "needs approval: refund {'order': 'B-4', 'euros': 900, 'reason': 'none given'}",
        "  refunded: 20 euros for A-17",
        "paused: 1 left",
        "  refunded: 90 euros for B-4",
        "Both customers have their money.",
    ],
    "quorum_and_grants.py": [
        "ana approves: 1 of 2",
        "cy approves: 2 of 2",
        "mallory is gone",
        "wednesday: reminded bob@example.com",
        "the grant by ana has 3 uses left",
    ],
    "remote_agent.py": [
        "asked: What went wrong?",
        "asked: {'order': 'A-17', 'euros': 500}",
        "  the bank moves 50 euros for order A-17",
        "the agent continues with: too late, receipt for 50 euros",
    ],
    "sql_agent.py": [
        "DELETE FROM records WHERE age > 30: approve or reject?",
        "The old records are deleted. Left: 4",
    ],
}
#: What must be printed so often and no more: effects happen once.
ONCE = {
    "agent_framework_flight.py": "booked: Paris on Friday, window",
    "ai_sdk_fastapi.py": "sent 'Welcome' to bob",
    "crash_and_resume.py": "the bank takes 120 euros",
    "deployment_assistant.py": "production runs 2.5.0 now",
    "flight_agent.py": "booked: Paris on Friday",
    "five_frameworks.py": "dspy paid 20 euros to ana",
    "guard_function.py": "the bank moves 120 euros",
    "langchain_mail.py": "sent 'Welcome' to ana@example.com",
    "openai_agents_deploy.py": "production runs 2.5.0 now",
    "openai_loop.py": "added: passkey, for 60 minutes",
    "pydantic_ai_refunds.py": "refunded: 90 euros for B-4",
    "remote_agent.py": "the bank moves 50 euros",
}


@pytest.fixture(scope="module")
def frameworks() -> Iterator[PythonForks]:
    forks = PythonForks(*FRAMEWORKS, options=("-W", "error"))
    yield forks
    forks.close()


def run(program: Path, folder: Path, frameworks: PythonForks) -> tuple[str, str]:
    """What a program prints on stdout and stderr, without a terminal and without our variables."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SAYSO_")}
    env = {**clean, "PYTHONIOENCODING": "utf-8"}
    if _USES_ONE.search(program.read_text("utf-8")):
        process = frameworks.start(str(program), cwd=folder, env=env)
        watch = threading.Timer(MOST_SECONDS, process.kill)
        watch.start()
        out, err = process.communicate()
        watch.cancel()
        code = process.returncode
    else:
        done = subprocess.run(
            [sys.executable, "-W", "error", str(program)],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=MOST_SECONDS,
            check=False,
        )
        out, err, code = done.stdout, done.stderr, done.returncode
    assert code == 0, out + err
    return out, err


def in_order(wanted: list[str], printed: list[str]) -> list[str]:
    """The wanted lines that do not follow on each other in what was printed."""
    rest = iter(printed)
    return [line for line in wanted if line not in rest]


def test_every_example_has_expected_output() -> None:
    assert sorted(EXPECTED) == sorted(path.name for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_example_prints_the_expected_lines(
    name: str, tmp_path: Path, frameworks: PythonForks
) -> None:
    printed, errors = run(EXAMPLES / name, tmp_path, frameworks)
    assert errors == ""
    assert in_order(EXPECTED[name], printed.splitlines()) == []
    if name in ONCE:
        assert printed.count(ONCE[name]) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_example_is_short(name: str) -> None:
    lines = (EXAMPLES / name).read_text("utf-8").splitlines()
    assert len(lines) <= MORE_LINES.get(name, MOST_LINES)


SEEDS = EXAMPLES / "seeds"
MOST_CHANGED = 3
#: DSPy's users call the agent itself, so that this line changes too.
MORE_CHANGED = {"pizza_dspy.py": 4}

#: Lines that both programs of a seed print, in this order.
BOTH_PRINT = {
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


@pytest.mark.parametrize("name", sorted(path.name for path in SEEDS.glob("*.py")))
def test_few_changed_lines_add_a_gate(name: str, tmp_path: Path, frameworks: PythonForks) -> None:
    program = (SEEDS / name).read_text()
    bare, changed = before(program)
    assert 1 <= changed <= MORE_CHANGED.get(name, MOST_CHANGED)
    assert "sayso" not in bare
    (tmp_path / f"bare_{name}").write_text(bare)
    for file in (SEEDS / name, tmp_path / f"bare_{name}"):
        printed, _ = run(file, tmp_path, frameworks)
        assert printed.splitlines() == BOTH_PRINT[name]
    assert (tmp_path / "sayso.db").exists()  # only one of them has a store
