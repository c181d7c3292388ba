"""``RunScope``: the run that a call belongs to, opened by ``gate.run("order-17")`` or for one call.

An open run is a context variable, so every function and task that is started inside it has it. A
new OS thread does not: pools and ``threading.Thread`` start with an empty context, so a call made
there would get a run of its own, and would run again when the outer run is entered again. There is
no way to tell whether such an OS thread works for the open run. So while a run is open, a call from
an OS thread that does not have it is refused, with advice on how to pass the run on. Two kinds of
code are known to be outside the run, and are not refused:

- code on the OS thread that entered the run, such as another task of the same event loop;
- code whose context comes from the main thread or from a task, in any OS thread
  (``asyncio.to_thread``): if it had been started inside a run, its context would have that run.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import heapq
import inspect
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ParamSpec, TypeVar

from sayso.errors import InvalidCall, Paused, SaysoError, StoreError, describe_error
from sayso.forking import call_in_child, process
from sayso.gate import os_threads
from sayso.gate.driver import Driver
from sayso.gate.options import MAX_NAME, checked_string
from sayso.rows import MADE_FOR_ONE, Call, Run
from sayso.sync import on_loop, run_sync

_scopes: contextvars.ContextVar[tuple[RunScope, ...]] = os_threads.follow(
    contextvars.ContextVar("sayso_scopes", default=()), ()
)


P = ParamSpec("P")
T = TypeVar("T")

#: Whether this context would have an open run if it had been started inside one.
_context_is_traceable: contextvars.ContextVar[bool] = os_threads.follow(
    contextvars.ContextVar("sayso_rooted", default=False), False
)


class RunScope:
    """``async with gate.run("order-17"):`` or ``with …``: the calls inside belong to that run.

    If you enter the same name again, in any process, each call that was made before is the same
    call, with its request, its decision and its stored result. Calling the same function with the
    same arguments again is a new call, unless the call before is still pending: then it is that
    one.
    """

    def __init__(
        self,
        driver: Driver,
        name: str,
        requester: str,
        *,
        alone: bool = False,
        thread: str = "",
        prefix: str = "",
        owner: str = "",
        hold: bool = False,
        steps: bool = False,
        named: str | None = None,
        refusal_scope: str = "",
    ) -> None:
        # The body of a call has the names of the scope around it.
        if not prefix and not alone:
            if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME:
                raise InvalidCall(f"a run needs a name of 1 to {MAX_NAME} characters", "run")
            checked_string(name, "run")
            if name.startswith("@"):
                raise InvalidCall("names that begin with @ are reserved: use another name", "run")
            checked_string(requester, "requester", MAX_NAME)
        self.driver = driver
        self.name = name
        self.requester = requester
        #: Made for one call, which also ends it.
        self.alone = alone or (not prefix and MADE_FOR_ONE.fullmatch(name) is not None)
        #: Just made, so that nothing of it is in the store yet.
        self.fresh = alone
        #: An agent's tool asks within the run that called it, under a key of its own.
        self.thread = thread or name
        self._owner = owner
        #: What the refusals of the run last for, if that is not the run (``Run.scope``).
        self.refusal_scope = refusal_scope
        #: The run's lease is held for longer than one call, and kept between calls.
        self.hold = hold
        #: Entered for the steps of one call only: no framework drives this run.
        self.steps = steps
        self._prefix = prefix
        #: The prefix of keys that callers choose. Such a key is unique in the run, or in the call
        #: of a framework or an agent around it.
        self._named = prefix if named is None else named
        # One entry may be used in many OS threads, and a finalizer may make a call in the middle of
        # another one, so there is no lock here: each of these is changed in one step.
        self._counts: dict[str, itertools.count[int]] = {}
        self._counted: dict[str, tuple[str, int]] = {}
        #: The numbers of calls of each content that ended in ``Paused`` and were not repeated yet.
        self._waiting: dict[str, list[int]] = {}
        #: How many new calls were made in this entry.
        self._opened = itertools.count()
        #: The run as the last record left it.
        self.recorded: Run | None = None
        #: The call that was recorded last.
        self.ended_call: Call | None = None
        self._token: contextvars.Token[tuple[RunScope, ...]] | None = None
        self._open: _OpenRun | None = None
        #: The process that entered it.
        self._entered_in = process.forks

    @property
    def owner(self) -> str:
        """The owner of the run's lease while one of its calls runs here."""
        return self._owner or self.driver.owner

    def key(self, subject: str, content: str = "") -> str:
        """Return the key of a call: what is called, with which arguments, and its number here.

        ``subject`` is the kind of call and its function: ``confirm``, ``ask``, ``call:pay``.
        """
        content = f"{subject}#{content}" if content else subject
        try:
            number = heapq.heappop(self._waiting[content])
        except (KeyError, IndexError):
            number = next(self._counts.setdefault(content, itertools.count()))
        key = f"{self._prefix}{content}#{number}"
        self._counted[key] = (content, number)
        return key

    def named_key(self, subject: str, name: str) -> str:
        """Return the key of a call with a name that its caller chose.

        A slash in a name is escaped, because slashes separate a call from the calls in its body.
        """
        return f"{self._named}{subject}={quoted(name)}"

    def note_paused(self, key: str) -> None:
        """Note that a call has paused: the same call in this entry means that one."""
        counted = self._counted.pop(key, None)
        if counted is not None:
            content, number = counted
            heapq.heappush(self._waiting.setdefault(content, []), number)

    @property
    def of_call(self) -> bool:
        return bool(self._prefix)

    def body(self, key: str) -> RunScope:
        """Return the scope for the body of a call.

        Each body counts its own calls, so that a body that is not run again does not shift the
        numbers of the next.
        """
        if self._prefix == f"{key}/":
            return self
        return RunScope(
            self.driver,
            self.name,
            self.requester,
            thread=self.thread,
            prefix=f"{key}/",
            owner=self._owner,
            hold=self.hold,
            steps=self.steps or not self._prefix,
            named=self._named,
        )

    def _enter(self) -> RunScope:
        if self._token is not None:
            raise SaysoError(f"run {self.name!r} is entered already: call gate.run(...) again")
        self._token = _scopes.set((*_scopes.get(), self))
        self._entered_in = process.forks
        self._open = _OpenRun(self)
        return self

    def takes_first_call(self) -> bool:
        """Return whether this is the first new call of the entry."""
        return next(self._opened) == 0

    @contextmanager
    def inside(self, call: Call | None = None) -> Iterator[None]:
        """Make everything that is asked inside ``with`` belong to this run, or to ``call``.

        If several tasks of a group pause, one ``Paused`` is raised for all of them.
        """
        scope = self
        if call is not None:
            inner = self.driver.backend.inner_run(call)
            if inner is None:
                scope = self.body(call.key)
            else:
                scope = RunScope(self.driver, inner, self.requester)
        token = _scopes.set((*_scopes.get(), scope))
        # Calls that were made without a run are independent, in any number of OS threads.
        open_run = None if self.alone else _OpenRun(self)
        try:
            yield
        except BaseExceptionGroup as group:
            raise _ungrouped(group) from None
        finally:
            if open_run is not None:
                open_run.close()
            _scopes.reset(token)

    @contextmanager
    def one_pause(self) -> Iterator[AbstractContextManager[None]]:
        """Ask about several calls in one pause: ``with run.one_pause() as each:``.

        Make each call inside ``with each:``. A call that waits for a decision leaves only that
        block; at the end, one ``Paused`` is raised for all of them.
        """
        pauses: list[Paused] = []

        class Each(AbstractContextManager[None]):
            def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
                if not isinstance(error, Paused):
                    return False
                pauses.append(error)
                return True

        yield Each()
        if pauses:
            raise _joined(pauses)

    async def _exit(self, error: BaseException | None) -> None:
        if self._token is not None:
            _scopes.reset(self._token)
            self._token = None
        if self._open is not None:
            self._open.close()
            self._open = None
        # If the store is away, the call that wrote to it has waited: leave the run as it is.
        if isinstance(error, Paused | StoreError) or self.driver.closed:
            return
        if self._entered_in != process.forks:  # a forked child, whose parent is still inside
            return
        store_id = self.driver.backend.store_id
        for open_run in _all_open():
            if (open_run.store_id, open_run.run) == (store_id, self.name):
                return  # entered more than once here: the last exit finishes the run
        status = "done"
        output = None
        if error is not None:
            status = "failed"
            output = describe_error(error)
        await self.driver.backend.finish(self, status, output)

    def __enter__(self) -> RunScope:
        if on_loop():
            raise SaysoError("on an event loop, write `async with gate.run(...)`")
        return self._enter()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        run_sync(self._exit(error))

    async def __aenter__(self) -> RunScope:
        return self._enter()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self._exit(error)


