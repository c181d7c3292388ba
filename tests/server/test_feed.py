"""The live feed: changes, for those who may see them, from any position."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue
from typing import Any

import httpx
from served import FINANCE_ONLY, FOR_FINANCE, Serve, Served, opened

import sayso
from sayso.inbox import revoke_token


class Reader:
    """One reader of the feed, in a thread."""

    def __init__(self, lines: Iterator[str]) -> None:
        self.events: Queue[dict[str, Any]] = Queue()
        self.ended = threading.Event()
        self._lines = lines
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        event: dict[str, str] = {}
        try:
            for line in self._lines:
                if line:
                    name, _, value = line.partition(": ")
                    event[name] = value
                elif "data" in event:
                    self.events.put({**event, **json.loads(event["data"])})
                    event = {}
        except httpx.HTTPError:
            pass
        self.ended.set()

    def next(self) -> dict[str, Any]:
        return self.events.get(timeout=20)


@contextmanager
def reading(client: httpx.Client, **headers: str) -> Iterator[Reader]:
    with client.stream("GET", "/api/events", headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = response.iter_lines()
        assert next(lines).startswith(": ")
        yield Reader(lines)


def test_feed_sends_events(open_server: Served) -> None:
    client = open_server.client()
    with reading(open_server.client()) as reader:
        made = opened(client)
        event = reader.next()
        assert (event["event"], event["type"], event["request"]) == ("change", "asked", made["id"])
        client.post(f"/api/requests/{made['id']}/decision", json={"type": "reject"})
        assert reader.next()["type"] == "decided"


def test_feed_replays_missed_events_in_order(open_server: Served) -> None:
    client = open_server.client()
    with reading(open_server.client()) as reader:
        opened(client, key="0")
        last = reader.next()["id"]
    made = [opened(client, key=f"{n}")["id"] for n in range(1, 6)]
    with reading(open_server.client(), **{"Last-Event-ID": last}) as reader:
        assert [reader.next()["request"] for _ in made] == made
        more = opened(client, key="more")["id"]
        assert reader.next()["request"] == more


def test_feed_hides_events_of_hidden_requests(serve: Serve) -> None:
    server = serve(policy=FOR_FINANCE)
    agent = server.client(server.token("bot", "agent"))
    with (
        reading(server.client(server.token("ana", "reviewer", "finance"))) as ana,
        reading(server.client(server.token("ben"))) as ben,
    ):
        hers = opened(agent, key="1", args=FINANCE_ONLY)
        both = opened(agent, key="2")
        assert [ana.next()["request"] for _ in range(2)] == [hers["id"], both["id"]]
        assert ben.next()["request"] == both["id"]


def test_feed_follows_reviewers_changed_by_an_edit(serve: Serve) -> None:
    large = sayso.Rule("refund", where="amount > 100", reviewers=["group:finance"])
    server = serve(policy=sayso.Policy([large]))
    ana = server.client(server.token("ana"))
    with reading(server.client(server.token("ben", "reviewer", "finance"))) as ben:
        made = opened(server.client(server.token("bot", "agent")))
        assert ben.next()["type"] == "asked"
        edit = {"type": "edit", "args": {"amount": 500}, "seen_digest": made["digest"]}
        with reading(server.client(server.token("cid"))) as cid:
            edited = ana.post(f"/api/requests/{made['id']}/decision", json=edit)
            assert edited.json()["reviewers"] == ["group:finance"]
            assert ben.next()["type"] == "revised"
            opened(server.client(server.token("bot", "agent")), key="k2")
            assert cid.next()["type"] == "asked"  # and nothing of what is not for them any more


def test_stream_ends_when_access_is_revoked(serve: Serve) -> None:
    server = serve()
    token = server.token("ana")
    (principal,) = [p for p in server.store.credentials() if p.person == "ana"]
    with reading(server.client(token)) as reader:
        revoke_token(server.store, principal.id, by="test")
        assert reader.next()["event"] == "end"
        assert reader.ended.wait(20)


def test_invalid_feed_position_is_refused(open_server: Served) -> None:
    client = open_server.client()
    opened(client)
    for place in ("nonsense", "-1", "9" * 40):
        answer = client.get("/api/events", params={"after": place}, headers={"Connection": "close"})
        assert answer.status_code == 422, place


def test_many_readers_get_everything(open_server: Served) -> None:
    """Each of fifty readers sees each of twenty events, one of them reading late."""
    client = open_server.client()
    with httpx.Client(base_url=open_server.url, timeout=60, verify=False) as many:
        opening = [reading(many) for _ in range(50)]
        readers = [manager.__enter__() for manager in opening]
        made = [opened(client, key=f"{n}")["id"] for n in range(20)]
        for reader in readers:
            assert [reader.next()["request"] for _ in made] == made
        assert open_server.app.state.sayso.feed.readers == 50
        for manager in opening:
            manager.__exit__(None, None, None)
