"""Rotating keys while several machines run: an unknown key is not a forgery, and nothing is lost.

Each machine is a store of its own on the same rows, with a keyring of its own.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgres_server import shared_url, why_not
from waiting import until_async

import sayso
from sayso import Gate, Inbox, Paused, UnknownKey
from sayso.audit import verify
from sayso.errors import Tampered
from sayso.inbox import create_token
from sayso.inbox.key_rotation import distrust, sign_again
from sayso.keys import Keyring, new_key, public_key, row_key
from sayso.stores import open_store
from sayso.stores.base import Store
from sayso.stores.sql import rekeying
from sayso.testing import ScriptedModel, call, say
from sayso.types import Reviewer
from sayso.worker import Worker

K1, K2, K3 = new_key(), new_key(), new_key()
PAIR = new_key("ed25519")
_numbers = count(1)

Opener = Callable[..., Store]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path, worker_id: str) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/sayso.db"
        return
    if why_not():
        pytest.skip(why_not())
    schema = f"keys_{worker_id}_{os.getpid()}_{next(_numbers)}"
    yield f"{shared_url()}{'&' if '?' in shared_url() else '?'}schema={schema}"
    with psycopg.connect(shared_url(), autocommit=True) as connection:
        connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')


@pytest.fixture
def machine(url: str) -> Iterator[Opener]:
    """Open the store with this keyring; the fixture closes it."""
    opened: list[Store] = []

    def opener(keys: str, rows: str | None = None) -> Store:
        opened.append(open_store(url, keys=Keyring.parse(keys, rows=rows)))
        return opened[-1]

    yield opener
    for store in opened:
        store.close()


def ids(*keys: str) -> list[str]:
    return [Keyring.parse(key).primary_id for key in keys]


def pay(gate: Gate, run: str, **options: Any) -> str:
    """Call the guarded function in a run. Return whether it paused or paid."""

    @gate.guard(needs_approval=True, **options)
    def transfer(euros: int) -> str:
        """Move money."""
        return f"paid {euros}"

    with gate.run(run):
        return transfer(10)


def ask(store: Store, run: str, **options: Any) -> str:
    with pytest.raises(Paused) as paused:
        pay(Gate(store, wait=0), run, **options)
    return paused.value.requests[0].id


def approve(store: Store, request: str, **options: Any) -> None:
    options = options or {"by": "ana"}
    inbox = Inbox(store)
    inbox.decide_sync(request, inbox.get_sync(request).approve(), **options)


def cycle(asks: Store, decides: Store, runs: Store, run: str) -> None:
    """Ask on one machine, decide on another, run on a third."""
    approve(decides, ask(asks, run))
    assert pay(Gate(runs, wait=0), run) == "paid 10"


# -- the order that works


@pytest.mark.long
@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_rotation_order_keeps_machines_working(machine: Opener, order: tuple[int, ...]) -> None:
    """1. K2 behind K1 everywhere; 2. K2 to the front everywhere; 3. K1 dropped: machine by machine,
    in any order, with every machine at work all the time."""
    machines = [machine(K1) for _ in range(3)]
    names = (f"run {n}" for n in count())

    def everywhere() -> None:
        for triple in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
            cycle(*[machines[n] for n in triple], next(names))

    everywhere()
    for ring in (f"{K1},{K2}", f"{K2},{K1}", K2):
        for n in order:
            machines[n].close()
            machines[n] = machine(ring)
            everywhere()
    keeper = machine(f"{K2},{K1}")  # what K1 signed is verified where it is kept
    assert verify(keeper).ok


def test_overlapping_rotations_verify(machine: Opener) -> None:
    for ring in (
        K1,
        f"{K1},{K2}",
        f"{K2},{K1}",
        f"{K2},{K3},{K1}",
        f"{K3},{K2},{K1}",
        f"{K3},{K2}",
    ):
        store = machine(ring)
        cycle(store, store, store, f"run {ring}")
        store.seal()
    assert verify(machine(f"{K3},{K2},{K1}")).ok


def test_stranger_does_not_open_the_store(machine: Opener) -> None:
    store = machine(f"{K2},{K1}")
    ask(store, "r")
    store.seal()
    machine(K2)
    with pytest.raises(sayso.StoreError, match="which is missing"):
        machine(K3)


# -- another order: nothing is lost, and it says what to do


def refused(body: Callable[[], object]) -> None:
    with pytest.raises(UnknownKey, match=r"Add it to SAYSO_KEY"):
        body()


def test_decision_of_an_unknown_key_waits_for_it(machine: Opener) -> None:
    old, new = machine(K1), machine(f"{K2},{K1}")
    request = ask(old, "r")
    approve(new, request)
    before = old.chain("r")
    for _ in range(2):
        refused(lambda: pay(Gate(old, wait=0), "r"))
    assert old.chain("r") == before, "nothing was changed"
    late = machine(f"{K1},{K2}")
    assert pay(Gate(late, wait=0), "r") == "paid 10"
    assert verify(late).ok


def test_wrong_signature_of_known_key_is_tampering(machine: Opener, url: str) -> None:
    store = machine(f"{K1},{K2}")
    request = ask(store, "r")
    approve(store, request)
    first, second = ids(K1, K2)
    change(url, f"UPDATE call SET decision = replace(decision, '{first}', '{second}')")
    with pytest.raises(Tampered):
        pay(Gate(store, wait=0), "r")


def test_vote_of_an_unknown_key_waits_for_it(machine: Opener) -> None:
    old, new = machine(K1), machine(f"{K2},{K1}")
    tokens = [create_token(old, name, by="test")[0] for name in ("ana", "bob")]
    request = ask(old, "r", quorum=2)
    approve(old, request, token=tokens[0])
    approve(new, request, token=tokens[1])
    refused(lambda: pay(Gate(old, wait=0), "r", quorum=2))
    assert pay(Gate(machine(f"{K1},{K2}"), wait=0), "r", quorum=2) == "paid 10"


def test_token_of_an_unknown_key_waits_for_it(machine: Opener) -> None:
    old, new = machine(K1), machine(f"{K2},{K1}")
    token, _ = create_token(new, "ana", by="test")
    request = ask(old, "r")
    refused(lambda: approve(old, request, token=token))
    late = machine(f"{K1},{K2}")
    approve(late, request, token=token)
    assert pay(Gate(late, wait=0), "r") == "paid 10"


def test_grant_of_an_unknown_key_waits_for_it(machine: Opener) -> None:
    old, new = machine(K1), machine(f"{K2},{K1}")
    approve(new, ask(old, "r"), by="ana", grant={"scope": "any", "uses": 5})
    refused(lambda: pay(Gate(old, wait=0), "another"))
    assert pay(Gate(machine(f"{K1},{K2}"), wait=0), "another") == "paid 10"


def clerk(store: Store) -> sayso.Agent:
    @sayso.tool(needs_approval=True)
    def refund(order: str) -> str:
        return f"refunded {order}"

    steps = [call("refund", {"order": "A-1"}), say("Done.")]
    return sayso.Agent(
        "clerk", model=ScriptedModel(steps, by_turn=True), tools=[refund], store=store
    )


def test_exported_state_waits_for_its_key(machine: Opener) -> None:
    old, new = machine(K1), machine(f"{K2},{K1}")
    text = clerk(new).run_sync("go", thread="t").state.to_json()
    refused(lambda: clerk(old).resume_sync(sayso.RunState.from_json(text)))
    state = sayso.RunState.from_json(text)
    assert clerk(machine(f"{K1},{K2}")).resume_sync(state).status == "paused"


def test_audit_names_the_missing_key(machine: Opener) -> None:
    old, new = machine(K1), machine(f"{K2},{K1}")
    cycle(new, new, new, "r")
    new.seal()
    (key,) = ids(K2)
    report = verify(old)
    assert not report.ok
    assert all(f"unknown key {key}" in problem.what for problem in report.problems), report.problems


def test_worker_waits_for_new_public_key(machine: Opener) -> None:
    second = new_key("ed25519")
    rows = row_key(PAIR)
    old = machine(public_key(PAIR), rows)
    server = machine(f"{second},{PAIR}", rows)
    request = ask(old, "r")
    approve(server, request)
    refused(lambda: pay(Gate(old, wait=0), "r"))
    late = machine(f"{public_key(PAIR)},{public_key(second)}", rows)
    assert pay(Gate(late, wait=0), "r") == "paid 10"
    assert verify(server).ok


# -- workers and doctor


@pytest.mark.long
async def test_worker_without_key_retries_and_records(
    machine: Opener, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sayso.worker.worker.Backoff.FIRST", 0.01)
    rows = row_key()  # all machines share it, so that only the decision is of an unknown key
    monkeypatch.setenv("SAYSO_ROW_KEY", rows)
    old, new = machine(K1, rows), machine(f"{K2},{K1}", rows)
    result = await clerk(old).run("go", thread="t")
    (request,) = result.interruptions
    await Inbox(new).decide(request.id, request.approve(), by="ana")
    worker = Worker([clerk(old)], old)
    working = asyncio.create_task(worker.run())
    await until_async(lambda: "broke" in [event.type for event in old.chain("t")])
    worker.stop()
    await working
    (key,) = ids(K2)
    assert f"UnknownKey: unknown key {key}" in caplog.text
    assert "tampered" not in caplog.text.lower()
    seen = await Inbox(new).get(request.id)
    assert (seen.status, seen.execution.status) == ("approved", "ready")
    assert verify(new).ok

    broken = doctored(url, f"{K1}", monkeypatch)["broken"]
    assert broken["state"] == "wrong"
    assert "clerk" in broken["text"]
    assert f"unknown key {key}" in broken["text"]

    late = machine(f"{K1},{K2}", rows)
    worker = Worker([clerk(late)], late)
    working = asyncio.create_task(worker.run())
    await until_async(lambda: (run := late.run(result.run)) and run.status == "done")
    worker.stop()
    await working
    assert doctored(url, f"{K1},{K2}", monkeypatch)["broken"]["state"] == "ok"


async def test_worker_skips_row_of_unknown_key(
    machine: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = machine(K1), machine(f"{K2},{K1}")
    result = await clerk(old).run("go", thread="t")
    (request,) = result.interruptions
    await Inbox(new).decide(request.id, request.approve(), by="ana")
    assert old.ready(["clerk"]) == []
    (key,) = ids(K2)
    assert f"run {result.run} was not used: unknown key {key}" in caplog.text
    refused(lambda: old.run(result.run))
    assert [run.id for run in machine(f"{K1},{K2}").ready(["clerk"])] == [result.run]


def test_doctor_lists_keys_of_open_rows(
    machine: Opener, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = machine(K1), machine(f"{K2},{K1}")
    first, second = ids(K1, K2)
    approve(old, ask(old, "r1"))
    approve(new, ask(new, "r2"))
    new.seal()
    both = doctored(url, f"{K2},{K1}", monkeypatch)["keys"]
    assert both["state"] == "ok"
    assert first in both["text"]
    assert second in both["text"]
    lacking = doctored(url, K1, monkeypatch)["keys"]
    assert lacking["state"] == "wrong"
    assert second in lacking["text"]
    assert "SAYSO_KEY" in lacking["text"]
    for run in ("r1", "r2"):
        assert pay(Gate(new, wait=0), run) == "paid 10"
    over = doctored(url, f"{K2},{K1}", monkeypatch)["keys"]
    assert over["state"] == "ok"
    assert f"you can drop {first}" in over["text"]


def doctored(url: str, keys: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, str]]:
    import json

    from typer.testing import CliRunner

    from sayso.cli.main import app

    monkeypatch.setenv("SAYSO_KEY", keys)
    done = CliRunner().invoke(app, ["doctor", "--json", "--store", url])
    return {check["name"]: check for check in json.loads(done.stdout)["checks"]}


def change(url: str, statement: str) -> None:
    """Change the database directly."""
    if url.startswith("sqlite"):
        import sqlite3
        from contextlib import closing

        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file, file:
            file.execute(statement)
        return
    schema = url.partition("schema=")[2]
    with psycopg.connect(shared_url(), autocommit=True) as connection:
        connection.execute(f'SET search_path TO "{schema}"')
        connection.execute(statement)  # type: ignore[arg-type]


# -- rows that are signed again

OPS = Reviewer("ops")


def fill(store: Store) -> dict[str, str]:
    """Store something of every kind under the store's key. Return tokens and requests."""
    made = {name: create_token(store, name, by="test")[0] for name in ("ana", "bob")}
    assert clerk(store).run_sync("go", thread="chat").status == "paused"
    cycle(store, store, store, "done")
    made["ready"] = ask(store, "ready")
    approve(store, made["ready"], token=made["ana"])
    made["voted"] = ask(store, "voted", quorum=2)
    approve(store, made["voted"], token=made["ana"])
    made["asked"] = ask(store, "asked")
    inbox = Inbox(store)
    made["refused"] = ask(store, "refused")
    inbox.decide_sync(made["refused"], inbox.get_sync(made["refused"]).reject("no"), by="ana")
    grantable = ask(store, "grant")
    approve(store, grantable, by="ana", grant={"scope": "any", "uses": 5})
    return made


