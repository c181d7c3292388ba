"""What a server or a worker needs of an agent, ours or a framework's behind an adapter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from sayso.types import Request

if TYPE_CHECKING:
    from sayso.stores.base import Store


class Standing(Protocol):
    """Where a run stands after ``run`` or ``resume``."""

    @property
    def status(self) -> str:
        """``paused``, ``done``, ``failed`` or ``cancelled``."""

    @property
    def run(self) -> str:
        """The run's id."""

    @property
    def thread(self) -> str:
        """The conversation that it belongs to."""

    @property
    def output(self) -> Any:
        """The answer, when it is done."""

    @property
    def interruptions(self) -> tuple[Request, ...]:
        """What people are asked, while it is paused."""


@runtime_checkable
class Resumable(Protocol):
    """An agent that can be run, and resumed by the name of a run or a thread."""

    @property
    def name(self) -> str:
        """The name under which its calls stand in the store."""

    async def run(self, input: str, *, thread: str | None = None, requester: str = "") -> Standing:
        """Answer the user's words; ``paused`` if people are needed first."""

    async def resume(self, where: str) -> Standing:
        """Go on with a run that waits, or that a process left behind."""


def store_of(agent: Resumable) -> Store | None:
    """The store that an agent has, or its gate, if it is behind an adapter; none may be named."""
    if not getattr(agent, "names_store", True):
        return None
    store: Store | None = getattr(getattr(agent, "gate", None), "store", None)
    return store


def elsewhere(agent: Resumable, store: Store) -> str:
    """What to say of an agent whose runs are in another store: it would be waited for in vain."""
    named = store_of(agent)
    if named is None or named.incarnation == store.incarnation:
        return ""
    return f"{agent.name} names the store {named.url}, which is not {store.url}"
