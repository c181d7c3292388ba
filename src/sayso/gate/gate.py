"""``Gate``: check the policy, ask people, wait, and run what they approved once.

``Gate`` is a thin facade: ``guard`` and ``ask`` make a ``Plan`` of each call, and the ``Driver``
does the rest. The end of the module keeps the policy in force and evaluates its predicates.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
import logging
import os
import secrets
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, overload

from sayso import codec, text
from sayso.engine.commands import Note
from sayso.errors import InvalidCall, InvalidPolicy, NotFound, Paused, Rejected, describe_error
from sayso.gate.backend import StoreBackend
from sayso.gate.driver import Channel, Driver
from sayso.gate.options import (
    UNSET,
    AskOptions,
    GuardOptions,
    Wait,
    check_known,
    checked_channels,
    checked_effect_key,
    checked_exceptions,
    checked_functions,
    checked_lease,
    checked_name,
    checked_needs,
    checked_not_executed,
    checked_string,
    checked_title,
    checked_wait,
    fixed_title,
    own_terms,
    question_terms,
    title_maker,
)
from sayso.gate.plan import Plan, checked_settle, once_plan, settler
from sayso.gate.review import Reviews, checked_models
from sayso.gate.scope import RunScope, carry, current_scope, root_context
from sayso.policy import Judging, Policy, Predicate, ask_despite_preset
from sayso.policy.loaders import FILES_IN_FORCE, PRESETS
from sayso.rows import Call
from sayso.stores import open_store
from sayso.stores.address import is_in_memory
from sayso.stores.base import Store
from sayso.stores.nested_runs import cancel_with_nested
from sayso.sync import (
    awaited,
    call_in_new_thread,
    run_sync,
    run_user_coroutine,
    sync_twin,
    to_thread,
)
from sayso.types import Json, Question, Request, Terms, ToolCall, moment
from sayso.views import stored_question

if TYPE_CHECKING:
    from sayso.gate.guard import Guard
    from sayso.gate.steps import StepTool

log = logging.getLogger("sayso.gate")

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
T = TypeVar("T")


DEFAULT_LEASE = 30.0
#: How people can answer a question, and a request to confirm something.
_ANSWERS = {"question": ("respond", "reject"), "approval": ("approve", "reject")}


class BaseGate:
    """What gates share, whether their store is here or behind a server."""

    driver: Driver
    agent: str
    _wait: float | None

    def run(self, name: str, *, requester: str = "") -> RunScope:
        """Open a run: calls inside ``with gate.run(...)`` (or ``async with``) belong to it."""
        return RunScope(self.driver, name, requester)

    def carry(self, function: Callable[P, T]) -> Callable[P, T]:
        """Bind a function to the run that is open here, so that an OS thread or pool can call it.

        ``with gate.run("order-17"): pool.map(gate.carry(pay), orders)``. A new OS thread does not
        know the run, so a guarded call made there is refused without ``carry``. Tasks and
        ``asyncio.to_thread`` do not need it.
        """
        return carry(self.driver, function)

    async def _ask_people(
        self, subject: str, kind: str, content: dict[str, Json], options: AskOptions
    ) -> Any:
        check_known(options, AskOptions)
        asking = self._asking(kind, options)
        scope = current_scope(self.driver)
        data = codec.canonical(content)
        key = options.get("key")
        plan = Plan(
            key=scope.key(subject, codec.sha256(data)[:32])
            if key is None
            else scope.named_key(subject, checked_name(key, "key")),
            kind=kind,
            args=data.decode(),
            agent=self.agent,
            title=fixed_title(options.get("title")),
            note=checked_string(options.get("note") or "", "note"),
            wait=self._wait_of(options),
            **asking,
        )
        return await self.driver.result(scope, plan)

    def _asking(self, kind: str, options: AskOptions) -> dict[str, Any]:
        """Return the part of a question's plan that depends on where the policy is."""
        raise NotImplementedError

    def _wait_of(self, options: Mapping[str, Any]) -> float | None:
        wait = options.get("wait", UNSET)
        return self._wait if wait is UNSET else checked_wait(wait)


