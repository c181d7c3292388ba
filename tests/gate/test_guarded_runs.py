"""Code inside a guarded run calls a tool past the gate, from any place and OS thread."""

from __future__ import annotations

import _thread
import asyncio
import atexit
import contextlib
import contextvars
import multiprocessing
import multiprocessing.pool
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from sayso import Gate, Inbox, InvalidCall, Paused, Policy, Rule
from sayso.gate.framework import FrameworkAgent, FrameworkCall, FrameworkThread, FrameworkTool
from sayso.gate.guarded_runs import tool_call
from sayso.stores.memory import MemoryStore
from sayso.sync import run_user_function

DELEGATE = FrameworkTool(name="delegate")
PAY = FrameworkTool(name="pay", parameters={"type": "object"})


class World:
    """A framework whose agents call one tool, ``delegate``, that runs any code."""

    def __init__(self, effect: str = "idempotent", pay: str = "ask") -> None:
        self.store = MemoryStore()
        rules = [
            Rule("delegate", verdict="allow", effect=effect),
            Rule("pay", verdict=pay),
        ]
        self.gate = Gate(self.store, policy=Policy(rules), agent="poster", wait=0)
        self.inbox = Inbox(self.store)
        self.paid: list[int] = []
        self.refused: list[BaseException] = []

    def pay(self, amount: int = 7) -> str:
        """Run the tool as a framework does that calls it without awaiting."""

        async def run(args: dict[str, Any]) -> str:
            with tool_call("pay"):
                return self._effect(args["amount"])

        with tool_call("pay") as place:
            if place is None:
                return self._effect(amount)
            call = FrameworkCall(id="", tool=PAY, args={"amount": amount}, run=run, passed="pay")
            outcome = FrameworkThread.inner_sync(place, call)
            return outcome.text

    def _effect(self, amount: int) -> str:
        self.paid.append(amount)
        return f"paid {amount}"

    def agent(self, body: Callable[[], Any], ungated: tuple[str, ...] = ()) -> FrameworkAgent:
        from sayso.gate.coverage import Coverage

        world = self

        class Agent(FrameworkAgent):
            async def begin(self, input: Any, thread: str) -> Any:
                return await self.go_on(thread)

            async def go_on(self, thread: str) -> Any:
                async def run(_: dict[str, Any]) -> Any:
                    with tool_call("delegate"):
                        value = await asyncio.to_thread(body)
                        return await value if isinstance(value, Awaitable) else value

                call = FrameworkCall(id="1", tool=DELEGATE, args={}, run=run, passed="delegate")
                return (await FrameworkThread(world.gate, thread).outcome(call)).text

        return Agent(self.gate, self.inbox, Coverage(ungated))

    async def decide(self) -> None:
        for request in (await self.inbox.pending()).items:
            await self.inbox.approve(request.id, by="ana")


POOL = ThreadPoolExecutor(2)
list(POOL.map(lambda _: None, range(4)))  # its OS threads are older than every run
THREAD_POOL = multiprocessing.pool.ThreadPool(1)
atexit.register(THREAD_POOL.terminate)


def in_thread(job: Callable[[], Any]) -> Any:
    thread = threading.Thread(target=job)
    thread.start()
    thread.join()


def in_own_subclass(job: Callable[[], Any]) -> Any:
    class Own(threading.Thread):
        def run(self) -> None:
            job()

    thread = Own()
    thread.start()
    thread.join()


def in_low_level_thread(job: Callable[[], Any]) -> Any:
    ended = threading.Lock()
    ended.acquire()

    def work(*, locked: threading.Lock) -> None:
        with contextlib.suppress(InvalidCall, Paused):
            try:
                job()
            finally:
                locked.release()

    _thread.start_new_thread(work, (), {"locked": ended})
    assert ended.acquire(timeout=5)


def in_timer(job: Callable[[], Any]) -> Any:
    timer = threading.Timer(0.01, job)
    timer.start()
    timer.join()


def in_new_pool(job: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(job).result()


def in_thread_of_thread(job: Callable[[], Any]) -> Any:
    in_thread(lambda: in_thread(job))


async def in_loops_executor(job: Callable[[], Any]) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, job)


async def in_anyio_thread(job: Callable[[], Any]) -> Any:
    return await anyio.to_thread.run_sync(job)


async def in_sayso_thread(job: Callable[[], Any]) -> Any:
    return await run_user_function(job)


