"""What all adapters share, without any framework: calls by their ids, threads by their names."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from waiting import until_async

from sayso import (
    Conflict,
    Gate,
    Inbox,
    InvalidCall,
    InvalidDecision,
    Leased,
    Paused,
    Policy,
    Rule,
    SaysoError,
)
from sayso.adapters.calls import closing_text, outcome_with_errors
from sayso.gate.framework import (
    FrameworkAgent,
    FrameworkCall,
    FrameworkThread,
    FrameworkTool,
)
from sayso.gate.run_result import decisions_from
from sayso.stores.memory import MemoryStore
from sayso.testing import FakeClock
from sayso.types import Approve, Edit, Reject, Request, Respond

SCHEMA = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "text": {"type": "string", "default": "Hello"}},
    "required": ["to"],
}
MAIL = FrameworkTool(name="mail", description="Send one mail.", parameters=SCHEMA)
POLICY = Policy([Rule("mail", expires_in="1h"), Rule("burn"), Rule("*", verdict="allow")])


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(clock=self.clock)
        self.gate = self.gate_of("poster")
        self.inbox = Inbox(self.store)
        self.ran: list[Any] = []

    def gate_of(self, agent: str) -> Gate:
        return Gate(self.store, policy=POLICY, agent=agent, wait=0)

    @property
    def thread(self) -> FrameworkThread:
        return FrameworkThread(self.gate, "t")

    def call(self, id: str = "c1", tool: FrameworkTool = MAIL, **args: Any) -> FrameworkCall:
        async def run(stored: dict[str, Any]) -> Any:
            self.ran.append((tool.name, stored))
            return f"{tool.name} {stored['to']}"

        return FrameworkCall(id=id, tool=tool, args=args, run=run)

    async def decide(self, choose: Any = Request.approve) -> None:
        for request in (await self.inbox.pending()).items:
            await self.inbox.decide(request.id, choose(request), by="ana")

    async def done(self, **options: Any) -> None:
        """A mail to Ana, approved and sent."""
        with pytest.raises(Paused):
            await self.thread.outcome(self.call(to="ana", **options))
        await self.decide()
        assert (await self.thread.outcome(self.call(to="ana", **options))).ok


@pytest.fixture
def world() -> World:
    return World()


# -- calls


async def test_reused_call_id_runs_no_other_call(
    world: World,
) -> None:
    await world.done()
    again = await world.thread.outcome(world.call(to="ana"))
    assert (again.ok, again.text, again.value) == (True, "mail ana", "mail ana")
    other = await world.thread.outcome(world.call(to="eve"))
    assert (other.ok, "belongs to another" in other.text) == (False, True)
    assert world.ran == [("mail", {"to": "ana", "text": "Hello"})]


async def test_new_default_keeps_the_call(world: World) -> None:
    await world.done()
    newer = {**SCHEMA, "properties": {**SCHEMA["properties"], "cc": {"default": ""}}}  # type: ignore[dict-item]
    tool = FrameworkTool(name="mail", parameters=newer)
    assert (await world.thread.outcome(world.call(tool=tool, to="ana"))).ok
    assert len(world.ran) == 1


async def test_approval_is_of_one_tool(world: World) -> None:
    """A state in which the call is one of another tool, with arguments that fit there too."""
    with pytest.raises(Paused):
        await world.thread.outcome(world.call(to="ana"))
    await world.decide()
    burn = FrameworkTool(name="burn", parameters=SCHEMA)
    outcome = await world.thread.outcome(world.call(tool=burn, to="ana"))
    assert (outcome.ok, world.ran) == (False, [])
    assert (await world.inbox.pending()).items == ()
    assert not (await world.thread.outcome(world.call(to="ana"))).ok  # it was called off
    assert world.ran == []


@pytest.mark.parametrize("args", [{}, {"to": 1}, {"to": "ana", "text": None}])
async def test_unreadable_call_is_reported_not_asked(world: World, args: Any) -> None:
    outcome = await world.thread.outcome(world.call(**args))
    assert (outcome.ok, outcome.call) == (False, None)
    assert "cannot be read" in outcome.text
    assert world.ran == []


async def test_calls_of_turn_share_one_commit(world: World) -> None:
    note = FrameworkTool(name="note", parameters=SCHEMA)
    calls = [world.call("c1", to="ana"), world.call("c2", note, to="x"), world.call("c3", to="bob")]
    commits: list[str] = []
    world.store.boundary = lambda name, when: commits.append(name) if when == "after" else None
    asked = await world.thread.ask(calls)
    assert [dict(request.args)["to"] for request in asked] == ["ana", "bob"]
    assert commits == ["reopen+propose"]
    assert await world.thread.ask(calls) == asked  # the same again asks nobody
    assert commits == ["reopen+propose"]


async def test_waiting_gate_takes_decisions_of_a_turn(world: World) -> None:
    """With ``wait=``, nothing of the framework has to stop if people answer in time."""
    world.gate = Gate(world.store, policy=POLICY, agent="poster", wait=30)
    calls = [world.call("c1", to="ana"), world.call("c2", to="bo")]
    asking = asyncio.create_task(world.thread.ask(calls))

    async def all_asked() -> bool:
        return len(await world.inbox.pending()) == len(calls)

    await until_async(all_asked)
    await world.decide()
    assert await asking == ()
    assert [(await world.thread.outcome(call)).text for call in calls] == ["mail ana", "mail bo"]


async def test_waiting_gate_pauses_after_its_wait(world: World) -> None:
    world.gate = Gate(world.store, policy=POLICY, agent="poster", wait=0.05)
    (request,) = await world.thread.ask([world.call(to="ana")])
    assert request.status == "pending"


async def test_step_is_taken_once(world: World) -> None:
    taken: list[int] = []

    async def step() -> int:
        taken.append(1)
        return len(taken)

    assert [await world.thread.once("k", step) for _ in range(3)] == [1, 1, 1]


# -- threads


class Poster(FrameworkAgent):
    """A framework of two calls and an answer; it keeps nothing but the user's words."""

    def __init__(self, world: World, agent: str = "poster") -> None:
        super().__init__(world.gate_of(agent), world.inbox)
        self.world = world
        self.moves = 0
        self.drops = False

    async def begin(self, input: Any, thread: str) -> Any:
        return await self.go_on(thread)

    async def go_on(self, thread: str) -> Any:
        self.moves += 1
        foreign = FrameworkThread(self.gate, thread)
        calls = [self.world.call("c1", to="ana"), self.world.call("c2", to="bob")]
        if self.drops:
            return "dropped"
        waiting = await foreign.ask(calls)
        if waiting:
            raise Paused(foreign.run, waiting)
        return [(await foreign.outcome(call)).text for call in calls]


