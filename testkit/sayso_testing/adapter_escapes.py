"""The attack test of ``AdapterSuite``: tools that delegate to an agent that was never guarded.

A guarded agent has one tool, ``delegate``, which the policy allows. Its body runs a *clerk*, a
plain agent of the same framework, whose tool ``pay`` asks. Each shape of such code is defined here
once for all frameworks, as a place where the tool finds the clerk (``PLACES``) and a way in which
it runs it (``WAYS``). ``pay`` must not run without a decision: ``guard`` refuses the agent, the
call is refused, or a person is asked. The same code in an agent that was never guarded is not
disturbed, at the same time and afterwards.
"""

from __future__ import annotations

import _thread
import asyncio
import collections
import contextvars
import copy
import functools
import gc
import importlib
import inspect
import operator
import sys
import threading
import time
import types
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from contextvars import Context
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sayso.errors import SaysoError
from sayso.gate import Gate
from sayso.inbox import Inbox
from sayso.policy import Policy, Rule
from sayso.stores.sqlite import SqliteStore
from sayso_testing.adapter_harness import (
    LAST,
    AdapterHarness,
    HarnessContext,
    ModelScript,
    ScriptedCall,
    as_async,
)

#: Builds a clerk, which pays ana.
Hire = Callable[[], Any]
#: Finds the clerk. The tool calls it.
Find = Callable[[], Any]
Place = Callable[[Hire], Find]
POLICY = Policy([Rule("delegate", verdict="allow"), Rule("pay")])
THREAD = "thread-1"
MAX_SECONDS = 60.0


# --- places: where the tool finds the clerk ---
#
# Each takes a function that builds a clerk, before the run, and returns one that finds it.


def closure(hire: Hire) -> Find:
    clerk = hire()
    return lambda: clerk


def default_argument(hire: Hire) -> Find:
    def find(clerk: Any = hire()) -> Any:  # noqa: B008
        return clerk

    return find


def built_in_tool(hire: Hire) -> Find:
    return hire


def module_attribute(hire: Hire) -> Find:
    module = _module(hire)
    return lambda: module.clerk


def import_in_function(hire: Hire) -> Find:
    names: dict[str, Any] = {}
    lines = f"def find():\n    from {_module(hire).__name__} import clerk\n    return clerk"
    exec(lines, names)
    find: Find = names["find"]
    return find


def import_by_name(hire: Hire) -> Find:
    name = _module(hire).__name__
    return lambda: importlib.import_module(name).clerk


def module_getattr(hire: Hire) -> Find:
    module = _module(hire)
    members = vars(module)
    hidden = {"clerk": members.pop("clerk")}

    def get(name: str) -> Any:
        if name not in hidden:
            raise AttributeError(name)
        return hidden[name]

    members["__getattr__"] = get
    return lambda: module.clerk


def _module(hire: Hire) -> types.ModuleType:
    module = types.ModuleType(f"sayso_office_{time.monotonic_ns()}")
    vars(module)["clerk"] = hire()
    sys.modules[module.__name__] = module
    return module


def globals_by_name(hire: Hire) -> Find:
    names = {"clerk": hire()}
    exec("def find():\n    return globals()['clerk']", names)
    find: Find = names["find"]
    return find


def evaluated_code(hire: Hire) -> Find:
    names = {"clerk": hire()}
    return lambda: eval("clerk", names)


def class_attribute(hire: Hire) -> Find:
    office: Any = type("Office", (), {"clerk": hire()})
    return lambda: office.clerk


def metaclass_attribute(hire: Hire) -> Find:
    meta = type("Meta", (type,), {"clerk": hire()})
    office = meta("Office", (), {})
    return lambda: office.clerk


def dict_in_object(hire: Hire) -> Find:
    office = types.SimpleNamespace(staff={"clerk": hire()})
    return lambda: office.staff["clerk"]


