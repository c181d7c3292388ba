"""The public nouns: calls, questions, requests, decisions, terms, grants and reviewers.

Pure values: no clock, no I/O, no third-party imports. Internal times are whole microseconds since
the epoch (``Micros``), because they are hashed and signed; the public ``Request`` has ``datetime``.
"""

from __future__ import annotations

import inspect
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import wraps
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, ParamSpec, TypeAlias, TypeVar, get_args

from sayso.errors import InvalidCall, InvalidDecision
from sayso.frozen import quickly_made

Micros: TypeAlias = int
SECOND: Micros = 1_000_000
Json: TypeAlias = Any

DecisionType = Literal["approve", "edit", "reject", "respond"]
DECISIONS: tuple[DecisionType, ...] = ("approve", "edit", "reject", "respond")

#: What a request asks for, and its status.
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
#: How to filter requests: ``closed`` means all that are not pending.
StatusFilter = Literal[RequestStatus, "closed", "any"]
Sort = Literal["oldest", "newest", "expiring"]
KINDS: tuple[str, ...] = get_args(RequestKind)
STATUS_FILTERS: tuple[str, ...] = get_args(StatusFilter)
SORTS: tuple[str, ...] = get_args(Sort)

#: How sure we are of who decided, from least to most.
Assurance = Literal["code", "os-user", "chat", "token", "session", "passkey"]
ASSURANCE: tuple[Assurance, ...] = ("code", "os-user", "chat", "token", "session", "passkey")

#: What running a call does outside: something that must happen once, something that may be repeated
#: with the same key, or nothing.
Effect = Literal["once", "idempotent", "read"]
#: What the exception of a call says about its effect: nothing in particular; that the reply was
#: lost (a time-out, a connection error, a cancellation); that the tool does not know; that nothing
#: happened.
Failure = Literal["error", "lost", "in_doubt", "not_executed"]
#: From least to most strict.
EFFECTS: tuple[Effect, ...] = ("read", "idempotent", "once")
#: Which reads are recorded: all of them, or only those that needed approval.
Recorded = Literal["all", "asked"]
RECORDED: tuple[Recorded, ...] = ("asked", "all")
#: Who may approve a call that a person rejected before: everyone who may decide it, or only the
#: person who rejected it and admins. From least to most strict.
Overturn = Literal["anyone", "rejecter"]
OVERTURNS: tuple[Overturn, ...] = ("anyone", "rejecter")
#: What a call gets if another call already had its effect: an error, or that call's result.
OnDuplicate = Literal["raise", "result"]
ON_DUPLICATE: tuple[OnDuplicate, ...] = ("result", "raise")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(at: Micros) -> datetime:
    """Convert an internal time to a ``datetime``."""
    return _EPOCH + timedelta(microseconds=at)


def micros_of(at: datetime) -> Micros:
    """Convert a ``datetime`` with a time zone to an internal time."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def iso(at: Micros | None) -> str | None:
    """Format an internal time for JSON; ``None`` stays ``None``."""
    return None if at is None else moment(at).isoformat()


VerdictName = Literal["allow", "ask", "deny"]
#: What happens to a request that was not decided in time. Time never approves.
OnExpiry = Literal["reject", "cancel"]


class Verdict(StrEnum):
    """A policy's verdict on a call."""

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
    """One choice of a question. Without a value, the label is the answer."""

    label: str
    value: Json = None
    description: str = ""

    @property
    def answer(self) -> Json:
        return self.label if self.value is None else self.value


def _option(given: Any, index: int) -> Option:
    """Return an option that was given as one, as its label, or as a mapping of its fields."""
    if isinstance(given, Option):
        return given
    if not isinstance(given, Mapping):
        return Option(given)
    unknown = sorted(map(str, given.keys() - {"label", "value", "description"}))
    if unknown or "label" not in given:
        wrong = f"has the unknown field {unknown[0]!r}" if unknown else "has no label"
        raise InvalidCall(
            f"an option {wrong}: its fields are label, value and description", f"options[{index}]"
        )
    return Option(**given)