async def test_run_of_another_agent_is_not_resumed(world: World) -> None:
    result = await Poster(world).run("go", thread="t")
    with pytest.raises(Conflict, match="belongs to agent 'poster', not to 'other'"):
        await Poster(world, "other").resume(result.run)


async def test_decision_on_another_thread_is_refused(world: World) -> None:
    poster = Poster(world)
    assert (await poster.run("go", thread="t")).status == "paused"
    there = (await poster.run("go", thread="t2")).interruptions[0]
    with pytest.raises(InvalidDecision, match="asked on thread 't2'"):
        await poster.resume("t", decisions=[there.approve()])
    assert (await world.inbox.get(there.id)).status == "pending"


async def test_resume_writes_staged_decisions(world: World) -> None:
    poster = Poster(world)
    result = await poster.run("go", thread="t")
    first, second = result.interruptions
    result.state.approve(first, by="ana")
    result.state.reject(second, "not him", by="ana")
    done = await poster.resume(result.state)
    assert (done.status, done.run) == ("done", result.run)
    decided = (await world.inbox.get(second.id)).decision
    assert decided is not None
    assert (decided.type, decided.channel) == ("reject", "state")


async def test_state_of_another_agent_is_refused(world: World) -> None:
    result = await Poster(world).run("go", thread="t")
    with pytest.raises(Conflict, match="belongs to agent 'poster'"):
        await Poster(world, "other").resume(result.state)


