"""The demo's tools, and the log of what really ran. A tool only logs that it ran.

A tool's result depends on its arguments alone, so the script can tell a real result from one that a
person gave instead.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sayso
from sayso.stores.address import address_of

#: Logs that a tool runs.
Record = Callable[[str, dict[str, Any]], None]

MANY_RECIPIENTS = 100
_SKIES = ("sunny", "cloudy", "rainy", "snowy")


def _weather(city: str) -> str:
    return f"The weather in {city} is {_SKIES[sum(map(ord, city)) % len(_SKIES)]}."


def _sent(recipients: list[str], subject: str, body: str) -> str:
    many = "1 recipient" if len(recipients) == 1 else f"{len(recipients)} recipients"
    return f"The email {subject!r} was sent to {many}."


_RESULTS: dict[str, Callable[..., str]] = {
    "getWeatherInformation": _weather,
    "getLocalTime": lambda location: f"It is 10am in {location}.",
    "deleteFile": lambda path: f"The file {path} was deleted.",
    "deploy_to_production": lambda version: f"Version {version} was deployed to production.",
    "deploy_to_staging": lambda version: f"Version {version} was deployed to staging.",
    "rollback": lambda environment, version: f"{environment} was rolled back to {version}.",
    "send_email": _sent,
    "execute_sql": lambda query: "1204 rows were deleted.",
    "book_flight": lambda destination, day: f"A flight to {destination} on {day} was booked.",
    "start_coding_agent": lambda: (
        "A coding agent has started. Its hook asks before each edit and command: see the inbox."
    ),
}


def expected_result(tool: str, args: Mapping[str, Any]) -> str | None:
    """Return what a tool returns for these arguments; ``None`` for an unknown tool."""
    return _RESULTS[tool](**args) if tool in _RESULTS else None


def tools(record: Record, start_coding: Callable[[], None] | None = None) -> list[Any]:
    """Return the tools. Each calls ``record`` when it really runs."""

    def ran(tool: str, **args: Any) -> str:
        record(tool, args)
        return _RESULTS[tool](**args)

    @sayso.tool
    def start_coding_agent() -> str:
        """Start a coding agent, which asks through its hook."""
        if start_coding is None:
            raise RuntimeError("it needs the inbox of the web app: run `sayso demo` to see it")
        start_coding()
        return ran("start_coding_agent")

    return [
        *_chat_tools(ran),
        *_operations_tools(ran),
        *_office_tools(ran),
        start_coding_agent,
        sayso.ask_user,
    ]


def _chat_tools(ran: Callable[..., str]) -> list[Any]:
    @sayso.tool(needs_approval=True)
    def getWeatherInformation(city: str) -> str:
        """Show the weather in a given city to the user."""
        return ran("getWeatherInformation", city=city)

    @sayso.tool
    def getLocalTime(location: str) -> str:
        """Get the local time for a specified location."""
        return ran("getLocalTime", location=location)

    @sayso.tool(needs_approval=True, title="Delete {path}")
    def deleteFile(path: str) -> Any:
        """Delete a file."""
        return ran("deleteFile", path=path)

    return [getWeatherInformation, getLocalTime, deleteFile]


def _operations_tools(ran: Callable[..., str]) -> list[Any]:
    @sayso.tool(needs_approval=True, risk="medium", title="Deploy version {version} to production")
    def deploy_to_production(version: str) -> Any:
        """Deploy to the production environment."""
        return ran("deploy_to_production", version=version)

    @sayso.tool
    def deploy_to_staging(version: str) -> Any:
        """Deploy to the staging environment."""
        return ran("deploy_to_staging", version=version)

    @sayso.tool(
        needs_approval=lambda args: args["environment"] == "production",
        title="Roll {environment} back to version {version}",
    )
    def rollback(environment: str, version: str) -> Any:
        """Roll back to a previous version."""
        return ran("rollback", environment=environment, version=version)

    @sayso.tool(
        needs_approval=True,
        risk="medium",
        allowed=("approve", "reject"),
        preview=lambda query: "1204 rows would be deleted",
    )
    def execute_sql(query: str) -> Any:
        """Run a statement on the database."""
        return ran("execute_sql", query=query)

    return [deploy_to_production, deploy_to_staging, rollback, execute_sql]


def _office_tools(ran: Callable[..., str]) -> list[Any]:
    @sayso.tool(
        needs_approval=lambda args: len(args["recipients"]) > MANY_RECIPIENTS,
        title=lambda args: f"Email {args['subject']!r} to {len(args['recipients'])} people",
    )
    def send_email(recipients: list[str], subject: str, body: str) -> Any:
        """Send an email."""
        return ran("send_email", recipients=recipients, subject=subject, body=body)

    @sayso.tool(needs_approval=True, title="Book a flight to {destination} on {day}")
    def book_flight(destination: str, day: str) -> Any:
        """Book a flight."""
        return ran("book_flight", destination=destination, day=day)

    return [send_email, book_flight]


_TABLE = "CREATE TABLE IF NOT EXISTS effects (n INTEGER PRIMARY KEY, tool TEXT, args TEXT, at TEXT)"

Row = tuple[str, str, str]


class Effects:
    """A log of what really ran, one row per execution of a tool, shared by all processes.

    Only the tools write to it, so you can compare it with the store's audit log. Without a path it
    is kept in memory.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = None if path is None else Path(path)
        self._rows: list[Row] = []
        self._lock = threading.Lock()

    @classmethod
    def beside(cls, store: str) -> Effects:
        """Return the log of a store: a file next to the store's file, if it has one."""
        path = address_of(store).path
        if path is None:
            return cls()
        return cls(path.with_name(f"{path.name}.effects"))

    def record(self, tool: str, args: Mapping[str, Any]) -> None:
        """Log that a tool runs now, with these arguments."""
        row = (tool, json.dumps(dict(args)), datetime.now(UTC).isoformat())
        if self.path is None:
            with self._lock:
                self._rows.append(row)
            return
        with self._database() as database:
            database.execute("INSERT INTO effects (tool, args, at) VALUES (?, ?, ?)", row)

    def all(self) -> list[dict[str, Any]]:
        """Return every execution in order, as ``tool``, ``args`` and ``at``."""
        rows = list(self._rows)
        if self.path is not None:
            with self._database() as database:
                rows = database.execute("SELECT tool, args, at FROM effects ORDER BY n").fetchall()
        return [{"tool": tool, "args": json.loads(args), "at": at} for tool, args, at in rows]

    def clear(self) -> None:
        self._rows.clear()
        if self.path is not None:
            with self._database() as database:
                database.execute("DELETE FROM effects")

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        assert self.path is not None
        with closing(sqlite3.connect(self.path, timeout=30)) as database, database:
            database.execute(_TABLE)
            yield database