@dataclass(frozen=True, slots=True)
class Question:
    """A question for a person: pick one, pick several, answer freely, or fill in a JSON Schema."""

    text: str
    options: tuple[Option, ...] = ()
    multiple: bool = False
    free_text: bool | None = None
    schema: Mapping[str, Json] | None = None

    if TYPE_CHECKING:
        # Options may also be strings or the fields of an Option, in any iterable.
        def __init__(
            self,
            text: str,
            options: Iterable[Option | str | Mapping[str, Json]] = (),
            multiple: bool = False,
            free_text: bool | None = None,
            schema: Mapping[str, Json] | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.text, str) or not self.text.strip():
            raise InvalidCall("a question needs a text", "text")
        if isinstance(self.options, str | Mapping) or not isinstance(self.options, Iterable):
            kind = type(self.options).__name__
            raise InvalidCall(f"options is a list of strings or Options, not {kind}", "options")
        options = tuple(_option(item, index) for index, item in enumerate(self.options))
        object.__setattr__(self, "options", options)
        if self.free_text is None:
            object.__setattr__(self, "free_text", not options and self.schema is None)
        self._check(options)

    def _check(self, options: tuple[Option, ...]) -> None:
        if len(options) == 1:
            raise InvalidCall("one option is not a choice: pass two or more, or none", "options")
        if options and self.schema is not None:
            raise InvalidCall("a question takes options or a schema, not both", "schema")
        if self.multiple and not options:
            raise InvalidCall("only a question with options can take several answers", "multiple")
        values: list[Json] = []
        for index, option in enumerate(options):
            if not isinstance(option.label, str) or not option.label.strip():
                raise InvalidCall("an option needs a label", f"options[{index}].label")
            if option.answer in values:
                raise InvalidCall("two options have the same value", f"options[{index}].value")
            values.append(option.answer)
        if not options and self.schema is None and not self.free_text:
            raise InvalidCall(
                "the question has no way to answer: pass options, a schema or free_text", "options"
            )


#: The arguments that an edit changes if it only removes some.
NO_ARGS: Mapping[str, Json] = MappingProxyType({})

P = ParamSpec("P")
T = TypeVar("T")

#: Names that people try for the arguments of a decision.
_LIKELY_NAMES = {
    **dict.fromkeys(("reason", "why", "comment"), "message"),
    **dict.fromkeys(("answer", "result", "response"), "value"),
    **dict.fromkeys(("arguments", "changes"), "args"),
    **dict.fromkeys(("remove", "delete"), "unset"),
}


def suggests_names(function: Callable[P, T]) -> Callable[P, T]:
    """Make the error about a likely wrong keyword name the right one."""
    parameters = inspect.signature(function).parameters
    wrong = {name: right for name, right in _LIKELY_NAMES.items() if right in parameters}

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        for name in kwargs:
            if name in wrong:
                raise TypeError(
                    f"{function.__qualname__}() has no argument {name!r}: pass {wrong[name]}="
                )
        return function(*args, **kwargs)

    return checked


@dataclass(frozen=True, slots=True)
class Decision:
    """A person's reply. ``request.approve()`` and its siblings bind it to what they saw."""

    type: ClassVar[DecisionType]
    request: str | None = field(default=None, kw_only=True)
    seen_digest: str | None = field(default=None, kw_only=True)
    #: The reason of a rejection, which the agent reads; else a note for the record.
    message: str = field(default="", kw_only=True)


@dataclass(frozen=True, slots=True)
class Approve(Decision):
    """Run the call exactly as shown."""

    type: ClassVar[DecisionType] = "approve"


