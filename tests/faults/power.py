"""What a power cut leaves on a disk: the log of ``disk_shim.c``, replayed up to a moment.

A write is on the disk once a sync of its file that began after it has ended, and a name once its
folder was synced. All else may be there or not: of what was never synced, a cut keeps nothing, or
some of it, by halves of pages, in any order. What the world outside has seen is not forgotten.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from shim import OUTSIDE

_HEAD = struct.Struct("<BIQQII")
_SECTOR = 512


@dataclass(frozen=True, slots=True)
class Op:
    """One line of the log."""

    type: str
    thread: int
    inode: int
    offset: int
    path: str
    data: bytes


def read_log(log: Path) -> list[Op]:
    """Return every operation on the disk, in order."""
    return list(_ops(log.read_bytes()))


def _ops(text: bytes) -> Iterator[Op]:
    at = 0
    while at < len(text):
        type, thread, inode, offset, path, data = _HEAD.unpack_from(text, at)
        at += _HEAD.size
        name, body = text[at : at + path], text[at + path : at + path + data]
        at += path + data
        yield Op(chr(type), thread, inode, offset, name.decode(), body)


@dataclass
class Contents:
    """One file: what is certainly on the disk, and the operations since."""

    synced: bytearray = field(default_factory=bytearray)
    done: int = 0
    since: list[Op] = field(default_factory=list)
    #: All that was ever written, one after the other: of a file outside, its lines.
    said: list[bytes] = field(default_factory=list)

    def do(self, op: Op) -> None:
        """Apply an operation."""
        self.since.append(op)
        self.said.append(op.data)

    def sync(self, upto: int) -> None:
        """Apply a sync: operations before it began are on the disk."""
        count = max(upto - self.done, 0)
        for op in self.since[:count]:
            _put(self.synced, op)
        del self.since[:count]
        self.done += count

    def left(self, dice: random.Random | None) -> bytes:
        """Return what is left after a cut. With ``dice``, some unsynced writes survive."""
        found = bytearray(self.synced)
        for op in self.since if dice is not None else ():
            for part in _torn(op):
                if dice.random() < 0.5:
                    _put(found, part)
        return bytes(found)


def _put(found: bytearray, op: Op) -> None:
    if op.type == "T":
        found.extend(bytes(max(op.offset - len(found), 0)))
        del found[op.offset :]
        return
    found.extend(bytes(max(op.offset - len(found), 0)))
    found[op.offset : op.offset + len(op.data)] = op.data


def _torn(op: Op) -> Iterator[Op]:
    """Split a write into sectors, as a disk does."""
    if op.type == "T":
        yield op
        return
    end, at = op.offset + len(op.data), op.offset
    while at < end:
        upto = min(at - at % _SECTOR + _SECTOR, end)
        data = op.data[at - op.offset : upto - op.offset]
        yield Op("W", op.thread, op.inode, at, "", data)
        at = upto


class Disk:
    """The disk at some moment of the log; ``root`` is the folder whose files it has."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._by_inode: dict[int, Contents] = {}
        self._names: dict[str, Contents] = {}
        self._synced_names: dict[str, Contents] = {}
        self._begun: dict[tuple[int, int], tuple[Contents | None, int, dict[str, Contents]]] = {}

    def load_files(self) -> None:
        """Start with the current files, all synced."""
        for path in self._root.rglob("*"):
            if path.is_file() and not path.is_symlink():
                found = Contents(synced=bytearray(path.read_bytes()))
                self._by_inode[path.stat().st_ino] = found
                self._names[str(path)] = self._synced_names[str(path)] = found

    def play(self, op: Op) -> None:
        """Apply one line of the log."""
        if op.type in "CUNL":
            self._name(op)
        elif op.type in "BSD":
            self._sync(op)
        elif op.inode in self._by_inode:
            self._by_inode[op.inode].do(op)

    def _name(self, op: Op) -> None:
        """Create, remove, rename or link a file."""
        found = Contents() if op.type == "C" else self._names.get(op.path)
        if op.type in "UN":
            self._names.pop(op.path, None)
        if op.type == "C" and found is not None:
            self._by_inode[op.inode] = found
        if op.type != "U" and found is not None:
            self._names[op.data.decode() or op.path] = found

    def _sync(self, op: Op) -> None:
        file = self._by_inode.get(op.inode)
        if op.type == "B":
            upto = 0 if file is None else file.done + len(file.since)
            self._begun[op.thread, op.inode] = (file, upto, dict(self._names))
            return
        begun, upto, names = self._begun.pop((op.thread, op.inode))
        if op.type == "D":
            for path in {*self._synced_names, *names}:
                if os.path.dirname(path) == op.path:
                    _rename(self._synced_names, path, names)
        elif begun is not None:
            begun.sync(upto)

    def cut(self, to: Path, dice: random.Random | None) -> None:
        """Write what is left after a power cut into a folder."""
        to.mkdir(exist_ok=True)
        names = dict(self._synced_names)
        for path in {*self._names, *names} if dice is not None else ():
            if dice.random() < 0.5:  # the change of this name happens to be there already
                _rename(names, path, self._names)
        for path, contents in self._names.items():
            if Path(path).name in OUTSIDE:
                (to / Path(path).relative_to(self._root)).write_bytes(b"".join(contents.said))
        for path, contents in names.items():
            if Path(path).name not in OUTSIDE and not path.endswith("-shm"):  # only memory
                place = to / Path(path).relative_to(self._root)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(contents.left(dice))
                place.chmod(0o600)


def _rename(names: dict[str, Contents], path: str, after: dict[str, Contents]) -> None:
    """Change the names of files as the log says."""
    names.pop(path, None)
    if path in after:
        names[path] = after[path]
