"""Nodes of one's own that ask: a node starts over after a pause, its questions and steps do not."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from sayso.adapters.langchain import _wire
from sayso.adapters.langchain._answers import Answers, read_one, shown
from sayso.adapters.langchain._calls import by_of, directly, thread_id
from sayso.errors import Paused
from sayso.gate import Gate
from sayso.gate.foreign import ForeignThread
from sayso.types import Request

F = TypeVar("F", bound=Callable[..., Any])


def node(gate: Gate) -> Callable[[F], F]:
    """``@node(gate)`` on a node's function: inside it ``gate.ask``, ``gate.confirm`` and
    ``gate.once`` (or their ``_sync`` twins) are durable. The graph is interrupted where a person is
    needed; when the node starts over, what was answered or done before comes from the store."""

    def decorate(function: F) -> F:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def entered(*args: Any, **kwargs: Any) -> Any:
                return await _entered(gate, lambda: function(*args, **kwargs))

        else:

            @functools.wraps(function)
            def entered(*args: Any, **kwargs: Any) -> Any:
                return directly(lambda: _entered(gate, lambda: function(*args, **kwargs)))

        guarded: Any = entered
        return guarded  # type: ignore[no-any-return]

    return decorate


async def _entered(gate: Gate, body: Callable[[], Any]) -> Any:
    config = _wire.get_config()
    # The task's own name: the same each time it starts over, another in each turn.
    task = str(config["configurable"]["checkpoint_ns"])
    thread = ForeignThread(gate, thread_id(config))
    answers = Answers(thread, task, by_of(config))

    async def waiting() -> tuple[Request, ...]:
        return await thread.waiting([task])

    while True:
        await answers.settle(waiting, functools.partial(shown, task), read_one)
        try:
            with thread.scope(f"{task}/").inside():
                value = body()
                return await value if inspect.isawaitable(value) else value
        except Paused:
            continue  # asked just now: the next look interrupts
