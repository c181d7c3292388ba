"""Two processes with the same channel: each message reaches a person once, from one of them."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path

import httpx
import pytest
from fake_telegram import TOKEN, FakeTelegram
from kit_world import KitWorld
from sayso_process import Process, start
from waiting import at_once, until

import sayso
from sayso.audit import verify
from sayso.inbox.accounts import Account, link_account
from sayso.stores import open_store
from sayso.stores.base import Store

pytestmark = pytest.mark.long

AGENT = """
import sayso
from sayso.testing import ScriptedModel

agent = sayso.Agent("clerk", model=ScriptedModel([]))
"""


def test_two_processes_send_each_message_once(
    tmp_path: Path, sqlite_url: str, postgres_url: str
) -> None:
    (tmp_path / "agents.py").write_text(AGENT)
    # Both at once, because they wait for the lease of a process that died.
    at_once(*[partial(_kill_leader, tmp_path, url) for url in (sqlite_url, postgres_url)])


def _kill_leader(folder: Path, url: str) -> None:
    """Let two processes send, kill the one that leads, and let the other one go on."""
    fake = FakeTelegram()
    env = {**os.environ, "SAYSO_TELEGRAM_TOKEN": TOKEN, "SAYSO_TELEGRAM_API": fake.url}
    env["SAYSO_STORE"] = url
    steps = Counter(
        {
            ("ana", "asked"): 4,
            ("ana", "reminder"): 8,  # once, and once more after the escalation
            ("ben", "escalated"): 4,
            ("ben", "reminder"): 4,
        }
    )
    # Until the lease of the process that died ends, all steps come due, and become one message.
    late_steps = Counter({("ana", "escalated"): 4, ("ben", "escalated"): 4})
    processes: list[Process] = []

    def run(*command: str) -> Process:
        process = start(*command, cwd=folder, env=env)
        processes.append(process)
        return process

    with closing(fake), closing(open_store(url)) as store:
        world = KitWorld(store)
        world.people("ana", "ben")
        for name, user in (("ana", "77"), ("ben", "78")):
            link_account(store, Account("telegram", "", user), world.code(name, "telegram"))
        world.rule = sayso.Rule(
            "*",
            risk="low",
            reviewers="ana",
            notify=["telegram"],
            remind_after=1,
            escalate_after=3,
            escalate_to=("ben",),
        )
        try:
            leader = run("worker", "agents:agent", "--metrics", "0")
            until(lambda: any(method == "deleteWebhook" for method, _ in fake.calls))
            run("worker", "agents:agent")
            run("serve", "--port", "0", "--workers", "0")
            first = [world.ask_sync(f"first-{number}") for number in range(4)]
            until(lambda: _sent(store, first) == steps)
            assert leader.stdout is not None
            (metrics,) = re.findall(r"http://\S+/metrics", leader.stdout.readline())
            page = httpx.get(metrics).text
            assert 'sayso_channel_messages_total{channel="telegram",outcome="sent"} 20.0' in page
            assert 'sayso_channel_delay_seconds_count{channel="telegram"} 20.0' in page
            leader.kill()
            second = [world.ask_sync(f"second-{number}") for number in range(4)]
            until(
                lambda: _sent(store, second) == late_steps, otherwise=lambda: _sent(store, second)
            )
            fake.press(78, "Approve")
            until(lambda: "Approved by ben" in str(fake.shown(78)))
        finally:
            for process in processes[1:]:
                process.send_signal(signal.SIGTERM)
            for process in processes:
                process.communicate(60)
        codes = [process.returncode for process in processes]
        assert codes == [-signal.SIGKILL, 0, 0]
        assert [len(fake.shown(user)) for user in (77, 78)] == [16, 12]
        kinds = Counter(event.type for _, event in store.events("", 1000))
        assert (kinds["asked"], kinds["escalated"], kinds["decided"]) == (8, 8, 1)
        assert verify(store).ok


def _sent(store: Store, requests: list[str]) -> Counter[tuple[str, str]]:
    """Count the messages that were sent about these requests, by person and kind of step."""
    rows = [row for request in requests for row in store.deliveries_of(request)]
    return Counter((row.person, row.step.partition("-")[0]) for row in rows if row.message)
