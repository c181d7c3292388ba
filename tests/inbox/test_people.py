"""Tokens of people: their owner and groups."""

from __future__ import annotations

import pytest

from sayso import NotAllowed
from sayso.inbox import add_person, create_token
from sayso.stores import open_store


def test_group_names_are_normalized() -> None:
    groups = ("group:finance", "legal ")
    ana = add_person(open_store("memory://"), " ana ", by="ops", groups=groups)
    assert (ana.name, ana.groups) == ("ana", ("finance", "legal"))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("group:finance", "--group finance"),
        ("clock", "not a person"),
        ("policy:deny all", "not a person"),
        ("agent:bot", "not a person"),
        (" ", "pass a name"),
    ],
)
def test_reserved_name_is_refused(name: str, said: str) -> None:
    store = open_store("memory://")
    with pytest.raises(NotAllowed, match=said):
        create_token(store, name, by="ops")
    assert store.people() == store.credentials() == []
