"""A disk that is full or read-only: decisions are refused, and none is lost."""

from __future__ import annotations

import contextlib
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fault_fixtures import HERE
from faults import SEED, Tell
from fork_server import ForkServer
from places import KINDS, make
from postgres_server import PostgresServer, why_not
from rounds import at_work
from shim import Shim, needs_compiler
from waiting import until
from worker_pool import WorkerPool

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc"),
]

RUNS = 30


@dataclass
class Setting:
    """A store whose files are on a disk of the test's own, and processes that use it."""

    kind: str
    pool: WorkerPool
    shim: Shim
    fork_server: ForkServer
    server: PostgresServer | None

    @property
    def folder(self) -> str:
        return str(self.pool.folder)

    @contextlib.contextmanager
    def told_later(self, **options: int) -> Iterator[Callable[[], dict[str, Any]]]:
        """Somebody who has opened the store, and decides when the given function is called."""
        pid = self.fork_server.spawn("disk:decide", folder=self.folder, after="go", **options)
        until((self.pool.folder / "there").exists)

        def decide() -> dict[str, Any]:
            (self.pool.folder / "go").touch()
            ended = self.fork_server.wait(pid)
            assert (ended.signal, ended.error) == (0, ""), ended.error or ended
            told: dict[str, Any] = ended.value
            return told

        yield decide

    def revive(self) -> None:
        """Start the server again if the disk was the end of it."""
        if self.server is not None:
            self.server.stop(signal.SIGQUIT)
            self.server.start()


@pytest.fixture(params=KINDS)
def setting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setting]:
    """For SQLite the processes have their files on that disk, for PostgreSQL its server."""
    home = Path(tempfile.mkdtemp(prefix="sayso-disk-"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        server = None
        if request.param == "postgres":
            if why_not():
                pytest.skip(why_not())
            server = PostgresServer(home / "server")
            shim = Shim(home, home / "server")
        else:
            shim = Shim(home, home / "place")
        with monkeypatch.context() as patched:
            for name, value in shim.environment().items():
                patched.setenv(name, value)
            if server is not None:
                stack.callback(server.stop, signal.SIGQUIT)
                server.start()
            fork_server = ForkServer(*(HERE / f"{name}.py" for name in ("paying_worker", "disk")))
            stack.callback(fork_server.close)
        folder = make(home / "place", request.param, server.url if server is not None else "")
        pool = stack.enter_context(at_work(fork_server, folder, SEED))
        pool.begin(RUNS)
        yield Setting(request.param, pool, shim, fork_server, server)


@needs_compiler
def test_full_disk_refuses_and_loses_nothing(setting: Setting, tell: Tell) -> None:
    before = setting.fork_server.value("disk:decide", folder=setting.folder, most=5)
    assert before == {"acks": 5, "refused": []}
    with setting.told_later() as later, setting.shim.full():
        told = later()
    assert told["refused"], "the disk was not full"
    assert all("No space left" in text or "full" in text for text in told["refused"]), told
    counts = setting.pool.finish()
    tell(test="full disk", store=setting.kind, refused=len(told["refused"]), **counts)


@needs_compiler
def test_read_only_disk_refuses_and_loses_nothing(setting: Setting, tell: Tell) -> None:
    before = setting.fork_server.value("disk:decide", folder=setting.folder, most=5)
    assert before == {"acks": 5, "refused": []}
    with setting.told_later(most=3) as later, setting.shim.read_only():
        told = later()
    assert told["refused"]
    assert told["acks"] == 0
    setting.revive()
    counts = setting.pool.finish()
    tell(test="read-only disk", store=setting.kind, refused=len(told["refused"]), **counts)


def test_read_only_server_refuses_and_loses_nothing(
    fork_server: ForkServer, server: PostgresServer, tmp_path: Path, tell: Tell
) -> None:
    """As a standby does after a switch that our address did not follow."""
    with at_work(fork_server, make(tmp_path / "place", "postgres", server.url), SEED) as pool:
        pool.begin(4)
        only_reads(server, "on")
        told = fork_server.value("disk:decide", folder=str(pool.folder), most=2)
        assert told["acks"] == 0
        assert len(told["refused"]) >= 2
        assert all("read-only" in text for text in told["refused"])
        only_reads(server, "off")
        tell(test="server only reads", store="postgres", **pool.finish())


def only_reads(server: PostgresServer, state: str) -> None:
    """From the next transaction on, whoever makes it."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {state}")
        connection.execute("SELECT pg_reload_conf()")


def test_unwritable_files_are_refused(fork_server: ForkServer) -> None:
    folder = Path(tempfile.mkdtemp(prefix="sayso-locked-"))
    try:
        with at_work(fork_server, make(folder, "sqlite"), SEED) as pool:
            pool.begin(1)
            mode(folder, 0o444, 0o555)
            assert "cannot open" in fork_server.value("disk:locked_out", folder=str(folder))
            mode(folder, 0o600, 0o755)
            pool.finish()
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def mode(folder: Path, files: int, itself: int) -> None:
    """Who may do what with a store; its key is for nobody else in any case."""
    for path in folder.iterdir():
        if path.suffix != ".key":
            path.chmod(files)
    folder.chmod(itself)
