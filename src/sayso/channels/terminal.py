"""Ask in the agent's own terminal: one question at a time, in a worker thread."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from functools import cache
from queue import SimpleQueue

from sayso.channels.layout import name
from sayso.channels.prompt import Review, ask
from sayso.channels.screen import Screen, can_prompt
from sayso.forking import call_in_child, fork_safe_lock
from sayso.inbox import Inbox, os_user
from sayso.stores.base import Store
from sayso.types import Request, Reviewer

__all__ = ["TerminalChannel", "can_prompt"]

#: Held while a card is on the terminal: one question at a time.
TERMINAL = fork_safe_lock()


class TerminalChannel:
    """Asks in the terminal: ``Gate(store, channels=[TerminalChannel(store)])``.

    The reviewer is the user of the operating system, unless you pass ``by``. Requests queue. A
    decision made elsewhere closes the prompt, and a request that is left stays pending. Without a
    terminal on stdin and stdout it does not ask, and prints how to decide instead.
    """

    def __init__(
        self, store: str | Store | Inbox, *, by: Reviewer | None = None, plain: bool = False
    ) -> None:
        self._inbox = store if isinstance(store, Inbox) else Inbox(store)
        self._by = by
        self._plain = plain

    @property
    def interactive(self) -> bool:
        """Whether this process can prompt."""
        return can_prompt()

    async def __call__(self, request: Request) -> None:
        """Ask about one request, and return when it is decided or left."""
        if not can_prompt():
            what = name(request.tool or request.kind)
            print(f"sayso: {what} needs a decision: sayso show {request.id}", file=sys.stderr)
            return
        await asyncio.wrap_future(_worker().submit(lambda: self._ask(request)))

    def _ask(self, request: Request) -> None:
        review = Review(self._inbox, request.id, by=self._by or os_user())
        with TERMINAL, closing(Screen(plain=self._plain)) as screen:
            ask(screen, review)
        if screen.interrupted:  # only now, after the person has seen that it is still pending
            os.kill(os.getpid(), signal.SIGINT)


class _Worker:
    """The OS thread that asks. It is a daemon, so an open prompt does not keep a program alive."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Callable[[], None], Future[None]]] = SimpleQueue()
        threading.Thread(target=self._work, name="sayso-terminal", daemon=True).start()

    def submit(self, job: Callable[[], None]) -> Future[None]:
        future: Future[None] = Future()
        self._jobs.put((job, future))
        return future

    def _work(self) -> None:
        while True:
            job, future = self._jobs.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                job()
                future.set_result(None)
            except BaseException as error:
                future.set_exception(error)


@cache
def _worker() -> _Worker:
    return _Worker()


call_in_child(_worker.cache_clear)