async def test_answers_by_position_count_all_or_none(world: World) -> None:
    poster = Poster(world)
    await poster.run("go", thread="t")
    wrong = {"decisions": [{"type": "approve"}, {"type": "yolo"}]}
    with pytest.raises(InvalidDecision, match=r"decisions\[1\].type"):
        await poster.resume("t", decisions=wrong)
    assert len((await world.inbox.pending()).items) == 2
    right = {"decisions": [{"type": "approve"}, {"type": "reject", "message": "not bob"}]}
    result = await poster.resume("t", decisions=right, by="rita")
    assert result.output[0] == "mail ana"
    assert "not bob" in result.output[1]
    assert (await poster.resume("poster:t")).output == result.output  # by the run's own id


async def test_resume_without_decision_runs_nothing(world: World) -> None:
    poster = Poster(world)
    await poster.run("go", thread="t")
    assert (await poster.resume("t")).status == "paused"
    assert poster.moves == 1


@pytest.mark.parametrize("verb", ["run", "resume"])
async def test_thread_waiting_for_itself_is_refused(world: World, verb: str) -> None:
    class Impatient(Poster):
        async def go_on(self, thread: str) -> Any:
            again = self.resume(thread) if verb == "resume" else self.run("more", thread=thread)
            return await again

    with pytest.raises(Conflict, match="would wait for itself"):
        await asyncio.wait_for(Impatient(world).run("go", thread="t"), 20)


async def test_call_repeated_inside_itself_is_refused(world: World) -> None:
    texts: list[str] = []

    def around(id: str, inner: FrameworkCall) -> FrameworkCall:
        async def run(_: dict[str, Any]) -> Any:
            texts.append((await world.thread.outcome(inner)).text)
            return "ran"

        return FrameworkCall(id=id, tool=FrameworkTool(name="free"), args={}, run=run)

    again = FrameworkCall(id="c1", tool=FrameworkTool(name="free"), args={})
    outcome = world.thread.outcome(around("c1", around("c2", again)))
    assert (await asyncio.wait_for(outcome, 20)).text == "ran"
    assert "belongs to another one" in texts[0]


async def test_expired_request_moves_it(world: World) -> None:
    poster = Poster(world)
    await poster.run("go", thread="t")
    world.clock.advance(7200)
    result = await poster.resume("t")
    assert result.status == "done"
    assert all("in time" in text for text in result.output)
    assert world.ran == []


async def test_cancelled_thread_stays_cancelled_until_reused(world: World) -> None:
    poster = Poster(world)
    await poster.run("go", thread="t")
    await poster.cancel("t", reason="not today")
    result = await poster.resume("t")
    assert (result.status, result.error) == ("cancelled", "not today")
    assert (await poster.run("go", thread="t")).status == "paused"
    await poster.cancel("t")
    assert (await poster.resume("t")).run == "poster:t#2"


async def test_overlong_thread_name_stores_nothing(world: World) -> None:
    with pytest.raises(InvalidCall, match="thread has 200 characters"):
        await Poster(world).run("go", thread="t" * 200)
    assert world.store.run("poster:" + "t" * 200) is None


async def test_end_of_run_closes_open_requests(world: World) -> None:
    poster = Poster(world)
    await poster.run("go", thread="t")
    await world.decide(Request.approve)
    poster.drops = True
    assert (await poster.resume("t")).output == "dropped"
    run = world.store.run("poster:t")
    assert run is not None
    assert (run.status, run.ready, run.ready_at) == ("done", 0, None)
    assert world.ran == []


async def test_thread_belongs_to_one_agent_at_a_time(world: World) -> None:
    await Poster(world).run("go", thread="t")
    with pytest.raises(Conflict, match="in use by agent 'poster'"):
        await Poster(world, "other").run("go", thread="t")
    with pytest.raises(SaysoError, match="no run and no thread"):
        await Poster(world, "other").resume("t")


