"""Power cuts at many moments of a story: the store stays consistent, and the story resumes."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from fork_server import ForkServer
from places import open_at
from power import Disk, read_log
from record import Tally, take_stock
from rounds import at_work
from shim import Shim
from stories import lines

CHILD = Path(__file__).with_name("power_child.py")
PATH = os.pathsep.join(p for p in sys.path if p)
PATIENCE = 600
#: Long after every lease of those who lost their power.
_LATER = 3600.0


def cut_power(
    fork_server: ForkServer,
    home: Path,
    seed: int,
    runs: int,
    cuts: int,
    ends: int,
    careless: bool = False,
) -> dict[str, int]:
    """Cut the power at several moments, and finish the story after some of them.

    Return the counts of violations over all cuts, without asserting anything.
    """
    place = home / "place"
    place.mkdir()
    shim = Shim(home, place)
    command = [sys.executable, str(CHILD), str(place), str(runs), "careless" if careless else ""]
    environment = {**os.environ, **shim.environment(logs=True), "PYTHONPATH": PATH}
    subprocess.run(command, env=environment, check=True, timeout=PATIENCE)
    ops = read_log(shim.log)
    dice, disk, at = random.Random(seed), Disk(place), 0
    moments = sorted(dice.sample(range(len(ops)), cuts))
    goes_on = set(dice.sample(moments, ends))
    counts: Counter[str] = Counter(runs=runs, cuts=0, ended=0)
    for moment in moments:
        for op in ops[at:moment]:
            disk.play(op)
        at = moment
        for some in (None, dice):
            folder = home / "cut"
            disk.cut(folder, some)
            found = _looked_at(folder).counts()
            counts["decisions_checked"] += found["decisions"]
            counts["effects_checked"] += found["effects"]
            counts.update({name: found[name] for name in Tally.WRONGS})
            counts["cuts"] += 1
            if moment in goes_on and some is not None:
                counts["in_doubt"] += _gone_on(fork_server, folder, seed)["in_doubt"]
                counts["ended"] += 1
            shutil.rmtree(folder)
    return dict(counts)


def _looked_at(folder: Path) -> Tally:
    """Check the store after a cut."""
    store = open_at(folder)
    try:
        found = store._rows("PRAGMA integrity_check")  # type: ignore[attr-defined]
        tally = take_stock(store, folder, [run for (run,) in lines(folder / "begun")])
        tally.broken += [str(row[0]) for row in found if row[0] != "ok"]
        return tally
    finally:
        store.close()


def _gone_on(fork_server: ForkServer, folder: Path, seed: int) -> dict[str, int]:
    with at_work(fork_server, folder, seed) as pool:
        pool.track([run for (run,) in lines(folder / "begun")])
        for _ in range(2):
            pool.start_worker(skew=_LATER)
        return pool.finish(workers=False)