@dataclass(frozen=True, slots=True)
class Edit(Decision):
    """Run the call with these arguments changed, and those named in ``unset`` removed.

    Each named argument is replaced whole. All others stay as they were shown.
    """

    args: Mapping[str, Json] = field(default_factory=dict)
    unset: Iterable[str] = ()
    type: ClassVar[DecisionType] = "edit"

    def __post_init__(self) -> None:
        if isinstance(self.unset, Iterable) and not isinstance(self.unset, str):
            object.__setattr__(self, "unset", tuple(self.unset))

    @classmethod
    def replacing(cls, shown: Mapping[str, Json], args: Mapping[str, Json]) -> Edit:
        """Return the edit that turns the arguments that were shown into exactly these."""
        return cls(dict(args), unset=[name for name in shown if name not in args])

    def applied_to(
        self, shown: Mapping[str, Json], validated: Mapping[str, Json] = NO_ARGS
    ) -> dict[str, Json]:
        """Return the complete arguments. Raise ``InvalidDecision`` if they cannot be made.

        A name that only ``validated`` has, such as that of a default, may be in ``unset`` too.
        """
        if not isinstance(self.args, Mapping):
            raise InvalidDecision("pass the changed arguments of an edit as an object", "args")
        if not isinstance(self.unset, tuple):
            raise InvalidDecision("pass the names of removed arguments as a list", "unset")
        for name in self.unset:
            if name in self.args:
                raise InvalidDecision(
                    f"{name!r:.80} is in args and in unset: change it or remove it", "unset"
                )
            if name not in shown and name not in validated:
                has = ", ".join(shown) or "none"
                raise InvalidDecision(
                    f"the call has no argument {name!r:.80} to remove; it has {has}", "unset"
                )
        values = {name: value for name, value in shown.items() if name not in self.unset}
        return {**values, **self.args}


@dataclass(frozen=True, slots=True)
class Reject(Decision):
    """Do not run the call; ``message`` is the reason. With ``stop``, also cancel its run."""

    message: str = ""
    stop: bool = False
    type: ClassVar[DecisionType] = "reject"


@dataclass(frozen=True, slots=True)
class Respond(Decision):
    """The answer to a question, or the result to use instead of running the call."""

    value: Json
    type: ClassVar[DecisionType] = "respond"


@dataclass(frozen=True, slots=True)
class Ran:
    """``settle=`` returns this if the effect of a call in doubt has happened, with its result."""

    result: Json = None


@dataclass(frozen=True, slots=True)
class DidNotRun:
    """``settle=`` returns this if the effect of a call in doubt has not happened.

    A person sees the evidence and decides.
    """

    evidence: str = ""


RiskLevel = Literal["low", "medium", "high", "critical"]
RISKS: tuple[RiskLevel, ...] = ("low", "medium", "high", "critical")
#: At these levels a request is decided on its own, and not by its requester.
HIGH_RISKS: tuple[RiskLevel, ...] = ("high", "critical")


@dataclass(frozen=True, slots=True)
class Risk:
    """How much harm a call could do, and why."""

    level: str = "low"
    reasons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.level not in RISKS:
            raise ValueError(f"risk level {self.level!r}: use one of {', '.join(RISKS)}")


#: Printable to Python but blank on screen: fillers, joiners and selectors of category L, M or S.
BLANK = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\ufffc"
    "\U00013441\U00013442\U00016fe4\U0001d159"
) | {chr(code) for span in ((0xFE00, 0xFE10), (0xE0100, 0xE01F0)) for code in range(*span)}

#: The prefix of groups in rules; a group is the same with and without it.
GROUP = "group:"
#: The prefix of models that review requests (``Rule.reviewer``).
MODEL = "model:"
#: Actors in the record that are not people.
_NOT_PERSONS = ("engine", "clock", "policy")
_NOT_PERSON_PREFIXES = ("agent:", "worker:", "attempt:", "policy:", "tool:", MODEL)
_MAX_NAME = 200


def plain_name(name: str) -> str:
    """Return the canonical form of a name, so that names that look alike are equal.

    NFKC turns look-alike forms of a letter into the letter; control, zero-width and blank
    characters are removed, and each run of spaces becomes one space.
    """
    if name.isascii() and name.isprintable():
        return " ".join(name.split())
    characters = "".join(
        " " if char in "\t\n\r" else char for char in unicodedata.normalize("NFKC", name)
    )
    return " ".join("".join(char for char in characters if not _is_hidden(char)).split())


def _is_hidden(char: str) -> bool:
    return char in BLANK or unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


