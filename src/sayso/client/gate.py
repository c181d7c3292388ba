"""``RemoteGate``: a gate whose store is behind a server, and the backend that it uses.

The agent has a token and no database. The server asks its policy, keeps the leases and re-checks a
claim with the fresh terms that the claim sends. A call is in doubt if its claim lapses without a
report.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar, Unpack, overload

from sayso import codec
from sayso.client.client import (
    DEFAULT_PATIENCE,
    LONGEST_POLL,
    Claim,
    Client,
    RemoteGuardOptions,
    row_of,
    sleep,
)
from sayso.errors import Conflict, DuplicateEffect, InvalidCall, Leased, Rejected, SaysoError
from sayso.gate.backend import Backend, CallStart, RunEntry, has_changed
from sayso.gate.driver import Driver
from sayso.gate.gate import DEFAULT_LEASE, BaseGate
from sayso.gate.lease import refuse_own_run
from sayso.gate.options import (
    AskOptions,
    check_known,
    checked_effect_key,
    checked_exceptions,
    checked_functions,
    checked_lease,
    checked_not_executed,
    checked_string,
    checked_title,
    checked_wait,
    terms_from,
    title_maker,
)
from sayso.gate.plan import Plan, Settler
from sayso.gate.scope import root_context
from sayso.policy.template import checked_key, escaped
from sayso.rows import Call, CallStatus
from sayso.sync import sync_twin
from sayso.types import SETTABLE_TERMS, Failure, Json, Question, Request, Terms
from sayso.views import question_from, stored_question

F = TypeVar("F", bound=Callable[..., Any])

#: The options that are sent along. An effect key is made here, from the arguments of each call.
_SENT_OPTIONS = {*SETTABLE_TERMS, "description", "needs_approval"} - {"effect_key"}


class RemoteGate(BaseGate):
    """Asks a server before acting, and runs approved calls here, once.

    ``token`` has the role ``agent``. ``wait`` is how many seconds a call waits for people: ``None``
    is forever, ``0`` raises ``Paused`` at once. ``lease`` is how many seconds a running call may go
    without a renewal before the server marks it in doubt. ``patience`` is how many seconds to retry
    while the server is unreachable (``None``: forever).
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        agent: str | None = None,
        wait: float | None = None,
        lease: float = DEFAULT_LEASE,
        patience: float | None = DEFAULT_PATIENCE,
    ) -> None:
        root_context()
        self.client = Client(url, token, agent=agent, patience=patience)
        self.agent = agent or "remote"
        self.driver = Driver(
            HttpBackend(self.client, checked_lease(lease)),
            agent=self.agent,
            owner=secrets.token_hex(8),
        )
        self._wait = checked_wait(wait)

    # -- guarding functions

    @overload
    def guard(self, function: F, /) -> F: ...
    @overload
    def guard(self, /, **options: Unpack[RemoteGuardOptions]) -> Callable[[F], F]: ...
    def guard(self, function: Any = None, /, **options: Unpack[RemoteGuardOptions]) -> Any:
        """Ask before this function runs: ``@remote.guard`` or ``@remote.guard(risk="high", …)``.

        A rule of the server's policy decides whether a person is asked; if none matches, a person
        is asked, unless the policy's default says otherwise. The options can only make the policy
        stricter.
        """
        if "settle" in options:
            raise TypeError(
                "settle: only for a gate with its own store; people at the server settle what a "
                "remote agent left in doubt"
            )
        check_known(options, RemoteGuardOptions)
        if options.get("needs_approval", True) is not True:
            raise TypeError(
                "needs_approval: only True here; the server's policy decides which calls need no "
                "approval"
            )
        if function is None:
            return lambda target: self._guarded(target, options)
        return self._guarded(function, options)

    def _guarded(self, function: Callable[..., Any], options: RemoteGuardOptions) -> Any:
        from sayso.gate.guard import Guard, tool_of  # brings pydantic
        from sayso.schema import Signature

        key = options.get("key")
        if key is not None and not callable(key):
            raise TypeError("key= of a guarded function must be a function of its arguments")
        checked_functions(options)
        terms_from(options)  # raises for options that the server would refuse
        description = options.get("description")
        signature = Signature.of(function, name=options.get("name"), description=description)
        return Guard(
            driver=self.driver,
            terms=_judged_by_server,
            options=_sent_options(options),
            function=function,
            signature=signature,
            tool=tool_of(signature, ""),
            title=title_maker(checked_title(options.get("title"), signature), signature.parameters),
            binds=options.get("binds"),
            preview=options.get("preview"),
            note=checked_string(options.get("note") or "", "note"),
            key=key,
            wait=self._wait_of(options),
            effect_key=_key_maker(options, signature.parameters["properties"]),
            raises=checked_exceptions(options, "raises"),
            not_executed=checked_not_executed(options),
        ).wrap()

    # -- asking

    async def ask(self, question: Question | str, **options: Unpack[AskOptions]) -> Any:
        """Ask a person a question and return the answer. Raises ``Rejected`` if they decline."""
        if isinstance(question, str):
            question = Question(question)
        if not isinstance(question, Question):
            raise InvalidCall("pass a text or a sayso.Question", "question")
        return await self._ask_people("ask", "question", stored_question(question), options)

    async def confirm(
        self,
        text: str,
        details: Mapping[str, Json] | None = None,
        **options: Unpack[AskOptions],
    ) -> bool:
        """Ask a person to approve a text with details, both in the digest. Return the answer."""
        if not isinstance(text, str) or not text.strip():
            raise InvalidCall("the text is empty: write what should be approved", "text")
        try:
            content = {"text": text, "details": dict(details or {})}
            await self._ask_people("confirm", "approval", content, options)
        except Rejected:
            return False
        return True

    def _asking(self, kind: str, options: AskOptions) -> dict[str, Any]:
        return {"terms": _judged_by_server, "options": _sent_options(options)}

    async def close(self) -> None:
        """Close the connections."""
        self.driver.closed = True
        await self.client.close()

    ask_sync = sync_twin(ask)
    confirm_sync = sync_twin(confirm)
    close_sync = sync_twin(close)

    async def __aenter__(self) -> RemoteGate:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def __enter__(self) -> RemoteGate:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close_sync()