@pytest.mark.long
async def test_new_input_waits_and_supersedes_pause(world: World) -> None:
    first, second = Poster(world), Poster(world)
    moving, on = asyncio.Event(), asyncio.Event()
    whole = first.go_on

    async def slowly(thread: str) -> Any:
        moving.set()
        await on.wait()
        return await whole(thread)

    first.go_on = slowly  # type: ignore[method-assign]
    one = asyncio.create_task(first.run("go", thread="t"))
    await moving.wait()
    two = asyncio.create_task(second.run("no, wait", thread="t"))
    await asyncio.sleep(0)
    assert second.moves == 0
    on.set()
    assert (await one).status == "paused"
    result = await two
    # The framework made the same calls again, whose requests are superseded by now.
    assert result.status == "done"
    assert all("something new" in text for text in result.output)


async def test_resume_waits_no_longer_than_its_wait(world: World) -> None:
    first, second = Poster(world), Poster(world)
    moving, on = asyncio.Event(), asyncio.Event()

    async def slowly(input: Any, thread: str) -> Any:
        moving.set()
        await on.wait()

    first.begin = slowly  # type: ignore[method-assign]
    running = asyncio.create_task(first.run("go", thread="t"))
    await moving.wait()
    with pytest.raises(Leased, match="another process works on it, or died"):
        await second.resume("t", wait=0.05)
    assert second.moves == 0
    on.set()
    assert (await running).status == "done"


