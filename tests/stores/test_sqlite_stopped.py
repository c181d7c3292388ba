"""A process that is stopped inside a commit: who writes waits for it, who reads does not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from assent.engine.commands import Note
from assent.keys import Keyring, new_key
from assent.stores.sqlite import SqliteStore

STOPS = """
import os, signal, sys
from assent.engine.commands import Note
from assent.stores.sqlite import SqliteStore

def stop(name, when):
    if when == "before":
        print("stops", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)

store = SqliteStore(sys.argv[1], boundary=stop)
store.transact(Note(thread="theirs", type="noted", actor="them", body={}))
store.boundary = None
store.close()
"""


def test_a_process_stopped_in_a_commit_holds_up_writers_only(tmp_path: Path) -> None:
    path, key = tmp_path / "store.db", new_key()
    store = SqliteStore(path, keys=Keyring.parse(key))
    store.transact(Note(thread="ours", type="noted", actor="us", body={}))
    child = subprocess.Popen(
        [sys.executable, "-c", STOPS, str(path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "ASSENT_KEY": key},
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"stops\n"
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
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
    finally:
        child.kill()
        child.communicate()
        store.close()
