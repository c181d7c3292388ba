"""The door for agents, and for any code: check, ask, wait, run once."""

from __future__ import annotations

import functools
import inspect
import logging
import os
import secrets
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, Unpack, overload

from sayso import codec, text
from sayso.errors import InvalidCall, NotFound, Paused, Rejected
from sayso.gate.backend import StoreBackend
from sayso.gate.driver import Driver
from sayso.gate.options import (
    UNSET,
    AskOptions,
    GuardOptions,
    Wait,
    check_known,
    checked_channels,
    checked_effect_key,
    checked_functions,
    checked_lease,
    checked_name,
    checked_needs,
    checked_raises,
    checked_title,
    checked_wait,
    checked_words,
    fixed_title,
    own_terms,
    question_terms,
)
from sayso.gate.plan import Plan, check_step, once_plan
from sayso.gate.policies import PolicyInForce, judge
from sayso.gate.scope import RunScope, carry, current, root_context
from sayso.gate.settling import checked_settle, settler
from sayso.gate.telling import Channel
from sayso.policy import Policy, Predicate
from sayso.rows import Call
from sayso.stores import open_store
from sayso.stores.base import Store
from sayso.stores.nested_runs import call_off
from sayso.sync import run_sync, run_user_coroutine, sync_twin, to_thread
from sayso.types import Json, Question, Request, Terms, ToolCall, moment
from sayso.views import stored_question

log = logging.getLogger("sayso.gate")

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
T = TypeVar("T")


DEFAULT_LEASE = 30.0


