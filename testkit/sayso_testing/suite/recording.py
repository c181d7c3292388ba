"""Commits and the record: atomicity, events, seals, pruning, and values that survive unchanged."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sayso import codec
from sayso.engine.commands import (
    COMMANDS,
    AddGrant,
    Cancel,
    Command,
    EndCredentials,
    Expire,
    Finish,
    Note,
    Propose,
    ReadRun,
    Record,
    Start,
)
from sayso.errors import AlreadyDecided, Conflict, InvalidCall, NotFound, SaysoError
from sayso.rows import SYSTEM_THREAD, Call, CallStatus, Event, Message, RunStatus
from sayso.stores.address import is_in_memory
from sayso.stores.base import Query
from sayso.types import Grant, Reviewer, Risk
from sayso_testing.checks import all_events, all_seals, all_threads, chain_events
from sayso_testing.world import LEASE, RUN, SECOND, World, attempt_of


class AtomicityTests:
    """What ``transact`` does is done as a whole, or not at all."""

    def test_several_commands_are_one_commit(self, world: World) -> None:
        call = world.running()
        done, run = world.transact(_recorded(call), Finish(thread="t", run="r", status="done"))
        assert (done.status, run.status) == (CallStatus.DONE, RunStatus.DONE)
        assert (world.call(call), world.run()) == (done, run)
        assert world.events()[-2:] == ["recorded", "finished"]

    def test_look_returns_the_run_as_committed(self, world: World) -> None:
        """The run comes back as it was committed; reading it is not a boundary."""
        crossed: list[str] = []
        world.store.boundary = lambda name, when: crossed.append(name)
        propose = Propose(**RUN, agent="agent", calls=(world.new(),))
        (call,), run = world.transact(propose, ReadRun(**RUN))
        assert run == world.run()
        assert (run.status, run.asked) == (RunStatus.PAUSED, 1)
        assert call == world.call(call)
        assert set(crossed) == {"propose"}

    def test_later_commands_see_earlier_ones(self, world: World) -> None:
        asked = world.ask()
        start = Start(**RUN, calls=(asked.id,), seen=(asked.mac,), owner="w1", lease=LEASE)
        _, (started,) = world.transact(world.decision(asked), start)
        assert started.status is CallStatus.RUNNING
        assert world.call(asked) == started

    def test_failing_command_rolls_back_all(self, world: World) -> None:
        asked, hello = world.ask(), (Message("r", "hello"),)
        before = world.everything()
        good: list[Command] = [
            Propose(
                **RUN, agent="agent", calls=(world.new("other"),), messages=hello, snapshot="{}"
            ),
            Cancel(**RUN, call=asked.id, by="ana"),
        ]
        bad = Finish(**RUN, status="done", token=99)
        for commands in ([*good, bad], [bad, *good], [good[0], bad, good[1]]):
            with pytest.raises(Conflict):
                world.transact(*commands)
            assert world.everything() == before
        world.transact(*good)
        assert world.everything() != before

    def test_failed_transaction_creates_no_run(self, world: World) -> None:
        propose = Propose(**RUN, agent="agent", messages=(Message("r", "hello"),))
        with pytest.raises(NotFound):
            world.transact(propose, Expire(**RUN, call="none"))
        assert world.store.run("r") is None
        assert world.store.live_run("t") is None
        assert world.store.messages("t") == []
        assert world.store.threads() == []
        world.ask()

    def test_transaction_across_threads_or_runs_is_refused(self, world: World) -> None:
        world.ask()
        world.ask(run="r2", thread="t2")
        with world.unchanged():
            mixed: list[list[Command]] = [
                [_note("t"), _note("t2")],
                [Expire(thread="t", run="r", call="a"), Expire(thread="t", run="r2", call="b")],
            ]
            for commands in mixed:
                with pytest.raises(SaysoError):
                    world.transact(*commands)

    def test_command_with_mismatched_ids_is_refused(self, world: World) -> None:
        call = world.ask(expires_in=1)
        other = world.ask(expires_in=1, run="r2", thread="t2")
        world.clock.advance(1)
        with world.unchanged():
            wrong = [
                Expire(thread="t2", run="r", call=call.id),
                Expire(thread="t", run="r2", call=call.id),
                Expire(thread="t", run="r", call=other.id),
                Finish(thread="t2", run="r", status="done", token=0),
            ]
            for command in wrong:
                with pytest.raises((Conflict, NotFound)):
                    world.transact(command)

    def test_refused_command_does_not_block_the_next(self, world: World) -> None:
        for _ in range(3):
            with pytest.raises(NotFound):
                world.finish(run="none")
            world.ask()
        assert len(world.store.calls_of("r")) == 3

    def test_bug_in_a_command_changes_nothing(self, world: World) -> None:
        world.propose()
        with world.unchanged():
            for _ in range(2):
                with pytest.raises(ValueError, match="no such status"):
                    world.finish("no such status")
        assert world.finish().status is RunStatus.DONE

    def test_boundaries_are_named_after_their_commands(self, world: World) -> None:
        crossed: list[tuple[str, str]] = []
        world.store.boundary = lambda name, when: crossed.append((name, when))
        call = world.running()
        with pytest.raises(NotFound):
            world.finish(run="none")
        world.transact(_recorded(call), Finish(thread="t", run="r", status="done"))
        names = ["propose", "start", "record+finish"]
        assert crossed == [(name, when) for name in names for when in ("before", "after")]
        assert {part for name in names for part in name.split("+")} <= {c.name for c in COMMANDS}

    def test_failure_before_the_commit_changes_nothing(self, world: World) -> None:
        def fail(name: str, when: str) -> None:
            if when == "before":
                raise RuntimeError("the lights went out")

        world.ask()
        before = world.everything()
        world.store.boundary = fail
        with pytest.raises(RuntimeError, match="lights"):
            world.ask()
        world.store.boundary = None
        assert world.everything() == before
        world.ask("something else")
        assert len(world.store.calls_of("r")) == 2

    def test_notes_are_events(self, world: World) -> None:
        world.transact(Note(type="policy_loaded", actor="ops", body={"digest": "d", "n": 1}))
        world.transact(_note("t"))
        assert world.events() == ["policy_loaded", "noted"]
        assert world.body("policy_loaded")["digest"] == "d"
        assert {thread.id for thread in world.store.threads()} >= {"@system"}

    def test_grants_and_tokens_are_system_events(self, world: World) -> None:
        world.grant()
        world.token("ana")
        assert [thread.id for thread in world.store.threads()] == ["@system"]
        assert world.events("@system") == ["granted", "person_added", "token_created"]
        grant = Grant(
            id="grt_y", agent="a", tool="t", tool_digest="d", scope="{}", by="ana", created=0
        )
        assert AddGrant(grant=grant).thread == "@system"


def _note(thread: str) -> Note:
    return Note(thread=thread, type="noted", actor="ops")


def _recorded(call: Call) -> Record:
    return Record(**attempt_of(call), ok=True, result="1")


class RecordTests:
    """``events``, ``newest``, ``chain``, ``threads``, ``seal``, ``prune``, ``subscribe``."""

    def test_cursor_resumes_at_its_position(self, world: World) -> None:
        assert world.store.events() == []
        assert world.store.events(world.store.tail()) == []
        for number in range(5):
            world.ask(run=f"r{number % 2}", thread=f"t{number % 2}")
        events = all_events(world.store)
        assert [event.type for _, event in events] == ["asked"] * 5
        for size in (1, 2, 5, 9):
            assert all_events(world.store, page=size) == events
        assert world.store.events(events[2][0]) == events[3:]
        assert world.store.events(events[2][0], limit=1) == events[3:4]
        # The position of an event works as a cursor, too.
        assert world.store.events(str(events[2][1].pos)) == events[3:]
        assert world.store.newest(str(events[2][1].pos)) == events[:2][::-1]
        assert world.store.events("0") == events
        tail = world.store.tail()
        assert world.store.events(tail) == []
        world.decide(world.store.calls_of("r0")[0])
        assert [event.type for _, event in world.store.events(tail)] == ["decided"]

    def test_newest_events_are_paged_backwards(self, world: World) -> None:
        store = world.store
        assert store.newest() == []
        for number in range(7):
            world.ask(run=f"r{number}", thread=f"t{number}")
        forward = all_events(store)
        backward: list[tuple[str, Event]] = []
        while page := store.newest(backward[-1][0] if backward else "", limit=3):
            backward += page
        assert backward == forward[::-1]
        assert [len(store.newest(limit=limit)) for limit in (1, 7, 50)] == [1, 7, 7]
        # New events do not shift the pages that follow.
        world.ask(run="later", thread="later")
        assert store.newest(forward[3][0], limit=50) == forward[:3][::-1]

    def test_invalid_cursor_is_refused(self, world: World) -> None:
        for read in (world.store.events, world.store.newest):
            with pytest.raises(InvalidCall, match="not a cursor"):
                read("nowhere")

    def test_similar_thread_names_are_distinct(self, world: World) -> None:
        names = ["a", "a-1", "a-10", "b\U0010ffff", "ä", "\x01", "x" * 300]
        for name in names:
            world.ask(run=f"run {name}", thread=name)
        for name in names:
            found = world.store.thread(name)
            assert found is not None
            assert (found.id, found.seq) == (name, 1)
        for name in ("a-", "a-11", "b", "zz", ""):
            assert world.store.thread(name) is None

    def test_events_have_actor_position_and_time(self, world: World) -> None:
        call = world.ask()
        world.clock.advance(7)
        world.decide(call)
        asked, decided = world.store.chain("t")
        assert (asked.actor, decided.actor) == ("agent:agent", "ana")
        assert decided.at - asked.at == 7 * SECOND
        assert (decided.thread, decided.run, decided.call) == ("t", "r", call.id)
        assert (asked.seq, decided.seq) == (1, 2)

    def test_chain_is_read_from_anywhere(self, world: World) -> None:
        call = world.ask()
        world.decide(call)
        world.record(world.start(call)[0])
        chain = world.store.chain("t")
        assert [event.seq for event in chain] == [1, 2, 3, 4]
        assert world.store.chain("t", after=2) == chain[2:]
        assert world.store.chain("t", after=1, limit=2) == chain[1:3]
        assert world.store.chain("none") == []
        assert chain_events(world.store, "t", page=3) == chain

    def test_equal_bodies_have_different_digests(self, world: World) -> None:
        """Otherwise a pruned body could be guessed by hashing candidates."""
        for number in (1, 2):
            call = world.ask(run=f"r{number}", thread=f"t{number}")
            world.decide(call, "reject", message="no")
        digests = [event.digest for _, event in all_events(world.store)]
        assert len(set(digests)) == len(digests)

    def test_threads_are_listed_page_by_page(self, world: World) -> None:
        names = [f"t-{number:02d}" for number in range(7)] + ["Ünïcode", "T-upper", "t-"]
        for name in names:
            world.ask(thread=name, run=f"run {name}")
        for size in (1, 3, 50):
            found = [thread.id for thread in all_threads(world.store, page=size)]
            assert sorted(found) == sorted(names)

    # -- seals

    def test_seal_lists_the_changed_threads(self, world: World) -> None:
        assert world.store.seal() is None
        world.ask()
        world.ask(run="r2", thread="t2")
        first = world.store.seal()
        assert first is not None
        assert (first.n, first.prev, first.at) == (1, "", world.clock())
        heads = {thread.id: thread.head for thread in world.store.threads()}
        assert codec.loads(first.heads) == [["t", 1, heads["t"]], ["t2", 1, heads["t2"]]]
        assert world.store.seal() is None
        world.ask()
        second = world.store.seal()
        assert second is not None
        assert (second.n, second.prev) == (2, first.hash)
        assert [head[:2] for head in codec.loads(second.heads)] == [["t", 2]]
        assert all_seals(world.store) == world.store.seals() == [first, second]
        assert world.store.seals(after=1) == [second]
        assert world.store.seals(limit=1) == [first]
        assert {thread.sealed for thread in world.store.threads()} == {1, 2}

    def test_write_without_an_event_keeps_the_seal(self, world: World) -> None:
        call, grant = world.decide(world.ask()), world.grant()
        world.store.seal()
        world.reopen()
        assert world.decide(call, grant=grant).status == "ready"  # it is decided already
        assert {thread.moved for thread in world.store.threads()} == {0}

    def test_thousand_events_are_sealed(self, world: World) -> None:
        notes = [Note(type="seen", actor="ana")] * 111
        for count in range(9):
            world.store.transact(*notes)
            assert world.store.seals() == [], f"{(count + 1) * 111} events"
        world.store.transact(Note(type="seen", actor="ana"))
        (seal,) = world.store.seals()
        assert [head[:2] for head in codec.loads(seal.heads)] == [[SYSTEM_THREAD, 1000]]
        for _ in range(9):
            world.store.transact(*notes)
        assert world.store.seals() == [seal]

    def test_events_are_sealed_after_a_minute(self, world: World) -> None:
        world.ask(thread="t", run="r")
        world.clock.advance(59)
        world.ask(thread="t2", run="r2")
        assert world.store.seals() == []
        world.clock.advance(1)
        world.ask(thread="t3", run="r3")
        (seal,) = world.store.seals()
        assert [head[:2] for head in codec.loads(seal.heads)] == [["t", 1], ["t2", 1], ["t3", 1]]
        world.clock.advance(59)
        world.ask(thread="t4", run="r4")
        world.clock.advance(59)
        world.ask(thread="t5", run="r5")
        assert world.store.seals() == [seal]
        world.clock.advance(1)
        world.ask(thread="t6", run="r6")
        assert len(world.store.seals()) == 2

    def test_seal_if_due_seals_without_a_commit(self, world: World) -> None:
        assert world.store.seal_if_due() is None
        world.ask()
        assert world.store.seal_if_due() is None
        world.clock.advance(60)
        seal = world.store.seal_if_due()
        assert seal is not None
        assert world.store.seals() == [seal]
        assert world.store.seal_if_due() is None

    # -- pruning

    def test_pruning_deletes_contents_and_keeps_the_chain(self, world: World) -> None:
        old = world.record(world.running(run="old", thread="t1", note="secret"))
        world.propose(says=("a secret",), run="old", thread="t1")
        world.finish(run="old", thread="t1")
        waiting = world.ask(run="waiting", thread="t2")
        world.propose(run="busy", thread="t3")
        world.finish(run="busy", thread="t3")
        world.clock.advance(100)
        limit = world.clock()
        world.ask(run="busy-2", thread="t3")
        world.propose(run="new", thread="t4")
        world.finish(run="new", thread="t4")
        count = len(all_events(world.store))
        counts = world.store.prune(limit, "ops")
        assert counts == {"bodies": 5, "calls": 1, "messages": 1, "runs": 1}
        assert world.store.run("old") is None
        assert world.store.call(old.id) is None
        assert world.store.call_by_key("old", old.key) is None
        assert world.store.calls_of("old") == []
        assert world.store.calls_like(old.id, 9) == []
        assert world.store.messages("t1") == []
        assert all(event.body is None for event in world.store.chain("t1"))
        assert world.call(waiting).status is CallStatus.ASKED
        for run in ("busy", "busy-2", "new", "waiting"):
            assert world.store.run(run) is not None
        assert len(all_events(world.store)) == count + 1
        assert {thread.sealed - thread.seq for thread in world.store.threads()} == {0}
        note = world.body("pruned")
        assert (note["runs"], note["before"], note["counts"]) == (["old"], limit, counts)

    def test_snapshot_ignores_concurrent_writes(self, world: World) -> None:
        call = world.ask(run="r1", thread="t1")
        with world.store.snapshot() as rows:
            assert rows.call(call.id) == call
            other = threading.Thread(target=lambda: world.decide(call))
            other.start()
            other.join(0.2)
            assert rows.call(call.id) == call
            assert [event.type for event in rows.chain("t1")] == ["asked"]
            assert rows.orphan_events(10) == []
        other.join()
        assert world.call(call).status is CallStatus.READY
        assert len(world.store.chain("t1")) == 2

    def test_inner_run_is_kept_with_its_call(self, world: World) -> None:
        outer = world.running(run="outer", thread="t1")
        world.propose(run="inner", thread="t2", parent_call=outer.id)
        world.finish(run="inner", thread="t2")
        world.clock.advance(100)
        assert world.store.prune(world.clock(), "ops")["runs"] == 0
        assert world.store.run("inner") is not None
        world.record(outer)
        assert world.store.prune(world.clock(), "ops")["runs"] == 1
        assert world.store.run("inner") is None

    def test_pruning_twice_finds_nothing(self, world: World) -> None:
        world.propose(world.new(verdict="deny"))
        world.finish()
        world.clock.advance(1)
        assert world.store.prune(world.clock(), "ops")["runs"] == 1
        assert world.store.prune(world.clock(), "ops")["runs"] == 0

    def test_pruning_records_the_runs_in_order(self, world: World) -> None:
        for name in ("b", "c", "a"):
            world.propose(world.new(), run=name, thread=f"t-{name}")
            world.cancel(run=name, thread=f"t-{name}")
        world.clock.advance(1)
        assert world.store.prune(world.clock(), "ops")["runs"] == 3
        assert world.body("pruned")["runs"] == ["a", "b", "c"]

    def test_pruning_many_runs_is_many_small_transactions(self, world: World) -> None:
        names = sorted(f"run-{number}" for number in range(250))
        for name in names:
            world.propose(world.new(), run=name, thread=f"t-{name}")
            world.cancel(run=name, thread=f"t-{name}")
        world.clock.advance(1)
        assert world.store.prune(world.clock(), "ops")["runs"] == 250
        notes = [codec.loads(event.body or "") for event in world.store.chain(SYSTEM_THREAD)]
        assert sorted(run for note in notes for run in note["runs"]) == names
        if not is_in_memory(world.store.url):
            assert [len(note["runs"]) for note in notes] == [100, 100, 50]

    def test_pruned_thread_continues_its_numbers(self, world: World) -> None:
        world.propose(says=("one", "two"))
        world.ask(key="k")
        world.cancel()
        world.clock.advance(1)
        world.store.prune(world.clock(), "ops")
        world.propose(world.new(key="k"), run="r2", says=("three",))
        assert world.store.messages("t") == [(3, "three")]
        assert world.store.messages_beyond("t", 2, 0) == [(3, "three")]
        assert world.store.messages_beyond("t", 2, 2) is None
        assert [event.seq for event in world.store.chain("t")] == [1, 2, 3, 4, 5]

    # -- people

    def test_people_and_their_tokens_are_stored(self, world: World) -> None:
        ana = world.token("ana", role="admin", groups=("ops", "finance"))
        world.clock.advance(1)
        bo = world.token("bo", ends=world.clock() + SECOND)
        assert ana.created < bo.created == world.clock()
        assert world.store.credentials() == [ana, bo]
        assert world.store.credentials("bo") == [bo]
        assert world.store.credential(ana.hash) == ana
        assert world.store.credential("unknown") is None
        assert [person.name for person in world.store.people()] == ["ana", "bo"]
        stored = world.store.person("ana")
        assert stored is not None
        assert (stored.role, stored.groups) == ("admin", ("ops", "finance"))
        assert world.store.person("bob") is None

    def test_ending_a_token_twice_changes_nothing(self, world: World) -> None:
        ana = world.token("ana")
        end = EndCredentials(person="ana", ids=(ana.id,), by=Reviewer("bo"))
        (ended,) = world.transact(end)
        assert [one.revoked for one in ended] == [world.clock()]
        assert world.store.credential(ana.hash) == ended[0]
        with world.unchanged():
            world.clock.advance(1)
            assert world.transact(end) == [()]
        with pytest.raises(NotFound, match="tok_none"):
            world.transact(EndCredentials(person="ana", ids=("tok_none",), by=Reviewer("bo")))

    @pytest.mark.parametrize("field", ["id", "hash"])
    @pytest.mark.parametrize("name", ["ana", "eve"])
    def test_duplicate_token_conflicts(self, world: World, field: str, name: str) -> None:
        ana = world.token("ana")
        world.person("eve")
        with world.unchanged(), pytest.raises(Conflict):
            world.token(name, **{field: getattr(ana, field)})

    # -- notifications

    def test_listeners_are_notified_of_their_thread(self, world: World) -> None:
        notified: dict[str | None, threading.Event] = {}
        subscriptions = []
        for thread in ("t", "t2", None):
            notified[thread] = threading.Event()
            subscriptions.append(world.store.subscribe(thread, notified[thread].set))
        call = world.ask()
        assert notified["t"].wait(5)
        assert notified[None].wait(5)
        assert not notified["t2"].wait(0.1)
        for subscription in subscriptions:
            subscription.cancel()
            subscription.cancel()
        threading.Event().wait(0.05)  # let notifications that are under way arrive
        for event in notified.values():
            event.clear()
        world.decide(call)
        assert not any(event.wait(0.05) for event in notified.values())

    def test_listener_can_read_the_commit(self, world: World) -> None:
        seen: list[int] = []
        notified = threading.Event()

        def listener() -> None:
            seen.append(len(world.store.calls_of("r")))
            notified.set()

        subscription = world.store.subscribe("t", listener)
        world.ask()
        assert notified.wait(5)
        assert seen[0] == 1
        subscription.cancel()

    def test_listener_may_write(self, world: World) -> None:
        called = threading.Event()

        def listener() -> None:
            if not called.is_set():
                called.set()
                world.propose(says=("I heard",), run="r2", thread="t2")

        subscription = world.store.subscribe("t", listener)
        world.ask()
        assert called.wait(5)
        for _ in range(1000):
            if world.store.messages("t2"):
                break
            threading.Event().wait(0.01)
        assert world.store.messages("t2") == [(1, "I heard")]
        subscription.cancel()

    def test_messages_are_readable_while_a_thread_begins(self, world: World) -> None:
        def begin() -> None:
            for number in range(100):
                world.propose(says=("hello",), run=f"r{number}", thread=f"t{number}")

        writer = threading.Thread(target=begin)
        writer.start()
        for number in range(100):
            found: list[tuple[int, str]] = []
            while not found:
                ended = not writer.is_alive()
                found = world.store.messages(f"t{number}")
                assert found or not ended
            assert found == [(1, "hello")]
        writer.join()

    def test_refused_command_does_not_notify(self, world: World) -> None:
        world.ask()
        notified = threading.Event()
        subscription = world.store.subscribe("t", notified.set)
        # A store may notify once more for an earlier commit, but not every time.
        quiet = 0
        for _ in range(5):
            notified.clear()
            with pytest.raises(NotFound):
                world.finish(run="none")
            quiet += not notified.wait(0.05)
        assert quiet > 0
        subscription.cancel()

    def test_listener_may_raise(self, world: World) -> None:
        def listener() -> None:
            raise RuntimeError("not my day")

        notified = threading.Event()
        subscriptions = [
            world.store.subscribe("t", listener),
            world.store.subscribe("t", notified.set),
        ]
        assert world.ask().status is CallStatus.ASKED
        assert notified.wait(5)
        for subscription in subscriptions:
            subscription.cancel()


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


class StorageTests:
    """Every value comes back byte for byte."""

    @pytest.mark.parametrize("name", sorted(HOSTILE))
    def test_hostile_text_in_every_field(self, world: World, name: str) -> None:
        text = HOSTILE[name]
        self._fill(world, text)
        world.check()
        world.store.seal()
        with world.unchanged():
            world.reopen()

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
        # The signature of a person covers the groups, so any text survives in them.
        zoe = world.person(f"{person}{some}", text, some) if text.isprintable() else None
        assert zoe is None or world.store.person(zoe.name) == zoe
        by = Reviewer(person)
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
    def test_unstorable_text_is_refused_unchanged(self, world: World, text: str) -> None:
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

        def last_actor() -> str:
            return all_events(world.store)[-1][1].actor

        return [
            lambda: world.ask(note=text) and world.store.calls_of("r")[-1].note,
            lambda: world.propose(says=(text,)) or world.store.messages("t")[-1][1],
            lambda: world.propose(snapshot=text) or world.run().snapshot,
            lambda: world.transact(Note(type="n", actor=text)) and last_actor(),
            reason,
        ]

    def test_megabyte_of_arguments(self, world: World) -> None:
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

    def test_text_that_looks_like_a_number_stays_text(self, world: World) -> None:
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
        with world.unchanged():
            pages, incarnation = world.store.page(ANY), world.store.incarnation
            world.reopen()
            assert world.store.incarnation == incarnation != ""
            assert not world.store.restored()
        assert world.store.page(ANY) == pages
        assert world.decide(calls[0], by="bo").status is CallStatus.READY
        assert world.record(running).status is CallStatus.DONE
        assert world.ask("pay").status is CallStatus.ASKED
        assert world.ask("send").status is CallStatus.READY

    # -- concurrency

    def test_many_threads_decide_and_one_wins(self, world: World) -> None:
        calls = [world.ask(run=f"r{n}", thread=f"t{n}") for n in range(6)]
        wins: Counter[str] = Counter()
        errors: list[str] = []

        def decide(number: int) -> None:
            for call in calls:
                try:
                    world.decide(call, by=f"person-{number}", seen_digest=call.digest)
                    wins[call.id] += 1
                except AlreadyDecided as error:
                    errors.append(str(error))

        _in_threads(8, decide)
        assert [wins[call.id] for call in calls] == [1] * 6
        assert len(errors) == 7 * 6
        for call in calls:
            row = world.call(call)
            assert row.decision is not None
            winner = row.decision.by
            assert sum(f"{winner} decided" in text and call.id in text for text in errors) == 7

    def test_many_threads_start_a_call_and_one_wins(self, world: World) -> None:
        call = world.ready()
        begun: list[str] = []

        def start(number: int) -> None:
            owner = f"w{number}"
            started = world.start(call, owner=owner)[0]
            if started.status is CallStatus.RUNNING and world.run().owner == owner:
                begun.append(owner)

        _in_threads(8, start)
        assert len(begun) == 1
        assert world.call(call).attempt == 1

    def test_many_threads_claim_a_run_and_one_wins(self, world: World) -> None:
        world.decide(world.ask())
        claims: list[object] = []
        _in_threads(8, lambda number: claims.append(world.claim(f"w{number}", lease=LEASE)))
        assert len([claim for claim in claims if claim is not None]) == 1

    def test_many_threads_write_at_once(self, world: World) -> None:
        def work(number: int) -> None:
            for turn in range(5):
                world.ask(key=f"{number}-{turn}")
                own = world.ask(run=f"own-{number}", thread=f"own-{number}")
                world.decide(own, by=f"p{number}")
                world.store.page(ANY)
                world.store.events(world.store.tail())

        _in_threads(6, work)
        assert len(world.store.calls_of("r")) == 30
        assert world.run().asked == 30
        assert len(world.store.chain("t")) == 30
        assert len({call.id for call in world.store.calls_of("r")}) == 30

    def test_same_key_from_many_threads_is_one_call(self, world: World) -> None:
        ids: set[str] = set()
        conflicts: list[Conflict] = []

        def propose(number: int) -> None:
            try:
                ids.add(world.ask(key="same").id)
            except Conflict as error:
                conflicts.append(error)

        _in_threads(8, propose)
        assert len(ids) == 1
        assert conflicts == []
        assert len(world.store.calls_of("r")) == 1

    def test_many_threads_do_not_overdraw_a_grant(self, world: World) -> None:
        grant = world.grant(uses_left=5)
        calls = [world.ask(run=f"r{n}", thread=f"t{n}") for n in range(12)]
        statuses: list[str] = []
        _in_threads(12, lambda n: statuses.append(world.start(calls[n])[0].status))
        assert Counter(statuses) == {"running": 5, "asked": 7}
        (left,) = [g.uses_left for g in world.store.grants(live_only=False) if g.id == grant.id]
        assert left == 0


def _in_threads(number: int, body: Callable[[int], object]) -> None:
    """Run a function in several OS threads that start together. Raise what any of them raises."""
    barrier = threading.Barrier(number)

    def run(index: int) -> None:
        barrier.wait()
        body(index)

    with ThreadPoolExecutor(number) as threads:
        list(threads.map(run, range(number)))
