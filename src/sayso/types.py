"""The nouns that the outside sees: what is asked, what is answered, and by whom.

Pure values: no clock, no I/O, no third-party import. Times inside are whole microseconds since the
epoch (``Micros``), because they are hashed and signed; the public ``Request`` shows ``datetime``.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, get_args

from sayso.errors import InvalidCall, InvalidDecision

Micros: TypeAlias = int
Json: TypeAlias = Any

DecisionType = Literal["approve", "edit", "reject", "respond"]
DECISIONS: tuple[DecisionType, ...] = ("approve", "edit", "reject", "respond")

#: What a request asks for, and how its asking stands or ended.
RequestKind = Literal["approval", "question", "in_doubt"]
RequestStatus = Literal[
    "pending",
    "approved",
    "edited",
    "rejected",
    "responded",
    "expired",
    "cancelled",
    "superseded",
]
#: What requests are listed by: ``closed`` are all that do not wait any more.
StatusFilter = Literal[RequestStatus, "closed", "any"]
Sort = Literal["oldest", "newest", "expiring"]
KINDS: tuple[str, ...] = get_args(RequestKind)
STATUS_FILTERS: tuple[str, ...] = get_args(StatusFilter)
SORTS: tuple[str, ...] = get_args(Sort)

#: How sure we are of who decided, from least to most.
Assurance = Literal["code", "os-user", "token", "session"]
ASSURANCE: tuple[Assurance, ...] = ("code", "os-user", "token", "session")

#: What running a call changes outside: something that must happen once, something that may happen
#: again under the same key, or nothing.
Effect = Literal["once", "idempotent", "read"]
#: From least to most strict.
EFFECTS: tuple[Effect, ...] = ("read", "idempotent", "once")
#: Which reads leave a row: all of them, or only those that a person was asked about.
Recorded = Literal["all", "asked"]
RECORDED: tuple[Recorded, ...] = ("asked", "all")
#: What a call gets whose effect another call has had: an error, or the other's result.
OnDuplicate = Literal["raise", "result"]
ON_DUPLICATE: tuple[OnDuplicate, ...] = ("result", "raise")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(at: Micros) -> datetime:
    """The public form of an internal time."""
    return _EPOCH + timedelta(microseconds=at)


VerdictName = Literal["allow", "ask", "deny"]
#: What becomes of a request that nobody decided in time. Time never approves.
OnExpiry = Literal["reject", "cancel"]


class Verdict(StrEnum):
    """What a policy says of a call."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What an agent wants to do."""

    name: str
    args: Mapping[str, Json]
    id: str = ""


@dataclass(frozen=True, slots=True)
class Option:
    """One choice of a question; without a value, the label is the answer."""

    label: str
    value: Json = None
    description: str = ""

    @property
    def answer(self) -> Json:
        return self.label if self.value is None else self.value


@dataclass(frozen=True, slots=True)
class Question:
    """What only a person can say: pick one, pick several, write freely, or fill a JSON Schema."""

    text: str
    options: tuple[Option, ...] = ()
    multiple: bool = False
    free_text: bool | None = None
    schema: Mapping[str, Json] | None = None

    if TYPE_CHECKING:
        # A plain text is an option as well, and any iterable will do.
        def __init__(
            self,
            text: str,
            options: Iterable[Option | str] = (),
            multiple: bool = False,
            free_text: bool | None = None,
            schema: Mapping[str, Json] | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.text, str) or not self.text.strip():
            raise InvalidCall("a question needs a text", "text")
        if isinstance(self.options, str | Mapping) or not isinstance(self.options, Iterable):
            kind = type(self.options).__name__
            raise InvalidCall(f"options is a list of texts or Options, not {kind}", "options")
        options = tuple(o if isinstance(o, Option) else Option(o) for o in self.options)
        object.__setattr__(self, "options", options)
        if self.free_text is None:
            object.__setattr__(self, "free_text", not options and self.schema is None)
        self._check(options)

    def _check(self, options: tuple[Option, ...]) -> None:
        if len(options) == 1:
            raise InvalidCall("one option is no choice: give two or more, or none", "options")
        if options and self.schema is not None:
            raise InvalidCall("a question has options or a schema, not both", "schema")
        if self.multiple and not options:
            raise InvalidCall("only a question with options can take several answers", "multiple")
        seen: list[Json] = []
        for index, option in enumerate(options):
            if not isinstance(option.label, str) or not option.label.strip():
                raise InvalidCall("an option needs a label", f"options[{index}].label")
            if option.answer in seen:
                raise InvalidCall("two options with the same value", f"options[{index}].value")
            seen.append(option.answer)
        if not options and self.schema is None and not self.free_text:
            raise InvalidCall("nobody could answer: give options, a schema or free_text", "options")


@dataclass(frozen=True, slots=True)
class Decision:
    """A person's reply; ``request.approve()`` and its siblings bind it to what was seen."""

    type: ClassVar[DecisionType]
    request: str | None = field(default=None, kw_only=True)
    seen_digest: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Approve(Decision):
    """Yes, exactly as shown."""

    type: ClassVar[DecisionType] = "approve"


