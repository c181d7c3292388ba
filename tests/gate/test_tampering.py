"""Rows changed behind our back with plain SQL: nothing of it runs.

Each attack is made twice: without any key, and with the row key, which every worker holds. The
first is refused by the MAC of the row, the second by the signature of the decision.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest
from cases import RUN, Case, person
from row_key_thief import authenticate_rows

from sayso import Paused, Question, Tampered
from sayso.audit import verify
from sayso.engine.asking import request_digest, signed_bytes
from sayso.engine.commands import Start
from sayso.gate import plan as recheck
from sayso.inbox import add_person
from sayso.stores.sqlite import SqliteStore
from sayso.types import Decided, Request, Vote

ANA, BEA = person("ana"), person("bea")


class Thief:
    """Somebody who can write the file, with the row key or without."""

    def __init__(self, store: SqliteStore, *, has_row_key: bool) -> None:
        self._store = store
        self.has_row_key = has_row_key

    def sql(self, statement: str, *values: Any) -> list[Any]:
        with closing(sqlite3.connect(self._store.path, isolation_level=None)) as connection:
            rows = connection.execute(statement, values).fetchall()
        if self.has_row_key and not statement.startswith(("SELECT", "PRAGMA")):
            authenticate_rows(self._store)
        return rows

    def set(self, **columns: Any) -> None:
        """Change the one call of the store."""
        names = ", ".join(f"{name} = ?" for name in columns)
        self.sql(f"UPDATE call SET {names}", *columns.values())

    def make_ready(self) -> None:
        """Say that it was approved, in every place that says so."""
        self.set(status="ready")
        self.sql("UPDATE run SET asked = 0, ready = 1, status = 'running', ready_at = 1")

    def get(self, column: str) -> Any:
        return self.sql(f"SELECT {column} FROM call")[0][0]

    def decide(self, *changes: tuple[int, Any]) -> None:
        """Change parts of the stored decision: type, by, at, channel, assurance, digest, …"""
        decision = json.loads(self.get("decision"))
        for place, value in changes:
            decision[place] = value
        self.set(decision=json.dumps(decision))


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    store = SqliteStore(tmp_path / "sayso.db")
    yield Case(store)
    store.close()


@pytest.fixture(params=["no key", "row key"])
def thief(case: Case, request: pytest.FixtureRequest) -> Thief:
    assert isinstance(case.store, SqliteStore)
    return Thief(case.store, has_row_key=request.param == "row key")


def refused(case: Case, **options: Any) -> None:
    """It is not run, says why, and the audit names it too."""
    for _ in range(2):
        with pytest.raises(Tampered, match=r"was not (run|used)"):
            case.enter(lambda: case.paying(**options)("bo"))
    assert case.ran == []
    assert not verify(case.store).ok


def stored_form(decision: Decided) -> str:
    return json.dumps(list(asdict(decision).values()))


def redigest(case: Case, thief: Thief) -> str:
    """Compute the digest anew, which needs no key."""
    thief.set(args_hash=hashlib.sha256(thief.get("args").encode()).hexdigest())
    with case.store.snapshot() as rows:
        call = rows.call(thief.get("id"))
    assert call is not None
    digest = request_digest(call)
    thief.set(digest=digest)
    return digest


# -- what nobody approved


def test_forged_ready_status_is_refused(case: Case, thief: Thief) -> None:
    case.paused(lambda: case.paying()("bo"))
    thief.make_ready()
    refused(case)


@pytest.mark.parametrize("signature", ["", "0.0", "borrowed"])
def test_forged_decision_is_refused(case: Case, thief: Thief, signature: str) -> None:
    request = case.paused(lambda: case.paying()("bo"))
    if signature == "borrowed":
        other = Case(case.store)
        decided = other.decide(other.paused(lambda: other.paying()("cy"), "x").approve())
        assert decided.decision is not None
        stored = case.store.call(decided.id)
        assert stored is not None
        assert stored.decision is not None
        signature = stored.decision.signature
        thief.sql("DELETE FROM call WHERE run = 'x'")
    thief.make_ready()
    at = case.store.now()
    forged = Decided(
        type="approve",
        by="ana",
        at=at,
        channel="python",
        assurance="code",
        digest=request.digest,
        signature=signature,
    )
    thief.set(decision=stored_form(forged), valid_until=at + 86_400_000_000)
    refused(case)
    if thief.has_row_key:
        with pytest.raises(Tampered, match="the signature of ana is wrong"):
            case.enter(lambda: case.paying()("bo"))


def test_no_is_not_a_yes(case: Case, thief: Thief) -> None:
    case.decide(case.paused(lambda: case.paying()("bo")).reject("never"))
    thief.make_ready()
    thief.decide((0, "approve"))
    thief.set(valid_until=json.loads(thief.get("decision"))[2] + 86_400_000_000)
    refused(case)


@pytest.mark.parametrize("change", [(11, ["eve"]), (11, []), (12, 0), (12, 99)], ids=str)
def test_changed_eligible_people_are_refused(
    case: Case, thief: Thief, change: tuple[int, Any]
) -> None:
    terms = {"reviewers": ["ana", "bea"]}
    for name in ("ana", "bea"):
        add_person(case.store, name, by="ops")
    done = case.decide(case.paused(lambda: case.paying(**terms)("bo")).approve(), by=ANA)
    assert json.loads(thief.get("decision"))[11] == ["ana", "bea"]
    assert done.status == "approved"
    thief.decide(change)
    refused(case, **terms)


# -- what was approved, and is something else now


@pytest.mark.parametrize(
    "columns",
    [
        {"args": '{"amount":3000,"to":"eve"}'},
        {"agent": "other"},
        {"nonce": "0" * 32},
        {"rev": 7},
        {"binds": '{"tenant":"evil"}'},
        {"kind": "question"},
        {"expires_at": 1 << 60},
        {"requester": "somebody else"},
        {"terms": "{}"},
        {"terms": '{"rule":"needs_approval","effect":"idempotent"}'},
        {"terms": '{"rule":"needs_approval","valid_for":1e9}'},
        {"valid_until": 1 << 60},
        {"digest": "0" * 64},
    ],
    ids=lambda columns: " ".join(columns),
)
def test_column_changed_after_approval_is_refused(
    case: Case, thief: Thief, columns: dict[str, Any]
) -> None:
    case.approved(lambda: case.paying()("bo"))
    thief.set(**columns)
    if "binds" in columns or "kind" in columns:
        with pytest.raises((Tampered, Paused)):
            case.enter(lambda: case.paying()("bo"))
        assert case.ran == []
    else:
        refused(case)


@pytest.mark.parametrize("depth", ["hash", "digest", "decision"])
def test_changed_arguments_with_recomputed_digest_are_refused(
    case: Case, thief: Thief, depth: str
) -> None:
    case.approved(lambda: case.paying()("bo"))
    thief.set(args='{"amount":3000,"to":"eve"}')
    digest = redigest(case, thief)
    if depth == "hash":
        thief.set(digest=hashlib.sha256(b"").hexdigest())
    if depth == "decision":
        thief.decide((5, digest))
    refused(case)


@pytest.mark.parametrize(
    "change",
    [
        *((0, "edit"), (0, "allow"), (0, "grant"), (0, "model"), (0, "none")),
        *((1, "bea"), (2, 5), (6, "x"), (6, None)),
    ],
    ids=str,
)
def test_changed_decision_is_refused(case: Case, thief: Thief, change: tuple[int, Any]) -> None:
    case.approved(lambda: case.paying()("bo"))
    thief.decide(change)
    refused(case)


def test_signed_word_of_a_model_needs_a_rule_that_lets_it_allow(case: Case) -> None:
    """Even a process with the key that signs decisions cannot put a model in a person's place."""
    call = case.store.call(case.approved(lambda: case.paying()("bo")).id)
    assert call is not None
    assert call.decision is not None
    recheck.verify(case.store, call)
    by_model = replace(call.decision, type="model", by="model:triage")
    signature = case.store.keys.sign(signed_bytes(by_model))
    with pytest.raises(Tampered, match="its rule lets no model allow it"):
        recheck.verify(case.store, call._replace(decision=replace(by_model, signature=signature)))