class Gate:
    """Ask before acting, ask a person something, and run what was approved once.

    ``store`` is a URL or a store. ``policy`` is a ``Policy`` or the path of a TOML file. ``wait``
    says how long a call waits for people: ``None`` for ever, ``0`` not at all (``Paused`` is
    raised at once); the default is ``None`` in a terminal and ``0`` elsewhere. ``channels`` are
    async callables that get each new request to somebody.
    """

    def __init__(
        self,
        store: str | Path | Store = "memory://",
        *,
        policy: Policy | str | Path | None = None,
        agent: str = "gate",
        wait: Wait = UNSET,
        channels: Iterable[Channel] = (),
        lease: float = DEFAULT_LEASE,
    ) -> None:
        root_context()
        self.store = open_store(store)
        self.agent = checked_name(agent, "agent")
        self.backend = StoreBackend(self.store, checked_lease(lease))
        self.driver = Driver(
            self.backend,
            agent=self.agent,
            owner=f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}",
            channels=checked_channels(channels),
            hint=partial(_hint, store=self.store.url),
        )
        #: Where each guarded function was defined, by the name that its calls go by.
        self._defined: dict[str, str] = {}
        self._has_policy = policy is not None
        self._policy = PolicyInForce(policy, self.store)
        self._wait = _default_wait() if wait is UNSET else checked_wait(wait)
        #: How long a framework's call waits for people: only if the user said so.
        self.framework_wait = 0.0 if wait is UNSET else self._wait

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The ways to people."""
        return self.driver.channels

    @channels.setter
    def channels(self, channels: Iterable[Channel]) -> None:
        self.driver.channels = checked_channels(channels)

    def __repr__(self) -> str:
        return f"Gate({self.store.url!r}, agent={self.agent!r})"

    def run(self, name: str, *, requester: str = "") -> RunScope:
        """Name the run that the calls inside ``with`` or ``async with`` belong to."""
        return RunScope(self.driver, name, requester)

    def carry(self, function: Callable[P, T]) -> Callable[P, T]:
        """Bind a function to the run that is open here, so that a thread or pool can call it.

        ``with gate.run("order-17"): pool.map(gate.carry(pay), orders)``. A new OS thread knows
        nothing of the run, so a guarded call made there is refused without it. Tasks and
        ``asyncio.to_thread`` need no ``carry``.
        """
        return carry(self.driver, function)

    # -- guarding functions

    @overload
    def guard(self, function: F, /) -> F: ...
    @overload
    def guard(self, /, **options: Unpack[GuardOptions]) -> Callable[[F], F]: ...
    def guard(self, function: Any = None, /, **options: Unpack[GuardOptions]) -> Any:
        """Ask before this function runs: ``@gate.guard`` or ``@gate.guard(needs_approval=…, …)``.

        Without ``needs_approval`` the gate's policy decides, and without a policy every call is
        asked about. ``needs_approval`` is yes, no, or a predicate over the arguments; ``allowed``
        says which decisions may be made; ``effect`` is what running it changes:
        ``"once"`` (the default), ``"idempotent"`` if it may run again after a crash, or
        ``"read"``. ``effect_key`` makes that effect unique in the store; ``settle`` looks
        whether it happened, where a process died in the middle. ``binds`` gives facts of
        the surroundings that must not change between approval and start; ``preview`` shows what
        would happen. ``title`` is what people read first: a text with argument names in braces, or
        a function of the arguments. The other options are those of ``ask``.
        """
        check_known(options, GuardOptions)
        if function is None:
            return lambda target: self._guarded(target, options)
        return self._guarded(function, options)

    def _guarded(self, function: Callable[..., Any], options: GuardOptions) -> Any:
        from sayso.gate.guard import Guard, tool_of  # brings pydantic
        from sayso.schema import Signature

        description = options.get("description")
        if description is not None:
            checked_words(description, "description")
        checked_functions(options)
        signature = Signature.of(function, name=options.get("name"), description=description)
        title, arguments = (
            checked_title(options.get("title"), signature),
            signature.parameters["properties"],
        )
        if options.get("name") is None:
            self._check_unique(signature.name, function)
        return Guard(
            driver=self.driver,
            judge=self.judge,
            function=function,
            signature=signature,
            tool=tool_of(signature, options.get("version", ""), title),
            title=title,
            own=own_terms(options),
            needs_approval=checked_needs(options.get("needs_approval", not self._has_policy)),
            binds=options.get("binds"),
            preview=options.get("preview"),
            note=checked_words(options.get("note") or "", "note"),
            key=_key_function(options.get("key")),
            wait=self._wait_of(options.get("wait", UNSET)),
            effect_key=checked_effect_key(options, arguments),
            settle=settler(checked_settle(options, arguments), signature),
            raises=checked_raises(options.get("raises", ())),
        ).wrap()

    def _check_unique(self, name: str, function: Callable[..., Any]) -> None:
        """Refuse a function of the same name from another module: their calls would share keys,
        decisions and results. Defining the same function again is fine, as notebooks do."""
        module = inspect.unwrap(function).__module__
        first = self._defined.setdefault(name, module)
        if first != module:
            raise TypeError(
                f"{first}.{name} and {module}.{name} would both be guarded as {name!r}, and calls "
                "of one could be taken for calls of the other: pass name= to one of them"
            )

    # -- asking

    async def ask(self, question: Question | str, **options: Unpack[AskOptions]) -> Any:
        """Ask a person something and give the answer; ``Rejected`` if they will not answer."""
        if isinstance(question, str):
            question = Question(question)
        if not isinstance(question, Question):
            raise InvalidCall("ask with a text or a sayso.Question", "question")
        if question.schema is not None:
            from sayso import schema

            schema.check_schema(question.schema)
        content = stored_question(question)
        return await self._put("ask", "question", content, ("respond", "reject"), options)

    async def confirm(
        self,
        text: str,
        details: Mapping[str, Json] | None = None,
        **options: Unpack[AskOptions],
    ) -> bool:
        """Ask yes or no about a text and its details, which are both in the digest."""
        if not isinstance(text, str) or not text.strip():
            raise InvalidCall("say what is to be approved", "text")
        if not isinstance(details, Mapping | None):
            raise InvalidCall("details are an object: names and values", "details")
        content = {"text": text, "details": dict(details or {})}
        try:
            await self._put("confirm", "approval", content, ("approve", "reject"), options)
        except Rejected:
            return False
        return True

    async def _put(
        self,
        subject: str,
        kind: str,
        content: dict[str, Json],
        allowed: tuple[str, ...],
        options: AskOptions,
    ) -> Any:
        check_known(options, AskOptions)
        own = question_terms(kind, allowed, options)
        scope = current(self.driver)
        data = codec.canonical(content)
        key = options.get("key")

        async def terms(_: dict[str, Any]) -> Terms:
            return own

        plan = Plan(
            key=scope.key(subject, codec.sha256(data)[:32])
            if key is None
            else scope.named_key(subject, checked_name(key, "key")),
            kind=kind,
            args=data.decode(),
            agent=self.agent,
            terms=terms,
            title=fixed_title(options.get("title")),
            note=checked_words(options.get("note") or "", "note"),
            wait=self._wait_of(options.get("wait", UNSET)),
            named=key is not None,
        )
        return await self.driver.result(scope, plan)

    @overload
    async def once(
        self, key: str, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any
    ) -> T: ...
    @overload
    async def once(self, key: str, function: Callable[..., T], *args: Any, **kwargs: Any) -> T: ...
    async def once(self, key: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a step of a named run once; later entries of the run get its stored result.

        ``key`` alone names the step: whichever function is passed with it next time, the stored
        result is returned.
        """
        scope = current(self.driver)
        if scope.fresh:
            raise InvalidCall(
                "once() belongs into a named run: with gate.run('order-17'): ...", "run"
            )
        check_step(function)
        checked_name(key, "key")

        async def run(call: Call) -> Any:
            value: Any = function(*args, **kwargs)
            if inspect.isawaitable(value):
                waiting = value
                value = await run_user_coroutine(lambda: _awaited(waiting))
            return value

        row_key = scope.named_key("once", key)
        plan = once_plan(key, run, agent=self.agent, row_key=row_key, wait=self._wait)
        return await self.driver.result(scope, plan)

    async def cancel(self, run: str, *, by: str = "code", reason: str = "") -> None:
        """Call off a run: what has not started never will; what runs finishes and is recorded."""
        await to_thread(self._stop, run, by, reason, False)

    async def supersede(self, run: str, *, by: str = "code", reason: str = "") -> None:
        """End a run because newer input took its place."""
        await to_thread(self._stop, run, by, reason or "newer input", True)

    def _stop(self, name: str, by: str, reason: str, superseded: bool) -> None:
        run = self.store.run(name)
        if run is None:
            raise NotFound(f"no run {name!r}")
        call_off(self.store, run, by, reason, superseded=superseded)

    # -- twins

    ask_sync = sync_twin(ask)
    confirm_sync = sync_twin(confirm)

    @overload
    def once_sync(
        self, key: str, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any
    ) -> T: ...
    @overload
    def once_sync(self, key: str, function: Callable[..., T], *args: Any, **kwargs: Any) -> T: ...
    def once_sync(self, key: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return run_sync(self.once(key, function, *args, **kwargs))

    once_sync.__doc__ = once.__doc__

    cancel_sync = sync_twin(cancel)
    supersede_sync = sync_twin(supersede)

    # -- for the life of a call

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self._policy.current()

    async def judge(
        self,
        call: ToolCall,
        own: Terms,
        needs_approval: bool | Predicate,
        policy: Policy | None = None,
    ) -> Terms:
        """What the policy in force says of a call, or the one given."""
        policy = self.policy if policy is None else policy
        now = moment(self.store.now())
        return await judge(
            policy.judge(call, agent=self.agent, now=now, own=own, needs_approval=needs_approval)
        )

    def _wait_of(self, wait: Wait) -> float | None:
        return self._wait if wait is UNSET else checked_wait(wait)

    def close(self) -> None:
        """Let go of the store."""
        self.driver.closed = True
        self.store.close()

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def catch_paused(function: Any = None, /, *, result: Callable[[Paused], Any] | None = None) -> Any:
    """Turn ``Paused`` into a result, at the edge of a server that is not Sayso's.

    ``Paused`` is a ``BaseException``, so that no framework takes it for a failed tool. A server
    that runs handlers in a task group, as MCP servers do, would end with the first paused call.
    Put this directly below the server's own decorator::

        @mcp.tool()
        @sayso.catch_paused
        async def refund(order: str) -> str: ...

    The caller gets a sentence that names the requests, or what ``result`` makes of the pause. It
    can make the same call again once they are decided: inside ``gate.run(...)``, that is the same
    call.
    """
    make = result or _paused_text

    def wrap(target: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(target):

            @functools.wraps(target)
            async def caught(*args: Any, **kwargs: Any) -> Any:
                try:
                    return await target(*args, **kwargs)
                except Paused as paused:
                    return make(paused)

        else:

            @functools.wraps(target)
            def caught(*args: Any, **kwargs: Any) -> Any:
                try:
                    return target(*args, **kwargs)
                except Paused as paused:
                    return make(paused)

        return caught

    return wrap if function is None else wrap(function)


def _paused_text(paused: Paused) -> str:
    waiting = ", ".join(f"{r.id} ({text.inline(r.tool or r.kind)})" for r in paused.requests)
    return (
        f"Waiting for a person to decide {waiting or 'a request'}. Nothing has run. Make the same "
        "call again once it is decided."
    )


def _key_function(key: object) -> Callable[[dict[str, Json]], str] | None:
    if key is None or callable(key):
        return key
    raise TypeError("key= of a guarded function is a function of its arguments: lambda args: ...")


async def _awaited(value: Awaitable[T]) -> T:
    return await value


def _in_terminal() -> bool:
    try:
        return sys.stdin.isatty() and sys.stderr.isatty()
    except (AttributeError, ValueError):
        return False


def _default_wait() -> float | None:
    return None if _in_terminal() else 0.0


def _hint(request: Request, *, store: str) -> None:
    if _in_terminal():
        what = text.inline(request.tool or request.kind)
        how = f"{request.id}; to decide: sayso inbox --decide --store {store}"
        if store.startswith("memory:"):
            how = "only this process can decide it: name a store, or give the gate channels"
        print(f"sayso: {what} waits for a person: {how}", file=sys.stderr)
