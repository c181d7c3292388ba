"""Log that something is away: at once, once a minute until it is back, and then once more.

Many loops of one process read the same store, and each finds out that it is away. They report it to
one ``Outage``, so that a log of any process says it as often as that of any other.
"""

from __future__ import annotations

import logging
import time
from weakref import WeakKeyDictionary

from sayso.forking import fork_safe_lock
from sayso.stores.base import Store

log = logging.getLogger("sayso.stores")

_REMIND_SECONDS = 60.0


class Outage:
    """Whether something is away, and when that was last logged.

    Says nothing while ``within``, which it depends on, is away.
    """

    def __init__(self, name: str, *, within: Outage | None = None) -> None:
        self._name = name
        self._within = within
        self._lock = fork_safe_lock()
        self._since: float | None = None
        self._logged_at = 0.0

    @property
    def lasts(self) -> bool:
        return self._since is not None

    def failed(self, error: BaseException) -> None:
        """Log an error, unless one was logged less than a minute ago."""
        if self._within is not None and self._within.lasts:
            return
        now = time.monotonic()
        with self._lock:
            since = self._since
            if since is None:
                self._since = now
            elif now - self._logged_at < _REMIND_SECONDS:
                return
            self._logged_at = now
        reason = str(error) or type(error).__name__
        if since is None:
            log.error("%s is not available, trying again: %s", self._name, reason)
        else:
            log.error("%s is not available for %.0f s: %s", self._name, now - since, reason)

    def over(self) -> None:
        """Log that it is back, if it was away."""
        if self._since is None:
            return
        with self._lock:
            since = self._since
            self._since = None
        if since is not None:
            seconds = time.monotonic() - since
            log.warning("%s is available again, after %.0f s", self._name, seconds)


_outages: WeakKeyDictionary[Store, Outage] = WeakKeyDictionary()
_outages_lock = fork_safe_lock()


def outage_of(store: Store) -> Outage:
    """Return the one outage of a store in this process."""
    with _outages_lock:
        outage = _outages.get(store)
        if outage is None:
            outage = _outages[store] = Outage(f"the store {store.url}")
        return outage
