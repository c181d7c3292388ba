"""The machine that was measured on, and the PostgreSQL server that the rows share."""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import psycopg

from tests.postgres_server import NoPostgres, PostgresServer, find_binaries


@cache
def facts() -> dict[str, Any]:
    """Describe the machine."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "fsync_ms": round(fsync_ms(), 3),
    }


@cache
def own_versions() -> dict[str, str]:
    """Return the versions of Sayso and of what both sides use."""
    node = shutil.which("node")
    return {
        "sayso": version("sayso"),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "postgresql": _postgresql(),
        "psycopg (ours)": version("psycopg"),
        "uvicorn (ours)": version("uvicorn"),
        "node": "" if node is None else _told(node, "--version"),
    }


def _told(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _postgresql() -> str:
    try:
        return _told(str(find_binaries() / "postgres"), "--version").split()[-1]
    except NoPostgres:
        return ""


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text("utf-8").splitlines() if cpuinfo.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{platform.machine()} {named[0]}" if named else platform.machine()


def fsync_ms() -> float:
    """Measure one fsync: no durable commit can be faster."""
    took = []
    with tempfile.TemporaryFile() as file:
        for _ in range(50):
            file.write(b"x" * 4096)
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            took.append(time.perf_counter() - began)
    return statistics.median(took) * 1e3


def preload_slow_disk(folder: Path) -> dict[str, str]:
    """Return the environment of a program whose every sync takes 3 ms longer (needs cc)."""
    library = folder / "slow_disk.so"
    library.parent.mkdir(exist_ok=True)
    source = Path(__file__).with_name("slow_disk.c")
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return {"LD_PRELOAD": str(library)}


class _Shared:
    """The PostgreSQL servers of this process, by their disk, and how many databases they have."""

    folder: Path | None = None
    servers: ClassVar[dict[str, PostgresServer]] = {}
    made = 0


@contextmanager
def server() -> Iterator[None]:
    """Provide PostgreSQL servers with fsync on, started when a row first needs them."""
    with tempfile.TemporaryDirectory(prefix="sayso-bench-") as folder:
        _Shared.folder = Path(folder)
        try:
            yield
        finally:
            for one in _Shared.servers.values():
                one.stop()
            _Shared.servers.clear()
            _Shared.folder = None


def database(*, slow_disk: bool = False) -> str:
    """Return the URL of a new, empty database."""
    if _Shared.folder is None:
        raise RuntimeError("no PostgreSQL: measure rows inside `with server():`")
    disk = "slow" if slow_disk else "fast"
    if disk not in _Shared.servers:
        shim = preload_slow_disk(_Shared.folder) if slow_disk else None
        _Shared.servers[disk] = PostgresServer(_Shared.folder / disk, environment=shim)
        _Shared.servers[disk].start()
    its = _Shared.servers[disk]
    _Shared.made += 1
    name = f"bench{_Shared.made}"
    with psycopg.connect(its.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return its.url_of(name)
