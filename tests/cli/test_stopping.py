"""SIGTERM ends ``sayso serve`` and ``sayso worker`` soon, also while the database is away, and
while another process is stopped in the middle of a commit. Ctrl-C ends every command cleanly."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest
from cli_world import World
from fake_telegram import TOKEN, FakeTelegram
from postgres_server import PostgresServer, why_not
from sayso_process import Process
from sayso_process import start as start_command
from stopped_writer import stopped_writer
from waiting import PATIENCE, until

import sayso
from sayso.keys import Keyring, new_key
from sayso.stores.sqlite import SqliteStore

pytestmark = pytest.mark.long

AGENT = """
import sayso
from sayso.testing import ScriptedModel

agent = sayso.Agent("clerk", model=ScriptedModel([]))
"""
COMMANDS = {
    "worker": ["worker", "agents:agent"],
    "serve": ["serve", "agents:agent", "--port", "0"],
}


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    if why_not():
        pytest.skip(why_not())
    folder = Path(tempfile.mkdtemp(prefix="sayso-stop-"))  # its socket needs a short path
    made = PostgresServer(folder, fsync=False)
    made.start()
    yield made
    made.stop(signal.SIGQUIT)
    shutil.rmtree(folder, ignore_errors=True)


def start(processes: dict[str, Process], folder: Path, env: dict[str, str]) -> None:
    """Start each command, and wait until it prints that it is ready."""
    (folder / "agents.py").write_text(AGENT)
    for name, command in COMMANDS.items():
        processes[name] = process = start_command(*command, cwd=folder, env=env)
        assert process.stdout is not None
        assert process.stdout.readline()


@pytest.fixture
def bot() -> Iterator[dict[str, str]]:
    """Yield the environment of a process with a bot."""
    fake = FakeTelegram()
    yield {"SAYSO_TELEGRAM_TOKEN": TOKEN, "SAYSO_TELEGRAM_API": fake.url}
    fake.close()


def test_stopping_does_not_wait_for_the_database(
    server: PostgresServer, tmp_path: Path, bot: dict[str, str]
) -> None:
    """Nothing runs; reading the store would wait for half a minute."""
    env = {**os.environ, **bot, "SAYSO_KEY": new_key(), "SAYSO_STORE": server.url}
    processes: dict[str, Process] = {}
    try:
        start(processes, tmp_path, env)
        server.kill()
        time.sleep(6)  # each process polls every five seconds
        began = time.monotonic()
        for process in processes.values():
            process.send_signal(signal.SIGTERM)
        assert {name: process.wait(60) for name, process in processes.items()} == dict.fromkeys(
            COMMANDS, 0
        )
        assert time.monotonic() - began < 12
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()


def test_stopping_ignores_process_stopped_in_commit(tmp_path: Path, bot: dict[str, str]) -> None:
    """Each process has closed a request, has events to seal, and has another request to close."""
    path, key = tmp_path / "sayso.db", new_key()
    env = {**os.environ, **bot, "SAYSO_KEY": key, "SAYSO_STORE": f"sqlite:///{path}"}
    processes: dict[str, Process] = {}
    store = SqliteStore(path, keys=Keyring.parse(key))
    gate = sayso.Gate(store, wait=0)
    try:
        start(processes, tmp_path, env)
        for seconds in (0.1, 4):
            with pytest.raises(sayso.Paused), gate.run(f"for {seconds}"):
                gate.confirm_sync("Publish?", expires_in=seconds)
        until(lambda: len(store.events()) >= 3)
        with stopped_writer(path, key):
            time.sleep(5)
            began = time.monotonic()
            for process in processes.values():
                process.send_signal(signal.SIGTERM)
            ends = {name: process.wait(60) for name, process in processes.items()}
            assert ends == dict.fromkeys(COMMANDS, 0)
            assert time.monotonic() - began < 30
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()
        store.close()


@pytest.mark.parametrize("command", [["serve", "--port", "0"], ["inbox"], ["worker", "x:y"]])
@pytest.mark.parametrize("pause", [0.05, 0.2])
def test_ctrl_c_while_it_loads_prints_no_traceback(
    tmp_path: Path, command: list[str], pause: float
) -> None:
    code = "from sayso.cli.entry import main; print('in', flush=True); main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *command],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "in\n"
    for _ in range(2):
        time.sleep(pause)
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in said


BUSY = """
import time
import sayso
from sayso.testing import ScriptedModel, call, say

@sayso.tool
def work() -> str:
    print("working", flush=True)
    time.sleep(20)

agent = sayso.Agent("clerk", model=ScriptedModel([call("work", {}), say("Done.")]), tools=[work])
"""


@pytest.mark.parametrize("pause", [0.0, 0.1, 0.5])
@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("serve --port 0", "Sign in"),
        ("worker busy:agent", "Resuming runs"),
        ("demo --port 0 --no-open", "Ctrl-C"),
        ("demo --terminal", "You > "),
        ("chat busy:agent", "You > "),
        ("chat busy:agent --message go", "working"),
        ("inbox --decide", "to quit > "),
        ("approve ID", "[q]uit > "),
        ("reject ID", "Why?"),
    ],
)
def test_two_ctrl_c_print_no_traceback(
    tmp_path: Path, command: str, shown: str, pause: float
) -> None:
    world = World(tmp_path)
    request = world.mail()
    (tmp_path / "busy.py").write_text(BUSY)
    words = command.replace("ID", request).split()
    person = world.person(*words, PYTHONPATH=str(tmp_path))
    person.sees(re.escape(shown))
    began = time.monotonic()
    person.process.sendcontrol("c")
    time.sleep(pause)
    with contextlib.suppress(OSError):  # it has ended
        person.process.sendcontrol("c")
    person.process.expect(pexpect.EOF)
    assert time.monotonic() - began < 15, "it waited for the tool, which takes 20 seconds"
    said = person.said + person.process.before
    assert "Traceback" not in said
    assert "Exception" not in said
    assert world.get(request).status == "pending"
    person.process.close(force=True)
