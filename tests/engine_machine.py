"""Whatever is done in whatever order: two stores that must agree, and what must never happen.

A hypothesis state machine sends the same commands, with the same ids, on the same clock, to a store
in memory and to one in SQLite, which now and then is closed, or copied as a crash would leave it.
After each step both must show the same, down to the hashes of the chains. Beside them runs a model
of plain dictionaries that knows only which command may move a call from where to where, and how
often it may start.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from assent import codec
from assent.engine import Command
from assent.engine.commands import (
    AddGrant,
    Cancel,
    Claim,
    Complete,
    Decide,
    Doubt,
    Expire,
    Finish,
    Propose,
    Reask,
    Record,
    Recover,
    Renew,
    RevokeGrant,
    Start,
    Suspend,
)
from assent.errors import AssentError
from assent.keys import Keyring
from assent.rows import LIVE, OPEN, Call, CallStatus, Message, Run
from assent.stores.base import Query
from assent.stores.memory import MemoryStore
from assent.stores.sqlite import SqliteStore
from assent.testing import FakeClock
from assent.testing.world import World, seconds, tool_of
from assent.types import Grant, Reviewer
from assent.views import is_request, request_json, request_of

KEYS = Keyring.parse("hmac:bWFjaGluZSBtYWNoaW5lIG1hY2hpbmUgbWFjaGluZSE")
THREADS = ("t1", "t2")
OWNERS = ("w1", "w2")
TOOLS = ("send", "pay")
PEOPLE = (
    Reviewer("ana", assurance="token"),
    Reviewer("bo", assurance="token"),
    Reviewer("cy", ("finance",), assurance="os-user"),
    Reviewer("code"),
    Reviewer("robot", assurance="token", role="agent"),
)
SCOPES = ("{}", '{"properties":{"n":{"maximum":1}},"required":["n"]}')

_S = CallStatus
_OVER = {_S.DONE, _S.FAILED}
Moves = set[tuple[CallStatus | None, CallStatus]]

#: From where to where each command may move a call; ``None`` is before it was made.
MAY_MOVE: dict[type[Command], Moves] = {
    Propose: {(None, _S.ASKED), (None, _S.READY), (None, _S.REJECTED), (None, _S.RUNNING)},
    Decide: {
        *product([_S.ASKED], [_S.READY, _S.REJECTED, _S.RESPONDED]),
        *product([_S.IN_DOUBT], [_S.READY, *_OVER]),
    },
    Reask: {(_S.READY, _S.ASKED)},
    Claim: {(_S.RUNNING, _S.IN_DOUBT), (_S.RUNNING, _S.READY)},
    Doubt: {(_S.RUNNING, _S.IN_DOUBT), (_S.RUNNING, _S.READY)},
    Start: {(_S.READY, _S.RUNNING), (_S.READY, _S.ASKED)},
    Complete: {(_S.READY, _S.DONE), (_S.READY, _S.ASKED)},
    Record: set(product([_S.RUNNING, _S.IN_DOUBT], _OVER)),
    Suspend: {(_S.RUNNING, _S.READY), (_S.RUNNING, _S.CANCELLED)},
    Expire: {(_S.ASKED, _S.EXPIRED), *product([_S.ASKED, _S.READY], [_S.CANCELLED])},
    Cancel: set(product([_S.ASKED, _S.READY], [_S.CANCELLED, _S.SUPERSEDED])),
    Recover: set(product([_S.READY, _S.RUNNING], [_S.IN_DOUBT])),
}


def may_move(commands: tuple[Command, ...]) -> Moves:
    """What several commands in one transaction may do together."""
    allowed: Moves = set()
    for command in commands:
        own = MAY_MOVE.get(type(command), set())
        joined = {(a, d) for a, b in allowed for c, d in own if b is c}
        allowed = allowed | own | joined
    return allowed


def folder() -> Path:
    """A new folder, in memory where there is such a file system: a thousand commits are tried."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix="assent-", dir=place))


