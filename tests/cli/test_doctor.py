"""``sayso doctor`` on a SQLite file: its findings, and that it changes nothing."""

from __future__ import annotations

import os
import shutil
import sqlite3
from typing import Any, NamedTuple

import httpx
import pytest
import sayso_process
from cli_world import World
from row_key_thief import authenticate_rows
from waiting import until

import sayso
from sayso.channels.kit.health import HealthNotes
from sayso.channels.kit.planner import Target, new_delivery
from sayso.cli.doctor_stores import span
from sayso.engine.commands import Note
from sayso.gate.scope import RunScope
from sayso.hooks.dialects import parse_payload
from sayso.hooks.local import ask_store
from sayso.keys import new_key, public_key
from sayso.stores import open_store
from sayso.stores.sqlite import files
from sayso.testing import ScriptedModel, call

HOURS = 3 * 3_600_000_000


def checks(world: World, code: int = 0) -> dict[str, dict[str, str]]:
    report = world.json("doctor", code=code)
    assert report["ok"] is (code == 0)
    return {check["name"]: check for check in report["checks"]}


def sql(world: World, statement: str, *values: Any) -> list[Any]:
    """Change the file directly."""
    connection = sqlite3.connect(world.folder / "sayso.db")
    with connection:
        rows = connection.execute(statement, values).fetchall()
    connection.close()
    return rows


def stolen(world: World, statement: str, *values: Any) -> None:
    """Change the file directly, with the row key."""
    sql(world, statement, *values)
    store = open_store(world.url)
    authenticate_rows(store)  # type: ignore[arg-type]
    store.close()


def agent_run(world: World) -> None:
    """Return a paused run of a ``sayso.Agent``."""

    @sayso.tool(needs_approval=True)
    def pay(euros: int) -> str:
        return "paid"

    model = ScriptedModel([call("pay", {"euros": 1})])
    agent = sayso.Agent("clerk", model=model, tools=[pay], store=world.url)
    assert agent.run_sync("go", thread="t1").status == "paused"
    agent.close()


def approve_all(world: World) -> None:
    inbox = sayso.Inbox(world.url)
    for request in inbox.pending_sync().items:
        inbox.decide_sync(request.id, request.approve(), by="ana")
    inbox.close()


def test_healthy_store_passes_unchanged(world: World) -> None:
    world.mail()
    before = sql(world, "SELECT * FROM event") + sql(world, "SELECT * FROM call")
    found = checks(world)
    assert {check["state"] for check in found.values()} <= {"ok", "note"}
    assert found["engine"]["text"] == f"SQLite {sqlite3.sqlite_version}"
    assert found["sayso"]["text"].startswith(sayso.__version__)
    assert found["durable"]["text"].startswith("WAL")
    assert found["due"]["state"] == found["tokens"]["state"] == "ok"
    assert sql(world, "SELECT * FROM event") + sql(world, "SELECT * FROM call") == before


# -- who takes it further


def test_due_agent_run_needs_a_worker(world: World) -> None:
    agent_run(world)
    approve_all(world)
    assert checks(world)["due"]["state"] == "ok", "a worker may be on its way"
    sql(world, "UPDATE run SET ready_at = ready_at - ?", HOURS)
    due = checks(world, code=1)["due"]
    assert due["state"] == "wrong"
    assert due["text"].startswith("1 run of clerk: ready for 3 h")
    assert "sayso worker" in due["text"]


def test_due_run_of_code_is_noted(world: World) -> None:
    world.mail()
    approve_all(world)
    sql(world, "UPDATE run SET ready_at = ready_at - ?", HOURS)
    due = checks(world)["due"]
    assert (due["state"], due["text"].split(" decided")[0]) == ("note", "1 run of assistant")


def test_open_expired_requests_are_reported(world: World) -> None:
    world.mail(expires_in=3600)
    world.mail("r2")
    stolen(world, "UPDATE call SET expires_at = created WHERE expires_at IS NOT NULL")
    overdue = checks(world)["overdue"]
    assert (overdue["state"], overdue["text"][:14]) == ("note", "1 request and ")
    stolen(world, "UPDATE call SET expires_at = expires_at - ?", HOURS)
    overdue = checks(world, code=1)["overdue"]
    assert "overdue by 3 h" in overdue["text"]
    assert "sayso worker" in overdue["text"]
    world.cli("inbox")
    assert "overdue by 3 h" in checks(world, code=1)["overdue"]["text"], "inbox only reads"
    with sayso.Inbox(world.url) as inbox:
        inbox.pending_sync()
    assert checks(world)["overdue"]["text"].startswith("0 requests and 0 leases")


