"""The two LangGraph functions that tests of middleware like to replace, looked up when called."""

from __future__ import annotations

from typing import Any

from langchain.agents.middleware import human_in_the_loop

theirs: Any = human_in_the_loop


def interrupt(value: Any, **options: Any) -> Any:
    """Stop the graph with a value, or give the answer to it."""
    return theirs.interrupt(value, **options)


def get_config() -> Any:
    """The config of the running node."""
    return theirs.get_config()
