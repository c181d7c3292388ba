"""What reads every call of a store takes seconds with 100,000 calls."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator

import psycopg
import pytest
from cases import Case, person
from postgres_server import shared_url, why_not

from sayso import Policy, Rule
from sayso.engine.commands import NewCall, Propose
from sayso.inbox.replay import replay_policy
from sayso.keys import Keyring, new_key
from sayso.stores.base import Store
from sayso.stores.postgres import PostgresStore
from sayso.stores.sqlite import SqliteStore
from sayso.types import Risk, Terms, Verdict

pytestmark = pytest.mark.long

ANA = person("ana", "finance", assurance="session")
ALLOW_SMALL = Policy([Rule("pay", where="amount < 100", verdict="allow", name="small")])


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def case(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Case]:
    """Yield a store with 20 approved calls, and 100,000 later ones that wait.

    Both tests only read it, in a small part of the time that making it takes.
    """
    if request.param == "postgres" and why_not():
        pytest.skip(why_not())
    keys = Keyring.parse(new_key())
    schema = f"many_{secrets.token_hex(6)}"
    store: Store
    if request.param == "sqlite":
        store = SqliteStore(tmp_path_factory.mktemp("many") / "sayso.db", keys=keys)
    else:
        store = PostgresStore(shared_url(), schema=schema, keys=keys)
    terms = Terms(
        verdict=Verdict.ASK, policy="p", rule="rule 1", risk=Risk("low"), risk_declared=True
    )
    case = Case(store, policy=Policy([Rule("*", risk="low")]))
    pay = case.gate.guard(lambda to: "ran", name="pay")  # type: ignore[misc]
    for number in range(20):
        case.decide(case.paused(lambda: pay("bo"), f"a{number}").approve())
    for run in range(500):
        calls = tuple(
            NewCall(
                id="req_" + os.urandom(8).hex(),
                key=str(n),
                kind="approval",
                tool="pay",
                tool_digest="",
                args=f'{{"amount":{n},"to":"bo"}}',
                args_hash=f"{run}/{n}",
                nonce="n",
                terms=terms,
            )
            for n in range(200)
        )
        store.transact(Propose(thread=f"t{run}", run=f"r{run}", agent="bot", calls=calls))
    yield case
    store.close()
    if request.param == "postgres":
        with psycopg.connect(shared_url(), autocommit=True) as connection:
            connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE'.encode())


def test_replay_of_100_000_calls_takes_seconds(case: Case) -> None:
    started = time.monotonic()
    replay = replay_policy(case.store, ALLOW_SMALL, 0)
    took = time.monotonic() - started
    assert dict(replay.changes) == {("asked", "allowed", "pending"): 50_000}
    print(f"{took:.1f} s")
    assert took < 60


def test_suggestions_over_100_000_calls_take_a_second(case: Case) -> None:
    started = time.monotonic()
    suggestions = case.inbox.suggestions_sync(by="ana")
    took = time.monotonic() - started
    print(f"{took:.2f} s")
    assert len(suggestions) == 1
    assert took < 20
