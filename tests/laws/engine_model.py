"""Two stores that must agree, a model of what must never happen, and what always holds.

The model is a few plain dictionaries. It knows only which command may move a call from where to
where, and how often a call may start; ``engine_machine`` has the commands.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from engine_laws import check_change, check_freed, may_move
from hypothesis import note
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant
from reference_store import ReferenceStore

from sayso import codec
from sayso.engine import Command
from sayso.engine.commands import (
    Cancel,
    Claim,
    Complete,
    Decide,
    Defer,
    Escalate,
    Expire,
    MarkInDoubt,
    OpenWindow,
    Propose,
    Record,
    Release,
    Remind,
    Reopen,
    ReportResult,
    Review,
    Settle,
    Start,
    Undo,
)
from sayso.engine.refusals import MOST_SHOWN
from sayso.engine.renewing import Renewal
from sayso.errors import SaysoError
from sayso.keys import Keyring
from sayso.policy.limits import bound_limit
from sayso.rows import LIVE, OPEN, Call, CallStatus, Run, RunStatus
from sayso.stores.sqlite import SqliteStore
from sayso.testing import FakeClock
from sayso.types import Grant
from sayso.views import is_request, request_json, request_of
from sayso_testing.world import World, seconds

KEYS = Keyring.parse("hmac:bWFjaGluZSBtYWNoaW5lIG1hY2hpbmUgbWFjaGluZSE")
THREADS = ("t1", "t2")
_S = CallStatus
#: Commands about a call that never change a live lease.
_SPARE_LEASES = (
    *(Decide, Undo, Claim, Expire, Escalate, Remind, Review),
    *(Settle, Release, Defer, ReportResult),
)


def without_salt(store: Any) -> Any:
    """Make a store salt its events alike: salts are random, so equal chains would differ."""
    if hasattr(store, "_parts"):
        deps = replace(store._parts.deps, salt=lambda: b"salt")
        store._parts = store._parts._replace(deps=deps)
    else:
        store._deps = replace(store._deps, salt=lambda: b"salt")
    return store


class Window(NamedTuple):
    """Trust in a run."""

    run: str
    risk: str
    ends: int


@dataclass
class Planned:
    """A plan that was approved: its steps, each a tool and a number."""

    run: str
    scope: str
    any_order: bool
    ends: int
    #: The steps that no call has taken, and the call that took each of the others.
    left: dict[int, tuple[str, int]]
    taken: dict[str, tuple[int, tuple[str, int]]]

    def has(self, content: tuple[str, int]) -> bool:
        """Return whether a step that was not given back has this content."""
        return content in (*self.left.values(), *(step for _, step in self.taken.values()))


class TwoStores(RuleBasedStateMachine):
    """A store in memory and one in SQLite, and the model beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.folders = [Path(tempfile.mkdtemp(prefix="sayso-"))]
        self.memory = World(self._plain(ReferenceStore(clock=self.clock, keys=KEYS)), self.clock)
        self.sqlite = World(self._open(), self.clock)
        # The model: what is known without asking the stores.
        self.calls: dict[str, Call] = {}
        self.attempts: list[Call] = []
        self.seen: dict[str, list[str]] = {}
        self.starts: Counter[str] = Counter()
        self.permits: Counter[str] = Counter()
        self.spent: Counter[str] = Counter()
        #: The windows that no rejection has ended.
        self.windows: dict[str, Window] = {}
        #: The same for plans.
        self.plans: dict[str, Planned] = {}
        #: Calls that started, when, and the key of a limit that counts them.
        self.counted: list[tuple[str, int, str]] = []
        self.grants: dict[str, Grant] = {}
        self.ids = 0

    def _open(self) -> Any:
        store = SqliteStore(self.folders[-1] / "store.db", clock=self.clock, keys=KEYS)
        return self._plain(store)

    @staticmethod
    def _plain(store: Any) -> Any:
        return without_salt(store)

    def teardown(self) -> None:
        self.sqlite.store.close()
        for used in self.folders:
            shutil.rmtree(used)

    # -- sending

    def new_id(self) -> str:
        """Return the next id, the same for both stores."""
        self.ids += 1
        return f"{self.ids:03d}"

    @initialize()
    def begin(self) -> None:
        """Make sure that there are a run and people."""
        for world in (self.memory, self.sqlite):
            world.reviewer("ana")
            world.reviewer("ana", assurance="session")
            world.reviewer("bo")
            world.reviewer("robot", role="agent")
        self.send(Propose(thread="t1", run=f"t1-{self.new_id()}", agent="agent"))

    def send(self, *commands: Command) -> list[Any] | None:
        """Send one transaction to both stores: outcomes must be equal, and moves legal."""
        outcomes: list[Any] = []
        run = self.memory.store.run(getattr(commands[0], "run", ""))
        held = self._held(commands, run)
        keys = {effect.key: effect.call for effect in self.memory.store.effects()}
        for world in (self.memory, self.sqlite):
            try:
                outcomes.append(world.transact(*commands))
            except SaysoError as error:
                outcomes.append(error)
        first, second = outcomes
        refused = isinstance(first, SaysoError)
        if refused or isinstance(second, SaysoError):
            note(f"refused: {first!r}")
            assert type(first) is type(second), (first, second)
        else:
            assert first == second
            self._follow_windows(commands)
        for key, holder in keys.items():
            if self.memory.holder(key) != holder:
                check_freed(commands, key, self.calls[holder])
        self._follow(commands, run, refused)
        self._finished_stays(commands, run)
        if held is not None:
            after = self.memory.run(held.id)
            kept = (after.owner, after.token) == (held.owner, held.token)
            # The process that holds the run may claim it again, and has it for longer then.
            mine = all(isinstance(c, Claim) and c.owner == held.owner for c in commands)
            longer = (after.ready_at or 0) >= (held.ready_at or 0)
            kept = kept and (longer if mine else after.ready_at == held.ready_at)
            assert after.stop or kept, "a lease broke"
        return None if refused else first

    def _follow_windows(self, commands: tuple[Command, ...]) -> None:
        for command in commands:
            if isinstance(command, OpenWindow):
                assert command.by.name == "ana", "it needs a session"
                ends = self.clock() + command.length
                self.windows[command.grant] = Window(command.run, command.risk, ends)
            call = self.calls.get(getattr(command, "call", None) or "")
            if call is None:
                continue
            if self._rejects(command, call):
                self._end_trust(call)
            # Only now may another call take the step of this one.
            gives_up = isinstance(command, Decide) and call.status is _S.IN_DOUBT
            nothing = isinstance(command, Record) and command.failure == "not_executed"
            plan = self.plans.get(call.grant or "")
            if plan is not None and (gives_up or nothing) and call.id in plan.taken:
                place, step = plan.taken.pop(call.id)
                plan.left[place] = step

    def _rejects(self, command: Command, call: Call) -> bool:
        """Return whether this command has just rejected a call."""
        if isinstance(command, Review):
            now = self.memory.store.call(call.id)
            return call.status is _S.ASKED and now is not None and now.status is _S.REJECTED
        is_first = call.decision is None or call.status is _S.IN_DOUBT
        return isinstance(command, Decide) and command.type == "reject" and is_first

    def _end_trust(self, call: Call) -> None:
        """A rejection ends the windows of its run, and the plans with this step."""
        for id, window in self.windows.items():
            if window.run == call.run:
                self.windows[id] = window._replace(ends=0)
        content = (call.tool, codec.loads(call.args).get("n"))
        for plan in self.plans.values():
            if plan.run == call.run and plan.has(content):
                plan.ends = 0

    def renew(self, renewal: Renewal) -> None:
        """Renew a lease in both stores: nothing but its end changes, and only the holder's."""
        before = self.memory.run(renewal.run)
        ours = before.owner is not None and before.token == renewal.token
        for world in (self.memory, self.sqlite):
            facts = world.events()
            assert world.store.renew([renewal], 30.0) == {renewal.run: ours}
            assert world.events() == facts
            after = world.run(renewal.run)
            ends = self.clock() + renewal.lease if ours else before.ready_at
            assert after == before._replace(ready_at=ends, mac=after.mac)

    def _finished_stays(self, commands: tuple[Command, ...], before: Run | None) -> None:
        """Nothing moves a run or a call after ``finished``, except an explicit reopening."""
        if before is None or before.status not in (RunStatus.DONE, RunStatus.FAILED):
            return
        after = self.memory.store.run(before.id)
        if after is not None and not any(isinstance(command, Reopen) for command in commands):
            assert after.status is before.status, "a finished run has moved"
            assert after.token == before.token
        moves = {"asked", "allowed", "denied", "started", "recorded", "decided", "claimed"}
        moves |= {"released", "joined", "deferred", "refused", "held", "undone"}
        ended = False
        for event in self.memory.store.chain(before.thread, 0, 10_000):
            if event.run == before.id:
                assert not (ended and event.type in moves), f"{event.type} after finished"
                ended = event.type == "finished" or (ended and event.type != "reopened")

    def _held(self, commands: tuple[Command, ...], run: Run | None) -> Run | None:
        """Return the run, if it has a lease that none of these commands may change."""
        if run is None or run.owner is None or (run.ready_at or 0) <= self.clock():
            return None
        fenced = all(
            isinstance(command, _SPARE_LEASES)
            or (isinstance(command, MarkInDoubt | Record) and not self._runs_now(command))
            or (isinstance(command, Cancel) and command.call is not None)
            or (isinstance(command, Start | Complete) and command.owner != run.owner)
            for command in commands
        )
        return run if fenced else None

    def _runs_now(self, command: MarkInDoubt | Record) -> bool:
        """Return whether the attempt that the command names is the one that runs."""
        call = self.calls.get(command.call or "")
        if call is not None and call.terms.effect == "read":
            run = self.memory.run(call.run)
            return call.status is _S.READY and call.token == command.token == run.token
        spoken_of = (_S.RUNNING, command.token, command.attempt)
        return call is not None and (call.status, call.token, call.attempt) == spoken_of

    def _follow(self, commands: tuple[Command, ...], run_before: Run | None, refused: bool) -> None:
        """Update the model, and check that nothing changed that may not."""
        allowed = set() if refused else may_move(commands)
        runs = {getattr(command, "run", None) for command in commands}
        for run in self.memory.runs:
            for call in self.memory.store.calls_of(run):
                before = self.calls.get(call.id)
                if before is not None and call == before._replace(seq=call.seq, mac=call.mac):
                    self.calls[call.id] = call  # at most a fact was added, which its row knows of
                    continue
                assert not refused, "what was refused has changed something"
                assert run in runs, f"{call.id} of another run has changed"
                if before is not None and run_before is not None:
                    check_change(commands, before, call, run_before, self.clock())
                self._moved(before, call, allowed)
                self.calls[call.id] = call

    def _moved(self, before: Call | None, call: Call, allowed: set[Any]) -> None:
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
        if began and call.attempt == 1 and call.terms.limits:
            self._counts(call)
        again = was in (_S.RUNNING, _S.IN_DOUBT) and call.status in (_S.READY, _S.RUNNING)
        if again and before is not None:
            self.permits[call.id] += 1
        often = call.terms.effect == "read" or self.starts[call.id] <= 1 + self.permits[call.id]
        assert often, f"{call.id} started too often"
        if before is not None and was in (_S.DONE, _S.FAILED, _S.RESPONDED, _S.REJECTED):
            assert (call.result, call.decision) == (before.result, before.decision)
        self._obeys_refusals(before, call, began=began > 0)
        self.seen.setdefault(call.id, []).append(self.memory.digest(call))

    def _obeys_refusals(self, before: Call | None, call: Call, *, began: bool) -> None:
        """No call starts that a person rejected, unless a person approved it knowing that."""
        if call.kind != "approval":
            return
        content = (call.agent, call.tool, call.args_hash)
        refusals = self.memory.store.refusals_of(*content)
        if before is None and call.status in (_S.READY, _S.RUNNING, _S.DONE, _S.FAILED):
            assert not refusals, "it was allowed although a person rejected it"
        if before is None and call.status is _S.ASKED:
            assert len(call.refusals) == min(len(refusals), MOST_SHOWN), "it is not shown"
        run = self.memory.run(call.run)
        in_force = [
            refusal
            for refusal in refusals
            if refusal.scope == (run.scope or run.id)
            and (refusal.ends is None or self.clock() < refusal.ends)
            and {vote.by for vote in call.votes} != {refusal.by}
        ]
        if before is None and call.status is _S.ASKED:
            assert not in_force, "it was asked about although its rejection counts"
        if began and call.attempt == 1:
            assert not in_force, "it started although its rejection counts"

    def _spend(self, call: Call) -> None:
        if call.grant in self.windows and call.attempt == 1:
            self._trusts(call)
        elif call.grant in self.plans and call.attempt == 1:
            self._follows(call)
        elif call.grant is not None and call.attempt == 1:
            self.spent[call.grant] += 1
            limit = self.grants[call.grant].uses_left
            assert limit is None or self.spent[call.grant] <= limit, "a grant was overdrawn"

    def _trusts(self, call: Call) -> None:
        """A call starts under a window only if one person could decide it, and nobody rejected."""
        window = self.windows[call.grant or ""]
        assert window.run == call.run, "a window of another run was used"
        assert self.clock() < window.ends, "a window was used after its end"
        terms = call.terms
        declared = terms.risk.level if terms.risk_declared else "high"
        assert declared in ("low", window.risk), "a window covered more risk"
        assert terms.quorum == 1, "a window replaced a quorum"
        assert not terms.reviewers or "ana" in terms.reviewers, "it is for other people"

    def _follows(self, call: Call) -> None:
        """A call starts under a plan only as its next step, which no other call has taken."""
        plan = self.plans[call.grant or ""]
        assert plan.run == call.run, "a plan of another run was used"
        assert plan.scope == self.memory.run(call.run).scope, "a plan was used in a later entry"
        assert self.clock() < plan.ends, "a plan was used after its end"
        content = (call.tool, codec.loads(call.args)["n"])
        places = [place for place, step in sorted(plan.left.items()) if step == content]
        assert places, "a plan covered a call that was none of its steps, or a second one"
        assert plan.any_order or places[0] == min(plan.left), "a step was taken before its turn"
        plan.taken[call.id] = (places[0], plan.left.pop(places[0]))
        terms = call.terms
        assert terms.risk_declared, "a plan covered an unknown risk"
        assert terms.risk.level in ("low", "medium"), "a plan covered more risk than it showed"
        assert terms.quorum == 1, "a plan replaced a quorum"
        assert not terms.reviewers or "ana" in terms.reviewers, "it is for other people"

    def _counts(self, call: Call) -> None:
        """No call starts without a person beyond a limit. A call that failed may not count."""
        for limit in map(bound_limit, call.terms.limits):
            others = [
                self.calls[other]
                for other, at, key in self.counted
                if key == limit.key and at > self.clock() - limit.per and other in self.calls
            ]
            counted = [call, *(other for other in others if other.status is not _S.FAILED)]
            numbers = [codec.loads(other.args)["n"] for other in counted]
            used = {"calls": len(numbers), "sum": sum(numbers), "distinct": len(set(numbers))}
            by_person = call.decision is not None and call.decision.type in ("approve", "edit")
            assert by_person or used[limit.measure] <= limit.most, "a limit was exceeded"
            self.counted.append((call.id, self.clock(), limit.key))

    # -- what happens to stores

    def seal(self) -> None:
        assert self.memory.store.seal() == self.sqlite.store.seal()

    def close_and_open(self) -> None:
        self.seal()
        self.memory.store.close()
        self.sqlite.store.close()
        self.sqlite.store = self._open()

    def crash(self) -> None:
        """Continue from a copy of the files, as after a power cut."""
        old = self.folders[-1]
        self.folders.append(Path(tempfile.mkdtemp(prefix="sayso-")))
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
            self.begin()

    # -- what always holds

    @invariant()
    def no_effect_happens_under_a_key_that_another_call_has(self) -> None:
        held = {effect.key: effect.call for effect in self.memory.store.effects()}
        for call in self.calls.values():
            began = call.attempt > 0 and call.terms.effect != "read"
            if call.effect_key and began and call.status in (_S.RUNNING, _S.IN_DOUBT):
                assert held[call.effect_key] == call.id, f"{call.id} runs under another's key"

    @invariant()
    def both_show_the_same(self) -> None:
        one, two = self.memory.everything(), self.sqlite.everything()
        for name in one:
            assert one[name] == two[name], name
        memory, sqlite = self.memory.store, self.sqlite.store
        assert set(memory.overdue()) == set(sqlite.overdue())
        assert _runs(memory.ready(["agent"], 9)) == _runs(sqlite.ready(["agent"], 9))
        assert _runs(memory.open_runs()) == _runs(sqlite.open_runs())
        for thread in THREADS:
            assert memory.last_run(thread) == sqlite.last_run(thread)
        for call in self.calls.values():
            if is_request(call):
                shown = [
                    request_json(
                        request_of(world.call(call), world.store.tool(call.tool_digest), self.clock)
                    )
                    for world in (self.memory, self.sqlite)
                ]
                assert shown[0] == shown[1]

    @invariant()
    def nothing_is_out_of_order(self) -> None:
        self.memory.check()
        for run in self.memory.store.ready(["agent"], 9):
            assert run.status in LIVE
        found = [self.memory.store.run(run) for run in self.memory.runs]
        runs = [run for run in found if run is not None]
        for thread in THREADS:
            live = [run for run in runs if run.thread == thread and run.status in LIVE]
            assert len(live) <= 1
        for grant in self.memory.store.grants(live_only=False):
            assert grant.uses_left is None or grant.uses_left >= 0


def _runs(runs: Any) -> list[Run]:
    return sorted(runs, key=lambda run: run.id)
