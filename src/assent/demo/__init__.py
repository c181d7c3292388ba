"""The demo agent: it plays a script instead of asking a model, so it needs no key and no network.

    assent demo                      # play with it
    assent chat assent.demo:agent    # the same agent, on a store of your own

Everything here goes through the public face of Assent, as an agent of yours would, and nothing
else in Assent knows of it. What its tools really did stands in an effects log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import assent

if TYPE_CHECKING:
    from assent.demo.effects import Effects

__all__ = ["Effects", "agent"]

NAME = "demo"
INSTRUCTIONS = "You help to try out approvals and questions. You play a script."


def agent(store: Any = None, effects: Effects | None = None) -> assent.Agent:
    """Make the demo agent; without ``effects`` its log is kept beside the store."""
    from assent.demo.effects import Effects
    from assent.demo.model import DemoModel
    from assent.demo.tools import tools

    log = effects

    def record(tool: str, args: dict[str, Any]) -> None:
        nonlocal log
        # Only now is it certain which store the agent has: it may have been lent one.
        log = log or Effects.beside(made.store.url)
        log.record(tool, args)

    made = assent.Agent(
        NAME, model=DemoModel(), instructions=INSTRUCTIONS, tools=tools(record), store=store
    )
    return made


def __getattr__(name: str) -> Any:
    if name == "Effects":
        from assent.demo.effects import Effects

        return Effects
    raise AttributeError(f"module 'assent.demo' has no attribute {name!r}")
