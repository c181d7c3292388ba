"""Load: agents ask, readers watch and people decide, all at once, over HTTP on a real server."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any

from load_wire import Wire
from places import address_of, open_at

from sayso.inbox import create_token
from sayso.server.service import Limits
from sayso.stores.base import Store
from sayso_testing.checks import all_events

_READERS = Path(__file__).with_name("load_readers.py")
_PATIENCE = 3600.0
_MANY = 5
#: People come one by one, within so many of their looks.
_ARRIVING = 5
_FILES = 8192
_WRONGS = (
    "lost_requests",
    "lost_decisions",
    "double",
    "readers_cut_off",
    "events_unseen",
    "events_seen_twice",
)


@dataclass
class Load:
    """The size of the load, and its results."""

    agents: int
    people: int
    readers: int
    requests: int
    #: In how many seconds the agents mean to ask all of it.
    seconds: float
    #: How long a person looks before each decision, as long as agents still ask; then they hurry.
    pace: float = 0.0
    opened: list[str] = field(default_factory=list)
    decided: list[str] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    pages: list[float] = field(default_factory=list)
    asked_in: float = 0.0
    decided_meanwhile: int = 0
    decided_in: float = 0.0
    began: float = 0.0


def run_load(folder: Path, load: Load) -> dict[str, Any]:
    """Run the load. Return counts from the server's answers, its store and the readers."""
    store = open_at(folder)
    tokens = {
        role: [create_token(store, f"{role} {n}", by="test", role=role)[0] for n in range(count)]
        for role, count in (("agent", load.agents), ("reviewer", load.people))
    }
    watchers = [
        create_token(store, f"watcher {n}", by="test", role="reviewer")[0]
        for n in range(-(-load.readers // Limits().streams))
    ]
    with _server(folder) as (port, pid), _readers(port, load.readers, watchers) as readers:
        before = len(all_events(store, page=2000))
        asyncio.run(_all(port, load, tokens))
        after = len(all_events(store, page=2000))
        seen = _told(readers, after - before)
        server_cpu, readers_cpu = _cpu(pid), _cpu(readers.pid)
    counts = _counted(store, load)
    store.close()
    return counts | {
        "events": after - before,
        "readers": load.readers,
        "readers_cut_off": seen["cut_off"],
        "events_unseen": after - before - seen["fewest"],
        "events_seen_twice": seen["most"] - (after - before),
        "server_cpu_s": server_cpu,
        "readers_cpu_s": readers_cpu,
        "decided_meanwhile": load.decided_meanwhile,
        "asked_in_s": round(load.asked_in, 1),
        "decided_in_s": round(load.decided_in, 1),
        "pages": len(load.pages),
        "page_p50_ms": round(quantiles(load.pages, n=100)[49] * 1000, 1),
        "page_p95_ms": round(quantiles(load.pages, n=100)[94] * 1000, 1),
    }


def check_load(load: Load, counts: dict[str, Any]) -> None:
    """Check that everything was asked, decided, stored, and sent to every reader."""
    assert counts["requests"] == counts["decisions"] == load.requests
    assert {name: counts[name] for name in _WRONGS if counts[name]} == {}


# -- the processes


@contextmanager
def _server(folder: Path) -> Iterator[tuple[int, int]]:
    """``sayso serve``: its port, and its process."""
    environment = {**os.environ, **address_of(folder)}
    command = [sys.executable, "-m", "sayso", "serve", "--port", "0", "--workers", "0"]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        found = re.search(r"http://[\d.]+:(\d+)", line)
        assert found, (line, (folder / "server.log").read_text()[-2000:])
        yield int(found[1]), server.pid
        assert server.poll() is None, (folder / "server.log").read_text()[-2000:]
    finally:
        server.terminate()
        server.communicate(timeout=60)


@contextmanager
def _readers(port: int, count: int, tokens: list[str]) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(_READERS), str(port), str(count), *tokens]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def _cpu(pid: int) -> float:
    """Return the CPU seconds of a process. On a busy machine, elapsed time means little."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return round((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), 1)


def _told(readers: subprocess.Popen[str], events: int) -> dict[str, int]:
    assert readers.stdin is not None
    assert readers.stdout is not None
    readers.stdin.write(f"{events}\n")
    readers.stdin.flush()
    seen: dict[str, int] = json.loads(readers.stdout.readline())
    return seen


# -- agents and people


async def _all(port: int, load: Load, tokens: dict[str, list[str]]) -> None:
    load.began = time.monotonic()
    agents = [_agent(port, load, n, token) for n, token in enumerate(tokens["agent"])]
    people = [_person(port, load, n, tokens["reviewer"][n]) for n in range(load.people)]

    async def asking() -> None:
        await asyncio.gather(*agents)
        load.asked_in = time.monotonic() - load.began
        load.decided_meanwhile = len(load.decided)

    await asyncio.gather(asking(), *people)
    load.decided_in = time.monotonic() - load.began


async def _agent(port: int, load: Load, number: int, token: str) -> None:
    """Ask at an even pace. An agent that is late asks as soon as it is answered."""
    wire = Wire(port, token)
    mine = range(number, load.requests, load.agents)
    for nth in mine:
        await asyncio.sleep(load.began + nth * load.seconds / load.requests - time.monotonic())
        body = {"tool": "refund", "args": {"order": f"A-{nth}", "amount": nth % 90}}
        while True:
            status, told = await wire.ask("POST", "/api/requests", body, idempotency_key=f"{nth}")
            if status != 429:
                break
            load.refused["too often"] += 1
            await asyncio.sleep(0.2)
        assert status == 201, (status, told)
        load.opened.append(told["id"])
    await wire.close()


async def _person(port: int, load: Load, number: int, token: str) -> None:
    """Open the inbox repeatedly, and decide the requests of some agents."""
    wire, dice = Wire(port, token), random.Random(number)
    agents = [f"agent {n}" for n in range(number, load.agents, load.people)]
    end = time.monotonic() + _PATIENCE
    await asyncio.sleep(load.pace * _ARRIVING * dice.random())
    while len(load.decided) < load.requests:
        assert time.monotonic() < end, f"{len(load.decided)} of {load.requests} were decided"
        status, page = await wire.ask("GET", "/api/requests")
        assert status == 200, page
        if not load.asked_in:
            load.pages.append(wire.seconds)
        path = f"/api/requests?limit={_MANY}&agent={dice.choice(agents)}".replace(" ", "%20")
        _, page = await wire.ask("GET", path)
        for item in page["items"]:
            if load.pace and not load.asked_in:
                await asyncio.sleep(load.pace * 2 * dice.random())
            await _decide(wire, load, item, dice)
        if not page["items"]:
            await asyncio.sleep(0.05)
    await wire.close()


async def _decide(wire: Wire, load: Load, item: dict[str, Any], dice: random.Random) -> None:
    type = dice.choice(["approve", "reject"])
    body = {"type": type, "seen_digest": item["digest"]}
    status, told = await wire.ask("POST", f"/api/requests/{item['id']}/decision", body)
    if status == 429:
        load.refused["too often"] += 1
        await asyncio.sleep(0.2)
        return
    assert status == 200, (status, told)
    load.decided.append(item["id"])


# -- what is left of it


def _counted(store: Store, load: Load) -> dict[str, Any]:
    asked, decided = set(), Counter[str]()
    for _, event in all_events(store, page=2000):
        if event.type == "asked":
            asked.add(event.call)
        elif event.type == "decided":
            decided[event.call] += 1
    twice = decided.total() - len(decided) + len(load.opened) - len(set(load.opened))
    return {
        "requests": len(load.opened),
        "decisions": len(load.decided),
        "refused": load.refused.total(),
        "lost_requests": len(set(load.opened) - asked),
        "lost_decisions": len(set(load.decided) - set(decided)),
        "double": twice,
    }
