"""A real store, filled through Gate and Inbox, and direct writes to its database."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sayso import Gate, Inbox, Paused, Request
from sayso.audit import Report, verify
from sayso.engine.row_macs import row_mac
from sayso.engine.unit_of_work import link_bytes
from sayso.keys import Keyring, new_key
from sayso.rows import Event, Thread
from sayso.stores.sqlite import SqliteStore
from sayso.testing import FakeClock

KEY, OTHER_KEY = new_key(), new_key()
SERVER_KEY = new_key("ed25519")

#: What one order leaves in its thread's chain.
ORDER = ["asked", "decided", "started", "recorded", "finished"]


class World:
    """One store with a gate and an inbox; ``sql`` writes to the file without the key."""

    def __init__(self, folder: Path, keys: str = KEY, **options: Any) -> None:
        self.path = folder / "sayso.db"
        self.clock = FakeClock()
        self.open(keys, **options)

    def open(self, keys: str = KEY, **options: Any) -> None:
        self.use(SqliteStore(self.path, keys=Keyring.parse(keys), clock=self.clock, **options))

    def use(self, store: Any) -> None:
        self.store = store
        self.gate = Gate(store, wait=0)
        self.inbox = Inbox(store)
        self.send = self.gate.guard(needs_approval=True)(send)

    def close(self) -> None:
        self.gate.close()

    def sql(self, statement: str, *values: Any) -> list[Any]:
        with contextlib.closing(sqlite3.connect(self.path, timeout=10)) as db, db:
            return db.execute(statement, values).fetchall()

    def verify(self) -> Report:
        return verify(self.store)

    # -- stories

    def ask(self, run: str, call: Callable[[], Any] | None = None) -> Request:
        """Make the call until it pauses."""
        try:
            with self.gate.run(run):
                (call or (lambda: self.send("ana@example.com")))()
        except Paused as paused:
            return paused.requests[0]
        raise AssertionError("nobody was asked")

    def approve(self, request: Request, by: str = "ana", **options: Any) -> None:
        self.inbox.decide_sync(request.id, request.approve(), by=by, **options)

    def order(self, run: str) -> str:
        """Ask, approve and run. Return the id of the call."""
        request = self.ask(run)
        self.approve(request)
        with self.gate.run(run):
            assert self.send("ana@example.com") == "sent to ana@example.com"
        assert [event.type for event in self.store.chain(run)] == ORDER
        return request.id

    # -- forgery

    def events(self, thread: str) -> list[Event]:
        return self.store.chain(thread)

    def thread(self, name: str) -> Thread:
        with self.store.snapshot() as rows:
            return rows.thread(name)

    def write_event(self, event: Event) -> None:
        """Replace the row that has this thread and seq."""
        self.sql("DELETE FROM event WHERE thread = ? AND seq = ?", event.thread, event.seq)
        columns = "pos, thread, seq, at, type, run, call, actor, body, digest, hash"
        values = [getattr(event, name) for name in columns.split(", ")]
        self.sql(f"INSERT INTO event ({columns}) VALUES ({', '.join('?' * 11)})", *values)

    def rewrite(
        self,
        thread: str,
        link: Callable[[bytes], str],
        change: Callable[[Event], Event] = lambda event: event,
        extra: tuple[Event, ...] = (),
    ) -> None:
        """Compute a chain anew, with other hashes, and the thread's row to go with it.

        Its MAC is made with the row key, as a worker could: what is left then are links and seals.
        """
        head, events = "", [change(event) for event in self.events(thread)]
        pos = int(self.store.tail())
        added = [event._replace(pos=pos + n) for n, event in enumerate(extra, 1)]
        for seq, event in enumerate([*events, *added], 1):
            if event.body is not None:
                event = event._replace(digest=hashlib.sha256(event.body.encode()).hexdigest())
            event = event._replace(thread=thread, seq=seq)
            head = link(link_bytes(head, event))
            self.write_event(event._replace(hash=head))
        row = self.thread(thread)._replace(seq=seq, head=head)
        mac = row_mac(row, self.store.keys.row_key.mac)
        self.sql(
            "UPDATE thread SET seq = ?, head = ?, mac = ? WHERE id = ?", seq, head, mac, thread
        )


def send(to: str, subject: str = "hello") -> str:
    """Send a message."""
    return f"sent to {to}"


def plain(data: bytes) -> str:
    """Return a link made without a key."""
    return "sha256." + hashlib.sha256(b"sayso/v1/link\0" + data).hexdigest()


def keyed(data: bytes) -> str:
    """Return a link made with another key, under that key's own id."""
    return Keyring.parse(OTHER_KEY).link(data)


def posing(data: bytes) -> str:
    """Return a link made with another key, under the id of the right one."""
    name = Keyring.parse(KEY).primary_id
    return f"{name}.{hmac.digest(b'guess', data, 'sha256').hex()}"


def edited(event: Event, **changes: Any) -> Event:
    """Return the event with another body."""
    body = {**json.loads(event.body or "{}"), **changes}
    return event._replace(body=json.dumps(body, sort_keys=True))


def places(report: Report) -> list[tuple[str, int]]:
    """Return the positions of the problems."""
    return [(problem.thread, problem.seq) for problem in report.problems]


@contextlib.contextmanager
def opened(world: World) -> Iterator[World]:
    try:
        yield world
    finally:
        world.close()
