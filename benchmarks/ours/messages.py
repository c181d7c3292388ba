"""Measure how long after a request was asked its message reaches the platform, and how many
messages reach it in a second.

python messages.py N PEOPLE [URL]   N requests to one person, then ten requests to many people

The platform is an HTTP server in this process, and another process sends (``messages_worker.py``).
"""

from __future__ import annotations

import contextlib
import json
import queue
import secrets
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from scene import OWN

import sayso
from sayso.inbox import add_person
from sayso.inbox.accounts import Account, link_account, new_code
from sayso.stores import open_store
from sayso.stores.base import Store
from sayso.types import Reviewer

#: When each message arrived.
arrivals: queue.SimpleQueue[float] = queue.SimpleQueue()
_MESSAGE = {"message_id": 1, "date": 1, "chat": {"id": 1, "type": "private"}, "text": "x"}
_BOT = {"id": 123, "is_bot": True, "first_name": "Sayso", "username": "sayso_bot"}


class Platform(BaseHTTPRequestHandler):
    """As much of Telegram's API as a bot needs that sends, changes and polls."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None: ...

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        method = self.path.rpartition("/")[2]
        result: object = _MESSAGE
        if method == "sendMessage":
            arrivals.put(time.time())
        elif method == "getUpdates":
            time.sleep(1)
            result = []
        elif method != "editMessageText":
            result = _BOT if method == "getMe" else True
        body = json.dumps({"ok": True, "result": result}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(BrokenPipeError):  # the sender has ended
            self.wfile.write(body)


def pay(euros: int) -> str:
    """Pay."""
    return f"{euros} euros paid"


def ask(gate: sayso.Gate, run: str) -> sayso.Request:
    try:
        with gate.run(run):
            gate.guard(pay)(250)
    except sayso.Paused as paused:
        return paused.requests[0]
    raise AssertionError("nobody was asked")


def add(store: Store, name: str, group: str) -> None:
    """Add a person with a linked account to a group."""
    add_person(store, name, by="bench", groups=(group,))
    code = new_code(store, Reviewer(name), "telegram")
    link_account(store, Account("telegram", "", str(secrets.randbits(50))), code)


def gate_of(store: Store, group: str) -> sayso.Gate:
    rule = sayso.Rule("*", risk="low", reviewers=f"group:{group}")
    return sayso.Gate(store, policy=sayso.Policy([rule]), agent="bench", wait=0)


def main(n: int, people: int, url: str | None = None) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Platform)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        url = url or f"sqlite:///{folder}/sayso.db"
        store = open_store(url)
        one = f"one-{OWN}"
        many = f"many-{OWN}"
        add(store, f"person-{OWN}", one)
        for number in range(people):
            add(store, f"person-{OWN}-{number}", many)
        worker = subprocess.Popen(
            [
                *(sys.executable, str(__file__).replace("messages.py", "messages_worker.py")),
                *(url, f"http://127.0.0.1:{server.server_port}"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert worker.stdout is not None
        assert worker.stdin is not None
        assert worker.stdout.readline() == "ready\n"
        inbox = sayso.Inbox(store)
        delays = []
        for number in range(n + 5):
            request = ask(gate_of(store, one), f"{one}-{number}")
            committed = time.time()
            delays.append((arrivals.get(timeout=30) - committed) * 1e3)
            inbox.decide_sync(request, request.reject(), by=f"person-{OWN}")
        began = time.time()
        for number in range(10):
            ask(gate_of(store, many), f"{many}-{number}")
        last = max(arrivals.get(timeout=60) for _ in range(10 * people))
        worker.stdin.close()
        assert worker.wait(60) == 0
        inbox.close()
        store.close()
    delays = sorted(delays[5:])
    figures = {
        "p50_ms": statistics.median(delays),
        "p99_ms": delays[min(len(delays) - 1, int(len(delays) * 0.99))],
        "per_second": 10 * people / (last - began),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
