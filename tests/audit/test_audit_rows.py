"""Edits of calls, grants and tokens are reported, although the chain is intact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from audit_world import SERVER_KEY, World, edited, opened, places, plain

from sayso.engine.row_macs import row_mac
from sayso.inbox import add_person, create_token, remove_person, revoke_token
from sayso.rows import SYSTEM_THREAD, Event, refusal_from
from sayso.stores.sql import statements as sql
from sayso.testing import person

CALL = [
    ("args = replace(args, 'ana', 'eve')", "args"),
    ("args_hash = '0' || args_hash", "args"),
    ("args = x'00'", "cannot be read"),
    ("status = 'asked'", "status"),
    ("status = 'bogus'", "cannot be read"),
    ("digest = '0' || digest", "digest"),
    ("terms = replace(terms, 'needs_approval', 'nothing')", "terms, or another column"),
    ("terms = 'x'", "cannot be read"),
    ("nonce = '0' || nonce", "under its digest"),
    ("tool = 'transfer'", "tool"),
    ("tool_digest = '0' || tool_digest", "under its digest"),
    ("agent = 'eve'", "under its digest"),
    ("binds = '{}'", "under its digest"),
    ("rev = 2", "under its digest"),
    ("kind = 'question'", "under its digest"),
    ("asked = 0", "asked"),
    ("expires_at = 1", "expires_at"),
    ("votes = ''", "votes"),
    ("votes = replace(votes, 'ana', 'eve')", "votes"),
    ("decision = NULL", "decision"),
    ("decision = replace(decision, 'ana', 'eve')", "decision"),
    ("decision = replace(decision, 'python', 'web')", "decision"),
    ("decision = 'x'", "cannot be read"),
    ("valid_until = valid_until + 1", "valid_until"),
    ("grant_id = 'grt_0'", "grant"),
    ("attempt = 2", "attempt"),
    ("token = token + 1", "token"),
    ("result = '\"nothing\"'", "result"),
    ("created = created - 1", "created"),
    ("run = 'order-9'", "run"),
    ("thread = 'order-1'", "thread"),
]


@pytest.mark.parametrize(("change", "what"), CALL)
def test_edited_call_is_named(world: World, change: str, what: str) -> None:
    world.sql(f"UPDATE call SET {change} WHERE thread = 'order-2'")
    report = world.verify()
    assert places(report) == [("order-2", 4)]
    if what.isidentifier():
        what = f"does not match the record: {what}"
        assert report.problems[0].what.endswith(what)
    assert what in report.problems[0].what


def test_forged_original_arguments_are_named(tmp_path: Path) -> None:
    with opened(World(tmp_path)) as world:
        request = world.ask("order-1")
        world.inbox.decide_sync(request.id, request.edit({"subject": "hi"}), by="ana")
        assert world.verify().ok
        for original in ("original || ' '", "NULL"):
            world.sql(f"UPDATE call SET original = {original}")
            report = world.verify()
            assert places(report) == [("order-1", 3)]
            assert "original" in report.problems[0].what


def test_approval_written_into_the_table_is_named(world: World) -> None:
    request = world.ask("order-4")
    world.sql("UPDATE call SET status = 'ready' WHERE id = ?", request.id)
    assert places(world.verify()) == [("order-4", 1)]
    decision = world.sql("SELECT decision FROM call WHERE thread = 'order-1'")[0][0]
    world.sql("UPDATE call SET decision = ? WHERE id = ?", decision, request.id)
    report = world.verify()
    assert places(report) == [("order-4", 1)]
    assert "status, decision" in report.problems[0].what


def test_call_allowed_by_policy_is_signed(tmp_path: Path) -> None:
    with opened(World(tmp_path)) as world:
        with world.gate.run("order-1"):
            assert world.gate.once_sync("step", lambda: 42) == 42
        assert world.verify().ok
        for old, new in (("allow", "grant"), ("policy:once", "policy:eve"), ('",""', '.",""')):
            (before,) = world.sql("SELECT decision FROM call")[0]
            assert old in before
            world.sql("UPDATE call SET decision = replace(decision, ?, ?)", old, new)
            report = world.verify()
            assert places(report) == [("order-1", 3)]
            assert "decision" in report.problems[0].what
            world.sql("UPDATE call SET decision = ?", before)


def test_denied_call_matches_its_policy(tmp_path: Path) -> None:
    from sayso import Denied, Gate, Policy, Rule

    with opened(World(tmp_path)) as world:
        policy = Policy([Rule("send", verdict="deny", description="no mail")])
        send = Gate(world.store, policy=policy, wait=0).guard(world.send.__wrapped__)
        with pytest.raises(Denied):
            send("ana@example.com")
        assert world.verify().ok
        world.sql("UPDATE call SET decision = replace(decision, 'no mail', 'ask eve')")
        report = world.verify()
        assert report.problems[0].seq == 1
        assert "decision" in report.problems[0].what


def test_missing_call_is_named(world: World) -> None:
    world.sql("DELETE FROM call WHERE thread = 'order-2'")
    report = world.verify()
    assert places(report) == [("order-2", 4)]
    assert "is missing from the table" in report.problems[0].what


@pytest.mark.parametrize("run", ["order-2", "order-8"])
def test_call_without_an_event_is_reported(world: World, run: str) -> None:
    """In a run that exists, or in one that will be created."""
    world.sql("CREATE TABLE forged AS SELECT * FROM call WHERE thread = 'order-2'")
    world.sql("UPDATE forged SET n = 99, id = 'req_forged', key = 'k', asked = 0, run = ?", run)
    world.sql("INSERT INTO call SELECT * FROM forged")
    report = world.verify()
    assert places(report) == [("order-2", 0)]
    assert "req_forged is in the table, but no event made it" in report.problems[0].what


def test_unreadable_call_without_an_event_is_reported(world: World) -> None:
    world.sql("CREATE TABLE forged AS SELECT * FROM call WHERE thread = 'order-2'")
    world.sql("UPDATE forged SET n = 99, id = 'req_forged', key = 'k', status = 'bogus'")
    world.sql("INSERT INTO call SELECT * FROM forged")
    report = world.verify()
    assert "a call that no event made cannot be read" in str(report.problems[0])


def test_unreadable_events_are_reported(world: World) -> None:
    columns = "seq, at, type, run, call, actor, body, digest, hash"
    world.sql(f"INSERT INTO event SELECT 99, CAST(x'ff' AS TEXT), {columns} FROM event LIMIT 1")
    report = world.verify()
    assert "the events cannot be read: " in str(report.problems[0])


def test_missing_quorum_is_named(tmp_path: Path) -> None:
    """With plain hashes a vote can be disguised as the decision; it still counts once."""
    with opened(World(tmp_path, SERVER_KEY)) as server:
        send = server.gate.guard(needs_approval=True, quorum=2)(server.send.__wrapped__)
        request = server.ask("order-1", lambda: send("ana@example.com"))
        server.approve(request, by=person(server.store, "ana"))
        assert server.verify().ok

        def change(event: Event) -> Event:
            return event._replace(type="decided") if event.type == "voted" else event

        server.rewrite("order-1", plain, change)
        report = server.verify()
        assert {*places(report)} == {("order-1", 2)}
        assert "quorum" in report.problems[0].what


# -- grants and tokens


@pytest.fixture
def granted(tmp_path: Path) -> object:
    with opened(World(tmp_path)) as world:
        request = world.ask("order-1")
        world.approve(request, grant={"scope": "any", "uses": 5})
        for name in ("order-2", "order-3"):
            with world.gate.run(name):
                world.send("bob@example.com")
        assert world.sql("SELECT uses_left FROM grants") == [(3,)]
        create_token(world.store, "ana", by="root", groups=["finance"])
        assert world.verify().ok
        yield world


_EDITED_GRANT = (
    ("agent = 'eve'", "agent"),
    ("tool_digest = 'x'", "tool"),
    ("scope = '{\"const\": 1}'", "scope"),
    ("given_by = 'eve'", "by"),
    ("ends = NULL", "ends"),
    ("revoked = 1", "revoked"),
    ("uses_left = 4", "uses_left"),
    ("uses_left = NULL", "uses_left"),
    ("created = created - 1", "another column, or its signature"),
    ("signature = ''", "another column, or its signature"),
)

_EDITED_PERSON = (
    ("look = 'eve'", "look"),
    ("role = 'admin'", "role"),
    ('groups = \'["finance", "ops"]\'', "groups"),
    ("status = 'removed'", "status"),
    ("stand_in = 'eve', away_until = 9", "stand_in, away_until"),
    ("since = 1", "since"),
    ("signature = ''", "another column, or its signature"),
)

_EDITED_TOKEN = (
    ("person = 'eve'", "person"),
    ("role = 'admin'", "role"),
    ("assurance = 'session'", "assurance"),
    ("ends = 1", "ends"),
    ("revoked = 1", "revoked"),
    ("last_used = 1", "another column, or its signature"),
    ("hash = '0' || hash", "another column, or its signature"),
    ("signature = ''", "another column, or its signature"),
)


@pytest.mark.parametrize(
    ("table", "seq", "change", "what"),
    [
        *(("grants", 1, *edited) for edited in _EDITED_GRANT),
        *(("person", 2, *edited) for edited in _EDITED_PERSON),
        *(("credential", 3, *edited) for edited in _EDITED_TOKEN),
    ],
)
def test_edited_grant_person_or_token_is_named(
    granted: World, table: str, seq: int, change: str, what: str
) -> None:
    granted.sql(f"UPDATE {table} SET {change}")
    report = granted.verify()
    assert places(report) == [(SYSTEM_THREAD, seq)]
    assert report.problems[0].what.endswith(f": {what}")


@pytest.mark.parametrize(("table", "seq"), [("grants", 1), ("person", 2), ("credential", 3)])
def test_missing_grant_or_token_is_named(granted: World, table: str, seq: int) -> None:
    granted.sql(f"DELETE FROM {table}")
    report = granted.verify()
    assert places(report) == [(SYSTEM_THREAD, seq)]
    assert "its row is missing" in report.problems[0].what


@pytest.mark.parametrize(
    ("table", "noun"), [("grants", "grant"), ("person", "person"), ("credential", "token")]
)
def test_grant_or_token_without_an_event_is_reported(granted: World, table: str, noun: str) -> None:
    granted.sql(f"CREATE TABLE forged AS SELECT * FROM {table}")
    if table == "person":
        granted.sql("UPDATE forged SET name = 'forged', look = 'forged'")
    else:
        granted.sql("UPDATE forged SET id = 'forged'")
    if table == "credential":
        granted.sql("UPDATE forged SET hash = 'x'")
    granted.sql(f"INSERT INTO {table} SELECT * FROM forged")
    report = granted.verify()
    assert places(report) == [(SYSTEM_THREAD, 0)]
    assert f"{noun} forged is in the table, but no event issued it" == report.problems[0].what


def test_undone_revocations_are_named(granted: World) -> None:
    (grant,) = granted.inbox.grants_sync()
    granted.inbox.revoke_sync(grant.id, by="ana")
    revoke_token(granted.store, granted.store.credentials()[0].id, by="root")
    assert granted.verify().ok
    granted.sql("UPDATE grants SET revoked = NULL")
    granted.sql("UPDATE credential SET revoked = NULL")
    assert places(granted.verify()) == [(SYSTEM_THREAD, 1), (SYSTEM_THREAD, 3)]


def test_unreadable_tokens_are_reported(granted: World) -> None:
    granted.sql("UPDATE person SET groups = 'x'")
    report = granted.verify()
    assert places(report) == [(SYSTEM_THREAD, 0)]
    assert "cannot be read" in report.problems[0].what


def test_malformed_system_row_is_reported(tmp_path: Path) -> None:
    with opened(World(tmp_path, SERVER_KEY)) as server:
        create_token(server.store, "ana", by="root")
        server.rewrite(
            SYSTEM_THREAD,
            plain,
            lambda event: edited(event._replace(type="token_revoked"), token=0),
        )
        assert places(server.verify()) == [(SYSTEM_THREAD, 0)] * 2


# -- refusals, effects and counts


@pytest.fixture
def refused(tmp_path: Path) -> Iterator[World]:
    """Return a world with a rejection that counts for equal calls."""
    with opened(World(tmp_path)) as world:
        request = world.ask("order")
        world.inbox.decide_sync(request.id, request.reject("never"), by="ana")
        assert world.verify().ok
        yield world


@pytest.mark.parametrize(
    ("statement", "with_key", "what"),
    [
        ("DELETE FROM refusal", False, "is missing from the table"),
        ("UPDATE refusal SET message = 'fine'", False, "was changed"),
        ("UPDATE refusal SET message = 'fine'", True, "does not match the record: message"),
        ("UPDATE refusal SET lifted = 1", True, "is lifted, but no event says so"),
        ("UPDATE refusal SET id = 'ref_0', request = 'req_0'", True, "no event made it"),
        ("DROP TABLE refusal", False, "the refusals cannot be read"),
    ],
)
def test_changed_refusal_is_named(
    refused: World, statement: str, with_key: bool, what: str
) -> None:
    refused.sql(statement)
    if with_key:
        refused.sql("UPDATE refusal SET mac = ?", refusal_mac(refused))
    assert any(what in problem.what for problem in refused.verify().problems)


def refusal_mac(world: World) -> str:
    """Return the MAC of the only refusal, as someone could make it who holds the row key."""
    columns = sql.REFUSAL
    (row,) = world.sql(f"SELECT {columns} FROM refusal")
    return row_mac(refusal_from(row), world.store.keys.row_key.mac)


def test_lifted_refusal_that_is_put_back_is_named(refused: World) -> None:
    (row,) = refused.sql("SELECT * FROM refusal")
    (refusal,) = refused.inbox.refusals_sync()
    refused.inbox.lift_refusal_sync(refusal.id, by="ana")
    assert refused.verify().ok
    refused.sql("DELETE FROM refusal")
    refused.sql(f"INSERT INTO refusal VALUES ({', '.join('?' * len(row))})", *row)
    (problem,) = refused.verify().problems
    assert "was lifted, but its row was put back" in problem.what


@pytest.mark.parametrize(
    ("table", "what"),
    [("effect", "the effects"), ("budget", "the budgets"), ("open_count", "the counts of open")],
)
def test_unreadable_table_is_reported(world: World, table: str, what: str) -> None:
    world.sql(f"DROP TABLE {table}")
    assert any(problem.what.startswith(what) for problem in world.verify().problems)


def test_removal_of_a_person_whose_beginning_was_forged_is_named(granted: World) -> None:
    """The record of a removal means the state before it, which is not to be trusted then."""
    add_person(granted.store, "eve", by="ops")
    remove_person(granted.store, "eve", by="ops")
    granted.sql("UPDATE event SET actor = 'x' WHERE type = 'person_added' AND body LIKE '%eve%'")
    assert not granted.verify().ok
