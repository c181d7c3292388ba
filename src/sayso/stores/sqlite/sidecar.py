"""The small files beside a SQLite store: a lock between processes, a mark of how far it came."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import finalize

from sayso.errors import StoreError
from sayso.stores.sqlite.opening import check_ours, identity_of

try:
    import fcntl
except ImportError:  # Windows: SQLite's own locks have to do
    fcntl = None  # type: ignore[assignment]

#: File systems on which neither flock nor WAL can be trusted.
_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afpfs", "fuse.sshfs", "ceph", "glusterfs"}
)

#: How long others are waited for by who only wants to leave.
PATIENCE = 2.0
_MOMENT = 0.005

#: The mark of a store that was restored: no number of events reaches it.
_RESTORED = 10**19


class Sidecar:
    """The lock file and the mark file of one store."""

    def __init__(self, path: Path) -> None:
        kind = _file_system(path)
        if kind in _NETWORK:
            raise StoreError(
                f"{path} is on a network file system ({kind}), where SQLite can lose data: put "
                "it on a local disk"
            )
        self._lock, self._mark = f"{path}.lock", f"{path}.mark"
        if not os.path.exists(self._mark):  # nobody of ours has opened it here
            try:
                check_ours(path)
            except StoreError:
                if not os.path.exists(self._mark):  # else another process is making it right now
                    raise
        self._lock_fd = self._open(self._lock)
        self._mark_fd = self._open(self._mark)
        #: Which files the descriptors are; that of an open file never changes.
        self._files = {fd: identity_of(os.fstat(fd)) for fd in (self._lock_fd, self._mark_fd)}
        # Also when nobody has it any more: a store that was not closed must not use files up.
        self._closing = finalize(self, _close, self._lock_fd, self._mark_fd)
        self._closing.atexit = False  # what still writes then needs its lock
        self._incarnation = ""
        self.behind = False

    def _open(self, path: str) -> int:
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(f"cannot open {path}: {error.strerror}") from error

    def _opened_again(self, path: str, descriptor: int) -> bool:
        """Open a file anew that was deleted or replaced, under its old descriptor."""
        try:
            found = os.stat(path)
            if (found.st_dev, found.st_ino) == self._files[descriptor]:
                return False
        except FileNotFoundError:
            pass
        new = self._open(path)
        os.dup2(new, descriptor, inheritable=False)
        os.close(new)
        self._files[descriptor] = identity_of(os.fstat(descriptor))
        return True

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep the writers of other processes out for a moment."""
        if fcntl is None:
            yield
            return
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX)
            while self._opened_again(self._lock, self._lock_fd):
                fcntl.flock(self._lock_fd, fcntl.LOCK_EX)
            yield
        finally:
            if not self.closed:  # in a forked child, it would be unlocked for the parent, too
                fcntl.flock(self._lock_fd, fcntl.LOCK_UN)

    def free(self) -> bool:
        """Whether no process writes at this moment."""
        if fcntl is None:
            return True
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            while self._opened_again(self._lock, self._lock_fd):
                fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        fcntl.flock(self._lock_fd, fcntl.LOCK_UN)
        return True

    def lets_in(self, own: threading.Lock, seconds: float) -> bool:
        """Whether we come to write within this time, with ``own`` to keep our threads apart."""
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0 and own.acquire(timeout=left):
            try:
                if self.free():
                    return True
            finally:
                own.release()
            time.sleep(_MOMENT)
        return False

    def adopt(self, incarnation: str, pos: int) -> None:
        """Compare the store with its mark; a store without one gets it now."""
        self._incarnation = incarnation
        marked = self._read()
        self.behind = marked is not None and marked[0] == incarnation and pos < marked[1]
        if self.behind:
            # It stays behind, however many events are added, until it was recovered.
            self.fall_behind()
        elif marked is None or marked[0] != incarnation:
            self.mark(pos)

    def still_behind(self) -> bool:
        """Look again, because another process may have recovered the store meanwhile."""
        if self.behind:
            marked = self._read()
            self.behind = marked is None or marked[1] == _RESTORED
        return self.behind

    def _read(self) -> tuple[str, int] | None:
        try:
            incarnation, pos = json.loads(os.pread(self._mark_fd, 200, 0))
            return str(incarnation), int(pos)
        except (ValueError, TypeError):
            return None

    def mark(self, pos: int) -> None:
        """Remember how far the events have come; not synced, because a lost mark only says less."""
        if not self.behind:
            with suppress(OSError, StoreError):  # the commit is done, whatever becomes of the mark
                self._write(pos)

    def fall_behind(self) -> None:
        """An older copy was put back while the store was open: nothing starts until a recovery."""
        self.behind = True
        self._write(_RESTORED)

    def _write(self, pos: int) -> None:
        self._opened_again(self._mark, self._mark_fd)
        os.pwrite(self._mark_fd, f'["{self._incarnation}", "{pos:020d}"]'.encode(), 0)

    def reset(self, pos: int) -> None:
        """The store was recovered: from now on this is how far it came."""
        self.behind = False
        self._write(pos)

    @property
    def closed(self) -> bool:
        """Whether both files are closed."""
        return not self._closing.alive

    def close(self) -> None:
        """Close both files. Idempotent."""
        self._closing()


def _close(*files: int) -> None:
    for file in files:
        os.close(file)


def _file_system(path: Path) -> str:
    """The type of the file system that holds the path, where the system says."""
    try:
        mounts = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return ""
    path = Path(os.path.realpath(path))
    best, kind = "", ""
    for line in mounts:
        fields = line.split()
        point = fields[1].replace("\\040", " ")
        inside = str(path) == point or str(path).startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind
