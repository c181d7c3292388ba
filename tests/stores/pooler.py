"""A real PgBouncer in transaction mode, in front of a PostgreSQL of its own."""

from __future__ import annotations

import runpy
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from postgres_server import PostgresServer, launcher, why_not
from waiting import until

_SCRIPT = Path(__file__).parents[2] / "scripts" / "programs.py"
_CONFIG = """
[databases]
* = user=postgres host={server} port=5432

[pgbouncer]
listen_addr =
unix_socket_dir = {folder}
unix_socket_mode = 0777
listen_port = 6432
pool_mode = transaction
default_pool_size = {size}
max_client_conn = 200
auth_type = any
server_login_retry = 1
logfile = {folder}/log
"""


def find() -> str | None:
    """Where PgBouncer is; ``scripts/programs.py`` knows."""
    found: str | None = runpy.run_path(str(_SCRIPT))["pgbouncer"]()
    return found


def _program() -> str:
    found = find()
    assert found is not None, "the tests that need it were skipped"
    return found


NEEDED = [
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "there is one"),
    pytest.mark.skipif(find() is None, reason="needs PgBouncer: apt-get install pgbouncer"),
]


class PgBouncer:
    """A process that may be killed and started again."""

    def __init__(self, folder: Path, server: PostgresServer, *, size: int) -> None:
        self._folder = folder
        self._config = folder / "pgbouncer.ini"
        text = _CONFIG.format(server=server.folder, folder=folder, size=size)
        self._config.write_text(text)
        self._command = [*launcher(folder), _program(), "-q", str(self._config)]
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={self._folder}&port=6432"

    def start(self) -> None:
        """Start it, and wait until it accepts connections."""
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(self._command, **quiet)
        until(self._accepts, seconds=30, otherwise=self._log)

    def _accepts(self) -> bool:
        assert self.process is not None
        try:
            psycopg.connect(self.url).close()
        except psycopg.OperationalError:
            if self.process.poll() is not None:
                pytest.fail(f"PgBouncer did not start: {self._log()}")
            return False
        return True

    def _log(self) -> str:
        log = self._folder / "log"
        return log.read_text()[-2000:] if log.exists() else "no log"

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="sayso-pb-"))  # sockets need a short path
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[PostgresServer]:
    made = PostgresServer(home / "server", fsync=False)
    made.start()
    yield made
    made.stop(signal.SIGQUIT)


@pytest.fixture(scope="module")
def bouncer(home: Path, server: PostgresServer) -> Iterator[PgBouncer]:
    """Three sessions for everybody."""
    (home / "pooler").mkdir()
    made = PgBouncer(home / "pooler", server, size=3)
    made.start()
    yield made
    made.kill()