class Gate(BaseGate):
    """Asks people before your code acts, and runs what they approved once.

    ``store`` is a URL, a path or a store. ``policy`` is a ``Policy`` or the path of a TOML file.
    ``observe`` is a second one, which decides nothing: ``inbox.observed`` says what it would have
    done. Without it, the policy ``watch`` observes ``balanced``.
    ``agent`` is the name in requests. ``wait`` is how many seconds a call waits for a decision:
    ``None`` is forever, ``0`` raises ``Paused`` at once; the default is ``None`` in a terminal and
    ``0`` elsewhere. ``channels`` are async callables that notify people of each new request.
    ``models`` are functions that rules can name as first reviewers, as "model:triage".
    """

    def __init__(
        self,
        store: str | Path | Store = "memory://",
        *,
        policy: Policy | str | Path | None = None,
        observe: Policy | str | Path | None = None,
        agent: str = "gate",
        wait: Wait = UNSET,
        channels: Iterable[Channel] = (),
        lease: float = DEFAULT_LEASE,
        models: Mapping[str, Reviews] | None = None,
    ) -> None:
        root_context()
        self.store = open_store(store)
        self.agent = checked_name(agent, "agent")
        self.backend = StoreBackend(self.store, checked_lease(lease), checked_models(models))
        self.driver = Driver(
            self.backend,
            agent=self.agent,
            owner=f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}",
            channels=checked_channels(channels),
            hint=partial(_hint, store=self.store.url) if _in_terminal() else None,
        )
        #: The module of each guarded function, by the name of its tool.
        self._defined: dict[str, str] = {}
        #: The guarded functions, by the name of their tool: the steps of a plan.
        self._guards: dict[str, Guard] = {}
        self._policy = PolicySource(policy, self.store)
        if observe is None and isinstance(policy, str | Path) and str(policy) == WATCH:
            observe = OBSERVED_BY_WATCH
        #: Judges calls by a second policy.
        self.observer = None if observe is None else Observer(observe, self.store)
        default = None if _in_terminal() else 0.0
        self._wait = default if wait is UNSET else checked_wait(wait)
        #: How long a framework's call waits for a decision: only if the user set ``wait``.
        self.framework_wait = 0.0 if wait is UNSET else self._wait

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The channels that notify people of new requests."""
        return self.driver.channels

    @channels.setter
    def channels(self, channels: Iterable[Channel]) -> None:
        self.driver.channels = checked_channels(channels)

    def __reduce__(self) -> Any:
        raise TypeError(
            "a Gate and the agents that it guards cannot be pickled, because they hold an open "
            "store: build them in each process, and resume threads there by name"
        )

    def __repr__(self) -> str:
        return f"Gate({self.store.url!r}, agent={self.agent!r})"

    # -- guarding functions

    @overload
    def guard(self, function: F, /) -> F: ...
    @overload
    def guard(self, /, **options: Unpack[GuardOptions]) -> Callable[[F], F]: ...
    def guard(self, function: Any = None, /, **options: Unpack[GuardOptions]) -> Any:
        """Require approval for a function: ``@gate.guard`` or ``@gate.guard(needs_approval=…, …)``.

        ``needs_approval`` is True, False, or a predicate over the arguments. A rule of the gate's
        policy that matches comes first. Without either, the call needs approval, unless the policy
        has another default. ``allowed`` lists the
        decisions that people may make. ``effect`` says what running the function does: ``"once"``
        (the default), ``"idempotent"`` if it may run again after a crash, or ``"read"``.
        ``effect_key`` makes that effect unique in the store. ``settle`` finds out whether it
        happened if a process died in the middle. ``binds`` returns facts that must not change
        between approval and start. ``preview`` shows what would happen. ``title`` is the first
        thing people read: a text with argument names in braces, or a function of the arguments. The
        other options are those of ``ask``.
        """
        check_known(options, GuardOptions)
        if function is None:
            return lambda target: self._guarded(target, options)
        return self._guarded(function, options)

    def _guarded(self, function: Callable[..., Any], options: GuardOptions) -> Any:
        from sayso.gate.guard import Guard, tool_of
        from sayso.schema import Signature  # brings pydantic

        description = options.get("description")
        if description is not None:
            checked_string(description, "description")
        key = options.get("key")
        if key is not None and not callable(key):
            raise TypeError("key=: pass a function of the arguments: key=lambda args: ...")
        checked_functions(options)
        signature = Signature.of(function, name=options.get("name"), description=description)
        arguments = signature.parameters["properties"]
        title = checked_title(options.get("title"), signature)
        tool = tool_of(signature, options.get("version", ""), title)
        own = own_terms(options)
        needs_approval: bool | Predicate | None = None
        if "needs_approval" in options:
            needs_approval = checked_needs(options["needs_approval"])

        async def terms(args: dict[str, Any]) -> Terms:
            return await policy_terms(self, ToolCall(tool.name, args), own, needs_approval)

        if options.get("name") is None:
            self._check_unique(signature.name, function)
        guard = self._guards[tool.name] = Guard(
            driver=self.driver,
            terms=terms,
            function=function,
            signature=signature,
            tool=tool,
            title=title_maker(title, signature.parameters),
            binds=options.get("binds"),
            preview=options.get("preview"),
            note=checked_string(options.get("note") or "", "note"),
            key=key,
            wait=self._wait_of(options),
            effect_key=checked_effect_key(options, arguments),
            settle=settler(checked_settle(options, arguments), signature),
            raises=checked_exceptions(options, "raises"),
            not_executed=checked_not_executed(options),
        )
        return guard.wrap()

    def _check_unique(self, name: str, function: Callable[..., Any]) -> None:
        """Refuse a function of the same name from another module, because their calls would share
        keys, decisions and results. Notebooks may define the same function again."""
        module = inspect.unwrap(function).__module__
        first = self._defined.setdefault(name, module)
        if first != module:
            raise TypeError(
                f"{first}.{name} and {module}.{name} would both be guarded as {name!r}, so their "
                "calls could be confused: pass name= to one of them"
            )

    # -- asking

    async def ask(self, question: Question | str, **options: Unpack[AskOptions]) -> Any:
        """Ask a person a question and return the answer. Raise ``Rejected`` if they decline."""
        if isinstance(question, str):
            question = Question(question)
        if not isinstance(question, Question):
            raise InvalidCall("pass a string or a sayso.Question", "question")
        if question.schema is not None:
            from sayso import schema

            schema.check_schema(question.schema)
        content = stored_question(question)
        return await self._ask_people("ask", "question", content, options)

    async def confirm(
        self,
        text: str,
        details: Mapping[str, Json] | None = None,
        **options: Unpack[AskOptions],
    ) -> bool:
        """Ask a person to approve a text and its details, and return whether they did."""
        if not isinstance(text, str) or not text.strip():
            raise InvalidCall("text: describe what to approve", "text")
        if not isinstance(details, Mapping | None):
            raise InvalidCall("pass details as a mapping of names to values", "details")
        content = {"text": text, "details": dict(details or {})}
        try:
            await self._ask_people("confirm", "approval", content, options)
        except Rejected:
            return False
        return True

    def _asking(self, kind: str, options: AskOptions) -> dict[str, Any]:
        own = question_terms(kind, _ANSWERS[kind], options)

        async def terms(_: dict[str, Any]) -> Terms:
            return own

        return {"terms": terms, "named": options.get("key") is not None}

    async def plan(
        self, calls: Iterable[Any], *, any_order: bool = False, **options: Unpack[AskOptions]
    ) -> tuple[ToolCall, ...]:
        """Ask people to approve several exact calls of guarded functions at once.

        Each is a ``ToolCall``, a function and its arguments, or a ``functools.partial``. Returns
        the approved calls: people may have removed some, or edited their arguments. Make them then,
        in this order: each runs once without asking. Any other call asks, and the plan waits; with
        ``any_order``, they may be made in any order. Raises ``Rejected`` if people reject the plan.
        """
        return await self.propose_plan(calls, self._step_tool, any_order, options)

    async def propose_plan(
        self,
        calls: Iterable[Any],
        step_tool: Callable[[object], StepTool],
        any_order: bool,
        options: AskOptions,
    ) -> tuple[ToolCall, ...]:
        """Ask about a plan whose tools ``step_tool`` finds: those of ``guard``, or of an agent."""
        from sayso.gate.steps import read_steps, step_plan

        check_known(options, AskOptions)
        scope = current_scope(self.driver)
        if scope.fresh:
            raise InvalidCall(
                "call plan() inside a named run: with gate.run('order-17'): ...", "run"
            )
        if not isinstance(any_order, bool):
            raise InvalidCall(f"any_order={any_order!r:.40}: use True or False", "any_order")
        steps = [(step_tool(tool), args) for tool, args in read_steps(calls)]

        async def judge(call: ToolCall, own: Terms) -> Terms:
            return await policy_terms(self, call, own, True)

        plan = await step_plan(
            scope,
            steps,
            any_order=any_order,
            judge=judge,
            options=options,
            wait=self._wait_of(options),
        )
        approved: tuple[ToolCall, ...] = await self.driver.result(scope, plan)
        return approved

    def _step_tool(self, tool: object) -> StepTool:
        guard: Guard | None = getattr(tool, "guard", None) or self._guards.get(str(tool))
        if guard is None or self._guards.get(guard.tool.name) is not guard:
            names = ", ".join(sorted(self._guards)) or "none yet"
            raise InvalidCall(
                f"{tool!r:.80} is not guarded by this gate, which guards {names}", "tool"
            )
        return guard.as_step_tool()

    @overload
    async def once(
        self, key: str, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any
    ) -> T: ...
    @overload
    async def once(self, key: str, function: Callable[..., T], *args: Any, **kwargs: Any) -> T: ...
    async def once(self, key: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a step of a named run once. When the run is entered again, return the stored result.

        ``key`` alone identifies the step: the stored result is returned even if you pass another
        function next time.
        """
        scope = current_scope(self.driver)
        if scope.fresh:
            raise InvalidCall(
                "call once() inside a named run: with gate.run('order-17'): ...", "run"
            )
        if not callable(function):  # before a failed step is recorded
            if inspect.iscoroutine(function):
                function.close()
            kind = type(function).__name__
            raise InvalidCall(
                f"once() calls the step itself: pass a function and its arguments, not a {kind}",
                "function",
            )
        checked_name(key, "key")

        async def run(call: Call) -> Any:
            value: Any = function(*args, **kwargs)
            if inspect.isawaitable(value):
                waiting = value
                value = await run_user_coroutine(lambda: awaited(waiting))
            return value

        row_key = scope.named_key("once", key)
        plan = once_plan(key, run, agent=self.agent, row_key=row_key, wait=self._wait)
        return await self.driver.result(scope, plan)

    async def cancel(self, run: str, *, by: str = "code", reason: str = "") -> None:
        """Cancel a run. Calls that have started finish and are recorded; others never start."""
        await to_thread(self._stop, run, by, reason, False)

    async def supersede(self, run: str, *, by: str = "code", reason: str = "") -> None:
        """End a run because newer input replaced it."""
        await to_thread(self._stop, run, by, reason or "newer input", True)

    def _stop(self, name: str, by: str, reason: str, superseded: bool) -> None:
        run = self.store.run(name)
        if run is None:
            raise NotFound(f"no run {name!r}")
        cancel_with_nested(self.store, run, by, reason, superseded=superseded)

    # -- twins

    ask_sync = sync_twin(ask)
    confirm_sync = sync_twin(confirm)
    plan_sync = sync_twin(plan)

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

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self._policy.current()

    def close(self) -> None:
        """Close the store."""
        self.driver.closed = True
        self.store.close()

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def catch_paused(function: Any = None, /, *, result: Callable[[Paused], Any] | None = None) -> Any:
    """Turn ``Paused`` into a result, in the handlers of another server.

    ``Paused`` is a ``BaseException``, so that no framework takes it for a failed tool. A server
    that runs handlers in a task group, as MCP servers do, would stop at the first paused call. Put
    this directly below the server's own decorator::

        @mcp.tool()
        @sayso.catch_paused
        async def refund(order: str) -> str: ...

    The caller gets a sentence that names the requests, or what ``result`` returns for the pause. It
    can make the same call again once they are decided: inside ``gate.run(...)``, that is the same
    request.
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


def _in_terminal() -> bool:
    try:
        return sys.stdin.isatty() and sys.stderr.isatty()
    except (AttributeError, ValueError):
        return False


def _hint(request: Request, *, store: str) -> None:
    what = text.inline(request.tool or request.kind)
    how = f"{request.id}; to decide: sayso inbox --decide --store {store}"
    if is_in_memory(store):
        how = "only this process can decide it: pass a store URL, or channels, to the gate"
    print(f"sayso: {what} needs a decision: {how}", file=sys.stderr)


# --- the policy in force ---

PREDICATE_SECONDS = 5.0


async def policy_terms(
    gate: Gate,
    call: ToolCall,
    own: Terms,
    needs_approval: bool | Predicate | None,
    policy: Policy | None = None,
) -> Terms:
    """Return the terms of a call under the policy in force.

    ``needs_approval`` is what the tool declares; None if it declares nothing.
    """
    now = moment(gate.store.now())
    rules = policy_in_force(gate, policy)
    judging = rules.judge(call, agent=gate.agent, now=now, own=own, needs_approval=needs_approval)
    terms = await run_judging(judging)
    if needs_approval is True and terms.preset:
        terms = ask_despite_preset(terms)
    if gate.observer is not None:
        second = partial(
            Policy.judge,
            call=call,
            agent=gate.agent,
            now=now,
            own=own,
            needs_approval=needs_approval,
        )
        terms = await gate.observer.observed(terms, second, policy)
    return await add_footprint(terms, call)


def policy_in_force(gate: Gate, policy: Policy | None) -> Policy:
    """Return an agent's own rules, if it has a policy, followed by those of its gate.

    The agent's rules come first because they are the more specific ones. They never replace the
    gate's: a rule about one tool would otherwise drop the rules about all others.
    """
    return gate.policy if policy is None else policy.then(gate.policy)


async def run_judging(judging: Judging, seconds: float = PREDICATE_SECONDS) -> Terms:
    """Evaluate the predicates that a policy yields, and return its terms.

    A predicate that raises, or takes longer than ``seconds``, counts as an error.
    """
    try:
        predicate, args = next(judging)
        while True:
            result = await to_thread(_predicate_result, predicate, args, seconds)
            predicate, args = judging.send(result)
    except StopIteration as stop:
        terms: Terms = stop.value
        return terms


@functools.cache
def _footprints() -> Any:
    """Return the module that says what calls of coding agents are about."""
    return importlib.import_module("sayso.hooks.footprints")


async def add_footprint(terms: Terms, call: ToolCall) -> Terms:
    """Add what a call of a coding agent is about to its terms, for grants."""
    if "sayso.hooks.footprints" not in sys.modules:
        await to_thread(_footprints)  # its modules read files, which would block the event loop
    footprints = _footprints()
    if call.name not in footprints.TOOLS:
        return terms
    about = await to_thread(footprints.footprint, call.name, call.args)
    if about is None:
        return terms
    return replace(terms, footprint=codec.canonical(about).decode())


def _predicate_result(predicate: Predicate, args: dict[str, Any], seconds: float) -> object:
    """Return what a predicate returns, or the exception that it raises."""

    def evaluate() -> bool:
        answer = predicate(args)
        return asyncio.run(awaited(answer)) if inspect.isawaitable(answer) else answer

    try:
        return call_in_new_thread(evaluate, seconds)
    except Exception as error:
        return error


class PolicySource:
    """Reads a policy file again when it changes; a bad file keeps the old policy."""

    def __init__(
        self, policy: Policy | str | Path | None, store: Store, *, recorded: bool = True
    ) -> None:
        self._store = store
        #: Whether the record says which policy was loaded.
        self._recorded = recorded
        self._path: Path | None = None
        self._stamp: tuple[int, int] | None = None
        if policy is None or isinstance(policy, Policy):
            self._policy = policy or Policy()
            return
        if not isinstance(policy, str | Path):
            kind = type(policy).__name__
            raise InvalidPolicy(f"pass a sayso.Policy or the path of a policy file, not {kind}")
        self._name = str(policy)
        if self._name not in PRESETS:
            self._path = Path(policy)
            FILES_IN_FORCE.update((os.path.abspath(policy), os.path.realpath(policy)))
            self._stamp = self._read_stamp()
        self._policy = read_policy(self._name)
        self._record_load()

    def _read_stamp(self) -> tuple[int, int] | None:
        try:
            file_stat = (self._path or Path()).stat()
        except OSError:
            return None
        return file_stat.st_mtime_ns, file_stat.st_size

    def _record_load(self) -> None:
        if not self._recorded:
            return
        body = {"file": self._name, "digest": self._policy.digest}
        self._store.transact(Note(type="policy_loaded", actor="gate", body=body))

    def current(self) -> Policy:
        """Return the policy, after reading a file that has changed."""
        if self._path is None:
            return self._policy
        stamp = self._read_stamp()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._policy = read_policy(self._name)
            except InvalidPolicy as error:
                log.error("%s (the previous policy stays in force)", error)
            else:
                self._record_load()
        return self._policy


# --- a second policy, which decides nothing ---
#
# A policy can be tried on live calls before it is in force. The gate judges each call by it too,
# and stores the answer with the call's terms. Nothing reads it but the report, its predicates get
# copies of the arguments, and its errors are part of the report.

#: The policy for coding agents that asks about nothing, and what it observes by default.
WATCH = "watch"
OBSERVED_BY_WATCH = "balanced"
#: How long a predicate of the second policy may hold up a call.
_OBSERVE_SECONDS = 1.0


class Observer:
    """Judges calls by a second policy, next to the one in force."""

    def __init__(self, policy: Policy | str | Path, store: Store) -> None:
        self._given = policy
        self._store = store
        self._source: PolicySource | None = None

    async def observed(
        self, terms: Terms, judge: Callable[[Policy], Judging], agents: Policy | None = None
    ) -> Terms:
        """Return the terms in force with what the second policy says of the same call.

        ``agents`` are the rules of an agent, which come before those of the gate.
        """
        digest = ""
        try:
            if self._source is None:
                self._source = PolicySource(self._given, self._store, recorded=False)
            policy = self._source.current()
            digest = policy.digest
            judging = judge(policy if agents is None else agents.then(policy))
            second = await run_judging(judging, _OBSERVE_SECONDS)
        except Exception as error:
            log.warning("the second policy could not judge a call: %s", describe_error(error))
            return replace(terms, observed=("error", describe_error(error), digest))
        return replace(terms, observed=(str(second.verdict), second.rule, digest))


def read_policy(name: str) -> Policy:
    """Return the preset of this name, or read a policy file. Raise ``InvalidPolicy``.

    A file cannot replace a preset: a coding agent may write files where its hook looks for one.
    """
    if name in PRESETS:
        return Policy.preset(name)
    try:
        return Policy.from_toml(Path(name).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidPolicy(f"{name}: cannot be read: {error}") from error
    except InvalidPolicy as error:
        raise InvalidPolicy(f"{name}: {error}") from None
