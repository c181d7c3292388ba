"""The worker's side: the activities that ask, check and run tools, and the plugin that registers
them."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.plugin import SimplePlugin
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from sayso import codec
from sayso.adapters.temporal.workflow import (
    ASK,
    CALL_OFF,
    CONFIRM,
    NEWS,
    SETTLE,
    ActivityInput,
    ActivityOutput,
    activity_of,
    workflow_of,
)
from sayso.errors import (
    InvalidCall,
    Leased,
    NotFound,
    Paused,
    SaysoError,
    StoreError,
    describe_error,
)
from sayso.gate import Gate
from sayso.gate.guard import Guard
from sayso.gate.options import terms_from
from sayso.rows import CallStatus, Event
from sayso.stores.event_follower import EventFollower
from sayso.sync import read, run_user_function, to_thread
from sayso.types import Risk
from sayso.views import question_from

log = logging.getLogger("sayso.temporal")

#: Seconds between the heartbeats of an activity.
_BEAT = 5.0

Activity = Callable[[ActivityInput], Awaitable[ActivityOutput | None]]


class ApprovalActivities:
    """The activities of a worker at one gate."""

    def __init__(self, gate: Gate, tools: Iterable[Callable[..., Any]]) -> None:
        self.gate = gate
        self.store = gate.store
        self._guards = [_guard_of(tool, gate) for tool in tools]
        self._running: set[asyncio.Task[ActivityOutput]] = set()

    def activities(self) -> list[Activity]:
        own: list[Activity] = [self._ask, self._confirm, self._settle, self._call_off]
        return own + [self._runner(guard) for guard in self._guards]

    async def drained(self) -> None:
        """Wait for tools that outlived their activity, so that their results are recorded."""
        while self._running:
            await asyncio.wait(self._running)

    # -- asking

    @activity.defn(name=ASK)
    async def _ask(self, wanted: ActivityInput) -> ActivityOutput:
        def ask() -> Awaitable[Any]:
            question = question_from(wanted["content"])
            return self.gate.ask(question, wait=0, **_options(wanted))

        return await self._advance(wanted, ask)

    @activity.defn(name=CONFIRM)
    async def _confirm(self, wanted: ActivityInput) -> ActivityOutput:
        def ask() -> Awaitable[bool]:
            text, details = wanted["content"]["text"], wanted["content"]["details"]
            return self.gate.confirm(text, details, wait=0, **_options(wanted))

        return await self._advance(wanted, ask)

    async def _advance(
        self, wanted: ActivityInput, step: Callable[[], Awaitable[Any]]
    ) -> ActivityOutput:
        """Advance a request as far as possible now.

        Only a failing store fails the activity; all other errors are returned to the workflow.
        """
        run = wanted["run"]
        try:
            async with self.gate.run(run, requester=wanted.get("requester", "")):
                return {"value": await step()}
        except Paused:
            return {"ends_in": await to_thread(self._ends_in, run)}
        except Leased:  # an earlier attempt still runs, or its worker died
            return {"ends_in": self.gate.backend.lease_length / 3}
        except StoreError:
            raise
        except SaysoError as error:
            return {"error": type(error).__name__, "message": str(error)}

    def _ends_in(self, run: str) -> float | None:
        ends = [call.due_at for call in self.store.calls_of(run)]
        soonest = min((end for end in ends if end is not None), default=None)
        return None if soonest is None else (soonest - self.store.now()) / 1_000_000

    # -- running

    def _runner(self, guard: Guard) -> Activity:
        tool = guard.wrap()

        async def call(args: dict[str, Any]) -> Any:
            # The gate validates, stores and runs the call, and records what the tool raises.
            awaits = inspect.iscoroutinefunction(tool)
            value = await tool(**args) if awaits else await run_user_function(tool, **args)
            return codec.loads(guard.signature.dump_result(value))

        async def attempt(wanted: ActivityInput) -> ActivityOutput:
            try:
                return await self._advance(wanted, lambda: call(wanted["content"]))
            except StoreError:
                raise
            except Exception as error:
                return {"error": "CallFailed", "message": describe_error(error)}

        @activity.defn(name=activity_of(guard.tool.name))
        async def run(wanted: ActivityInput) -> ActivityOutput:
            return await self._with_heartbeats(attempt(wanted))

        return run

    async def _with_heartbeats(self, work: Coroutine[Any, Any, ActivityOutput]) -> ActivityOutput:
        """Wait with heartbeats. A tool outlives an activity that Temporal cancels."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._tool_ended)
        while not task.done():
            activity.heartbeat()
            try:
                await asyncio.wait({task}, timeout=_BEAT)
            except asyncio.CancelledError:
                if not activity.is_worker_shutdown():
                    raise
        return task.result()

    def _tool_ended(self, task: asyncio.Task[ActivityOutput]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("a tool ended with %s: %s", type(error).__name__, error)

    # -- settling and cancelling

    @activity.defn(name=SETTLE)
    async def _settle(self, wanted: ActivityInput) -> None:
        """Mark running calls as in doubt, because Temporal gave up on the attempt."""

        def mark_in_doubt() -> None:
            for call in self.store.calls_of(wanted["run"]):
                if call.status is CallStatus.RUNNING:
                    command = self.gate.backend.mark_in_doubt(call, wanted["reason"])
                    self.store.transact(command)

        await to_thread(mark_in_doubt)

    @activity.defn(name=CALL_OFF)
    async def _call_off(self, wanted: ActivityInput) -> None:
        try:
            await self.gate.cancel(wanted["run"], by="workflow", reason=wanted["reason"])
        except NotFound:
            return  # nothing was asked yet


def _options(wanted: ActivityInput) -> Any:
    """Return the options as the gate takes them. Raises ``InvalidCall`` for invalid ones."""
    options = dict(wanted["options"])
    try:
        if isinstance(risk := options.get("risk"), dict):
            options["risk"] = Risk(risk.get("level", ""), tuple(risk.get("reasons") or ()))
        terms_from(options)
    except (TypeError, ValueError) as error:  # Temporal would retry the activity forever
        raise InvalidCall(str(error)) from None
    return options


def _guard_of(tool: Callable[..., Any], gate: Gate) -> Guard:
    """Return a function's guard, changed so that nothing waits inside an activity."""
    guard = getattr(tool, "guard", None)
    if not isinstance(guard, Guard):
        guard = gate.guard(tool).guard  # type: ignore[attr-defined]
        assert isinstance(guard, Guard)
    if guard.driver is not gate.driver:
        raise SaysoError(
            f"{guard.tool.name} is guarded by another gate: pass that gate to the plugin"
        )
    return replace(guard, wait=0.0)


# -- the plugin


#: Events that people and the clock cause; all others come from the workflow itself.
_NEWS = frozenset({"held", "decided", "expired", "cancelled", "superseded", "retried"})
#: Errors that a retry would not help.
_HOPELESS = frozenset(
    {RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.PERMISSION_DENIED}
)
_PATIENCE = timedelta(seconds=10)


class SaysoPlugin(SimplePlugin):
    """Let the workflows of a worker ask through this gate: ``Worker(…, plugins=[plugin])``.

    ``tools`` are the functions that ``run_once`` may run: guarded by the gate, or plain ones, which
    are then guarded as ``@gate.guard`` does.
    """

    def __init__(self, gate: Gate, tools: Iterable[Callable[..., Any]] = ()) -> None:
        self.gate = gate
        self._activities = ApprovalActivities(gate, tools)
        super().__init__(
            "sayso",
            activities=self._activities.activities(),
            workflow_runner=_runner,
            workflow_failure_exception_types=[SaysoError],
        )

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:
        """Run the worker, and signal workflows about decisions, past ones too."""
        client = worker.client
        name = f"temporal:{client.namespace}:{self.gate.agent}"
        follower = EventFollower(
            self.gate.store,
            name,
            _concerns_workflow,
            lambda events: self._signal_workflows(client, events),
        )
        await follower.begin()
        following = asyncio.create_task(follower.run())
        try:
            await next(worker)
            await self._activities.drained()
        finally:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following

    async def _signal_workflows(self, client: Client, events: Sequence[Event]) -> None:
        for run in dict.fromkeys(event.run for event in events):
            workflow = workflow_of(run)
            row = await read(self.gate.store, self.gate.store.run, run)
            if workflow is None or row is None or row.agent != self.gate.agent:
                continue
            handle = client.get_workflow_handle(workflow)
            try:
                await handle.signal(NEWS, run, rpc_timeout=_PATIENCE)
            except RPCError as error:
                if error.status not in _HOPELESS:
                    raise
                log.info("no workflow is waiting for %s: %s", run, error)


def _concerns_workflow(event: Event) -> bool:
    """Return whether an event is a reason for a waiting workflow to check."""
    if workflow_of(event.run) is None:
        return False
    if event.type == "recorded":  # by an attempt that was given up: it settles a call in doubt
        return event.body is not None and bool(codec.loads(event.body).get("late"))
    return event.type in _NEWS


def _runner(runner: WorkflowRunner | None) -> WorkflowRunner:
    """Pass our modules through the sandbox: they keep no state between workflows."""
    if not isinstance(runner, SandboxedWorkflowRunner):
        assert runner is not None
        return runner
    passed = runner.restrictions.with_passthrough_modules("sayso")
    return replace(runner, restrictions=passed)
