"""Ask in the agent's own terminal, one question at a time."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest
from waiting import PATIENCE

from sayso import Inbox, Request, Reviewer
from sayso.channels.screen import can_prompt
from sayso.channels.terminal import TerminalChannel
from sayso.stores import open_store

PROMPT = "uit > "

PROGRAM = """
import sys, threading
import sayso
from sayso.channels.terminal import TerminalChannel
from sayso.stores import open_store

store = open_store(sys.argv[1])
gate = sayso.Gate(store, channels=[TerminalChannel(store)], wait=float(sys.argv[3]) or None)

@gate.guard(needs_approval=True)
def send(to: str) -> str:
    return f"sent to {to}"

def work(n):
    with gate.run(f"r{n}"):
        print("RESULT", n, send(f"{n}@example.com"), flush=True)

threads = [threading.Thread(target=work, args=(n,)) for n in range(1, int(sys.argv[2]))]
for thread in threads:
    thread.start()
try:
    work(0)
    for thread in threads:
        thread.join()
except sayso.Paused as paused:
    print("PAUSED", flush=True)
except KeyboardInterrupt:
    print("INTERRUPTED", flush=True)
gate.close()
"""


class Agent:
    """A program with a terminal channel, on a pseudo-terminal."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder / 'sayso.db'}"
        self.program = folder / "program.py"
        self.program.write_text(PROGRAM)
        self.process: pexpect.spawn[str] | None = None

    def start(self, calls: int = 1, wait: float = 0, **env: str) -> None:
        keep = {k: v for k, v in os.environ.items() if k not in ("CI", "SAYSO_KEY")}
        self.process = pexpect.spawn(
            sys.executable,
            [str(self.program), self.url, str(calls), str(wait)],
            env={**keep, "TERM": "xterm", "NO_COLOR": "1", **env},
            dimensions=(40, 80),
            encoding="utf-8",
            timeout=PATIENCE,
        )

    def sees(self, pattern: str) -> str:
        assert self.process is not None
        self.process.expect(pattern)
        before: str = self.process.before
        return before

    def types(self, words: str) -> None:
        assert self.process is not None
        self.process.send(words + "\r")

    def decide(self, message: str = "") -> None:
        inbox = Inbox(self.url)
        request = inbox.pending_sync().items[0]
        inbox.decide_sync(request.id, request.approve(), by=Reviewer("Ben"), channel="web")
        inbox.close()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = Agent(tmp_path)
    yield made
    if made.process is not None:
        made.process.close(force=True)


@pytest.mark.long
def test_channel_asks_and_the_call_runs(agent: Agent) -> None:
    agent.start()
    agent.sees(PROMPT)
    agent.types("a")
    agent.sees("RESULT 0 sent to 0@example.com")


@pytest.mark.long
def test_decision_made_elsewhere_closes_the_question(agent: Agent) -> None:
    agent.start()
    agent.sees(PROMPT)
    agent.decide()
    agent.sees(r"Decided by Ben \(web\)")
    agent.sees("RESULT 0")


@pytest.mark.long
def test_skipped_request_is_asked_again(agent: Agent) -> None:
    agent.start()
    agent.sees(PROMPT)
    agent.types("s")
    agent.sees("Left pending")
    agent.sees("PAUSED")
    agent.start()
    agent.sees(PROMPT)
    agent.types("a")
    agent.sees("RESULT 0")


@pytest.mark.long
def test_two_requests_queue(agent: Agent) -> None:
    agent.start(calls=2)
    first = agent.sees(PROMPT)
    agent.types("a")
    second = agent.sees(PROMPT)
    agent.types("a")
    assert sorted(re.findall(r"run (r\d)", first + second)) == ["r0", "r1"]
    assert first.count("APPROVE?") == second.count("APPROVE?") == 1
    assert (second + agent.sees(pexpect.EOF)).count("RESULT") == 2


@pytest.mark.long
@pytest.mark.parametrize(
    ("keys", "ending"),
    [("a\x03", "INTERRUPTED"), ("a\x04\x04", "PAUSED")],
    ids=["control-c", "control-d"],
)
def test_control_key_leaves_it_pending(agent: Agent, keys: str, ending: str) -> None:
    agent.start()
    agent.sees(PROMPT)
    assert agent.process is not None
    agent.process.send(keys)
    agent.sees("Left pending")
    agent.sees(ending)
    agent.sees(pexpect.EOF)
    inbox = Inbox(agent.url)
    assert [request.status for request in inbox.pending_sync().items] == ["pending"]
    inbox.close()


@pytest.mark.long
def test_ending_program_restores_the_terminal(agent: Agent) -> None:
    agent.start()
    agent.sees(PROMPT)
    assert agent.process is not None
    agent.process.kill(signal.SIGINT)  # to the program alone, not through the terminal
    agent.sees("INTERRUPTED")
    assert agent.sees(pexpect.EOF).count("\x1b[?2004l") == 1


@pytest.mark.parametrize("env", [{"CI": "1"}, {"TERM": "dumb"}])
def test_without_a_terminal_there_is_no_prompt(agent: Agent, env: dict[str, str]) -> None:
    agent.start(wait=0.5, **env)
    assert PROMPT not in agent.sees("PAUSED")


@pytest.mark.long
def test_pipe_gets_one_line_of_help(agent: Agent) -> None:
    done = subprocess.run(
        [sys.executable, str(agent.program), agent.url, "1", "0.5"],
        input="a\na\n",
        capture_output=True,
        text=True,
        env={**os.environ, "TERM": "xterm"},
    )
    assert done.stdout == "PAUSED\n"
    assert re.search(r"sayso: send needs a decision: sayso show req_", done.stderr)


def test_pytest_has_no_terminal() -> None:
    assert can_prompt() is False


async def test_channel_without_terminal_prints_hint(
    request_: Request, capsys: pytest.CaptureFixture[str]
) -> None:
    await TerminalChannel(open_store("memory://"))(request_)
    assert "needs a decision" in capsys.readouterr().err
