"""Tokens of people: their owner and groups."""

from __future__ import annotations

import pytest

from sayso import NotAllowed, Reviewer
from sayso.inbox import add_person, create_token
from sayso.inbox.people import may_see_rejection
from sayso.stores import open_store
from sayso.types import EarlierRejection


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


@pytest.mark.parametrize(
    ("by", "reviewers", "requester", "seen"),
    [
        (Reviewer("ana"), (), "cleo", True),
        (Reviewer("ana"), ("group:finance",), "cleo", False),
        (Reviewer("ana"), ("group:finance",), "ana", True),
        (Reviewer("fin", ("finance",)), ("group:finance",), "cleo", True),
        (Reviewer("cleo", role="chat"), (), "cleo", True),
        (Reviewer("dora", role="chat"), (), "cleo", False),
        (Reviewer("bot", role="agent"), ("group:finance",), "cleo", True),
        (Reviewer("root", role="admin"), ("group:finance",), "cleo", True),
    ],
)
def test_earlier_rejection_is_seen_by_those_it_concerns(
    by: Reviewer, reviewers: tuple[str, ...], requester: str, seen: bool
) -> None:
    rejection = EarlierRejection(
        id="ref_1", by="fin", reviewers=reviewers, requester=requester, message="no"
    )
    assert may_see_rejection(by, rejection) is seen
