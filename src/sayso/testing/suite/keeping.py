"""Values survive unchanged: hostile text, large values, reopening, many OS threads."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from sayso import codec
from sayso.engine.commands import Note
from sayso.errors import AlreadyDecided, Conflict, SaysoError
from sayso.rows import CallStatus, Message
from sayso.stores.base import Query
from sayso.testing.checks import all_events
from sayso.testing.world import LEASE, World
from sayso.types import Reviewer, Risk

ANY = Query(status="any")

#: Text that has caused bugs elsewhere.
HOSTILE = {
    "quotes": "'; DROP TABLE call; -- \" ` \\ \\' %s %(x)s {x} ? :a $1",
    "like": "%_\\%\\_[a-z]*?",
    "lines": "a\r\nb\nc\rd\u2028e\u2029f\x85g\x0bh\x0ci",
    "control": "\x01\x07\x08\x1b[31m\x7f\x80\x9b31m",
    "bidi": "\u202eevil\u202c \u2066x\u2069 \u200fy",
    "invisible": "a\u200bb\u200dc\ufeffd\u00ade\U000e0041f\ufe0f",
    "spaces": " \t\u00a0\u3000 ",
    "wide": "\U0001f469\u200d\U0001f469\u200d\U0001f467 日本語 🏳️‍🌈 Ω≈ç√",
    "forms": "e\u0301 vs \u00e9, \ufb01, İıßŞ, K",
    "edges": "\ud7ff\ue000\ufffd\uffff\U00010000\U0010ffff",
    "json": '{"a": [1, null, "\\u0000"]}',
    "markup": "<script>alert(1)</script> **b** [l](javascript:1) <@U1|x> &amp;",
    "empty": "",
    "long": "x" * 10_000,
}


class Keeping:
    """Every value comes back byte for byte."""

    @pytest.mark.parametrize("name", sorted(HOSTILE))
    def test_hostile_text_in_every_field(self, world: World, name: str) -> None:
        text = HOSTILE[name]
        self._fill(world, text)
        world.check()
        world.store.seal()
        before = world.everything()
        world.reopen()
        assert world.everything() == before

    def _fill(self, world: World, text: str) -> None:
        some = text or "-"
        person = "zoë"  # names of people may not contain hidden characters
        thread, run, agent = f"t{some}", f"r{some}", f"a{some}"
        new = world.new(
            some,
            {"text": text, some: [text]},
            id=f"req_{some}",
            key=f"k{some}",
            binds=codec.dumps({"b": text}),
            note=text,
            preview=codec.dumps(text),
            rule=text,
            policy=text,
            description=text,
            reviewers=(person, f"group:{some}"),
            risk=Risk("high", (text, text)),
        )
        options = {"requester": text, "agent_digest": text, "parent_call": text, "snapshot": text}
        place: dict[str, Any] = {"run": run, "thread": thread}
        (call,) = world.propose(new, agent=agent, says=(text, text), **place, **options)
        assert call == world.call(f"req_{some}") == world.store.call_by_key(run, f"k{some}")
        assert (call.args, call.note, call.tool, call.agent) == (new.args, text, some, agent)
        assert (call.terms, call.binds, call.preview) == (new.terms, new.binds, new.preview)
        assert world.store.messages(thread) == [(1, text), (2, text)]
        opened = world.run(run)
        assert (opened.requester, opened.parent_call, opened.snapshot) == (text, text, text)
        assert world.store.live_run(thread) == opened
        (principal,) = [world.token(person, groups=(text, some), token_hash=f"h{some}")]
        assert world.store.principal(f"h{some}") == principal
        by = Reviewer(person, assurance="token")
        decided = world.decide(call, "reject", by, message=text, channel=text)
        assert decided == world.call(call)
        assert decided.decision is not None
        assert (decided.decision.message, decided.decision.channel) == (text, text)
        assert (decided.decision.by, world.body("decided")["message"]) == (person, text)
        started = world.running(owner=f"w{some}", **place)
        assert world.run(run).owner == f"w{some}"
        recorded = world.record(started, result=text, messages=(Message(run, text),), hold=True)
        assert (recorded.result, world.body("recorded")["result"]) == (text, text)
        grant = world.grant(some, {"const": text}, id=f"grt_{some}", agent=agent)
        assert world.store.grants() == [grant]
        assert world.finish(output=text, **place).output == text
        world.transact(Note(type=f"n{some}", actor=text, body={"k": text, "list": [text]}))
        assert world.body(f"n{some}")["list"] == [text]
        assert [thread.id for thread in world.store.threads()][-1:] != []

    @pytest.mark.parametrize("text", ["a\x00b", "half \ud800 a pair"])
    def test_what_cannot_be_kept_is_refused_and_not_bent(self, world: World, text: str) -> None:
        world.propose()
        world.ask(run="r1", thread="t1")
        before = world.everything()
        kept = 0
        for number, act in enumerate(self._ways_to_write(world, text)):
            try:
                assert act() == text, number
                kept += 1
            except SaysoError:
                pass
        if not kept:
            assert world.everything() == before
        world.ask(run="r9", thread="t9")

    def _ways_to_write(self, world: World, text: str) -> list[Callable[[], object]]:
        def reason() -> object:
            world.cancel(run="r1", thread="t1", reason=text)
            return world.run("r1").stop

        return [
            lambda: world.ask(note=text) and world.store.calls_of("r")[-1].note,
            lambda: world.propose(says=(text,)) or world.store.messages("t")[-1][1],
            lambda: world.propose(snapshot=text) or world.run().snapshot,
            lambda: world.transact(Note(type="n", actor=text)) and _actors(world)[-1],
            reason,
        ]

    def test_a_megabyte_of_arguments(self, world: World) -> None:
        args = {"blob": "é" * 500_000, "list": list(range(10_000))}
        call = world.ask(args=args)
        assert len(call.args.encode()) > 1_000_000
        assert world.call(call) == call
        edited = world.decide(call, "edit", args={**args, "list": []})
        assert world.call(call) == edited
        assert edited.original == call.args
        result = codec.dumps("ü" * 1_000_000)
        assert world.record(world.start(edited)[0], result=result).result == result
        world.propose(says=("m" * 1_000_000,))
        world.reopen()
        assert world.call(call).original == call.args
        assert world.call(call).result == result
        assert world.store.messages("t") == [(1, "m" * 1_000_000)]

    def test_a_value_that_looks_like_another_type_stays_text(self, world: World) -> None:
        for number, text in enumerate(["0", "1e3", "007", "null", "true", "0x10", "2026-01-01"]):
            new = world.new(id=f"{number}{text}", key=text)
            (call,) = world.propose(new, run=text, thread=f"t{text}")
            assert world.store.call_by_key(text, text) == call
            assert world.run(text).id == text

    def test_closing_and_opening_again_keeps_everything(self, world: World) -> None:
        world.token("ana", groups=("ops",))
        world.grant(uses_left=3, ends=world.clock() + 10**12)
        world.ask("pay", expires_in=60, quorum=2, reviewers=("ana", "bo"))
        calls = world.store.calls_of("r")
        world.decide(calls[0], by="ana")
        world.decide(world.ask("pay"), "edit", args={"n": 1})
        world.doubted(run="r2", thread="t2")
        running = world.running(run="r3", thread="t3")
        world.store.seal()
        before = world.everything()
        pages, incarnation = world.store.page(ANY), world.store.incarnation
        world.reopen()
        assert world.store.incarnation == incarnation != ""
        assert not world.store.restored()
        assert world.everything() == before
        assert world.store.page(ANY) == pages
        assert world.decide(calls[0], by="bo").status is CallStatus.READY
        assert world.record(running).status is CallStatus.DONE
        assert world.ask("pay").status is CallStatus.ASKED
        assert world.ask("send").status is CallStatus.READY

    # -- concurrency

    def test_many_decide_the_same_requests_and_one_wins_each(self, world: World) -> None:
        calls = [world.ask(run=f"r{n}", thread=f"t{n}") for n in range(6)]
        wins: Counter[str] = Counter()
        told: list[str] = []

        def decide(number: int) -> None:
            for call in calls:
                try:
                    world.decide(call, by=f"person-{number}", seen_digest=call.digest)
                    wins[call.id] += 1
                except AlreadyDecided as error:
                    told.append(str(error))

        _together(8, decide)
        assert [wins[call.id] for call in calls] == [1] * 6
        assert len(told) == 7 * 6
        for call in calls:
            row = world.call(call)
            assert row.decision is not None
            winner = row.decision.by
            assert sum(f"{winner} decided" in text and call.id in text for text in told) == 7

    def test_many_start_the_same_call_and_one_begins_it(self, world: World) -> None:
        call = world.ready()
        begun: list[str] = []

        def start(number: int) -> None:
            owner = f"w{number}"
            started = world.start(call, owner=owner)[0]
            if started.status is CallStatus.RUNNING and world.run().owner == owner:
                begun.append(owner)

        _together(8, start)
        assert len(begun) == 1
        assert world.call(call).attempt == 1

    def test_many_claim_the_same_run_and_one_gets_it(self, world: World) -> None:
        world.decide(world.ask())
        claims: list[object] = []
        _together(8, lambda number: claims.append(world.claim(f"w{number}", lease=LEASE)))
        assert len([claim for claim in claims if claim is not None]) == 1

    def test_many_write_to_one_thread_and_to_many(self, world: World) -> None:
        def work(number: int) -> None:
            for turn in range(5):
                world.ask(key=f"{number}-{turn}")
                own = world.ask(run=f"own-{number}", thread=f"own-{number}")
                world.decide(own, by=f"p{number}")
                world.store.page(ANY)
                world.store.events(world.store.tail())

        _together(6, work)
        assert len(world.store.calls_of("r")) == 30
        assert world.run().asked == 30
        assert len(world.store.chain("t")) == 30
        assert len({call.id for call in world.store.calls_of("r")}) == 30

    def test_many_make_the_same_call_and_it_is_one(self, world: World) -> None:
        ids: set[str] = set()
        conflicts: list[Conflict] = []

        def propose(number: int) -> None:
            try:
                ids.add(world.ask(key="same").id)
            except Conflict as error:
                conflicts.append(error)

        _together(8, propose)
        assert len(ids) == 1
        assert conflicts == []
        assert len(world.store.calls_of("r")) == 1

    def test_many_spend_one_grant_and_it_is_not_overdrawn(self, world: World) -> None:
        grant = world.grant(uses_left=5)
        calls = [world.ask(run=f"r{n}", thread=f"t{n}") for n in range(12)]
        statuses: list[str] = []
        _together(12, lambda n: statuses.append(world.start(calls[n])[0].status))
        assert Counter(statuses) == {"running": 5, "asked": 7}
        (left,) = [g.uses_left for g in world.store.grants(live_only=False) if g.id == grant.id]
        assert left == 0


def _actors(world: World) -> list[str]:
    return [event.actor for _, event in all_events(world.store)]


def _together(number: int, body: Callable[[int], object]) -> None:
    """Run a function in several OS threads that start together. Raise what any of them raises."""
    barrier = threading.Barrier(number)
    errors: list[BaseException] = []

    def run(index: int) -> None:
        try:
            barrier.wait()
            body(index)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
