"""Power cuts of PostgreSQL: the server and its clients write to one disk that loses writes."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psycopg
import pytest
from places import make, open_at
from postgres_server import PostgresServer
from power import Disk, read_log
from power_cuts import CHILD, PATH, PATIENCE
from record import Tally, take_stock
from shim import Shim
from stories import lines


def cut_server_power(
    home: Path, seed: int, runs: int, cuts: int, monkeypatch: pytest.MonkeyPatch, careless: bool
) -> dict[str, int]:
    """Cut the power at several moments. Return the counts of violations over all cuts.

    ``home`` is a folder with a short name, because the server's socket is in it.
    """
    disk = home / "disk"
    disk.mkdir()
    server = PostgresServer(disk / "server")
    server.start()
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET synchronous_commit = off")  # which a store overrides
    server.stop()
    shim = Shim(home, disk)
    at_first = Disk(disk)
    at_first.load_files()
    place = make(disk / "place", "postgres", server.url)
    with monkeypatch.context() as patched:
        for name, value in {**shim.environment(logs=True), "PYTHONPATH": PATH}.items():
            patched.setenv(name, value)
        server.start()
        command = [sys.executable, str(CHILD), str(place), str(runs)]
        command += ["careless"] if careless else []
        subprocess.run(command, env=dict(os.environ), check=True, timeout=PATIENCE)
    server.kill()
    ops = read_log(shim.log)
    dice, at = random.Random(seed), 0
    counts: Counter[str] = Counter(runs=runs, cuts=0)
    for moment in sorted(dice.sample(range(len(ops)), cuts)):
        for op in ops[at:moment]:
            at_first.play(op)
        at = moment
        for some in (None, dice):
            found = _looked_at(at_first, home / "cut", place, some).counts()
            counts["cuts"] += 1
            counts["decisions_checked"] += found["decisions"]
            counts["effects_checked"] += found["effects"]
            counts.update({name: found[name] for name in Tally.WRONGS})
    return dict(counts)


def _looked_at(disk: Disk, to: Path, place: Path, some: random.Random | None) -> Tally:
    """Start a server on what the cut left, and count."""
    (to / "place").mkdir(parents=True)
    disk.cut(to, some)
    shutil.copytree(place.parent / "server", to / "server", ignore=_no_files, dirs_exist_ok=True)
    (to / "server" / "data" / "postmaster.pid").unlink(missing_ok=True)
    server = PostgresServer(to / "server")
    owner = (place.parent / "server" / "data").stat().st_uid
    for path in (to / "server").rglob("*"):
        os.chown(path, owner, -1)
    (to / "server" / "data").chmod(0o700)
    try:
        server.start()
        facts = json.loads((place / "postgres").read_text())
        (to / "place" / "postgres").write_text(json.dumps(facts | {"url": server.url}))
        store = open_at(to / "place")
        try:
            return take_stock(store, to / "place", [run for (run,) in lines(to / "place/begun")])
        finally:
            store.close()
    finally:
        server.stop(signal.SIGQUIT)
        shutil.rmtree(to)


def _no_files(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if not Path(folder, name).is_dir()]
