"""Asking in the terminal that the agent runs in: one question at a time, in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from queue import SimpleQueue
from typing import Any

from sayso.channels.desk import Desk
from sayso.channels.layout import name
from sayso.channels.prompt import ask
from sayso.channels.screen import Screen, can_prompt
from sayso.forking import call_in_child, fork_safe_lock
from sayso.inbox import Inbox, os_user
from sayso.stores.base import Store
from sayso.types import Request, Reviewer

__all__ = ["TerminalChannel", "can_prompt"]

#: One terminal, one question: whoever draws a card holds this.
TERMINAL = fork_safe_lock()


class TerminalChannel:
    """``Gate(store, channels=[TerminalChannel(store)])``: requests are put to whoever sits there.

    The person is the user of the operating system, unless ``by`` names somebody. Two requests
    queue; a decision made elsewhere closes the question, and one that is left stays pending.
    Without a terminal on both sides nobody is asked, and one line says how to decide.
    """

    def __init__(
        self, store: str | Store | Inbox, *, by: Reviewer | None = None, plain: bool = False
    ) -> None:
        self._inbox = store if isinstance(store, Inbox) else Inbox(store)
        self._by = by
        self._plain = plain

    @property
    def interactive(self) -> bool:
        """Whether somebody sits in front of it."""
        return can_prompt()

    async def __call__(self, request: Request) -> None:
        """Put one request to the person, and return when it is decided or left."""
        if not can_prompt():
            what = name(request.tool or request.kind)
            print(f"sayso: {what} waits for a person: sayso show {request.id}", file=sys.stderr)
            return
        await asyncio.wrap_future(_thread().submit(lambda: self._ask(request)))

    def _ask(self, request: Request) -> None:
        desk = Desk(self._inbox, request.id, by=self._by or os_user())
        with TERMINAL:
            screen = Screen(plain=self._plain)
            try:
                ask(screen, desk)
            finally:
                screen.close()
        if screen.interrupted:  # only now: the person has read how the request stands
            os.kill(os.getpid(), signal.SIGINT)


class _Thread:
    """The one thread that asks; a daemon, so that an open question never keeps a program alive."""

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
            if future.set_running_or_notify_cancel():
                self._run(job, future)

    @staticmethod
    def _run(job: Callable[[], Any], future: Future[None]) -> None:
        try:
            job()
            future.set_result(None)
        except BaseException as error:
            future.set_exception(error)


@cache
def _thread() -> _Thread:
    return _Thread()


call_in_child(_thread.cache_clear)
