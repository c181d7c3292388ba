"""What a running tool may know of its call, and how it asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, Unpack, overload

from sayso.gate import Gate
from sayso.gate.options import AskOptions
from sayso.gate.scope import RunScope
from sayso.twin import run_sync, twin
from sayso.types import DecisionMade, Json, Question

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Given to a tool whose first parameter asks for it; the model never sees it.

    ``ask`` and ``confirm`` pause the run. When it resumes, the tool starts at its top, earlier
    answers come from the store, and ``once`` keeps earlier effects from repeating.
    """

    run: str
    thread: str
    #: The person on whose behalf the run was started.
    requester: str
    call_id: str
    #: The same for every attempt: for services that take an idempotency key.
    key: str
    attempt: int
    messages: Sequence[Mapping[str, Json]]
    decision: DecisionMade | None
    #: The arguments before a person edited them.
    edited_from: Mapping[str, Json] | None
    deps: Any
    _gate: Gate
    _scope: RunScope

    async def ask(self, question: Question | str, **options: Unpack[AskOptions]) -> Any:
        """Ask a person something; the run pauses until they answer."""
        with self._scope.inside():
            return await self._gate.ask(question, **options)

    async def confirm(
        self,
        text: str,
        details: Mapping[str, Json] | None = None,
        **options: Unpack[AskOptions],
    ) -> bool:
        """Ask yes or no; the run pauses until somebody says."""
        with self._scope.inside():
            return await self._gate.confirm(text, details, **options)

    @overload
    async def once(
        self, key: str, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any
    ) -> T: ...
    @overload
    async def once(self, key: str, function: Callable[..., T], *args: Any, **kwargs: Any) -> T: ...
    async def once(self, key: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a step once, however often the tool starts."""
        with self._scope.inside():
            return await self._gate.once(key, function, *args, **kwargs)

    ask_sync = twin(ask)
    confirm_sync = twin(confirm)

    @overload
    def once_sync(
        self, key: str, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any
    ) -> T: ...
    @overload
    def once_sync(self, key: str, function: Callable[..., T], *args: Any, **kwargs: Any) -> T: ...
    def once_sync(self, key: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a step of the tool once, from a tool that is not async; see ``once``."""
        return run_sync(self.once(key, function, *args, **kwargs))