def registry_by_name(hire: Hire) -> Find:
    registry: dict[str, Hire] = {}

    def register(factory: Hire) -> Hire:
        registry["clerk"] = factory
        return factory

    register(hire)
    return lambda: registry["clerk"]()


def cached_factory(hire: Hire) -> Find:
    return functools.lru_cache(maxsize=None)(hire)


def helper_class(hire: Hire) -> Find:
    class Office:
        def __init__(self) -> None:
            self.clerk = hire()

    return lambda: Office().clerk


def bound_method(hire: Hire) -> Find:
    class Office:
        def __init__(self) -> None:
            self.clerk = hire()

        def find(self) -> Any:
            return self.clerk

    return Office().find


def callable_object(hire: Hire) -> Find:
    class Office:
        __slots__ = ("clerk",)

        def __init__(self) -> None:
            self.clerk = hire()

        def __call__(self) -> Any:
            return self.clerk

    return Office()


def cached_property(hire: Hire) -> Find:
    class Office:
        @functools.cached_property
        def clerk(self) -> Any:
            return hire()

    office = Office()
    return lambda: office.clerk


def descriptor(hire: Hire) -> Find:
    clerk = hire()

    class Place:
        def __get__(self, instance: Any, owner: Any) -> Any:
            return clerk

    class Office:
        staff = Place()

    return lambda: Office().staff


def object_getattr(hire: Hire) -> Find:
    clerk = hire()

    class Office:
        def __getattr__(self, name: str) -> Any:
            return clerk

    return lambda: Office().anyone


def missing_key(hire: Hire) -> Find:
    staff: Any = collections.defaultdict(hire)
    return lambda: staff["clerk"]


def attribute_path(hire: Hire) -> Find:
    office = types.SimpleNamespace(staff=types.SimpleNamespace(clerk=hire()))
    return functools.partial(operator.attrgetter("staff.clerk"), office)


def partial(hire: Hire) -> Find:
    return functools.partial(_identity, hire())


def _identity(value: Any) -> Any:
    return value


def generator(hire: Hire) -> Find:
    def clerks() -> Iterator[Any]:
        clerk = hire()
        while True:
            yield clerk

    line = clerks()
    return lambda: next(line)


def context_manager(hire: Hire) -> Find:
    clerk = hire()

    @contextmanager
    def on_duty() -> Iterator[Any]:
        yield clerk

    def find() -> Any:
        with on_duty() as found:
            return found

    return find


def dispatched_function(hire: Hire) -> Find:
    clerk = hire()

    @functools.singledispatch
    def staff(role: object) -> Any:
        raise LookupError(role)

    staff.register(str, lambda role: clerk)
    return lambda: staff("clerk")


def context_variable(hire: Hire) -> Find:
    variable: contextvars.ContextVar[Any] = contextvars.ContextVar("clerk")
    variable.set(hire())
    return variable.get


def weak_reference(hire: Hire) -> Find:
    class Office:
        clerk: Any = None

    office = Office()
    office.clerk = hire()
    _kept.append(office)
    reference = weakref.ref(office)
    return lambda: _present(reference()).clerk


_kept: list[Any] = []


def _present(value: Any) -> Any:
    assert value is not None
    return value


def found_by_collector(hire: Hire) -> Find:
    clerk = hire()
    identity = id(clerk)
    _kept.append(clerk)

    def find() -> Any:
        for item in gc.get_objects():
            if id(item) == identity:
                return item
        return clerk  # the collector does not track every object

    return find


def shallow_copy(hire: Hire) -> Find:
    clerk = hire()
    return lambda: copy.copy(clerk)


PLACES: Sequence[Place] = (
    closure,
    default_argument,
    built_in_tool,
    module_attribute,
    import_in_function,
    import_by_name,
    module_getattr,
    globals_by_name,
    evaluated_code,
    class_attribute,
    metaclass_attribute,
    dict_in_object,
    registry_by_name,
    cached_factory,
    helper_class,
    bound_method,
    callable_object,
    cached_property,
    descriptor,
    object_getattr,
    missing_key,
    attribute_path,
    partial,
    generator,
    context_manager,
    dispatched_function,
    context_variable,
    weak_reference,
    found_by_collector,
    shallow_copy,
)


