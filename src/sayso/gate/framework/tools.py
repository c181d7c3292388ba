"""The tools of a framework: what people are shown of one, and the check of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sayso import codec
from sayso.errors import InvalidCall, NotExecuted
from sayso.gate.plan import UNSTABLE
from sayso.policy import Predicate
from sayso.rows import Call, Tool
from sayso.sync import context_value, run_blocking
from sayso.types import Declared, Json, Terms, Verdict

#: The terms of an agent that is used as a tool: it has no effect itself, and its calls have rows.
SUB_AGENT_TERMS = Declared(effect="idempotent", stated=frozenset({"effect"}))


@dataclass(frozen=True, kw_only=True)
class FrameworkTool:
    """A framework's tool as the gate knows it: a name, a description and a JSON Schema."""

    name: str
    description: str = ""
    #: JSON Schema of the arguments, an object.
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    version: str = ""
    #: What the tool declares, which applies if no rule of the policy matches. A tool that declares
    #: nothing (None) asks.
    needs_approval: bool | Predicate | None = None
    own: Terms = field(default_factory=Terms)
    #: Returns what the framework's own validation makes of the arguments that the model wrote, as
    #: JSON, instead of checking them by the schema. The tool runs with what the model wrote, which
    #: the framework validates again: ``run`` of the call reports that with ``check_validated``.
    normalize: Callable[[dict[str, Json]], Mapping[str, Json]] | None = None
    #: The only decisions that its calls can take. Without ``approve``, people are always asked.
    decisions: tuple[str, ...] | None = None

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The schema that is shown and checked.

        It also allows None for an argument whose default is None, as in ``note: str = None``.
        """
        properties = self.parameters.get("properties", {})
        nullable = {name: _or_none(properties[name]) for name in self._null_defaults}
        if not nullable:
            return {**self.parameters}
        return {**self.parameters, "properties": {**properties, **nullable}}

    @cached_property
    def _null_defaults(self) -> frozenset[str]:
        """Arguments whose default is None, though the schema does not allow None."""
        from sayso import schema

        shared = {"$defs": self.parameters["$defs"]} if "$defs" in self.parameters else {}
        return frozenset(
            name
            for name, rules in self.parameters.get("properties", {}).items()
            if isinstance(rules, Mapping)
            and rules.get("default", ...) is None
            and schema.errors({**rules, **shared}, None)
        )

    def framework_args(self, args: Mapping[str, Json]) -> dict[str, Json]:
        """Return the arguments for the framework, without a None that it would not accept."""
        return {n: v for n, v in args.items() if v is not None or n not in self._null_defaults}

    @cached_property
    def stored(self) -> Tool:
        """The tool row. Its digest covers name, schema, description and version."""
        schema = {"parameters": self.schema, "returns": None}
        codec.canonical(schema)  # refuse a schema that JSON cannot represent where it is declared
        return Tool.of(self.name, codec.dumps(schema), self.description, self.version)

    def intake(self, args: Mapping[str, Json]) -> str:
        """Return the validated arguments that are shown and judged, with defaults; or raise
        ``InvalidCall``."""
        return self.forms(args)[0]

    def forms(self, args: Mapping[str, Json]) -> tuple[str, str]:
        """Return the arguments that are shown and judged, as ``intake`` does, and those to run:
        what the model wrote, if the framework validates it, and otherwise the same."""
        from sayso import schema  # brings jsonschema

        written = codec.canonical(dict(args))
        framework_args = self.framework_args(codec.loads(written))
        if self.normalize is not None:
            return self.validated_text(self.normalize(framework_args)), written.decode()
        properties = self.parameters.get("properties", {})
        defaults = {n: p["default"] for n, p in properties.items() if "default" in p}
        text = self.validated_text(defaults | framework_args)
        wrong = schema.errors(self.schema, codec.loads(text))
        if wrong:
            path, message = wrong[0]
            raise InvalidCall(f"{path}: {message}" if path else message, path)
        return text, text

    def validated_text(self, validated: Mapping[str, Json]) -> str:
        """Return validated arguments in the form in which they are stored."""
        return codec.canonical({**dict.fromkeys(self._null_defaults), **validated}).decode()

    def written(self, args: Mapping[str, Json]) -> str:
        """Return the arguments to run of a call that was made before; "" if they are not valid any
        more."""
        try:
            if self.normalize is None:
                return self.intake(args)
            return codec.canonical(dict(args)).decode()
        except InvalidCall:
            return ""


def _or_none(rules: Mapping[str, Any]) -> dict[str, Any]:
    about = {k: v for k, v in rules.items() if k in ("title", "description", "default")}
    rest = {k: v for k, v in rules.items() if k not in about}
    return {"anyOf": [rest, {"type": "null"}], **about}


# --- arguments that the framework validates itself ---


class ChangedArguments(NotExecuted):
    """The framework made other arguments of what the model wrote than were approved."""


_check: ContextVar[Callable[[Mapping[str, Json]], None] | None] = ContextVar(
    "sayso_arguments_check", default=None
)


def check_validated(validated: Mapping[str, Json]) -> None:
    """Compare the arguments that the framework has just validated with those that were approved.

    An adapter calls it in ``run`` of a call, between the framework's validation and the tool's
    function, in the form that ``normalize`` returns. Raises ``NotExecuted`` if the tool must not
    run.
    """
    check = _check.get()
    if check is not None:
        check(validated)


@contextmanager
def checked_arguments(
    row: Call,
    tool: FrameworkTool,
    judge: Callable[[dict[str, Json]], Coroutine[Any, Any, Terms]],
) -> Iterator[None]:
    """Make ``check_validated`` compare arguments with those of this row inside ``with``.

    If people were shown the call, they are the same or the call is refused. If not, the rules
    judge those of the run. Raise the refusal at the end, whatever the framework made of it.
    """
    refusals: list[ChangedArguments] = []

    def check(validated: Mapping[str, Json]) -> None:
        try:
            text = tool.validated_text(validated)
            if text == row.args:
                return
            if not row.asked:
                terms = run_blocking(lambda: judge(codec.loads(text)))
                if terms.verdict is Verdict.ALLOW:
                    return
        except InvalidCall:
            pass
        refusals.append(
            ChangedArguments(
                f"{UNSTABLE}: make the validators of {tool.name} return the same value each time. "
                "Nothing was run"
            )
        )
        raise refusals[0]

    try:
        with context_value(_check, check):
            yield
    except Exception:
        if not refusals:
            raise
    if refusals:
        raise refusals[0]
