"""Tools: functions that a model may call, the context they receive, and questions as tools."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypedDict, TypeVar, Unpack, overload

from sayso import codec, rows
from sayso.agent.models.base import ToolSpec
from sayso.engine.grants import PLAN_TOOL
from sayso.errors import Refused
from sayso.gate import Gate
from sayso.gate.guard import tool_of
from sayso.gate.options import (
    AskOptions,
    GuardOptions,
    Title,
    check_known,
    checked_effect_key,
    checked_functions,
    checked_needs,
    checked_not_executed,
    checked_string,
    checked_title,
    own_terms,
    question_terms,
)
from sayso.gate.plan import Settler, checked_settle, settler
from sayso.gate.run_result import RunResult
from sayso.gate.scope import RunScope
from sayso.policy import Predicate
from sayso.schema.functions import resolved_signature, signature_of
from sayso.stores.base import Store
from sayso.sync import run_sync, sync_twin
from sayso.types import DecisionMade, Json, Option, Question, Terms, ToolCall, Verdict

if TYPE_CHECKING:
    from sayso.gate.steps import StepTool
    from sayso.schema import Signature

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

# --- the context of a running tool ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Passed to a tool whose first parameter is ``ctx: sayso.Context``. The model never sees it.

    ``ask`` and ``confirm`` pause the run. When the run resumes, the tool restarts from the
    beginning: earlier answers come from the store, and ``once`` keeps effects from repeating.
    """

    run: str
    thread: str
    #: The person the run was started for.
    requester: str
    call_id: str
    #: An idempotency key for other services. The same for every attempt.
    key: str
    attempt: int
    messages: Sequence[Mapping[str, Json]]
    decision: DecisionMade | None
    #: The arguments before a reviewer edited them.
    edited_from: Mapping[str, Json] | None
    deps: Any
    _gate: Gate
    _scope: RunScope
    #: Returns what a plan needs to know of one of the agent's tools.
    _step_tool: Callable[[object], StepTool]

    async def ask(self, question: Question | str, **options: Unpack[AskOptions]) -> Any:
        """Ask a person a question and return the answer. Pauses the run until it is answered."""
        with self._scope.inside():
            return await self._gate.ask(question, **options)

    async def confirm(
        self,
        text: str,
        details: Mapping[str, Json] | None = None,
        **options: Unpack[AskOptions],
    ) -> bool:
        """Ask a person yes or no and return the answer. Pauses the run until it is answered."""
        with self._scope.inside():
            return await self._gate.confirm(text, details, **options)

    async def plan(
        self, calls: Iterable[Any], *, any_order: bool = False, **options: Unpack[AskOptions]
    ) -> tuple[ToolCall, ...]:
        """Ask people to approve several exact calls of the agent's tools at once (``Gate.plan``).

        The model makes them afterwards, in the same run.
        """
        with self._scope.inside():
            return await self._gate.propose_plan(calls, self._step_tool, any_order, options)

    @overload
    async def once(
        self, key: str, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any
    ) -> T: ...
    @overload
    async def once(self, key: str, function: Callable[..., T], *args: Any, **kwargs: Any) -> T: ...
    async def once(self, key: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a function once per call, even if the tool starts several times."""
        with self._scope.inside():
            return await self._gate.once(key, function, *args, **kwargs)

    ask_sync = sync_twin(ask)
    confirm_sync = sync_twin(confirm)

    @overload
    def once_sync(
        self, key: str, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any
    ) -> T: ...
    @overload
    def once_sync(self, key: str, function: Callable[..., T], *args: Any, **kwargs: Any) -> T: ...
    def once_sync(self, key: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a function once per call, even if the tool starts several times."""
        return run_sync(self.once(key, function, *args, **kwargs))


# --- tools ---


class SubAgent(Protocol):
    """An agent used as a tool, as seen by the tool and the outer agent."""

    name: str
    instructions: str

    @property
    def names(self) -> tuple[str, ...]:
        """The agents whose runs it can resume: itself and its own sub-agents."""

    @property
    def store(self) -> Store:
        """The store that keeps its runs."""

    def _on_store_of(self, outer: Gate) -> SubAgent:
        """Return the agent on the outer agent's store, unless it has its own."""

    async def resume(self, where: str, *, deps: Any) -> RunResult:
        """Resume one of its runs."""

    async def _run_for_call(self, input: str, thread: str, **options: Any) -> RunResult:
        """Start a run for a call of the outer agent, with these fields of its ``RunContext``."""


#: A run pauses instead of waiting, keys its own calls, and uses the model's text as the note.
_GATE_ONLY = frozenset({"wait", "key", "note"})


class ToolOptions(GuardOptions, total=False):
    """Options of a tool: those of ``gate.guard``, and ``strict`` for the form of its schema."""

    strict: bool


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Tool:
    """A function that a model may call. Calling the object runs the function without the gate."""

    signature: Signature
    function: Callable[..., Any] | None
    stored: rows.Tool
    own: Terms
    needs_approval: bool | Predicate
    takes_context: bool
    strict: bool
    binds: Callable[..., Mapping[str, Json]] | None = None
    preview: Callable[..., Json] | None = None
    effect_key: Callable[[dict[str, Json]], str] | None = None
    settle: Settler | None = None
    not_executed: tuple[type[Exception], ...] = ()
    title: Title | None = None
    #: Turns the arguments into a question, if the tool asks one.
    asks: Callable[[dict[str, Json]], Question] | None = None
    #: The agent behind the tool, if there is one.
    inner: SubAgent | None = None
    #: It proposes a plan, and the policy judges that instead of the call of this tool.
    plans: bool = False

    def __repr__(self) -> str:
        return f"Tool({self.name!r}, needs_approval={self.needs_approval!r})"

    @property
    def name(self) -> str:
        """The name that the model uses."""
        return self.signature.name

    @property
    def spec(self) -> ToolSpec:
        parameters = self.signature.strict if self.strict else self.signature.parameters
        return ToolSpec(self.name, self.signature.description, parameters, self.strict)

    def read(self, arguments: str) -> str:
        """Return the model's arguments as canonical text. Raises ``InvalidCall``."""
        values = codec.parse_arguments(arguments or "{}")
        return self.signature.intake_json(values, strict=self.strict).decode()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.function is None:
            raise TypeError(f"{self.name} has no body: a person or the front end gives its result")
        return self.function(*args, **kwargs)


@overload
def tool(function: F, /) -> Tool: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(function: Any = None, /, **options: Unpack[ToolOptions]) -> Any:
    """Turn a function into a tool: ``@sayso.tool`` or ``@sayso.tool(needs_approval=True, …)``.

    Name, description and schema come from the function. A first parameter ``ctx: sayso.Context``
    is filled in by the agent and hidden from the model. If the body is only ``...``, a person or
    the front end gives the result, which is checked against the return annotation.
    """
    check_known(options, ToolOptions)
    misplaced = sorted(_GATE_ONLY & options.keys())
    if misplaced:
        raise TypeError(f"{', '.join(misplaced)}: only for gate.guard; not supported by tools")
    if function is None:
        return lambda target: _make_tool(target, options)
    return _make_tool(function, options)


def as_tool(value: object) -> Tool:
    """Return a ``Tool`` unchanged; make one, without approval, from a function or an agent."""
    if isinstance(value, Tool):
        return value
    maker = getattr(value, "as_tool", None)
    if maker is not None:
        tool: Tool = maker()
        return tool
    if not callable(value):
        raise TypeError(f"{value!r} is not a tool: use @sayso.tool on a function")
    return _make_tool(value, {})


def _make_tool(function: Callable[..., Any], options: ToolOptions) -> Tool:
    needs = checked_needs(options.get("needs_approval", False))
    checked_functions(options)
    if options.get("description") is not None:
        checked_string(options["description"], "description")
    strict = options.get("strict", True)
    if type(strict) is not bool:
        raise TypeError(f"strict={strict!r}: use True or False")
    takes_context = _takes_context(function)
    from sayso.schema import Signature  # imports pydantic

    signature = Signature.of(
        function,
        name=options.get("name"),
        description=options.get("description"),
        skip_first=takes_context,
    )
    title = checked_title(options.get("title"), signature)
    arguments = signature.parameters["properties"]
    body = None if _is_empty(function) else function
    declared = options if body is not None else {**options, "allowed": ("reject", "respond")}
    tool = Tool(
        signature=signature,
        function=body,
        stored=tool_of(signature, options.get("version", ""), title),
        title=title,
        own=own_terms(declared),
        needs_approval=True if body is None else needs,
        takes_context=takes_context,
        strict=strict,
        binds=options.get("binds"),
        preview=options.get("preview"),
        effect_key=checked_effect_key(options, arguments),
        settle=settler(checked_settle(options, arguments), signature),
        not_executed=checked_not_executed(options),
    )
    if tool.strict:
        tool.spec  # noqa: B018 - fail now, not in the run, if the schema has no strict form
    return tool


def _takes_context(function: Callable[..., Any]) -> bool:
    first = next(iter(signature_of(function).parameters.values()), None)
    if first is None:
        return False
    annotation = first.annotation
    if isinstance(annotation, str):
        try:
            annotation = resolved_signature(function).parameters[first.name].annotation
        except TypeError:
            # Some annotation exists only for type checkers: compare this one by its name.
            return str(annotation).rpartition(".")[2] == Context.__name__
    unnamed = first.name == "ctx" and annotation is inspect.Parameter.empty
    return unnamed or annotation is Context


def _empty() -> None: ...


def _empty_described() -> None:
    """Nothing."""


async def _empty_async() -> None: ...


async def _empty_async_described() -> None:
    """Nothing."""


_EMPTY = (_empty, _empty_described, _empty_async, _empty_async_described)


def _is_empty(function: Callable[..., Any]) -> bool:
    """Return whether the body is only ``...``, with or without a docstring."""
    code = getattr(function, "__code__", None)
    return code is not None and any(
        code.co_code == empty.__code__.co_code
        and set(code.co_consts) - {function.__doc__} <= {None}
        for empty in _EMPTY
    )


# --- questions as tools: an invalid question goes back to the model ---


@dataclass(frozen=True)
class AskedOption:
    """One choice that the model offers."""

    label: str
    value: str
    description: str | None = None


def _question(args: dict[str, Json]) -> Question:
    options = tuple(
        Option(o["label"], o["value"], o["description"] or "") for o in args["options"] or ()
    )
    free_text = True if not options else bool(args["free_text"])
    return Question(args["question"], options, multiple=args["allow_multiple"], free_text=free_text)


def _question_tool(
    function: Any, name: str, description: str | None, asks: Any, version: str = ""
) -> Tool:
    from sayso.schema import Signature  # imports pydantic

    signature = Signature.of(function, name=name, description=description)
    return Tool(
        signature=signature,
        function=None,
        stored=tool_of(signature, version),
        own=question_terms("question", ("respond", "reject"), {}),
        needs_approval=True,
        takes_context=False,
        strict=True,
        asks=asks,
    )


@cache
def _ask_user() -> Tool:
    from annotated_types import Len

    def ask(
        question: str,
        options: Annotated[list[AskedOption], Len(2, 5)] | None = None,
        allow_multiple: bool = False,
        free_text: bool = False,
    ) -> Any:
        """Ask the user a question and wait for the answer.

        Args:
            question: What to ask, in full.
            options: Two to five choices; leave out for an answer in the user's own words.
            allow_multiple: Whether several choices may be picked.
            free_text: Whether the user may also answer in their own words.
        """

    return _question_tool(ask, "ask_user_question", None, _question)


# --- a plan as a tool ---


class PlanStep(TypedDict):
    """One call that the model plans to make."""

    tool: str
    args: dict[str, Any]


class PlanAnswer(TypedDict, total=False):
    """What the model gets: the calls to make now, or why there are none."""

    approved: list[PlanStep]
    refused: str


async def _propose(ctx: Context, steps: list[PlanStep], any_order: bool = False) -> PlanAnswer:
    """Propose the calls that you are going to make, so that a person approves them all at once.

    Then make exactly the calls that are returned as approved, in that order. People may have
    removed some or changed their arguments. Every other call is asked about on its own.

    Args:
        steps: Each call, with the name of its tool and all of its arguments.
        any_order: Whether the calls may be made in any order.
    """
    try:
        calls = await ctx.plan(steps, any_order=any_order)
    except Refused as error:
        return {"refused": str(error)}
    return {"approved": [{"tool": call.name, "args": dict(call.args)} for call in calls]}


@cache
def _plan() -> Tool:
    # The arguments of a step are those of another tool, so the schema has no strict form.
    proposes = _make_tool(_propose, {"name": PLAN_TOOL, "strict": False})
    own = Terms(verdict=Verdict.ALLOW, rule=PLAN_TOOL, effect="read", declared=True)
    return replace(proposes, own=own, plans=True)


_MADE_ON_USE = {"ask_user": _ask_user, "plan": _plan}

if TYPE_CHECKING:
    #: A tool with which the model asks the user a question.
    ask_user: Tool
    #: A tool with which the model proposes several calls at once.
    plan: Tool
else:

    def __getattr__(name: str) -> Any:
        if name in _MADE_ON_USE:  # made when it is used, because a tool imports pydantic
            return _MADE_ON_USE[name]()
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def ask_user_for(answer: Any, *, name: str | None = None, description: str | None = None) -> Tool:
    """Return a tool that asks the user for a pydantic model, a dataclass or a TypedDict."""
    from pydantic import TypeAdapter

    from sayso.schema.models import pydantic_annotation

    schema = TypeAdapter(pydantic_annotation(answer)).json_schema()
    noun = re.sub(r"\W+", "_", getattr(answer, "__name__", "answer")).lower()

    def ask(question: str) -> Any:
        """Ask the user to fill in a form.

        Args:
            question: What to ask, in full.
        """

    def asks(args: dict[str, Json]) -> Question:
        return Question(args["question"], schema=schema)

    version = codec.digest({"answer": codec.dumps(schema)})
    return _question_tool(ask, name or f"ask_user_for_{noun}", description, asks, version)