class Machine(RuleBasedStateMachine):
    """Commands in any order, on two stores at once."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.folders = [folder()]
        self.memory = World(self._plain(MemoryStore(clock=self.clock, keys=KEYS)), self.clock)
        self.sqlite = World(self._open(), self.clock)
        # The model: what is known without asking the stores.
        self.calls: dict[str, Call] = {}
        self.attempts: list[Call] = []
        self.seen: dict[str, list[str]] = {}
        self.starts: Counter[str] = Counter()
        self.permits: Counter[str] = Counter()
        self.spent: Counter[str] = Counter()
        self.grants: dict[str, Grant] = {}
        self.ids = 0

    def _open(self) -> Any:
        store = SqliteStore(self.folders[-1] / "store.db", clock=self.clock, keys=KEYS)
        return self._plain(store)

    @staticmethod
    def _plain(store: Any) -> Any:
        # Salts are random; without them the hashes of both chains are the same.
        store._means = replace(store._means, salt=lambda: "salt")
        return store

    def teardown(self) -> None:
        self.sqlite.store.close()
        for used in self.folders:
            shutil.rmtree(used)

    # -- sending

    def send(self, *commands: Command) -> list[Any] | None:
        """One transaction to both stores: the same outcome, and only moves that are its own."""
        outcomes: list[Any] = []
        for world in (self.memory, self.sqlite):
            try:
                outcomes.append(world.transact(*commands))
            except AssentError as error:
                outcomes.append(error)
        first, second = outcomes
        refused = isinstance(first, AssentError)
        if refused or isinstance(second, AssentError):
            note(f"refused: {first!r}")
            assert type(first) is type(second), (first, second)
        else:
            assert first == second
        self._follow(commands, refused)
        return None if refused else first

    def _follow(self, commands: tuple[Command, ...], refused: bool) -> None:
        """Bring the model up to date, and see that nothing moved that may not."""
        allowed = set() if refused else may_move(commands)
        runs = {getattr(command, "run", None) for command in commands}
        for run in self.memory.runs:
            for call in self.memory.store.calls_of(run):
                before = self.calls.get(call.id)
                if call == before:
                    continue
                assert not refused, "what was refused has changed something"
                assert run in runs, f"{call.id} of another run has changed"
                self._moved(before, call, allowed)
                self.calls[call.id] = call

    def _moved(self, before: Call | None, call: Call, allowed: Moves) -> None:
        was = before.status if before is not None else None
        if was is not call.status:
            assert (was, call.status) in allowed, f"{was} → {call.status}"
            assert was is None or was in OPEN, f"{call.id} had ended as {was}"
        began = call.attempt - (before.attempt if before is not None else 0)
        assert began in (0, 1)
        self.starts[call.id] += began
        if began:
            self.attempts.append(call)
            self._spend(call)
        again = was in (_S.RUNNING, _S.IN_DOUBT) and call.status in (_S.READY, _S.RUNNING)
        if again and before is not None:
            self.permits[call.id] += 1
        assert self.starts[call.id] <= 1 + self.permits[call.id], f"{call.id} started too often"
        if before is not None and was in (_S.DONE, _S.FAILED, _S.RESPONDED, _S.REJECTED):
            assert (call.result, call.decision) == (before.result, before.decision)
        self.seen.setdefault(call.id, []).append(self.memory.digest(call))

    def _spend(self, call: Call) -> None:
        if call.grant is not None and call.attempt == 1:
            self.spent[call.grant] += 1
            limit = self.grants[call.grant].uses_left
            assert limit is None or self.spent[call.grant] <= limit, "a grant was overdrawn"

    # -- choosing

    def _id(self) -> str:
        self.ids += 1
        return f"{self.ids:03d}"

    def _call(self, data: st.DataObject, *wanted: CallStatus) -> Call:
        """Some call; rather one in a state where the command does something."""
        calls = list(self.calls.values())
        fitting = [call for call in calls if call.status in wanted]
        if fitting and data.draw(st.integers(0, 4), label="fitting") > 0:
            calls = fitting
        return data.draw(st.sampled_from(calls), label="call")

    def _run(self, data: st.DataObject) -> Run:
        runs = [run for run in map(self.memory.store.run, self.memory.runs) if run is not None]
        return data.draw(st.sampled_from(runs), label="run")

    def _attempt(self, data: st.DataObject) -> dict[str, Any]:
        """Some attempt that was ever made; rather one that still runs."""
        running = [a for a in self.attempts if self.calls.get(a.id) == a]
        some = running if running and data.draw(st.booleans()) else self.attempts
        call = data.draw(st.sampled_from(some), label="attempt")
        place = {"thread": call.thread, "run": call.run, "call": call.id}
        return {**place, "token": call.token, "attempt": call.attempt}

    # -- making calls

    @initialize()
    def begin(self) -> None:
        self.send(Propose(thread="t1", run="t1-a", agent="agent"))

    @rule(
        data=st.data(),
        verdicts=st.lists(st.sampled_from(["ask", "ask", "allow", "deny"]), max_size=3),
        owner=st.sampled_from([None, None, *OWNERS]),
        hold=st.booleans(),
        says=st.booleans(),
    )
    def propose(
        self, data: st.DataObject, verdicts: list[str], owner: str | None, hold: bool, says: bool
    ) -> None:
        thread = data.draw(st.sampled_from(THREADS))
        run = f"{thread}-{data.draw(st.sampled_from('ab'))}"
        calls = tuple(self._new(data, verdict) for verdict in verdicts)
        known = self.memory.store.run(run)
        wakes = st.none() if known is None else st.sampled_from([None, known.wake, known.wake - 1])
        self.send(
            Propose(
                thread=thread,
                run=run,
                agent="agent",
                calls=calls,
                tools=tuple(tool_of(call.tool) for call in calls),
                messages=(Message(run, f"hello {self.ids}"),) if says else (),
                owner=owner,
                lease=seconds(10),
                hold=hold,
                wake_seen=data.draw(wakes),
            )
        )

    def _new(self, data: st.DataObject, verdict: str) -> Any:
        number = self._id()
        keys = [f"key-{number}", "shared", *(call.key for call in self.calls.values())]
        return self.memory.new(
            data.draw(st.sampled_from(TOOLS)),
            {"n": data.draw(st.integers(0, 2))},
            id=f"req_{number}",
            key=data.draw(st.sampled_from([keys[0], keys[0], *keys[1:]]), label="key"),
            verdict=verdict,
            quorum=data.draw(st.sampled_from([1, 1, 1, 2])),
            expires_in=data.draw(st.sampled_from([None, 5.0, 50.0])),
            on_expiry=data.draw(st.sampled_from(["reject", "reject", "cancel"])),
            valid_for=data.draw(st.sampled_from([30.0, 1000.0])),
            idempotent=data.draw(st.booleans()),
            reviewers=data.draw(st.sampled_from([(), (), ("ana", "group:finance")])),
        )

    # -- people

    @precondition(lambda self: self.calls)
    @rule(
        data=st.data(),
        type=st.sampled_from(["approve", "approve", "approve", "edit", "reject", "respond"]),
        by=st.sampled_from(PEOPLE),
        starts=st.booleans(),
        grants=st.integers(0, 5),
    )
    def decide(
        self, data: st.DataObject, type: str, by: Reviewer, starts: bool, grants: int
    ) -> None:
        call = self._call(data, _S.ASKED, _S.IN_DOUBT)
        digests = [self.memory.digest(call)] * 4 + self.seen[call.id] + [None]
        args = f'{{"n":{data.draw(st.integers(0, 2))}}}' if type == "edit" else None
        command = Decide(
            thread=call.thread,
            run=call.run,
            call=call.id,
            type=type,
            by=by,
            channel="test",
            seen_digest=data.draw(st.sampled_from(digests), label="seen"),
            value="1" if type == "respond" else None,
            args=args,
            args_hash="" if args is None else codec.sha256(args.encode()),
            grant=self._grant(data, call.tool, by.name) if grants == 0 else None,
        )
        commands: list[Command] = [command]
        if starts:
            place = {"thread": call.thread, "run": call.run}
            commands.append(Start(**place, calls=(call.id,), owner="w1", lease=seconds(10)))
        if self.send(*commands) is not None and command.grant is not None:
            kept = {grant.id for grant in self.memory.store.grants(live_only=False)}
            if command.grant.id in kept:
                self.grants[command.grant.id] = command.grant

    def _grant(self, data: st.DataObject, tool: str, by: str) -> Grant:
        return Grant(
            id=f"grt_{self._id()}",
            agent="agent",
            tool=tool,
            tool_digest=tool_of(tool).digest,
            scope=data.draw(st.sampled_from(SCOPES)),
            by=by,
            created=self.clock(),
            uses_left=data.draw(st.sampled_from([None, 1, 2])),
            ends=data.draw(st.sampled_from([None, self.clock() + seconds(20)])),
        )

    @rule(data=st.data(), tool=st.sampled_from(TOOLS))
    def grant(self, data: st.DataObject, tool: str) -> None:
        grant = self._grant(data, tool, "ana")
        if self.send(AddGrant(grant=grant)) is not None:
            self.grants[grant.id] = grant

    @precondition(lambda self: self.grants)
    @rule(data=st.data())
    def revoke(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.grants)))
        self.send(RevokeGrant(grant=name, by="ana"))

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), superseded=st.booleans(), whole=st.booleans())
    def cancel(self, data: st.DataObject, superseded: bool, whole: bool) -> None:
        call = self._call(data, _S.ASKED, _S.READY)
        self.send(
            Cancel(
                thread=call.thread,
                run=call.run,
                by="ana",
                reason="enough",
                call=None if whole else call.id,
                superseded=superseded,
            )
        )

    # -- workers

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), owner=st.sampled_from(OWNERS), number=st.integers(1, 2))
    def start(self, data: st.DataObject, owner: str, number: int) -> None:
        call = self._call(data, _S.READY)
        others = [c.id for c in self.calls.values() if c.run == call.run and c is not call]
        calls = (call.id, *others[: number - 1])
        place = {"thread": call.thread, "run": call.run}
        self.send(Start(**place, calls=calls, owner=owner, lease=seconds(10)))

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), owner=st.sampled_from(OWNERS))
    def complete(self, data: st.DataObject, owner: str) -> None:
        call = self._call(data, _S.READY)
        place = {"thread": call.thread, "run": call.run, "call": call.id}
        self.send(Complete(**place, result="true", owner=owner, lease=seconds(10)))

    @precondition(lambda self: self.attempts)
    @rule(data=st.data(), ok=st.booleans(), hold=st.booleans(), ends=st.booleans())
    def record(self, data: st.DataObject, ok: bool, hold: bool, ends: bool) -> None:
        attempt = self._attempt(data)
        result = f'"{attempt["call"]} {attempt["attempt"]}"'
        commands: list[Command] = [Record(**attempt, ok=ok, result=result, hold=hold)]
        if ends:
            commands.append(Finish(thread=attempt["thread"], run=attempt["run"], status="done"))
        self.send(*commands)

    @precondition(lambda self: self.attempts)
    @rule(data=st.data(), elsewhere=st.booleans())
    def suspend(self, data: st.DataObject, elsewhere: bool) -> None:
        self.send(Suspend(**self._attempt(data), elsewhere=elsewhere))

    @precondition(lambda self: self.attempts)
    @rule(data=st.data())
    def doubt(self, data: st.DataObject) -> None:
        self.send(Doubt(**self._attempt(data), reason="cut short"))

    @rule(data=st.data())
    def sweep(self, data: st.DataObject) -> None:
        run = self._run(data)
        self.send(Doubt(thread=run.thread, run=run.id))

    @rule(data=st.data(), owner=st.sampled_from(OWNERS), force=st.booleans())
    def claim(self, data: st.DataObject, owner: str, force: bool) -> None:
        run = self._run(data)
        place = {"thread": run.thread, "run": run.id}
        self.send(Claim(**place, owner=owner, lease=seconds(10), force=force))

    @rule(data=st.data(), back=st.integers(0, 2))
    def renew(self, data: st.DataObject, back: int) -> None:
        run = self._run(data)
        place = {"thread": run.thread, "run": run.id}
        self.send(Renew(**place, token=run.token - back, lease=seconds(10)))

    @rule(
        data=st.data(),
        status=st.sampled_from(["done", "failed"]),
        back=st.sampled_from([None, 0, 1]),
        wake=st.sampled_from([None, 0, 1]),
    )
    def finish(self, data: st.DataObject, status: str, back: int | None, wake: int | None) -> None:
        run = self._run(data)
        self.send(
            Finish(
                thread=run.thread,
                run=run.id,
                status=status,
                output='"bye"',
                token=None if back is None else run.token - back,
                wake_seen=None if wake is None else run.wake - wake,
            )
        )

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def reask(self, data: st.DataObject) -> None:
        call = self._call(data, _S.READY)
        changed = data.draw(st.sampled_from([None, tool_of(call.tool, "v2")]))
        place = {"thread": call.thread, "run": call.run, "call": call.id}
        self.send(Reask(**place, reason="changed", tool=changed))

    @rule(data=st.data())
    def recover(self, data: st.DataObject) -> None:
        run = self._run(data)
        self.send(Recover(thread=run.thread, run=run.id, by="ops"))

    # -- time, and what happens to stores

    @rule(number=st.sampled_from([0.000_001, 1, 4, 6, 11, 60, 2000]))
    def time_passes(self, number: float) -> None:
        self.clock.advance(number)

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        call = self._call(data, _S.ASKED)
        self.send(Expire(thread=call.thread, run=call.run, call=call.id))

    @rule(what=st.sampled_from(["seal", "close_and_open", "crash", "crash", "prune", "prune old"]))
    def upheaval(self, what: str) -> None:
        {
            "seal": self.seal,
            "close_and_open": self.close_and_open,
            "crash": self.crash,
            "prune": lambda: self.prune(0),
            "prune old": lambda: self.prune(50),
        }[what]()

    def seal(self) -> None:
        assert self.memory.store.seal() == self.sqlite.store.seal()

    def close_and_open(self) -> None:
        self.seal()
        self.memory.store.close()
        self.sqlite.store.close()
        self.sqlite.store = self._open()

    def crash(self) -> None:
        """Go on from a copy of the files as they are now, as after a power cut."""
        old = self.folders[-1]
        self.folders.append(folder())
        for name in ("store.db", "store.db-wal", "store.db.mark"):
            if (old / name).exists():
                shutil.copy(old / name, self.folders[-1] / name)
        abandoned = self.sqlite.store
        self.sqlite.store = self._open()
        assert not self.sqlite.store.restored()
        abandoned.close()

    def prune(self, ago: int) -> None:
        before = self.clock() - seconds(ago)
        counts = [world.store.prune(before, "ops") for world in (self.memory, self.sqlite)]
        assert counts[0] == counts[1]
        for call in list(self.calls.values()):
            if self.memory.store.call(call.id) is None:
                del self.calls[call.id]
        self.attempts = [call for call in self.attempts if call.id in self.calls]
        if all(self.memory.store.run(run) is None for run in self.memory.runs):
            self.send(Propose(thread="t1", run=f"t1-{self._id()}", agent="agent"))

    @rule(
        status=st.sampled_from(["pending", "any", "all", "closed", "approved", "rejected"]),
        sort=st.sampled_from(["oldest", "newest", "expiring"]),
        limit=st.integers(1, 4),
        kind=st.sampled_from([None, None, "approval", "in_doubt"]),
        tool=st.sampled_from([None, None, *TOOLS]),
    )
    def list_requests(self, limit: int, **filters: Any) -> None:
        query = Query(limit=limit, **filters)
        shown: list[str] = []
        for _ in range(20):
            pages = [world.store.page(query) for world in (self.memory, self.sqlite)]
            assert [call for _, call in pages[0]] == [call for _, call in pages[1]]
            if not pages[0]:
                break
            shown += [call.id for _, call in pages[0]]
            after = self.sqlite.store.page(query)[-1][0]
            # Pruned rows leave no hole in SQLite's numbers at their end, so the keys may differ.
            assert self.memory.store.page(query)[-1][0] >= after
            query = replace(query, after=pages[0][-1][0])
            if pages[0][-1][0] != after:
                return
        assert len(set(shown)) == len(shown)

    # -- what always holds

    @invariant()
    def both_show_the_same(self) -> None:
        one, two = self.memory.everything(), self.sqlite.everything()
        for name in one:
            assert one[name] == two[name], name
        memory, sqlite = self.memory.store, self.sqlite.store
        assert memory.overdue() == sqlite.overdue()
        assert _runs(memory.ready(["agent"], 9)) == _runs(sqlite.ready(["agent"], 9))
        assert _runs(memory.open_runs()) == _runs(sqlite.open_runs())
        for thread in THREADS:
            assert memory.last_run(thread) == sqlite.last_run(thread)
        for call in self.calls.values():
            if is_request(call):
                shown = [
                    request_json(request_of(world.call(call), world.store.tool(call.tool_digest)))
                    for world in (self.memory, self.sqlite)
                ]
                assert shown[0] == shown[1]

    @invariant()
    def nothing_is_out_of_order(self) -> None:
        self.memory.check()
        for run in self.memory.store.ready(["agent"], 9):
            assert run.status in LIVE
        for thread in THREADS:
            runs = [run for run in self.memory.everything()["runs"] if run is not None]
            live = [run for run in runs if run.thread == thread and run.status in LIVE]
            assert len(live) <= 1
        for grant in self.memory.store.grants(live_only=False):
            assert grant.uses_left is None or grant.uses_left >= 0


def _runs(runs: Any) -> list[Run]:
    return sorted(runs, key=lambda run: run.id)
