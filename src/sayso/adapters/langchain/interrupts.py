"""Interrupts of LangGraph: requests shown in them, answers that come back, and questions of nodes.

Answers may come through LangGraph itself, as ``Command(resume=...)``. LangGraph stores such a value
before anything has checked it, and returns it again each time the node restarts, at times even as
the answer to a later interrupt. So a value counts once: whether it was accepted or refused is
stored, and after a wrong one the node interrupts again. A value that may belong to an earlier
interrupt must name the ``digest`` that was shown: if the same value came just before, if a call is
asked about again, or if it is in doubt. When people decide in the inbox, no value comes at all, and
the row decides.

A graph's own ``interrupt(value)`` becomes a question in the inbox. Three shapes say what they
accept: LangChain's middleware (``action_requests``), the agent inbox (``action_request`` with
``config``), and a question with options, fields or a schema. Any other value accepts any JSON.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from langchain.agents.middleware import human_in_the_loop
from langgraph.config import get_config
from langgraph.errors import GraphInterrupt
from langgraph.types import Command, Interrupt, StateSnapshot

from sayso import codec, schema
from sayso.errors import InvalidCall, InvalidDecision, Paused, Refused, Rejected, SaysoError
from sayso.gate import Gate
from sayso.gate.framework import FrameworkThread, pending_calls
from sayso.gate.plan import cancel_call
from sayso.gate.run_result import decision_from, decisions_from
from sayso.inbox import Inbox
from sayso.rows import Call, CallStatus
from sayso.sync import read, write
from sayso.types import Decision, Json, Option, Question, Request
from sayso.views import framework_arguments

#: Returns the value of the interrupt, from the requests and what was wrong with the last answer.
Show: TypeAlias = Callable[[Sequence[Request], str], Any]
Read: TypeAlias = Callable[[Any, Sequence[Request]], list[Decision]]


class InterruptAnswers:
    """The interrupts of one task, in order."""

    def __init__(self, thread: FrameworkThread, key: str, by: str) -> None:
        self.thread = thread
        self.key = key
        self.by = by
        self._count = 0
        self._last: list[Any] = []

    async def settle(self, keys: Sequence[str], show: Show, read: Read) -> None:
        """Interrupt the graph while one of these calls waits for a decision."""
        error = ""
        while True:
            name = f"{self.key}/answer {self._count}"
            answered = await self.thread.find(name) is not None
            waiting = await self._waiting(keys)
            if not waiting and not answered:
                return
            try:
                value = call_interrupt(
                    show(waiting, error) if waiting else None, response_schema=_expected(waiting)
                )
            except GraphInterrupt:
                if waiting:
                    raise
                return  # answered in another branch of the thread's history, and settled since
            self._count += 1
            again, self._last = value in self._last, [value]
            take = read if _answers_this(value, waiting, again) else _refuse
            error = await self.thread.once(name, partial(self._record, value, waiting, take))

    async def _waiting(self, keys: Sequence[str]) -> list[Request]:
        """Return the requests that wait, each with the decisions that LangChain allows here.

        People can always reject in the inbox; LangChain's ``allowed_decisions`` may leave that out.
        """
        store = self.thread.store
        waiting = await self.thread.waiting(keys)
        calls = await read(store, lambda: [store.call(request.id) for request in waiting])
        return [
            request
            if call is None or request.kind == "in_doubt"
            else replace(request, allowed=call.terms.allowed)
            for request, call in zip(waiting, calls, strict=True)
        ]

    async def _record(self, value: Any, asked: Sequence[Request], read: Read) -> str:
        """Record the decisions. What is wrong with them is shown in the next interrupt."""
        inbox = Inbox(self.thread.store)
        try:
            for decision in read(value, asked):
                name = decision.request or ""
                await inbox.decide(name, decision, by=self.by, channel="langgraph")
        except SaysoError as error:
            return str(error)
        return ""


def _answers_this(value: Any, asked: Sequence[Request], again: bool) -> bool:
    """Return whether a value can only be the answer to what is shown now."""
    first = all(r.kind != "in_doubt" and r.revision == 1 for r in asked)
    if first and not again:
        return True
    digests = value.get("digests", [value.get("digest")]) if isinstance(value, Mapping) else []
    return bool(digests == [request.digest for request in asked])


def _refuse(value: Any, asked: Sequence[Request]) -> list[Decision]:
    raise InvalidDecision(
        "this may be the answer to an earlier question: decide in the inbox, or add the digest "
        "that is shown here to the answer"
    )


def interrupt_value(call_id: str, requests: Sequence[Request], error: str) -> dict[str, Any]:
    """Return the value of an interrupt about one call, in LangChain's form."""
    request = requests[0]
    value: dict[str, Any] = {
        "type": {"approval": "tool_approval"}.get(request.kind, request.kind),
        "tool_call_id": call_id,
        "request_id": request.id,
        "digest": request.digest,
        "name": request.tool,
        "args": framework_arguments(request),
        "description": request.description,
        "allowed_decisions": list(request.allowed),
    }
    if request.question is not None:
        value["question"] = request.question.text
        value["options"] = [option.answer for option in request.question.options]
    return {**value, "error": error} if error else value


