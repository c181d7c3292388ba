"""What a user gives to a Temporal worker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.plugin import SimplePlugin
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from sayso.adapters.temporal._desk import Desk
from sayso.adapters.temporal._wire import NEWS, workflow_of
from sayso.codec import loads
from sayso.errors import SaysoError
from sayso.gate import Gate
from sayso.rows import Event
from sayso.stores.event_follower import EventFollower
from sayso.twin import look

log = logging.getLogger("sayso.temporal")

#: What people and the clock do to a request; all else the workflow does itself.
_NEWS = frozenset({"decided", "expired", "cancelled", "superseded", "retried"})
#: Sending it again would not help.
_HOPELESS = frozenset(
    {RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.PERMISSION_DENIED}
)
_PATIENCE = timedelta(seconds=10)


class SaysoPlugin(SimplePlugin):
    """Lets the workflows of a worker ask through this gate: ``Worker(…, plugins=[this])``.

    ``tools`` are functions that ``run_once`` may run: guarded by the gate, or plain ones, which are
    then guarded as ``@gate.guard`` does it.
    """

    def __init__(self, gate: Gate, tools: Iterable[Callable[..., Any]] = ()) -> None:
        self.gate = gate
        self._desk = Desk(gate, tools)
        super().__init__(
            "sayso",
            activities=self._desk.activities(),
            workflow_runner=_runner,
            workflow_failure_exception_types=[SaysoError],
        )

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:
        """Around the worker: tell workflows of decisions, also of those made while it was away."""
        client = worker.client
        name = f"temporal:{client.namespace}:{self.gate.agent}"
        teller = EventFollower(
            self.gate.store, name, _is_news, lambda events: self._tell(client, events)
        )
        await teller.begin()
        telling = asyncio.create_task(teller.run())
        try:
            await next(worker)
            await self._desk.drained()
        finally:
            telling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await telling

    async def _tell(self, client: Client, events: Sequence[Event]) -> None:
        for run in dict.fromkeys(event.run for event in events):
            workflow = workflow_of(run)
            row = await look(self.gate.store, self.gate.store.run, run)
            if workflow is None or row is None or row.agent != self.gate.agent:
                continue
            handle = client.get_workflow_handle(workflow)
            try:
                await handle.signal(NEWS, run, rpc_timeout=_PATIENCE)
            except RPCError as error:
                if error.status not in _HOPELESS:
                    raise
                log.info("nobody waits for %s any more: %s", run, error)


def _is_news(event: Event) -> bool:
    """Whether a workflow that waits has a reason to look."""
    if workflow_of(event.run) is None:
        return False
    if event.type == "recorded":  # by an attempt that was given up: it closes a doubt
        return event.body is not None and bool(loads(event.body).get("late"))
    return event.type in _NEWS


def _runner(runner: WorkflowRunner | None) -> WorkflowRunner:
    """Inside the sandbox our own modules are those outside: they hold nothing between workflows."""
    if not isinstance(runner, SandboxedWorkflowRunner):
        assert runner is not None
        return runner
    passed = runner.restrictions.with_passthrough_modules("sayso")
    return replace(runner, restrictions=passed)
