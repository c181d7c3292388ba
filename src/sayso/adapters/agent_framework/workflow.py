"""A durable workflow of the framework: its ``request_info`` events are requests.

The framework's own checkpoints hold the workflow's progress; decisions are in the gate's store. An
answer is given to the workflow from its last checkpoint, and only if that checkpoint still waits
for it, so that nothing is answered twice. Rules apply to the functions of the agents in the
workflow. Without rules, only what the framework asks about is a request.

Inputs and outputs are stored as JSON with the names of their types, and loaded again as the types
that the executors declare, so that a workflow gives the same values in whichever process it ends.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, get_args, get_origin

from agent_framework import (
    AgentExecutor,
    AgentResponse,
    AgentResponseUpdate,
    ChatContext,
    ChatMiddleware,
    CheckpointStorage,
    Content,
    FileCheckpointStorage,
    Message,
    Workflow,
    WorkflowEvent,
    WorkflowExecutor,
    WorkflowRunResult,
    WorkflowRunState,
)
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from sayso import codec
from sayso.adapters.agent_framework.choke_points import list_workflow, members
from sayso.adapters.agent_framework.messages import MessageLog
from sayso.adapters.agent_framework.middleware import CHANNEL, Gated
from sayso.adapters.agents import LoggedAgent
from sayso.adapters.calls import hosted_call
from sayso.adapters.conversation import OutputTypes, type_name
from sayso.errors import InvalidCall, Paused, Refused, SaysoError
from sayso.gate import Gate
from sayso.gate.coverage import Coverage
from sayso.gate.run_result import ResultStatus, RunResult
from sayso.policy import Policy
from sayso.rows import CallStatus
from sayso.sync import context_value, read
from sayso.types import Json, Question

Checkpoints = str | Path | Callable[[str], CheckpointStorage]

_WAITS = (CallStatus.ASKED, CallStatus.IN_DOUBT)
#: The request was refused: it is cancelled, and the workflow continues without it.
_NO_ANSWER = object()


class Outputs(tuple[Any, ...]):
    """What the executors of a workflow have yielded, in the framework's own types."""

    __slots__ = ()

    @property
    def shown(self) -> Any:
        """The only output, or a list of them, where an agent's response is its value or text."""
        answers = [_answer_of(item) for item in self]
        return answers[0] if len(answers) == 1 else answers


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowResult(RunResult):
    """What a guarded workflow returns, with the outputs of the framework's ``WorkflowRunResult``.

    ``output`` is the only output, or a list of all; an agent's response is its value or text there.
    """

    outputs: tuple[Any, ...] = ()

    def get_outputs(self) -> list[Any]:
        """Return all outputs as the executors have yielded them; none before the run is done."""
        return list(self.outputs)


class GuardedWorkflow(LoggedAgent[MessageLog]):
    """A workflow, or a function that builds one, that servers and workers can run and resume."""

    channel = CHANNEL
    result_type = WorkflowResult
    log_type = MessageLog

    def __init__(
        self,
        workflow: Workflow | Callable[[], Workflow],
        gate: Gate,
        policy: Policy | None,
        coverage: Coverage,
        checkpoints: Checkpoints,
    ) -> None:
        super().__init__(gate, policy, coverage)
        self._workflow = workflow
        self._checkpoints = checkpoints
        if isinstance(workflow, Workflow):
            self.build()

    def coverage(self) -> Coverage:
        coverage = super().coverage()
        if not len(coverage):
            self.build()
        return coverage

    async def begin(self, input: Any, thread: str) -> Outputs:
        drive = _WorkflowDrive(self, await self.open_log(thread))
        with drive.gating():
            return await drive.begin(input)

    async def go_on(self, thread: str) -> Outputs:
        drive = _WorkflowDrive(self, await self.open_log(thread))
        with drive.gating():
            return await drive.go_on()

    def dump_output(self, output: Outputs) -> Json:
        return as_json(output.shown)

    async def load_output(self, thread: str, stored: Json) -> Any:
        log = await self.open_log(thread)
        types = ValueTypes(self.build())
        return Outputs(types.load(item) for item in log.outputs)

    def _result(self, status: ResultStatus, run: str, thread: str, **more: Any) -> RunResult:
        output = more.get("output")
        if isinstance(output, Outputs):
            more |= {"output": output.shown, "outputs": output}
        return super()._result(status, run, thread, **more)

    def build(self) -> Workflow:
        """Return a workflow with its own progress, so that threads can run at the same time.

        Raises ``InvalidCall`` for what the gate cannot reach in it and ``ungated`` does not name.
        """
        coverage = super().coverage()
        built = self._workflow
        if not isinstance(built, Workflow):
            built = built()
        else:
            shared = {id(item): item for item in _shared(built)}
            built = copy.deepcopy(built, shared)
        list_workflow(coverage, built, built.name)
        coverage.check()
        return built

    def storage(self, log: MessageLog) -> CheckpointStorage:
        """Return the storage for the checkpoints of one turn of a thread."""
        name = f"{codec.sha256(log.thread.encode())[:16]}-{log.turn}"
        if callable(self._checkpoints):
            return self._checkpoints(name)
        return FileCheckpointStorage(Path(self._checkpoints) / name)