def _expected(requests: Sequence[Request]) -> dict[str, Any] | None:
    """Return a JSON Schema of the answer, for clients that draw a form from it."""
    if len(requests) != 1 or requests[0].kind == "question":
        return None
    request = requests[0]
    args = {k: v for k, v in (request.schema or {}).items() if k != "$defs"}
    one_of = decision_schemas(request.tool or "", args, request.allowed)
    return {"oneOf": one_of, "$defs": (request.schema or {}).get("$defs", {})}


def decision_schemas(
    tool: str, args: dict[str, Any], allowed: Sequence[str]
) -> list[dict[str, Any]]:
    """Return schemas of the allowed decisions. An edit cannot change the tool."""
    forms: dict[str, dict[str, Any]] = {
        "approve": {},
        "edit": {"edited_action": object_schema(name={"const": tool}, args=args)},
        "reject": {"message": {"type": "string"}},
        "respond": {"message": {}},
    }
    one_of = [
        object_schema(type={"const": name}, **forms[name]) for name in allowed if name in forms
    ]
    for form in one_of:
        if form["properties"]["type"]["const"] == "reject":
            form["required"].remove("message")
    return one_of


def object_schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def read_turn_answer(value: Any, requests: Sequence[Request]) -> list[Decision]:
    replies = _agent_inbox_decisions(value, requests)
    return decisions_from(value if replies is None else {"decisions": replies}, requests)


def read_single_answer(value: Any, requests: Sequence[Request]) -> list[Decision]:
    """Read the answer to ``interrupt_value``: a decision, or the bare answer to a question."""
    request = requests[0]
    if request.kind == "question" and not (isinstance(value, Mapping) and "type" in value):
        return [request.respond(value)]
    replies = _agent_inbox_decisions(value, requests)
    return [decision_from(replies[0] if replies and len(replies) == 1 else value, request)]


_INBOX = {"accept": "approve", "edit": "edit", "response": "respond", "ignore": "reject"}


def _agent_inbox_decisions(value: Any, requests: Sequence[Request]) -> list[dict[str, Any]] | None:
    """Read a list of replies in the agent inbox's form; None if it is something else."""
    listed = value if isinstance(value, list) else []
    if not listed or not all(isinstance(r, Mapping) and "args" in r for r in listed):
        return None
    if not all(reply.get("type") in tuple(_INBOX) for reply in listed):
        return None
    written_args = [*map(framework_arguments, requests), *[None] * len(listed)]
    return [
        _agent_inbox_decision(_INBOX[reply["type"]], reply["args"], was)
        for reply, was in zip(listed, written_args, strict=False)
    ]


def _agent_inbox_decision(type: str, args: Any, shown: Any) -> dict[str, Any]:
    if type == "approve" and args is not None:
        # The agent inbox sends along what it showed. Anything else is not what people approved.
        sent = args.get("args", args) if isinstance(args, Mapping) else args
        return {"type": type} if sent == shown else {"type": type, "args": sent}
    if type == "edit":
        is_action = isinstance(args, Mapping) and {"action", "args"} == set(args)
        return {
            "type": type,
            "edited_action": {**args, "name": args["action"]} if is_action else args,
        }
    return {"type": type, "message": args} if type == "respond" else {"type": type}


# -- interrupts of a graph's own nodes, as questions


_KEY = "interrupt:"
_UNANSWERED = (CallStatus.REJECTED, CallStatus.EXPIRED, CallStatus.CANCELLED)


