"""Who wants to hear of commits in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable


class Hub:
    """Listeners by thread; ``None`` hears everything. Safe to call from any thread."""

    def __init__(self, on_first: Callable[[], None] = lambda: None) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[str | None, list[Listener]] = {}
        self._on_first = on_first

    def subscribe(self, thread: str | None, callback: Callable[[], None]) -> Listener:
        """Add a listener; ``cancel`` on what is returned takes it away."""
        listener = Listener(self, thread, callback)
        with self._lock:
            first = not self._listeners
            self._listeners.setdefault(thread, []).append(listener)
        if first:
            self._on_first()
        return listener

    def remove(self, listener: Listener) -> None:
        """Forget a listener; twice is once."""
        with self._lock:
            listeners = self._listeners.get(listener.thread, [])
            if listener in listeners:
                listeners.remove(listener)
            if not listeners:
                self._listeners.pop(listener.thread, None)

    @property
    def empty(self) -> bool:
        """Whether nobody listens."""
        return not self._listeners

    def publish(self, threads: Iterable[str]) -> None:
        """Tell the listeners of these threads, and those of everything."""
        if not self._listeners:
            return
        with self._lock:
            heard = list(self._listeners.get(None, ()))
            for thread in threads:
                heard += self._listeners.get(thread, ())
        for listener in heard:
            listener.callback()


class Listener:
    """One subscription."""

    def __init__(self, hub: Hub, thread: str | None, callback: Callable[[], None]) -> None:
        self._hub = hub
        self.thread = thread
        self.callback = callback

    def cancel(self) -> None:
        """Stop hearing."""
        self._hub.remove(self)
