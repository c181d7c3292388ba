"""A full disk, files that may not be written, wrong clocks, and lost notifications."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from crew import silence
from faults import SEED, Tell
from places import KINDS, drop, make
from rounds import at_work
from zygote import Zygote

from assent.stores import postgres

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

TEN_MINUTES = 600.0


def test_a_full_disk_refuses_and_loses_nothing(zygote: Zygote, tmp_path: Path, tell: Tell) -> None:
    folder = make(tmp_path / "place", "sqlite")
    with at_work(zygote, folder, SEED) as desk:
        desk.begin(40)
        told = zygote.value("disk:fill", folder=str(folder))
        assert len(told["refused"]) == told["still"] == 30
        assert all("could not be written" in refused for refused in told["refused"])
        assert told["acks"] == 40
        tell(test="full disk", store="sqlite", refused=told["still"], **desk.finish())


def test_files_that_may_not_be_written_are_refused(zygote: Zygote) -> None:
    folder = Path(tempfile.mkdtemp(prefix="assent-locked-"))
    try:
        with at_work(zygote, make(folder, "sqlite"), SEED) as desk:
            desk.begin(1)
            mode(folder, 0o444, 0o555)
            assert "cannot open" in zygote.value("disk:locked_out", folder=str(folder))
            mode(folder, 0o600, 0o755)
            desk.finish()
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def mode(folder: Path, files: int, itself: int) -> None:
    """Who may do what with a store; its key is for nobody else in any case."""
    for path in folder.iterdir():
        if path.suffix != ".key":
            path.chmod(files)
    folder.chmod(itself)


@pytest.mark.parametrize("kind", KINDS)
def test_clocks_that_are_ten_minutes_off(
    kind: str, zygote: Zygote, tmp_path: Path, tell: Tell
) -> None:
    folder = make(tmp_path / "place", kind)
    with at_work(zygote, folder, SEED, lease=5.0) as desk:
        desk.begin(10)
        for skew in (0.0, TEN_MINUTES, -TEN_MINUTES):
            desk.hire(skew=skew)
        tell(test="clock skew", store=kind, **desk.finish(crew=False))
    drop(folder)


def test_lost_notifications_delay_and_lose_nothing(
    zygote: Zygote, tmp_path: Path, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "news", postgres.news)  # put back in the end
    silence()
    folder = make(tmp_path / "place", "postgres")
    with at_work(zygote, folder, SEED) as desk:
        desk.begin(5)
        for _ in range(2):
            desk.hire(deaf=True)
        tell(test="no notifications", store="postgres", **desk.finish(crew=False))
    drop(folder)