# --- ways: how the tool runs the clerk ---
#
# Each is a context manager, entered before the run, that yields a function of ``Work``.


class Work:
    """Run code on any OS thread or event loop, and keep what it raised for the tool."""

    def __init__(
        self,
        run: Callable[[], Any],
        run_async: Callable[[], Awaitable[Any]],
        run_other: Callable[[], Any] = int,
    ) -> None:
        self._run = run
        self._run_async = run_async
        self._run_other = run_other
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._other: Work | None = None

    def __call__(self, *_: Any) -> None:
        """Run it in a plain function."""
        try:
            self._run()
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()

    async def coroutine(self) -> None:
        """Run it in a coroutine."""
        try:
            await self._run_async()
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()

    def other(self, *_: Any) -> None:
        """Run the other code in a plain function."""
        self._other = Work(self._run_other, self._run_async)
        self._other()

    def wait(self) -> None:
        """Wait for the end."""
        assert self._ended.wait(MAX_SECONDS), "the clerk did not return"

    def result(self) -> None:
        """Wait for the end, and raise in the tool what the code raised."""
        self.wait()
        if self._error is not None:
            raise self._error
        if self._other is not None:
            self._other.result()


Way = Callable[[], AbstractContextManager[Callable[[Work], Any]]]


@contextmanager
def called() -> Iterator[Any]:
    yield lambda work: work()


@contextmanager
def called_in_empty_context() -> Iterator[Any]:
    yield lambda work: Context().run(work)


@contextmanager
def thread() -> Iterator[Any]:
    yield lambda work: threading.Thread(target=work).start()


@contextmanager
def thread_class() -> Iterator[Any]:
    class Clerking(threading.Thread):
        def __init__(self, work: Work) -> None:
            super().__init__()
            self.work = work

        def run(self) -> None:
            self.work()

    yield lambda work: Clerking(work).start()


@contextmanager
def thread_in_thread() -> Iterator[Any]:
    def start(work: Work) -> None:
        threading.Thread(target=work).start()

    yield lambda work: threading.Thread(target=start, args=(work,)).start()


@contextmanager
def low_level_thread() -> Iterator[Any]:
    yield lambda work: _thread.start_new_thread(work, ())


@contextmanager
def timer() -> Iterator[Any]:
    yield lambda work: threading.Timer(0.001, work).start()


@contextmanager
def pool() -> Iterator[Any]:
    def run(work: Work) -> None:
        with ThreadPoolExecutor(1) as workers:
            workers.submit(work)

    yield run


@contextmanager
def pool_with_two_clerks() -> Iterator[Any]:
    def run(work: Work) -> None:
        with ThreadPoolExecutor(2) as workers:
            workers.submit(work)
            workers.submit(work.other)

    yield run


@contextmanager
def pool_map() -> Iterator[Any]:
    def run(work: Work) -> None:
        with ThreadPoolExecutor(1) as workers:
            list(workers.map(work, [1]))

    yield run


@contextmanager
def pool_initializer() -> Iterator[Any]:
    def run(work: Work) -> None:
        with ThreadPoolExecutor(1, initializer=work) as workers:
            workers.submit(int)

    yield run


@contextmanager
def pool_started_before() -> Iterator[Any]:
    with ThreadPoolExecutor(1) as workers:
        workers.submit(int).result()
        yield workers.submit


@contextmanager
def pool_callback() -> Iterator[Any]:
    with ThreadPoolExecutor(1) as workers:
        workers.submit(int).result()
        yield lambda work: workers.submit(time.sleep, 0.01).add_done_callback(work)


