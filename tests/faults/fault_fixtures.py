"""Fixtures of the fault tests: a fork server, a one-line report, a PostgreSQL to be killed."""

from __future__ import annotations

import json
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faults import SEED, Tell
from fork_server import PATIENCE, ForkServer
from postgres_server import PostgresServer, why_not

from sayso.stores.postgres import store as postgres

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    warm = ForkServer(
        *(HERE / f"{name}.py" for name in ("paying_worker", "removed_safeguards", "disk"))
    )
    yield warm
    warm.close()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other workers have transactions open on the same PostgreSQL."""
    monkeypatch.setattr(postgres, "PATIENCE", PATIENCE)


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Tell:
    """Print what a fault test did, as one line of JSON."""

    def line(**counts: Any) -> None:
        with capsys.disabled():
            print("\n" + json.dumps({"seed": SEED, **counts}), flush=True)

    return line


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """Yield a PostgreSQL of the test's own, to be killed."""
    if why_not():
        pytest.skip(why_not())
    folder = Path(tempfile.mkdtemp(prefix="sayso-pg-"))
    server = PostgresServer(folder)
    try:
        server.start()
        yield server
        server.stop(signal.SIGQUIT)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