async def in_empty_task(job: Callable[[], Any]) -> Any:
    async def task() -> Any:
        return job()

    return await asyncio.get_running_loop().create_task(task(), context=contextvars.Context())


EARLIER = contextvars.copy_context()


async def in_earlier_task(job: Callable[[], Any]) -> Any:
    async def task() -> Any:
        return job()

    return await asyncio.create_task(task(), context=EARLIER.copy())


async def in_task_from_empty_context(job: Callable[[], Any]) -> Any:
    async def task() -> Any:
        return job()

    return await contextvars.Context().run(asyncio.ensure_future, task())


def in_callback(job: Callable[[], Any]) -> Any:
    done = threading.Event()
    future = POOL.submit(threading.Event().wait, 0.01)

    def callback(_: Any) -> None:
        try:
            job()
        finally:
            done.set()

    future.add_done_callback(callback)
    done.wait(5)


WAYS = {
    "here": lambda job: job(),
    "thread": in_thread,
    "own subclass": in_own_subclass,
    "low-level thread": in_low_level_thread,
    "timer": in_timer,
    "new pool": in_new_pool,
    "older pool": lambda job: POOL.submit(job).result(),
    "older pool by map": lambda job: list(POOL.map(lambda _: job(), [1])),
    "multiprocessing's OS threads": lambda job: THREAD_POOL.apply(job),
    "multiprocessing's map": lambda job: THREAD_POOL.map(lambda _: job(), [1]),
    "thread of a thread": in_thread_of_thread,
    "new loop": lambda job: asyncio.run(asyncio.to_thread(job)),
    "callback of a future": in_callback,
    "empty context": lambda job: contextvars.Context().run(job),
    "pool from empty context": lambda job: contextvars.Context().run(lambda: in_new_pool(job)),
    "older pool from empty context": lambda job: contextvars.Context().run(
        lambda: POOL.submit(job).result()
    ),
}
ASYNC_WAYS = {
    "executor of the loop": in_loops_executor,
    "anyio": in_anyio_thread,
    "sayso": in_sayso_thread,
    "empty task": in_empty_task,
    "task from empty context": in_task_from_empty_context,
    "earlier task": in_earlier_task,
}
EMPTY = [way for way in (*WAYS, *ASYNC_WAYS) if "empty context" in way]


def body_of(world: World, way: str) -> Callable[[], Any]:
    def job() -> Any:
        try:
            return world.pay()
        except InvalidCall as error:
            world.refused.append(error)
            raise

    return lambda: (WAYS | ASYNC_WAYS)[way](job)


@pytest.mark.parametrize("way", [*WAYS, *ASYNC_WAYS])
async def test_inner_call_asks_on_every_os_thread(way: str) -> None:
    world = World()
    agent = world.agent(body_of(world, way))
    if way in EMPTY:
        with pytest.raises(InvalidCall, match="unknown whether"):
            await agent.run("go", thread="t")
        assert world.paid == []
        return
    result = await agent.run("go", thread="t")
    assert result.status == "paused"
    assert [request.tool for request in result.interruptions] == ["pay"]
    assert world.paid == []
    await world.decide()
    result = await agent.resume("t")
    assert result.status == "done"
    assert world.paid == [7]


def test_question_in_thread_pauses_call() -> None:
    """A pause in an OS thread has no caller, so the call that started it pauses at its end."""
    world = World()
    answers: list[Any] = []

    def body() -> None:
        in_thread(lambda: answers.append(world.gate.ask_sync("Really?")))

    agent = world.agent(body)
    result = agent.run_sync("go", thread="t")
    assert result.status == "paused"
    world.inbox.respond_sync(result.interruptions[0].id, "yes", by="ana")
    assert agent.resume_sync("t").status == "done"
    assert answers == ["yes"]


@pytest.mark.parametrize("way", [*WAYS, *ASYNC_WAYS])
async def test_once_call_is_not_paused(way: str) -> None:
    world = World(effect="once")
    texts: list[str] = []

    def body() -> Any:
        return (WAYS | ASYNC_WAYS)[way](lambda: texts.append(world.pay()))

    agent = world.agent(body)
    if way in EMPTY:
        with pytest.raises(InvalidCall, match="unknown whether"):
            await agent.run("go", thread="t")
    else:
        assert (await agent.run("go", thread="t")).status == "done"
        assert "guard(agent, gate)" in texts[0]
        assert "gate.once(" in texts[0]
    assert world.paid == []
    assert (await world.inbox.pending()).items == ()


