"""The fixtures of all adapters: each module says which class makes its ``world``."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sayso_testing.adapter_escapes import (
    ASYNC_WAYS,
    PLAIN_WAYS,
    SYNC_WAYS,
    Work,
    pool_with_two_clerks,
)

# First: for each optional package that it does not find, DSPy looks through all modules that are
# loaded, once per frame of the stack. After the other frameworks that takes seconds.
with suppress(ImportError):  # where only one framework is installed
    import dspy  # noqa: F401

#: Tests of every adapter that take seconds, mostly those that kill processes.
SLOW = {
    "test_in_doubt_is_for_people_to_settle",
    "test_killed_during_the_run",
    "test_killed_while_waiting",
    "test_malformed_answers_change_nothing",
}
#: Tests over many shapes of code or of validators. `make test` has a quarter of each.
MANY = {
    "test_allowed_call_agrees_with_bare",
    "test_approved_call_agrees_with_bare",
    "test_delegated_call_needs_a_decision",
    "test_tool_inside_idempotent_call_asks",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    count = 0
    for item in items:
        name = getattr(item, "originalname", "")
        count += name in MANY
        if name in SLOW or (name in MANY and count % 4):
            item.add_marker(pytest.mark.long)


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """The module's ``World`` on a new store, with the module's ``POLICY`` at the gate."""
    module: Any = request.module
    policy = [module.POLICY] if hasattr(module, "POLICY") else []
    world = module.World(tmp_path, *policy)
    yield world
    world.close()


@pytest.fixture(
    params=[
        way for way in (*SYNC_WAYS, *PLAIN_WAYS, *ASYNC_WAYS) if way is not pool_with_two_clerks
    ],
    ids=lambda way: way.__name__,
)
def run_elsewhere(request: pytest.FixtureRequest) -> Iterator[Callable[[Callable[[], Any]], None]]:
    """Run a job to its end in another context, task or OS thread. Ignore what it raises."""
    with request.param() as start:

        async def start_in_loop(work: Work) -> None:
            await start(work)

        def run(job: Callable[[], Any]) -> None:
            work = Work(job, functools.partial(asyncio.to_thread, job))
            if request.param in ASYNC_WAYS:
                asyncio.run(start_in_loop(work))
            else:
                start(work)
            work.wait()

        yield run
