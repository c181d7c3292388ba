"""What the test suite promises about itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = ROOT / "pyproject.toml"

DYING = """
import os
import signal

def test_that_kills_its_worker():
    os.kill(os.getpid(), signal.SIGKILL)

def test_behind_it():
    pass
"""


@pytest.mark.long
def test_dead_worker_ends_the_run_with_its_error(tmp_path: Path) -> None:
    """A worker in its place would be given the same test, and so on."""
    (tmp_path / "test_dying.py").write_text(DYING)
    for number in range(4):
        (tmp_path / f"test_other_{number}.py").write_text("def test_other():\n    pass\n")
    command = [sys.executable, "-m", "pytest", "-c", str(PROJECT), "--rootdir", str(tmp_path)]
    command += ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", str(tmp_path)]
    process = subprocess.run(
        command,
        cwd=tmp_path,
        # This process may be a worker itself.
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == 1, process.stdout + process.stderr
    assert "crashed while running 'test_dying.py::test_that_kills_its_worker'" in process.stdout
    # The other worker may be given the rest of the file, and the test that killed the first.
    assert re.search(r"\b[12] failed\b", process.stdout)


def test_tests_that_may_take_longer_are_marked() -> None:
    (limit,) = re.findall(r"^timeout = (\d+)", PROJECT.read_text("utf-8"), re.M)
    paths = [path for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)]
    sources = {path.name: path.read_text("utf-8") for path in paths}
    patient = {
        name
        for name, source in sources.items()
        if any(int(seconds) > int(limit) for seconds in re.findall(r"mark\.timeout\((\d+)", source))
    }
    marked = re.compile(r"mark\.(long|chaos|agents)\b|full_strength")
    assert {name for name in patient if not marked.search(sources[name])} == set()


def test_slowest_files_exist(pytestconfig: pytest.Config) -> None:
    slowest = pytestconfig.pluginmanager.get_plugin(str(ROOT / "conftest.py")).SLOWEST
    assert [name for name in slowest if not (ROOT / "tests" / name).exists()] == []
