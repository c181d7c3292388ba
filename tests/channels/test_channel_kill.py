"""Servers that are killed between a call of a platform and its record."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_telegram import TOKEN, FakeTelegram
from kit_world import KitWorld
from waiting import until

import sayso
from sayso.audit import verify
from sayso.inbox.accounts import Account, link_account
from sayso.keys import new_key
from sayso.stores import open_store
from sayso.types import SECOND


@pytest.fixture
def fake() -> Iterator[FakeTelegram]:
    made = FakeTelegram()
    yield made
    made.close()


def _serve(url: str, fake: FakeTelegram, log: Path) -> subprocess.Popen[bytes]:
    env = {**os.environ, "SAYSO_TELEGRAM_TOKEN": TOKEN, "SAYSO_TELEGRAM_API": fake.url}
    command = [sys.executable, "-m", "sayso.cli.main", "serve", "--port", "0", "--store", url]
    with log.open("ab") as out:
        return subprocess.Popen(command, env=env, stdout=out, stderr=out)


@pytest.mark.long
def test_killed_sender_repeats_one_message(
    tmp_path: Path, fake: FakeTelegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAYSO_KEY", new_key())
    url = f"sqlite:///{tmp_path / 'sayso.db'}"
    world = KitWorld(open_store(url))
    world.people("ana")
    link_account(world.store, Account("telegram", "", "77"), world.code("ana", "telegram"))
    sent = threading.Event()

    def hold(method: str, fields: dict[str, Any]) -> Any:
        if method == "sendMessage" and not sent.is_set():
            fake._sendmessage(fields)  # it reached the phone, and the answer never comes
            sent.set()
            threading.Event().wait(15)
            return 500, {"ok": False, "error_code": 500, "description": "nobody listens"}
        return None

    fake.refuse = hold
    server = _serve(url, fake, tmp_path / "log")
    try:
        until(lambda: world.store.cursor("channel:telegram"))
        request_id = world.ask_sync()
        assert sent.wait(60)
        server.send_signal(signal.SIGKILL)
        server.wait(30)
        server = _serve(url, fake, tmp_path / "log")
        until(lambda: len(fake.shown(77)) == 2)  # after the lease
        until(lambda: any(state == "sent" for _, state in world.store.count_deliveries()))
        fake.press(77, "Approve")
        until(lambda: "Approved by ana" in fake.shown(77)[-1]["text"])
        assert len(fake.shown(77)) == 2
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)
    assert asyncio.run(world.status(request_id)) == "approved"
    world.store.close()


class _Phones:
    """A fake of Telegram, and a server that is killed while it talks to it."""

    def __init__(self, url: str, fake: FakeTelegram, folder: Path) -> None:
        self.fake = fake
        self.clock = folder / "clock"
        self.clock.write_text(str(1_800_000_000_000_000))
        self._command = [
            *(sys.executable, str(Path(__file__).with_name("clocked_server.py"))),
            *(url, fake.url, str(self.clock)),
        ]
        self.world = KitWorld(open_store(url, clock=lambda: int(self.clock.read_text())))
        self.start()

    def start(self) -> None:
        self.server = subprocess.Popen(self._command, stdout=subprocess.PIPE)
        assert self.server.stdout is not None
        assert self.server.stdout.readline() == b"ready\n"

    def advance(self, seconds: int) -> None:
        later = self.clock.with_suffix(".new")
        later.write_text(str(int(self.clock.read_text()) + seconds * SECOND))
        later.replace(self.clock)

    def stop(self) -> None:
        self.server.kill()
        with self.server:
            self.server.wait(30)

    def kill_during(self, method: str, words: str, act: Callable[[], object]) -> None:
        """Kill the server when the platform has taken this call, and start it again.

        Return when the new server has nothing left to do.
        """
        arrived = threading.Event()
        dead = threading.Event()

        def hold(called: str, fields: dict[str, Any]) -> Any:
            if arrived.is_set() or called != method or words not in fields["text"]:
                return None
            getattr(self.fake, f"_{method.lower()}")(fields)
            arrived.set()
            dead.wait(60)
            return 500, {"ok": False, "error_code": 500, "description": "nobody listens"}

        self.fake.refuse = hold
        act()
        assert arrived.wait(60)
        self.stop()
        dead.set()
        self.advance(31)  # the leases of the dead process end
        self.start()
        until(self.is_settled, otherwise=self.world.store.count_deliveries)

    def is_settled(self) -> bool:
        states = {state for _, state in self.world.store.count_deliveries()}
        return not states & {"due", "updating"}

    def count(self, kind: str) -> int:
        events = self.world.store.events("", 1000)
        return [event.type for _, event in events].count(kind)


@pytest.mark.long
def test_killed_server_reminds_escalates_and_decides_once(
    tmp_path: Path, each_url: str, fake: FakeTelegram
) -> None:
    phones = _Phones(each_url, fake, tmp_path)
    world = phones.world
    world.people("ana", "ben")
    for name, user in (("ana", "77"), ("ben", "78")):
        link_account(world.store, Account("telegram", "", user), world.code(name, "telegram"))
    world.rule = sayso.Rule(
        "*",
        risk="low",
        reviewers="ana",
        notify=["telegram"],
        remind_after=600,
        escalate_after=3600,
        escalate_to=("ben",),
    )
    try:
        requests: list[str] = []
        phones.kill_during("sendMessage", "asks", lambda: requests.append(world.ask_sync()))
        assert len(fake.shown(77)) == 2  # the same message once more

        phones.kill_during("sendMessage", "asks", lambda: phones.advance(600))
        assert len(fake.shown(77)) == 4
        assert phones.count("reminded") == 1

        phones.kill_during("sendMessage", "asks", lambda: phones.advance(3600))
        assert (len(fake.shown(77)), len(fake.shown(78))) == (4, 2)
        assert phones.count("escalated") == 1

        # The copy that no server has recorded decides nothing.
        first = min(number for chat, number in fake.messages if chat == 78)
        fake.press(78, "Approve", number=first)
        until(lambda: "copy of a message" in str(fake.alerts))
        assert phones.count("decided") == 0

        phones.kill_during("editMessageText", "Approved by ben", lambda: fake.press(78, "Approve"))
        rows = world.store.deliveries_of(requests[0])
        for row in rows:
            message = fake.messages[int(row.target), json.loads(row.message)[0]]
            assert "Approved by ben" in message["text"]
        assert sorted(row.step.partition("-")[0] for row in rows) == [
            *("asked", "escalated", "reminder")
        ]
        assert (len(fake.shown(77)), len(fake.shown(78))) == (4, 2)
        assert phones.count("decided") == 1
        assert verify(world.store).ok
    finally:
        phones.stop()
        world.store.close()
