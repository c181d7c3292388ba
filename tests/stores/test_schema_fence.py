"""A process that stays open while a later version changes the tables writes nothing any more.

Two builds take part, each in its own process. They differ by a migration.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from forked_child import in_child
from homes import Home
from waiting import until

import sayso
from sayso.audit import verify
from sayso.stores.sql import migrate
from sayso_testing.world import World

#: What the later build does to the tables: rows of the earlier build have no place in them.
NEXT = (
    "CREATE TABLE note (call TEXT NOT NULL);"
    "INSERT INTO note SELECT id FROM call;"
    "ALTER TABLE call RENAME COLUMN note TO remark;"
)
#: A migration after which the statements of the earlier build still work.
QUIET = "CREATE TABLE note (call TEXT NOT NULL); INSERT INTO note SELECT id FROM call;"

_OLD_BUILD = """
import sys
import sayso
from sayso.stores import open_store
from sayso_testing.world import World

store = open_store(sys.argv[1])
world = World(store, None)
first, second = world.ask(id="req_1", key="1"), world.ask(id="req_2", key="2")
(running,) = world.start(world.decide(first))
ran = []
gate = sayso.Gate(store, wait=0)
acts = {
    "ask": lambda: world.ask("more", id="req_more", key="more"),
    "decide": lambda: world.decide(second),
    "record": lambda: world.record(running),
    "cursor": lambda: store.move_cursor("reader", "1", expected=""),
    "seal": store.seal,
    "prune": lambda: store.prune(store.now(), "ops"),
    "read": lambda: store.call("req_1"),
    "list": store.tail,
}

def pay():
    with gate.run("order"):
        gate.guard(needs_approval=False, name="pay")(lambda: ran.append(1))()

acts["pay"] = pay
print("open", flush=True)
for line in sys.stdin:
    try:
        acts[line.strip()]()
        print("done", flush=True)
    except Exception as error:
        print(type(error).__name__, str(error).replace("\\n", " "), flush=True)
    assert not ran
"""

_NEW_BUILD = """
import sys
from sayso.stores import open_store
from sayso.stores.sql import migrate, statements

migrate.migrations = lambda dialect: ((migrate.SCHEMA_VERSION + 1, sys.argv[2]),)
statements.CHECK_TABLES = "SELECT 1"  # those that this build has
open_store(sys.argv[1]).close()
"""


class OldBuild:
    """A process of the earlier build that has the store open."""

    def __init__(self, home: Home) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _OLD_BUILD, home.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(home),
            text=True,
        )
        assert self._read() == "open"

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def act(self, name: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{name}\n")
        self._process.stdin.flush()
        return self._read()

    def end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


def environment(home: Home) -> dict[str, str]:
    return {**os.environ, "SAYSO_KEY": home.key}


@contextmanager
def old_build(home: Home) -> Iterator[OldBuild]:
    build = OldBuild(home)
    try:
        yield build
    finally:
        build.end()


def upgrade(home: Home, migration: str) -> None:
    command = [sys.executable, "-c", _NEW_BUILD, home.url, migration]
    subprocess.run(command, env=environment(home), check=True, timeout=60)


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes this process one of the later build, as far as the tables are concerned."""
    later = ((migrate.SCHEMA_VERSION + 1, QUIET),)
    monkeypatch.setattr(migrate, "migrations", lambda dialect: later)


WRITES = ["ask", "decide", "record", "cursor", "seal", "prune", "pay"]


@pytest.mark.parametrize("first", ["ask", "cursor", "seal", "pay"])
def test_old_build_cannot_write_after_upgrade(home: Home, pretend: None, first: str) -> None:
    with old_build(home) as build:
        upgrade(home, QUIET)
        with closing(home.open()) as store:
            events = [event.hash for _, event in store.events()]
        for act in (first, *WRITES):
            reply = build.act(act)
            assert reply.startswith("StoreVersion"), reply
            assert "Restart" in reply
        for act in ("read", "list"):
            assert build.act(act).startswith("StoreVersion"), "what it noticed concerns reads too"
    with closing(home.open()) as store:
        assert [event.hash for _, event in store.events()] == events
        assert store.call("req_more") is None
        assert store.cursor("reader") == ""
        assert verify(store).problems == []


@pytest.mark.parametrize("act", ["ask", "decide", "read"])
def test_old_build_names_version_of_changed_tables(home: Home, act: str) -> None:
    """Where a statement of the old build fails, the reason is not that rows were tampered with."""
    with old_build(home) as build:
        upgrade(home, NEXT)
        assert build.act(act).startswith("StoreVersion")


def test_old_build_reads_until_it_writes(home: Home) -> None:
    """Nothing starts by reading. A table that is only added changes no answer."""
    with old_build(home) as build:
        upgrade(home, QUIET)
        assert build.act("read") == "done"
        assert build.act("ask").startswith("StoreVersion")


#: Sessions that wait to lock the table whose rows are in the fence.
_WAITS = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'meta'::regclass"


def test_upgrade_waits_for_open_transaction(home: Home) -> None:
    """A commit that found the old version is there before the tables change."""
    store = home.open()
    world = World(store, None)  # type: ignore[arg-type]
    world.ask()
    upgrading: list[subprocess.Popen[bytes]] = []

    def boundary(name: str, when: str) -> None:
        if when == "before" and not upgrading:
            command = [sys.executable, "-c", _NEW_BUILD, home.url, QUIET]
            upgrading.append(subprocess.Popen(command, env=environment(home)))
            if home.dialect == "postgres":
                until(lambda: home.sql(_WAITS) != [], seconds=30)
            else:
                time.sleep(2)
            assert upgrading[0].poll() is None, "it did not wait"

    store.boundary = boundary
    call = world.ask("more", id="req_more", key="more")
    store.boundary = None
    assert upgrading[0].wait(60) == 0
    assert sorted(home.sql("SELECT call FROM note")) == [("req_0001",), (call.id,)]
    with pytest.raises(sayso.StoreVersion):
        world.decide(call)


@pytest.mark.parametrize("home", ["postgres"], indirect=True)
def test_joined_transaction_meets_fence(home: Home) -> None:
    store: Any = home.open()
    with psycopg.connect(home.database) as connection:
        mine = store.on(connection)
        connection.rollback()
        upgrade(home, QUIET)
        world = World(mine, None)  # type: ignore[arg-type]
        with pytest.raises(sayso.StoreVersion), connection.transaction():
            world.ask()
    assert home.sql("SELECT count(*) FROM event") == [(0,)]


def test_forked_child_meets_fence(home: Home, path: Path) -> None:
    """A child opens its own connections: it must not take the upgraded store for its own."""
    store = home.open()
    World(store, None).ask()  # type: ignore[arg-type]
    upgrade(home, QUIET)

    def child() -> None:
        with pytest.raises(sayso.StoreVersion):
            World(store, None).ask("more", id="req_child", key="child")  # type: ignore[arg-type]

    assert in_child(child)
