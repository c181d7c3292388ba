"""Several worker processes: each run that becomes due is taken by one of them, not by all."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from counting_workers import clerk
from postgres_server import shared_url
from waiting import until

import sayso
from sayso.stores import open_store

pytestmark = pytest.mark.long

RUNS, PROCESSES = 60, 3


def crew(url: str, size: int) -> list[subprocess.Popen[str]]:
    """Start workers; on PostgreSQL, each names its sessions."""
    command = [sys.executable, str(Path(__file__).with_name("counting_workers.py"))]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    urls = [f"{url}&application_name={name(url, n)}" for n in range(size)]
    if url.startswith("sqlite"):
        urls = [url] * size
    team = [subprocess.Popen([*command, each], **pipes) for each in urls]
    for process in team:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    return team


def name(url: str, n: int) -> str:
    return f"{url.rpartition('schema=')[2]}-{n}"


def sessions(url: str) -> int:
    """Return how many sessions the worker with the most of them has."""
    if url.startswith("sqlite"):
        return 0
    counted = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
    with psycopg.connect(shared_url()) as connection:
        counts = [connection.execute(counted, [name(url, n)]) for n in range(PROCESSES)]
        return max(count.fetchone()[0] for count in counts)  # type: ignore[index]


def dismissed(team: list[subprocess.Popen[str]]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for process in team:
        counts.update(json.loads(process.communicate(timeout=60)[0]))
    return counts


@pytest.mark.timeout(240)
@pytest.mark.parametrize("pace", [0.02, 0.0], ids=["one by one", "all at once"])
def test_workers_do_not_rush_for_the_same_run(each_url: str, pace: float) -> None:
    with closing(open_store(each_url)) as store:
        agent, inbox = clerk(store), sayso.Inbox(store)
        paused = [agent.run_sync("Refund it", thread=f"t-{n}") for n in range(RUNS)]
        team, most = crew(each_url, PROCESSES), 0
        try:
            for result in paused:
                (request,) = result.interruptions
                inbox.decide_sync(request.id, request.approve(), by="ana")
                time.sleep(pace)
                most = max(most, sessions(each_url))
            until(lambda: len(store.runs(status="done", limit=RUNS)) == RUNS, seconds=90)
        finally:
            counts = dismissed(team)
    assert counts["done"] == RUNS
    assert most <= 12  # ten in the pool, one that listens, one that renews leases
    assert counts["left"] + counts["in_vain"] <= 0.05 * RUNS
