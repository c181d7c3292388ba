"""A gate whose store is on another machine, behind a server."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, Unpack, overload

from sayso import codec
from sayso.client.backend import HttpBackend
from sayso.client.client import DEFAULT_PATIENCE, Client
from sayso.client.options import RemoteAskOptions, RemoteGuardOptions
from sayso.errors import InvalidCall, Rejected
from sayso.gate.driver import Driver
from sayso.gate.options import (
    UNSET,
    check_known,
    checked_effect_key,
    checked_functions,
    checked_lease,
    checked_name,
    checked_raises,
    checked_title,
    checked_wait,
    checked_words,
    fixed_title,
    terms_from,
)
from sayso.gate.plan import Plan
from sayso.gate.scope import RunScope, carry, current, root_context
from sayso.policy.template import checked_key, escaped
from sayso.twin import twin
from sayso.types import Json, Question, Terms
from sayso.views import kept_question

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_LEASE = 30.0


class RemoteGate:
    """Ask a server before acting, and run here what was approved there, once.

    ``token`` is a token with the role ``agent``. ``wait`` says how long a call waits for people:
    ``None`` for ever, ``0`` not at all (``Paused`` is raised at once). ``lease`` is how long a
    call that runs here may show no sign of life before the server puts it in doubt; ``patience``
    how many seconds to go on trying while the server cannot be reached (``None``: for ever).
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

    def run(self, name: str, *, requester: str = "") -> RunScope:
        """Name the run that the calls inside ``with`` or ``async with`` belong to."""
        return RunScope(self.driver, name, requester)

    def carry(self, function: Callable[P, T]) -> Callable[P, T]:
        """Bind a function to the run that is open here, so that a thread or pool can call it."""
        return carry(self.driver, function)

    # -- guarding functions

    @overload
    def guard(self, function: F, /) -> F: ...
    @overload
    def guard(self, /, **options: Unpack[RemoteGuardOptions]) -> Callable[[F], F]: ...
    def guard(self, function: Any = None, /, **options: Unpack[RemoteGuardOptions]) -> Any:
        """Ask before this function runs: ``@remote.guard`` or ``@remote.guard(risk="high", …)``.

        Whether a person is asked at all is up to the server's policy; without one, always. What
        is said here can only make that stricter.
        """
        if "settle" in options:
            raise TypeError(
                "settle: only for a gate on the store itself; people at the server settle what a "
                "remote agent left in doubt"
            )
        check_known(options, RemoteGuardOptions)
        if options.get("needs_approval", True) is not True:
            raise TypeError(
                "needs_approval: only True here; which calls pass without a person is up to the "
                "server's policy"
            )
        if function is None:
            return lambda target: self._guarded(target, options)
        return self._guarded(function, options)

    def _guarded(self, function: Callable[..., Any], options: RemoteGuardOptions) -> Any:
        from sayso.gate.guard import Guard, tool_of  # brings pydantic
        from sayso.schema import Signature

        key = options.get("key")
        if key is not None and not callable(key):
            raise TypeError("key= of a guarded function is a function of its arguments")
        checked_functions(options)
        description = options.get("description")
        signature = Signature.of(function, name=options.get("name"), description=description)
        return Guard(
            driver=self.driver,
            judge=_judged_there,
            options=_of_terms(options),
            function=function,
            signature=signature,
            tool=tool_of(signature, ""),
            title=checked_title(options.get("title"), signature),
            own=terms_from(options),
            needs_approval=True,
            binds=options.get("binds"),
            preview=options.get("preview"),
            note=checked_words(options.get("note") or "", "note"),
            key=key,
            wait=self._wait_of(options),
            effect_key=_key_maker(options, signature.parameters["properties"]),
            raises=checked_raises(options.get("raises", ())),
        ).wrap()

    # -- asking

    async def ask(self, question: Question | str, **options: Unpack[RemoteAskOptions]) -> Any:
        """Ask a person something and give the answer; ``Rejected`` if they will not answer."""
        if isinstance(question, str):
            question = Question(question)
        if not isinstance(question, Question):
            raise InvalidCall("ask with a text or a sayso.Question", "question")
        return await self._put("ask", "question", kept_question(question), options)

    async def confirm(
        self,
        text: str,
        details: Mapping[str, Json] | None = None,
        **options: Unpack[RemoteAskOptions],
    ) -> bool:
        """Ask yes or no about a text and its details, which are both in the digest."""
        if not isinstance(text, str) or not text.strip():
            raise InvalidCall("say what is to be approved", "text")
        try:
            content = {"text": text, "details": dict(details or {})}
            await self._put("confirm", "approval", content, options)
        except Rejected:
            return False
        return True

    async def _put(
        self, subject: str, kind: str, content: dict[str, Json], options: RemoteAskOptions
    ) -> Any:
        check_known(options, RemoteAskOptions)
        scope = current(self.driver)
        data = codec.canonical(content)
        key = options.get("key")
        plan = Plan(
            key=scope.key(subject, codec.sha256(data)[:32])
            if key is None
            else scope.named_key(subject, checked_name(key, "key")),
            kind=kind,
            args=data.decode(),
            agent=self.agent,
            terms=_judged_there,
            title=fixed_title(options.get("title")),
            note=checked_words(options.get("note") or "", "note"),
            wait=self._wait_of(options),
            options=_of_terms(options),
        )
        return await self.driver.result(scope, plan)

    async def close(self) -> None:
        """Close the connections."""
        self.driver.closed = True
        await self.client.close()

    # -- twins

    ask_sync = twin(ask)
    confirm_sync = twin(confirm)
    close_sync = twin(close)

    def _wait_of(self, options: Mapping[str, Any]) -> float | None:
        wait = options.get("wait", UNSET)
        return self._wait if wait is UNSET else checked_wait(wait)

    async def __aenter__(self) -> RemoteGate:
        return self

    async def __aexit__(
        self, kind: Any, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __enter__(self) -> RemoteGate:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close_sync()


async def _judged_there(*_: Any) -> Terms:
    raise AssertionError("the server asks its policy")


def _key_maker(
    options: Mapping[str, Any], arguments: Iterable[str]
) -> Callable[[dict[str, Json]], str] | None:
    """Makes the template of the effect key, which the server fills in: again after an edit."""
    made, template = checked_effect_key(options, arguments), options.get("effect_key")
    if made is not None:
        return lambda args: escaped(checked_key(made(args)))
    return None if template is None else lambda _: str(template)


def _of_terms(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that travel with the request; key, note and wait are the plan's."""
    own = (
        *("wait", "key", "note", "title", "name", "needs_approval", "binds", "preview", "raises"),
        "effect_key",
    )
    return {name: value for name, value in options.items() if name not in own}
