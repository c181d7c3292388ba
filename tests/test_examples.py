"""Every example runs without a terminal and prints what it should."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
MOST_LINES = 60
#: Examples that need more lines.
MORE_LINES = {"dspy_pizza.py": 110, "openai_loop.py": 110, "five_frameworks.py": 180}
MOST_SECONDS = 60

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
        "  added: passkey, for 60 minutes",
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


def run(command: list[str], folder: Path) -> str:
    """What a command prints in an empty folder, without a terminal and without our variables."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SAYSO_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", *command],
        cwd=folder,
        env={**clean, "PYTHONIOENCODING": "utf-8"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=MOST_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def in_order(wanted: list[str], printed: list[str]) -> list[str]:
    """The wanted lines that do not follow on each other in what was printed."""
    rest = iter(printed)
    return [line for line in wanted if line not in rest]


def test_every_example_is_expected_to_print_something() -> None:
    assert sorted(EXPECTED) == sorted(path.name for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_an_example(name: str, tmp_path: Path) -> None:
    printed = run([str(EXAMPLES / name)], tmp_path)
    assert in_order(EXPECTED[name], printed.splitlines()) == []
    if name in ONCE:
        assert printed.count(ONCE[name]) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_an_example_is_short(name: str) -> None:
    lines = (EXAMPLES / name).read_text("utf-8").splitlines()
    assert len(lines) <= MORE_LINES.get(name, MOST_LINES)