def test_approval_copied_from_another_call_is_refused(case: Case, thief: Thief) -> None:
    case.approved(lambda: case.paying()("bo"))
    other = case.approved(lambda: case.paying()("cy"), "other")
    found = thief.sql("SELECT decision FROM call WHERE id = ?", other.id)
    thief.sql("UPDATE call SET decision = ? WHERE run = ?", found[0][0], RUN)
    refused(case)


# -- answers

_VALUE = [field.name for field in fields(Decided)].index("value")


@pytest.mark.parametrize(
    ("trick", "message"),
    [
        ("result", "its result is not what ana answered"),
        ("value", "the signature of ana does not hold"),
        ("another question", "ana answered another request"),
    ],
)
def test_forged_answer_is_not_returned(case: Case, thief: Thief, trick: str, message: str) -> None:
    def ask(run: str = RUN) -> Any:
        return case.enter(lambda: case.gate.ask_sync(Question("Colour?", ["red", "blue"])), run)

    def answer(run: str, value: str) -> str:
        request = case.paused(lambda: case.gate.ask_sync(Question("Colour?", ["red", "blue"])), run)
        return case.decide(request.respond(value)).id

    answered = answer(RUN, "red")
    assert ask() == "red"
    if trick == "another question":
        other = answer("other", "blue")
        columns = "decision, result"
        ((decision, result),) = thief.sql(f"SELECT {columns} FROM call WHERE id = ?", other)
        thief.sql("DELETE FROM call WHERE id = ?", other)
        thief.sql(
            "UPDATE call SET decision = ?, result = ? WHERE id = ?", decision, result, answered
        )
    else:
        thief.set(result='"blue"')
    if trick == "value":
        thief.decide((_VALUE, '"blue"'))
    with pytest.raises(Tampered, match=message if thief.has_row_key else "not hold the row key"):
        ask()


