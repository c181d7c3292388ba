"""Raw SQL on the file, without the row key: nothing that was changed is shown, decided or run."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import Paused, Tampered
from sayso.audit import verify
from sayso.testing import ScriptedModel, call, say


class World:
    """A store in a file, and somebody with an SQL tool."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "sayso.db"
        self.ran: list[str] = []
        self.open()

    def open(self) -> None:
        self.gate = sayso.Gate(f"sqlite:///{self.path}", wait=0, agent="bot")
        self.inbox = sayso.Inbox(self.gate.store)

    def sql(self, statement: str, values: Any = ()) -> list[Any]:
        """Change the file behind the back of every process."""
        self.gate.close()
        file = sqlite3.connect(self.path)
        with file:
            found = file.execute(statement, values).fetchall()
        file.close()
        self.open()
        return found

    def pay(self, run: str = "r") -> Any:
        @self.gate.guard(needs_approval=True)
        def pay(to: str) -> str:
            """Pay somebody."""
            self.ran.append(to)
            return f"paid {to}"

        with self.gate.run(run):
            return pay("bo")

    def asked(self, run: str = "r") -> sayso.Request:
        with pytest.raises(Paused) as paused:
            self.pay(run)
        return paused.value.requests[0]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_forged_yes_is_no_yes(world: World) -> None:
    def confirm() -> bool:
        with world.gate.run("r"):
            return world.gate.confirm_sync("Delete production?")

    with pytest.raises(Paused):
        confirm()
    world.sql("UPDATE call SET status = 'done', result = 'true'")
    with pytest.raises(Tampered):
        confirm()
    assert not verify(world.gate.store).ok


@pytest.mark.parametrize("column", ["result", "decision", "status", "votes", "terms", "args"])
def test_a_stored_result_is_returned_as_it_was_or_not_at_all(world: World, column: str) -> None:
    request = world.asked()
    world.inbox.decide_sync(request.id, request.approve(), by="ana")
    assert world.pay() == "paid bo"
    world.sql(f"UPDATE call SET {column} = replace({column}, 'o', '0') || ' '")
    with pytest.raises(Tampered, match=request.id):
        world.pay()
    assert world.ran == ["bo"]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE tool SET description = 'Look at something harmless.'",
        "UPDATE call SET preview = '\"nothing\"'",
        "UPDATE call SET note = 'fine'",
        "UPDATE call SET terms = '{}'",
        "UPDATE call SET args = replace(args, 'bo', 'eve')",
        "UPDATE call SET requester = 'ana'",
    ],
)
def test_what_people_are_shown_cannot_be_changed(world: World, change: str) -> None:
    request = world.asked()
    world.sql(change)
    before = world.sql("SELECT count(*) FROM event")
    with pytest.raises(Tampered):
        world.inbox.get_sync(request.id)
    with pytest.raises(Tampered):
        world.inbox.decide_sync(request.id, request.approve(), by="ana")
    assert world.sql("SELECT count(*) FROM event") == before
    assert world.ran == []


@pytest.mark.parametrize("events", ["kept", "deleted", "relabelled"])
def test_a_row_put_back_does_not_run_again(world: World, events: str) -> None:
    request = world.asked()
    world.inbox.decide_sync(request.id, request.approve(), by="ana")
    names = [row[1] for row in world.sql("PRAGMA table_info(call)")]
    (row,) = world.sql("SELECT * FROM call")
    last = world.sql("SELECT max(seq) FROM event WHERE thread = 'r'")[0][0]
    assert world.pay() == "paid bo"
    sets = ", ".join(f"{name} = ?" for name in names)
    world.sql(f"UPDATE call SET {sets}", row)
    if events == "deleted":
        world.sql("DELETE FROM event WHERE thread = 'r' AND seq > ?", (last,))
    elif events == "relabelled":
        world.sql("UPDATE event SET call = 'req_other' WHERE thread = 'r' AND seq > ?", (last,))
    with pytest.raises(sayso.SaysoError):
        world.pay()
    assert world.ran == ["bo"]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE message SET body = replace(body, 'cat', 'dog')",
        "DELETE FROM message WHERE seq = 1",
        "UPDATE run SET requester = 'eve'",
        "UPDATE thread SET owner = 'eve'",
    ],
)
async def test_a_conversation_is_read_as_it_was_or_not_at_all(world: World, change: str) -> None:
    @sayso.tool(needs_approval=True)
    def send(to: str) -> str:
        """Send."""
        world.ran.append(to)
        return "sent"

    def agent() -> sayso.Agent:
        model = ScriptedModel([call("send", {"to": "bo"}), say("Done.")])
        return sayso.Agent("bot", model=model, tools=[send], store=world.gate.store)

    await agent().run("feed the cat", thread="t", requester="ana")
    world.sql(change)
    assert not verify(world.gate.store).ok
    with pytest.raises(Tampered):
        await agent().resume("t")
    assert world.ran == []
