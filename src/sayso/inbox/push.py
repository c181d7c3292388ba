"""Subscriptions: the browsers to which people get push messages.

A subscription is a credential of the kind ``push``. So it ends with the person, is listed and can
be revoked like a token, and the audit log names it. It proves nothing and decides nothing: the
server only sends to it.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from sayso.engine.commands import AddCredential
from sayso.errors import Conflict, NotAllowed
from sayso.inbox.accounts import counts_now
from sayso.inbox.directory import new_credential, revoke_tokens
from sayso.inbox.people import token_hash
from sayso.rows import Credential
from sayso.stores.base import Store
from sayso.types import Reviewer

#: How many browsers of one person may be subscribed.
MOST_DEVICES = 20


class Subscription(NamedTuple):
    """What a browser made, as it is stored in ``Credential.device``."""

    #: What the person calls the browser; the only part that is ever shown.
    label: str
    #: Where its push service takes messages. Whoever knows it can tell the browser from others.
    endpoint: str
    #: The browser's public key and secret, in base64url: only it can read what is encrypted so.
    p256dh: str
    auth: str
    #: The public key of the server that the browser accepts messages from.
    key: str

    @property
    def hash(self) -> str:
        return token_hash(json.dumps(["push", self.endpoint]))


def subscribe(store: Store, by: Reviewer, subscription: Subscription) -> Credential:
    """Store the subscription of a person's browser; once more, it is the same one.

    Raises ``NotAllowed`` for an agent, and ``Conflict`` if the browser is another person's, or one
    too many.
    """
    person = store.person(by.name)
    if person is None or person.role == "agent":
        raise NotAllowed(f"{by.name} is no person of this store, so they get no push messages")
    existing = {row.hash: row for row in subscriptions_of(store, person.name)}
    same = existing.get(subscription.hash)
    if same is not None and subscription_of(same)[1:] == subscription[1:]:
        return same
    if len(existing) >= MOST_DEVICES:
        raise Conflict(f"you get push messages on {MOST_DEVICES} devices: remove one first")
    row = new_credential("", "psh_", person, "push", ends=None)._replace(
        hash=subscription.hash,
        role="chat",
        assurance="chat",
        device=json.dumps(subscription),
    )
    (stored,) = store.transact(AddCredential(credential=row, by=Reviewer(person.name)))
    added: Credential = stored
    return added


def subscriptions_of(store: Store, person: str) -> list[Credential]:
    """Return the subscriptions of a person that count now."""
    rows = store.credentials(person)
    return [row for row in rows if row.kind == "push" and counts_now(store, row)]


def subscription_of(row: Credential) -> Subscription:
    """Return the subscription in its row."""
    return Subscription(*json.loads(row.device))


def end_subscription(store: Store, row: Credential) -> None:
    """End a subscription that the push service no longer knows."""
    revoke_tokens(store, row.person, (row.id,), by=Reviewer("server"))