# -- quorum


def voted_once(case: Case) -> Request:
    request = case.paused(lambda: case.paying(quorum=2)("bo"))
    return case.decide(request.approve(), ANA)


def stored_vote(case: Case, request: Request) -> Vote:
    with case.store.snapshot() as rows:
        call = rows.call(request.id)
    assert call is not None
    return call.votes[0]


def as_decision(vote: Vote) -> str:
    """One person's real vote, with its signature, put where the outcome stands."""
    return stored_form(Decided(**asdict(vote)))


@pytest.mark.parametrize("trick", ["plain", "quorum of one", "vote twice", "vote of another"])
def test_duplicated_vote_fills_no_quorum(case: Case, thief: Thief, trick: str) -> None:
    request = voted_once(case)
    thief.make_ready()
    mine = stored_vote(case, request)
    thief.set(decision=as_decision(mine), valid_until=mine.at + 86_400_000_000)
    (vote,) = json.loads(thief.get("votes"))
    if trick == "quorum of one":
        terms = json.loads(thief.get("terms"))
        thief.set(terms=json.dumps({**terms, "quorum": 1}))
    elif trick == "vote twice":
        thief.set(votes=json.dumps([vote, vote]))
    elif trick == "vote of another":
        thief.set(votes=json.dumps([vote, [vote[0], "bea", *vote[2:]]]))
    refused(case, quorum=2)
    if thief.has_row_key and trick in ("plain", "vote twice"):
        with pytest.raises(Tampered, match="1 of 2 people approved it"):
            case.enter(lambda: case.paying(quorum=2)("bo"))


# -- standing yeses


def test_forged_grant_covers_no_call(case: Case, thief: Thief) -> None:
    request = case.paused(lambda: case.paying()("bo"))
    tool = thief.get("tool_digest")
    columns = "id, agent, tool, tool_digest, scope, given_by, created"
    values = ("grt_0", "bot", "pay", tool, "{}", "ana", 1)
    columns, values = f"{columns}, steps, signature, mac", (*values, "[]", "0.0", "1.0.0")
    marks = ", ".join("?" * len(values))
    thief.sql(f"INSERT INTO grants ({columns}) VALUES ({marks})", *values)
    assert case.paused(lambda: case.paying()("cy"), "other").id != request.id
    assert case.ran == []
    assert not verify(case.store).ok


@pytest.mark.parametrize(
    "change", ["ends = NULL", "scope = '{}'", "revoked = NULL", "agent = 'bot'"]
)
def test_widened_grant_covers_no_call(case: Case, thief: Thief, change: str) -> None:
    giver = Case(case.store, agent="other" if change.startswith("agent") else "bot")
    request = giver.paused(lambda: giver.paying()("bo"), "first")
    giver.decide(request.approve(), grant={"scope": "exact", "uses": 1})
    if change.startswith("revoked"):
        (grant,) = case.inbox.grants_sync()
        case.inbox.revoke_sync(grant.id, by="ana")
    thief.sql(f"UPDATE grants SET {change}")
    case.paused(lambda: case.paying()("bo"), "second")
    assert case.ran == []


@pytest.mark.parametrize("thief", ["no key"], indirect=True)
def test_refilled_grant_covers_no_call(case: Case, thief: Thief) -> None:
    """Workers spend uses, so that the row key alone covers how many are left."""
    request = case.paused(lambda: case.paying()("bo"), "first")
    case.decide(request.approve(), grant={"scope": "exact", "uses": 1})
    assert case.enter(lambda: case.paying()("bo"), "second") == "paid bo 3"
    thief.sql("UPDATE grants SET uses_left = 100")
    case.paused(lambda: case.paying()("bo"), "third")
    assert len(case.ran) == 1


# -- while it starts


def test_row_changed_before_the_start_is_refused(
    case: Case, thief: Thief, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.approved(lambda: case.paying()("bo"))
    transact: Callable[..., Any] = case.store.transact

    def slow(*commands: Any) -> Any:
        if isinstance(commands[0], Start):
            thief.set(args='{"amount":3000,"to":"eve"}')
        return transact(*commands)

    monkeypatch.setattr(case.store, "transact", slow)
    refused(case)


def test_audit_reports_a_reset_status(case: Case, thief: Thief) -> None:
    case.approved(lambda: case.paying()("bo"))
    assert case.enter(lambda: case.paying()("bo")) == "paid bo 3"
    thief.make_ready()
    report = verify(case.store)
    assert any("status" in problem.what for problem in report.problems)
