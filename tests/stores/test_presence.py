"""A row for each process that has a store open, and who keeps others from going on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from homes import Home
from test_schema_fence import QUIET, environment
from typer.testing import CliRunner
from waiting import until

import sayso
from sayso.cli.entry import app_of
from sayso.keys import Keyring, new_key
from sayso.rows import LiveProcess
from sayso.stores import open_store
from sayso.stores.sql import migrate, presence
from sayso.types import SECOND

#: A program of this build that works for long. It ends when its standard input does.
_PROGRAM = """
import asyncio, sys
import sayso
store = sayso.open_store(sys.argv[1])
worker = sayso.Worker([], store)

async def work():
    task = asyncio.create_task(worker.run())
    print("open", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    worker.stop()
    await task

asyncio.run(work())
if sys.argv[2] == "close":
    store.close()
"""

_LATER_BUILD = """
import sys
from sayso.stores.sql import migrate, statements

migration = sys.argv[1]
migrate.migrations = lambda dialect: ((migrate.SCHEMA_VERSION + 1, migration),)
statements.CHECK_TABLES = "SELECT 1"
sys.argv[1:] = sys.argv[2:]
from sayso.cli.entry import main
main()
"""


@contextmanager
def program(home: Home, end: str = "close", **env: str) -> Iterator[subprocess.Popen[str]]:
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", _PROGRAM, home.url, end]
    running = subprocess.Popen(command, env={**environment(home), **env}, **pipes)
    with running:
        assert running.stdout is not None
        assert running.stdout.readline() == "open\n"
        try:
            yield running
        finally:
            running.kill()


def later_build(home: Home, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of a build that has one more migration."""
    command = [sys.executable, "-c", _LATER_BUILD, QUIET, *words, "--store", home.url]
    env = environment(home)
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


def rotate(home: Home, keys: str, *options: str) -> tuple[int, str]:
    env = {"SAYSO_KEY": keys, "SAYSO_STORE": home.url}
    result = CliRunner().invoke(app_of("keys"), ["keys", "rotate", "--json", *options], env=env)
    return result.exit_code, result.output


def processes(home: Home) -> list[LiveProcess]:
    with closing(home.open_read_only()) as store:
        return store.processes()


def live(home: Home) -> list[tuple[int, str]]:
    return [(one.pid, one.program) for one in processes(home)]


@pytest.mark.parametrize("end", ["close", "exit"])
def test_process_keeps_row_until_it_ends(home: Home, end: str) -> None:
    home.open().close()
    with program(home, end) as running:
        until(lambda: live(home) == [(running.pid, "python")])
        (one,) = processes(home)
        assert (one.version, one.schema_version) == (sayso.__version__, migrate.SCHEMA_VERSION)
        assert one.keys == one.row_keys == (Keyring.parse(home.key).primary_id,)
        assert running.stdin is not None
        running.stdin.write("\n")
        running.stdin.flush()
        assert running.wait(30) == 0
        assert home.sql("SELECT count(*) FROM process") == [(0,)]


def test_killed_process_is_stale_after_a_minute(home: Home) -> None:
    home.open().close()
    with program(home) as running:
        until(lambda: live(home) != [])
        os.kill(running.pid, signal.SIGKILL)
        running.wait(30)
    assert live(home) == [(running.pid, "python")]
    home.sql(f"UPDATE process SET seen = seen - {presence.STALE_SECONDS * SECOND}")
    assert live(home) == []


def test_heartbeat_keeps_row_fresh(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "BEAT_SECONDS", 0.05)
    store = home.open()
    presence.announce(store)
    until(lambda: store.processes() != [])
    (first,) = store.processes()
    until(lambda: store.processes()[0].seen > first.seen)
    assert store.processes()[0].started == first.started


def test_call_writes_no_heartbeat(home: Home) -> None:
    """A short program keeps no row, and a heartbeat crosses no boundary of the store."""
    names: list[str] = []
    store = home.open(boundary=lambda name, when: names.append(name))
    with sayso.Gate(store, wait=0).run("order"):
        sayso.Gate(store, wait=0).guard(needs_approval=False, name="pay")(lambda: None)()
    assert store.processes() == []
    presence.announce(store)
    until(lambda: store.processes() != [])
    assert "heartbeat" not in names


def test_forked_child_has_row_of_its_own(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "FIRST_SECONDS", 0.1)
    store = home.open()
    until(lambda: store.processes() != [])
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        store.tail()
        until(lambda: len(store.processes()) == 2)
        os.write(write_end, json.dumps(sorted(one.pid for one in store.processes())).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as reader:
        assert json.loads(reader.read()) == sorted([os.getpid(), pid])
    os.waitpid(pid, 0)


def test_store_in_memory_keeps_no_row() -> None:
    store = open_store("memory://")
    presence.announce(store)
    assert store.processes() == []


def test_upgrade_names_older_process(home: Home) -> None:
    home.open().close()
    with program(home) as running:
        until(lambda: live(home) != [])
        planned = later_build(home, "upgrade", "--plan")
        assert planned.returncode == 1, planned.stderr
        assert f"(process {running.pid})" in planned.stdout
        assert "blocks the upgrade" in planned.stdout
        value = json.loads(later_build(home, "upgrade", "--plan", "--json").stdout)
        versions = (migrate.SCHEMA_VERSION, migrate.SCHEMA_VERSION + 1)
        assert (value["schema"], value["newest"]) == versions
        assert [one["pid"] for one in value["blocking"]] == [running.pid]
        refused = later_build(home, "upgrade")
        assert refused.returncode == 6
        assert f"(process {running.pid})" in refused.stderr
        assert home.sql("SELECT value FROM meta WHERE key = 'version'") == [("9",)]
        assert running.stdin is not None
        running.stdin.write("\n")
        running.stdin.flush()
        running.wait(30)
    assert later_build(home, "upgrade", "--plan").returncode == 0
    assert later_build(home, "upgrade").returncode == 0
    assert home.sql("SELECT value FROM meta WHERE key = 'version'") == [("10",)]


def test_rotation_waits_for_process_without_new_key(home: Home) -> None:
    old, new = home.key, new_key()
    home.open().close()
    with program(home) as running:
        until(lambda: live(home) != [])
        code, text = rotate(home, f"{old},{new}")
        assert (code, f"(process {running.pid})" in text) == (6, True)
        code, text = rotate(home, f"{new},{old}")
        assert (code, "is missing" in text) == (6, True), "it must not sign rows again"
    home.sql("DELETE FROM process")
    with program(home, SAYSO_KEY=f"{old},{new}"):
        until(lambda: live(home) != [])
        code, text = rotate(home, f"{new},{old}")
        assert (code, json.loads(text)["step"]) == (0, "signed")
        code, text = rotate(home, f"{new},{old}", "--drop")
        assert (code, "does not sign yet" in text) == (6, True)