async def _judged_by_server(*_: Any) -> Terms:
    raise AssertionError("only the server asks its policy")


def _key_maker(
    options: Mapping[str, Any], arguments: Iterable[str]
) -> Callable[[dict[str, Json]], str] | None:
    """Return what makes the effect key's template, which the server fills in."""
    maker = checked_effect_key(options, arguments)
    if maker is not None:
        return lambda args: escaped(checked_key(maker(args)))
    template = options.get("effect_key")
    return None if template is None else lambda _: str(template)


def _sent_options(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in _SENT_OPTIONS}


log = logging.getLogger("sayso.client")

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 3.0


class HttpBackend(Backend):
    """The ``Backend`` over HTTP. The server checks its store, and ends a run when it is over."""

    def __init__(self, client: Client, lease: float) -> None:
        self._client = client
        self._lease = lease
        #: The claims of calls that run here.
        self._claims: dict[str, Claim] = {}
        self.store_id = client.url

    # -- asking

    async def propose(self, entry: RunEntry, plan: Plan) -> CallStart:
        # Proposing a call again under the same key returns it, so there is no ``find``.
        content = codec.loads(plan.args)
        options: dict[str, Any] = {
            **plan.options,
            "key": plan.key,
            "run": entry.name,
            "requester": entry.requester,
            "note": plan.note,
        }
        if plan.title is not None:
            options["title"] = plan.title(plan.args)
        if plan.kind == "question":
            return CallStart(row_of(await self._client.ask(question_from(content), **options)))
        if plan.tool is None:
            request = await self._client.confirm(content["text"], content["details"], **options)
            return CallStart(row_of(request))
        schema = codec.loads(plan.tool.schema)
        options |= {"schema": schema["parameters"], "returns": schema["returns"]}
        options["description"] = plan.tool.description
        if binds := plan.binds():
            options["binds"] = codec.loads(binds)
        if plan.effect_key is not None:
            options["effect_key"] = str(plan.effect_key(content))
        if plan.caller:
            options["caller"] = plan.caller
        if entry.refusal_scope:
            options["session"] = entry.refusal_scope
        if plan.preview is not None:
            options["preview"] = codec.loads(await plan.preview(plan.args, 1))
        return CallStart(row_of(await self._client.open(plan.tool_name, content, **options)))

    # -- looking and waiting

    async def reload(self, call: Call) -> Call:
        return row_of(await self.request(call))

    async def wait(self, call: Call, timeout: float | None) -> Call:
        ends = None if timeout is None else time.monotonic() + timeout
        pause = _FIRST_PAUSE
        while True:
            left = LONGEST_POLL if ends is None else max(ends - time.monotonic(), 0.0)
            poll = min(left, LONGEST_POLL)
            began = time.monotonic()
            current = row_of(await self._client.wait(call.id, poll))
            over = ends is not None and time.monotonic() >= ends
            if over or has_changed(current, call):
                return current
            if time.monotonic() - began < poll / 2:
                # Do not poll a server in a tight loop if it does not wait.
                await sleep(pause if ends is None else min(pause, max(left, 0.001)))
                pause = min(pause * 2, _LONGEST_PAUSE)

    # -- starting

    async def begin(self, entry: RunEntry, plan: Plan, call: Call) -> CallStart:
        claim = await self._claimed(entry, plan, call)
        if claim is None:
            return CallStart(await self.reload(call))
        self._claims[call.id] = claim
        args = codec.canonical(dict(claim.args)).decode()
        running = call._replace(
            status=CallStatus.RUNNING, token=claim.token, attempt=claim.attempt, args=args
        )
        return CallStart(running, True)

    async def confirm(self, entry: RunEntry, plan: Plan, call: Call) -> Call:
        claim = await self._claimed(entry, plan, call)
        if claim is not None:
            return row_of(await self._client.result(claim, True))
        return await self.reload(call)

    async def release(self, entry: RunEntry, plan: Plan, call: Call) -> Call:
        return row_of(await self._client.release(call.id, plan.caller))

    async def defer(self, call: Call, caller: str) -> Call:
        return row_of(await self._client.defer(call.id, caller))

    async def _claimed(self, entry: RunEntry, plan: Plan, call: Call) -> Claim | None:
        """Claim the call. Return None if another process has it or works on its run."""
        binds = plan.binds()
        effect_key: str | None = None
        if plan.effect_key is not None:  # for the arguments that would run, also after an edit
            effect_key = str(plan.effect_key(codec.loads(call.args)))
        tool_digest = None
        if plan.tool is not None:
            from sayso.schema import remote_tool  # brings jsonschema

            tool = codec.loads(plan.tool.schema)
            about = plan.tool.description
            tool_digest = remote_tool(
                plan.tool_name, tool["parameters"], tool["returns"], about
            ).digest
        try:
            return await self._client.claim(
                call.id,
                lease=self._lease,
                tool_digest=tool_digest,
                binds=codec.loads(binds) if binds else None,
                effect_key=effect_key,
                terms=dict(plan.options),
            )
        except DuplicateEffect:
            return None  # the row names the request that has the effect
        except Conflict as error:
            refuse_own_run(self.store_id, entry.name)
            log.info("%s: not claimed: %s", call.id, error)
            await sleep(_FIRST_PAUSE)
            return None

    # -- ending

    async def end(
        self,
        entry: RunEntry,
        call: Call,
        ok: bool,
        result: str | None,
        *,
        why: str = "",
        retry: bool = False,
        failure: Failure = "error",
    ) -> Call:
        claim = self._claims.pop(call.id)
        if ok and result is not None:
            value = codec.loads(result)
            try:
                codec.canonical(value)
            except InvalidCall as error:
                result = None
                why = str(error)
            else:
                return row_of(await self._client.result(claim, value))
        if result is None:
            return row_of(await self._client.report(claim, "not_kept", why))
        try:
            return row_of(await self._client.result(claim, error=result, failure=failure))
        except SaysoError as lost:
            log.warning("%s: the failure could not be reported: %s", call.id, lost)
            if failure in ("lost", "in_doubt"):
                return call  # still running for the server, until the claim lapses
            return call._replace(status=CallStatus.FAILED, result=result)

    async def suspend(self, call: Call, *, elsewhere: bool = False) -> Call:
        return row_of(await self._client.report(self._claims.pop(call.id), "paused"))

    async def record_doubt(self, call: Call, reason: str, *, running: bool = False) -> Call:
        claim = self._claims.pop(call.id)
        try:
            return row_of(await self._client.report(claim, "in_doubt", reason))
        except SaysoError as lost:
            log.warning("%s: the report was lost and the claim will lapse: %s", call.id, lost)
            return call

    async def settle(self, call: Call, ask: Settler) -> Call:
        raise SaysoError("people at the server settle calls in doubt")

    @contextmanager
    def lease(self, entry: RunEntry, call: Call, began: float) -> Iterator[Claim]:
        claim = self._claims[call.id]
        over = threading.Event()
        name = f"sayso-claim-{call.id}"
        # An OS thread, because the function that runs meanwhile may block the event loop.
        threading.Thread(
            target=self._keep_renewing, args=(claim, over), name=name, daemon=True
        ).start()
        try:
            yield claim
        finally:
            over.set()

    def _keep_renewing(self, claim: Claim, over: threading.Event) -> None:
        lost = False
        while not over.wait(claim.lease / 3):
            try:
                ours = self._client.renew_sync(claim)
            except (SaysoError, RuntimeError) as error:  # a closed client is a RuntimeError
                log.warning("%s: the claim could not be renewed: %s", claim.request, error)
                continue
            if not ours and not lost:
                # The server keeps the attempt as running, so that nobody has it run again.
                log.warning("%s: the claim was lost; its call is in doubt", claim.request)
                lost = True

    # -- the rest

    def inner_run(self, call: Call) -> str | None:
        return call.id  # the claim holds the call's own run

    async def request(self, call: Call) -> Request:
        return await self._client.wait(call.id, 0)

    async def leased(self, call: Call) -> Leased:
        return Leased(
            f"{call.id} is leased until its claim lapses: another process runs it, or died; try "
            "again then, or wait for it (wait=None)"
        )
