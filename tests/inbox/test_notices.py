"""When messages reach a person: quiet hours in their time zone, and only while they are away."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import sayso.audit
from sayso.errors import InvalidCall, NotAllowed
from sayso.inbox import add_person, create_token, remove_person
from sayso.inbox.directory import change_person
from sayso.inbox.notices import Notices, set_notices
from sayso.inbox.people import authenticate
from sayso.stores import open_store
from sayso.stores.base import Store
from sayso.stores.sqlite import SqliteStore
from sayso.types import SECOND

NIGHT = Notices(quiet_from="22:00", quiet_until="07:00", zone="Europe/Berlin")


@pytest.fixture
def store() -> Iterator[Store]:
    made = open_store("memory://")
    yield made
    made.close()


def micros(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * SECOND)


@pytest.mark.parametrize(
    ("now", "end"),
    [
        ("2026-11-19T20:59:59", None),
        ("2026-11-19T21:00:00", "2026-11-20T06:00:00"),
        ("2026-11-20T05:59:59", "2026-11-20T06:00:00"),
        ("2026-11-20T06:00:00", None),
        ("2026-03-28T23:00:00", "2026-03-29T05:00:00"),  # the clock goes forward in that night
        ("2026-10-25T05:59:59", "2026-10-25T06:00:00"),  # and back in that one
        ("2026-07-01T20:30:00", "2026-07-02T05:00:00"),
    ],
)
def test_quiet_hours_follow_the_zone(now: str, end: str | None) -> None:
    assert NIGHT.quiet_end(micros(now)) == (None if end is None else micros(end))


def test_quiet_hours_may_lie_within_a_day() -> None:
    lunch = Notices(quiet_from="12:00", quiet_until="13:00")
    assert lunch.quiet_end(micros("2026-11-19T12:30:00")) == micros("2026-11-19T13:00:00")
    assert lunch.quiet_end(micros("2026-11-19T13:30:00")) is None
    assert Notices().quiet_end(micros("2026-11-19T12:30:00")) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"quiet_from": "22:00"},
        {"quiet_from": "22:00", "quiet_until": "22:00"},
        {"quiet_from": "22:00", "quiet_until": "24:00"},
        {"quiet_from": "9:00", "quiet_until": "10:00"},
        {"zone": "Mars/Olympus"},
        {"zone": "../../etc/passwd"},
        {"zone": ""},
    ],
)
def test_wrong_notices_are_refused(fields: dict[str, str]) -> None:
    with pytest.raises(InvalidCall, match=r"such as|change one"):
        Notices(**fields)  # type: ignore[arg-type]


def test_person_sets_only_their_own_notices(store: Store) -> None:
    add_person(store, "ana", by="ops")
    add_person(store, "bo", by="ops")
    token, _ = create_token(store, "ana", by="ops")
    ana = authenticate(store, token)
    assert set_notices(store, ana, NIGHT) == NIGHT
    with pytest.raises(NotAllowed, match="only an admin"):
        change_person(store, "bo", by=ana, notices=NIGHT.to_json())
    with pytest.raises(NotAllowed, match="only an admin"):
        change_person(store, "ana", by=ana, notices=NIGHT.to_json(), add_groups=["finance"])
    assert sayso.audit.verify(store).ok
    remove_person(store, "ana", by="ops")
    person = store.person("ana")
    assert person is not None
    assert person.notices == ""
    assert sayso.audit.verify(store).ok


def test_unknown_zone_of_row_means_no_quiet_hours(store: Store) -> None:
    add_person(store, "ana", by="ops")
    change_person(store, "ana", by="ops", notices='{"zone": "Mars/Olympus"}')
    person = store.person("ana")
    assert person is not None
    assert Notices.of(person) == Notices()


def test_changed_notices_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with_key = SqliteStore(path)
    add_person(with_key, "ana", by="ops")
    with_key.close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE person SET notices = '{}'")
    connection.commit()
    connection.close()
    again = SqliteStore(path)
    assert not sayso.audit.verify(again).ok
    again.close()
