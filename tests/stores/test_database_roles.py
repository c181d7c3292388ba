"""The roles of docs/database-roles.md suffice for their work, and for nothing else."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from postgres_server import shared_url, why_not
from waiting import until_async

import sayso
from sayso.audit import verify
from sayso.inbox.directory import create_token, new_link, sign_in
from sayso.keys import new_key
from sayso.stores.base import Store
from sayso.testing import ScriptedModel
from sayso.testing.scripted_model import call, say

PAGE = Path(__file__).resolve().parents[2] / "docs" / "database-roles.md"


class Roles:
    """The roles of the page, under other names, on a schema of their own."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self.connection = connection
        self.tag = secrets.token_hex(4)
        self.schema = f"roles_{self.tag}"
        self.roles, self.rights = re.findall(r"```sql\n(.*?)```", PAGE.read_text("utf-8"), re.S)

    def run(self, script: str) -> None:
        for statement in filter(str.strip, script.split(";")):
            if "CREATE DATABASE" not in statement:
                named = re.sub(r"\bsayso_(\w+)", rf"sayso_{self.tag}_\1", statement)
                named = re.sub(r"\bsayso\b(?=\.| TO )", self.schema, named)
                self.connection.execute(named.encode())

    def open(self, role: str, **options: bool) -> Store:
        sign = "&" if "?" in shared_url() else "?"
        who = f"options=-c%20role%3Dsayso_{self.tag}_{role}"
        return sayso.open_store(f"{shared_url()}{sign}schema={self.schema}&{who}", **options)

    def execute(self, role: str, statement: str) -> None:
        with psycopg.connect(shared_url()) as connection:
            connection.execute(f"SET ROLE sayso_{self.tag}_{role}".encode())
            connection.execute(f"SET search_path = {self.schema}".encode())
            connection.execute(statement.encode())


@pytest.fixture(scope="module")
def roles() -> Iterator[Roles]:
    if why_not():
        pytest.skip(why_not())
    with (
        pytest.MonkeyPatch.context() as patch,
        psycopg.connect(shared_url(), autocommit=True) as connection,
    ):
        patch.setenv("SAYSO_KEY", new_key())
        world = Roles(connection)
        world.run(world.roles)
        owner = f"sayso_{world.tag}_owner"
        connection.execute(f"CREATE SCHEMA {world.schema} AUTHORIZATION {owner}".encode())
        try:
            world.open("owner").close()
            world.run(world.rights)
            yield world
        finally:
            connection.execute(f"DROP SCHEMA {world.schema} CASCADE".encode())
            for role in ("owner", "server", "worker", "audit"):
                name = f"sayso_{world.tag}_{role}"
                connection.execute(f"DROP OWNED BY {name}".encode())
                connection.execute(f"DROP ROLE {name}".encode())


async def test_roles_suffice_for_their_work(roles: Roles) -> None:
    with closing(roles.open("worker")) as store, closing(roles.open("server")) as server:
        inbox = sayso.Inbox(server)
        token, _ = create_token(server, "ana", by="ops", role="admin")
        sign_in(server, new_link(server, "ana"))
        gate = sayso.Gate(store, wait=0)
        pay = gate.guard(paid, effect_key="pay:{to}")

        async def job(to: str) -> str:
            async with gate.run(f"pay {to}"):
                return await pay(to)

        for to in ("bo", "cy", "di"):
            with pytest.raises(sayso.Paused) as paused:
                await job(to)
            (request,) = paused.value.requests
            if to == "bo":
                await inbox.decide(request, request.approve(), token=token)
            elif to == "cy":
                await inbox.decide(request, request.reject("no"), token=token)
            else:
                await inbox.cancel(request, by="ana")
        assert await job("bo") == "paid bo"
        with pytest.raises(sayso.Rejected):
            await job("cy")
        model = ScriptedModel([call("paid", {"to": "ed"}), say("Paid.")], by_turn=True)
        agent = sayso.Agent(
            "clerk", model=model, tools=[sayso.tool(needs_approval=True)(paid)], store=store
        )
        result = await agent.run("Pay Ed", thread="t")
        (request,) = result.interruptions
        await inbox.decide(request, request.approve(), token=token)
        worker = sayso.Worker([agent], store)
        task = asyncio.create_task(worker.run())
        await until_async(lambda: server.run(result.run).status == "done")
        worker.stop()
        await task
    with closing(roles.open("audit", read_only=True)) as audit:
        assert verify(audit).ok
        assert len(await sayso.Inbox(audit).history()) == 4


async def paid(to: str) -> str:
    """Pay a supplier."""
    return f"paid {to}"


@pytest.mark.parametrize(
    ("role", "statement"),
    [
        ("server", "UPDATE event SET actor = 'bob'"),
        ("server", "DELETE FROM event"),
        ("server", "DELETE FROM call"),
        ("server", "DELETE FROM seal"),
        ("server", "TRUNCATE call"),
        ("server", "ALTER TABLE call ADD COLUMN x INT"),
        ("server", "DROP TRIGGER call_words_added ON call"),
        ("worker", "UPDATE person SET role = 'admin'"),
        ("worker", "DELETE FROM credential"),
        ("worker", "INSERT INTO credential (id) VALUES ('x')"),
        ("worker", "UPDATE message SET thread = 'other'"),
        ("audit", "UPDATE call SET status = 'ready'"),
        ("audit", "DELETE FROM effect"),
    ],
)
def test_roles_allow_nothing_else(roles: Roles, role: str, statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        roles.execute(role, statement)
