"""Delivered webhooks: events in order, signed, at least once, without secrets."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hook_world import SECRET, Receiver, ask, asking, count, notes
from remote_world import Server
from standardwebhooks import Webhook, WebhookVerificationError
from waiting import until

import sayso
from sayso.audit import verify
from sayso.server.webhooks import Endpoint

Serve = Callable[..., Server]
Receivers = Callable[..., Receiver]


def test_opened_and_decided(
    serve: Serve, receiver: Receiver, gate: sayso.Gate, inbox: sayso.Inbox
) -> None:
    server = serve(receiver.endpoint(page="https://sayso.example/"))
    request = ask(gate, "order-17", risk="high", reviewers=["zoe", "group:finance"])
    until(lambda: len(receiver.got) == 1)
    inbox.decide_sync(request.id, request.edit({"to": "ben"}), by="zoe")
    until(lambda: len(receiver.got) == 2)
    opened, decided = (received.body for received in receiver.got)
    assert opened["type"] == "request.opened"
    assert opened["data"] == {
        "id": request.id,
        "title": "Pay: ana, ••••",
        "kind": "approval",
        "status": "pending",
        "agent": "bot",
        "tool": "pay",
        "run": "order-17",
        "thread": "order-17",
        "requester": "rita",
        "reviewers": ["zoe", "group:finance"],
        "notify": [],
        "quorum": 1,
        "risk": {"level": "high", "reasons": []},
        "created_at": request.created_at.isoformat(),
        "expires_at": None,
        "by": None,
        "decision": None,
        "link": f"https://sayso.example/inbox/{request.id}",
    }
    assert (decided["type"], decided["data"]["status"]) == ("request.decided", "edited")
    assert decided["data"]["by"] == "zoe"
    made = decided["data"]["decision"]
    assert (made["type"], made["channel"], made["assurance"]) == ("edit", "python", "code")
    assert len({received.id for received in receiver.got}) == 2
    until(lambda: count(server, "delivered") == 2)


@pytest.mark.parametrize(("answer", "status"), [("allow", "approved"), ("reject", "rejected")])
def test_decision_of_a_model_is_delivered(
    serve: Serve, receiver: Receiver, url: str, answer: str, status: str
) -> None:
    serve(receiver.endpoint())
    rule = sayso.Rule("pay", risk="low", reviewer="model:says", reviewer_allows=True)
    models = {"says": lambda request: answer}
    gate = sayso.Gate(url, policy=sayso.Policy([rule]), models=models, wait=0)

    @gate.guard
    def pay(to: str) -> str:
        return to

    with contextlib.suppress(sayso.Rejected), gate.run("r1"):
        pay("ana")
    gate.close()
    until(lambda: len(receiver.got) == 2)
    decided = receiver.got[-1].body
    assert (decided["type"], decided["data"]["status"]) == ("request.decided", status)
    assert decided["data"]["by"] == "model:says"


def test_endings_without_a_decision(
    serve: Serve, receiver: Receiver, gate: sayso.Gate, inbox: sayso.Inbox
) -> None:
    serve(receiver.endpoint())
    called_off, late = ask(gate, "r1"), ask(gate, "r2", expires_in=0.2)
    inbox.cancel_sync(called_off.id, by="zoe")
    until(lambda: len(receiver.got) == 4)
    closed = {r.body["data"]["id"]: r.body for r in receiver.got if r.type == "request.closed"}
    assert closed[called_off.id]["data"]["status"] == "cancelled"
    assert closed[called_off.id]["data"]["by"] == "zoe"
    assert closed[late.id]["data"]["status"] == "expired"
    assert receiver.of(late.id) == ["request.opened", "request.closed"]


def test_doubts_are_delivered(
    serve: Serve, receiver: Receiver, gate: sayso.Gate, inbox: sayso.Inbox
) -> None:
    serve(receiver.endpoint())

    def cut_short() -> None:
        raise KeyboardInterrupt

    again = gate.guard(needs_approval=False, effect="idempotent", name="again")(cut_short)
    once = gate.guard(needs_approval=False, name="once")(cut_short)
    for run, function in (("r1", again), ("r2", once)):
        with pytest.raises(KeyboardInterrupt), gate.run(run):
            function()
    doubt = until(lambda: [r for r in inbox.pending_sync().items if r.tool == "once"])[0]
    inbox.decide_sync(doubt.id, doubt.reject("forget it"), by="zoe")
    until(lambda: len(receiver.got) == 2)
    # What is idempotent runs again by itself: nobody has to hear of it.
    assert receiver.of(doubt.id) == ["request.opened", "request.decided"]
    assert receiver.got[0].body["data"]["kind"] == "in_doubt"


def test_secrets_and_hidden_characters_stay_here(
    serve: Serve, receiver: Receiver, url: str, inbox: sayso.Inbox
) -> None:
    serve(receiver.endpoint())
    key = "ghp_" + "a1B2" * 9
    reasons = sayso.Risk("high", (f"it knows {key}", "line\x1b[2K gone\u202e"))
    with asking(url, agent=f"bot {key}") as gate:
        request = ask(gate, f"run {key}", risk=reasons)
    inbox.decide_sync(request.id, request.reject(f"you leaked {key}"), by="zoe")
    until(lambda: len(receiver.got) == 2)
    for received in receiver.got:
        assert received.body["data"]["id"] == request.id
        text = received.data.decode()
        assert "hunter2" not in text
        assert key not in text
        assert request.digest not in text
        assert "\\u001b" not in text
        assert "\u202e" not in text


def test_message_has_the_masked_title(
    serve: Serve, receiver: Receiver, gate: sayso.Gate, inbox: sayso.Inbox
) -> None:
    serve(receiver.endpoint())
    request = ask(gate, "r", title="Pay {to}, with the password {password}")
    until(lambda: receiver.got)
    inbox.decide_sync(request.id, request.edit({"to": "ben"}), by="zoe")
    until(lambda: len(receiver.got) == 2)
    opened, decided = (received.body["data"]["title"] for received in receiver.got)
    assert (opened, decided) == (
        "Pay ana, with the password ••••",
        "Pay ben, with the password ••••",
    )


def test_only_chosen_events_are_delivered(
    serve: Serve, receiver: Receiver, gate: sayso.Gate, inbox: sayso.Inbox
) -> None:
    serve(receiver.endpoint(events=("request.decided",)))
    for name in ("r1", "r2"):
        request = ask(gate, name)
        inbox.decide_sync(request.id, request.reject("no"), by="zoe")
    until(lambda: len(receiver.got) == 2)
    assert receiver.types == ["request.decided"] * 2


def test_forged_body_does_not_verify(serve: Serve, receiver: Receiver, gate: sayso.Gate) -> None:
    serve(receiver.endpoint())
    ask(gate, "r")
    received = until(lambda: receiver.got)[0]
    forged = received.data.replace(b"pending", b"approved")
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(forged, received.headers)


def test_failed_delivery_is_repeated(
    serve: Serve, receiver: Receiver, gate: sayso.Gate, inbox: sayso.Inbox
) -> None:
    receiver.statuses = [500, 503]
    server = serve(receiver.endpoint())
    request = ask(gate, "r")
    inbox.decide_sync(request.id, request.approve(), by="zoe")
    until(lambda: len(receiver.got) == 4)
    # The same message until it is taken, and only then the next one.
    assert receiver.types == ["request.opened"] * 3 + ["request.decided"]
    assert len({received.id for received in receiver.got[:3]}) == 1
    until(lambda: count(server, "delivered") == 2)
    assert count(server, "failed") == 2
    assert notes(inbox) == []


def test_abandoned_message_is_recorded(
    serve: Serve, receiver: Receiver, gate: sayso.Gate, inbox: sayso.Inbox
) -> None:
    receiver.refuses = {"r1"}
    server = serve(receiver.endpoint(keep_trying=0, pause=0.01, url=f"{receiver.url}?key=abc"))
    first, second = ask(gate, "r1"), ask(gate, "r2")
    until(lambda: notes(inbox))
    assert receiver.of(first.id) == ["request.opened"] * 4
    assert receiver.of(second.id) == ["request.opened"]
    (note,) = notes(inbox)
    assert note["request"] == first.id
    assert note["endpoint"] == receiver.url  # without the key in its query
    assert (note["tries"], note["reason"]) == (4, "the receiver answered 500")
    assert count(server, "dead") == 1
    assert verify(inbox.store).ok


@pytest.mark.long
def test_dead_receiver_holds_up_nobody(
    serve: Serve, receivers: Receivers, gate: sayso.Gate, inbox: sayso.Inbox
) -> None:
    hanging, living = receivers(), receivers()
    hanging.answers.clear()
    server = serve(hanging.endpoint(timeout=50), living.endpoint())
    until(lambda: ask(gate, "r1") and hanging.got)
    request = ask(gate, "r2")
    inbox.decide_sync(request.id, request.approve(), by="zoe")
    until(lambda: living.of(request.id) == ["request.opened", "request.decided"])
    assert len(hanging.got) == 1
    server.stop()  # which waits for it no longer than a few seconds


def test_slow_receiver_is_tried_again(serve: Serve, receiver: Receiver, gate: sayso.Gate) -> None:
    receiver.answers.clear()
    server = serve(receiver.endpoint(timeout=0.3))
    ask(gate, "r")
    until(lambda: count(server, "failed") >= 1)
    receiver.answers.set()
    until(lambda: count(server, "delivered") == 1)


@pytest.mark.parametrize(
    ("url", "secret", "options"),
    [
        ("http://hooks.example/x", SECRET, {}),
        ("ftp://hooks.example/x", SECRET, {"allow_private": True}),
        ("https://", SECRET, {}),
        ("https://user:pass@hooks.example/", SECRET, {}),
        ("https://hooks.example/#part", SECRET, {}),
        ("https://hooks.example/", "", {}),
        ("https://hooks.example/", "whsec_c2hvcnQ=", {}),
        ("https://hooks.example/", "whsec_no base64 at all, but long enough for one", {}),
        ("https://hooks.example/", SECRET.removeprefix("whsec_"), {}),
        ("https://hooks.example/", SECRET, {"events": ("request.opend",)}),
        ("https://hooks.example/", SECRET, {"events": ()}),
    ],
)
def test_invalid_endpoint_is_refused(url: str, secret: str, options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"webhook"):
        Endpoint(url, secret, **options)  # type: ignore[arg-type]


def test_secret_is_not_printed() -> None:
    assert SECRET not in repr(Endpoint("https://hooks.example/", SECRET))
