"""The demo agent. It follows a script instead of a model, so it needs no key and no network.

    sayso demo                     # try it
    sayso chat sayso.demo:agent    # the same agent, on a store of your own

It uses the public API of Sayso, as your agent would. Read ``tools`` (with the log of what really
ran), then ``script``. ``web`` serves it beside a scripted coding agent, and ``tour`` plays it
without a person.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import sayso

if TYPE_CHECKING:
    from sayso.demo.tools import Effects

__all__ = ["Effects", "agent"]

NAME = "demo"
INSTRUCTIONS = "You demonstrate approvals and questions. You follow a script."


def agent(
    store: Any = None,
    effects: Effects | None = None,
    start_coding: Callable[[], None] | None = None,
) -> sayso.Agent:
    """Return the demo agent. Without ``effects``, its log is kept next to the store.

    With ``start_coding`` it can start a coding agent.
    """
    from sayso.demo.script import DemoModel
    from sayso.demo.tools import Effects, tools

    log = effects

    def record(tool: str, args: dict[str, Any]) -> None:
        nonlocal log
        # Only now is it certain which store the agent uses: a command may have given it one.
        log = log or Effects.beside(demo_agent.store.url)
        log.record(tool, args)

    demo_agent = sayso.Agent(
        NAME,
        model=DemoModel(),
        instructions=INSTRUCTIONS,
        tools=tools(record, start_coding),
        store=store,
    )
    return demo_agent


def __getattr__(name: str) -> Any:
    if name == "Effects":
        from sayso.demo.tools import Effects

        return Effects
    raise AttributeError(f"module 'sayso.demo' has no attribute {name!r}")
