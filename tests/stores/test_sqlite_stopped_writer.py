"""A process stopped inside a commit blocks writers, and no readers."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

from stopped_writer import stopped_writer

from sayso.engine.commands import Note
from sayso.keys import Keyring, new_key
from sayso.stores.sqlite import SqliteStore


def test_stopped_process_blocks_only_writers(tmp_path: Path) -> None:
    path, key = tmp_path / "store.db", new_key()
    store = SqliteStore(path, keys=Keyring.parse(key))
    store.transact(Note(thread="ours", type="noted", actor="us", body={}))
    with stopped_writer(path, key) as child:
        writing = threading.Thread(
            target=store.transact, args=(Note(thread="ours", type="noted", actor="us", body={}),)
        )
        writing.start()
        writing.join(1)
        assert writing.is_alive()  # it waits: what the other one holds is the file
        assert [event.thread for _, event in store.events()] == ["ours"]
        child.send_signal(signal.SIGCONT)
        writing.join(60)
        assert not writing.is_alive()
        assert child.wait(60) == 0
        written = sorted(event.thread for _, event in store.events())
        assert written == ["ours", "ours", "theirs"]
    store.close()
