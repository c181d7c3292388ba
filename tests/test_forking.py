"""A forked child has free locks, renewed owners, and no half-done section."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from forked_child import in_child

from sayso import forking
from sayso.forking import cut_short, fork_safe_lock, no_fork, process, renew_in_child

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@contextmanager
def another_thread(body: Callable[[threading.Event], object]) -> Iterator[None]:
    """Run a body in another OS thread, and leave the block when it has ended."""
    over = threading.Event()
    thread = threading.Thread(target=body, args=(over,))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_held_lock_is_free_in_child() -> None:
    lock, held = fork_safe_lock(), threading.Event()

    def hold(over: threading.Event) -> None:
        with lock:
            held.set()
            over.wait()

    def child() -> None:
        assert lock.acquire(timeout=60)

    with another_thread(hold):
        assert held.wait(60)
        assert in_child(child)
        assert lock.locked(), "the parent's is as it was"


@pytest.mark.long
def test_child_sees_no_half_done_section() -> None:
    pair = [0, 0]

    def work(over: threading.Event) -> None:
        while not over.is_set():
            with no_fork.lock:
                pair[0] += 1
                time.sleep(0.001)
                with no_fork.lock:
                    pair[1] += 1

    def child() -> None:
        assert pair[0] == pair[1]
        assert cut_short() == ""
        with no_fork.lock:
            pass

    with another_thread(work):
        for _ in range(20):
            assert in_child(child)
    assert pair[0] == pair[1] > 0


def test_fork_inside_section_is_reported_to_child() -> None:
    def child() -> None:
        assert cut_short() == "own"
        assert in_child(lambda: None), "it can fork itself"

    with no_fork.lock:
        assert in_child(child)
    assert cut_short() == ""


def test_fork_waits_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forking, "PATIENCE", 0.05)
    inside = threading.Event()

    def work(over: threading.Event) -> None:
        with no_fork.lock:
            inside.set()
            over.wait()

    def child() -> None:
        assert cut_short() == "other"
        with no_fork.lock:
            pass
        assert in_child(grandchild)

    def grandchild() -> None:
        assert cut_short() == ""

    with another_thread(work):
        assert inside.wait(60)
        assert in_child(child)


@pytest.mark.long
def test_os_threads_may_fork_in_parallel() -> None:
    outcomes: list[bool] = []

    def work() -> None:
        for _ in range(5):
            with no_fork.lock:
                pass
            outcomes.append(in_child(lambda: no_fork.lock.acquire()))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [True] * 15


class Owner:
    def __init__(self, *, fails: bool = False) -> None:
        self.renewed = 0
        self.fails = fails
        renew_in_child(self)

    def after_fork(self) -> None:
        self.renewed += 1
        if self.fails:
            raise RuntimeError("on purpose")


def test_owners_are_renewed_once_per_fork() -> None:
    owners = [Owner(), Owner(fails=True), Owner()]
    begun = process.forks

    def child() -> None:
        assert [owner.renewed for owner in owners] == [1, 1, 1]
        assert process.forks == begun + 1
        assert in_child(grandchild)

    def grandchild() -> None:
        assert [owner.renewed for owner in owners] == [2, 2, 2]
        assert process.forks == begun + 2

    assert in_child(child)
    assert [owner.renewed for owner in owners] == [0, 0, 0]
    assert process.forks == begun


def test_dead_owners_and_threads_are_forgotten() -> None:
    def work(_: threading.Event) -> None:
        with no_fork.lock:
            Owner()

    gc.collect()
    before = len(forking._renewables), len(forking._sections), len(forking._locks)
    for _ in range(5):
        with another_thread(work):
            fork_safe_lock()
    gc.collect()
    assert (len(forking._renewables), len(forking._sections), len(forking._locks)) == before
