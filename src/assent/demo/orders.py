"""The job: a welcome mail that needs nobody, a refund and a publication that need a person.

``python -m assent.demo.orders STORE RUN FILE`` enters the run once: a process like any other that
comes back to it. What really ran is a line in ``FILE``, written by the effects themselves.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

import assent

PAUSED = 3  # how a process says that its run waits for a person
INTERRUPTED = 75  # as the command line says: what was pending is still pending

#: Gets one request decided, or leaves it.
Person: TypeAlias = Callable[[assent.Request], None]


class Effects:
    """What really ran: one line for each effect, in a file that all processes share."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, name: str, **args: Any) -> str:
        """Do the thing, as far as a demo does anything: write it down."""
        now = f"{datetime.now():%H:%M:%S}"
        line = f"{now}  process {os.getpid()}  {name} {json.dumps(args)}"
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        print(f"  {name} runs now")
        return "done"

    def lines(self) -> list[str]:
        """Everything that ran so far."""
        return self.path.read_text("utf-8").splitlines() if self.path.exists() else []

    def repeated(self) -> list[str]:
        """The effects that ran more than once: there must be none."""
        counts = Counter(line.split()[3] for line in self.lines())
        return [name for name, count in counts.items() if count > 1]


def job(gate: assent.Gate, run: str, effects: Effects) -> None:
    """The job itself; it is the same code whether it begins, comes back or has long ended."""

    @gate.guard(needs_approval=False)
    def send_welcome_mail(to: str) -> str:
        """Greet a new customer."""
        return effects.add("send_welcome_mail", to=to)

    @gate.guard(needs_approval=lambda args: args["euros"] > 100, note="The parcel was late.")
    def refund(order: str, euros: int) -> str:
        """Pay a customer back."""
        return effects.add("refund", order=order, euros=euros)

    with gate.run(run):
        _step("send_welcome_mail", lambda: send_welcome_mail("ada@example.com"))
        _step("refund", lambda: refund("A-17", 120))
        yes = gate.approve_sync("Publish the release notes?", {"version": "2.1", "readers": 4200})
        if yes:
            gate.once_sync("publish", effects.add, "publish", version="2.1")
        print(f"  publish: {'done' if yes else 'a person said no'}")


def _step(name: str, act: Callable[[], str]) -> None:
    try:
        print(f"  {name}: {ascii(act())[1:-1]}")
    except assent.Refused as no:
        print(f"  {name} did not run: {type(no).__name__}")


def enter(store: str, run: str, effects: Effects) -> int:
    """Enter the run once, without waiting for anybody: 0 when it ended, ``PAUSED`` when not."""
    gate = assent.Gate(store, agent="demo", wait=0, channels=[_nobody])
    print(f"Process {os.getpid()} enters the run:")
    try:
        job(gate, run, effects)
    except assent.Paused as paused:
        print(f"  paused: {paused.requests[0].id} waits for a person, and the process may end")
        return PAUSED
    finally:
        gate.close()
    return 0


async def _nobody(request: assent.Request) -> None:
    """Whoever decides here is told by the demo itself."""


def main(store: str | None = None) -> int:
    """Play the job on this store, or on one that is made for it and thrown away; the exit code.

    In a terminal you are the person. Without one a scripted person decides. Either way the run goes
    on in other processes, and at the end stands what really ran.
    """
    if store is not None and store.startswith("memory:"):
        raise assent.StoreError("the demo comes back in other processes: use sqlite:///demo.db")
    # A prompt that was interrupted may still hold a file there for a moment.
    with tempfile.TemporaryDirectory(prefix="assent-", ignore_cleanup_errors=True) as folder:
        url = store or f"sqlite:///{folder}/assent.db"
        run, effects = f"demo-{secrets.token_hex(3)}", Effects(Path(folder) / "effects.txt")
        print("A small job: a welcome mail, a refund of 120 euros, a publication.")
        print("Refunds above 100 euros and publications need a person.")
        inbox = assent.Inbox(url)
        try:
            _play(inbox, _person(inbox), url, run, effects)
        except KeyboardInterrupt:
            print("\nInterrupted: what was asked is left pending.")
            return INTERRUPTED
        finally:
            inbox.close()
        return _show(effects, store)


def _play(inbox: assent.Inbox, person: Person, store: str, run: str, effects: Effects) -> None:
    """Enter the run, let the person decide, and enter it again elsewhere, until it has ended."""
    ended = enter(store, run, effects)
    while ended == PAUSED:
        for request in inbox.pending_sync(run=run).items:
            person(request)
        if inbox.pending_sync(run=run).items:
            print("\nIt was left pending, so it did not run.")
            return
        ended = _elsewhere(store, run, effects)
    print("\nOnce more, although it has ended: every result comes from the store.\n")
    _elsewhere(store, run, effects)


def _person(inbox: assent.Inbox) -> Person:
    """Whoever sits at the terminal; where there is none, a scripted person."""
    from assent.channels.terminal import TerminalChannel, can_prompt

    if can_prompt():
        print("That is you. Each time the run comes back, it does so in a new process.\n")
        channel = TerminalChannel(inbox)
        return lambda request: asyncio.run(channel(request))
    print("Nobody is at a terminal, so a scripted person decides.\n")
    return lambda request: _by_script(inbox, request)


def _by_script(inbox: assent.Inbox, request: assent.Request) -> None:
    decision: assent.Decision = request.approve()
    if request.tool == "refund":
        decision = request.edit({"euros": 110})
    print(f"\nThe scripted person sees {request.id}: {json.dumps(dict(request.args))}")
    print(f"  and answers: {decision.type}{' to 110 euros' if request.tool else ''}\n")
    inbox.decide_sync(request.id, decision, by="scripted person")


def _elsewhere(store: str, run: str, effects: Effects) -> int:
    command = [sys.executable, "-m", "assent.demo.orders", store, run, str(effects.path)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    print(done.stdout, end="")
    if done.returncode not in (0, PAUSED):
        raise assent.AssentError(f"the other process failed: {done.stderr.strip()}")
    return done.returncode


def _show(effects: Effects, store: str | None) -> int:
    print("\nWhat really ran:")
    for line in effects.lines():
        print(f"  {line}")
    for name in effects.repeated():
        print(f"{name} ran more than once, which must never happen: please report it")
    if store is not None:
        print(f"\nIt is all still there: assent history --store {store}")
    return 1 if effects.repeated() else 0


if __name__ == "__main__":
    sys.exit(enter(sys.argv[1], sys.argv[2], Effects(Path(sys.argv[3]))))
