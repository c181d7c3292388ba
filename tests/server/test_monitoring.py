"""``/healthz`` and ``/metrics``, also while the database is away: soon, and right again later."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from postgres_server import PostgresServer, why_not
from served import Serve, opened

from sayso.keys import Keyring, new_key
from sayso.server import remote_agents
from sayso.server.monitoring import WAIT
from sayso.stores.postgres import PostgresStore


@pytest.fixture
def database() -> Iterator[PostgresServer]:
    """A server of the test's own; its socket needs a short path."""
    if why_not():
        pytest.skip(why_not())
    folder = Path(tempfile.mkdtemp(prefix="sayso-health-"))
    made = PostgresServer(folder, fsync=False)
    made.start()
    yield made
    made.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.long
def test_health_reports_lost_database_quickly(database: PostgresServer, serve: Serve) -> None:
    store = PostgresStore(database.url, keys=Keyring.parse(new_key()))
    server = serve(store=store, auth=False, workers=0)
    client = server.client()
    assert client.get("/healthz").json()["status"] == "ok"
    head = client.head("/healthz")
    assert (head.status_code, head.content) == (200, b"")
    assert 'sayso_requests_waiting{status="asked"} 0.0' in client.get("/metrics").text
    database.kill()
    # Whoever asks often keeps nobody waiting, and takes no thread each time.
    for path in ("/healthz", "/readyz") * 3:
        began = time.monotonic()
        away = client.get(path)
        assert time.monotonic() - began < WAIT + 3  # with room for a slow machine
        assert (away.status_code, away.json()["status"]) == (503, "unwell")
    assert client.get("/livez").status_code == 204
    looking = [t for t in threading.enumerate() if t.name == "sayso-health"]
    assert len(looking) <= 2, "one for each of the two"
    unknown = client.get("/metrics")
    assert unknown.status_code == 200
    assert "sayso_requests_waiting{" not in unknown.text
    database.start()
    ends = time.monotonic() + 60
    while (back := client.get("/readyz")).status_code != 200:
        assert time.monotonic() < ends, back.text
    assert back.json()["store"] == "ok"


def test_store_that_cannot_be_read_is_unwell(serve: Serve) -> None:
    server = serve(auth=False, workers=0)
    client = server.client()
    assert client.get("/readyz").status_code == 200
    with closing(sqlite3.connect(server.store.path, isolation_level=None)) as file:  # type: ignore[attr-defined]
        file.execute("DROP TABLE refusal")
    assert client.get("/healthz").json()["status"] == "ok"
    unready = client.get("/readyz")
    assert (unready.status_code, unready.json()["status"]) == (503, "unwell")
    server.store.close()
    for path in ("/healthz", "/readyz"):
        closed = client.get(path)
        assert (closed.status_code, closed.json()["status"]) == (503, "unwell")


def test_metrics_count_waiting_requests(serve: Serve) -> None:
    client = serve(auth=False).client()
    made = [opened(client, f"k{n}") for n in range(4)]
    for request in made[:2]:
        decision = {"type": "approve", "seen_digest": request["digest"]}
        client.post(f"/api/requests/{request['id']}/decision", json=decision)
    client.post(f"/api/requests/{made[0]['id']}/claim", json={"lease": 1})
    wanted = {'status="asked"} 2.0', 'status="in_doubt"} 1.0'}
    ends = time.monotonic() + 30
    found: set[str] = set()
    while found != wanted and time.monotonic() < ends:
        page = client.get("/metrics").text.splitlines()
        lines = [line for line in page if line.startswith("sayso_requests_waiting{")]
        found = {line.partition("{")[2] for line in lines}
    assert found == wanted


@pytest.mark.long
def test_request_cut_off_by_shutdown_gets_an_error(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()

    async def for_ever(*_: object) -> None:
        begun.set()
        await asyncio.sleep(600)

    monkeypatch.setattr(remote_agents, "open_call", for_ever)
    server = serve(auth=False)
    with ThreadPoolExecutor(1) as pool, httpx.Client(timeout=30) as client:
        asked = pool.submit(client.post, f"{server.url}/api/requests", json={"tool": "refund"})
        assert begun.wait(30)
        server.stop()
        answer = asked.result(30)
    assert (answer.status_code, answer.json()["error"]) == (503, "Stopping")
    assert "send the request again" in answer.json()["message"]
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_mac_that_is_no_text_names_no_key(serve: Serve, tmp_path: Path) -> None:
    client = serve(auth=False).client()
    opened(client)
    with closing(sqlite3.connect(tmp_path / "sayso.db")) as database, database:
        database.execute("UPDATE thread SET mac = ?", (b"\xff\xfe",))
    assert client.get("/readyz").status_code != 500
