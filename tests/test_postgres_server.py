"""The tests' PostgreSQL starts in any clone, and shows its log if it fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from memory_folder import memory_folder
from postgres_server import GIVEN, find_binaries, why_not
from waiting import until

TESTS = Path(__file__).parent
pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "there is one")

#: Join the shared server as a test run does, and run a query on it that needs parallel workers.
JOIN = """
import psycopg
from postgres_server import shared_url
with psycopg.connect(shared_url(), autocommit=True) as connection:
    connection.execute("CREATE TABLE numbers AS SELECT generate_series(1, 100000) AS n")
    connection.execute("SET parallel_setup_cost = 0")
    connection.execute("SET parallel_tuple_cost = 0")
    connection.execute("SET min_parallel_table_scan_size = 0")
    plan = connection.execute("EXPLAIN ANALYZE SELECT sum(n) FROM numbers").fetchall()
    assert any("Workers Launched: 2" in line for (line,) in plan), plan
    print(*connection.execute("SELECT sum(n) FROM numbers").fetchone())
"""


def join(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``JOIN`` in a process that starts a shared server for itself."""
    unset = {GIVEN, "PYTEST_XDIST_TESTRUNUID"}
    inherited = {name: value for name, value in os.environ.items() if name not in unset}
    return subprocess.run(
        [*command, sys.executable, "-c", JOIN],
        env={**inherited, "PYTHONPATH": str(TESTS), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def private() -> Iterator[Path]:
    """A folder that only the user of the tests may enter, with a short path for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="private-"))
    yield folder
    until(lambda: not [*folder.glob("sayso-pg-*")])  # its keeper removes it
    shutil.rmtree(folder)


def test_server_starts_from_private_clone(private: Path) -> None:
    """PostgreSQL's binaries find their libraries beside them, below a folder of root's."""
    install = find_binaries().parent
    package = install.parent
    shutil.copytree(package, private / package.name, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, private / libraries.name)
    binaries = private / package.name / install.name / "bin"
    process = join(SAYSO_TEST_PGBIN=str(binaries), TMPDIR=str(private))
    assert process.stdout == "5000050000\n", process.stderr


def test_server_starts_in_private_tmpdir(private: Path) -> None:
    process = join(TMPDIR=str(private))
    assert process.stdout == "5000050000\n", process.stderr


if sys.platform == "linux":

    @pytest.mark.parametrize(
        ("room", "flags", "folder"),
        [(8 << 30, 0, "/dev/shm"), (64 << 20, 0, None), (8 << 30, os.ST_NOEXEC, None)],
        ids=["roomy", "tiny", "noexec"],
    )
    def test_memory_folder_needs_room_and_exec(
        room: int, flags: int, folder: str | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        system = SimpleNamespace(f_bavail=room // 4096, f_frsize=4096, f_flag=flags)
        monkeypatch.setattr(os, "access", lambda *given: True)
        monkeypatch.setattr(os, "statvfs", lambda path: system)
        assert memory_folder() == folder


def mounted(options: str) -> list[str]:
    """Return the words that start a program with its own /dev/shm."""
    mount = f'mount -t tmpfs -o {options} tmpfs /dev/shm && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", mount, "sh"]


def may_mount() -> bool:
    """Return whether this user may mount: root outside of containers."""
    if shutil.which("unshare") is None:
        return False
    command = [*mounted("size=64k"), "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


if may_mount():

    def test_server_starts_without_usable_dev_shm() -> None:
        process = join(*mounted("size=64k,noexec"), TMPDIR="/tmp")
        assert process.stdout == "5000050000\n", process.stderr

    @pytest.mark.parametrize("options", ["size=64k", "size=8g,noexec"])
    def test_memory_folder_refuses_unusable_mount(options: str) -> None:
        program = "from memory_folder import memory_folder; assert memory_folder() is None"
        command = [*mounted(options), sys.executable, "-c", program]
        subprocess.run(command, cwd=TESTS, check=True)


def test_failed_start_shows_server_log(private: Path) -> None:
    (private / "bin").mkdir()
    for program in ("postgres", "initdb"):
        (private / "bin" / program).write_text("#!/bin/sh\necho libpq is missing >&2\nexit 1\n")
        (private / "bin" / program).chmod(0o755)
    process = join(SAYSO_TEST_PGBIN=str(private / "bin"), TMPDIR=str(private))
    assert process.returncode == 1
    assert process.stderr.endswith("NoPostgres: initdb failed:\nlibpq is missing\n\n")
