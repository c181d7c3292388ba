"""Whatever is done in whatever order: two stores that must agree, and what must never happen.

A hypothesis state machine sends the same commands, with the same ids, on the same clock, to a store
in memory and to one in SQLite, which now and then is closed, or copied as a crash would leave it.
After each step both must show the same, down to the hashes of the chains. Beside them runs a model
of plain dictionaries that knows only which command may move a call from where to where, and how
often it may start.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine_model import THREADS, Twins
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

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
from assent.rows import Call, CallStatus, Message, Run
from assent.stores.base import Query
from assent.testing.world import seconds, tool_of
from assent.types import Grant, Reviewer

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


class Machine(Twins):
    """Commands in any order, on two stores at once."""

    # -- choosing

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
        number = self.new_id()
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

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), people=st.sampled_from([PEOPLE[:1], PEOPLE[:2], PEOPLE[1:2]]))
    def approve(self, data: st.DataObject, people: tuple[Reviewer, ...]) -> None:
        """What usually happens: somebody who may, or two of them, say yes to what they see."""
        call = self._call(data, _S.ASKED, _S.IN_DOUBT)
        for by in people:
            self.send(
                Decide(
                    thread=call.thread,
                    run=call.run,
                    call=call.id,
                    type="approve",
                    by=by,
                    channel="test",
                    seen_digest=self.memory.digest(call),
                )
            )

    def _grant(self, data: st.DataObject, tool: str, by: str) -> Grant:
        return Grant(
            id=f"grt_{self.new_id()}",
            agent="agent",
            tool=tool,
            tool_digest=tool_of(tool).digest,
            scope=data.draw(st.sampled_from((*SCOPES, SCOPES[0]))),
            by=by,
            created=self.clock(),
            uses_left=data.draw(st.sampled_from([1, 2, None])),
            ends=data.draw(st.sampled_from([None, None, self.clock() + seconds(20)])),
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

    @precondition(lambda self: any(call.status is _S.READY for call in self.calls.values()))
    @rule(data=st.data(), owner=st.sampled_from(OWNERS))
    def work(self, data: st.DataObject, owner: str) -> None:
        """What usually happens: a worker starts all that is ready in a run."""
        ready = [call for call in self.calls.values() if call.status is _S.READY]
        first = data.draw(st.sampled_from(ready))
        calls = tuple(call.id for call in ready if call.run == first.run)
        place = {"thread": first.thread, "run": first.run}
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
