"""SIGTERM ends ``assent serve`` and ``assent worker`` soon, also while the database is away."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from assent.keys import new_key
from assent.testing.postgres_server import PostgresServer, why_not

AGENT = """
import assent
from assent.testing import ScriptedModel

agent = assent.Agent("clerk", model=ScriptedModel([]))
"""
COMMANDS = {
    "worker": ["worker", "agents:agent"],
    "serve": ["serve", "agents:agent", "--port", "0"],
}


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    if why_not():
        pytest.skip(why_not())
    folder = Path(tempfile.mkdtemp(prefix="assent-stop-"))  # its socket needs a short path
    folder.chmod(0o755)
    made = PostgresServer(folder, fsync=False)
    made.start()
    yield made
    made.stop(signal.SIGQUIT)
    shutil.rmtree(folder, ignore_errors=True)


def test_nobody_waits_for_the_database_to_come_back(server: PostgresServer, tmp_path: Path) -> None:
    """Nothing is at work; a look at the store would wait for half a minute."""
    (tmp_path / "agents.py").write_text(AGENT)
    env = {**os.environ, "ASSENT_KEY": new_key(), "ASSENT_STORE": server.url}
    processes: dict[str, subprocess.Popen[str]] = {}
    try:
        for name, command in COMMANDS.items():
            whole = [sys.executable, "-m", "assent.cli.main", *command]
            processes[name] = process = subprocess.Popen(
                whole, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True
            )
            assert process.stdout is not None
            assert process.stdout.readline()
        server.kill()
        time.sleep(6)  # each looks every five seconds by itself
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