def test_expired_lease_is_reported(world: World) -> None:
    world.mail()
    sql(world, "UPDATE run SET owner = 'gone', ready_at = created - ?", HOURS)
    assert "1 lease to close, overdue by 3 h" in checks(world, code=1)["overdue"]["text"]


# -- whom it trusts


def test_tokens_without_an_end_are_named(world: World) -> None:
    world.token("ana", "--role", "admin", "--for", "30d")
    assert checks(world)["tokens"]["state"] == "ok"
    for n in range(7):
        world.token(f"bot{n}", "--role", "reviewer")
    tokens = checks(world)["tokens"]
    assert tokens["state"] == "note"
    assert "bot0 (reviewer)" in tokens["text"]
    assert tokens["text"].endswith("and 2 more")


def test_forged_token_is_reported(world: World) -> None:
    world.token("ana", "--for", "30d")
    stolen(world, "UPDATE credential SET role = 'admin'")
    tokens = checks(world, code=1)["tokens"]
    assert "not made with this key" in tokens["text"]
    assert "ana (admin)" in tokens["text"]


def test_token_row_changed_without_key_is_reported(world: World) -> None:
    """Lists leave such rows out, so only ``doctor`` shows them."""
    world.token("ana", "--for", "30d")
    world.token("ben", "--for", "30d")
    sql(world, "UPDATE credential SET role = 'admin' WHERE person = 'ana'")
    assert [token["person"] for token in world.json("token", "list")] == ["ben"]
    tokens = checks(world, code=1)["tokens"]
    assert tokens["state"] == "wrong"
    assert "changed since; they are refused: ana (admin)" in tokens["text"]
    assert "ben" not in tokens["text"]


