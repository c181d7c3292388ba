"""An edit is what runs, or people see first what the tool makes of it."""

from __future__ import annotations

from typing import Any

import pytest
from cases import Case
from pydantic import BaseModel, Field, field_validator

from sayso import Denied
from sayso.audit import verify


class Item(BaseModel):
    name: str
    tags: list[str] = Field(default_factory=lambda: ["vip"])

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name == "nobody":
            raise ValueError("there is no such item")
        return name


def packing(case: Case) -> Any:
    @case.gate.guard(needs_approval=True)
    def pack(item: Item) -> str:
        case.ran.append(item.model_dump())
        return "packed"

    return pack


def test_edit_completed_by_the_tool_is_asked_again(case: Case) -> None:
    """A default that only the code knows is in no schema, so that the inbox cannot put it in."""
    pack = packing(case)
    request = case.paused(lambda: pack(Item(name="a", tags=[])))
    edited = case.decide(request.edit({"item": {"name": "b"}}))
    assert edited.args == {"item": {"name": "b"}}
    again = case.paused(lambda: pack(Item(name="a", tags=[])))
    assert (again.id, again.status, case.ran) == (request.id, "pending", [])
    assert again.args == {"item": {"name": "b", "tags": ["vip"]}}
    assert again.digest not in (request.digest, edited.digest)
    assert "reads them" in case.store.chain("order-17")[-1].body  # type: ignore[operator]
    case.decide(again.approve())
    assert case.enter(lambda: pack(Item(name="a", tags=[]))) == "packed"
    assert case.ran == [{"name": "b", "tags": ["vip"]}]
    assert verify(case.store).ok


def test_edit_refused_by_the_tool_does_not_run(case: Case) -> None:
    pack = packing(case)
    request = case.paused(lambda: pack(Item(name="a")))
    case.decide(request.edit({"item": {"name": "nobody", "tags": []}}))
    with pytest.raises(Denied, match="no such item"):
        case.enter(lambda: pack(Item(name="a")))
    assert case.ran == []
    assert case.inbox.get_sync(request.id).status == "cancelled"
    assert verify(case.store).ok


def test_complete_edit_runs_as_approved(case: Case) -> None:
    pack = packing(case)
    request = case.paused(lambda: pack(Item(name="a")))
    case.decide(request.edit({"item": {"name": "b", "tags": []}}))
    assert case.enter(lambda: pack(Item(name="a"))) == "packed"
    assert case.ran == [{"name": "b", "tags": []}]
