"""SQLite: commits of this process and of others are each published once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sayso.engine.commands import Note, Propose
from sayso.keys import Keyring
from sayso.rows import Message
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


def test_own_commits_are_distinguished() -> None:
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


def test_each_commit_notifies_once(store: SqliteStore, path: Path) -> None:
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