def test_tier_follows_from_tokens_and_keys(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = new_key("ed25519")
    monkeypatch.setenv("SAYSO_KEY", pair)
    monkeypatch.setenv("SAYSO_ROW_KEY", "a-row-key-for-this-test-alone-long-enough")
    world.mail()
    assert checks(world)["tier"]["text"].startswith("embedded: ")
    world.token("other", "--role", "agent", "--for", "1d")
    mixed = checks(world)["tier"]["text"]
    assert mixed.startswith("server for agents with a token (other)")
    assert "embedded for the others (assistant)" in mixed
    world.token("assistant", "--role", "agent", "--for", "1d")
    assert checks(world)["tier"]["text"].startswith("server, ")
    monkeypatch.setenv("SAYSO_KEY", public_key(pair))
    found = checks(world)
    assert found["tier"]["text"].startswith("enforced, if ")
    assert "can only verify" in found["key"]["text"]


def test_tier_of_hooks_and_of_the_proxy(world: World) -> None:
    world.mail()
    payload = {"session_id": "s", "cwd": "/src", "tool_use_id": "toolu_1"}
    payload |= {"hook_event_name": "PreToolUse", "tool_name": "Bash"}
    ask_store(world.url, "", parse_payload({**payload, "tool_input": {"command": "make"}}), 0.0)
    tier = checks(world)["tier"]["text"]
    assert tier.startswith("hooked for claude: ")
    assert "; embedded: " in tier
    gate = sayso.Gate(world.url, agent="files", wait=0)
    with pytest.raises(sayso.Paused), gate.run("mcp:files:session:1"):
        gate.confirm_sync("Delete it?", key="1")
    # Its client started the proxy, as its own user.
    connection = "@connection/mcp:notes:session:host/1:stdio"
    here = RunScope(gate.driver, "mcp:notes:session:1", "", refusal_scope=connection)
    with pytest.raises(sayso.Paused), here:
        gate.confirm_sync("Delete it?", key="1")
    gate.close()
    tier = checks(world)["tier"]["text"]
    assert "enforced for files, if only `sayso proxy` has the credentials" in tier
    assert "; embedded: " in tier


# -- the file


def test_store_of_invalid_version_is_not_touched(world: World) -> None:
    world.mail()
    sql(world, "UPDATE meta SET value = '0' WHERE key = 'version'")
    found = checks(world, code=1)
    assert any("0" in check["text"] for check in found.values() if check["state"] == "wrong")
    assert "key" not in found
    assert sql(world, "SELECT value FROM meta WHERE key = 'version'") == [("0",)]


def test_another_journal_is_reported(world: World) -> None:
    world.mail()
    assert sql(world, "PRAGMA journal_mode = DELETE") == [("delete",)]
    assert "not WAL" in checks(world)["durable"]["text"]
    sayso.Inbox(world.url).close()  # a writer
    assert checks(world)["durable"]["state"] == "ok"


def test_network_file_system_is_wrong(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.mail()
    monkeypatch.setattr(files, "_file_system", lambda path: "nfs4")
    assert "network file system (nfs4)" in checks(world, code=1)["store"]["text"]


class Usage(NamedTuple):
    free: int


def test_full_disk_is_wrong(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.mail()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1_000_000))
    assert "0.0 GB free" in checks(world, code=1)["disk"]["text"]


def test_empty_file_stays_empty(world: World) -> None:
    (world.folder / "sayso.db").touch()
    assert "there is no store" in checks(world, code=1)["store"]["text"]
    assert [path.name for path in world.folder.iterdir()] == ["sayso.db"]


def test_database_of_another_program_is_reported(world: World) -> None:
    sql(world, "CREATE TABLE mine (x)")
    assert "holds something else" in checks(world, code=1)["store"]["text"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (2e5, "2 d")],
)
def test_spans_are_short(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_unsealed_record_is_reported(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = new_key("ed25519")
    monkeypatch.setenv("SAYSO_KEY", public_key(pair))
    monkeypatch.setenv("SAYSO_ROW_KEY", "a-row-key-for-this-test-alone-long-enough")
    store = open_store(world.url)
    store.transact(Note(type="seen", actor="ana"))
    store.close()
    assert checks(world)["record"]["text"].startswith("1 event since the last seal; ")
    sql(world, "UPDATE event SET at = at - ?", HOURS)
    record = checks(world, code=1)["record"]
    assert record["state"] == "wrong"
    assert "the oldest 3 h ago" in record["text"]
    assert "sayso serve" in record["text"]
    monkeypatch.setenv("SAYSO_KEY", pair)
    assert checks(world)["record"]["state"] == "note"


def test_watch_prints_what_changes_and_serves_gauges(world: World) -> None:
    open_store(world.url).close()
    log = world.folder / "log"
    with log.open("w") as errors:
        watch = ("doctor", "--watch", "--every", "1", "--metrics", "0", "--store", world.url)
        process = sayso_process.start(*watch, cwd=world.folder, env=os.environ, stderr=errors)
    try:
        url = until(lambda: log.read_text().split())[-1]
        gauge = 'sayso_doctor_lines{check="in doubt",state="wrong"} '
        until(lambda: f"{gauge}0.0" in httpx.get(url).text)
        world.doubt()
        until(lambda: f"{gauge}1.0" in httpx.get(url).text)
        assert "sayso_doctor_checked_timestamp_seconds" in httpx.get(url).text
    finally:
        process.kill()
    out, _ = process.communicate()
    before, first, second = out.split("in doubt", 2)
    assert "schema" in before
    assert "schema" not in second  # a line that stays the same is printed once
    assert first.lstrip().startswith("0 ")
    assert second.lstrip().startswith("1 ")


def test_channel_that_fails_or_is_not_sent_is_wrong(world: World) -> None:
    store = open_store(world.url)
    assert "channel" not in checks(world)
    HealthNotes(store, "mail").note()
    assert checks(world)["channel"]["text"].startswith("mail: last sent 20")
    row = new_delivery("mail", Target("77", "ana"), "req_1", "d", "asked", store.now() - HOURS)
    store.put_deliveries([row])
    late = checks(world, code=1)["channel"]["text"]
    assert late.startswith("mail: 1 message to send, overdue by 3 h: start `sayso serve`")
    HealthNotes(store, "mail").note("OSError: no route")
    store.put_deliveries([row._replace(version=1, attempts=1, error="OSError: no route")])
    assert checks(world, code=1)["channel"]["text"] == (
        "mail: 1 message tried again, because the last one failed: OSError: no route"
    )
    store.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--metrics", "9322"), "--metrics needs --watch"),
        (("--watch", "--every", "0"), "use a number of seconds from 1"),
        (("--watch", "--metrics", "no-port"), "--metrics"),
    ],
)
def test_watch_refuses_wrong_options(world: World, options: tuple[str, ...], words: str) -> None:
    open_store(world.url).close()
    assert words in world.cli("doctor", *options, code=2)
