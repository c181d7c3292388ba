"""The activities: they ask, look, run the tool, and say where it stands."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any

from temporalio import activity

from sayso import codec
from sayso.adapters.temporal._wire import (
    ASK,
    CALL_OFF,
    CONFIRM,
    SETTLE,
    Answer,
    Wanted,
    activity_of,
)
from sayso.errors import InvalidCall, Leased, NotFound, Paused, SaysoError, StoreError, told
from sayso.gate import Gate
from sayso.gate.guard import Guard
from sayso.gate.options import terms_from
from sayso.rows import CallStatus
from sayso.threads import off_loop
from sayso.twin import hop
from sayso.types import Risk
from sayso.views import question_from

log = logging.getLogger("sayso.temporal")

#: How often an activity says that it is alive.
_BEAT = 5.0

Activity = Callable[[Wanted], Awaitable[Answer | None]]


class Desk:
    """Everything that a worker does for its workflows at one gate."""

    def __init__(self, gate: Gate, tools: Iterable[Callable[..., Any]]) -> None:
        self.gate = gate
        self.store = gate.store
        self._guards = [_guard_of(tool, gate) for tool in tools]
        self._at_work: set[asyncio.Task[Answer]] = set()

    def activities(self) -> list[Activity]:
        """What the worker registers."""
        own: list[Activity] = [self._ask, self._confirm, self._settle, self._call_off]
        return own + [self._runner(guard) for guard in self._guards]

    async def drained(self) -> None:
        """Wait for tools that outlived their activity: what was begun is recorded."""
        while self._at_work:
            await asyncio.wait(self._at_work)

    # -- asking

    @activity.defn(name=ASK)
    async def _ask(self, wanted: Wanted) -> Answer:
        async def asked() -> Any:
            question = question_from(wanted["content"])
            return await self.gate.ask(question, wait=0, **_options(wanted))

        return await self._stands(wanted, asked)

    @activity.defn(name=CONFIRM)
    async def _confirm(self, wanted: Wanted) -> Answer:
        async def asked() -> bool:
            content = wanted["content"]
            text, details = content["text"], content["details"]
            return await self.gate.confirm(text, details, wait=0, **_options(wanted))

        return await self._stands(wanted, asked)

    async def _stands(self, wanted: Wanted, move: Callable[[], Awaitable[Any]]) -> Answer:
        """Take it as far as it goes now. Only a store that fails is an error of the activity."""
        run = wanted["run"]
        try:
            async with self.gate.run(run, requester=wanted.get("requester", "")):
                return {"value": await move()}
        except Paused:
            return {"ends_in": await hop(self._ends_in, run)}
        except Leased:  # an attempt before this one still runs, or its worker died
            return {"ends_in": self.gate.backend.lease_length / 3}
        except StoreError:
            raise
        except SaysoError as error:
            return {"error": type(error).__name__, "message": str(error)}

    def _ends_in(self, run: str) -> float | None:
        ends = [c.expires_at for c in self.store.calls_of(run) if c.status is CallStatus.ASKED]
        soonest = min((end for end in ends if end is not None), default=None)
        return None if soonest is None else (soonest - self.store.now()) / 1_000_000

    # -- running

    def _runner(self, guard: Guard) -> Activity:
        tool = guard.wrap()

        async def call(wanted: Wanted) -> Any:
            # Validated, stored and run by the gate; whatever the tool raises is recorded there.
            args = wanted["content"]
            awaits = inspect.iscoroutinefunction(tool)
            value = await tool(**args) if awaits else await off_loop(tool, **args)
            return codec.loads(guard.signature.dump_result(value))

        @activity.defn(name=activity_of(guard.tool.name))
        async def run(wanted: Wanted) -> Answer:
            return await self._outliving(self._ran(wanted, call))

        return run

    async def _ran(self, wanted: Wanted, call: Callable[[Wanted], Awaitable[Any]]) -> Answer:
        try:
            return await self._stands(wanted, lambda: call(wanted))
        except StoreError:
            raise
        except Exception as error:
            return {"error": "CallFailed", "message": told(error)}

    async def _outliving(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Wait for it with heartbeats; what Temporal calls off here goes on, and is recorded."""
        task = asyncio.create_task(work)
        self._at_work.add(task)
        task.add_done_callback(self._left)
        while not task.done():
            activity.heartbeat()
            try:
                await asyncio.wait({task}, timeout=_BEAT)
            except asyncio.CancelledError:
                if not activity.is_worker_shutdown():
                    raise
        return task.result()

    def _left(self, task: asyncio.Task[Answer]) -> None:
        self._at_work.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("a tool ended with %s: %s", type(error).__name__, error)

    # -- when nobody knows, and when nobody wants to know any more

    @activity.defn(name=SETTLE)
    async def _settle(self, wanted: Wanted) -> None:
        """Temporal gave up on an attempt: whatever has started is in doubt from now on."""
        await hop(self._doubt, wanted["run"], wanted["reason"])

    def _doubt(self, run: str, reason: str) -> None:
        for call in self.store.calls_of(run):
            if call.status is CallStatus.RUNNING:
                self.store.transact(self.gate.backend.mark_in_doubt(call, reason))

    @activity.defn(name=CALL_OFF)
    async def _call_off(self, wanted: Wanted) -> None:
        try:
            await self.gate.cancel(wanted["run"], by="workflow", reason=wanted["reason"])
        except NotFound:
            return  # it was never asked


def _options(wanted: Wanted) -> Any:
    """The options of an asking as the gate takes them."""
    options = dict(wanted["options"])
    try:
        if isinstance(risk := options.get("risk"), dict):
            options["risk"] = Risk(risk.get("level", ""), tuple(risk.get("reasons") or ()))
        terms_from(options)
    except (TypeError, ValueError) as error:  # the workflow would be tried again for ever
        raise InvalidCall(str(error)) from None
    return options


def _guard_of(tool: Callable[..., Any], gate: Gate) -> Guard:
    """A function as its gate guards it, except that nobody waits inside an activity."""
    guard = getattr(tool, "guard", None)
    if not isinstance(guard, Guard):
        guard = gate.guard(tool).guard  # type: ignore[attr-defined]
        assert isinstance(guard, Guard)
    if guard.driver is not gate.driver:
        raise SaysoError(f"{guard.tool.name} is guarded by another gate: give the plugin that one")
    return replace(guard, wait=0.0)