@dataclass(frozen=True, slots=True)
class Edit(Decision):
    """Yes, but with these arguments."""

    args: Mapping[str, Json]
    type: ClassVar[DecisionType] = "edit"


@dataclass(frozen=True, slots=True)
class Reject(Decision):
    """No, and why."""

    message: str = ""
    type: ClassVar[DecisionType] = "reject"


@dataclass(frozen=True, slots=True)
class Respond(Decision):
    """The answer to a question, or the result to use instead of running the call."""

    value: Json
    type: ClassVar[DecisionType] = "respond"


@dataclass(frozen=True, slots=True)
class Ran:
    """Of a call in doubt: its effect has happened, and this is its result."""

    result: Json = None


@dataclass(frozen=True, slots=True)
class DidNotRun:
    """Of a call in doubt: its effect has not happened. A person sees the evidence, and decides."""

    evidence: str = ""


RiskLevel = Literal["low", "medium", "high", "critical"]
RISKS: tuple[RiskLevel, ...] = ("low", "medium", "high", "critical")


@dataclass(frozen=True, slots=True)
class Risk:
    """How bad it could be, and why we think so."""

    level: str = "low"
    reasons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.level not in RISKS:
            raise ValueError(f"risk level {self.level!r}: use one of {', '.join(RISKS)}")


#: Printable to Python, blank to the eye: fillers, joiners and selectors of category L, M or S.
BLANK = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\ufffc"
    "\U00013441\U00013442\U00016fe4\U0001d159"
) | {chr(code) for span in ((0xFE00, 0xFE10), (0xE0100, 0xE01F0)) for code in range(*span)}

#: How rules name a group; it is the same group with and without it.
GROUP = "group:"
#: What the record calls those who act and are no people.
_NOBODY = ("engine", "clock", "policy")
_NOT_PEOPLE = ("agent:", "worker:", "attempt:", "policy:", "tool:")
_MAX_NAME = 200


def plain_name(name: str) -> str:
    """Return a name in the one form that is compared: two names that look alike are one.

    NFKC turns look-alike forms of a letter into the letter; control, zero-width and blank
    characters go, and each run of spaces becomes one.
    """
    if name.isascii() and name.isprintable():
        return " ".join(name.split())
    shown = "".join(
        " " if char in "\t\n\r" else char for char in unicodedata.normalize("NFKC", name)
    )
    return " ".join("".join(char for char in shown if not _is_hidden(char)).split())


def _is_hidden(char: str) -> bool:
    return char in BLANK or unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


def checked_name(name: object) -> str:
    """Return the one form of a person's or group's name, or ValueError that says what is wrong."""
    if not isinstance(name, str) or not name.strip():
        raise ValueError("give a name: the record says who decided")
    if len(name) > _MAX_NAME:
        raise ValueError(f"a name has at most {_MAX_NAME} characters, this one has {len(name):,}")
    hidden = next((c for c in name.strip() if _is_hidden(c) and c not in "\t"), None)
    if hidden is not None:
        raise ValueError(f"the name {name!a:.60} has U+{ord(hidden):04X} in it: leave that out")
    return plain_name(name)


def person_name(name: object) -> str:
    """Return the one form of a person's name, or ValueError; groups and our own parts are none."""
    checked = checked_name(name)
    if checked.startswith(GROUP):
        group = checked.removeprefix(GROUP)
        raise ValueError(
            f"{checked!r:.60} is a group: name a person, who is in it by --group {group}"
        )
    if checked in _NOBODY or checked.startswith(_NOT_PEOPLE):
        raise ValueError(f"{checked!r:.60} stands for no person in the record: give another name")
    return checked