@contextmanager
def multiprocessing_thread_pool() -> Iterator[Any]:
    with ThreadPool(1) as workers:
        workers.apply(int)
        yield workers.apply_async


SYNC_WAYS: Sequence[Way] = (called_in_empty_context,)
#: They work in coroutines too: the tool blocks its event loop until the clerk has returned.
PLAIN_WAYS: Sequence[Way] = (
    thread,
    thread_class,
    thread_in_thread,
    low_level_thread,
    timer,
    pool,
    pool_with_two_clerks,
    pool_map,
    pool_initializer,
    pool_started_before,
    pool_callback,
    multiprocessing_thread_pool,
)


@contextmanager
def awaited() -> Iterator[Any]:
    yield lambda work: work.coroutine()


@contextmanager
def task() -> Iterator[Any]:
    yield lambda work: asyncio.ensure_future(work.coroutine())


@contextmanager
def task_in_empty_context() -> Iterator[Any]:
    yield lambda work: asyncio.create_task(work.coroutine(), context=Context())


@contextmanager
def task_in_earlier_context() -> Iterator[Any]:
    earlier = contextvars.copy_context()
    yield lambda work: asyncio.create_task(work.coroutine(), context=earlier)


@contextmanager
def empty_context() -> Iterator[Any]:
    yield lambda work: Context().run(asyncio.ensure_future, work.coroutine())


@contextmanager
def loop_callback_in_empty_context() -> Iterator[Any]:
    async def run(work: Work) -> None:
        tasks: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()
        asyncio.get_running_loop().call_soon(
            lambda: tasks.put_nowait(asyncio.ensure_future(work.coroutine())), context=Context()
        )
        await (await tasks.get())

    yield run


@contextmanager
def default_executor() -> Iterator[Any]:
    yield lambda work: asyncio.get_running_loop().run_in_executor(None, work)


@contextmanager
def asyncio_to_thread() -> Iterator[Any]:
    yield asyncio.to_thread


@contextmanager
def anyio_to_thread() -> Iterator[Any]:
    import anyio.to_thread

    yield anyio.to_thread.run_sync


@contextmanager
def thread_with_new_loop() -> Iterator[Any]:
    async def run(work: Work) -> None:
        threading.Thread(target=asyncio.run, args=(work.coroutine(),)).start()

    yield run


@contextmanager
def loop_of_other_thread() -> Iterator[Any]:
    loop = asyncio.new_event_loop()
    runner = threading.Thread(target=loop.run_forever)
    runner.start()

    async def run(work: Work) -> None:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work.coroutine(), loop))

    try:
        yield run
    finally:
        loop.call_soon_threadsafe(loop.stop)
        runner.join()
        loop.close()


ASYNC_WAYS: Sequence[Way] = (
    task,
    task_in_empty_context,
    task_in_earlier_context,
    empty_context,
    loop_callback_in_empty_context,
    default_executor,
    asyncio_to_thread,
    anyio_to_thread,
    thread_with_new_loop,
    loop_of_other_thread,
)


# --- the test ---


def shapes(harness: type[AdapterHarness]) -> dict[str, tuple[Place, Way]]:
    """Return the shapes that a framework's tools can have, by name."""
    in_tool = awaited if harness.colour == "async" else called
    ways = [*PLAIN_WAYS, *(ASYNC_WAYS if harness.colour == "async" else SYNC_WAYS)]
    return {
        **{place.__name__: (place, in_tool) for place in PLACES},
        **{way.__name__: (module_attribute, way) for way in ways},
        **{
            f"{place.__name__}-{thread.__name__}": (place, thread)
            for place in PLACES
            if place not in (module_attribute, context_variable)  # the same, and not inherited
        },
    }


