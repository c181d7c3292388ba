"""People, credentials and stand-ins in any order: who may decide, and whose votes count.

A hypothesis state machine adds, moves, removes and represents people, gives and revokes their
tokens and sessions, and lets all of them decide, also with what they knew about themselves long
ago. The model is a few plain records of what was done; it reads nothing from the store.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine_model import KEYS
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from sayso import audit
from sayso.errors import SaysoError
from sayso.inbox import (
    add_person,
    authenticate,
    change_person,
    create_token,
    remove_person,
    revoke_token,
    set_stand_in,
)
from sayso.inbox.directory import sign_in
from sayso.inbox.people import authenticate_session
from sayso.rows import Call, CallStatus, Proven
from sayso.stores.base import Store
from sayso.stores.sqlite import SqliteStore
from sayso.testing import FakeClock
from sayso.types import SECOND, Grant
from sayso_testing.world import World, tool_of

Data = st.DataObject

NAMES = ("ana", "bo", "cy")
GROUPS = ("finance", "ops")
CHANGES = ("sign in", "move", "role", "away", "away", *["leave"] * 4)
REVIEWERS = ((), ("ana",), ("group:finance",), ("group:finance", "bo"), ("ana", "cy"))
_DECIDERS = ("reviewer", "admin")


@dataclass
class Known:
    """A person, as the model knows them."""

    groups: set[str]
    role: str
    active: bool = True
    #: When they were restored: what is older does not count.
    since: int = 0
    stand_in: str = ""
    until: int = 0


@dataclass
class Held:
    """A token or a session, with the rights that its owner had when they got it."""

    by: Proven
    id: str
    made: int
    live: bool = True
    sessions: list[Held] = field(default_factory=list)


class PeopleMachine(RuleBasedStateMachine):
    """One store, and the model beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.folder = Path(tempfile.mkdtemp(prefix="sayso-"))
        self.store = self._open()
        self.world = World(self.store, self.clock)
        self.people: dict[str, Known] = {}
        self.held: list[Held] = []
        self.calls: list[str] = []

    def _open(self) -> Store:
        return SqliteStore(self.folder / "store.db", clock=self.clock, keys=KEYS)

    def teardown(self) -> None:
        assert audit.verify(self.store).problems == []
        self.store.close()
        shutil.rmtree(self.folder)

    def _now(self) -> int:
        self.clock.advance(0.001)  # so that the order of events is that of their times
        return self.clock()

    @initialize()
    def begin(self) -> None:
        """Make sure that there are people who may decide, and something to decide."""
        for name, groups, role in (
            ("ana", {"finance"}, "reviewer"),
            ("bo", set(), "reviewer"),
            ("cy", {"ops"}, "admin"),
        ):
            self._arrive(name, groups, role)
            self._sign_in(name, self._now(), session=True)
        for reviewers in REVIEWERS:
            self.ask(reviewers, 2 if len(reviewers) == 2 else 1)

    # -- people

    def _arrive(self, name: str, groups: set[str], role: str) -> None:
        """Add a person, or bring back one who was removed."""
        known = name in self.people
        now = self._now()
        add_person(self.store, name, by="ops", role=role, groups=groups, restore=known)
        self.people[name] = Known(set(groups), role, since=now if known else 0)

    @rule(name=st.sampled_from(NAMES), what=st.sampled_from(CHANGES), data=st.data())
    def change(self, name: str, what: str, data: Data) -> None:
        """Change what a person may do; one who has left comes back."""
        known, now = self.people[name], self._now()
        if not known.active and what == "leave":
            return
        if not known.active:
            groups = data.draw(st.sets(st.sampled_from(GROUPS)), label="groups")
            self._arrive(name, groups, data.draw(st.sampled_from(_DECIDERS), label="role"))
            self._sign_in(name, self._now(), session=False)
        elif what == "sign in":
            self._sign_in(name, now, session=data.draw(st.booleans(), label="session"))
        elif what == "move":
            group = data.draw(st.sampled_from(GROUPS), label="group")
            adds = group not in known.groups
            change_person(
                self.store, name, by="ops", **{f"{'add' if adds else 'remove'}_groups": (group,)}
            )
            known.groups ^= {group}
        elif what == "role":
            self.set_role(name, data.draw(st.sampled_from(["chat", *_DECIDERS]), label="role"))
        elif what == "away":
            self._draw_stand_in(name, data)
        else:
            self.leave(name)

    def set_role(self, name: str, role: str) -> None:
        change_person(self.store, name, by="ops", role=role)
        self.people[name].role = role

    def leave(self, name: str) -> None:
        known = self.people[name]
        known.since = self._now()
        remove_person(self.store, name, by="ops")
        known.active = False
        known.stand_in = ""
        for held in self.held:
            held.live = held.live and held.by.name != name

    @rule(data=st.data())
    def revoke(self, data: Data) -> None:
        held = data.draw(st.sampled_from(self.held), label="token")
        if held.live:
            revoke_token(self.store, held.id, by="ops")
        for ended in (held, *held.sessions):
            ended.live = False

    def _draw_stand_in(self, name: str, data: Data) -> None:
        others = [other for other, known in self.people.items() if known.active and other != name]
        stand_in = data.draw(st.sampled_from([*others, ""]), label="stand-in")
        self.leave_to(name, stand_in, data.draw(st.sampled_from([5, 1000]), label="seconds"))
        if data.draw(st.booleans(), label="time passes"):
            self.clock.advance(6)

    def leave_to(self, name: str, stand_in: str, seconds: int) -> None:
        """Name who decides for a person for some seconds; without a name, the person is back."""
        until = self._now() + seconds * SECOND
        set_stand_in(self.store, name, stand_in, until if stand_in else None, by="ops")
        self.people[name].stand_in = stand_in
        self.people[name].until = until

    def _sign_in(self, name: str, now: int, *, session: bool) -> None:
        secret, row = create_token(self.store, name, by="ops")
        self.held.append(Held(authenticate(self.store, secret), row.id, now))
        if session:
            by = authenticate_session(self.store, sign_in(self.store, secret))
            opened = next(c for c in self.store.credentials(name) if c.hash == by.proof)
            self.held.append(Held(by, opened.id, now))
            self.held[-2].sessions.append(self.held[-1])

    @rule(seconds=st.sampled_from([1, 6, 6, 100]))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)

    # -- deciding

    @rule(reviewers=st.sampled_from(REVIEWERS), quorum=st.sampled_from([1, 1, 2]))
    def ask(self, reviewers: tuple[str, ...], quorum: int) -> None:
        number = len(self.calls)
        place = {"thread": f"t{number}", "run": f"r{number}"}
        call = self.world.ask(args={"n": number}, reviewers=reviewers, quorum=quorum, **place)
        self.calls.append(call.id)
        assert call.status is CallStatus.ASKED or self._grant_holds(call), "nobody approved it"

    def _grant_holds(self, call: Call) -> bool:
        giver = next(g.by for g in self.store.grants(live_only=False) if g.id == call.grant)
        return self._meant(giver, call)

    @precondition(lambda self: self.calls)
    @rule(
        data=st.data(),
        type=st.sampled_from(["approve"] * 6 + ["edit", "reject"]),
        grants=st.booleans(),
    )
    def decide(self, data: Data, type: str, grants: bool) -> None:
        """Decide with any credential that was ever given, as it was then."""
        calls = [self.world.call(name) for name in self.calls[-6:]]
        pending = [call for call in calls if call.status is CallStatus.ASKED]
        call = data.draw(st.sampled_from(pending or calls), label="call")
        able = [held for held in self.held if self._whose(held, call)]
        instead = [held for held in able if held.by.name not in self._whose(held, call)]
        once = [held for held in self.held if self._represents(held.by.name, call, ever=True)]
        choices = data.draw(st.sampled_from([instead, able, once, self.held]), label="choices")
        held = data.draw(st.sampled_from(choices or self.held), label="credential")
        self.attempt(call, held, type, grants=grants)

    def attempt(self, call: Call, held: Held, type: str, *, grants: bool = False) -> None:
        """Decide, and check that it counts if and only if this person may do that now."""
        args = {"args": {"n": 99}} if type == "edit" else {}
        grant = self._grant(held.by.name) if grants and call.terms.quorum == 1 else None
        self._now()
        rights = self._whose(held, call)
        decision = self.world.decision(call, type, held.by, grant=grant, **args)
        refusal: SaysoError | None = None
        try:
            (after,) = self.store.transact(decision)
        except SaysoError as error:
            refusal = error
        if refusal is not None:
            lawful = grant is not None or call.status is not CallStatus.ASKED or not rights
            assert lawful or self._shares_vote(held.by.name, rights, call), str(refusal)
            return
        if after == call:
            return  # the same person again
        assert rights, "someone without the right has decided"
        self._check_votes(after)
        self._check_eligible(after)

    def _grant(self, name: str) -> Grant:
        return Grant(
            id=f"grt_{self.clock()}",
            agent="agent",
            tool="send",
            tool_digest=tool_of("send").digest,
            scope="{}",
            by=name,
            created=self.clock(),
        )

    # -- what must be so

    def _names(self, name: str) -> set[str]:
        return {name, *(f"group:{group}" for group in self.people[name].groups)}

    def _meant(self, name: str, call: Call) -> bool:
        reviewers = set(call.terms.reviewers)
        known = self.people[name]
        able = known.active and known.role in _DECIDERS
        return able and (not reviewers or bool(self._names(name) & reviewers))

    def _whose(self, held: Held, call: Call) -> set[str]:
        """Return the people for whom a credential may decide a call now."""
        name = held.by.name
        known = self.people[name]
        if not (held.live and held.made > known.since and known.role in _DECIDERS):
            return set()
        if self._meant(name, call):
            return {name}
        return self._represents(name, call)

    def _represents(self, name: str, call: Call, *, ever: bool = False) -> set[str]:
        """Return the people who could decide a call, and for whom this one decides now."""
        return {
            other
            for other, away in self.people.items()
            if away.stand_in == name
            and (ever or away.until > self.clock())
            and self._meant(other, call)
        }

    def _shares_vote(self, name: str, whose: set[str], call: Call) -> bool:
        voters = [{vote.by, vote.on_behalf_of} for vote in call.votes]
        return any(vote & {name, *whose} for vote in voters)

    def _check_votes(self, call: Call) -> None:
        """Each person counts once, as a voter or as one who is represented, and still may."""
        if call.status is not CallStatus.READY:
            return
        votes = [{vote.by, vote.on_behalf_of or vote.by} for vote in call.votes]
        assert len(set().union(*votes)) == sum(map(len, votes)), "a person counted twice"
        assert len(votes) >= call.terms.quorum
        for vote in call.votes:
            whose = vote.on_behalf_of or vote.by
            assert self._meant(whose, call), f"{whose} may not decide any more"
            voter = self.people[vote.by]
            assert voter.active, f"{vote.by} has left"
            assert voter.role in _DECIDERS, f"{vote.by} may not decide any more"
            assert vote.at >= max(voter.since, self.people[whose].since)

    def _check_eligible(self, call: Call) -> None:
        """Decisions name all people who could have made them, and nobody else."""
        latest: Any = call.decision or call.votes[-1]
        able = sorted(
            name
            for name, known in self.people.items()
            if self._meant(name, call)
            or (known.active and known.role in _DECIDERS and self._represents(name, call))
        )
        assert latest.eligible == tuple(able)