@dataclass(frozen=True, slots=True)
class Reviewer:
    """Who decides, and how we know.

    ``assurance`` is earned: a token, a session or the operating system proves who somebody is. On
    a ``Reviewer`` that you make yourself it counts as ``code``, whatever it says; decide with
    ``token=`` to prove more. Groups that you name count only for people whom the store does not
    know: of all others, their tokens say in which groups they are.
    """

    name: str
    groups: tuple[str, ...] = ()
    assurance: str = "code"
    role: str = "reviewer"

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", person_name(self.name))
        object.__setattr__(self, "groups", tuple(map(plain_name, self.groups)))
        if self.assurance not in ASSURANCE:
            raise ValueError(f"assurance {self.assurance!r}: use one of {', '.join(ASSURANCE)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the policy demands for one call: fixed when it is asked, and part of its digest."""

    verdict: Verdict = Verdict.ASK
    rule: str = ""
    policy: str = ""
    allowed: tuple[str, ...] = DECISIONS
    description: str = ""
    reviewers: tuple[str, ...] = ()
    quorum: int = 1
    requester_decides: bool = True
    assurance: str = "code"
    risk: Risk = Risk()
    expires_in: float | None = None
    on_expiry: str = "reject"
    valid_for: float = 86_400.0
    effect: Effect = "once"
    #: Only of a read: nobody relies on it, so it is no part of the digest.
    record: Recorded = "all"
    #: A template for the key of the effect; what people see is the call's own key.
    effect_key: str = ""
    on_duplicate: OnDuplicate = "raise"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared(Terms):
    """A tool's own terms, with the names of those that its author wrote down.

    Two of them count for more when they were written down than as a default: ``requester_decides``
    holds whatever the risk, and ``effect`` can only be raised by a rule. A policy is given these;
    the terms of a call are plain.
    """

    stated: frozenset[str] = frozenset()


def stricter_effect(one: Effect, other: Effect) -> Effect:
    """The stricter of two effects: ``once`` before ``idempotent`` before ``read``."""
    return max(one, other, key=EFFECTS.index)


def as_fields(terms: Terms) -> dict[str, Any]:
    """What terms say, by name."""
    return {name: getattr(terms, name) for name in Terms.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One approval (or edit) of one revision by one person."""

    type: str
    by: str
    at: Micros
    channel: str
    assurance: str
    digest: str
    signature: str
    message: str = ""
    #: An approval gives none; it is here because the signature covers it.
    value: ClassVar[None] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A decision as recorded: who, when, through what, and the signature over it."""

    type: str
    by: str
    at: Micros
    channel: str
    assurance: str
    digest: str
    signature: str
    message: str = ""
    value: str | None = None

    def same_as(self, other: Decided) -> bool:
        """Whether this is the same answer by the same person, so that a repeat is only an echo."""
        return (self.type, self.by, self.message, self.value) == (
            other.type,
            other.by,
            other.message,
            other.value,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A standing yes: for one agent and one tool, within a scope, until an end."""

    id: str
    agent: str
    tool: str
    tool_digest: str
    scope: str
    by: str
    created: Micros
    uses_left: int | None = None
    ends: Micros | None = None
    revoked: Micros | None = None
    #: Made with the decision key when it was given: a row key alone gives no grant.
    signature: str = ""
    mac: str = ""

    def live(self, now: Micros) -> bool:
        """Whether it still says yes at that time."""
        return (
            self.revoked is None
            and (self.ends is None or now < self.ends)
            and (self.uses_left is None or self.uses_left > 0)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteMade:
    """One person's yes to one revision, as people see it."""

    type: str
    by: str
    at: datetime
    assurance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionMade:
    """The decision that counts, as people see it; ``args`` are an edit's, ``value`` an answer's."""

    type: str
    by: str
    at: datetime
    channel: str
    assurance: str
    message: str = ""
    args: Mapping[str, Json] | None = None
    value: Json = None


@dataclass(frozen=True, slots=True)
class Execution:
    """What became of the call itself, beside what became of the asking."""

    status: str
    attempts: int
    #: What it gave; of one that failed or was called off, why, as a text.
    result: Json = None
    #: False if the call ran and its result could not be stored.
    kept: bool = True


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the other side said when it was asked about a call in doubt."""

    #: ``ran``, ``did_not_run`` or ``unknown``.
    answer: str
    #: What it saw, or why it could not answer.
    text: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A call that people were asked about: everything they need in order to decide."""

    id: str
    kind: RequestKind
    status: RequestStatus
    agent: str
    run: str
    thread: str
    tool: str | None
    args: Mapping[str, Json]
    schema: Mapping[str, Json] | None
    question: Question | None
    #: What a person reads first, made of the arguments; empty if the tool declares none.
    title: str
    description: str
    note: str
    preview: Json
    digest: str
    revision: int
    allowed: tuple[str, ...]
    reviewers: tuple[str, ...]
    quorum: int
    votes: tuple[VoteMade, ...]
    risk: Risk
    rule: str
    requester: str
    created_at: datetime
    expires_at: datetime | None
    decision: DecisionMade | None
    execution: Execution
    original: Mapping[str, Json] | None = None
    #: What else its rule asks of who decides.
    requester_decides: bool = True
    assurance: str = "code"
    #: What running it changes, and the key that makes this effect unique in the store.
    effect: Effect = "once"
    effect_key: str = ""
    #: What the other side said of its last doubt, if the tool can ask it (``settle=``).
    evidence: Evidence | None = None
    #: Whether an agent on another machine opened it, so that ``requester`` is that agent's claim.
    remote: bool = False

    def approve(self) -> Approve:
        """Yes to what this object shows."""
        return Approve(request=self.id, seen_digest=self.digest)

    def edit(self, args: Mapping[str, Json]) -> Edit:
        """Yes with other arguments; what is left out of ``args`` keeps its value."""
        if not isinstance(args, Mapping):
            raise InvalidDecision("an edit gives the new arguments as an object", "args")
        merged = {**self.args, **args}
        return Edit(merged, request=self.id, seen_digest=self.digest)

    def reject(self, message: str = "") -> Reject:
        """No, and why."""
        return Reject(message, request=self.id, seen_digest=self.digest)

    def respond(self, value: Json) -> Respond:
        """The answer, or the result to use instead of running the call."""
        return Respond(value, request=self.id, seen_digest=self.digest)
