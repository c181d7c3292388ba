"""LangChain's ``interrupt_on`` mapping, read as rules.

The shapes follow ``langchain/agents/middleware/human_in_the_loop.py`` 1.4: ``True`` asks with all
four decisions, ``False`` runs, a mapping has ``allowed_decisions`` and may have ``description``,
``when`` and ``args_schema`` (which LangChain accepts and does not use; nor do we). Names are exact.

Its functions were written for LangChain and are called as there: ``when(request)`` with
``request.tool_call``, ``description(tool_call, state, runtime)``, or ``description(tool_call)``.
A policy knows no graph: the state has no messages, and ``tool`` and ``runtime`` are None.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sayso.errors import InvalidPolicy
from sayso.policy.rule import Args, Describe, Predicate, Rule
from sayso.types import DECISIONS, Json, ToolCall

_KEYS = {"allowed_decisions", "description", "when", "args_schema"}


def _no_messages() -> dict[str, Any]:
    return {"messages": []}


@dataclass(frozen=True, slots=True)
class ToolCallRequest:
    """What LangChain's ``when`` is given, as far as a policy knows it."""

    tool_call: dict[str, Json]
    tool: None = None
    state: dict[str, Any] = field(default_factory=_no_messages)
    runtime: None = None


def rules_from_interrupt_on(interrupt_on: Mapping[str, bool | Mapping[str, Any]]) -> list[Rule]:
    """One rule for each tool that the mapping names."""
    if not isinstance(interrupt_on, Mapping):
        raise InvalidPolicy("interrupt_on is a mapping from a tool's name to True, False or a dict")
    return [_rule(tool, config) for tool, config in interrupt_on.items()]


def _rule(tool: object, config: object) -> Rule:
    where = f"interrupt_on[{tool!r}]"
    if not isinstance(tool, str) or not tool or set(tool) & set("*?["):
        raise InvalidPolicy(f"{where}: give a tool's exact name; for a glob write a Rule(...)")
    if isinstance(config, bool):
        return Rule(tool, verdict="ask" if config else "allow", name=f"interrupt_on {tool}")
    if not isinstance(config, Mapping):
        raise InvalidPolicy(f"{where}: give True, False or a mapping with allowed_decisions")
    _check(where, config)
    when, description = config.get("when"), config.get("description")
    return Rule(
        tool,
        name=f"interrupt_on {tool}",
        allowed=config["allowed_decisions"],
        when=None if when is None else _when(tool, when),
        description=_describe(where, description) if callable(description) else description,
    )


def _check(where: str, config: Mapping[str, Any]) -> None:
    unknown = sorted(str(key) for key in set(config) - _KEYS)
    if unknown:
        raise InvalidPolicy(
            f"{where}: does not know {', '.join(unknown)}; use {', '.join(sorted(_KEYS))}"
        )
    allowed = config.get("allowed_decisions")
    if (
        not isinstance(allowed, list | tuple | set | frozenset)
        or not allowed
        or not all(name in DECISIONS for name in allowed)
    ):
        raise InvalidPolicy(f"{where}: allowed_decisions is a list of {', '.join(DECISIONS)}")
    when, description = config.get("when"), config.get("description")
    if when is not None and not callable(when):
        raise InvalidPolicy(f"{where}: when is a function of the request")
    if description is not None and not isinstance(description, str) and not callable(description):
        raise InvalidPolicy(f"{where}: description is a text or a function")


def _tool_call(name: str, args: Args, id: str | None) -> dict[str, Json]:
    return {"name": name, "args": args, "id": id, "type": "tool_call"}


def _when(tool: str, when: Callable[[Any], bool | Awaitable[bool]]) -> Predicate:
    @functools.wraps(when)
    def predicate(args: Args) -> bool | Awaitable[bool]:
        return when(ToolCallRequest(_tool_call(tool, args, None)))

    @functools.wraps(when)
    async def async_predicate(args: Args) -> bool:
        said = predicate(args)
        return await said if inspect.isawaitable(said) else said

    return async_predicate if inspect.iscoroutinefunction(when) else predicate


def _describe(where: str, description: Callable[..., str]) -> Describe:
    arguments = _arguments(description)
    if arguments not in (1, 3):
        raise InvalidPolicy(
            f"{where}: description takes (tool_call, state, runtime) or (tool_call)"
        )
    more: tuple[Any, ...] = (_no_messages(), None) if arguments == 3 else ()

    @functools.wraps(description)
    def describe(call: ToolCall) -> str:
        return description(_tool_call(call.name, dict(call.args), call.id or None), *more)

    return describe


def _arguments(function: Callable[..., Any]) -> int:
    """How many arguments it takes by position: three if it can, else as many as it must."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return 1
    for count in (3, 1):
        try:
            signature.bind(*range(count))
        except TypeError:
            continue
        return count
    return 0
