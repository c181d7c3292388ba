"""What is stored once and named by many calls: tools, and search keys with their words."""

from __future__ import annotations

import time
from collections.abc import Iterable

from sayso.rows import Tool
from sayso.stores.listing import SearchKey
from sayso.stores.sql import statements as sql
from sayso.stores.sql.dialect import Execute

ADD_TOOL = (
    f"INSERT INTO tool ({sql.TOOL}) VALUES (?, ?, ?, ?, ?, ?) "
    # A row that somebody changed is as its digest says again.
    "ON CONFLICT (digest) DO UPDATE SET name = excluded.name, schema = excluded.schema, "
    "description = excluded.description, version = excluded.version, title = excluded.title "
    "WHERE (tool.name, tool.schema, tool.description, tool.version, tool.title) <> "
    "(excluded.name, excluded.schema, excluded.description, excluded.version, excluded.title)"
)
ADD_SEARCH_KEY = (
    "INSERT INTO search_key (id, kind, agent, tool, risk, words) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (id) DO NOTHING"
)
ADD_WORDS = (
    "INSERT INTO search_word (word, search_key) VALUES {} ON CONFLICT (word, search_key) DO NOTHING"
)

#: Pruning drops search keys without calls. Whoever remembers one for longer than this looks again.
_SURE_SECONDS = 600.0
_MOST = 20_000


class ToolCache:
    """What is in the database for sure and need not be written again; filled after commits."""

    def __init__(self) -> None:
        #: A tool never changes under its digest, so that this is also what a reader is given.
        self.tools: dict[str, Tool] = {}
        self.search_keys: dict[int, float] = {}

    def has_search_key(self, number: int) -> bool:
        return time.monotonic() < self.search_keys.get(number, 0.0)

    def learn(self, tools: Iterable[Tool], search_keys: Iterable[int]) -> None:
        """Remember what was committed just now."""
        if len(self.tools) + len(self.search_keys) > _MOST:
            self.forget()
        self.tools.update((tool.digest, tool) for tool in tools)
        self.search_keys.update(dict.fromkeys(search_keys, time.monotonic() + _SURE_SECONDS))

    def forget(self) -> None:
        """Look again for everything: rows were dropped."""
        self.tools, self.search_keys = {}, {}


def add_tools(execute: Execute, tools: Iterable[Tool], tool_cache: ToolCache) -> None:
    """Store the tools that are new. Always in one order, so that two writers cannot deadlock."""
    for tool in sorted(set(tools)):
        if tool.digest not in tool_cache.tools:
            execute(ADD_TOOL, tool)


def add_search_keys(
    execute: Execute, search_keys: Iterable[SearchKey], tool_cache: ToolCache
) -> None:
    """Store the search keys that are new, with their words."""
    for key in sorted(set(search_keys)):
        if not tool_cache.has_search_key(key.id):
            words = "".join(f" {word}" for word in key.words)
            execute(ADD_SEARCH_KEY, (key.id, key.kind, key.agent, key.tool, key.risk, words))
            if key.words:
                marks = ", ".join(["(?, ?)"] * len(key.words))
                pairs = [value for word in key.words for value in (word, key.id)]
                execute(ADD_WORDS.format(marks), pairs)
