"""A server that is killed between sending a message and recording it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_telegram import TOKEN, FakeTelegram
from kit_world import KitWorld
from waiting import until

from sayso.inbox.accounts import Account, link_account
from sayso.keys import new_key
from sayso.stores import open_store


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