def checked_name(name: object) -> str:
    """Return the canonical form of a person's or group's name. Raise ``ValueError`` if invalid."""
    if not isinstance(name, str) or not name.strip():
        raise ValueError("pass a name: the record says who decided")
    if len(name) > _MAX_NAME:
        raise ValueError(f"a name has at most {_MAX_NAME} characters; this one has {len(name):,}")
    if name.isascii() and name.isprintable():
        return plain_name(name)
    hidden = next((c for c in name.strip() if _is_hidden(c) and c not in "\t"), None)
    if hidden is not None:
        raise ValueError(f"the name {name!a:.60} contains U+{ord(hidden):04X}: remove it")
    return plain_name(name)


#: Begins the stored name of a requester whom an agent on another machine claims. Nobody has such a
#: name, so a claim gives nobody a right.
_CLAIM = "agent:"


def claimed_requester(name: str) -> str:
    """Return how a requester is stored whom an agent on another machine claims."""
    return _CLAIM + name if name else ""


def requester_name(stored: str) -> str:
    """Return the name of a stored requester, claimed or not."""
    return stored.removeprefix(_CLAIM)


def person_name(name: object) -> str:
    """Return the canonical form of a person's name. Raise ``ValueError`` if it is not a person."""
    checked = checked_name(name)
    if checked.startswith(GROUP):
        group = checked.removeprefix(GROUP)
        raise ValueError(
            f"{checked!r:.60} is a group: name a person, and add them to it with --group {group}"
        )
    if checked in _NOT_PERSONS or checked.startswith(_NOT_PERSON_PREFIXES):
        raise ValueError(f"{checked!r:.60} is not a person in the record: use another name")
    return checked


#: Letters of the Cyrillic and Greek scripts, and the Latin letters that they look like.
_LOOK = str.maketrans(
    "\u0430\u0432\u0435\u043a\u043c\u043d\u043e\u0440\u0441\u0442\u0443\u0445\u0456\u0458"
    "\u0455\u0501\u04bb\u051b\u051d\u044c\u0475\u04cf\u03b1\u03b2\u03b5\u03b7\u03b9\u03ba"
    "\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7\u03b3\u03c9\u0131",
    "abekmhopctyxijsdhqwbvlabenikvoptuxywi",
)


def look_of(name: str) -> str:
    """Return what a name looks like: equal for names that people would confuse.

    Case does not count, nor which of the Latin, Greek and Cyrillic scripts a letter is from.
    """
    return name.casefold().translate(_LOOK)


def may_be_requester(name: str, stored: str) -> bool:
    """Return whether a person may be the stored requester, who is then one who cannot approve.

    An application may write names otherwise than this store, and an agent only claims one. So
    names that look alike count as equal here, and nowhere else.
    """
    requester = plain_name(requester_name(stored))
    return bool(requester) and look_of(name) == look_of(requester)


