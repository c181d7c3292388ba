"""The fixture of all adapters: each module says which class makes its ``world``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

# First: for each optional package that it does not find, DSPy looks through all modules that are
# loaded, once per frame of the stack. After the other frameworks that takes seconds.
with suppress(ImportError):  # where only one framework is installed
    import dspy  # noqa: F401


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """The module's ``World`` on a new store, with the module's ``POLICY`` at the gate."""
    module: Any = request.module
    policy = [module.POLICY] if hasattr(module, "POLICY") else []
    world = module.World(tmp_path, *policy)
    yield world
    world.close()
