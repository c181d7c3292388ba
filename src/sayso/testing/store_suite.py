"""One suite that every store must pass, yours too.

Subclass it in a test file, and say how a store is made::

    class TestMyStore(StoreSuite):
        def make_store(self, clock, keys):
            return MyStore(self.folder / "file", clock=clock, keys=keys)

        def reopen(self, store):
            store.close()
            return self.make_store(store.now, store.keys)

Each test gets a fresh store. After each, the suite reads all of it back through the protocol and
checks what must always hold (``sayso.testing.check_store``): chains, seals, counters, legal moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sayso.keys import Keyring
from sayso.stores.base import Store
from sayso.testing.clock import FakeClock
from sayso.testing.suite.asking import Asking
from sayso.testing.suite.atomicity import Atomicity
from sayso.testing.suite.closing import Closing
from sayso.testing.suite.deciding import Deciding
from sayso.testing.suite.effects import EffectKeys, Effects, Settlements
from sayso.testing.suite.granting import Granting
from sayso.testing.suite.keeping import Keeping
from sayso.testing.suite.leasing import Leasing
from sayso.testing.suite.moving import Moving
from sayso.testing.suite.paging import Paging
from sayso.testing.suite.recording import Recording
from sayso.testing.suite.running import Running
from sayso.testing.suite.searching import Searching
from sayso.testing.suite.voting import Voting
from sayso.testing.world import World
from sayso.types import Micros

SUITE_KEY = "hmac:c3RvcmUgc3VpdGUgc3RvcmUgc3VpdGUgc3RvcmUgc3VpdGU"


class StoreSuite(
    Moving,
    Asking,
    Deciding,
    Voting,
    Granting,
    Running,
    Effects,
    EffectKeys,
    Settlements,
    Leasing,
    Closing,
    Atomicity,
    Paging,
    Searching,
    Recording,
    Keeping,
):
    """Every promise of ``sayso.stores.base``, as tests."""

    #: An empty folder of the test's own, for stores that keep files.
    folder: Path

    def make_store(self, clock: Callable[[], Micros], keys: Keyring) -> Store:
        """A new, empty store that uses this clock for everything and signs with these keys."""
        raise NotImplementedError("say how your store is made")

    def reopen(self, store: Store) -> Store:
        """Close a store and open what it kept; a store that keeps nothing gives itself."""
        return store

    @pytest.fixture
    def world(self, tmp_path: Path) -> Iterator[World]:
        """The store under test, checked and closed afterwards."""
        self.folder = tmp_path
        clock = FakeClock()
        world = World(self.make_store(clock, Keyring.parse(SUITE_KEY)), clock, self.reopen)
        try:
            yield world
            world.check()
        finally:
            world.store.close()
