"""Asking the other side about a call in doubt: ``settle=`` of a tool or a guarded function.

A process died in the middle of a call, and nobody here knows whether its effect happened. The other
side often does: the payment service knows the refund, the database has the row. A settle function
looks the effect up by its key and says that it ran, that it did not, or that it cannot tell.

It only looks. What it says closes a doubt in one case, if the effect happened; it never starts
anything. What it raises, what it returns instead of an answer, and what it does not say in time all
mean that nobody knows.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from sayso import codec
from sayso.engine.effects import shown_key
from sayso.errors import SaysoError, describe_error
from sayso.gate.outcomes import in_text
from sayso.rows import Call
from sayso.sync import call_in_new_thread, run_user_coroutine, to_thread
from sayso.types import DidNotRun, Ran

if TYPE_CHECKING:
    from sayso.schema import Signature

log = logging.getLogger("sayso.gate")

#: How long the other side may take to answer.
SETTLE_SECONDS = 10.0
#: How much of its evidence is kept.
MAX_EVIDENCE = 2_000

_looks: contextvars.ContextVar[bool] = contextvars.ContextVar("sayso_looks", default=False)


class Settlement(NamedTuple):
    """What the other side says, as it is recorded."""

    answer: str
    result: str | None = None
    said: str = ""


#: Asks the other side about one row; what it says, whatever the function did.
Settler = Callable[[Call], Awaitable[Settlement]]


def checked_settle(options: Mapping[str, Any], arguments: Collection[str]) -> Any:
    """Return the settle function, if one was given and it can be called with the arguments."""
    settle = options.get("settle")
    if settle is None:
        return None
    if not callable(settle):
        raise TypeError(f"settle={settle!r:.80}: give a function of the key and the arguments")
    if options.get("effect") == "read":
        raise TypeError("settle=: a read is never in doubt: leave it out")
    taken = _parameters(settle)
    if not taken or taken[0].kind in (
        inspect.Parameter.KEYWORD_ONLY,
        inspect.Parameter.VAR_KEYWORD,
    ):
        raise TypeError("settle=: its first parameter is the key, as in settle(key, **args)")
    for one in taken[1:]:
        free = one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL) or one.default is not one.empty
        if not free and (one.name not in arguments or one.kind is one.POSITIONAL_ONLY):
            known = ", ".join(arguments) or "none"
            raise TypeError(
                f"settle=: {one.name} is no argument of the function, which has {known}: take the "
                "key first, then arguments by their names"
            )
    return settle


def _parameters(settle: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(settle).parameters.values())


def settler(settle: Callable[..., Any] | None, signature: Signature) -> Settler | None:
    """Return what asks the other side about a call of this function."""
    if settle is None:
        return None

    async def ask(call: Call) -> Settlement:
        try:
            args = _taken(settle, signature.named(call.args.encode()))
            answer = await _called(settle, key_of(call), args)
            return _settlement(answer, signature)
        except asyncio.CancelledError:
            raise
        except TimeoutError:
            why = f"no answer within {SETTLE_SECONDS:g} seconds"
        except (Exception, SystemExit) as error:
            why = describe_error(error)
        log.warning("%s: the other side could not be asked about it: %s", call.id, why)
        return Settlement("unknown", said=why[:MAX_EVIDENCE])

    return ask


def key_of(call: Call) -> str:
    """What a call's effect is known by on the other side: its own key, or the idempotency key."""
    return shown_key(call.effect_key) or call.id


def _taken(settle: Callable[..., Any], args: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that a settle function wants, beside the key."""
    _, *others = _parameters(settle)
    if any(one.kind is one.VAR_KEYWORD for one in others):
        return dict(args)
    return {one.name: args[one.name] for one in others if one.name in args}


async def _called(settle: Callable[..., Any], key: str, args: Mapping[str, Any]) -> Any:
    def call() -> Any:
        with _only_looking():
            return settle(key, **args)

    value = await to_thread(call_in_new_thread, call, SETTLE_SECONDS)
    if not inspect.isawaitable(value):
        return value

    async def limited() -> Any:
        with _only_looking():
            async with asyncio.timeout(SETTLE_SECONDS):
                return await value

    return await run_user_coroutine(limited, SETTLE_SECONDS)


def _settlement(answer: object, signature: Signature) -> Settlement:
    if answer is None:
        return Settlement("unknown")
    if isinstance(answer, DidNotRun):
        return Settlement("did_not_run", said=in_text(answer.evidence)[:MAX_EVIDENCE])
    if isinstance(answer, Ran):
        value = codec.loads(signature.dump_result(answer.result))
        # As of a person who gives the result: it must be what the function would return.
        return Settlement("ran", signature.check_result(value))
    raise TypeError(
        f"settle= gave {type(answer).__name__}: return sayso.Ran(result), "
        "sayso.DidNotRun(evidence) or None"
    )


@contextmanager
def _only_looking() -> Iterator[None]:
    token = _looks.set(True)
    try:
        yield
    finally:
        _looks.reset(token)


def refuse_while_looking() -> None:
    """Raise if a settle function tries to act, or to ask people."""
    if _looks.get():
        raise SaysoError(
            "a settle= function only looks whether an effect happened: it can make no guarded call "
            "and ask nobody"
        )
