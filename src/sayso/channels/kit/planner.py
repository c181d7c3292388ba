"""Which messages there are to be: rows for the people whom a request concerns.

The planner of a channel follows the store's events from a stored place. For each request that an
event names, it brings the rows in line with the request as it is now, whatever the event was: one
row per target and step while it is pending, and an update of every copy when it is not. So it may
run twice, late, or in two processes at once.

The id of a row is a hash of what makes it unique, so planning the same message again adds nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from sayso import codec
from sayso.channels.kit.channel import Channel
from sayso.engine.deciding import is_meant
from sayso.engine.effects import is_remote
from sayso.gate.review import REVIEW_SECONDS
from sayso.inbox.accounts import accounts_of
from sayso.inbox.people import viewer_of
from sayso.rows import Call, Delivery, Event, Person, Proven
from sayso.stores.base import Store
from sayso.stores.row_checks import if_readable, request_in
from sayso.types import GROUP, SECOND, Micros, may_be_requester, plain_name
from sayso.views import is_request

#: More open requests than this are one message.
MANY = 10
#: How long people are not notified of a request that a model reviews first, in microseconds.
_REVIEW: Micros = round((REVIEW_SECONDS + 2) * SECOND)
#: How long a digest stands for new requests too, before another one is sent, in microseconds.
DIGEST_EVERY: Micros = 3_600_000_000
#: The same in a shared channel, whose readers change more often.
SHARED_DIGEST_EVERY: Micros = 600_000_000
#: Events after which a request may need a message, or its messages an update.
_TYPES = frozenset(
    (
        *("asked", "reasked", "in_doubt", "revised", "retried", "settled", "recorded"),
        *("decided", "expired", "cancelled", "superseded", "reminded", "escalated"),
    )
)


class Target(NamedTuple):
    """An address of a channel. ``person`` is whose it is; "" if it is shared."""

    address: str
    person: str = ""


def delivery_id(channel: str, target: str, request: str, digest: str, step: str) -> str:
    parts = ["delivery", channel, target, request, digest, step]
    return codec.sha256(codec.dumps(parts).encode())[:32]


def digest_id(channel: str, target: str) -> str:
    """Return the id of the one message to a target about many requests."""
    return delivery_id(channel, target, "", "", "digest")


def new_delivery(
    channel: str, target: Target, request: str, digest: str, step: str, now: Micros
) -> Delivery:
    """Return a message that is to be sent now and is not stored yet."""
    return Delivery(
        id=delivery_id(channel, target.address, request, digest, step),
        channel=channel,
        target=target.address,
        person=target.person,
        request=request,
        digest=digest,
        step=step,
        created=now,
        nonce=secrets.token_hex(4),
        next_at=now,
    )


class Planner:
    """Keeps the rows of one channel in line with the requests."""

    def __init__(self, store: Store, channel: Channel) -> None:
        self._store = store
        self._channel = channel

    def wants(self, event: Event) -> bool:
        return bool(event.call) and event.type in _TYPES

    def plan(self, events: Sequence[Event]) -> int:
        batch = Recipients(self._store, self._channel)
        written = 0
        reminders = {event.call: event for event in events if event.type == "reminded"}
        for call_id, at in {event.call: event.at for event in events}.items():
            call = if_readable(self._store.call, call_id)
            if call is not None and is_request(call):
                rows = list(self._rows(batch, call, at, reminders.get(call_id)))
                written += sum(self._store.put_deliveries(rows)) if rows else 0
        return written

    def _rows(
        self, batch: Recipients, call: Call, at: Micros, reminder: Event | None
    ) -> Iterator[Delivery]:
        request = if_readable(request_in, self._store, call)
        digest = "" if request is None or request.status != "pending" else request.digest
        name = self._channel.name
        known = [row for row in self._store.deliveries_of(call.id) if row.channel == name]
        yield from self._outdated(known, digest)
        if digest:
            notified = {row.target for row in known if row.digest == digest}
            step = "escalated" if call.escalated else "asked"
            messages = batch.messages(call, digest, step, at)
            yield from (row for row in messages if row.target not in notified)
            if reminder is not None:
                voters = {name for vote in call.votes for name in (vote.by, vote.on_behalf_of)}
                again = batch.messages(call, digest, f"reminder-{reminder.seq}", at)
                waiting = (row for row in again if not row.person or row.person not in voters)
                yield from (row for row in waiting if row.target in notified)
        else:
            yield from self._smaller_digests(batch, known, call)

    def _outdated(self, known: Iterable[Delivery], digest: str) -> Iterator[Delivery]:
        """Yield changes of the messages that no longer show what is pending."""
        now = self._store.now()
        for row in known:
            # One that is due, or being sent, is looked at again by its sender.
            if row.digest != digest and row.state == "sent":
                yield row._replace(state="updating", next_at=now, attempts=0)

    def _smaller_digests(
        self, batch: Recipients, known: Iterable[Delivery], call: Call
    ) -> Iterator[Delivery]:
        """Yield the digests that may be closed now that a request is no longer pending."""
        notified = {row.person for row in known if row.message}
        for target in batch.targets(call):
            if not target.person or target.person in notified:
                continue
            row = self._store.delivery(digest_id(self._channel.name, target.address))
            if row is not None and row.state == "sent" and batch.count(target.person) <= MANY:
                now = self._store.now()
                yield row._replace(state="updating", next_at=now, attempts=0)


class Recipients:
    """Who gets messages, looked up once for a batch of requests."""

    def __init__(self, store: Store, channel: Channel) -> None:
        self._store = store
        self._channel = channel
        self._people = [person for person in store.people() if person.active]
        self._addresses: dict[str, list[Target]] = {}
        self._counts: dict[str, int] = {}

    def messages(self, call: Call, digest: str, step: str, at: Micros) -> Iterator[Delivery]:
        """Yield the messages of one step about a request, one for each target.

        A person for whom many requests wait gets one message for all of them.
        """
        for target in self.targets(call):
            if target.person and self.count(target.person) > MANY:
                digest_row = new_digest(self._store, self._channel.name, target, at)
                if digest_row is not None:
                    yield digest_row
            else:
                row = new_delivery(self._channel.name, target, call.id, digest, step, at)
                # A model may decide it meanwhile. Whoever sends the message looks again.
                waits = bool(call.terms.reviewer) and call.rev == 1 and not call.terms.opinion
                yield row._replace(next_at=at + _REVIEW) if waits else row

    def count(self, person: str) -> int:
        if person not in self._counts:
            self._counts[person] = open_requests(self._store, person)
        return self._counts[person]

    def targets(self, call: Call) -> list[Target]:
        """Return where a request is announced: as its rule says, else to each possible reviewer.

        An entry of ``notify_via`` is ``channel`` or ``channel:`` with a group, a person or a
        shared channel. Once the request has escalated, its new reviewers are reached in the same
        channels. A person who is away is represented by their stand-in.
        """
        notify_via = call.terms.notify_via or (self._channel.name,)
        parts = [entry.partition(":") for entry in notify_via]
        ours = [rest for channel, _, rest in parts if channel == self._channel.name]
        found: list[Target] = []
        for rest in ours:
            meant = [person for person in self._people if _is_meant(person, rest, call)]
            if rest and not rest.startswith(GROUP) and self._store.person(rest) is None:
                found.append(Target(rest))
            found += self._of_people(call, meant)
        if ours and call.escalated:
            added = set(call.terms.escalate_to)
            meant = [person for person in self._people if not added.isdisjoint(person.names)]
            found += self._of_people(call, meant)
        return list(dict.fromkeys(found))

    def _of_people(self, call: Call, people: Iterable[Person]) -> Iterator[Target]:
        may_decide = call.terms.requester_decides
        now = self._store.now()
        for person in people:
            name = person.name
            if person.has_stand_in(person.stand_in, now):
                name = person.stand_in
            if name not in self._addresses:
                self._addresses[name] = addresses(self._store, self._channel, name)
            if may_decide or not may_be_requester(name, call.requester):
                yield from self._addresses[name]


def new_digest(store: Store, channel: str, target: Target, at: Micros) -> Delivery | None:
    """Return the row of a target's digest to write; ``None`` if one is due or was sent lately."""
    fresh = new_delivery(channel, target, "", "", "digest", at)
    row = store.delivery(fresh.id)
    if row is None:
        return fresh
    every = DIGEST_EVERY if target.person else SHARED_DIGEST_EVERY
    is_old = row.state == "sent" and row.created + every <= at
    if is_old or row.state in ("closed", "dead"):
        return fresh._replace(version=row.version)
    return None


def _is_meant(person: Person, name: str, call: Call) -> bool:
    if name:
        return name in person.names
    if person.role == "chat":
        return person.name == plain_name(call.requester) and not is_remote(call.binds)
    return person.role != "agent" and is_meant(call, person.names)


def addresses(store: Store, channel: Channel, person: str) -> list[Target]:
    """Return the addresses of a person in a channel: the accounts that they linked."""
    linked = [Target(account.user, person) for account in accounts_of(store, person, channel.name)]
    row = store.person(person)
    if not linked and channel.takes_mail and row is not None and row.active and row.mail:
        return [Target(row.mail, person)]
    return linked


def open_requests(store: Store, person: str) -> int:
    """Return how many requests wait for a person."""
    row = store.person(person)
    if row is None:
        return 0
    viewer = viewer_of(Proven(row.name, row.groups))
    return store.open_ages(viewer, (0,)).total