def _shared(workflow: Workflow) -> Iterator[Any]:
    """Yield what all copies of a workflow share: agents, and the user's own executors."""
    for executor in workflow.executors.values():
        if isinstance(executor, WorkflowExecutor):
            yield from _shared(executor.workflow)
        else:
            yield executor.agent if isinstance(executor, AgentExecutor) else executor


class _MakeCallable(ChatMiddleware):
    """Let the framework call ``always_require`` functions at once, so that only the gate asks."""

    def __init__(self, gated: Gated) -> None:
        self._gated = gated

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        self._gated.prepare(context.options, bodiless=False)
        await call_next()


class _WorkflowDrive:
    """One run or resume of one thread."""

    def __init__(self, guarded: GuardedWorkflow, log: MessageLog) -> None:
        self.guarded, self.gate, self.log = guarded, guarded.gate, log
        self.workflow = guarded.build()
        self.types = ValueTypes(self.workflow)
        self.outputs = Outputs()

    @cached_property
    def storage(self) -> CheckpointStorage:
        return self.guarded.storage(self.log)

    def gating(self) -> AbstractContextManager[None]:
        """Put the gate in front of the functions of the workflow's agents, inside ``with``."""
        gated = Gated(self.gate, self.guarded.policy)
        middleware = [_MakeCallable(gated), gated]
        return context_value(members, {id(item): middleware for item in _shared(self.workflow)})

    async def begin(self, input: Any) -> Outputs:
        stored = self.types.dump(input)
        if stored is None:
            raise InvalidCall(
                f"an input of type {type_name(type(input))} could not be restored in another "
                "process: declare the type in the handler that takes it, or pass JSON"
            )
        await self.log.say_input(_text_of(input), stored)
        return await self._run(message=input)

    async def go_on(self) -> Outputs:
        self.outputs = Outputs(self.types.load_or_json(item) for item in self.log.outputs)
        if self.log.answer is not None:  # only the end of the run is missing
            return self.outputs
        latest = await self.storage.get_latest(workflow_name=self.workflow.name)
        if latest is None:
            return await self._run(message=self.types.load(self.log.input))
        pending = latest.pending_request_info_events
        if not pending:
            # The process died between two checkpoints.
            return await self._run(checkpoint_id=latest.checkpoint_id)
        return await self._answer(latest.checkpoint_id, pending)

    async def _run(self, **options: Any) -> Outputs:
        result = await self.workflow.run(checkpoint_storage=self.storage, **options)
        return await self._continue(result)

    async def _continue(self, result: WorkflowRunResult) -> Outputs:
        """Return the outputs, or answer what the workflow waits for."""
        outputs = result.get_outputs()
        self.outputs = Outputs((*self.outputs, *outputs))
        self.log.outputs += [self.types.dump(item) or {"value": as_json(item)} for item in outputs]
        latest = await self.storage.get_latest(workflow_name=self.workflow.name)
        pending = {} if latest is None else latest.pending_request_info_events
        _check_stored(result, pending)
        await self.log.save_session()  # a workflow that has ended does not repeat its outputs
        if latest is not None and pending:
            return await self._answer(latest.checkpoint_id, pending)
        await self.log.end_with([], as_json(self.outputs.shown), outputs=self.log.outputs)
        return self.outputs

    async def _answer(self, checkpoint: str, pending: Mapping[str, WorkflowEvent[Any]]) -> Outputs:
        """Pass decisions to the workflow. The rest stays pending."""
        answered = {id: await self._answer_to(id, event) for id, event in pending.items()}
        answers = {id: answer for id, answer in answered.items() if answer is not None}
        if not answers:
            raise Paused(self.log.run)
        refused = [id for id, answer in answers.items() if answer is _NO_ANSWER]
        if not refused:
            return await self._run(responses=answers, checkpoint_id=checkpoint)
        result = await self.workflow.cancel_pending_requests(
            refused, checkpoint_id=checkpoint, checkpoint_storage=self.storage
        )
        return await self._continue(result)

    async def _answer_to(self, id: str, event: WorkflowEvent[Any]) -> Any:
        """Return the answer to an event; None while it waits for a decision."""
        data = event.data
        try:
            if isinstance(data, Content) and data.type == "function_approval_request":
                return await self._approval(id, data)
            return await self._question(id, event)
        except Paused:
            return None
        except Refused:
            return _NO_ANSWER

    async def _approval(self, id: str, request: Content) -> Content | None:
        about = request.additional_properties.get("sayso")
        if about is not None:  # the gate has asked already
            row = await read(self.gate.store, self.gate.store.call, about["request"])
            waits = row is not None and row.status in _WAITS
            return None if waits else request.to_function_approval_response(True)
        call_content = request.function_call
        assert call_content is not None
        args = dict(call_content.parse_arguments() or {})
        call = hosted_call(f"{self.log.turn}/{id}", call_content.name or "", args)
        outcome = await self.log.calls.outcome(call)
        return request.to_function_approval_response(outcome.ok)

    async def _question(self, id: str, event: WorkflowEvent[Any]) -> Any:
        response_type: TypeAdapter[Any] = TypeAdapter(event.response_type)
        question = Question(_question_text(event.data), schema=response_type.json_schema())
        with self.log.calls.scope(f"{self.log.turn}/").inside():
            answer = await self.gate.ask(question, key=id, wait=0)
        return response_type.validate_python(answer)


