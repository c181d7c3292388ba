"""A run in the caller's hands: which one it is, and decisions to be written when it resumes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assent import codec
from assent.errors import Conflict, InvalidDecision, KeyMissing, NotFound, Tampered
from assent.types import Approve, Decision, Edit, Json, Reject, Request, Respond

if TYPE_CHECKING:
    from assent.stores.base import Store

VERSION = 1
_KINDS: dict[str, type[Decision]] = {
    "approve": Approve,
    "edit": Edit,
    "reject": Reject,
    "respond": Respond,
}


@dataclass(frozen=True, slots=True)
class Staged:
    """A decision that is not written yet."""

    decision: Decision
    by: str


@dataclass(slots=True)
class RunState:
    """Names a run and its store. The conversation stays in the store, so that the state is small,
    nothing in it can go stale, and a forged one is worth nothing."""

    run: str
    thread: str
    agent: str
    store: Store | None = None
    incarnation: str = ""
    interruptions: tuple[Request, ...] = ()
    staged: list[Staged] = field(default_factory=list)
    #: The text that this was read from, and its signature; checked by the store.
    exported: tuple[str, str] | None = None

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
        wanted = request if isinstance(request, str) else request.id
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
                "this state came from text: give it to agent.resume, then export again"
            )
        if self.store.keys.is_ephemeral:
            raise KeyMissing(
                "a memory:// store has no lasting key, so its states cannot be exported: "
                "use sqlite:///, or set ASSENT_KEY"
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
            "open": [[r.id, r.digest] for r in self.interruptions],
            "staged": [_staged_json(s) for s in self.staged],
        }

    @classmethod
    def from_json(cls, text: str) -> RunState:
        """Read a state; its signature is checked by the store that it is given to."""
        try:
            outer = codec.parse(text)
            body = codec.parse(outer["state"])
            if body["version"] != VERSION:
                raise Conflict(
                    f"this state has version {body['version']!r}, and {VERSION} is known here: "
                    "resume by the thread instead"
                )
            state = cls(
                run=body["run"],
                thread=body["thread"],
                agent=body["agent"],
                incarnation=body["store"],
                staged=[_staged_from(s) for s in body["staged"]],
                exported=(outer["state"], outer["signature"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise Tampered("this is not a run state that to_json() wrote") from None
        return state

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


def _staged_json(staged: Staged) -> dict[str, Json]:
    decision = staged.decision
    shown: dict[str, Json] = {
        "type": decision.type,
        "by": staged.by,
        "request": decision.request,
        "digest": decision.seen_digest,
    }
    for name in ("args", "message", "value"):
        if hasattr(decision, name):
            shown[name] = getattr(decision, name)
    return shown


def _staged_from(value: dict[str, Any]) -> Staged:
    kind = _KINDS.get(value["type"])
    if kind is None:
        raise InvalidDecision(f"no decision of type {value['type']!r}", "type")
    extra = {name: value[name] for name in ("args", "message", "value") if name in value}
    decision = kind(request=value["request"], seen_digest=value["digest"], **extra)
    return Staged(decision, value["by"])
