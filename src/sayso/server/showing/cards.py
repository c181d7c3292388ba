"""Lists of requests, drawn once for everybody.

Many people look at the same page again and again, and drawing a request (its text made inert, its
secrets hidden) takes longer than reading it. So a card is kept as the JSON that goes out, for as
long as its row is the same in every field. What differs from one reader to the next is added last.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

from sayso.forking import fork_safe_lock
from sayso.inbox import Inbox
from sayso.inbox.inbox import RequestReader
from sayso.inbox.people import may_see, names_of
from sayso.rows import Call
from sayso.server.showing.shown import abilities, drawn
from sayso.server.wire.answers import as_json
from sayso.types import Request, Reviewer, plain_name

#: How many pages are looked through for somebody who may see few of the requests.
_PAGES = 20
#: Characters of JSON after which a page ends; what does not fit is on the next one.
_PAGE = 8_000_000
#: Characters of JSON that are kept in all, and of one card.
_MOST = 4_000_000
_LARGE = 20_000


class Card(NamedTuple):
    """A request, and how it is drawn for whoever may not see its secrets."""

    request: Request
    json: str


class Cards:
    """The cards that were drawn last. For any thread."""

    def __init__(self, inbox: Inbox) -> None:
        self._reader = RequestReader(inbox.store)
        self._lock = fork_safe_lock()
        self._kept: OrderedDict[Call, Card] = OrderedDict()
        self._size = 0

    def page(self, by: Reviewer, filters: dict[str, Any], *, mine: bool) -> str:
        """A page of what this person may see; for who may see little, several are looked through.

        It blocks, since it reads the store.
        """
        limit, room = filters["limit"], _PAGE
        found: list[Card] = []
        for _ in range(_PAGES):
            rows, following = self._reader.page({**filters, "limit": limit - len(found)})
            for place, call in rows:
                card = self._card(call) if may_see(by, call) else None
                if card is not None and (not mine or _for(by, card.request)):
                    if found and len(card.json) > room:
                        following, limit = filters["after"], len(found)  # it is on the next page
                        break
                    found.append(card)
                    room -= len(card.json)
                filters["after"] = str(place)
            if following is None or len(found) == limit:
                break
        items = ",".join(_for_reader(card, by) for card in found)
        return f'{{"items":[{items}],"next":{as_json(following)}}}'

    def _card(self, call: Call) -> Card:
        with self._lock:
            card = self._kept.get(call)
            if card is not None:
                self._kept.move_to_end(call)
                return card
        request = self._reader.request(call)
        card = Card(request, as_json(drawn(request)))
        if len(card.json) <= _LARGE:
            self._keep(call, card)
        return card

    def _keep(self, call: Call, card: Card) -> None:
        with self._lock:
            if call not in self._kept:  # else another thread was faster
                self._kept[call] = card
                self._size += len(card.json)
            while self._size > _MOST:
                self._size -= len(self._kept.popitem(last=False)[1].json)


def _for_reader(card: Card, by: Reviewer) -> str:
    can, why_not = abilities(card.request, by)
    return f"{card.json[:-1]},{as_json({'can': can, 'why_not': why_not})[1:]}"


def _for(by: Reviewer, item: Request) -> bool:
    """Whether it is for this person in particular, and not for everybody."""
    return plain_name(item.requester) == by.name or not names_of(by).isdisjoint(item.reviewers)
