"""The tasks of the child processes: decide, resume, wait, and report."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

from places import open_at
from stories import append
from waiting import until

from sayso import AlreadyDecided, Gate, Inbox, Paused, SaysoError
from sayso.engine.commands import Note
from sayso.gate.guard import this_call
from sayso.stores.base import Store
from sayso.types import Decision, Request

TYPES = ("approve", "reject", "respond", "edit")


# -- deciding


def answer(request: Request, type: str, by: str) -> Decision:
    """Return one of four different answers, each naming its author."""
    if type == "approve":
        return request.approve()
    if type == "reject":
        return request.reject(f"no, says {by}")
    if type == "respond":
        return request.respond(f"by {by}")
    return request.edit({"to": by})


def decide_all(store: Store, requests: list[Request], by: str, type: str) -> list[Any]:
    """Decide all requests as one person, in random order. Return the results."""
    inbox = Inbox(store)
    told = []
    for request in random.Random(by).sample(requests, len(requests)):
        began = time.monotonic()
        try:
            decided = inbox.decide_sync(request.id, answer(request, type, by), by=by)
            outcome, who = "won", decided.decision.by if decided.decision else ""
        except AlreadyDecided as lost:
            outcome, who = "lost", str(lost).split(" decided ", 1)[0]
        except BaseException as error:
            outcome, who = f"{error!r}", ""
        told.append([request.id, by, outcome, who, time.monotonic() - began])
    return told


def many_deciders(store: Store, requests: list[Request], people: list[str]) -> list[Any]:
    """Decide as several people at once, each in an OS thread."""
    told: list[Any] = []
    gate = threading.Barrier(len(people))

    def body(by: str) -> None:
        gate.wait()
        told.extend(decide_all(store, requests, by, TYPES[sum(by.encode()) % 4]))

    threads = [threading.Thread(target=body, args=(by,)) for by in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return told


def deciders(folder: str, people: list[str]) -> list[Any]:
    """Run ``many_deciders`` in a process, once the start file exists."""
    store = open_at(folder)
    requests = list(Inbox(store).pending_sync(limit=500).items)
    append(Path(folder, "there"), people[0])
    until(Path(folder, "go").exists)
    told = many_deciders(store, requests, people)
    store.close()
    return told


def write_for(folder: str, name: str, seconds: float) -> dict[str, Any]:
    """Commit as often as possible for some time. Return how often."""
    store = open_at(folder)
    append(Path(folder, "there"), name)
    until(Path(folder, "go").exists)
    count, longest, end = 0, 0.0, time.monotonic() + seconds
    while (began := time.monotonic()) < end:
        store.transact(Note(type="noted", actor=name, body={"n": count}))
        longest = max(longest, time.monotonic() - began)
        count += 1
    store.close()
    return {"count": count, "longest": longest}


# -- running


def paying(gate: Gate, folder: str, **options: Any) -> Any:
    """Return a guarded function whose effects are counted outside the store."""

    @gate.guard(**{"needs_approval": True, **options})
    def pay(to: str) -> str:
        append(Path(folder, "effects"), this_call().run, this_call().attempt, to)
        return f"paid {to}"

    return pay


def resume_all(folder: str, runs: list[str], seed: int) -> dict[str, str]:
    """Resume every run in random order, and wait where another process holds the lease."""
    store = open_at(folder)
    gate = Gate(store, wait=0, agent="bot")
    pay = paying(gate, folder)
    append(Path(folder, "there"), seed)
    until(Path(folder, "go").exists)
    got = {}
    for run in random.Random(seed).sample(runs, len(runs)):
        try:
            with gate.run(run):
                got[run] = pay("bo")
        except (SaysoError, Paused) as error:
            got[run] = type(error).__name__
    gate.close()
    return got


def call(
    folder: str,
    run: str,
    to: str = "bo",
    wait: float | None = 0,
    lease: float = 30.0,
    hold: str = "",
    held: int = 1,
    stop: str = "",
) -> str:
    """One call in one run. ``hold`` names a file that the effect waits for, in its attempt
    ``held``; ``stop`` is where the process stops itself, as if the machine had gone to sleep."""

    def sleep_at(point: str) -> None:
        if stop == point:
            append(Path(folder, "stopped"), os.getpid())
            os.kill(os.getpid(), signal.SIGSTOP)

    store = open_at(folder, boundary=lambda name, when: sleep_at(f"{name} {when}"))
    gate = Gate(store, wait=wait, agent="bot", lease=lease)

    @gate.guard(needs_approval=True)
    def pay(to: str) -> str:
        append(Path(folder, "effects"), this_call().run, this_call().attempt, to)
        if hold and this_call().attempt == held:
            until(Path(folder, hold).exists)
        sleep_at("effect")
        return f"paid {to} by attempt {this_call().attempt}"

    try:
        with gate.run(run):
            return str(pay(to))
    except (SaysoError, Paused) as error:
        return type(error).__name__
    finally:
        gate.close()


def call_async(folder: str, run: str) -> str:
    """Make the call as a coroutine that waits without a limit."""
    gate = Gate(open_at(folder), wait=None, agent="bot")

    @gate.guard(needs_approval=True)
    async def pay(to: str) -> str:
        append(Path(folder, "effects"), this_call().run, this_call().attempt, to)
        return f"paid {to} by attempt {this_call().attempt}"

    async def body() -> str:
        async with gate.run(run):
            return str(await pay("bo"))

    got = asyncio.run(body())
    gate.close()
    return got


def interrupted(folder: str, run: str) -> str:
    """Press Ctrl-C while the effect runs."""
    gate = Gate(open_at(folder), wait=0, agent="bot")

    @gate.guard(needs_approval=True)
    def pay(to: str) -> str:
        append(Path(folder, "effects"), this_call().run, this_call().attempt, to)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
        return "not reached"

    try:
        with gate.run(run):
            return str(pay("bo"))
    except KeyboardInterrupt:
        return "KeyboardInterrupt"
    finally:
        gate.close()


def forked(folder: str) -> dict[str, Any]:
    """Use a store, sync and async, and fork: both processes continue."""
    store = open_at(folder)
    gate = Gate(store, wait=0, agent="bot")

    async def step(name: str) -> Any:
        async with gate.run(name):
            return await gate.once("step", lambda: name)

    def both(name: str) -> list[Any]:
        with gate.run(f"{name} sync"):
            first = gate.once_sync("step", lambda: name)
        return [first, asyncio.run(step(f"{name} async"))]

    told = {"before": both("before")}
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if both("child") == ["child", "child async"] else 2
        finally:
            os._exit(code)
    told["parent"] = both("parent")
    # Neither has the other's lock: a store that shared one would let both write at once.
    told["child"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    told["again"] = both("again")
    gate.close()
    return told


def work(folder: str, runs: list[str], seed: int, lease: float, nap: float = 0.004) -> int:
    """Resume every run, and decide pending requests, until all have ended."""
    store = open_at(folder)
    gate = Gate(store, wait=0, agent="bot", lease=lease)
    inbox = Inbox(store)
    dice = random.Random(seed)

    @gate.guard(needs_approval=True)
    def pay(to: str) -> str:
        this = this_call()
        account = gate.ask_sync("From which account?") if to.endswith("7") else "giro"
        append(Path(folder, "effects"), this.id, this.attempt, account)
        time.sleep(dice.random() * nap)
        return f"paid {to}"

    turns = 0
    while True:
        left = [run for run in runs if not _over(store, run)]
        if not left:
            gate.close()
            return turns
        turns += 1
        for run in dice.sample(left, min(8, len(left))):
            with contextlib.suppress(SaysoError, Paused), gate.run(run):
                pay(run)
        waiting = inbox.pending_sync(limit=500).items
        for request in dice.sample(waiting, min(8, len(waiting))):
            _settle(inbox, request, dice, folder)


def _over(store: Store, run: str) -> bool:
    found = store.run(run)
    return found is not None and found.status not in ("running", "paused")


def _settle(inbox: Inbox, request: Request, dice: random.Random, folder: str) -> None:
    by = f"person {dice.randrange(5)}"
    if request.kind == "question":
        decision: Decision = request.respond("cash")
    elif request.kind == "in_doubt":
        decision = dice.choice([request.approve(), request.respond("paid"), request.reject("no")])
    else:
        decision = request.approve()
    with contextlib.suppress(SaysoError):
        inbox.decide_sync(request.id, decision, by=by)
        append(Path(folder, "acks"), request.id, decision.type, by)