def _check_stored(result: WorkflowRunResult, pending: Mapping[str, Any]) -> None:
    """Raise ``SaysoError`` for a checkpoint that is missing, which the framework only logs."""
    waits = result.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    request_ids = {event.request_id for event in result.get_request_info_events()}
    if request_ids - pending.keys() or (waits and not pending):
        raise SaysoError(
            "the workflow waits for a decision, but its checkpoint could not be stored (see the "
            "log): register the classes of its messages with "
            "agent_framework.register_checkpoint_type"
        )


def _question_text(data: Any) -> str:
    """Return the question of an event as text: the data itself, or all that it holds."""
    if isinstance(data, str):
        return data
    plain = to_jsonable_python(data, fallback=str)
    for name in ("question", "prompt", "message", "text"):
        if isinstance(plain, dict) and isinstance(plain.get(name), str) and len(plain) == 1:
            return str(plain[name])
    return codec.dumps(plain)


# -- inputs and outputs

#: The framework's own objects, which convert themselves.
_OWN = (AgentResponse, AgentResponseUpdate, Message, Content)
_JSON = (str, int, float, bool, type(None))

Stored = dict[str, Json]


class ValueTypes:
    """The types that a workflow's inputs and outputs may have: all that its executors declare, the
    ``response_format`` of its agents, and the framework's messages and responses.

    A value is stored as ``{"type": …, "value": …}``. Lists, dicts and dataclasses whose type cannot
    be validated as a whole, such as a dataclass with messages in it, are stored part by part.
    """

    def __init__(self, workflow: Workflow) -> None:
        declared = list(dict.fromkeys(_declared(workflow)))
        self._types = OutputTypes(declared)
        classes = [item for item in declared if dataclasses.is_dataclass(item)]
        self._dataclasses: dict[str, Any] = {type_name(item): item for item in classes}
        self._own = {type_name(item): item for item in _OWN}

    def dump(self, value: Any) -> Stored | None:
        """Return a value to store; None if ``load`` could not restore it."""
        if type(value) in _JSON:
            return {"value": as_json(value)}
        if isinstance(value, _OWN):
            return self._dump_own(value)
        name = self._types.name_of(value)
        if name:
            return {"type": name, "value": self._types.dump(value)}
        if type(value) is list:
            return _in_parts("list", [self.dump(item) for item in value])
        if type(value) is dict and all(type(key) is str for key in value):
            return _in_parts("dict", {key: self.dump(item) for key, item in value.items()})
        name = type_name(type(value))
        if name in self._dataclasses and all(item.init for item in dataclasses.fields(value)):
            fields = {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
            return _in_parts(name, {key: self.dump(item) for key, item in fields.items()})
        return None

    def _dump_own(self, value: Any) -> Stored | None:
        name = type_name(type(value))
        if name not in self._own:
            return None
        stored: Stored = {"type": name, "value": as_json(value.to_dict())}
        answer = _answer_of(value)
        if isinstance(value, AgentResponse) and not isinstance(answer, str):
            answer = self.dump(answer)
            return None if answer is None else {**stored, "answer": answer}
        return stored

    def load(self, stored: Any) -> Any:
        """Return a stored value. Raises ``ValueError`` if its type is gone or has changed."""
        name, value = stored.get("type", ""), stored["value"]
        if name in self._own:
            answer = {"value": self.load(stored["answer"])} if "answer" in stored else {}
            return self._own[name].from_dict({**value, **answer})
        if not stored.get("parts"):
            return self._types.load({"output": value, "type": name})
        if name == "list":
            return [self.load(item) for item in value]
        parts = {key: self.load(item) for key, item in value.items()}
        if name == "dict":
            return parts
        if name not in self._dataclasses:
            raise ValueError(f"the workflow no longer has the type {name}")
        try:
            return self._dataclasses[name](**parts)
        except TypeError as error:
            raise ValueError(str(error)) from error

    def load_or_json(self, stored: Any) -> Any:
        """Return a stored value, or its JSON if its type is gone or has changed."""
        try:
            return self.load(stored)
        except ValueError:
            return _stored_json(stored)


def _declared(workflow: Workflow) -> Iterator[Any]:
    for executor in workflow.executors.values():
        if isinstance(executor, WorkflowExecutor):
            yield from _declared(executor.workflow)
        agent = executor.agent if isinstance(executor, AgentExecutor) else None
        options = getattr(agent, "default_options", None) or {}
        types = [*executor.workflow_output_types, *executor.output_types, *executor.input_types]
        for declared in (*types, options.get("response_format")):
            yield from _types_in(declared)


def _types_in(declared: Any) -> Iterator[Any]:
    """Yield a type and the types in it, as in ``list[A | B]``, but nothing that is not a type."""
    if declared is Any or not (isinstance(declared, type) or get_origin(declared)):
        return
    yield declared
    for part in get_args(declared):
        yield from _types_in(part)


def _in_parts(name: str, parts: Any) -> Stored | None:
    values = parts.values() if isinstance(parts, dict) else parts
    if any(value is None for value in values):
        return None
    return {"type": name, "value": parts, "parts": True}


def _stored_json(stored: Any) -> Json:
    value = stored["value"]
    if not stored.get("parts"):
        return value
    if isinstance(value, list):
        return [_stored_json(item) for item in value]
    return {key: _stored_json(item) for key, item in value.items()}


def _answer_of(output: Any) -> Any:
    """Return what an agent answered: the value in its ``response_format``, or its text."""
    if not isinstance(output, AgentResponse):
        return output
    try:
        value = output.value
    except ValueError:  # not what the format asks for: the framework leaves that to its caller
        value = None
    return output.text if value is None else value


def _text_of(input: Any) -> str:
    """Return the text of an input, for people."""
    if isinstance(input, list):
        return " ".join(filter(None, map(_text_of, input)))
    return input if isinstance(input, str) else str(getattr(input, "text", "") or "")


def as_json(value: Any) -> Json:
    """Return a value as JSON, for people and for what has no type here."""
    return OutputTypes.dump(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, _OWN):
        return value.to_dict()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
