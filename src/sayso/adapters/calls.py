"""Steps in the life of a framework's call that several adapters take in the same way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeAlias, cast

from pydantic import AliasChoices, BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from sayso import codec
from sayso.engine.commands import Reask
from sayso.errors import InvalidCall, Paused, SaysoError, describe_error
from sayso.gate import outcomes
from sayso.gate.coverage import Coverage
from sayso.gate.framework import FrameworkCall, FrameworkThread, FrameworkTool, Outcome
from sayso.gate.guarded_runs import current_place
from sayso.gate.outcomes import in_text
from sayso.gate.plan import cancel_call
from sayso.rows import Call, CallStatus
from sayso.sync import write
from sayso.types import Json, Terms

# -- before a call runs


def invalid_arguments(error: ValidationError) -> InvalidCall:
    """Return pydantic's first complaint about arguments, without the arguments themselves."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    path = codec.path_text(first["loc"])
    return InvalidCall(f"{path or 'value'}: {first['msg']}", path)


def normalized(model: type[BaseModel], args: Mapping[str, Json]) -> dict[str, Json]:
    """Return what a tool's model makes of arguments as JSON, with defaults."""
    return as_shown(model, validated_values(model, args))


def validated_values(model: type[BaseModel], args: Mapping[str, Json]) -> dict[str, Any]:
    """Return the values that a tool's model makes of arguments. Raises ``InvalidCall``."""
    try:
        return dict(model.model_validate(args))
    except ValidationError as error:
        raise invalid_arguments(error) from None


def as_shown(model: type[BaseModel], values: Mapping[str, Any]) -> dict[str, Json]:
    """Return the values that a tool's function gets as JSON, under the names in its schema."""
    fields = model.model_fields
    public_values = {
        _public_name(name, fields.get(name)): sorted(value, key=repr)
        if isinstance(value, set | frozenset)  # whose order differs between processes
        else value
        for name, value in values.items()
    }
    return cast(dict[str, Json], to_jsonable_python(public_values, by_alias=True, fallback=in_text))


def _public_name(name: str, field: FieldInfo | None) -> str:
    alias = None if field is None else field.validation_alias
    if isinstance(alias, AliasChoices):
        alias = next((choice for choice in alias.choices if isinstance(choice, str)), None)
    return alias if isinstance(alias, str) else name


def hosted_call(id: str, name: str, args: Mapping[str, Json]) -> FrameworkCall:
    """Return a call that the provider or another server makes: people approve or reject it."""

    async def run(_: dict[str, Json]) -> bool:
        return True

    tool = FrameworkTool(name=name, needs_approval=True, decisions=("approve", "reject"))
    return FrameworkCall(id=id, tool=tool, args=args, run=run)


#: What a model's provider would run: its kind and name, and why the gate cannot reach it.
Unlisted: TypeAlias = tuple[str, str, str]


def check_unlisted(unlisted: Sequence[Unlisted]) -> None:
    """Raise ``InvalidCall`` inside a guarded run, where a request to a model is made, for what
    ``ungated`` does not name. What a request holds may be known only then."""
    place = current_place() if unlisted else None
    if place is not None:
        coverage = Coverage(place.ungated)
        for kind, name, why in unlisted:
            coverage.missed(place.gate.agent, kind, name, why)
        coverage.check_missed()


async def ask_again(
    calls: FrameworkThread, row: Call, reason: str, terms: Terms | None = None
) -> None:
    """Ask people once more about a call that they have approved."""
    command = Reask(thread=row.thread, run=row.run, call=row.id, reason=reason, terms=terms)
    await write(calls.store, command)


# -- running it


async def outcome_with_errors(calls: FrameworkThread, call: FrameworkCall) -> Outcome:
    """Complete a call.

    An error of the tool is an outcome too, with text for the model. Raises ``Paused`` and errors of
    the gate.
    """
    try:
        return await calls.outcome(call)
    except SaysoError:
        raise
    except Exception as error:  # the tool's own
        row = await calls.find(call.id)
        if row is not None and row.status is not CallStatus.READY:
            return replace(await calls.outcome(call), error=error)
        # A read, which is not recorded as failed: the model may make the same call again.
        text = f"The call failed: {describe_error(error)}"
        return Outcome(ok=False, value=None, text=text, error=error)


async def settle(calls: FrameworkThread, made: Sequence[FrameworkCall]) -> dict[str, Outcome]:
    """Ask about all calls of a reply in one commit, then run those that may run, even if others
    wait. Return the outcomes by id. Raises ``Paused`` at the end if any call waits."""
    await calls.ask(made)
    outcomes: dict[str, Outcome] = {}
    paused: Paused | None = None
    for call in made:
        try:
            outcomes[call.id] = await outcome_with_errors(calls, call)
        except Paused as pause:
            paused = pause
    if paused is not None:
        raise paused
    return outcomes


class StopSignal(BaseException):
    """Carries an exception through code that catches every ``Exception``, such as a framework's
    loop, which would make it text for the model, or middleware that is not ours."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class PauseSignal(Paused):
    """Carries an exception out of a call, which then pauses instead of failing."""

    def __init__(self, run: str, cause: Exception) -> None:
        super().__init__(run)
        self.cause = cause


@contextmanager
def raise_stop_causes() -> Iterator[None]:
    try:
        yield
    except StopSignal as stopped:
        raise stopped.cause from None


# -- calls that the framework will not make


def closing_text(row: Call | None) -> str:
    """Return the text for the model about a call that the framework will not make."""
    if row is None:
        return "This call is no longer on record."
    if not outcomes.has_result(row):
        return outcomes.why_not(row)
    return outcomes.result_text(row)


async def cancel_skipped(calls: FrameworkThread, keys: Iterable[str]) -> None:
    """Cancel calls that the framework has answered without running them, for example because their
    tool is gone or another middleware gave a result."""
    for key in keys:
        row = await calls.find(key)
        if row is not None and row.status in (CallStatus.ASKED, CallStatus.READY):
            await write(calls.store, cancel_call(row, f"the agent continued without {row.tool}"))
