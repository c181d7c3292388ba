"""An endpoint's place among the events: kept over restarts, shared by servers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from hook_world import Receiver, ask, count
from remote_world import Server, reserved
from waiting import until

import sayso
from sayso.server.webhooks import DeliveryCursor, Endpoint, read_cursor

Serve = Callable[..., Server]


def caught_up(inbox: sayso.Inbox, endpoint: Endpoint) -> bool:
    """Whether the outbox has nothing left to tell."""
    place = read_cursor(inbox.store.cursor(endpoint.name))
    told = ("asked", "decided", "expired", "cancelled")
    return not [e for _, e in inbox.store.events(place.at, 1000) if e.type in told]


def test_a_restart_loses_nothing_and_repeats_nothing(
    url: str, serve: Serve, receiver: Receiver, gate: sayso.Gate, inbox: sayso.Inbox
) -> None:
    endpoint = receiver.endpoint()
    first = serve(endpoint)
    before = ask(gate, "before")
    until(lambda: caught_up(inbox, endpoint))
    receiver.statuses = [503] * 1000  # the receiver is down from here on
    under = ask(gate, "under way")
    until(lambda: len(receiver.got) >= 2)
    first.stop()
    between = ask(gate, "between")  # while no server is there
    receiver.statuses = []
    failed = len(receiver.got)
    serve(endpoint)
    after = ask(gate, "after")
    until(lambda: caught_up(inbox, endpoint))
    told = [received.body["data"]["id"] for received in receiver.got]
    assert told[0] == before.id
    assert set(told[1:failed]) == {under.id}
    assert told[failed:] == [under.id, between.id, after.id]


def test_a_new_endpoint_hears_of_what_comes(
    serve: Serve, receiver: Receiver, gate: sayso.Gate, inbox: sayso.Inbox
) -> None:
    ask(gate, "long ago")
    serve(receiver.endpoint())
    fresh = ask(gate, "now")
    until(lambda: receiver.got)
    assert [received.body["data"]["id"] for received in receiver.got] == [fresh.id]


def test_two_servers_deliver_each_once_and_in_order(
    serve: Serve, receiver: Receiver, gate: sayso.Gate, inbox: sayso.Inbox
) -> None:
    endpoint = receiver.endpoint()
    for _ in range(2):
        serve(endpoint)
    made = [ask(gate, f"r{n}").id for n in range(12)]
    until(lambda: caught_up(inbox, endpoint))
    assert [received.body["data"]["id"] for received in receiver.got] == made


def test_a_server_that_died_with_the_place_is_succeeded(
    serve: Serve, receiver: Receiver, gate: sayso.Gate, inbox: sayso.Inbox
) -> None:
    endpoint = receiver.endpoint()
    store = inbox.store
    # What a killed server leaves: a place that is taken until a moment from now.
    held = DeliveryCursor(store.tail(), due=store.now() + 1_500_000).to_json()
    assert store.move_cursor(endpoint.name, held, expected="")
    request = ask(gate, "r")
    serve(endpoint)
    until(lambda: receiver.got)
    assert receiver.of(request.id) == ["request.opened"]
    assert store.now() > read_cursor(held).due


def test_many_events_that_nobody_is_told_of(
    serve: Serve, receiver: Receiver, gate: sayso.Gate, inbox: sayso.Inbox
) -> None:
    endpoint = receiver.endpoint()
    serve(endpoint).stop()  # it knows the endpoint now

    @gate.guard(needs_approval=False)
    def look(n: int) -> int:
        return n

    with gate.run("busy"):
        for n in range(90):  # three events each: more than a page
            look(n)
    request = ask(gate, "r")
    serve(endpoint)
    until(lambda: receiver.got)
    assert receiver.of(request.id) == ["request.opened"]
    until(lambda: caught_up(inbox, endpoint))
    assert len(receiver.got) == 1


def test_a_receiver_that_is_down(
    serve: Serve, receiver: Receiver, gate: sayso.Gate, inbox: sayso.Inbox
) -> None:
    with closing(reserved()) as port:
        nobody = f"http://127.0.0.1:{port.getsockname()[1]}/hook"
        endpoint = receiver.endpoint(url=nobody)
        server = serve(endpoint, receiver.endpoint())
        ask(gate, "r")
        until(lambda: count(server, "failed") >= 2)
        place = read_cursor(inbox.store.cursor(endpoint.name))
        assert place.tries >= 1
        assert len(until(lambda: receiver.got)) == 1
