"""The tools of the demo: each writes down that it ran, and does nothing else.

What a tool gives follows from its arguments alone, so the script can tell a result from an answer
that a person gave in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sayso

#: Writes down that a tool runs.
Record = Callable[[str, dict[str, Any]], None]

MANY_RECIPIENTS = 100
_SKIES = ("sunny", "cloudy", "rainy", "snowy")


def _weather(city: str) -> str:
    return f"The weather in {city} is {_SKIES[sum(map(ord, city)) % len(_SKIES)]}."


def _sent(recipients: list[str], subject: str, body: str) -> str:
    many = "1 recipient" if len(recipients) == 1 else f"{len(recipients)} recipients"
    return f"The email {subject!r} was sent to {many}."


_GIVES: dict[str, Callable[..., str]] = {
    "getWeatherInformation": _weather,
    "getLocalTime": lambda location: f"It is 10am in {location}.",
    "deleteFile": lambda path: f"The file {path} was deleted.",
    "deploy_to_production": lambda version: f"Version {version} was deployed to production.",
    "deploy_to_staging": lambda version: f"Version {version} was deployed to staging.",
    "rollback": lambda environment, version: f"{environment} was rolled back to {version}.",
    "send_email": _sent,
    "execute_sql": lambda query: "1204 rows were deleted.",
    "book_flight": lambda destination, day: f"A flight to {destination} on {day} was booked.",
}


def gives(tool: str, args: Mapping[str, Any]) -> str | None:
    """What a tool gives for these arguments; nothing for a tool that is not here."""
    return _GIVES[tool](**args) if tool in _GIVES else None


def tools(record: Record) -> list[Any]:
    """The tools, each of which calls ``record`` when it really runs."""

    def ran(tool: str, **args: Any) -> str:
        record(tool, args)
        return _GIVES[tool](**args)

    return [*_from_the_chat(ran), *_for_operators(ran), *_for_the_office(ran), sayso.ask_user]


def _from_the_chat(ran: Callable[..., str]) -> list[Any]:
    @sayso.tool(needs_approval=True)
    def getWeatherInformation(city: str) -> str:
        """Show the weather in a given city to the user."""
        return ran("getWeatherInformation", city=city)

    @sayso.tool
    def getLocalTime(location: str) -> str:
        """Get the local time for a specified location."""
        return ran("getLocalTime", location=location)

    @sayso.tool(needs_approval=True)
    def deleteFile(path: str) -> Any:
        """Delete a file."""
        return ran("deleteFile", path=path)

    return [getWeatherInformation, getLocalTime, deleteFile]


def _for_operators(ran: Callable[..., str]) -> list[Any]:
    @sayso.tool(needs_approval=True, risk="medium")
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


def _for_the_office(ran: Callable[..., str]) -> list[Any]:
    @sayso.tool(needs_approval=lambda args: len(args["recipients"]) > MANY_RECIPIENTS)
    def send_email(recipients: list[str], subject: str, body: str) -> Any:
        """Send an email."""
        return ran("send_email", recipients=recipients, subject=subject, body=body)

    @sayso.tool(needs_approval=True)
    def book_flight(destination: str, day: str) -> Any:
        """Book a flight."""
        return ran("book_flight", destination=destination, day=day)

    return [send_email, book_flight]
