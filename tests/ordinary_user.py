"""The rights of an ordinary user, for tests that root runs."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

_VERSION_3 = 0x20080522
_EFFECTIVE = 0
#: Root's right to write and enter whatever it likes.
_DAC_OVERRIDE = 1 << 1


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Take root's right to write any file away inside ``with``, from this OS thread and its own.

    Root remains the owner of its files and folders, and may enter those that are private to it,
    which another user could not: a clone and the folder for temporary files may be among them.
    """
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()
    assert libc.capget(header, sets) == 0, os.strerror(ctypes.get_errno())
    before = sets[_EFFECTIVE]
    sets[_EFFECTIVE] = before & ~_DAC_OVERRIDE
    assert libc.capset(header, sets) == 0, os.strerror(ctypes.get_errno())
    try:
        yield
    finally:
        sets[_EFFECTIVE] = before
        assert libc.capset(header, sets) == 0, os.strerror(ctypes.get_errno())
