"""A durable workflow of the framework: its ``request_info`` events are requests.

The framework's own checkpoints hold the workflow's progress; decisions are in the gate's store. An
answer is given to the workflow from its last checkpoint, and only if that checkpoint still waits
for it, so that nothing is answered twice. Rules apply to the functions of the agents in the
workflow. Without rules, only what the framework asks about is a request.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from agent_framework import (
    AgentExecutor,
    AgentResponse,
    AgentSession,
    ChatContext,
    ChatMiddleware,
    CheckpointStorage,
    Content,
    Executor,
    FileCheckpointStorage,
    InProcRunnerContext,
    RawAgent,
    Workflow,
    WorkflowEvent,
    WorkflowExecutor,
    WorkflowRunResult,
    WorkflowRunState,
)
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from sayso import codec
from sayso.adapters.agent_framework.messages import MessageLog
from sayso.adapters.agent_framework.middleware import (
    CHANNEL,
    Gated,
    check_layers,
    make_callable,
)
from sayso.adapters.agent_framework.reach import AgentWalk
from sayso.errors import Paused, Refused, SaysoError
from sayso.gate import Gate
from sayso.gate.coverage import Coverage
from sayso.gate.framework import FrameworkAgent, FrameworkCall, FrameworkThread, FrameworkTool
from sayso.inbox import Inbox
from sayso.policy import Policy
from sayso.rows import CallStatus
from sayso.sync import read
from sayso.types import Json, Question

Checkpoints = str | Path | Callable[[str], CheckpointStorage]

_WAITS = (CallStatus.ASKED, CallStatus.IN_DOUBT)
#: The request was refused: it is cancelled, and the workflow continues without it.
_NO_ANSWER = object()


class GuardedWorkflow(FrameworkAgent):
    """A workflow, or a function that builds one, that servers and workers can run and resume."""

    channel = CHANNEL

    def __init__(
        self,
        workflow: Workflow | Callable[[], Workflow],
        gate: Gate,
        policy: Policy | None = None,
        *,
        checkpoints: Checkpoints,
        ungated: Iterable[str] = (),
    ) -> None:
        super().__init__(gate, Inbox(gate.store), Coverage(ungated))
        self.policy = policy
        self._workflow = workflow
        self._checkpoints = checkpoints
        self._walk = AgentWalk(gate, policy, super().coverage())
        if isinstance(workflow, Workflow):
            self.build()

    def coverage(self) -> Coverage:
        found = super().coverage()
        if not len(found):
            self.build()
        return found

    async def begin(self, input: Any, thread: str) -> Any:
        log = MessageLog(self.gate, thread)
        await log.load()
        await log.say_input(input)
        return await _WorkflowDrive(self, log).begin(input)

    async def go_on(self, thread: str) -> Any:
        log = MessageLog(self.gate, thread)
        await log.load()
        if log.answer is not None:
            return log.answer["output"]
        return await _WorkflowDrive(self, log).go_on()

    def build(self) -> Workflow:
        """Return a copy of the workflow whose agents ask at the gate. Raises ``InvalidCall`` for
        what the gate cannot reach in it, and that is not named.

        The workflow itself and its agents are not changed. Each copy has a progress of its own, so
        that threads can run at the same time, except for what executors of the user's own keep.
        """
        given = self._workflow if isinstance(self._workflow, Workflow) else self._workflow()
        copied = self._copied(given)
        self._walk.coverage.check()
        return copied

    def _copied(self, workflow: Workflow) -> Workflow:
        executors = {
            id: self._executor(one, f"{workflow.name}/{id}")
            for id, one in workflow.executors.items()
        }
        designated = workflow._output_designation
        explicit = designated.outputs is not None
        return Workflow(
            workflow.edge_groups,
            executors,
            executors[workflow.start_executor_id],
            InProcRunnerContext(),
            workflow.name,
            description=workflow.description,
            max_iterations=workflow.max_iterations,
            output_from=sorted(designated.outputs or ()) if explicit else None,
            intermediate_output_from=sorted(designated.intermediates) if explicit else None,
        )

    def _executor(self, executor: Executor, where: str) -> Any:
        if isinstance(executor, WorkflowExecutor):
            nested = _copied_executor(executor)
            nested.workflow = self._copied(executor.workflow)
            return nested
        if isinstance(executor, AgentExecutor):
            self._walk.listed(executor.agent, where)
            copied = _copied_executor(executor)
            copied._agent = self._agent(executor.agent)
            copied._session = AgentSession.from_dict(executor._session.to_dict())
            return copied
        for handler in (*executor._handlers.values(), *executor._response_handlers.values()):
            self._walk.listed_code(handler, executor.id, where)
        return executor

    def _agent(self, agent: Any) -> Any:
        """If there are rules, apply them to the functions of an agent in the workflow."""
        if not isinstance(agent, RawAgent):
            return agent
        middleware = list(agent.middleware or ())
        gated = _is_gated(agent, self.gate)
        if not gated and (self.policy or self.gate.policy).rules:
            check_layers(agent)
            middleware.append(Gated(self.gate, self.policy, walk=self._walk))
            gated = True
        if not gated:
            return agent
        copied = copy.copy(agent)
        copied.middleware = [*middleware, _MakeCallable(self._walk)]
        return copied

    def storage(self, log: MessageLog) -> CheckpointStorage:
        """Return the storage for the checkpoints of one turn of a thread."""
        name = f"{codec.sha256(log.thread.encode())[:16]}-{log.turn}"
        if callable(self._checkpoints):
            return self._checkpoints(name)
        return FileCheckpointStorage(Path(self._checkpoints) / name)


def _copied_executor(executor: Any) -> Any:
    """Return a copy of an executor of the framework, whose handlers are its own."""

    def own(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: own(one) for name, one in value.items()}
        if isinstance(value, types.MethodType) and value.__self__ is executor:
            return types.MethodType(value.__func__, copied)
        return list(value) if isinstance(value, list) else value

    copied = copy.copy(executor)
    vars(copied).update({name: own(value) for name, value in vars(executor).items()})
    copied._execution_lock = copied._execution_lock_loop = None
    return copied


class _MakeCallable(ChatMiddleware):
    """Let the framework call ``always_require`` functions at once, so that only the gate asks."""

    def __init__(self, walk: AgentWalk) -> None:
        self._walk = walk

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        self._walk.check_offered(context.options)
        make_callable(context.options, bodiless=False)
        await call_next()


class _WorkflowDrive:
    """One run or resume of one thread."""

    def __init__(self, guarded: GuardedWorkflow, log: MessageLog) -> None:
        self.gate = guarded.gate
        self.log = log
        self.workflow = guarded.build()
        self.storage = guarded.storage(log)
        self.thread = FrameworkThread(self.gate, log.thread, policy=guarded.policy)

    async def begin(self, input: Any) -> Any:
        return await self._after(await self.workflow.run(input, checkpoint_storage=self.storage))

    async def go_on(self) -> Any:
        latest = await self.storage.get_latest(workflow_name=self.workflow.name)
        if latest is None:
            return await self.begin(self.log.input)
        pending = latest.pending_request_info_events
        if not pending:
            # The process died between two checkpoints.
            return await self._after(await self._run(checkpoint_id=latest.checkpoint_id))
        return await self._answer(latest.checkpoint_id, pending)

    async def _run(self, **options: Any) -> WorkflowRunResult:
        result: WorkflowRunResult = await self.workflow.run(
            checkpoint_storage=self.storage, **options
        )
        return result

    async def _after(self, result: WorkflowRunResult) -> Any:
        """Return the output, or answer what the workflow waits for."""
        self.log.outputs += [_plain(output) for output in result.get_outputs()]
        latest = await self.storage.get_latest(workflow_name=self.workflow.name)
        pending = {} if latest is None else latest.pending_request_info_events
        _check_kept(result, pending)
        if latest is not None and pending:
            await self.log.save_session()
            return await self._answer(latest.checkpoint_id, pending)
        outputs = self.log.outputs
        output = outputs[0] if len(outputs) == 1 else outputs
        await self.log.end_with([], output)
        return output

    async def _answer(self, checkpoint: str, pending: Mapping[str, WorkflowEvent[Any]]) -> Any:
        """Pass decisions to the workflow. The rest stays pending."""
        said = {id: await self._settled(id, event) for id, event in pending.items()}
        answers = {id: answer for id, answer in said.items() if answer is not None}
        if not answers:
            raise Paused(self.thread.run, ())
        refused = [id for id, answer in answers.items() if answer is _NO_ANSWER]
        if refused:
            return await self._after(
                await self.workflow.cancel_pending_requests(
                    refused, checkpoint_id=checkpoint, checkpoint_storage=self.storage
                )
            )
        return await self._after(await self._run(responses=answers, checkpoint_id=checkpoint))

    async def _settled(self, id: str, event: WorkflowEvent[Any]) -> Any:
        """Return the answer to an event; None while it waits for a decision."""
        data = event.data
        try:
            if isinstance(data, Content) and data.type == "function_approval_request":
                return await self._approval(id, data, event.source_executor_id)
            return await self._question(id, event)
        except Paused:
            return None
        except Refused:
            return _NO_ANSWER

    async def _approval(self, id: str, request: Content, executor: str) -> Content | None:
        about = request.additional_properties.get("sayso")
        if about is not None:  # the gate has asked already
            row = await read(self.gate.store, self.gate.store.call, about["request"])
            waits = row is not None and row.status in _WAITS
            return None if waits else request.to_function_approval_response(True)
        made = request.function_call
        assert made is not None
        found = self.workflow.executors.get(executor)
        agent = found.agent if isinstance(found, AgentExecutor) else None
        if not made.hosted and _is_gated(agent, self.gate):
            # ``always_require``: the framework asks first, but the gate can do more.
            return request.to_function_approval_response(True)
        call = FrameworkCall(
            id=f"{self.log.turn}/{id}",
            tool=FrameworkTool(
                name=made.name or "", needs_approval=True, possible=("approve", "reject")
            ),
            args=dict(made.parse_arguments() or {}),
            run=_said_yes,
        )
        outcome = await self.thread.outcome(call)
        return request.to_function_approval_response(outcome.ok)

    async def _question(self, id: str, event: WorkflowEvent[Any]) -> Any:
        wanted: TypeAdapter[Any] = TypeAdapter(event.response_type)
        question = Question(_text(event.data), schema=wanted.json_schema())
        with self.thread.scope(f"{self.log.turn}/").inside():
            answer = await self.gate.ask(question, key=id, wait=0)
        return wanted.validate_python(answer)


def _is_gated(agent: Any, gate: Gate) -> bool:
    """Whether the calls of an agent in the workflow go through a gate on this store."""
    gates = [one for one in getattr(agent, "middleware", None) or () if isinstance(one, Gated)]
    return any(one.gate.store.incarnation == gate.store.incarnation for one in gates)


def _check_kept(result: WorkflowRunResult, pending: Mapping[str, Any]) -> None:
    """Raise ``SaysoError`` if a workflow that waits has no checkpoint. The framework only logs
    that."""
    waits = result.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    asked = {event.request_id for event in result.get_request_info_events()}
    if asked - pending.keys() or (waits and not pending):
        raise SaysoError(
            "the workflow waits for a decision, but its checkpoint could not be stored (see the "
            "log): register the classes of its messages with "
            "agent_framework.register_checkpoint_type"
        )


async def _said_yes(args: dict[str, Any]) -> bool:
    return True  # the agent in the workflow makes the call


def _text(data: Any) -> str:
    """Return the question of an event as text: the data itself, or all that it holds."""
    if isinstance(data, str):
        return data
    shown = to_jsonable_python(data, fallback=str)
    for name in ("question", "prompt", "message", "text"):
        if isinstance(shown, dict) and isinstance(shown.get(name), str) and len(shown) == 1:
            return str(shown[name])
    return codec.dumps(shown)


def _plain(output: Any) -> Json:
    if isinstance(output, AgentResponse):
        return output.text
    return to_jsonable_python(output, by_alias=True, fallback=str)
