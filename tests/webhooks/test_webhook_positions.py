"""An endpoint's messages are rows: kept over restarts, in order, sent by one server at a time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from hook_world import Receiver, ask, count
from remote_world import Server, reserved
from waiting import until

import sayso
from sayso.rows import Delivery
from sayso.server.webhooks import Endpoint

Serve = Callable[..., Server]


def due(inbox: sayso.Inbox, endpoint: Endpoint) -> list[Delivery]:
    """Return the messages that were not delivered yet, in the order of their next tries."""
    rows = inbox.store.next_deliveries(endpoint.name, 1000)
    return [row for row in rows if row.state == "due"]


def caught_up(inbox: sayso.Inbox, endpoint: Endpoint) -> bool:
    """Return whether every event is planned, and every message delivered."""
    at = inbox.store.cursor(f"channel:{endpoint.name}").partition(" ")[2]
    kinds = ("asked", "decided", "expired", "cancelled")
    ahead = [event for _, event in inbox.store.events(at, 1000) if event.type in kinds]
    return not ahead and not due(inbox, endpoint)


def test_restart_loses_nothing_and_repeats_nothing(
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


def test_new_endpoint_starts_with_new_events(
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


def test_lease_of_dead_server_ends(
    serve: Serve, receiver: Receiver, gate: sayso.Gate, inbox: sayso.Inbox
) -> None:
    endpoint = receiver.endpoint()
    store = inbox.store
    ends = store.now() + 1_500_000  # what a killed server leaves
    assert store.move_cursor(f"lease:channel:{endpoint.name}", f"{ends} dead", expected="")
    serve(endpoint)
    request = ask(gate, "r")
    until(lambda: receiver.got)
    assert receiver.of(request.id) == ["request.opened"]
    assert store.now() > ends


def test_undelivered_events_move_the_position(
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


def test_unreachable_receiver_does_not_block_others(
    serve: Serve, receiver: Receiver, gate: sayso.Gate, inbox: sayso.Inbox
) -> None:
    with closing(reserved()) as port:
        nobody = f"http://127.0.0.1:{port.getsockname()[1]}/hook"
        endpoint = receiver.endpoint(url=nobody)
        server = serve(endpoint, receiver.endpoint())
        ask(gate, "r")
        until(lambda: count(server, "failed") >= 2)
        (row,) = due(inbox, endpoint)
        assert row.attempts >= 1
        assert len(until(lambda: receiver.got)) == 1


def test_refused_message_delays_only_its_request(
    serve: Serve, receiver: Receiver, gate: sayso.Gate, inbox: sayso.Inbox
) -> None:
    receiver.refuses = {"bad"}
    endpoint = receiver.endpoint()
    server = serve(endpoint)
    bad = ask(gate, "bad")
    until(lambda: count(server, "failed") >= 1)
    inbox.decide_sync(bad.id, bad.approve(), by="zoe")
    others = [ask(gate, f"good {n}") for n in range(5)]
    until(lambda: [run for run in receiver.runs() if run != "bad"] == [r.run for r in others])
    tried = count(server, "failed")
    until(lambda: count(server, "failed") > tried)  # it is retried, beside the others
    assert set(receiver.of(bad.id)) == {"request.opened"}  # and the next one waits behind it
    until(lambda: [row.request for row in due(inbox, endpoint)] == [bad.id, bad.id])
    receiver.refuses = set()
    until(lambda: caught_up(inbox, endpoint))
    accepted = [t for t in receiver.of(bad.id) if t == "request.decided"]
    assert receiver.of(bad.id)[-2:] == ["request.opened", "request.decided"]
    assert len(accepted) == 1


def test_set_aside_message_survives_restart(
    serve: Serve, receiver: Receiver, gate: sayso.Gate, inbox: sayso.Inbox
) -> None:
    receiver.refuses = {"bad"}
    endpoint = receiver.endpoint()
    first = serve(endpoint)
    bad, good = ask(gate, "bad"), ask(gate, "good")
    until(lambda: receiver.of(good.id))
    first.stop()
    inbox.decide_sync(bad.id, bad.reject("no"), by="zoe")
    receiver.refuses = set()
    serve(endpoint)
    until(lambda: caught_up(inbox, endpoint))
    assert receiver.of(bad.id)[-2:] == ["request.opened", "request.decided"]
    assert receiver.of(good.id) == ["request.opened"]


def test_receiver_that_refuses_everything_keeps_the_order(
    serve: Serve, receiver: Receiver, gate: sayso.Gate, inbox: sayso.Inbox
) -> None:
    endpoint = receiver.endpoint(pause=0.01)
    runs = [f"r{n}" for n in range(6)]
    receiver.refuses = set(runs)
    server = serve(endpoint)
    requests = [ask(gate, run) for run in runs]
    until(lambda: count(server, "failed") >= 6)
    assert set(receiver.runs()) <= {"r0", "r1"}  # the next message, and one to compare with
    server.stop()
    receiver.refuses = set()
    serve(endpoint)
    until(lambda: caught_up(inbox, endpoint))
    told = [received.body["data"]["id"] for received in receiver.got]
    assert told[-6:] == [request.id for request in requests]