class InterruptQuestions:
    """The questions that nodes of one thread asked with ``interrupt(value)``."""

    def __init__(self, gate: Gate, thread: str) -> None:
        self.gate = gate
        self.thread = FrameworkThread(gate, thread)

    async def ask(self, interrupts: Iterable[Interrupt]) -> None:
        """Put the interrupts of nodes into the inbox."""
        await self.thread.open()
        for interrupt in interrupts:
            key, row = await read(self.thread.store, self._last, interrupt)
            if _is_ours(interrupt.value) or row is not None:
                continue
            with suppress(Paused, Rejected), self.thread.scope().inside():
                await self.gate.ask(question_of(interrupt), key=key, wait=0)

    async def answers(self, interrupts: Iterable[Interrupt]) -> Any:
        """Return the command to resume with; None if nothing is answered."""
        answer_values: dict[str, Any] = {}
        for interrupt in interrupts:
            _, row = await read(self.thread.store, self._last, interrupt)
            if row is not None and row.status is CallStatus.RESPONDED:
                answer_values[interrupt.id] = codec.loads(row.result or "null")
            elif row is not None and row.status in _UNANSWERED:
                answer_values[interrupt.id] = refusal(interrupt.value, _why(row))
        return Command(resume=answer_values) if answer_values else None

    async def should_stay(self, stop: Breakpoint, *, asks: bool) -> bool:
        """Return whether people decided that a graph stays where it stopped. Raises ``Paused``
        until they have decided.

        ``asks`` is for a graph that has just stopped: it asks again even at the same checkpoint.
        Otherwise the graph was asked about before, its process died before it asked, or it was
        interrupted and simply continues.
        """
        await self.thread.open()
        base = f"breakpoint:{stop.checkpoint}"
        key, last = await read(self.thread.store, self._next_key, base)
        if not (asks or last or stop.configured):
            return False
        text = f"The graph has stopped before {', '.join(stop.names)}. Continue?"
        return await self._declined(text, {"next": list(stop.names)}, key if asks else last or key)

    async def gave_up(self, error: str) -> bool:
        """Show people a thread whose checkpoints are gone. Return whether they gave it up."""
        await self.thread.open()
        key, last = await read(self.thread.store, self._next_key, "checkpoints")
        text = f"{error}\n\nTry again? A rejection cancels the run."
        try:
            if last and await self._declined(text, {}, last):
                return True
            await self._declined(text, {}, key)  # they tried again, and it was in vain
        except Paused:
            pass
        return False

    async def _declined(self, text: str, details: dict[str, Json], key: str) -> bool:
        with self.thread.scope().inside():
            try:
                return not await self.gate.confirm(text, details, key=key, wait=0)
            except Refused:
                return True

    def _next_key(self, base: str) -> tuple[str, str]:
        """Return the key of the next question of a kind, and that of the last one."""
        asked, key = self._asked("confirm", base)
        return key, list(asked)[-1] if asked else ""

    def _asked(self, subject: str, base: str) -> tuple[dict[str, Call], str]:
        """Return the rows of the same question by their keys, and the key of the next."""
        asked: dict[str, Call] = {}
        key = base
        while (row := self.thread.row(self.thread.scope().named_key(subject, key))) is not None:
            asked[key] = row
            key = f"{base}#{len(asked) + 1}"
        return asked, key

    async def cancel_answered(self, interrupts: Iterable[Interrupt]) -> None:
        """Cancel questions that were answered in LangGraph."""
        await self.thread.open()
        key_of = self.thread.scope().named_key
        waits = {key_of("ask", f"{_KEY}{interrupt.id}") for interrupt in interrupts}
        ours = key_of("ask", _KEY)
        store = self.thread.store
        for row in await read(store, pending_calls, store, self.thread.run):
            if row.key.startswith(ours) and row.key.partition("#")[0] not in waits:
                await write(store, cancel_call(row, "the graph has continued without it"))

    def _last(self, interrupt: Interrupt) -> tuple[str, Call | None]:
        """Return the last question about an interrupt: its key and its row.

        An interrupt that accepts no refusal is asked about again if there is no answer, because the
        graph could not continue.
        """
        asked, key = self._asked("ask", f"{_KEY}{interrupt.id}")
        takes_no = refusal(interrupt.value, "") is not None
        for asked_key, row in asked.items():
            if row.status not in _UNANSWERED or takes_no:
                return asked_key, row
        return key, None


def _why(row: Call) -> str:
    if row.decision is not None:
        return row.decision.message
    return f"no answer: the question was {row.status}"


def _is_ours(value: Any) -> bool:
    """Return whether the interrupt is one of ours, whose request is in the inbox already."""
    return isinstance(value, Mapping) and ("request_id" in value or "request_ids" in value)


# -- what the value of an interrupt says about its answer


_TEXTS = ("question", "text", "message", "description")
_TYPES = {"str": "string", "text": "string", "int": "integer", "float": "number"}
_TYPES |= {"bool": "boolean", "list": "array", "dict": "object"}
_KNOWN = ("string", "integer", "number", "boolean", "array", "object")
_SAYS = {"type", "properties", "enum", "oneOf", "anyOf", "$ref"}
_ANYTHING: dict[str, Any] = {"schema": {}, "free_text": True}


