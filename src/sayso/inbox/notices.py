"""When messages reach a person: quiet hours, and only while they are away from the page.

Nothing is lost: a message that may not be sent now waits. Those of quiet hours become one digest
when the quiet hours end. A request of critical risk that has escalated is announced at once.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from sayso.errors import InvalidCall
from sayso.inbox.directory import USE_NOTED_EVERY, change_person
from sayso.inbox.people import reviewer_of
from sayso.rows import Call, Person
from sayso.stores.base import Store
from sayso.types import SECOND, Micros, Reviewer, moment

_CLOCK = re.compile(r"([01]\d|2[0-3]):[0-5]\d")
#: Somebody whose session was used so recently is at the page: two notes of its use fit in.
_AT_PAGE: Micros = 2 * USE_NOTED_EVERY * SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class Notices:
    """When messages reach a person. Without quiet hours, ``quiet_from`` and ``quiet_until`` are "".

    Times are ``HH:MM`` in ``zone``, a name such as ``Europe/Berlin``. Raises ``InvalidCall``.
    """

    quiet_from: str = ""
    quiet_until: str = ""
    zone: str = "UTC"
    only_away: bool = False

    def __post_init__(self) -> None:
        times = (self.quiet_from, self.quiet_until)
        if any(times) and not all(_CLOCK.fullmatch(each) for each in times):
            raise InvalidCall("quiet hours need both times as HH:MM, such as 22:00 and 07:00")
        if self.quiet_from and self.quiet_from == self.quiet_until:
            raise InvalidCall("quiet hours that end when they begin would never end: change one")
        try:
            ZoneInfo(self.zone)
        except (ValueError, OSError, LookupError):
            raise InvalidCall(
                f"{self.zone!r:.60} is no time zone: use a name such as Europe/Berlin"
            ) from None

    @classmethod
    def of(cls, person: Person) -> Notices:
        """Return those of a person. A machine that lacks their time zone knows no quiet hours."""
        try:
            return cls(**json.loads(person.notices)) if person.notices else cls()
        except InvalidCall:
            return cls()

    def to_json(self) -> str:
        if self == Notices():
            return ""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(fields, sort_keys=True)

    def sentence(self) -> str:
        """Say it in words."""
        words = "Messages reach you at once"
        if self.quiet_from:
            words += f", but not from {self.quiet_from} to {self.quiet_until} ({self.zone})"
        return words + (", and only while you are away from the page." if self.only_away else ".")

    def quiet_end(self, now: Micros) -> Micros | None:
        """Return when the quiet hours end in which a time lies; ``None`` if it lies in none."""
        if not self.quiet_from:
            return None
        zone = ZoneInfo(self.zone)
        local = moment(now).astimezone(zone)
        begin = time.fromisoformat(self.quiet_from)
        end = time.fromisoformat(self.quiet_until)
        for days in (-1, 0):
            day = local.date() + timedelta(days=days)
            first = datetime.combine(day, begin, zone).astimezone(UTC)
            last_day = day if begin < end else day + timedelta(days=1)
            last = datetime.combine(last_day, end, zone).astimezone(UTC)
            if first <= local < last:
                return round(last.timestamp() * SECOND)
        return None


def set_notices(store: Store, by: Reviewer, notices: Notices) -> Notices:
    """Set when messages reach the person who calls this; return it as it is stored."""
    actor = reviewer_of(store, by, None)
    changed = change_person(store, actor.name, by=by, notices=notices.to_json())
    return Notices.of(changed.person)


def is_urgent(call: Call) -> bool:
    """Return whether people get a message about a request at once, whatever they have set."""
    return call.escalated and call.terms.risk.level == "critical"


def at_page(store: Store, person: str) -> bool:
    """Return whether a person has used the web app in the last minutes."""
    now = store.now()
    return any(
        row.kind == "session" and row.live(now) and row.last_used + _AT_PAGE > now
        for row in store.credentials(person)
    )