@quickly_made
@dataclass(frozen=True, slots=True)
class Reviewer:
    """The person who decides, and how we know.

    ``assurance`` has to be proved by a token, a session or the operating system. On a ``Reviewer``
    that you create yourself it counts as ``code``, whatever it says; decide with ``token=`` to
    prove more. ``groups`` count only for people whom the store does not know; the groups of all
    others are those that the store has.
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


class _Written:
    """A value that rows hold as text. It keeps that text once it was made (``sayso.rows``)."""

    __slots__ = ("text",)

    text: str


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Terms(_Written):
    """What the policy requires for one call. Part of the digest of its request."""

    verdict: Verdict = Verdict.ASK
    rule: str = ""
    policy: str = ""
    allowed: tuple[str, ...] = DECISIONS
    description: str = ""
    reviewers: tuple[str, ...] = ()
    quorum: int = 1
    requester_decides: bool = True
    assurance: str = "code"
    #: How many seconds ago, at most, the person who decides has signed in.
    fresh: float | None = None
    risk: Risk = Risk()
    expires_in: float | None = None
    on_expiry: str = "reject"
    valid_for: float = 86_400.0
    effect: Effect = "once"
    #: Whether the tool, a rule or the agent set the effect. Not part of the digest: people do not
    #: see it.
    declared: bool = False
    #: Applies to reads. Not part of the digest, because no decision depends on it.
    record: Recorded = "all"
    #: Whether the tool or a rule named the risk. A person may decide in a chat only then. Not part
    #: of the digest: the level is.
    risk_declared: bool = False
    #: A template for the effect's key; people see the key that the call gets.
    effect_key: str = ""
    on_duplicate: OnDuplicate = "raise"
    overturn: Overturn = "anyone"
    #: After so many rejections in a row in one run, calls of the tool are refused without asking.
    max_rejections: int | None = None
    #: What a call of a coding agent is about, as JSON: parsed and resolved when it was judged
    #: (``sayso.hooks.footprints``). Grants compare it. "" for all other calls.
    footprint: str = ""
    #: Whether a rule of a preset decided, and not the user's. A coding agent then keeps its own
    #: rules and prompts. Not part of the digest: people do not see it.
    preset: bool = False
    #: What the calls of the rule may add up to, each with the key of its count
    #: (``sayso.policy.limits``). Not part of the digest: a person decides one call.
    limits: tuple[str, ...] = ()
    #: What the second policy says of the call: the verdict, the rule and the policy's digest. Empty
    #: without one. Not part of the digest, because it decides nothing.
    observed: tuple[str, ...] = ()
    #: The call is a plan that a gate proposed (``sayso.gate.steps``). Part of the digest then.
    plan: bool = False
    #: The model that reviews the request before people do, as "model:…", and whether it may allow
    #: the call. Part of the digest if a rule sets them.
    reviewer: str = ""
    reviewer_allows: bool = False
    #: What that model says of the request, if people decide it: its answer, its reason, and the
    #: digest of what it saw. Not part of the digest, because nothing relies on it.
    opinion: tuple[str, ...] = ()
    #: Whom a remote agent suggests to notify. It gives nobody a right, and takes none away.
    notify: tuple[str, ...] = ()
    #: ``Rule.notify``: the channels through which the rule notifies people, and whom.
    notify_via: tuple[str, ...] = ()
    #: After how many seconds people are reminded; after how many ``escalate_to`` may decide too.
    remind_after: float | None = None
    escalate_after: float | None = None
    escalate_to: tuple[str, ...] = ()

    def __hash__(self) -> int:
        """Hash a few fields: equal terms have equal ones, and there are too many to hash all."""
        return hash((self.verdict, self.rule, self.description, self.reviewers))

    @property
    def decisions(self) -> tuple[str, ...]:
        """What people may decide: what the terms allow, and always a rejection."""
        return self.allowed if "reject" in self.allowed else (*self.allowed, "reject")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared(Terms):
    """A tool's own terms, with the names of those that its author set.

    Two of them mean more if they were set than as a default: ``requester_decides`` then applies at
    any risk, and a rule can only raise ``effect``. A policy is given these; the terms of a call are
    plain ``Terms``.
    """

    stated: frozenset[str] = frozenset()

    __hash__ = Terms.__hash__


def stricter_effect(one: Effect, other: Effect) -> Effect:
    """Return the stricter of two effects: ``once``, then ``idempotent``, then ``read``."""
    return max(one, other, key=EFFECTS.index)


#: The terms that only a rule can set: who is notified, and when.
NOTICE_TERMS = ("notify_via", "remind_after", "escalate_after", "escalate_to")
#: The terms that only a rule can set: which model reviews a request first.
REVIEW_TERMS = ("reviewer", "reviewer_allows")
#: The terms that a tool, a rule or a remote agent can set.
SETTABLE_TERMS = tuple(
    name
    for name in Terms.__slots__
    if name
    not in (
        *("verdict", "rule", "policy", "description", "declared", "risk_declared"),
        *("footprint", "preset", "limits", "observed", "notify", "plan", "opinion"),
        *(*NOTICE_TERMS, *REVIEW_TERMS),
    )
)

_values = attrgetter(*Terms.__slots__)


def as_fields(terms: Terms) -> dict[str, Any]:
    """Return the fields of terms by name, without those of ``Declared``."""
    return dict(zip(Terms.__slots__, _values(terms), strict=True))


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Vote(_Written):
    """One approval (or edit) of one revision by one person."""

    type: str
    by: str
    at: Micros
    channel: str
    assurance: str
    digest: str
    signature: str
    message: str = ""
    #: As for ``Decided``.
    on_behalf_of: str = ""
    eligible: tuple[str, ...] = ()
    people_seq: int = 0
    eligible_digest: str = ""
    not_before: Micros = 0
    #: Always the same for an approval; here because the signature covers them.
    value: ClassVar[None] = None
    stop: ClassVar[bool] = False


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Decided(_Written):
    """A decision as stored: by whom, when, through which channel, and its signature."""

    type: str
    by: str
    at: Micros
    channel: str
    assurance: str
    digest: str
    signature: str
    message: str = ""
    value: str | None = None
    #: A rejection that also cancelled the run.
    stop: bool = False
    #: The person who is away and for whom ``by`` decided.
    on_behalf_of: str = ""
    #: The registered people who could decide it then: at the system thread's event of this number.
    #: If they are too many to name, their number and the hash of their names.
    eligible: tuple[str, ...] = ()
    people_seq: int = 0
    eligible_digest: str = ""
    #: When it takes effect, if it can be undone until then; else 0.
    not_before: Micros = 0
    #: What the page says of how it was read, as JSON: a claim that nothing verifies.
    claim: str = ""
    #: What undoing it needs, as JSON (``sayso.engine.undoing``).
    undo: str = field(default="", compare=False)

    def same_as(self, other: Decided) -> bool:
        """Return whether this is the same answer by the same person, so that it can be repeated."""
        answer = attrgetter("type", "by", "message", "value", "stop")
        return bool(answer(self) == answer(other))


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A standing approval of one agent's calls of one tool, within a scope, until an end."""

    id: str
    agent: str
    tool: str
    tool_digest: str
    scope: str
    by: str
    #: It covers nothing before this time.
    created: Micros
    uses_left: int | None = None
    #: For a plan: the call that took each step, or "".
    steps: tuple[str, ...] = ()
    ends: Micros | None = None
    revoked: Micros | None = None
    #: Made with the decision key: the row key alone cannot create a grant.
    signature: str = ""
    mac: str = ""

    def live(self, now: Micros) -> bool:
        """Return whether it is still valid at that time."""
        return (
            self.revoked is None
            and self.created <= now
            and (self.ends is None or now < self.ends)
            and (self.uses_left is None or self.uses_left > 0)
            and (not self.steps or "" in self.steps)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A standing rejection: an equal call of the agent is not asked about again for a while.

    ``sayso.engine.refusals`` says for how long. After that, people see it before they decide.
    """

    id: str
    #: The request that was rejected, with its run and thread.
    request: str
    run: str
    thread: str
    #: What it lasts for (``Run.scope``).
    scope: str
    agent: str
    tool: str
    tool_digest: str
    #: Of the arguments that the agent wrote.
    args_hash: str
    by: str
    at: Micros
    message: str = ""
    #: When it ends even if its scope does not change.
    ends: Micros | None = None
    overturn: Overturn = "anyone"
    lifted: Micros | None = None
    lifted_by: str = ""
    mac: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRejection:
    """A rejection of an equal call, as the people see it who decide the next one.

    All but the id is None for a reader who may not see the earlier request.
    """

    id: str
    request: str | None = None
    by: str | None = None
    at: datetime | None = None
    message: str | None = None
    #: Who may see the earlier request. Not shown.
    reviewers: tuple[str, ...] = field(default=(), repr=False)
    requester: str = field(default="", repr=False)


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class VoteMade:
    """One person's approval of one revision, as people see it."""

    type: str
    by: str
    at: datetime
    assurance: str
    #: The person who is away and for whom ``by`` voted.
    on_behalf_of: str = ""


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionMade:
    """The decision as people see it. ``args`` is set for an edit, ``value`` for an answer."""

    type: str
    by: str
    at: datetime
    channel: str
    assurance: str
    #: What made it: a "person", a "model", a "grant", a "window" of trust in the run, a "plan", a
    #: "rule" of the user, or a rule of a "preset".
    source: str = ""
    #: The id of that grant, window or plan.
    grant: str = ""
    #: The person who is away and for whom ``by`` decided.
    on_behalf_of: str = ""
    message: str = ""
    args: Mapping[str, Json] | None = None
    value: Json = None
    stop: bool = False
    #: It takes effect at this time, and ``by`` can undo it until then; None if it has taken effect.
    undo_until: datetime | None = None
    #: What the page says of how ``by`` read the request, which nothing verifies: for how many
    #: ``seconds`` it was open, and whether all of it was on the screen (``complete``).
    shown: Mapping[str, Json] | None = None


@quickly_made
@dataclass(frozen=True, slots=True)
class Execution:
    """The execution of a call, as opposed to the status of its request."""

    status: str
    attempts: int
    #: The result; for a call that failed, was cancelled or is in doubt, the reason as text.
    result: Json = None
    #: False if the call ran and its result could not be stored.
    kept: bool = True
    #: Whether the attempt of a call in doubt still runs, as far as its process renews its lease.
    #: Then the call cannot run again yet.
    attempt_running: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """What ``settle=`` found out about a call in doubt."""

    #: ``ran``, ``did_not_run`` or ``unknown``.
    answer: str
    #: What it found, or why it could not tell.
    text: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Opinion:
    """What a model says of a request that people decide. Nothing verifies it."""

    model: str
    #: ``allow``, ``ask`` or ``reject``.
    answer: str
    reason: str = ""


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A call that needs, or needed, a decision: everything that people need to make it."""

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
    #: The first thing that people read, made from the arguments; empty if the tool has no title.
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
    #: The arguments before an edit.
    original: Mapping[str, Json] | None = None
    #: What the model or an edit wrote, if a framework's validators make ``args`` of it. An edit
    #: changes these.
    written: Mapping[str, Json] | None = None
    #: What else the rule requires of the person who decides.
    requester_decides: bool = True
    assurance: str = "code"
    #: What running it changes, and the key that makes this effect unique in the store.
    effect: Effect = "once"
    effect_key: str = ""
    #: The facts that ``binds=`` returned, which are compared again before the start.
    binds: Json = None
    #: What ``settle=`` found out about the last doubt, if the tool declares it.
    evidence: Evidence | None = None
    #: Whether it is a plan: its ``args`` list the steps.
    plan: bool = False
    #: What the model says that reviewed it first.
    opinion: Opinion | None = None
    #: Whether an agent on another machine opened it, so that ``requester`` is that agent's claim.
    remote: bool = False
    #: Whom that agent suggests to notify.
    notify: tuple[str, ...] = ()
    #: Through which channels the rule notifies people, and whom.
    notify_via: tuple[str, ...] = ()
    #: When ``escalate_to`` may decide too; None if never, or if that time has come (``escalated``).
    escalates_at: datetime | None = None
    escalate_to: tuple[str, ...] = ()
    escalated: bool = False
    #: Who may approve it although an equal call was rejected before.
    overturn: Overturn = "anyone"
    #: Earlier rejections of an equal call that still count, newest first.
    refusals: tuple[EarlierRejection, ...] = ()

    @property
    def settled(self) -> bool:
        """Whether nobody has to decide it any more, and the decision cannot be undone."""
        undoable = self.decision is not None and self.decision.undo_until is not None
        return self.status != "pending" and not undoable

    @property
    def editable(self) -> Mapping[str, Json]:
        """The arguments that an edit changes: those that were written, before any validator."""
        return self.args if self.written is None else self.written

    def approve(self, message: str = "") -> Approve:
        """Return the approval of exactly what this object shows, with a note for the record."""
        return Approve(message=message, request=self.id, seen_digest=self.digest)

    @suggests_names
    def edit(self, args: Mapping[str, Json] = NO_ARGS, *, unset: Iterable[str] = ()) -> Edit:
        """Return an approval with the arguments in ``args`` changed, and those in ``unset``
        removed. All others stay the same."""
        edit = Edit(args, unset, request=self.id, seen_digest=self.digest)
        edit.applied_to(self.editable, self.args)
        return edit

    @suggests_names
    def reject(self, message: str = "", *, stop: bool = False) -> Reject:
        """Return a rejection with its reason. With ``stop``, it also cancels the run."""
        return Reject(message, stop, request=self.id, seen_digest=self.digest)

    @suggests_names
    def respond(self, value: Json) -> Respond:
        """Return the answer, or the result to use instead of running the call."""
        return Respond(value, request=self.id, seen_digest=self.digest)
