"""A second PostgreSQL that replicates the first synchronously."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from postgres_server import PostgresServer
from waiting import until


class Standby(PostgresServer):
    """A server that starts as a copy of another one."""

    @classmethod
    @contextmanager
    def of(cls, primary: PostgresServer) -> Iterator[Standby]:
        """Yield a standby of this server. From now on, the server's commits wait for it."""
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
                synced = "SELECT sync_state = 'sync' FROM pg_stat_replication"
                until(lambda: connection.execute(synced).fetchall() == [(True,)])
            yield standby
            standby.stop(signal.SIGQUIT)
        finally:
            standby.kill()
            shutil.rmtree(folder, ignore_errors=True)

    def promote(self) -> None:
        """Promote the standby to primary."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            assert connection.execute("SELECT pg_promote()").fetchone() == (True,)


def either(*servers: PostgresServer) -> str:
    """Return an address that reaches the current primary."""
    folders = ",".join(str(server.folder) for server in servers)
    return f"postgresql://postgres@/postgres?host={folders}&target_session_attrs=read-write"
