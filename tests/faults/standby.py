"""A second PostgreSQL that follows the first, and has every commit before it counts."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from postgres_server import PostgresServer

_PATIENCE = 60.0


class Standby(PostgresServer):
    """A server that begins as a copy of another one."""

    @classmethod
    @contextmanager
    def of(cls, primary: PostgresServer) -> Iterator[Standby]:
        """One that follows this server, and that its commits wait for from now on."""
        folder = Path(tempfile.mkdtemp(prefix="sayso-pg-"))
        standby = cls(folder)
        try:
            source = f"host={primary.folder} user=postgres application_name=standby"
            copy = ("-D", str(folder / "data"), "--write-recovery-conf", "--checkpoint=fast")
            standby._run("pg_basebackup", *copy, "--no-sync", "-d", source)
            standby.start()
            with psycopg.connect(primary.url, autocommit=True) as connection:
                connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
                connection.execute("SELECT pg_reload_conf()")
                end = time.monotonic() + _PATIENCE
                waited_for = "SELECT sync_state = 'sync' FROM pg_stat_replication"
                while connection.execute(waited_for).fetchall() != [(True,)]:
                    assert time.monotonic() < end, "the standby does not follow"
                    time.sleep(0.02)
            yield standby
            standby.stop(signal.SIGQUIT)
        finally:
            standby.kill()
            shutil.rmtree(folder, ignore_errors=True)

    def promote(self) -> None:
        """Take over."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            assert connection.execute("SELECT pg_promote()").fetchone() == (True,)


def either(*servers: PostgresServer) -> str:
    """The address of whichever of them is the primary."""
    folders = ",".join(str(server.folder) for server in servers)
    return f"postgresql://postgres@/postgres?host={folders}&target_session_attrs=read-write"