def check_everything(store: Store, made: dict[str, str]) -> None:
    """Use all of it with the keys of this store."""
    assert pay(Gate(store, wait=0), "done") == "paid 10", "the stored result"
    assert pay(Gate(store, wait=0), "ready") == "paid 10"
    approve(store, made["voted"], token=made["bob"])
    assert pay(Gate(store, wait=0), "voted", quorum=2) == "paid 10"
    approve(store, made["asked"], by="ana")
    assert pay(Gate(store, wait=0), "another") == "paid 10", "by the grant"
    assert Inbox(store).get_sync(made["refused"]).status == "rejected"
    inbox = Inbox(store)
    (request,) = [r for r in inbox.pending_sync() if r.thread == "chat"]
    inbox.decide_sync(request.id, request.approve(), by="ana")
    assert clerk(store).resume_sync("chat").output == "Done."


@pytest.mark.parametrize("batch", [2, 50])
def test_rotation_finishes(machine: Opener, monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    monkeypatch.setattr(rekeying, "REKEY_ROWS", batch)
    made = fill(machine(K1))
    store = machine(f"{K2},{K1}")
    rotated = sign_again(store, by=OPS)
    assert rotated.key == Keyring.parse(K2).primary_id
    assert rotated.left == {}
    nouns = {"people", "tokens", "grants", "refusals", "requests", "runs", "threads", "messages"}
    assert nouns <= rotated.changed.keys()
    assert verify(store).ok
    assert sign_again(store, by=OPS).changed == {}
    check_everything(machine(K2), made)
    assert verify(machine(f"{K2},{K1}")).ok


def test_rotation_finishes_with_ed25519(machine: Opener) -> None:
    second = new_key("ed25519")
    made = fill(machine(PAIR))
    assert sign_again(machine(f"{second},{PAIR}"), by=OPS).left == {}
    check_everything(machine(second), made)
    assert verify(machine(f"{second},{PAIR}")).ok


def test_forged_rows_are_not_signed(machine: Opener, url: str) -> None:
    made = fill(machine(K1))
    change(url, "UPDATE person SET role = 'admin' WHERE name = 'ana'")
    change(url, f"UPDATE call SET args = '{{}}' WHERE id = '{made['asked']}'")
    store = machine(f"{K2},{K1}")
    rotated = sign_again(store, by=OPS)
    assert rotated.left == {"people": {"": 1}, "requests": {"": 1}}
    with pytest.raises((Tampered, UnknownKey)):
        approve(machine(K2), made["voted"], token=made["ana"])
    assert not verify(store).ok


def test_rotation_runs_beside_writers(machine: Opener) -> None:
    fill(machine(K1))
    store, other = machine(f"{K2},{K1}"), machine(f"{K2},{K1}")
    with ThreadPoolExecutor() as pool:
        work = pool.submit(lambda: [ask(other, f"run {n}", quorum=2) for n in range(10)])
        for _ in range(3):
            sign_again(store, by=OPS)
        work.result()
    assert sign_again(store, by=OPS).left == {}
    assert verify(machine(f"{K2},{K1}")).ok


def test_distrusted_key_counts_until_it_leaked(machine: Opener) -> None:
    old = machine(K1)
    made = fill(old)
    leaked_at = old.now()
    thief, _ = create_token(old, "eve", by="test")
    late = ask(old, "late", reviewers=["eve"])
    approve(old, late, token=thief)
    refund = clerk(old).run_sync("go", thread="late chat").interruptions[0].id
    approve(old, refund, by="ana", grant={"scope": "any", "uses": 9})
    store = machine(f"{K2},{K1}")
    (first,) = ids(K1)
    with pytest.raises(sayso.errors.NotAllowed, match="eve changed since then"):
        distrust(store, first, leaked_at, by=OPS)
    undone = distrust(store, first, leaked_at, by=OPS, remove=["eve"])
    assert undone.tokens == []  # they ended with the person
    assert len(undone.grants) == 1
    assert [person.name for person in undone.people] == ["eve"]
    assert {call.id for call in undone.calls} == {late, refund}
    survivor = machine(K2)
    with pytest.raises(sayso.errors.NotAllowed):
        approve(survivor, late, token=thief)
    check_everything(survivor, made)
    report = verify(machine(f"{K2},{K1}"))
    words = f"key {first}, which is distrusted since"
    assert len([problem for problem in report.problems if words in problem.what]) == 2


def test_distrusted_key_ends_later_tokens(machine: Opener) -> None:
    old = machine(K1)
    made = fill(old)
    leaked_at = old.now()
    for name in ("ana", "eve"):
        create_token(old, name, by="test")
    undone = distrust(machine(f"{K2},{K1}"), ids(K1)[0], leaked_at, by=OPS, keep=["eve"])
    assert sorted(token.person for token in undone.tokens) == ["ana", "eve"]
    assert undone.people == []
    check_everything(machine(K2), made)


def test_key_in_use_cannot_be_distrusted(machine: Opener) -> None:
    store = machine(K1)
    (first,) = ids(K1)
    with pytest.raises(sayso.errors.NotAllowed, match="still signs here"):
        distrust(store, first, 0, by=OPS)
    with pytest.raises(sayso.errors.NotAllowed, match="not among the keys"):
        distrust(store, "00000000", 0, by=OPS)