async def test_call_in_earlier_context_is_refused() -> None:
    """A context from before the run is known to be outside; the OS thread is not."""
    world = World()
    errors: list[BaseException] = []

    def leave() -> None:
        for work in (
            world.pay,
            lambda: in_new_pool(world.pay),
            lambda: in_thread(pay),
            lambda: in_thread(lambda: asyncio.run(in_earlier_task(pay))),
        ):
            try:
                EARLIER.copy().run(work)
            except InvalidCall as error:
                errors.append(error)

    def pay() -> None:
        with contextlib.suppress(InvalidCall):
            world.pay()

    agent = world.agent(leave)
    await agent.run("go", thread="t")
    assert world.paid == []
    assert ["unknown whether" in str(error) for error in errors] == [True, True]


@pytest.mark.parametrize("effect", ["once", "idempotent", "read"])
async def test_allowed_inner_call_is_recorded(effect: str) -> None:
    world = World(effect=effect, pay="allow")
    assert (await world.agent(world.pay).run("go", thread="t")).status == "done"
    assert world.paid == [7]
    calls = world.store.calls_of("poster:t")
    assert {(call.tool, call.status) for call in calls} == {("delegate", "done"), ("pay", "done")}


def test_os_thread_does_not_inherit_an_ended_run() -> None:
    """An OS thread that outlives its run calls nothing of the run, and starts work without it."""
    world = World()
    ended = threading.Event()
    results: list[Any] = []

    def later() -> None:
        ended.wait(10)
        for call in (world.pay, lambda: in_thread(lambda: results.append(world.pay()))):
            try:
                results.append(call())
            except InvalidCall as error:
                results.append(error)

    left_over = threading.Thread(target=later)
    result = world.agent(left_over.start).run_sync("go", thread="t")
    assert result.status == "done"
    ended.set()
    left_over.join()
    refused, from_new_thread, _ = results
    assert "has ended" in str(refused)
    assert from_new_thread == "paid 7"
    assert world.paid == [7]


async def test_ended_call_accepts_no_inner_calls() -> None:
    """An OS thread of one call cannot use the run while the next call is made."""
    world = World()
    ended = threading.Event()
    errors: list[BaseException] = []

    def later() -> None:
        ended.wait(10)
        try:
            world.pay()
        except InvalidCall as error:
            errors.append(error)

    left_over = threading.Thread(target=later)
    gate_agent = world.agent(left_over.start)
    original = gate_agent.go_on

    async def go_on(thread: str) -> Any:
        text = await original(thread)
        ended.set()
        await asyncio.to_thread(left_over.join)
        return text

    gate_agent.go_on = go_on  # type: ignore[method-assign]
    assert (await gate_agent.run("go", thread="t")).status == "done"
    assert "has ended" in str(errors[0])
    assert world.paid == []


async def test_unguarded_code_is_not_touched() -> None:
    """Tools that no guarded run calls keep running while one is open, in every way."""
    world = World()
    inside = threading.Event()
    leave = threading.Event()

    def body() -> None:
        inside.set()
        leave.wait(10)

    run = asyncio.create_task(world.agent(body).run("go", thread="t"))
    await asyncio.to_thread(inside.wait, 10)
    try:
        for name, way in WAYS.items():
            if name != "new loop":
                way(world.pay)
                await asyncio.to_thread(way, world.pay)
        for async_way in ASYNC_WAYS.values():
            await async_way(world.pay)
    finally:
        leave.set()
    assert (await run).status == "done"
    assert len(world.paid) == 2 * (len(WAYS) - 1) + len(ASYNC_WAYS)


async def test_callback_in_empty_context_is_refused_during_run() -> None:
    """It may have been scheduled by a guarded run, and the loop does not say by whom."""
    world = World()
    inside = threading.Event()
    leave = threading.Event()

    def body() -> None:
        inside.set()
        leave.wait(10)

    async def pay() -> str:
        return world.pay()

    async def in_callback() -> str:
        tasks: asyncio.Queue[asyncio.Future[str]] = asyncio.Queue()
        asyncio.get_running_loop().call_soon(
            lambda: tasks.put_nowait(asyncio.ensure_future(pay())), context=contextvars.Context()
        )
        return await (await tasks.get())

    run = asyncio.create_task(world.agent(body).run("go", thread="t"))
    await asyncio.to_thread(inside.wait, 10)
    try:
        with pytest.raises(InvalidCall, match="Copy the context where the work begins"):
            await in_callback()
    finally:
        leave.set()
    assert (await run).status == "done"
    assert await in_callback() == "paid 7"


