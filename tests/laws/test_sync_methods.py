"""The ``_sync`` methods have the signatures and docstrings of their async methods."""

import inspect

import pytest

import sayso
from sayso.client import Client, RemoteGate
from sayso.gate.framework import FrameworkAgent

DOORS = [sayso.Gate, sayso.Inbox, sayso.Agent, sayso.Context, Client, RemoteGate, FrameworkAgent]


def twins(door: type) -> list[str]:
    return [name for name in dir(door) if name.endswith("_sync") and not name.startswith("_")]


@pytest.mark.parametrize("door", DOORS)
def test_sync_method_matches_its_async_method(door: type) -> None:
    assert twins(door)
    for name in twins(door):
        twin, method = getattr(door, name), getattr(door, name.removesuffix("_sync"))
        wanted = inspect.signature(method)
        # An async iterator is a plain one in the twin.
        returned = str(wanted.return_annotation).replace("AsyncIterator", "Iterator")
        assert str(inspect.signature(twin).return_annotation) == returned, name
        assert inspect.signature(twin).parameters == wanted.parameters, name
        assert inspect.getdoc(twin) == inspect.getdoc(method), name
        assert twin.__name__ == name
        assert not inspect.iscoroutinefunction(inspect.unwrap(twin)), name


def test_misspelt_option_of_sync_method_is_refused() -> None:
    with sayso.Inbox("memory://") as inbox:
        with pytest.raises(TypeError, match="bye"):
            inbox.decide_sync("req_1", sayso.Approve(), bye="ana")  # type: ignore[call-arg]
        with pytest.raises(sayso.InvalidCall, match="no filter tol"):
            inbox.pending_sync(tol="refund")  # type: ignore[call-arg]


def test_overridden_method_has_a_sync_method() -> None:
    class Shouting(sayso.Inbox):
        async def get(self, request_id: str) -> sayso.Request:
            raise sayso.NotFound(request_id.upper())

    with Shouting("memory://") as inbox, pytest.raises(sayso.NotFound, match="REQ_1"):
        inbox.get_sync("req_1")
