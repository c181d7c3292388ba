"""A late release of a run takes no lease from its new owner, and wakes no ended run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import paying_worker
import pytest
from places import KINDS, drop, make, open_at
from record import take_stock

from sayso import Inbox
from sayso.engine.commands import Park

PATIENCE = 60.0


class Late:
    """A process that reads the run before somebody takes it and its calls after that, and that
    writes when it is told to."""

    def __init__(self, folder: Path) -> None:
        self.store = open_at(folder)
        self.looked = threading.Event()
        self.begun = threading.Event()
        self.lets_go = threading.Event()
        self.may_let_go = threading.Event()
        self.gone = threading.Event()
        self._due: Any = None
        store: Any = self.store
        self._run, self._transact = store.run, store.transact
        store.run = self._look
        store.transact = self._write
        store.call, store.calls_of = self._after(store.call), self._after(store.calls_of)

    def _look(self, name: str) -> Any:
        if self.lets_go.is_set():
            return self._run(name)
        if self._due is None:
            self._due = self._run(name)
            assert self._due.owner is None
            assert self._due.ready_at is not None
            self.looked.set()
        return self._due

    def _after(self, read: Callable[..., Any]) -> Callable[..., Any]:
        def once_begun(*names: str) -> Any:
            wait(self.begun)
            return read(*names)

        return once_begun

    def _write(self, *commands: Any) -> Any:
        if not (any(isinstance(command, Park) for command in commands)):
            return self._transact(*commands)
        self.lets_go.set()
        wait(self.may_let_go)
        try:
            return self._transact(*commands)
        finally:
            self.gone.set()


def wait(event: threading.Event) -> None:
    assert event.wait(PATIENCE), "it did not happen"


@pytest.mark.parametrize("ended", [False, True], ids=["before its end", "after its end"])
@pytest.mark.parametrize("kind", KINDS)
def test_late_release_changes_nothing(
    kind: str, ended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(tmp_path / "place", kind)
    store = open_at(folder)
    inbox = Inbox(store)
    late = Late(folder)
    owners: list[str | None] = []

    def effect(context: Any, to: str) -> str:
        if late.looked.is_set():
            late.begun.set()
            wait(late.lets_go)
        return f"paid {to}"

    def step(messages: Sequence[Any], plain: Any = paying_worker.next_step) -> Any:
        if late.lets_go.is_set() and not ended and not owners:
            late.may_let_go.set()
            wait(late.gone)
            found = store.run(run)
            owners.append(found.owner if found is not None else None)
        return plain(messages)

    monkeypatch.setattr(paying_worker, "next_step", step)
    agent = paying_worker.payer(store, effect)
    run = agent.run_sync("Pay 2 shops.").run
    approve(inbox)
    assert agent.resume_sync(run).status == "paused"
    approve(inbox)
    other = threading.Thread(
        target=paying_worker.payer(late.store, effect).resume_sync, args=(run,)
    )
    other.start()
    wait(late.looked)
    assert agent.resume_sync(run).status == "done"
    late.may_let_go.set()
    other.join(PATIENCE)
    assert not other.is_alive()
    assert late.gone.is_set(), "it never let go"
    found = store.run(run)
    assert found is not None
    assert found.output is not None
    assert found.status == "done"
    assert ended or owners != [None], "the lease of who works on it was taken away"
    assert not take_stock(store, folder, [run]).lost
    late.store.close()
    inbox.close()
    drop(folder)


def approve(inbox: Inbox) -> None:
    (request,) = inbox.pending_sync().items
    inbox.decide_sync(request.id, request.approve(), by="ana")
