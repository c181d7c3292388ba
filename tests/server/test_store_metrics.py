"""The metrics of a whole store: what waits, for how long, and what happened."""

from __future__ import annotations

import re
from contextlib import closing, suppress
from threading import Barrier, Thread

import pytest
from postgres_server import shared_url, why_not
from served import Serve

import sayso
from sayso.channels.kit.planner import Target, new_delivery
from sayso.keys import Keyring, new_key
from sayso.server.monitoring import Metrics, StoreMetrics
from sayso.stores import open_store
from sayso.stores.memory import MemoryStore
from sayso.stores.postgres import PostgresStore
from sayso.testing import FakeClock, ScriptedModel, call, say
from sayso.types import SECOND


class Scrape:
    """What one scrape of a store's metrics says."""

    def __init__(self, store: sayso.stores.base.Store) -> None:
        self._metrics = Metrics()
        self._store_metrics = StoreMetrics(store, self._metrics)

    def __call__(self) -> dict[str, float]:
        self._store_metrics.refresh_sync()
        page = self._metrics.render().decode()
        return {
            name: float(value)
            for name, value in re.findall(r"^(sayso_\S+) (\S+)$", page, re.MULTILINE)
        }


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> MemoryStore:
    return MemoryStore(clock=clock)


def test_age_of_oldest_request_is_a_gauge(store: MemoryStore, clock: FakeClock) -> None:
    scrape = Scrape(store)
    assert scrape()["sayso_requests_oldest_seconds"] == 0
    _ask(store, "first")
    clock.advance(100)
    _ask(store, "second")
    clock.advance(20)
    assert scrape()["sayso_requests_oldest_seconds"] == 120
    assert scrape()['sayso_requests_waiting{status="asked"}'] == 2


def test_time_to_decision_is_observed(store: MemoryStore, clock: FakeClock) -> None:
    scrape = Scrape(store)
    _ask(store, "first")
    clock.advance(90)
    _decide(store)
    page = scrape()
    assert page["sayso_decision_seconds_sum"] == 90
    assert page['sayso_events_total{type="decided"}'] == 1
    assert scrape()["sayso_decision_seconds_count"] == 1  # once, however often it is scraped


def test_decision_of_a_model_takes_people_no_time(store: MemoryStore) -> None:
    scrape = Scrape(store)
    rule = sayso.Rule("pay", risk="low", reviewer="model:yes", reviewer_allows=True)
    models = {"yes": lambda request: "allow"}
    gate = sayso.Gate(store, policy=sayso.Policy([rule]), models=models, wait=0)
    gate.guard(lambda: "paid", name="pay")()
    page = scrape()
    assert page['sayso_events_total{type="decided"}'] == 1
    assert page["sayso_decision_seconds_count"] == 0


def test_messages_are_due_until_they_are_sent(each_url: str) -> None:
    with closing(open_store(each_url)) as store:
        now = store.now()
        due, later = (
            new_delivery("mail", Target("a@example.com"), f"req_{number}", "d", "asked", at)
            for number, at in enumerate([now - 75 * SECOND, now + 3600 * SECOND])
        )
        seen = due._replace(id="seen", state="seen")
        store.put_deliveries([due, later._replace(error="OSError"), seen])
        page = Scrape(store)()
    assert page['sayso_deliveries_due{channel="mail"}'] == 1
    assert 75 <= page['sayso_deliveries_due_oldest_seconds{channel="mail"}'] < 375
    assert page['sayso_deliveries_failing{channel="mail"}'] == 1


def test_expired_request_is_overdue_until_it_is_closed(
    store: MemoryStore, clock: FakeClock
) -> None:
    scrape = Scrape(store)
    _ask(store, "first", expires_in=60)
    clock.advance(75)
    page = scrape()
    assert page["sayso_requests_overdue"] == 1
    assert page["sayso_requests_overdue_oldest_seconds"] == 15
    sayso.Inbox(store).pending_sync()  # closes what is overdue
    page = scrape()
    assert page["sayso_requests_overdue"] == 0
    assert page['sayso_events_total{type="expired"}'] == 1


def test_run_without_worker_is_due(store: MemoryStore, clock: FakeClock) -> None:
    @sayso.tool(needs_approval=True)
    def pay(euros: int) -> str:
        """Pay."""
        return "paid"

    model = ScriptedModel([call("pay", {"euros": 5}), say("Done.")])
    agent = sayso.Agent("clerk", model=model, tools=[pay], store=store)
    assert agent.run_sync("Pay").interruptions
    scrape = Scrape(store)
    assert scrape()["sayso_runs_due"] == 0
    _decide(store)
    clock.advance(300)
    page = scrape()
    assert page["sayso_runs_due"] == 1
    assert page["sayso_runs_due_oldest_seconds"] == 300


def test_unsealed_events_have_an_age(store: MemoryStore, clock: FakeClock) -> None:
    scrape = Scrape(store)
    _ask(store, "first")
    clock.advance(40)
    page = scrape()
    assert page["sayso_unsealed_events"] == 1
    assert page["sayso_seal_lag_seconds"] == 40
    store.seal()
    assert scrape()["sayso_seal_lag_seconds"] == 0


def test_closed_store_is_down(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    scrape = Scrape(store)
    assert scrape()["sayso_store_up"] == 1
    assert scrape()["sayso_store_restored"] == 0

    def refuse() -> None:
        raise sayso.errors.StoreError("gone")

    monkeypatch.setattr(store, "vitals", refuse)
    page = scrape()
    assert page["sayso_store_up"] == 0
    assert "sayso_requests_oldest_seconds" not in page


def test_wait_for_a_connection_is_counted() -> None:
    if why_not():
        pytest.skip(why_not())
    keys = Keyring.parse(new_key())
    store = PostgresStore(shared_url(), schema="pool_wait", keys=keys, size=1)
    scrape = Scrape(store)
    assert scrape()["sayso_pool_waits_total"] == 0
    ready = Barrier(9)

    def read() -> None:
        ready.wait()
        for _ in range(20):
            store.waiting()

    readers = [Thread(target=read) for _ in range(8)]
    for reader in readers:
        reader.start()
    ready.wait()
    for reader in readers:
        reader.join()
    page = scrape()
    assert page["sayso_pool_size"] == 1
    assert page["sayso_pool_waits_total"] > 0
    assert page["sayso_pool_wait_seconds_total"] > 0
    assert page["sayso_pool_waiting"] == 0
    store.close()


def test_server_says_when_a_hook_last_spoke(serve: Serve) -> None:
    server = serve()
    client = server.client(server.token("coder", "agent"))
    body = {"tool": "Bash", "caller": "use:1", "run": "session-1", "args": {"command": "make"}}
    assert client.post("/api/requests", json=body).status_code in (200, 201)
    page = client.get("/metrics").text
    assert 'sayso_hook_last_seen_timestamp_seconds{agent="coder"}' in page


def _ask(store: MemoryStore, run: str, **terms: object) -> None:
    gate = sayso.Gate(store, agent="clerk", wait=0)

    @gate.guard(needs_approval=True, **terms)
    def refund(order: str) -> str:
        """Refund."""
        return order

    with suppress(sayso.Paused), gate.run(run):
        refund(run)


def _decide(store: MemoryStore) -> None:
    inbox = sayso.Inbox(store)
    (request,) = inbox.pending_sync()
    inbox.decide_sync(request.id, request.approve(), by="ana")