def question_of(interrupt: Interrupt) -> Question:
    """Return the question for an interrupt, with the answers that it accepts."""
    value = interrupt.value
    text = _text(value)
    rules = interrupt.response_schema
    try:
        accepts = {"schema": rules} if isinstance(rules, dict) else _accepted(value)
        schema.check_schema(accepts.get("schema", {}))
        return Question(text, **accepts)
    except InvalidCall:  # the value means something else
        return Question(text, **_ANYTHING)


def refusal(value: Any, message: str) -> Any:
    """Return the answer that declines to answer; None if the interrupt accepts no refusal."""
    no = {"type": "reject", "message": message}
    turn, inbox = _middleware_actions(value), _agent_inbox_actions(value)
    if turn is not None:
        refused = all("reject" in allowed for _, allowed in turn)
        return {"decisions": [no] * len(turn)} if refused else None
    if inbox is None:
        return no
    replies = [_ignored(config, message) for _, config in inbox]
    return None if None in replies else replies


def _text(value: Any) -> str:
    if isinstance(value, str) and value.strip():
        return value
    first = value[0] if isinstance(value, list) and value else value
    fields = first if isinstance(first, Mapping) else {}
    texts = [fields[name] for name in _TEXTS if isinstance(fields.get(name), str)]
    try:
        complete = codec.canonical(value).decode()
    except InvalidCall:
        complete = repr(value)
    return "\n\n".join([*texts[:1], complete])


def _accepted(value: Any) -> dict[str, Any]:
    turn, inbox = _middleware_actions(value), _agent_inbox_actions(value)
    if turn is not None:
        each = [
            {"oneOf": decision_schemas(name, {"type": "object"}, allowed)} for name, allowed in turn
        ]
        return {"schema": object_schema(decisions=_array_schema(each))}
    if inbox is not None:
        each = [{"oneOf": _reply(action, config)} for action, config in inbox]
        listed = _array_schema(each)
        # A single request may also be answered without a list.
        return {"schema": listed if isinstance(value, list) else {"anyOf": [*each, listed]}}
    return _accepted_by_question(value) if isinstance(value, Mapping) else _ANYTHING


# LangChain's own middleware: a wrong answer would leave it stuck for good.


def _middleware_actions(value: Any) -> list[tuple[str, Sequence[str]]] | None:
    """Return the tools that LangChain's middleware asks about, and the decisions it allows."""
    try:
        allowed = {c["action_name"]: c["allowed_decisions"] for c in value["review_configs"]}
        actions = [(action["name"], allowed[action["name"]]) for action in value["action_requests"]]
        can = all(decision_schemas(name, {}, decisions) for name, decisions in actions)
    except (TypeError, KeyError, IndexError):
        return None
    return actions if actions and can else None


# The agent inbox: one reply for each request, in a list.


def _agent_inbox_actions(value: Any) -> list[tuple[str, Mapping[str, Any]]] | None:
    """Return the actions that an agent inbox value shows, and the replies that it allows."""
    listed = value if isinstance(value, list) else [value]
    try:
        actions = [(str(item["action_request"]["action"]), item["config"]) for item in listed]
        can = all(any(config.get(name) for name in _REPLIES) for _, config in actions)
    except (TypeError, KeyError, IndexError, AttributeError):
        return None
    return actions if actions and can else None


_REPLIES = {
    "allow_accept": "accept",
    "allow_edit": "edit",
    "allow_respond": "response",
    "allow_ignore": "ignore",
}


def _reply(action: str, config: Mapping[str, Any]) -> list[dict[str, Any]]:
    edited = object_schema(action={"const": action}, args={"type": "object"})
    args: dict[str, dict[str, Any]] = {"edit": {"args": edited}, "response": {"args": {}}}
    can = [reply for name, reply in _REPLIES.items() if config.get(name)]
    return [object_schema(type={"const": reply}, **args.get(reply, {})) for reply in can]


def _ignored(config: Mapping[str, Any], message: str) -> dict[str, Json] | None:
    if config.get("allow_ignore"):
        return {"type": "ignore", "args": None}
    text = message or "Nobody will answer this."
    return {"type": "response", "args": text} if config.get("allow_respond") else None


def _array_schema(each: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "array", "prefixItems": each, "minItems": len(each), "maxItems": len(each)}


# Questions of other nodes.


