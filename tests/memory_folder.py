"""A folder in memory, for tests that would mostly wait for the disk."""

from __future__ import annotations

import os

_MEMORY = "/dev/shm"
_ENOUGH = 4 << 30


def memory_folder() -> str | None:
    """Return a folder in memory with room for a whole test run; None if there is none.

    Containers often have one that is too small, or from which no program may be started: tests
    write programs and libraries, and start them.
    """
    if not os.access(_MEMORY, os.W_OK):
        return None
    system = os.statvfs(_MEMORY)
    if system.f_bavail * system.f_frsize < _ENOUGH or system.f_flag & os.ST_NOEXEC:
        return None
    return _MEMORY
