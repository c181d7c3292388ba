"""A simulated disk: the library of ``disk_shim.c``, compiled when it is needed.

The programs that are started with ``environment`` have their files on it. It can be full or
read-only from one moment to the next, and it remembers what was written, and what was synced.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

#: Files that stand for the world outside: what is written there has happened, come what may.
OUTSIDE = ("effects", "acks", "begun")

_SOURCE = Path(__file__).with_name("disk_shim.c")
_COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")

needs_compiler = pytest.mark.skipif(
    sys.platform != "linux" or _COMPILER is None,
    reason="needs Linux and a C compiler (cc) for a disk that forgets, or is full",
)


class Shim:
    """The library and its settings. ``watched`` is the folder with the files on that disk."""

    def __init__(self, home: Path, watched: Path) -> None:
        self.watched = watched.resolve()
        self.log = home / "disk.log"
        self._state = home / "disk.state"
        self._library = home / "disk.so"
        self._state.write_text("-")
        self.log.touch()
        for path in (self.log, self._state):
            path.chmod(0o666)  # PostgreSQL runs as somebody else
        assert _COMPILER is not None
        command = [_COMPILER, "-shared", "-fPIC", "-O1", "-o", self._library, _SOURCE, "-ldl"]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr

    def environment(self, *, logs: bool = False) -> dict[str, str]:
        """Return the environment of a program whose files are on this disk."""
        return {
            "LD_PRELOAD": str(self._library),
            "SAYSO_DISK_FOLDER": str(self.watched),
            "SAYSO_DISK_STATE": str(self._state),
            "SAYSO_DISK_LOG": str(self.log) if logs else "",
            "SAYSO_DISK_OUTSIDE": f",{','.join(OUTSIDE)},",
        }

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """Fill the disk inside ``with``: no file can grow."""
        with self._being("F"):
            yield

    @contextlib.contextmanager
    def read_only(self) -> Iterator[None]:
        """Make the disk read-only inside ``with``."""
        with self._being("R"):
            yield

    @contextlib.contextmanager
    def _being(self, state: str) -> Iterator[None]:
        self._tell(state)
        try:
            yield
        finally:
            self._tell("-")

    def _tell(self, state: str) -> None:
        with self._state.open("r+") as file:  # in place: it is mapped into other processes
            file.write(state)