async def test_late_driver_waits_for_thread_owner(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two people write on a new thread in the same moment: one drive at a time all the same."""
    at_work: list[str] = []
    let_go, together = asyncio.Event(), 0

    class Slow(Poster):
        async def begin(self, input: Any, thread: str) -> Any:
            nonlocal together
            at_work.append(input)
            together = max(together, len(at_work))
            await let_go.wait()
            at_work.remove(input)
            return input

    first = asyncio.create_task(Slow(world).run("one", thread="t"))
    await until_async(lambda: at_work)
    looked = [None]
    live_run = world.store.live_run
    monkeypatch.setattr(
        world.store, "live_run", lambda thread: looked.pop() if looked else live_run(thread)
    )
    second = asyncio.create_task(Slow(world).run("two", thread="t"))
    await asyncio.sleep(0.05)
    let_go.set()
    assert [(await first).output, (await second).output] == ["one", "two"]
    assert together == 1


async def test_error_leaves_the_run_where_it_stood(world: World) -> None:
    poster = Poster(world)

    async def broken(thread: str) -> Any:
        raise RuntimeError("no model today")

    whole, poster.go_on = poster.go_on, broken  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="no model"):
        await poster.run("go", thread="t")
    poster.go_on = whole  # type: ignore[method-assign]
    assert (await poster.resume("t")).status == "paused"


# -- answers as they are handed in


async def test_forms_of_an_answer(world: World) -> None:
    await world.thread.ask([world.call(to="ana")])
    (request,) = (await world.inbox.pending()).items
    action = {"name": "mail", "args": {"to": "bob"}}
    whole = {"to": "bob", "text": "Hello"}
    changed = {"to": "bob"}
    bound: Any = {"request": request.id, "seen_digest": request.digest}
    for given, decision in [
        ({"type": "approve"}, Approve(**bound)),
        ({"type": "edit", "edited_action": action}, Edit(whole, **bound)),
        ({"type": "edit", "args": changed}, Edit(changed, **bound)),
        ({"type": "edit", "unset": ["text"]}, Edit({}, ["text"], **bound)),
        ({"type": "reject"}, Reject("", **bound)),
        ({"type": "reject", "message": "no"}, Reject("no", **bound)),
        ({"type": "respond", "message": "did it"}, Respond("did it", **bound)),
        ({"type": "respond", "value": 3}, Respond(3, **bound)),
    ]:
        assert decisions_from({"decisions": [given]}, [request]) == [decision]
    for given in ([request.approve()], request.approve(), (r.approve() for r in [request])):
        assert decisions_from(given, [request]) == [request.approve()]
    assert decisions_from(None, [request]) == []
    for wrong in (
        3,
        "yes",
        [Approve()],
        [{"type": "approve"}],
        {"decisions": [{"type": "reject", "message": 3}]},
        {"decisions": [{"type": "edit"}]},
        {"decisions": [{"type": "edit", "unset": ["to"]}]},
        {"decisions": [{"type": "edit", "unset": ["cc"]}]},
        {"decisions": [{"type": "edit", "args": changed, "unset": ["to"]}]},
        {"decisions": [{"type": "approve", "unset": ["text"]}]},
    ):
        with pytest.raises(InvalidDecision):
            decisions_from(wrong, [request])


class _Mute:
    def __str__(self) -> str:
        raise RuntimeError("nothing to say")


_CYCLE: list[Any] = []
_CYCLE.append(_CYCLE)


@pytest.mark.parametrize(
    ("gave", "kept"),
    [
        ("half \ud800", "half ?"),
        ({"text": "half \ud800", "n": 1}, {"text": "half ?", "n": 1}),
        (b"\xff", "b'\\xff'"),
        (_Mute(), "a _Mute, which cannot be shown"),
        (_CYCLE, "[[...]]"),
    ],
)
async def test_result_without_a_json_form_is_a_result(gave: Any, kept: Any) -> None:
    world = World()

    async def run(args: dict[str, Any]) -> Any:
        return gave

    call = FrameworkCall(id="c1", tool=FrameworkTool(name="free"), args={}, run=run)
    for outcome in [await world.thread.outcome(call), await world.thread.outcome(call)]:
        assert (outcome.ok, outcome.value) == (True, kept)


async def test_note_is_text_that_every_store_takes(world: World) -> None:
    await world.thread.ask(
        [FrameworkCall(id="c1", tool=MAIL, args={"to": "bo"}, note="a\0 \ud800")]
    )
    assert (await world.inbox.pending()).items[0].note == "a\ufffd ?"


# -- names of runs


@pytest.mark.parametrize(
    ("one", "other"),
    [(("a", "b:c"), ("a:b", "c")), (("a%3Ab", "c"), ("a:b", "c"))],
    ids=["colon", "escaped colon"],
)
async def test_agents_with_colons_have_own_runs(
    world: World, one: tuple[str, str], other: tuple[str, str]
) -> None:
    runs = [FrameworkThread(world.gate_of(agent), thread).run for agent, thread in (one, other)]
    assert runs[0] != runs[1]


async def test_closing_text_names_edited_arguments(world: World) -> None:
    (request,) = await world.thread.ask([world.call(to="ana")])
    await world.inbox.decide(request.id, request.edit({"to": "bob"}), by="zoe")
    await world.thread.outcome(world.call(to="ana"))
    text = closing_text(await world.thread.find("c1"))
    assert "A person changed the arguments" in text
    assert text.endswith("Its result: mail bob")


@pytest.mark.parametrize("verdict", ["allow", "ask"])
async def test_failed_read_runs_once_and_has_text(world: World, verdict: Any) -> None:
    rule = Rule("look", verdict=verdict, effect="read")
    gate = Gate(world.store, policy=Policy([rule]), agent="reader", wait=0)

    async def run(args: dict[str, Any]) -> Any:
        world.ran.append(args)
        raise OSError("the camera is off")

    call = FrameworkCall(id="c1", tool=FrameworkTool(name="look"), args={}, run=run)
    thread = FrameworkThread(gate, "read")
    if verdict == "ask":
        with pytest.raises(Paused):
            await outcome_with_errors(thread, call)
        await world.decide()
    outcome = await outcome_with_errors(thread, call)
    assert (outcome.ok, world.ran) == (False, [{}])
    assert "OSError: the camera is off" in outcome.text


async def test_thread_named_like_second_run_is_another(world: World) -> None:
    gate = world.gate_of("poster")
    assert FrameworkThread(gate, "t#2").run != f"{FrameworkThread(gate, 't').run}#2"
