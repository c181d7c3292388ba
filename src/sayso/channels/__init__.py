"""Ways to reach a person: each channel is an async callable that gets a request to somebody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sayso.channels.terminal import TerminalChannel

__all__ = ["TerminalChannel"]


def __getattr__(name: str) -> Any:
    if name != "TerminalChannel":
        raise AttributeError(f"module 'sayso.channels' has no attribute {name!r}")
    from sayso.channels.terminal import TerminalChannel  # brings rich, which no server needs

    return TerminalChannel
