"""``sayso upgrade``: change the tables of a store, unless an older process has it open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

import sayso
from sayso import text
from sayso.channels.layout import Line
from sayso.cli import common, output
from sayso.cli.common import Exit
from sayso.cli.doctor_stores import PostgresChecks, SqliteChecks, span
from sayso.errors import NotAllowed
from sayso.rows import LiveProcess
from sayso.stores import open_store
from sayso.stores.address import address_of
from sayso.stores.sql.migrate import check_version, newest_version
from sayso.stores.sql.presence import STALE_SECONDS, live_processes
from sayso.types import SECOND, Micros

PlanOnly = Annotated[
    bool, typer.Option("--plan", help="Change nothing: say what would change and who blocks it.")
]


@dataclass(frozen=True, slots=True)
class Plan:
    """What an upgrade would change, and which processes would no longer work after it."""

    #: The versions of the tables: now, and after the upgrade.
    schema: int
    newest: int
    #: The processes that have the store open.
    processes: list[LiveProcess]

    @property
    def blockers(self) -> list[LiveProcess]:
        return [one for one in self.processes if one.schema_version != self.newest]


def upgrade(
    plan: PlanOnly = False,
    json: common.AsJson = False,
    plain: common.Plain = False,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Upgrade the tables of a store to this version of Sayso.

    Refused while a process of another version has the store open, because that process could write
    nothing any more; `--plan` names them. Make a backup first: there is no way back.
    """
    common.check_shared(store)
    planned, now = _plan(store)
    value = _value(planned)
    if plan:
        output.emit(value, list(_lines(planned, now)), json=json, plain=plain)
        raise typer.Exit(Exit.PROBLEM if planned.blockers else Exit.OK)
    if planned.schema != planned.newest:
        if planned.blockers:
            names = text.inline(", ".join(one.title for one in planned.blockers))
            raise NotAllowed(
                f"these processes would stop working: {names}. Stop them, and try again (one that "
                f"was killed counts for {STALE_SECONDS} s)"
            )
        open_store(store, create=False).close()
    words = f"The tables have version {planned.newest}, which is that of this sayso."
    output.emit(value, words, json=json)


def _plan(url: str) -> tuple[Plan, Micros]:
    """Read the plan, and the time by the clock that wrote the heartbeats."""
    path = address_of(url).path
    dialect = "postgres" if path is None else "sqlite"
    with closing(PostgresChecks(url) if path is None else SqliteChecks(path)) as storage:
        version = storage.version()
        check_version(version, dialect, url)
        now = storage.now()
        processes = live_processes(storage.rows, now)
    return Plan(version, newest_version(dialect), processes), now


def _value(plan: Plan) -> dict[str, Any]:
    processes = [one._asdict() for one in plan.processes]
    value = {**asdict(plan), "sayso": sayso.__version__, "processes": processes}
    return {**value, "blocking": [one._asdict() for one in plan.blockers]}


def _lines(plan: Plan, now: Micros) -> Iterator[Line]:
    if plan.schema == plan.newest:
        words = "stay as they are: restart the processes one after the other"
    else:
        words = "will change: stop the processes below first, and make a backup"
    versions = f"version {plan.schema}, and sayso {sayso.__version__} has {plan.newest}"
    yield Line(f"The tables {words} ({versions}).")
    blocking = {one.id for one in plan.blockers}
    for one in plan.processes:
        age = span(max(0, now - one.seen) / SECOND)
        about = f"sayso {one.version}, tables {one.schema_version}, seen {age} ago"
        words = text.inline(f"{one.title}, {about}")
        if one.id in blocking:
            yield Line(words, "bold red", "✗ blocks the upgrade: ", "bold red")
        else:
            yield Line(words, "", "- ")
    if not plan.processes:
        yield Line("No process has the store open.")
