"""A run in the caller's hands: which one it is, and decisions to be written when it resumes.

Why it holds no conversation: ``docs/decisions/0015-a-state-names-its-run.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sayso import codec
from sayso.agent.exported import Staged, request_from, request_to, staged_from, staged_to
from sayso.errors import (
    Conflict,
    InvalidCall,
    InvalidDecision,
    KeyMissing,
    NotFound,
    Tampered,
)
from sayso.types import Decision, Json, Request

if TYPE_CHECKING:
    from sayso.stores.base import Store

VERSION = 1


@dataclass(slots=True)
class RunState:
    """Names a run and its store, shows what is open, and carries decisions not written yet."""

    run: str
    thread: str
    agent: str
    store: Store | None = field(default=None, repr=False)
    incarnation: str = field(default="", repr=False)
    interruptions: tuple[Request, ...] = ()
    staged: list[Staged] = field(default_factory=list)
    #: The text that this was read from, and its signature; checked by the store.
    exported: tuple[str, str] | None = field(default=None, repr=False)

    def approve(self, request: Request | str, *, by: str = "user") -> None:
        """Stage a yes to what the request shows."""
        self._stage(self._known(request).approve(), by)

    def edit(self, request: Request | str, args: Mapping[str, Json], *, by: str = "user") -> None:
        """Stage a yes with other arguments."""
        self._stage(self._known(request).edit(args), by)

    def reject(self, request: Request | str, message: str = "", *, by: str = "user") -> None:
        """Stage a no, and why."""
        self._stage(self._known(request).reject(message), by)

    def respond(self, request: Request | str, value: Json, *, by: str = "user") -> None:
        """Stage an answer, or a result to use instead of running the call."""
        self._stage(self._known(request).respond(value), by)

    def _known(self, request: Request | str) -> Request:
        wanted = request if isinstance(request, str) else getattr(request, "id", None)
        for known in self.interruptions:
            if known.id == wanted:
                return known if isinstance(request, str) else request
        raise NotFound(f"{wanted!r} is not an open request of run {self.run}")

    def _stage(self, decision: Decision, by: str) -> None:
        """The last word on a request counts, as long as none is written."""
        self.staged = [s for s in self.staged if s.decision.request != decision.request]
        self.staged.append(Staged(decision, by))

    def to_json(self) -> str:
        """The state as signed text, for callers that keep it themselves."""
        if self.store is None:
            raise KeyMissing(
                "this state came from text: give it to agent.resume, then export the next one"
            )
        if self.store.keys.is_ephemeral:
            raise KeyMissing(
                "a memory:// store has no lasting key, so its states cannot be exported: "
                "use sqlite:///, or set SAYSO_KEY"
            )
        body = codec.canonical(self._body()).decode()
        return codec.dumps({"state": body, "signature": self.store.keys.sign(body.encode())})

    def _body(self) -> dict[str, Json]:
        return {
            "version": VERSION,
            "store": self.incarnation,
            "run": self.run,
            "thread": self.thread,
            "agent": self.agent,
            "open": [request_to(request) for request in self.interruptions],
            "staged": [staged_to(staged) for staged in self.staged],
        }

    @classmethod
    def from_json(cls, text: str, store: Store | None = None) -> RunState:
        """Read a state; its signature is checked by the store that it is given to.

        With ``store`` it is checked at once, and the state can be exported again.
        """
        state = cls._read(text)
        if store is not None:
            state.check(store, state.agent)
            state.store = store
        return state

    @classmethod
    def _read(cls, text: str) -> RunState:
        try:
            outer = codec.parse(text)
            body = codec.parse(outer["state"])
            if not isinstance(outer["signature"], str):
                raise TypeError("a signature is text")
            version = body["version"]
            if type(version) is not int or version != VERSION:
                raise Conflict(
                    f"this state has another version than {VERSION}, which is all that is known "
                    "here: resume by its thread instead"
                )
            run, thread = body["run"], body["thread"]
            return cls(
                run=run,
                thread=thread,
                agent=body["agent"],
                incarnation=body["store"],
                interruptions=tuple(request_from(r, run, thread) for r in body["open"]),
                staged=[staged_from(s) for s in body["staged"]],
                exported=(outer["state"], outer["signature"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, InvalidCall, InvalidDecision):
            raise Tampered("this is not a run state that to_json() wrote") from None

    def check(self, store: Store, agent: str) -> None:
        """Refuse a state of another store or agent, and one that somebody changed."""
        if self.incarnation != store.incarnation:
            raise Conflict("this state belongs to another store: open the one that it came from")
        if self.agent != agent:
            raise Conflict(f"this state belongs to agent {self.agent!r}, not to {agent!r}")
        if self.exported is not None:
            text, signature = self.exported
            if not store.keys.verify(text.encode(), signature):
                raise Tampered("the signature of this state does not hold: it was changed")
