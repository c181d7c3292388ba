"""Ways to reach a person. A channel is an async callable that takes a request to a person.

Read ``layout`` (inert text, wrapped), ``card`` (a request as lines), ``screen`` (the terminal),
``prompt`` (asking one person), and ``terminal``, the channel that puts them together. ``kit`` is
what chats, mail and webhooks share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sayso.channels.terminal import TerminalChannel

__all__ = ["TerminalChannel"]


def __getattr__(name: str) -> Any:
    if name != "TerminalChannel":
        raise AttributeError(f"module 'sayso.channels' has no attribute {name!r}")
    from sayso.channels.terminal import TerminalChannel  # imports rich, which no server needs

    return TerminalChannel
