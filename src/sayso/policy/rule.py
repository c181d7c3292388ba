"""``Rule``: which calls a rule of a policy matches, and what it requires for them."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Awaitable, Callable, Iterable, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sayso.errors import InvalidPolicy
from sayso.policy.condition import Condition
from sayso.policy.limits import Duration, Limit, bound_text, duration_text, parse_duration
from sayso.policy.template import BadTemplate, check_template
from sayso.types import (
    ASSURANCE,
    DECISIONS,
    EFFECTS,
    GROUP,
    HIGH_RISKS,
    ON_DUPLICATE,
    OVERTURNS,
    RECORDED,
    RISKS,
    Assurance,
    DecisionType,
    Effect,
    Json,
    OnDuplicate,
    OnExpiry,
    Overturn,
    Recorded,
    Risk,
    RiskLevel,
    ToolCall,
    Verdict,
    VerdictName,
    checked_name,
)

Args: TypeAlias = dict[str, Json]
Predicate: TypeAlias = Callable[[Args], bool | Awaitable[bool]]
Describe: TypeAlias = Callable[[ToolCall], str]

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-4]):([0-5]\d)", re.ASCII)
#: A model of a provider, or the name of a function.
_MODEL = re.compile(r"model:(?:openai:[^\s:][^\s]{0,120}|[A-Za-z0-9][\w.-]{0,120})", re.ASCII)
_CHANNEL = re.compile(r"[a-z][a-z0-9_-]{0,31}", re.ASCII)
_MAX_QUORUM = 100
_MAX_REJECTIONS = 1000

#: Terms that make sense only if people are asked; with allow or deny they are a mistake.
_ASK_ONLY_TERMS = (
    "allowed",
    "reviewers",
    "quorum",
    "requester_decides",
    "assurance",
    "fresh",
    "expires_in",
    "on_expiry",
    "reviewer",
    "reviewer_allows",
    "notify",
    "remind_after",
    "escalate_after",
    "escalate_to",
)


def _strings(value: object, name: str) -> tuple[str, ...]:
    """Return one string or several, each once, none of them empty or padded."""
    if isinstance(value, Set):
        value = sorted(value, key=str)  # the digest needs one order; a set's differs per process
    listed = (
        tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
    )
    if not all(isinstance(item, str) and item and item == item.strip() for item in listed):
        raise InvalidPolicy(
            f"{name}={value!r}: use strings that are not empty and have no spaces around them"
        )
    return tuple(dict.fromkeys(listed))


def _nonempty_strings(value: object, name: str, otherwise: str) -> tuple[str, ...]:
    """Return at least one string: an empty list would silently match nothing, or everything."""
    listed = _strings(value, name)
    if not listed:
        raise InvalidPolicy(f"{name}={value!r}: name at least one, or leave it out {otherwise}")
    return listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Gives calls that meet all of its conditions a verdict and terms.

    Conditions: ``tool`` and ``agent`` (a name or a glob, or several), ``when`` (a predicate over a
    copy of the arguments, sync or async) or ``where`` (a condition as text, such as
    "amount > 100"), ``hours`` ("09:00-17:30", may cross midnight), ``days`` ("mon", …) and
    ``until``, after which it matches nothing ("2027-01-31"), all in ``timezone``. Terms that you
    leave out keep what the tool itself declares. ``effect`` says what
    running the tool changes; it can raise what the tool's author declared, never lower it. With
    ``record="asked"``, reads that needed no approval leave no row. ``effect_key`` makes the effect
    unique in the store, as "refund:{order}" does for each order. With ``overturn="rejecter"``, a
    call that a person rejected before is approved only by that person or an admin. ``fresh`` is how
    long ago, at most, whoever decides has signed in. After
    ``max_rejections`` rejections of the tool in a row, in one run, its calls are refused without
    asking; for a shell command, of the program. ``notify`` names channels, and whom to reach
    there: "push", "mail:group:finance", "slack:#ops". People are reminded once after
    ``remind_after``; after ``escalate_after``, the people and groups in ``escalate_to`` may decide
    too. ``limits`` is what its calls may add up to
    without a person, such as "sum(amount) <= 1000 per 1d". ``reviewer`` names a model that looks at
    each request first, such as "model:openai:gpt-4o-mini", and may reject it; with
    ``reviewer_allows``, it may also allow calls below risk high.
    """

    tool: str | Iterable[str] = field(default="*", kw_only=False)
    agent: str | Iterable[str] = "*"
    when: Predicate | None = None
    where: str | None = None
    hours: str | None = None
    days: str | Iterable[str] | None = None
    timezone: str = "UTC"
    until: str | None = None
    verdict: Verdict | VerdictName = Verdict.ASK
    name: str = ""
    allowed: Iterable[DecisionType] | None = None
    description: str | Describe | None = None
    reviewers: str | Iterable[str] | None = None
    quorum: int | None = None
    requester_decides: bool | None = None
    assurance: Assurance | None = None
    fresh: Duration | None = None
    risk: Risk | RiskLevel | None = None
    reasons: str | Iterable[str] = ()
    expires_in: Duration | None = None
    on_expiry: OnExpiry | None = None
    valid_for: Duration | None = None
    effect: Effect | None = None
    record: Recorded | None = None
    effect_key: str | None = None
    on_duplicate: OnDuplicate | None = None
    overturn: Overturn | None = None
    max_rejections: int | None = None
    notify: str | Iterable[str] | None = None
    remind_after: Duration | None = None
    escalate_after: Duration | None = None
    escalate_to: str | Iterable[str] | None = None
    limits: str | Iterable[str] | None = None
    reviewer: str | None = None
    reviewer_allows: bool | None = None
    #: Whether it belongs to a preset, and not to the user; see ``Terms.preset``.
    preset: bool = False
    _zone: tzinfo = field(default=UTC, init=False, repr=False, compare=False)
    _until: datetime | None = field(default=None, init=False, repr=False, compare=False)
    _span: tuple[int, int] | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check_texts()
        self._set(tool=_nonempty_strings(self.tool, "tool", "for all tools"))
        self._set(agent=_nonempty_strings(self.agent, "agent", "for all agents"))
        try:
            self._set(verdict=Verdict(self.verdict))
        except ValueError:
            raise InvalidPolicy(f"verdict={self.verdict!r}: use allow, ask or deny") from None
        self._check_predicate()
        self._check_people()
        self._check_risk()
        self._check_expiry()
        self._check_notices()
        self._check_effect()
        self._check_effect_key()
        self._check_rejections()
        self._check_limits()
        self._check_reviewer()
        self._check_time()
        self._check_asking()

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _check_texts(self) -> None:
        for name in ("name", "where", "timezone", "hours", "until"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise InvalidPolicy(f"{name}={value!r}: use a string")
        describes = self.description is None or isinstance(self.description, str)
        if not describes and not callable(self.description):
            raise InvalidPolicy(
                f"description={self.description!r}: use a string or a function of the call"
            )

    def _check_predicate(self) -> None:
        if isinstance(self.when, Condition):  # made from `where`, which may have been replaced
            self._set(when=None)
        if self.when is not None and not callable(self.when):
            raise InvalidPolicy(f"when={self.when!r}: pass a function of the arguments")
        if self.where is not None and self.when is not None:
            raise InvalidPolicy("a rule takes when= or where=, not both: put all of it into when=")
        if self.where is not None:
            self._set(when=Condition.parse(self.where))

    def _check_people(self) -> None:
        if self.allowed is not None:
            self._set(allowed=allowed_decisions(self.allowed))
        if self.quorum is not None and (
            type(self.quorum) is not int or not 1 <= self.quorum <= _MAX_QUORUM
        ):
            raise InvalidPolicy(
                f"quorum={self.quorum!r}: use a whole number of people, 1 to {_MAX_QUORUM}"
            )
        if (self.quorum or 1) > 1 and self.allowed is not None and "approve" not in self.allowed:
            raise InvalidPolicy(
                f"quorum={self.quorum}: only approvals count, and approve is not allowed here "
                f"({', '.join(self.allowed)}): leave out the quorum; one answer is enough"
            )
        if self.reviewers is not None:
            self._set(reviewers=_reviewers(self.reviewers, self.quorum or 1))
        if type(self.requester_decides) not in (bool, type(None)):
            raise InvalidPolicy(f"requester_decides={self.requester_decides!r}: use true or false")
        if self.assurance is not None and self.assurance not in ASSURANCE:
            raise InvalidPolicy(f"assurance={self.assurance!r}: use {', '.join(ASSURANCE)}")

    def _check_risk(self) -> None:
        reasons = _strings(self.reasons, "reasons")
        self._set(reasons=reasons)
        if self.risk is None and reasons:
            raise InvalidPolicy(f"reasons={self.reasons!r}: also set risk=")
        if self.risk is None:
            return
        if not isinstance(self.risk, Risk) and self.risk not in RISKS:
            raise InvalidPolicy(f"risk={self.risk!r}: use {', '.join(RISKS)}")
        risk = self.risk if isinstance(self.risk, Risk) else Risk(self.risk)
        all_reasons = dict.fromkeys((*_strings(risk.reasons, "reasons"), *reasons))
        self._set(risk=Risk(risk.level, tuple(all_reasons)))

    def _check_expiry(self) -> None:
        if self.on_expiry not in (None, "reject", "cancel"):
            raise InvalidPolicy(
                f"on_expiry={self.on_expiry!r}: use reject or cancel; time never approves"
            )
        self._set(expires_in=parse_duration(self.expires_in, "expires_in"))
        self._set(valid_for=parse_duration(self.valid_for, "valid_for"))
        self._set(fresh=parse_duration(self.fresh, "fresh"))

    def _check_notices(self) -> None:
        if self.notify is not None:
            self._set(notify=_routes(self.notify))
        if self.escalate_to is not None:
            self._set(escalate_to=_people(self.escalate_to, "escalate_to"))
        if (self.escalate_after is None) != (self.escalate_to is None):
            raise InvalidPolicy("escalate_after and escalate_to belong together: set both or none")
        for name in ("remind_after", "escalate_after"):
            seconds = parse_duration(getattr(self, name), name)
            expires_in = parse_duration(self.expires_in, "expires_in")
            self._set(**{name: seconds})
            if seconds is not None and expires_in is not None and seconds >= expires_in:
                raise InvalidPolicy(
                    f"{name}: the request expires before that, after {expires_in:g} seconds: use "
                    "a shorter time"
                )

    def _check_effect(self) -> None:
        if self.effect is not None and self.effect not in EFFECTS:
            raise InvalidPolicy(f'effect={self.effect!r}: use "once", "idempotent" or "read"')
        if self.record is not None and self.record not in RECORDED:
            raise InvalidPolicy(f'record={self.record!r}: use "all" or "asked"')
        if self.record == "asked" and self.effect in ("once", "idempotent"):
            raise InvalidPolicy(
                f'record="asked": only a read can be left out of the record, and effect is '
                f'"{self.effect}": use effect="read", or leave record out'
            )

    def _check_effect_key(self) -> None:
        if self.on_duplicate is not None and self.on_duplicate not in ON_DUPLICATE:
            raise InvalidPolicy(f'on_duplicate={self.on_duplicate!r}: use "raise" or "result"')
        if self.effect_key is None:
            return
        try:
            check_template(self.effect_key)
        except BadTemplate as error:
            raise InvalidPolicy(f"effect_key={self.effect_key!r:.80}: {error}") from None
        if self.effect == "read":
            raise InvalidPolicy(
                f"effect_key={self.effect_key!r}: a read has no effect to keep unique: leave out "
                "effect_key or effect"
            )

    def _check_rejections(self) -> None:
        if self.overturn is not None and self.overturn not in OVERTURNS:
            raise InvalidPolicy(f'overturn={self.overturn!r}: use "anyone" or "rejecter"')
        most = self.max_rejections
        if most is not None and (type(most) is not int or not 1 <= most <= _MAX_REJECTIONS):
            raise InvalidPolicy(
                f"max_rejections={most!r}: use a whole number, 1 to {_MAX_REJECTIONS}"
            )

    def _check_limits(self) -> None:
        if self.limits is None:
            return
        if self.verdict is Verdict.DENY:
            raise InvalidPolicy('verdict="deny" has nothing to count: leave out limits')
        texts = _nonempty_strings(self.limits, "limits", "for no limit")
        self._set(limits=tuple(Limit.parse(text).text for text in texts))

    def _check_reviewer(self) -> None:
        if self.reviewer is not None and (
            not isinstance(self.reviewer, str) or not _MODEL.fullmatch(self.reviewer)
        ):
            raise InvalidPolicy(
                f"reviewer={self.reviewer!a:.80}: name a model, as in model:openai:gpt-4o-mini, or "
                "a function of the gate's models=, as in model:triage; people are reviewers="
            )
        if type(self.reviewer_allows) not in (bool, type(None)):
            raise InvalidPolicy(f"reviewer_allows={self.reviewer_allows!r}: use true or false")
        if not self.reviewer_allows:
            return
        if self.reviewer is None:
            raise InvalidPolicy("reviewer_allows: also set reviewer=")
        if (self.quorum or 1) > 1:
            raise InvalidPolicy(
                f"reviewer_allows: a model has no vote, and quorum is {self.quorum}: leave out one "
                "of them"
            )
        if isinstance(self.risk, Risk) and self.risk.level in HIGH_RISKS:
            raise InvalidPolicy(
                f"reviewer_allows: no model allows a call of {self.risk.level} risk: leave it out"
            )

    @property
    def bound_limits(self) -> tuple[str, ...]:
        """The limits with the keys of their counts, for the terms of a call."""
        limits = (Limit.parse(text) for text in self.limits or ())
        return tuple(bound_text(limit.of_rule(self.tool, self.agent)) for limit in limits)

    def _check_time(self) -> None:
        if self.days is not None:
            listed = _nonempty_strings(self.days, "days", "for every day")
            if wrong := [day for day in listed if day not in DAYS]:
                raise InvalidPolicy(f"days={wrong!r}: use {', '.join(DAYS)}")
            self._set(days=tuple(day for day in DAYS if day in listed))
        try:
            self._set(_zone=UTC if self.timezone == "UTC" else ZoneInfo(self.timezone))
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise InvalidPolicy(
                f"timezone={self.timezone!r}: use a name such as Europe/Berlin"
            ) from None
        if self.hours is not None:
            self._set(_span=_span(self.hours))
        if self.until is not None:
            self._set(_until=self._end(self.until))

    def _end(self, until: str) -> datetime:
        try:
            end = datetime.fromisoformat(until)
        except ValueError:
            raise InvalidPolicy(
                f"until={until!r:.80}: write a date or a time, such as 2027-01-31 or "
                "2027-01-31T18:00"
            ) from None
        return end if end.tzinfo is not None else end.replace(tzinfo=self._zone)

    def _check_asking(self) -> None:
        useless = [name for name in _ASK_ONLY_TERMS if getattr(self, name) is not None]
        if self.verdict is not Verdict.ASK and useless:
            raise InvalidPolicy(
                f'verdict="{self.verdict}" does not ask: leave out {", ".join(useless)}, '
                'or use verdict="ask"'
            )

    @property
    def is_certain(self) -> bool:
        """Whether it matches every call of its tools by its agents, at any time."""
        times = (self.hours, self.days, self.until)
        return self.when is None and times == (None, None, None)

    def concerns(self, tool: str, agent: str) -> bool:
        """Return whether it may match calls of this tool by this agent."""
        return _any_glob(self.tool, tool) and _any_glob(self.agent, agent)

    def unmet(self, call: ToolCall, agent: str, now: datetime) -> str:
        """Return the first condition that the call does not meet: tool, agent, until, days, hours.

        Empty if it meets them all. The caller evaluates the predicate.
        """
        if not _any_glob(self.tool, call.name):
            return "tool"
        if not _any_glob(self.agent, agent):
            return "agent"
        if self._until is not None and now >= self._until:
            return "until"
        if self._span is None and self.days is None:
            return ""
        local = self.local(now)
        start, end = self._span or (0, 24 * 60)
        minute = local.hour * 60 + local.minute
        after_midnight = end < start and minute < end
        # Hours after midnight belong to the day before: "fri" 22:00-06:00 ends on Saturday.
        today = DAYS[(local.weekday() - after_midnight) % 7]
        if self.days is not None and today not in self.days:
            return "days"
        inside = after_midnight or (start <= minute if end < start else start <= minute < end)
        return "" if inside else "hours"

    def local(self, now: datetime) -> datetime:
        """Return the time in this rule's time zone."""
        if now.tzinfo is None:
            raise ValueError("now needs a time zone: use datetime.now(UTC)")
        return now.astimezone(self._zone)

    def sentence(self) -> str:
        """Return what the rule says, as one sentence for people."""
        calls = f"Calls of {' and '.join(self.tool)}"
        if tuple(self.tool) == ("*",):
            calls = "All calls"
        if tuple(self.agent) != ("*",):
            calls += f" by {' and '.join(self.agent)}"
        if self.where is not None:
            calls += f" where {self.when}"
        elif self.when is not None:
            calls += f" for which {getattr(self.when, '__name__', 'a function')} returns True"
        if self.days is not None:
            calls += f" on {', '.join(self.days)}"
        if self.hours is not None:
            calls += f" at {self.hours}"
        if self.until is not None:
            calls += f" until {self.until}"
        if (self.days, self.hours, self.until) != (None, None, None):
            calls += f" ({self.timezone})"
        within = f", within {' and '.join(self.limits)}" if self.limits else ""
        if self.verdict is not Verdict.ASK:
            return f"{calls} {'run' if self.verdict is Verdict.ALLOW else 'are denied'}{within}."
        return f"{calls} need approval{self._approvers()}{within}."

    def _approvers(self) -> str:
        """Return by whom, how and until when calls are approved, as the end of a sentence."""
        words = ""
        people = " or ".join(self.reviewers or ())
        if (self.quorum or 1) > 1:
            words = f" by {self.quorum} people"
            if people:
                words += f" of {people}"
        elif people:
            words = f" by {people}"
        if self.assurance is not None:
            words += f", with assurance {self.assurance}"
        if isinstance(self.risk, Risk):
            words += f"; the risk is {self.risk.level}"
        if self.reviewer is not None:
            may = "reject or allow" if self.reviewer_allows else "reject"
            words += f"; {self.reviewer} reviews them first, and may {may} them"
        if isinstance(self.expires_in, float):
            words += f"; requests expire after {duration_text(self.expires_in)}"
        return words


def allowed_decisions(value: Iterable[str]) -> tuple[str, ...]:
    """Check the allowed decisions and return them in a fixed order."""
    names = _strings(value, "allowed")
    wrong = [name for name in names if name not in DECISIONS]
    if wrong or not names:
        raise InvalidPolicy(f"allowed={names!r}: use some of {', '.join(DECISIONS)}")
    return tuple(name for name in DECISIONS if name in names)


def _reviewers(value: object, quorum: int) -> tuple[str, ...]:
    listed = _people(value, "reviewers")
    if len(listed) < quorum and not any(name.startswith(GROUP) for name in listed):
        raise InvalidPolicy(f"quorum={quorum}: there are only {len(listed)} reviewers")
    return listed


def _people(value: object, name: str) -> tuple[str, ...]:
    """Return the names of people and groups."""
    written = _nonempty_strings(value, name, "for everyone")
    try:
        listed = tuple(dict.fromkeys(map(checked_name, written)))
    except ValueError as error:
        raise InvalidPolicy(f"{name}={written!a:.200}: {error}") from None
    if GROUP in listed:
        raise InvalidPolicy(f"{name}: write the group's name after group:, as in group:finance")
    return listed


def _routes(value: object) -> tuple[str, ...]:
    """Return the channels to notify through, each with or without whom to reach there."""
    listed = _nonempty_strings(value, "notify", "to notify nobody")
    for route in listed:
        channel, colon, target = route.partition(":")
        if not _CHANNEL.fullmatch(channel) or (colon and not target.removeprefix(GROUP).strip()):
            raise InvalidPolicy(
                f"notify={route!a:.80}: write a channel, such as push, or a channel and whom to "
                'reach there: "slack:#ops", "mail:ana", "mail:group:finance"'
            )
        try:
            checked_name(route)
        except ValueError as error:
            raise InvalidPolicy(f"notify={route!a:.80}: {error}") from None
    return listed


def _span(hours: str) -> tuple[int, int]:
    match = _HOURS.fullmatch(hours)
    h1, m1, h2, m2 = map(int, match.groups()) if match else (0, 0, 0, 0)
    start = h1 * 60 + m1
    end = h2 * 60 + m2
    if match is None or end > 24 * 60:
        raise InvalidPolicy(f"hours={hours!r}: write them as 09:00-17:30")
    if start == end:
        raise InvalidPolicy(f"hours={hours!r}: start and end are the same")
    return start, end


def _any_glob(patterns: str | Iterable[str], name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