def quoted(name: str) -> str:
    """Escape a name for use in a key, where a slash is a separator."""
    return name.replace("%", "%25").replace("/", "%2F")


class _OpenRun:
    """A run that is entered somewhere in this process, and by which OS thread."""

    __slots__ = ("__weakref__", "run", "store_id", "thread")

    def __init__(self, scope: RunScope) -> None:
        self.store_id = scope.driver.backend.store_id
        self.run = scope.name
        self.thread = threading.get_ident()
        _entries[id(self)] = weakref.ref(self)

    def close(self) -> None:
        _entries.pop(id(self), None)


#: Weak, so that an entry whose code was dropped before its end does not stay open; and without a
#: lock, because a finalizer may leave a run while another one is entered.
_entries: dict[int, weakref.ref[_OpenRun]] = {}


def _all_open() -> list[_OpenRun]:
    open_runs = []
    for entry in _entries.copy().values():
        if (open_run := entry()) is not None:
            open_runs.append(open_run)
    return open_runs


def _forget_other_threads() -> None:
    """Close the runs of other OS threads: a forked child has only one."""
    for open_run in _all_open():
        if open_run.thread != threading.get_ident():
            open_run.close()


call_in_child(_forget_other_threads)


def root_context() -> None:
    """Mark this context, and all copies of it, as one that would have an open run.

    Not that of a worker thread: it outlives its jobs, and the next one may belong to a run.
    """
    if threading.current_thread() is threading.main_thread() or on_loop():
        _context_is_traceable.set(True)


