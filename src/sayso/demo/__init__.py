"""The demo agent: it plays a script instead of asking a model, so it needs no key and no network.

    sayso demo                      # play with it
    sayso chat sayso.demo:agent    # the same agent, on a store of your own

Everything here goes through the public face of Sayso, as an agent of yours would, and nothing
else in Sayso knows of it. What its tools really did stands in an effects log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sayso

if TYPE_CHECKING:
    from sayso.demo.effects import Effects

__all__ = ["Effects", "agent"]

NAME = "demo"
INSTRUCTIONS = "You help to try out approvals and questions. You play a script."


def agent(store: Any = None, effects: Effects | None = None) -> sayso.Agent:
    """Make the demo agent; without ``effects`` its log is kept beside the store."""
    from sayso.demo.effects import Effects
    from sayso.demo.model import DemoModel
    from sayso.demo.tools import tools

    log = effects

    def record(tool: str, args: dict[str, Any]) -> None:
        nonlocal log
        # Only now is it certain which store the agent has: it may have been lent one.
        log = log or Effects.beside(made.store.url)
        log.record(tool, args)

    made = sayso.Agent(
        NAME, model=DemoModel(), instructions=INSTRUCTIONS, tools=tools(record), store=store
    )
    return made


def __getattr__(name: str) -> Any:
    if name == "Effects":
        from sayso.demo.effects import Effects

        return Effects
    raise AttributeError(f"module 'sayso.demo' has no attribute {name!r}")
