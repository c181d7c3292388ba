"""Load the agents that a command names as ``module:attribute``."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from sayso.agent import Agent
from sayso.agent.agent import Resumable, lend_store, store_mismatch, store_of
from sayso.cli.common import DEFAULT_STORE, Usage
from sayso.errors import NotFound, SaysoError
from sayso.stores import open_store
from sayso.stores.base import Store
from sayso.types import Request


def load_agent(target: str, store: str | Store) -> Agent:
    """Load a ``sayso.Agent``. An agent without a store gets this one."""
    agent = _load_target(target)
    lend_store(agent, store)
    if not isinstance(agent, Agent):
        raise Usage(
            f"{target} is {_describe(agent)}; `sayso chat` needs a sayso.Agent. Start it in Python "
            "with its run(...), and decide with `sayso inbox`"
        )
    return agent


def load_together(targets: Sequence[str], url: str) -> tuple[Store, list[Resumable]]:
    """Load agents, and return them with the one store that they share.

    Without ``--store`` and ``SAYSO_STORE`` it is the agents' own. A worker on another store than
    its agents would wait forever.
    """
    agents = load_agents(targets)
    own = [store for agent in agents if (store := store_of(agent)) is not None]
    unsaid = url == DEFAULT_STORE and not os.environ.get("SAYSO_STORE")
    shared = own[0] if own and unsaid else open_store(url)
    for agent in agents:
        if [other.name for other in agents].count(agent.name) > 1:
            raise Usage(f"two agents are named {agent.name!r}: rename one")
        lend_store(agent, shared)
        if wrong := store_mismatch(agent, shared):
            raise Usage(f"{wrong}: pass --store, or do not name a store in your code")
    return shared, agents


def load_agents(targets: Sequence[str]) -> list[Resumable]:
    """Load agents without giving them a store."""
    return [_load_target(target) for target in targets]


def _load_target(target: str) -> Resumable:
    module_name, colon, attribute = target.partition(":")
    if not colon or not module_name or not attribute:
        raise Usage(
            f"{target!r} does not name an agent: write it as module:attribute, such as "
            "sayso.demo:agent"
        )
    value: Any = _import_module(module_name)
    for part in attribute.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            raise NotFound(f"module {module_name!r} has no attribute {attribute!r}") from None
    return value if _is_agent(value) else _call_factory(target, value)


def _is_agent(value: Any) -> bool:
    return not isinstance(value, type) and isinstance(value, Resumable)


def mute_terminal_channel(agent: Agent) -> None:
    """Show the agent's requests in the calling command only: its terminal channel stays silent."""
    from sayso.channels.terminal import TerminalChannel  # imports rich, which no server needs

    others = [c for c in agent.gate.channels if not isinstance(c, TerminalChannel)]
    agent.gate.channels = (*others, _shown_here)


async def _shown_here(request: Request) -> None:
    """Do nothing: the command shows pending requests itself."""


def _import_module(name: str) -> ModuleType:
    folder = os.getcwd()
    if folder not in sys.path and "" not in sys.path:
        sys.path.insert(0, folder)  # as `python -m` does
    try:
        return import_module(name)
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{name}.".startswith(f"{missing}."):
            raise NotFound(f"there is no module {name!r}, here or installed") from None
        raise _unusable(f"module {name!r} cannot be imported", error) from error


def _call_factory(target: str, value: Any) -> Resumable:
    if isinstance(value, type) or not callable(value):
        raise Usage(
            f"{target} is {_describe(value)}, not a sayso.Agent or a function that returns one"
        )
    try:
        result = value()
    except SaysoError:
        raise
    except Exception as error:
        raise _unusable(f"{target}() failed", error) from error
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()  # avoids a warning: it is never awaited
        raise Usage(
            f"{target} is an async function: use a plain one, because whatever it opens would "
            "belong to an event loop that ends with it"
        )
    if not _is_agent(result):
        raise Usage(f"{target}() returned {_describe(result)}, not a sayso.Agent")
    agent: Resumable = result
    return agent


def _describe(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def _unusable(what: str, error: Exception) -> SaysoError:
    return Usage(f"{what}: {type(error).__name__}: {error}")
