"""Tools: functions that a model may call, and what they demand before they run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, Unpack, overload

from sayso import codec, rows
from sayso.agent.context import Context
from sayso.agent.events import Result
from sayso.agent.models.base import ToolFace
from sayso.errors import InvalidCall
from sayso.gate import Gate
from sayso.gate.guard import tool_of
from sayso.gate.options import (
    GuardOptions,
    Title,
    check_known,
    checked_effect_key,
    checked_functions,
    checked_needs,
    checked_title,
    checked_words,
    own_terms,
)
from sayso.gate.settling import Settler, checked_settle, settler
from sayso.policy import Predicate
from sayso.schema import Signature
from sayso.schema.functions import resolved, signature_of
from sayso.stores.base import Store
from sayso.types import Json, Question, Terms

F = TypeVar("F", bound=Callable[..., Any])


class NestedAgent(Protocol):
    """An agent behind a tool, as far as the tool and the agent around it need to know."""

    name: str
    instructions: str

    @property
    def names(self) -> tuple[str, ...]:
        """The agents whose runs it can resume: itself, and those that are tools of it."""

    @property
    def store(self) -> Store:
        """Where its runs are kept."""

    def within(self, outer: Gate) -> NestedAgent:
        """The agent on the store of an outer one, where it names none itself."""

    async def resume(self, where: str, *, deps: Any) -> Result:
        """Resume a run of it."""

    async def run_inside(
        self, input: str, thread: str, call: str, *, requester: str, deps: Any
    ) -> Result:
        """Begin a run for a call of the outer agent."""


def _nothing() -> None: ...


def _described() -> None:
    """Nothing."""


async def _nothing_async() -> None: ...


async def _described_async() -> None:
    """Nothing."""


_EMPTY = (_nothing, _described, _nothing_async, _described_async)


#: A run pauses instead of waiting, its calls have keys, and the note is what the model said.
_OF_A_GATE = frozenset({"wait", "key", "note"})


class ToolOptions(GuardOptions, total=False):
    """What a tool may declare: the options of ``gate.guard``, and the form of its schema."""

    strict: bool


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Tool:
    """One function as a model sees it; calling the object calls the function, ungated."""

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
    title: Title | None = None
    #: Turns the arguments into a question, where the tool is one.
    asks: Callable[[dict[str, Json]], Question] | None = None
    #: The agent behind it, where the tool is one.
    inner: NestedAgent | None = None

    def __repr__(self) -> str:
        return f"Tool({self.name!r}, needs_approval={self.needs_approval!r})"

    @property
    def name(self) -> str:
        """What the model calls it."""
        return self.signature.name

    @property
    def face(self) -> ToolFace:
        """What the model is told of it."""
        parameters = self.signature.strict if self.strict else self.signature.parameters
        return ToolFace(self.name, self.signature.description, parameters, self.strict)

    def read(self, arguments: str) -> str:
        """The model's arguments as the canonical text that is stored, shown and run."""
        values = codec.parse(arguments or "{}")
        if not isinstance(values, dict):
            raise InvalidCall("the arguments must be a JSON object")
        return self.signature.intake_json(values, strict=self.strict).decode()

    def with_inner(self, inner: NestedAgent) -> Tool:
        """The same tool, which knows the agent behind it."""
        return replace(self, inner=inner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.function is None:
            raise TypeError(f"{self.name} has no body: a person or the front end gives its result")
        return self.function(*args, **kwargs)


@overload
def tool(function: F, /) -> Tool: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(function: Any = None, /, **options: Unpack[ToolOptions]) -> Any:
    """Make a function a tool: ``@sayso.tool`` or ``@sayso.tool(needs_approval=True, …)``.

    Name, description and schema come from the function. A first parameter ``ctx: sayso.Context``
    is ours, not the model's. A function whose body is only ``...`` has none: a person or the
    front end gives its result, checked against the return annotation.
    """
    check_known(options, ToolOptions)
    misplaced = sorted(_OF_A_GATE & options.keys())
    if misplaced:
        raise TypeError(f"{', '.join(misplaced)}: only for gate.guard; a tool has no use for it")
    if function is None:
        return lambda target: _made(target, options)
    return _made(function, options)


def _made(function: Callable[..., Any], options: ToolOptions) -> Tool:
    needs = checked_needs(options.get("needs_approval", False))
    checked_functions(options)
    if options.get("description") is not None:
        checked_words(options["description"], "description")
    strict = options.get("strict", True)
    if type(strict) is not bool:
        raise TypeError(f"strict={strict!r}: use True or False")
    takes_context = _takes_context(function)
    signature = Signature.of(
        function,
        name=options.get("name"),
        description=options.get("description"),
        skip_first=takes_context,
    )
    title, arguments = (
        checked_title(options.get("title"), signature),
        signature.parameters["properties"],
    )
    body = None if _is_empty(function) else function
    declared = options if body is not None else {**options, "allowed": ("reject", "respond")}
    made = Tool(
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
    )
    if made.strict:
        made.face  # noqa: B018 - a schema that has no strict form is refused here, not in the run
    return made


def _takes_context(function: Callable[..., Any]) -> bool:
    first = next(iter(signature_of(function).parameters.values()), None)
    if first is None:
        return False
    wanted = first.annotation
    if isinstance(wanted, str):
        try:
            wanted = resolved(function).parameters[first.name].annotation
        except TypeError:
            # Some annotation is known to type checkers only: then its name has to do.
            return str(wanted).rpartition(".")[2] == Context.__name__
    unnamed = first.name == "ctx" and wanted is inspect.Parameter.empty
    return unnamed or wanted is Context


def _is_empty(function: Callable[..., Any]) -> bool:
    """Whether the body is nothing but ``...``, with or without a docstring."""
    code = getattr(function, "__code__", None)
    return code is not None and any(
        code.co_code == empty.__code__.co_code
        and set(code.co_consts) - {function.__doc__} <= {None}
        for empty in _EMPTY
    )


def as_tool(value: object) -> Tool:
    """A tool as it is, or a plain function as a tool that needs no approval."""
    if isinstance(value, Tool):
        return value
    maker = getattr(value, "as_tool", None)
    if maker is not None:
        made: Tool = maker()
        return made
    if not callable(value):
        raise TypeError(f"{value!r} is no tool: use @sayso.tool on a function")
    return _made(value, {})
