"""Who wants to hear of commits in this process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from sayso.forking import renew_in_child

log = logging.getLogger("sayso.stores")


class Hub:
    """Listeners by thread; ``None`` hears everything. Safe to call from any thread.

    A store that others write to as well gives ``start``: it is called when somebody begins to
    listen and nothing watches the others yet.
    """

    def __init__(self, start: Callable[[], object] = lambda: None) -> None:
        self._start = start
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """Start without listeners: neither they nor the watcher are in a forked child."""
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._listeners: dict[str | None, list[Listener]] = {}
        self._watched = False

    def subscribe(self, thread: str | None, callback: Callable[[], None]) -> Listener:
        """Add a listener; ``cancel`` on what is returned takes it away."""
        listener = Listener(self, thread, callback)
        with self._starting:  # nobody returns before somebody watches
            with self._lock:
                starts, self._watched = not self._watched, True
                self._listeners.setdefault(thread, []).append(listener)
            try:
                if starts:
                    self._start()
            except BaseException:
                self.unwatched()
                self.remove(listener)
                raise
        return listener

    def remove(self, listener: Listener) -> None:
        """Forget a listener; twice is once."""
        with self._lock:
            listeners = self._listeners.get(listener.thread, [])
            if listener in listeners:
                listeners.remove(listener)
            if not listeners:
                self._listeners.pop(listener.thread, None)

    def wanted(self) -> bool:
        """Whether a watcher should go on; one that is told no has been forgotten."""
        with self._lock:
            self._watched = bool(self._listeners)
            return self._watched

    def unwatched(self) -> None:
        """The watcher gave up: the next listener starts another one."""
        with self._lock:
            self._watched = False

    def publish(self, threads: Iterable[str]) -> None:
        """Tell the listeners of these threads, and those of everything."""
        if not self._listeners:
            return
        with self._lock:
            heard = list(self._listeners.get(None, ()))
            for thread in threads:
                heard += self._listeners.get(thread, ())
        self._tell(heard)

    def publish_to_all(self) -> None:
        """Tell every listener."""
        with self._lock:
            heard = [listener for listeners in self._listeners.values() for listener in listeners]
        self._tell(heard)

    def _tell(self, heard: list[Listener]) -> None:
        for listener in heard:
            try:
                listener.callback()
            except Exception:
                # The commit is done, and it is not the committer who has to hear of this.
                log.exception("a listener failed")

    def clear(self) -> None:
        """Forget all listeners: the store is closed."""
        with self._lock:
            self._listeners.clear()


class Listener:
    """One subscription."""

    def __init__(self, hub: Hub, thread: str | None, callback: Callable[[], None]) -> None:
        self._hub = hub
        self.thread = thread
        self.callback = callback

    def cancel(self) -> None:
        """Stop hearing."""
        self._hub.remove(self)
