"""The record: events and cursors, seals, pruning, people, and notifications of commits."""

from __future__ import annotations

import threading

import pytest

from sayso import codec
from sayso.engine.commands import Note, RevokePrincipal
from sayso.errors import Conflict, InvalidCall, NotFound
from sayso.rows import SYSTEM_THREAD, CallStatus, Event
from sayso.testing.checks import all_events, all_seals, all_threads, whole_chain
from sayso.testing.world import SECOND, World


class Recording:
    """``events``, ``newest``, ``chain``, ``threads``, ``seal``, ``prune``, ``subscribe``."""

    def test_a_cursor_goes_on_where_it_stopped(self, world: World) -> None:
        assert world.store.events() == []
        assert world.store.events(world.store.tail()) == []
        for number in range(5):
            world.ask(run=f"r{number % 2}", thread=f"t{number % 2}")
        whole = all_events(world.store)
        assert [event.type for _, event in whole] == ["asked"] * 5
        for size in (1, 2, 5, 9):
            assert all_events(world.store, page=size) == whole
        assert world.store.events(whole[2][0]) == whole[3:]
        assert world.store.events(whole[2][0], limit=1) == whole[3:4]
        # The position of an event works as a cursor, too.
        assert world.store.events(str(whole[2][1].pos)) == whole[3:]
        assert world.store.newest(str(whole[2][1].pos)) == whole[:2][::-1]
        assert world.store.events("0") == whole
        tail = world.store.tail()
        assert world.store.events(tail) == []
        world.decide(world.store.calls_of("r0")[0])
        assert [event.type for _, event in world.store.events(tail)] == ["decided"]

    def test_the_newest_events_come_first_page_by_page(self, world: World) -> None:
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

    def test_a_place_that_is_none_is_refused(self, world: World) -> None:
        for read in (world.store.events, world.store.newest):
            with pytest.raises(InvalidCall, match="not a cursor"):
                read("nowhere")

    def test_one_thread_is_found_among_its_likes(self, world: World) -> None:
        names = ["a", "a-1", "a-10", "b\U0010ffff", "ä", "\x01", "x" * 300]
        for name in names:
            world.ask(run=f"run {name}", thread=name)
        for name in names:
            found = world.store.thread(name)
            assert found is not None
            assert (found.id, found.seq) == (name, 1)
        for name in ("a-", "a-11", "b", "zz", ""):
            assert world.store.thread(name) is None

    def test_events_say_who_what_and_when(self, world: World) -> None:
        call = world.ask()
        world.clock.advance(7)
        world.decide(call)
        asked, decided = world.store.chain("t")
        assert (asked.actor, decided.actor) == ("agent:agent", "ana")
        assert decided.at - asked.at == 7 * SECOND
        assert (decided.thread, decided.run, decided.call) == ("t", "r", call.id)
        assert (asked.seq, decided.seq) == (1, 2)

    def test_a_chain_is_read_from_anywhere(self, world: World) -> None:
        call = world.ask()
        world.decide(call)
        world.record(world.start(call)[0])
        chain = world.store.chain("t")
        assert [event.seq for event in chain] == [1, 2, 3, 4]
        assert world.store.chain("t", after=2) == chain[2:]
        assert world.store.chain("t", after=1, limit=2) == chain[1:3]
        assert world.store.chain("none") == []
        assert whole_chain(world.store, "t", page=3) == chain

    def test_the_same_content_has_another_digest_each_time(self, world: World) -> None:
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

    def test_a_seal_names_the_chains_that_moved(self, world: World) -> None:
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

    def test_a_thousand_events_demand_a_seal(self, world: World) -> None:
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

    def test_an_event_that_is_a_minute_old_demands_a_seal(self, world: World) -> None:
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

    def test_a_timer_seals_what_no_commit_follows(self, world: World) -> None:
        assert world.store.seal_if_due() is None
        world.ask()
        assert world.store.seal_if_due() is None
        world.clock.advance(60)
        seal = world.store.seal_if_due()
        assert seal is not None
        assert world.store.seals() == [seal]
        assert world.store.seal_if_due() is None

    # -- pruning

    def test_pruning_forgets_contents_and_keeps_the_chain(self, world: World) -> None:
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
        world.check()

    def test_a_snapshot_shows_one_moment(self, world: World) -> None:
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

    def test_a_run_is_kept_until_the_call_that_began_it_has_ended(self, world: World) -> None:
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

    def test_pruning_names_what_was_forgotten_in_order(self, world: World) -> None:
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
        if not world.store.url.startswith("memory:"):
            assert [len(note["runs"]) for note in notes] == [100, 100, 50]
        world.check()

    def test_a_thread_goes_on_after_its_past_was_forgotten(self, world: World) -> None:
        world.propose(says=("one", "two"))
        world.ask(key="k")
        world.cancel()
        world.clock.advance(1)
        world.store.prune(world.clock(), "ops")
        world.propose(world.new(key="k"), run="r2", says=("three",))
        assert world.store.messages("t") == [(3, "three")]
        assert [event.seq for event in world.store.chain("t")] == [1, 2, 3, 4, 5]

    # -- people

    def test_people_and_their_tokens(self, world: World) -> None:
        ana = world.token("ana", role="admin", groups=("ops", "finance"))
        world.clock.advance(1)
        bo = world.token("bo", ends=world.clock() + SECOND)
        assert ana.created < bo.created == world.clock()
        assert world.store.principals() == [ana, bo]
        assert world.store.principal(ana.token_hash) == ana
        assert world.store.principal("unknown") is None
        (revoked,) = world.transact(RevokePrincipal(principal=ana.id, by="bo"))
        assert revoked.revoked == world.clock()
        assert world.store.principal(ana.token_hash) == revoked
        before = world.everything()
        world.clock.advance(1)
        assert world.transact(RevokePrincipal(principal=ana.id, by="bo")) == [revoked]
        assert world.everything() == before
        with pytest.raises(NotFound, match="tok_none"):
            world.transact(RevokePrincipal(principal="tok_none", by="bo"))

    @pytest.mark.parametrize("field", ["id", "token_hash"])
    def test_a_token_that_is_taken_is_a_conflict(self, world: World, field: str) -> None:
        ana = world.token("ana")
        world.transact(RevokePrincipal(principal=ana.id, by="bo"))
        before = world.everything()
        with pytest.raises(Conflict):
            world.token("eve", **{field: getattr(ana, field)})
        assert world.everything() == before

    # -- notifications

    def test_listeners_hear_of_their_thread(self, world: World) -> None:
        heard: dict[str | None, threading.Event] = {}
        subscriptions = []
        for thread in ("t", "t2", None):
            heard[thread] = threading.Event()
            subscriptions.append(world.store.subscribe(thread, heard[thread].set))
        call = world.ask()
        assert heard["t"].wait(5)
        assert heard[None].wait(5)
        assert not heard["t2"].wait(0.1)
        for subscription in subscriptions:
            subscription.cancel()
            subscription.cancel()
        threading.Event().wait(0.05)  # let notifications that are under way arrive
        for event in heard.values():
            event.clear()
        world.decide(call)
        assert not any(event.wait(0.05) for event in heard.values())

    def test_who_hears_can_read_what_was_committed(self, world: World) -> None:
        seen: list[int] = []
        heard = threading.Event()

        def listener() -> None:
            seen.append(len(world.store.calls_of("r")))
            heard.set()

        subscription = world.store.subscribe("t", listener)
        world.ask()
        assert heard.wait(5)
        assert seen[0] == 1
        subscription.cancel()

    def test_who_hears_may_write(self, world: World) -> None:
        said = threading.Event()

        def listener() -> None:
            if not said.is_set():
                said.set()
                world.propose(says=("I heard",), run="r2", thread="t2")

        subscription = world.store.subscribe("t", listener)
        world.ask()
        assert said.wait(5)
        for _ in range(1000):
            if world.store.messages("t2"):
                break
            threading.Event().wait(0.01)
        assert world.store.messages("t2") == [(1, "I heard")]
        subscription.cancel()

    def test_a_refused_command_is_no_news(self, world: World) -> None:
        world.ask()
        heard = threading.Event()
        subscription = world.store.subscribe("t", heard.set)
        # A store may notify once more for an earlier commit, but not every time.
        quiet = 0
        for _ in range(5):
            heard.clear()
            with pytest.raises(NotFound):
                world.finish(run="none")
            quiet += not heard.wait(0.05)
        assert quiet > 0
        subscription.cancel()

    def test_a_listener_that_raises_does_no_harm(self, world: World) -> None:
        def listener() -> None:
            raise RuntimeError("not my day")

        heard = threading.Event()
        subscriptions = [
            world.store.subscribe("t", listener),
            world.store.subscribe("t", heard.set),
        ]
        assert world.ask().status is CallStatus.ASKED
        assert heard.wait(5)
        for subscription in subscriptions:
            subscription.cancel()