def test_guarded_and_plain_agents_share_loop_of_thread() -> None:
    """A server in an OS thread runs a guarded agent, and a tool of another one meanwhile."""
    world = World()

    async def serve() -> None:
        inside = asyncio.Event()
        leave = asyncio.Event()

        async def wait() -> None:
            inside.set()
            await leave.wait()

        run = asyncio.create_task(world.agent(wait).run("go", thread="t"))
        await inside.wait()
        assert world.pay() == "paid 7"
        assert contextvars.Context().run(world.pay) == "paid 7"
        leave.set()
        assert (await run).status == "done"

    in_new_pool(lambda: asyncio.run(serve()))
    assert world.paid == [7, 7]


async def test_anyio_thread_has_run_of_job() -> None:
    """anyio's worker threads are used again by code outside of the run that started them."""
    world = World()
    inside = asyncio.Event()
    leave = asyncio.Event()
    errors: list[BaseException] = []

    async def body() -> None:
        assert (await anyio.to_thread.run_sync(threading.get_ident)) != threading.get_ident()
        for earlier in (EARLIER.copy(), contextvars.Context()):
            try:
                await anyio.to_thread.run_sync(earlier.run, world.pay)
            except InvalidCall as error:
                errors.append(error)
        inside.set()
        await leave.wait()

    run = asyncio.create_task(world.agent(body).run("go", thread="t"))
    await inside.wait()
    assert await anyio.to_thread.run_sync(world.pay) == "paid 7"
    leave.set()
    assert (await run).status == "done"
    assert len(errors) == 2
    assert world.paid == [7]


def test_pool_job_has_run_of_submitter() -> None:
    """The OS thread of a pool that a run started works for others without that run."""
    world = World()
    with ThreadPoolExecutor(1) as pool:
        agent = world.agent(lambda: pool.submit(world.pay).result())
        assert agent.run_sync("go", thread="t").status == "paused"
        assert pool.submit(world.pay).result() == "paid 7"
    assert world.paid == [7]


def nothing() -> None:
    """Run in another process."""


@pytest.mark.parametrize(
    "start",
    [
        lambda: ProcessPoolExecutor(1).submit(nothing),
        lambda: multiprocessing.Process(target=nothing).start(),
        lambda: multiprocessing.Pool(1),
    ],
    ids=["executor", "process", "pool"],
)
def test_other_processes_are_refused(start: Callable[[], Any]) -> None:
    with pytest.raises(InvalidCall, match="another process"):
        World().agent(start).run_sync("go", thread="t")


def test_ungated_allows_other_processes() -> None:
    def body() -> None:
        process = multiprocessing.Process(target=nothing)
        process.start()
        process.join()

    world = World()
    assert world.agent(body, ("multiprocessing",)).run_sync("go", thread="t").status == "done"


def test_process_outside_of_runs_starts() -> None:
    world = World()
    assert world.agent(lambda: None).run_sync("go", thread="t").status == "done"
    process = multiprocessing.Process(target=nothing)
    process.start()
    process.join()
    assert process.exitcode == 0


def test_equal_call_inside_a_body_asks() -> None:
    """A call that has passed the gate does not open it for equal calls that its body makes."""
    world = World()
    nested: list[Any] = []

    def body() -> None:
        with tool_call("delegate") as place:
            nested.append(place)

    assert world.agent(body).run_sync("go", thread="t").status == "done"
    assert nested[0] is not None


@pytest.mark.long
@pytest.mark.parametrize("first", ["sayso", "opentelemetry"])
def test_run_follows_threads_with_opentelemetry(first: str, tmp_path: Any) -> None:
    """OpenTelemetry's instrumentation of OS threads is loaded before or after ours."""
    code = f"""
import sys
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1])]!r}
from opentelemetry.instrumentation.threading import ThreadingInstrumentor
if {first!r} == "opentelemetry":
    ThreadingInstrumentor().instrument()
import test_guarded_runs as ours
ours.World().agent(lambda: None).run_sync("go", thread="t")
if {first!r} == "sayso":
    ThreadingInstrumentor().instrument()
for uninstrument in (False, True):
    if uninstrument:
        ThreadingInstrumentor().uninstrument()
    for way in ("thread", "own subclass", "timer", "new pool", "older pool"):
        world = ours.World()
        result = world.agent(ours.body_of(world, way)).run_sync("go", thread="t")
        assert result.status == "paused" and not world.paid, (uninstrument, way, result)
print("held")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "held\n", done.stderr