class Meeting:
    """Two tools wait here for each other, so that both delegate at the same time."""

    def __init__(self) -> None:
        self._arrived: set[str] = set()
        self._ends = time.monotonic() + MAX_SECONDS

    def arrive(self, side: str) -> None:
        self._arrived.add(side)

    def is_open(self) -> bool:
        assert time.monotonic() < self._ends, f"only {self._arrived} came"
        return len(self._arrived) < 2


class Side:
    """An agent that delegates, with its own clerks: the guarded one, or the unguarded one."""

    def __init__(
        self, name: str, kind: type[AdapterHarness], gate: Gate, folder: Path, meeting: Meeting
    ) -> None:
        self.name = name
        self.paid: list[str] = []
        self._meeting = meeting
        self._folder = folder / name
        self._folder.mkdir()
        delegate = self._sync_tool() if kind.colour == "sync" else self._async_tool()
        script = ([ScriptedCall("call_1", "delegate", {"task": "pay"})], LAST)
        self.harness = kind(
            HarnessContext(
                gate=gate,
                tools=[delegate],
                script=ModelScript(script, self._folder / "model"),
                folder=self._folder,
            )
        )

    def hire(self, payee: str = "ana") -> Any:
        """Build a clerk."""

        def pay(to: str) -> str:
            """Pay a person."""
            self.paid.append(to)
            return f"paid {to}"

        script = ([ScriptedCall("call_1", "pay", {"to": payee})], LAST)
        tool = pay if self.harness.colour == "sync" else as_async(pay)
        return self.harness.build_clerk([tool], ModelScript(script, self._folder / "clerk"))

    def use(self, place: Place, way: Callable[[Work], Any]) -> None:
        """Set how the tool finds the clerk and runs it."""
        self._find = place(self.hire)
        self._way = way

    def _work(self) -> Work:
        harness = self.harness
        return Work(
            lambda: harness.run_clerk_sync(self._find(), "pay"),
            lambda: harness.run_clerk(self._find(), "pay"),
            lambda: harness.run_clerk_sync(self.hire("bob"), "pay"),
        )

    def _async_tool(self) -> Callable[..., Any]:
        async def delegate(task: str) -> str:
            """Give a task to the clerk."""
            self._meeting.arrive(self.name)
            while self._meeting.is_open():
                await asyncio.sleep(0.001)
            work = self._work()
            running = self._way(work)
            if inspect.isawaitable(running):
                await running
            work.result()
            return LAST

        return delegate

    def _sync_tool(self) -> Callable[..., Any]:
        def delegate(task: str) -> str:
            """Give a task to the clerk."""
            self._meeting.arrive(self.name)
            while self._meeting.is_open():
                time.sleep(0.001)
            work = self._work()
            self._way(work)
            work.result()
            return LAST

        return delegate

    async def run_unguarded(self) -> None:
        """Run an agent with the same tool that was never guarded."""
        context = self.harness.context
        agent = self.harness.build_clerk(context.tools, context.script)
        if self.harness.colour == "sync":
            await asyncio.to_thread(self.harness.run_clerk_sync, agent, "go")
        else:
            await self.harness.run_clerk(agent, "go")


@contextmanager
def _gate_in(folder: Path) -> Iterator[Gate]:
    gate = Gate(SqliteStore(folder / "sayso.db"), policy=POLICY, agent="teller", wait=0)
    yield gate
    gate.close()


@asynccontextmanager
async def _sides(
    kind: type[AdapterHarness], shape: str, gate: Gate, folder: Path, meeting: Meeting
) -> AsyncIterator[tuple[Side, Side]]:
    """Yield a side to guard and one that is never guarded, with code of the same shape."""
    place, way = shapes(kind)[shape]
    sides = tuple(Side(name, kind, gate, folder, meeting) for name in ("guarded", "unguarded"))
    with ExitStack() as ways:
        try:
            for side in sides:
                await side.harness.open()
                side.use(place, ways.enter_context(way()))
            yield sides[0], sides[1]
        finally:
            for side in sides:
                await side.harness.close()


