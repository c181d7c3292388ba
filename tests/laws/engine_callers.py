"""Callers at once on one store: each gets what it would get alone.

A hypothesis state machine lets several callers, each with its own thread, send transactions at the
same time: as tasks of one event loop, some of which are cancelled, or on several OS threads. Some
are refused. Next to the store, each caller has a store in memory that nobody else uses. The same
transactions there must have the same outcomes (``engine_laws.check_own_outcome``).
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

from engine_laws import check_own_outcome
from engine_model import KEYS, without_salt
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from reference_store import ReferenceStore
from waiting import until

from sayso import sync
from sayso.engine import Command
from sayso.engine.commands import Decide, Finish, Propose, Record, Start
from sayso.rows import Call, CallStatus, Message
from sayso.stores.sqlite import SqliteStore
from sayso.testing import FakeClock
from sayso.types import Reviewer
from sayso_testing.world import World, attempt_of, seconds, tool_of

#: The callers. No name is part of another name or of a message of the store.
CALLERS = ("alder", "birch", "cedar", "dogwood", "hazel", "juniper")
_S = CallStatus
ACTS = ("propose", "propose", "approve", "start", "record", "stale", "forbidden", "second", "none")
ACTS += ("unstorable", "bare")


class ConcurrentCallers(RuleBasedStateMachine):
    """Several callers on one SQLite store, and each of them alone in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.folder = Path(tempfile.mkdtemp(prefix="sayso-"))
        self.store = self._plain(self._open())
        self.alone = {name: self._world(name) for name in CALLERS}
        self.numbers = 0
        self._under_way = 0
        self._lock = threading.Lock()
        self._transact = self.store.transact
        self.store.transact = self._counted

    def _open(self) -> Any:
        return SqliteStore(self.folder / "store.db", clock=self.clock, keys=KEYS)

    def _world(self, name: str) -> World:
        return World(self._plain(ReferenceStore(clock=self.clock, keys=KEYS)), self.clock)

    @staticmethod
    def _plain(store: Any) -> Any:
        return without_salt(store)

    def _counted(self, *commands: Command) -> list[Any]:
        with self._lock:
            self._under_way += 1
        try:
            return self._transact(*commands)
        finally:
            with self._lock:
                self._under_way -= 1

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    # -- what a caller sends

    def _commands(self, name: str, act: str) -> tuple[Command, ...]:
        """Return one transaction; the act may be impossible now, and is refused then."""
        self.numbers += 1
        unique = f"{name}-{self.numbers}"
        place: dict[str, Any] = {"thread": f"{name}-thread", "run": f"{name}-run"}
        world = self.alone[name]
        calls = world.store.calls_of(place["run"])
        if act == "propose" or not calls:
            return (self._propose(world, unique, place),)
        if act == "second":
            return (Propose(thread=place["thread"], run=f"{unique}-run", agent=name),)
        if act == "none":
            return (Finish(thread=place["thread"], run=f"{unique}-run", status="done"),)
        if act == "unstorable":
            words = (Message(place["run"], f"{unique} half \ud800 a pair"),)
            return (Propose(**place, agent=name, messages=words),)
        if act == "bare":
            return (Propose(**place, agent=name, snapshot=object()),)  # type: ignore[arg-type]
        return (self._move(act, unique, place, calls),)

    def _propose(self, world: World, unique: str, place: dict[str, Any]) -> Propose:
        call = world.new("send", {"n": unique}, id=f"req_{unique}", key=unique, verdict="ask")
        words = (Message(place["run"], f"{unique} says hello"),)
        agent = unique.partition("-")[0]
        return Propose(
            **place, agent=agent, calls=(call,), tools=(tool_of("send"),), messages=words
        )

    def _move(self, act: str, unique: str, place: dict[str, Any], calls: list[Call]) -> Command:
        wanted = {"start": _S.READY, "record": _S.RUNNING}.get(act, _S.ASKED)
        call = next((each for each in calls if each.status is wanted), calls[-1])
        if act == "start":
            this = {"calls": (call.id,), "seen": (call.mac,)}
            return Start(**place, **this, owner=f"{unique}-owner", lease=seconds(10))
        if act == "record":
            return Record(**attempt_of(call), ok=True, result=f'"{unique}"')
        decision: dict[str, Any] = {
            "approve": {"type": "approve", "seen_digest": call.digest},
            "stale": {"type": "approve", "seen_digest": f"sha256:{unique}"},
            "forbidden": {"type": f"{unique}-decision", "seen_digest": call.digest},
        }[act]
        by = Reviewer(f"{unique}-person")
        return Decide(**place, call=call.id, by=by, channel="test", **decision)

    # -- sending at once

    @rule(
        acts=st.lists(st.sampled_from(ACTS), min_size=len(CALLERS), max_size=len(CALLERS)),
        cancelled=st.sets(st.sampled_from(CALLERS), max_size=2),
        turns=st.integers(0, 3),
    )
    def tasks(self, acts: list[str], cancelled: set[str], turns: int) -> None:
        """Send as tasks of one event loop, and cancel some after a few turns of the loop."""
        sent = {name: self._commands(name, act) for name, act in zip(CALLERS, acts, strict=True)}

        async def main() -> list[Any]:
            writes = {
                name: asyncio.create_task(sync.write(self.store, *commands))
                for name, commands in sent.items()
            }
            for _ in range(turns):
                await asyncio.sleep(0)
            for name in cancelled:
                writes[name].cancel()
            return await asyncio.gather(*writes.values(), return_exceptions=True)

        self._check(sent, asyncio.run(main()))

    @rule(acts=st.lists(st.sampled_from(ACTS), min_size=len(CALLERS), max_size=len(CALLERS)))
    def os_threads(self, acts: list[str]) -> None:
        sent = {name: self._commands(name, act) for name, act in zip(CALLERS, acts, strict=True)}
        outcomes: dict[str, Any] = {}
        together = threading.Barrier(len(sent))

        def send(name: str) -> None:
            together.wait(60)
            try:
                outcomes[name] = self.store.transact(*sent[name])
            except Exception as error:
                outcomes[name] = error

        threads = [threading.Thread(target=send, args=(name,)) for name in sent]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._check(sent, [outcomes[name] for name in sent])

    @rule()
    def time_passes(self) -> None:
        self.clock.advance(4)

    # -- what must be so

    def _check(self, sent: dict[str, tuple[Command, ...]], outcomes: list[Any]) -> None:
        until(lambda: not self._under_way)  # a task that was cancelled may still be in its commit
        for (name, commands), outcome in zip(sent.items(), outcomes, strict=True):
            others = [other for other in CALLERS if other != name]
            if isinstance(outcome, asyncio.CancelledError):
                # It was made as a whole, or not at all.
                if self._chain(self.store, name) != self._chain(self.alone[name].store, name):
                    self._send_alone(name, commands)
                continue
            check_own_outcome(outcome, self._send_alone(name, commands), others)

    def _send_alone(self, name: str, commands: tuple[Command, ...]) -> Any:
        try:
            return self.alone[name].store.transact(*commands)
        except Exception as error:
            return error

    @staticmethod
    def _chain(store: Any, name: str) -> list[Any]:
        return [event._replace(pos=0) for event in store.chain(f"{name}-thread", 0, 10_000)]

    @invariant()
    def each_is_as_if_alone(self) -> None:
        for name, world in self.alone.items():
            assert self._chain(self.store, name) == self._chain(world.store, name)
            run, thread = f"{name}-run", f"{name}-thread"
            assert self.store.run(run) == world.store.run(run)
            assert self.store.thread(thread) == world.store.thread(thread)
            assert self.store.calls_of(run) == world.store.calls_of(run)
            assert self.store.messages(thread) == world.store.messages(thread)
