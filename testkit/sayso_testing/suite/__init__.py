"""The test suite that every store must pass, including your own.

Subclass it in a test file, and define how to make a store::

    class TestMyStore(StoreSuite):
        def make_store(self, clock, keys):
            return MyStore(self.folder / "file", clock=clock, keys=keys)

        def reopen(self, store):
            store.close()
            return self.make_store(store.now, store.keys)

Each test gets a new store. After each test, the suite reads the whole store through the protocol
and checks its invariants (``sayso.testing.check_store``): chains, seals, counters, legal moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sayso.keys import Keyring
from sayso.stores.base import Store
from sayso.testing.clock import FakeClock
from sayso.types import Micros
from sayso_testing.suite.asking import AskTests, GrantTests
from sayso_testing.suite.deciding import DecisionTests, ReviewTests, VoteTests
from sayso_testing.suite.effects import EffectKeyTests, EffectTests, SettlementTests
from sayso_testing.suite.leasing import ClosingTests, LeaseTests
from sayso_testing.suite.listing import ListTests, SearchTests
from sayso_testing.suite.recording import AtomicityTests, RecordTests, StorageTests
from sayso_testing.suite.refusing import RefusalTests
from sayso_testing.suite.running import MoveTests, ReleaseTests, RunTests
from sayso_testing.world import World

SUITE_KEY = "hmac:c3RvcmUgc3VpdGUgc3RvcmUgc3VpdGUgc3RvcmUgc3VpdGU"


class StoreSuite(
    MoveTests,
    AskTests,
    DecisionTests,
    ReviewTests,
    VoteTests,
    GrantTests,
    RefusalTests,
    RunTests,
    ReleaseTests,
    EffectTests,
    EffectKeyTests,
    SettlementTests,
    LeaseTests,
    ClosingTests,
    AtomicityTests,
    ListTests,
    SearchTests,
    RecordTests,
    StorageTests,
):
    """Tests for every promise of ``sayso.stores.base``."""

    #: An empty folder for the test, for stores that write files.
    folder: Path

    def make_store(self, clock: Callable[[], Micros], keys: Keyring) -> Store:
        """Return a new, empty store that takes all times from ``clock`` and signs with ``keys``."""
        raise NotImplementedError("define make_store(): return a new, empty store")

    def reopen(self, store: Store) -> Store:
        """Close a store and open it again. Return the same store if it keeps its data in memory."""
        return store

    @pytest.fixture
    def world(self, tmp_path: Path) -> Iterator[World]:
        """Yield the store under test; check and close it afterwards."""
        self.folder = tmp_path
        clock = FakeClock()
        world = World(self.make_store(clock, Keyring.parse(SUITE_KEY)), clock, self.reopen)
        try:
            yield world
            world.check()
        finally:
            world.store.close()