root_context()


def context_is_known() -> bool:
    """Return whether code in this context has the run that it was started in, if any."""
    return _context_is_traceable.get()


def open_scope(driver: Driver) -> RunScope | None:
    """Return the innermost open run of this context on the driver's store, or None."""
    for scope in reversed(_scopes.get()):
        if scope.driver.backend.store_id == driver.backend.store_id:
            return scope
    return None


def current_scope(driver: Driver) -> RunScope:
    """Return the innermost open run on the driver's store, or a new one for one call.

    Raises ``InvalidCall`` if a run is open and this OS thread may or may not be part of it.
    """
    scope = open_scope(driver)
    if scope is not None:
        return scope
    if not _context_is_traceable.get():
        _refuse_unknown_thread(driver)
    return RunScope(driver, "run_" + os.urandom(8).hex(), "", alone=True)


def _refuse_unknown_thread(driver: Driver) -> None:
    os_thread = threading.get_ident()
    store_id = driver.backend.store_id
    others = sorted(o.run for o in _all_open() if o.thread != os_thread and o.store_id == store_id)
    if others:
        name = threading.current_thread().name
        raise InvalidCall(
            f"the run {others[0]!r} is open, and it is unknown whether this call in the OS thread "
            f"{name!r} belongs to it: OS threads do not get the context of the code that starts "
            "them. To make the call part of that run, pass `gate.carry(function)` to the thread or "
            "pool instead of the function, or use asyncio.to_thread. If it belongs to another run, "
            "enter that one here: `with gate.run(...):`",
            "run",
        )


def carry(driver: Driver, function: Callable[P, T]) -> Callable[P, T]:
    """Bind a function to the run that is open here, for OS threads, pools and executors."""
    if open_scope(driver) is None:
        raise InvalidCall(
            "carry() needs an open run: call it inside `with gate.run('order-17'):`", "run"
        )
    context = contextvars.copy_context()

    # Each call gets a copy, since a context cannot be entered twice at the same time.
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def carried(*args: P.args, **kwargs: P.kwargs) -> Any:
            loop = asyncio.get_running_loop()
            return await loop.create_task(function(*args, **kwargs), context=context.copy())

        return carried  # type: ignore[return-value]  # awaiting it gives the same

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        return context.copy().run(function, *args, **kwargs)

    return called


def open_scopes() -> tuple[RunScope, ...]:
    """Return the runs that are entered here, outermost first."""
    return _scopes.get()


def _joined(pauses: Sequence[Paused]) -> Paused:
    requests = {request.id: request for pause in pauses for request in pause.requests}
    return Paused(pauses[0].run, tuple(requests.values()))


def _ungrouped(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the errors of a task group, or one ``Paused`` if there are only pauses."""
    pauses, errors = group.split(Paused)
    if pauses is None or errors is not None:
        return errors or group
    return _joined([error for error in _leaves(pauses) if isinstance(error, Paused)])


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        yield from _leaves(error) if isinstance(error, BaseExceptionGroup) else (error,)
