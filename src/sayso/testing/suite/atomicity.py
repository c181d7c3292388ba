"""Atomicity: a command that raises changes nothing, and several commands are one commit."""

from __future__ import annotations

import pytest

from sayso.engine.commands import (
    COMMANDS,
    AddGrant,
    Cancel,
    Command,
    Decide,
    Expire,
    Finish,
    Look,
    Note,
    Propose,
    Record,
    Start,
)
from sayso.errors import Conflict, NotFound, SaysoError
from sayso.rows import Call, CallStatus, Message, RunStatus
from sayso.testing.world import LEASE, World
from sayso.types import Grant, Reviewer


class Atomicity:
    """``transact`` and ``transact_now``."""

    def test_several_commands_are_one_commit(self, world: World) -> None:
        call = world.running()
        done, run = world.transact(_recorded(call), Finish(thread="t", run="r", status="done"))
        assert (done.status, run.status) == (CallStatus.DONE, RunStatus.DONE)
        assert (world.call(call), world.run()) == (done, run)
        assert world.events()[-2:] == ["recorded", "finished"]

    def test_what_is_done_now_is_done_like_anything_else(self, world: World) -> None:
        """``transact_now`` may decline, and then nothing has changed."""
        call = world.running()
        finish = Finish(thread="t", run="r", status="done")
        results = world.store.transact_now(_recorded(call), finish)
        if results is None:
            assert world.call(call) == call
        else:
            assert (world.call(call), world.run()) == tuple(results)
            assert world.events()[-2:] == ["recorded", "finished"]
        world.check()

    def test_a_writer_may_look_at_what_it_leaves(self, world: World) -> None:
        """The run comes back as it was committed; reading it is not a boundary."""
        crossed: list[str] = []
        world.store.boundary = lambda name, when: crossed.append(name)
        (call,), run = world.transact(
            Propose(thread="t", run="r", agent="agent", calls=(world.new(),)),
            Look(thread="t", run="r"),
        )
        assert run == world.run()
        assert (run.status, run.asked) == (RunStatus.PAUSED, 1)
        assert call == world.call(call)
        assert set(crossed) == {"propose"}

    def test_later_commands_see_what_earlier_ones_did(self, world: World) -> None:
        new = world.new()
        propose = Propose(thread="t", run="r", agent="agent", calls=(new,))
        ((asked,),) = world.transact(propose)
        decide = Decide(
            thread="t",
            run="r",
            call=asked.id,
            type="approve",
            by=Reviewer("ana"),
            channel="test",
            seen_digest=asked.digest,
        )
        start = Start(
            thread="t", run="r", calls=(asked.id,), seen=(asked.mac,), owner="w1", lease=LEASE
        )
        _, (started,) = world.transact(decide, start)
        assert started.status is CallStatus.RUNNING
        assert world.call(asked) == started

    def test_when_one_raises_none_has_happened(self, world: World) -> None:
        asked = world.ask()
        before = world.everything()
        good: list[Command] = [
            Propose(
                thread="t",
                run="r",
                agent="agent",
                calls=(world.new("other"),),
                messages=(Message("r", "hello"),),
                snapshot="{}",
            ),
            Cancel(thread="t", run="r", call=asked.id, by="ana"),
        ]
        bad = Finish(thread="t", run="r", status="done", token=99)
        for commands in ([*good, bad], [bad, *good], [good[0], bad, good[1]]):
            with pytest.raises(Conflict):
                world.transact(*commands)
            assert world.everything() == before
        world.transact(*good)
        assert world.everything() != before

    def test_a_run_that_was_not_opened_is_not_there(self, world: World) -> None:
        propose = Propose(thread="t", run="r", agent="agent", messages=(Message("r", "hello"),))
        expire = Expire(thread="t", run="r", call="none")
        with pytest.raises(NotFound):
            world.transact(propose, expire)
        assert world.store.run("r") is None
        assert world.store.live_run("t") is None
        assert world.store.messages("t") == []
        assert world.store.threads() == []
        world.ask()

    def test_one_transaction_is_for_one_thread_and_one_run(self, world: World) -> None:
        world.ask()
        world.ask(run="r2", thread="t2")
        before = world.everything()
        mixed: list[list[Command]] = [
            [_note("t"), _note("t2")],
            [Expire(thread="t", run="r", call="a"), Expire(thread="t", run="r2", call="b")],
        ]
        for commands in mixed:
            with pytest.raises(SaysoError):
                world.transact(*commands)
        assert world.everything() == before

    def test_a_command_that_names_the_wrong_place_is_refused(self, world: World) -> None:
        call = world.ask(expires_in=1)
        other = world.ask(expires_in=1, run="r2", thread="t2")
        world.clock.advance(1)
        before = world.everything()
        wrong = [
            Expire(thread="t2", run="r", call=call.id),
            Expire(thread="t", run="r2", call=call.id),
            Expire(thread="t", run="r", call=other.id),
            Finish(thread="t2", run="r", status="done", token=0),
        ]
        for command in wrong:
            with pytest.raises((Conflict, NotFound)):
                world.transact(command)
        assert world.everything() == before

    def test_a_refused_command_does_not_hold_up_the_next(self, world: World) -> None:
        for _ in range(3):
            with pytest.raises(NotFound):
                world.finish(run="none")
            world.ask()
        assert len(world.store.calls_of("r")) == 3

    def test_a_bug_in_a_command_changes_nothing(self, world: World) -> None:
        world.propose()
        before = world.everything()
        for _ in range(2):
            with pytest.raises(ValueError, match="no such status"):
                world.finish("no such status")
        assert world.everything() == before
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

    def test_what_fails_before_the_commit_has_not_happened(self, world: World) -> None:
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

    def test_a_fact_of_its_own(self, world: World) -> None:
        world.transact(Note(type="policy_loaded", actor="ops", body={"digest": "d", "n": 1}))
        world.transact(_note("t"))
        assert world.events() == ["policy_loaded", "noted"]
        assert world.body("policy_loaded")["digest"] == "d"
        assert {thread.id for thread in world.store.threads()} >= {"@system"}

    def test_grants_and_tokens_live_on_the_systems_own_thread(self, world: World) -> None:
        world.grant()
        world.token("ana")
        assert [thread.id for thread in world.store.threads()] == ["@system"]
        assert world.events("@system") == ["granted", "token_created"]
        grant = Grant(
            id="grt_y", agent="a", tool="t", tool_digest="d", scope="{}", by="ana", created=0
        )
        assert AddGrant(grant=grant).thread == "@system"


def _note(thread: str) -> Note:
    return Note(thread=thread, type="noted", actor="ops")


def _recorded(call: Call) -> Record:
    return Record(
        thread=call.thread,
        run=call.run,
        call=call.id,
        token=call.token,
        attempt=call.attempt,
        ok=True,
        result="1",
    )