def _accepted_by_question(value: Mapping[Any, Any]) -> dict[str, Any]:
    rules = value.get("schema")
    if isinstance(rules, dict) and set(rules) & _SAYS:
        return {"schema": rules}
    fields = _fields(value.get("fields"))
    if fields is not None:
        return {"schema": fields}
    options = value.get("options", value.get("choices"))
    if not isinstance(options, list | tuple) or len(options) < 2:
        return _ANYTHING
    return {
        "options": [_option(option) for option in options],
        "multiple": value.get("multiple") is True,
        "free_text": value.get("free_text") is True,
    }


def _option(given: Any) -> Option:
    if isinstance(given, str):
        return Option(given)
    if not isinstance(given, Mapping):
        return Option(codec.canonical(given).decode(), given)
    if "label" not in given and "value" not in given:
        raise InvalidCall("neither a label nor a value", "options")
    value = given.get("value")
    return Option(str(given.get("label", value)), value, str(given.get("description") or ""))


def _fields(given: Any) -> dict[str, Any] | None:
    """Return the schema of an object with these fields; None unless each has a name and a type."""
    try:
        rules = {spec["name"]: _field(spec) for spec in given}
    except (TypeError, KeyError):
        return None
    if not rules or not all(rules.values()):
        return None
    optional = {s["name"] for s in given if s.get("required") is False or "default" in s}
    required = [name for name in rules if name not in optional]
    return {"type": "object", "properties": rules, "required": required}


def _field(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of one field, as far as the field says."""
    kind = spec.get("type")
    type_name = _TYPES.get(str(kind), kind)
    rules: dict[str, Any] = {"type": type_name} if type_name in _KNOWN else {}
    options = spec.get("options", spec.get("choices", spec.get("enum")))
    if isinstance(options, list) and options:
        rules["enum"] = [_option(option).answer for option in options]
    if "default" in spec and rules:
        rules["default"] = spec["default"]
    description = spec.get("description", spec.get("label"))
    if isinstance(description, str) and rules:
        rules["description"] = description
    return rules


# -- breakpoints


ReadState = Callable[[Any], Awaitable[StateSnapshot]]


@dataclass(frozen=True)
class Breakpoint:
    """Where a graph has stopped without an interrupt."""

    #: The checkpoint ids of the innermost graphs that have stopped.
    checkpoint: str
    #: The nodes that come next.
    names: tuple[str, ...]
    #: Whether the graph has a breakpoint there. If not, an error or a kill stopped it.
    configured: bool


async def breakpoint_of(
    graph: Any, state: StateSnapshot, read: ReadState, prefix: str = ""
) -> Breakpoint:
    """Return where a graph has stopped, from its state and the states of its subgraphs.

    ``update_state`` while it waits does not make it another breakpoint.
    """
    graphs = dict(graph.get_subgraphs())
    inner = [
        await breakpoint_of(graphs[task.name], task.state, read, f"{prefix}{task.name}.")
        for task in state.tasks
        if isinstance(task.state, StateSnapshot) and task.state.next
    ]
    if inner:
        names = tuple(name for stop in inner for name in stop.names)
        checkpoint = " ".join(s.checkpoint for s in inner)
        return Breakpoint(checkpoint, names, any(s.configured for s in inner))
    names = tuple(state.next)
    while (state.metadata or {}).get("source") == "update" and state.parent_config is not None:
        state = await read(state.parent_config)
    configured = _among(names, graph.interrupt_before_nodes)
    if not configured and graph.interrupt_after_nodes and state.parent_config is not None:
        before = await read(state.parent_config)
        configured = _among(before.next, graph.interrupt_after_nodes)
    checkpoint_id = state.config.get("configurable", {}).get("checkpoint_id")
    return Breakpoint(str(checkpoint_id), tuple(f"{prefix}{name}" for name in names), configured)


def _among(names: Sequence[str], breakpoints: Any) -> bool:
    """Return whether a graph has a breakpoint at one of these nodes; its entry does not count."""
    nodes = [name for name in names if not name.startswith("__")]
    return bool(nodes) if breakpoints == "*" else any(name in breakpoints for name in nodes)


# -- LangGraph's functions


theirs: Any = human_in_the_loop


def call_interrupt(value: Any, **options: Any) -> Any:
    """Interrupt the graph with a value, or return the answer to it.

    Looked up when called, because tests of middleware replace it in LangChain's module.
    """
    return theirs.interrupt(value, **options)


def running_config() -> Any:
    """Return the config of the running node, also looked up when called.

    LangChain before 1.3.8 does not import that function.
    """
    return getattr(theirs, "get_config", get_config)()
