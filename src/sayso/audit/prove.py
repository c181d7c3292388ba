"""Prove decisions that were confirmed with a passkey, as one page that any browser can check."""

from __future__ import annotations

import json
from pathlib import Path

from sayso import codec
from sayso.audit.explain import explain
from sayso.engine.asking import envelope
from sayso.errors import NotFound, Tampered
from sayso.passkeys import Assertion
from sayso.rows import Call, Event
from sayso.stores.base import Store
from sayso.text import inline
from sayso.types import Json, iso

_PAGE = Path(__file__).with_name("proof.html")
_DECIDING = ("decided", "voted")
_MOST_EVENTS = 10_000


def prove(store: Store, request_id: str) -> str:
    """Return a page of HTML that proves who decided a request, if they used a passkey.

    It needs neither this store nor its keys, and nothing from the network. Raises ``NotFound`` if
    no decision about the request was confirmed with a passkey, and ``Tampered`` if its row or its
    record was changed.
    """
    explanation = explain(store, request_id)
    if not explanation.ok:
        raise Tampered(f"{request_id} cannot be proved. {explanation.next_step}")
    with store.snapshot() as rows:
        events = rows.call_events(request_id, _MOST_EVENTS)
    decisions = [
        _decision(event)
        for event in events
        if event.type in _DECIDING and "passkey" in codec.loads(event.body or "{}")
    ]
    if not decisions:
        raise NotFound(
            f"no decision on {request_id} was confirmed with a passkey: a rule with "
            '`assurance = "passkey"` asks for one'
        )
    call = store.call(request_id)
    proof = {
        "title": f"Proof of {request_id}",
        "request": request_id,
        "decisions": decisions,
        **(_content(call) if call is not None else {"digest": "", "envelope": None}),
    }
    data = json.dumps(proof)
    for character in "<>&":
        data = data.replace(character, f"\\u{ord(character):04x}")
    return _PAGE.read_text("utf-8").replace("@PROOF@", data)


def _decision(event: Event) -> Json:
    body = codec.loads(event.body or "{}")
    assertion = Assertion.from_json(body["passkey"])
    assertion.check()
    return {
        "heading": f"{inline(event.actor)}: {body['decision']}",
        "decision": body["decision"],
        "facts": [
            ["by", inline(event.actor)],
            ["at", iso(event.at)],
            ["message", inline(body["message"])],
        ],
        "assertion": assertion.to_json(),
    }


def _content(call: Call) -> dict[str, Json]:
    """Return what was seen, as the texts whose hashes were signed."""
    return {"digest": call.digest, "envelope": envelope(call), "arguments": call.args}
