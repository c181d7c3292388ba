"""SQLite: committing where one is called, and hearing of own and others' commits once."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sayso.engine.commands import Note, Propose
from sayso.keys import Keyring
from sayso.rows import Message
from sayso.stores.seals import SEAL_EVENTS
from sayso.stores.sqlite import SqliteStore
from sayso.stores.sqlite.store import OwnCommits

KEYS = Keyring.ephemeral()


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(path, keys=KEYS)
    yield opened
    opened.close()


def said(words: str, thread: str = "t") -> Propose:
    return Propose(thread=thread, run=thread, agent="a", messages=(Message(thread, words),))


def told(store: SqliteStore, thread: str = "t") -> list[str]:
    return [body for _, body in store.messages(thread)]


def test_a_quick_disk_commits_at_once(store: SqliteStore) -> None:
    store._pace = 0.0
    assert store.transact_now(said("one")) is not None
    assert told(store) == ["one"]


def test_a_slow_disk_does_not(store: SqliteStore) -> None:
    store._pace = 0.01
    assert store.transact_now(said("one")) is None
    assert told(store) == []


def test_a_seal_that_is_due_does_not(store: SqliteStore) -> None:
    store.transact(*[Note(type="seen", actor="ana")] * (SEAL_EVENTS - 10))
    store._pace = 0.0
    assert store.transact_now(said("one")) is None
    assert told(store) == []


def test_the_pace_follows_the_disk(store: SqliteStore) -> None:
    store._pace = 100.0
    store.transact(said("one"))
    assert 0 < store._pace < 100


def test_while_another_process_writes_it_waits_for_nobody(store: SqliteStore, path: Path) -> None:
    store._pace = 0.0
    other = SqliteStore(path, keys=KEYS)
    with other._sidecar.lock():
        assert store.transact_now(said("one")) is None
    assert store.transact_now(said("one")) is not None
    other.close()


def test_while_another_thread_writes_its_lock_stays_its_own(store: SqliteStore, path: Path) -> None:
    """The lock of the file is that of the process: to try it would give it away."""
    other = SqliteStore(path, keys=KEYS)
    inside, on = threading.Event(), threading.Event()

    def wait(name: str, when: str) -> None:
        if when == "before":
            inside.set()
            assert on.wait(30)

    store.boundary = wait
    thread = threading.Thread(target=store.transact, args=(said("one"),))
    thread.start()
    try:
        assert inside.wait(30)
        store._pace = 0.0
        assert store.transact_now(said("two")) is None
        assert not other._sidecar.free()
    finally:
        on.set()
        thread.join()
    assert told(store) == ["one"]
    other.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_opens_the_file_anew_first(store: SqliteStore) -> None:
    store._pace = 0.0
    child = os.fork()
    if child == 0:
        os._exit(0 if store.transact_now(said("one")) is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert told(store) == []


# -- whose commits they are


def test_own_commits_are_told_apart() -> None:
    own = OwnCommits()
    own.add(3, 5)
    own.add(9, 9)
    rows = [(n, f"t{n}") for n in range(1, 11)]
    assert own.others(rows) == {"t1", "t2", "t6", "t7", "t8", "t10"}


def test_numbers_of_a_failed_commit_belong_to_others() -> None:
    own = OwnCommits()
    own.add(1, 2)
    own.add(3, 4)
    own.undo()
    assert own.others([(2, "ours"), (3, "theirs")]) == {"theirs"}


def test_each_commit_is_told_once(store: SqliteStore, path: Path) -> None:
    heard = threading.Semaphore(0)
    subscription = store.subscribe("t", heard.release)
    other = SqliteStore(path, keys=KEYS)
    for n in range(5):
        store.transact(said(f"ours {n}"), said_and_done(n))
        assert heard.acquire(timeout=10)
    assert not heard.acquire(timeout=0.1)
    other.transact(said_and_done(9))
    assert heard.acquire(timeout=10)
    assert not heard.acquire(timeout=0.1)
    subscription.cancel()
    other.close()


def said_and_done(n: int) -> Note:
    return Note(thread="t", type="noted", actor="test", body={"n": n})