async def attack(kind: type[AdapterHarness], shape: str, folder: Path) -> None:
    """Delegate in a guarded agent. Afterwards the same code runs as ever without a gate."""
    meeting = Meeting()
    meeting.arrive("unguarded")
    with _gate_in(folder) as gate:
        async with _sides(kind, shape, gate, folder, meeting) as (guarded, unguarded):
            agent, status = await _run_guarded(guarded)
            assert guarded.paid == [], "pay ran, and no person was asked"
            if status == "paused":
                await _settle(agent, Inbox(gate.store), guarded)
            meeting.arrive("guarded")  # if its tool was not reached
            await unguarded.run_unguarded()
            assert sorted(unguarded.paid) == _payees(shape)


async def run_side_by_side(kind: type[AdapterHarness], shape: str, folder: Path) -> None:
    """Delegate in a guarded agent and in one that was never guarded, at the same time.

    A callback of the event loop in an empty context may belong to either: while the guarded run is
    open it is refused, and the message says how to go on.
    """
    meeting = Meeting()
    with _gate_in(folder) as gate:
        async with _sides(kind, shape, gate, folder, meeting) as (guarded, unguarded):
            beside = asyncio.ensure_future(unguarded.run_unguarded())
            refusal: BaseException | None = None
            try:
                await _run_guarded(guarded)
            finally:
                meeting.arrive("guarded")  # if its tool was not reached
                try:
                    await beside
                except Exception as error:
                    refusal = error
            if shape == loop_callback_in_empty_context.__name__ and not unguarded.paid:
                assert refusal is None or "contextvars.copy_context()" in str(_cause(refusal))
                return
            if refusal is not None:
                raise refusal
            assert sorted(unguarded.paid) == _payees(shape)


def _payees(shape: str) -> list[str]:
    return ["ana", "bob"] if shape == pool_with_two_clerks.__name__ else ["ana"]


async def _run_guarded(side: Side) -> tuple[Any, str]:
    """Return the agent and the status of its run, or why there is none."""
    try:
        agent = side.harness.agent()
        result = await agent.run("go", thread=THREAD)
    except Exception as error:
        if _cause(error) is None:
            raise
        return None, "refused"
    return agent, result.status


def _cause(error: BaseException | None) -> SaysoError | None:
    """Return the error of Sayso that is behind this one."""
    if error is None or isinstance(error, SaysoError):
        return error
    return _cause(error.__cause__ or error.__context__)


async def _settle(agent: Any, inbox: Inbox, side: Side) -> None:
    """Approve whatever is asked until the run ends: each approved payment is made once."""
    approved = []
    result = None
    for _ in range(5):
        for request in (await inbox.pending(thread=THREAD)).items:
            assert request.tool == "pay"
            approved.append(request.args["to"])
            await inbox.decide(request.id, request.approve(), by="ana")
        result = await agent.resume(THREAD)
        assert len(side.paid) <= len(approved)
        if result.status != "paused":
            break
    assert (result and result.status) == "done"
    assert sorted(side.paid) == sorted(approved)


class EscapeTests:
    """No tool of a clerk runs without a decision, however a guarded agent's tool runs the clerk."""

    harness: ClassVar[type[AdapterHarness]]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrize the tests by the shapes of the harness."""
        kind = self.harness
        if "shape" in metafunc.fixturenames:
            metafunc.parametrize("shape", shapes(kind))
        if "way" in metafunc.fixturenames:
            ways = [name for name, (place, _) in shapes(kind).items() if place is module_attribute]
            metafunc.parametrize("way", ways)

    def test_delegated_call_needs_a_decision(self, shape: str, tmp_path: Path) -> None:
        asyncio.run(attack(self.harness, shape, tmp_path))

    def test_unguarded_agent_is_not_disturbed(self, way: str, tmp_path: Path) -> None:
        asyncio.run(run_side_by_side(self.harness, way, tmp_path))
