"""Steps in the life of a framework's call that several adapters take in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pydantic import BaseModel, ValidationError

from sayso import codec
from sayso.engine.commands import Reask
from sayso.errors import InvalidCall, Paused, SaysoError
from sayso.gate import outcomes
from sayso.gate.framework import FrameworkCall, FrameworkThread, FrameworkTool, Outcome
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


def normalized(validate: Callable[[Any], BaseModel], args: Any) -> dict[str, Json]:
    """Return the complete arguments, as a tool's model reads them. Raises ``InvalidCall``."""
    try:
        return validate(args).model_dump(mode="json", by_alias=True)
    except ValidationError as error:
        raise invalid_arguments(error) from None


def hosted_call(id: str, name: str, args: Mapping[str, Json]) -> FrameworkCall:
    """Return a call that the provider or another server makes: people approve or reject it."""

    async def run(_: dict[str, Json]) -> bool:
        return True

    tool = FrameworkTool(name=name, needs_approval=True, decisions=("approve", "reject"))
    return FrameworkCall(id=id, tool=tool, args=args, run=run)


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
    except Exception:  # the tool's own: it is recorded, and the row has the text
        return await calls.outcome(call)


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
    return outcomes.as_text(codec.loads(row.result or "null"))


async def cancel_skipped(calls: FrameworkThread, keys: Iterable[str]) -> None:
    """Cancel calls that the framework has answered without running them, for example because their
    tool is gone or another middleware gave a result."""
    for key in keys:
        row = await calls.find(key)
        if row is not None and row.status in (CallStatus.ASKED, CallStatus.READY):
            await write(calls.store, cancel_call(row, f"the agent continued without {row.tool}"))
