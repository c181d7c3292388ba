from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from audit_world import World, opened


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Return a world with three orders, not sealed."""
    with opened(World(tmp_path)) as made:
        for name in ("order-1", "order-2", "order-3"):
            made.order(name)
        assert made.verify().ok
        yield made


@pytest.fixture
def sealed(world: World) -> World:
    """Return a world with three orders and an open request, sealed after each."""
    world.store.seal()
    world.ask("order-4")
    world.store.seal()
    report = world.verify()
    assert report.ok
    assert (report.threads, report.events, report.seals, report.unsealed) == (4, 16, 2, 0)
    return world
