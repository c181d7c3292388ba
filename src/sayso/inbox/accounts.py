"""Link accounts of chat platforms to people, with a one-time code.

A person who is signed in gets a code here and sends it from the account to the bot. So the platform
proves the account and the code proves the person; no address is ever matched. A linked account is a
credential of the kind ``chat``: it ends with the person, can be revoked like a token, and decides
with the assurance ``chat``, which no quorum counts.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import NamedTuple

from sayso.engine.commands import AddCredential
from sayso.errors import NotAllowed, Unauthenticated
from sayso.inbox.directory import new_credential
from sayso.inbox.people import reviewer_of, rights, token_hash
from sayso.rows import Credential, Proven
from sayso.stores.base import Store
from sayso.types import SECOND, Reviewer

CODE_SECONDS = 600
#: The kinds of credentials that are addresses of a person in a channel.
ADDRESS_KINDS = ("chat", "push")
_BAD_CODE = "this code is unknown, used or expired: get a new one with `sayso channels link`"


class Account(NamedTuple):
    """An account as its platform names it, for good."""

    channel: str
    #: The team or the server that the account belongs to; "" if the platform has none.
    workspace: str
    user: str

    @property
    def hash(self) -> str:
        """The hash of its credential. No secret has it, because a secret is no JSON."""
        return token_hash(json.dumps(["account", *self]))

    def to_json(self) -> str:
        return json.dumps(list(self))


@dataclass(frozen=True, slots=True)
class LinkedAccount:
    """An account, and the person who linked it, with the rights that they have now."""

    account: Account
    person: Proven


def new_code(store: Store, by: Reviewer, channel: str, user: str = "") -> str:
    """Return a code that links one account of a channel to a person, within ten minutes.

    ``user`` is the account, if the code is sent there. Raises ``NotAllowed`` for an agent, and for
    anyone who is not in the directory.
    """
    actor = reviewer_of(store, by, None)
    person = store.person(actor.name)
    if person is None or actor.role == "agent":
        raise NotAllowed(
            f"{actor.name} is no person of this store: add them with `sayso people add`"
        )
    secret = secrets.token_urlsafe(16)
    ends = store.now() + CODE_SECONDS * SECOND
    code = new_credential(secret, "code_", person, "code", ends=ends)
    code = code._replace(device=Account(channel, "", user).to_json())
    store.transact(AddCredential(credential=code, by=Reviewer(person.name)))
    return secret


def linking_words(channel: str, code: str) -> str:
    """Return what to send to the bot. Slack takes words with a slash for commands of its own."""
    return f"link {code}" if channel == "slack" else f"/start {code}"


def link_account(store: Store, account: Account, code: str) -> LinkedAccount:
    """Link an account to the person who got the code. Raise ``Unauthenticated`` or ``Conflict``."""
    source = store.credential(token_hash(code))
    if source is None or source.kind != "code":
        raise Unauthenticated(_BAD_CODE)
    wanted = account_of(source)
    person = store.person(source.person)
    if person is None or wanted.channel != account.channel or wanted.user not in ("", account.user):
        raise Unauthenticated(_BAD_CODE)
    link = new_credential("", "acc_", person, "chat", ends=None)
    link = link._replace(hash=account.hash, assurance="chat", device=account.to_json())
    by = Reviewer(person.name)
    store.transact(AddCredential(credential=link, by=by, opened_with=source.hash))
    return LinkedAccount(account, rights(store, Proven(person.name, proof=account.hash)))


def confirm_address(store: Store, by: Reviewer, channel: str, code: str) -> LinkedAccount:
    """Link the address to which a code was sent, for the person who got the code."""
    source = store.credential(token_hash(code))
    if source is None or source.kind != "code" or source.person != by.name:
        raise Unauthenticated(_BAD_CODE)
    return link_account(store, Account(channel, "", account_of(source).user), code)


def linked_person(store: Store, account: Account) -> Proven | None:
    """Return the person who linked an account, with their rights now; ``None`` if nobody has."""
    link = store.credential(account.hash)
    if link is None or link.kind != "chat":
        return None
    try:
        return rights(store, Proven(link.person, proof=link.hash))
    except NotAllowed:  # removed, revoked, or not made with this store's key
        return None


def accounts_of(store: Store, person: str, channel: str) -> list[Account]:
    """Return the accounts that a person has linked and that count now."""
    links = [row for row in store.credentials(person) if row.kind in ADDRESS_KINDS]
    return [
        account_of(row)
        for row in links
        if account_of(row).channel == channel and counts_now(store, row)
    ]


def counts_now(store: Store, credential: Credential) -> bool:
    """Return whether a credential and its person are still valid, and made with our key."""
    try:
        rights(store, Proven(credential.person, proof=credential.hash))
    except NotAllowed:
        return False
    return True


def account_of(credential: Credential) -> Account:
    """Return the account of a ``chat`` or ``push`` credential, or of a code."""
    if credential.kind == "push":
        return Account("push", "", credential.id)
    return Account(*json.loads(credential.device))
