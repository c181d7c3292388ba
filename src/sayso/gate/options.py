"""What may be said where something is guarded or asked, and the terms that come of it."""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, TypeVar, cast

from sayso import codec
from sayso.errors import InvalidCall, describe_error
from sayso.policy import Predicate, Rule
from sayso.policy.template import BadTemplate, check_template
from sayso.redaction import MAX_TITLE, clean_title, render_title, title_fields
from sayso.types import (
    Assurance,
    DecisionType,
    Declared,
    Effect,
    Json,
    OnDuplicate,
    OnExpiry,
    Recorded,
    Risk,
    RiskLevel,
    Terms,
    Verdict,
    as_fields,
)

if TYPE_CHECKING:
    from sayso.schema import Signature

T = TypeVar("T")

log = logging.getLogger("sayso.gate")


class Unset(Enum):
    """Tells "not given" from ``None``, which means "for ever"."""

    UNSET = "unset"


UNSET: Literal[Unset.UNSET] = Unset.UNSET
Wait: TypeAlias = float | Literal[Unset.UNSET] | None


#: A text with argument names in braces, or a function of the arguments.
Title: TypeAlias = str | Callable[[dict[str, Json]], str]


class AskOptions(TypedDict, total=False):
    """Who decides a question or an approval, and until when."""

    #: What a person reads first; for a function or a tool, made of its arguments.
    title: Title
    wait: Wait
    #: Names the call, instead of its content and count; for a function, made from its arguments.
    key: str | Callable[[dict[str, Json]], str]
    note: str
    description: str
    reviewers: str | Iterable[str]
    quorum: int
    requester_decides: bool
    assurance: Assurance
    risk: Risk | RiskLevel
    expires_in: float | str | timedelta | None
    on_expiry: OnExpiry
    valid_for: float | str | timedelta


class GuardOptions(AskOptions, total=False):
    """The same for a guarded function, and how it is shown and run."""

    needs_approval: bool | Predicate
    name: str
    allowed: Iterable[DecisionType]
    effect: Effect
    record: Recorded
    #: Makes the effect unique in the store: a template over the arguments, or a function of them.
    effect_key: str | Callable[[dict[str, Json]], str]
    on_duplicate: OnDuplicate
    #: Looks on the other side whether the effect of a call in doubt happened. Takes its key, and
    #: arguments by name; gives ``sayso.Ran(result)``, ``sayso.DidNotRun(evidence)`` or None.
    settle: Callable[..., Any]
    version: str
    binds: Callable[..., Mapping[str, Json]]
    preview: Callable[..., Json]
    #: What the function may raise: a stored failure is raised again as the same type.
    raises: type[Exception] | Iterable[type[Exception]]


_OF_TERMS = (
    "reviewers",
    "quorum",
    "requester_decides",
    "assurance",
    "risk",
    "expires_in",
    "on_expiry",
    "valid_for",
    "allowed",
    "effect",
    "record",
    "effect_key",
    "on_duplicate",
)


MAX_NAME = 200
MAX_WORDS = 20_000


def checked_words(words: object, name: str, most: int = MAX_WORDS) -> str:
    """A text of the caller's, if it can be kept and shown whole."""
    if not isinstance(words, str):
        raise InvalidCall(f"{name}: give a text, not {type(words).__name__}", name)
    if len(words) > most:
        raise InvalidCall(f"{name} has {len(words):,} characters, the limit is {most:,}", name)
    try:
        words.encode()
    except UnicodeEncodeError:
        raise InvalidCall(f"{name}: half a surrogate pair is no text: leave it out", name) from None
    return words


def checked_name(given: object, name: str) -> str:
    """A text that something is known by: it says something, and is short."""
    words = checked_words(given, name, MAX_NAME)
    if not words.strip():
        raise InvalidCall(f"{name}: give a text of 1 to {MAX_NAME} characters, not a blank", name)
    return words


def check_known(options: Mapping[str, Any], known: type) -> None:
    """Refuse a misspelt option instead of ignoring it."""
    names = set(known.__annotations__)
    unknown = sorted(set(options) - names)
    if unknown:
        raise TypeError(f"no option {', '.join(unknown)}; use {', '.join(sorted(names))}")


def check_taken(options: Mapping[str, Any], function: Callable[..., Any], *ours: str) -> None:
    """Refuse at once an option that a function of a framework will not take, or that is given to
    it anyway (``ours``)."""
    names = inspect.signature(function).parameters.values()
    known = {one.name for one in names if one.kind is one.KEYWORD_ONLY}.difference(ours)
    free = any(one.kind is one.VAR_KEYWORD for one in names)
    unknown = sorted(set(options).intersection(ours) if free else set(options) - known)
    if unknown:
        raise TypeError(f"no option {', '.join(unknown)}; use {', '.join(sorted(known))}")


def terms_from(options: Mapping[str, Any], **fixed: Any) -> Terms:
    """Terms made of what was given, checked like a rule's; the rest keeps its default."""
    given = {name: options[name] for name in _OF_TERMS if options.get(name) is not None}
    if callable(given.get("effect_key")):
        del given["effect_key"]  # the code makes the key itself
    rule = Rule(verdict="ask", **given)
    values = {name: getattr(rule, name) for name in given}
    risky = isinstance(rule.risk, Risk) and rule.risk.level in ("high", "critical")
    if risky and "requester_decides" not in given:
        values["requester_decides"] = False
    return Terms(**{**values, **fixed})


def own_terms(options: Mapping[str, Any]) -> Declared:
    """The terms of a tool, for a policy to judge by."""
    stated = frozenset(name for name in _OF_TERMS if options.get(name) is not None)
    return Declared(**as_fields(terms_from(options)), stated=stated)


def question_terms(kind: str, allowed: tuple[str, ...], options: Mapping[str, Any]) -> Terms:
    """The terms of something that is asked about for its own sake."""
    fixed = {"verdict": Verdict.ASK, "rule": kind}
    description = checked_words(options.get("description") or "", "description")
    return terms_from({**options, "allowed": allowed}, description=description, **fixed)


def checked_wait(wait: float | None) -> float | None:
    """Seconds, 0, or None for ever."""
    if wait is None:
        return None
    if not _is_time(wait) or wait < 0:
        raise InvalidCall(f"wait={wait!r}: give seconds, 0 to pause at once, or None", "wait")
    return float(wait)


def checked_channels(channels: Iterable[T]) -> tuple[T, ...]:
    """Ways to people, if each can be called at all."""
    given = tuple(channels) if isinstance(channels, Iterable) else (channels,)
    for one in given:
        if not callable(one):
            raise TypeError(f"channels={one!r:.80}: give a list of async functions of the request")
    return given


def checked_lease(lease: float) -> float:
    """How many seconds a run is held for, before it is renewed or lost."""
    if not _is_time(lease) or lease <= 0:
        raise InvalidCall(f"lease={lease!r}: give seconds, more than none", "lease")
    return lease


def checked_needs(needs: bool | Predicate) -> bool | Predicate:
    """Whether somebody is to be asked; what is neither yes nor no must not pass for a no."""
    if not isinstance(needs, bool) and not callable(needs):
        raise TypeError(f"needs_approval={needs!r}: use True, False or a predicate over the args")
    return needs


def checked_raises(
    raises: type[Exception] | Iterable[type[Exception]],
) -> tuple[type[Exception], ...]:
    """The declared errors of a function."""
    given = tuple(raises) if isinstance(raises, Iterable) else (raises,)
    for one in given:
        if not (isinstance(one, type) and issubclass(one, Exception)):
            raise TypeError(f"raises={one!r}: give exception classes, as raises=(PaymentError,)")
    return given


def checked_effect_key(
    options: Mapping[str, Any], arguments: Iterable[str]
) -> Callable[[dict[str, Json]], str] | None:
    """The function that makes effect keys, if one was given; a template must fit the arguments."""
    given = options.get("effect_key")
    if given is None:
        if options.get("on_duplicate") is not None:
            raise TypeError("on_duplicate= says what a second call with its effect_key= gets")
        return None
    if options.get("effect") == "read":
        raise TypeError("effect_key=: a read has no effect that could happen twice: leave it out")
    if inspect.iscoroutinefunction(given):
        raise TypeError("effect_key= is looked at again just before the start: no async function")
    if callable(given):
        return cast("Callable[[dict[str, Json]], str]", given)
    try:
        check_template(given, arguments)
    except BadTemplate as error:
        raise TypeError(f"effect_key={given!r:.80}: {error}") from None
    return None


def fixed_title(title: object) -> Callable[[str], str] | None:
    """Return what gives a plain text as the title of a question or a confirmation."""
    words = checked_words(title or "", "title", MAX_TITLE)
    return (lambda _: clean_title(words)) if words else None


def checked_title(title: object, signature: Signature) -> Title | None:
    """Return a title that can be made of the arguments of a function."""
    if title is None:
        return None
    if isinstance(title, str):
        checked_words(title, "title", MAX_TITLE)
        names = set(signature.parameters.get("properties", ()))
        for name in title_fields(title):
            if name not in names:
                known = ", ".join(sorted(names)) or "none"
                raise InvalidCall(
                    f"title: {{{name}}} is no argument of {signature.name}; it has {known}", "title"
                )
    elif not callable(title) or inspect.iscoroutinefunction(title):
        raise TypeError(f"title={title!r:.80}: give a text, or a plain function of the arguments")
    return title


def title_maker(
    title: Title | None, parameters: Mapping[str, Any] | None = None
) -> Callable[[str], str] | None:
    """Return the function that makes a title of stored arguments, or nothing without a title.

    A function that fails leaves the request without a title, and a warning in the log: it must not
    keep anybody from being asked.
    """
    if title is None:
        return None

    def make(args: str) -> str:
        values = codec.loads(args)
        if isinstance(title, str):
            return render_title(title, values, parameters)
        try:
            made = title(values)
            if not isinstance(made, str):
                raise TypeError(f"it gave {type(made).__name__}, not a text")
            return clean_title(made)
        except Exception as error:
            log.warning("no title: title= failed: %s", describe_error(error))
            return ""

    return make


def checked_functions(options: Mapping[str, Any]) -> None:
    """Refuse what could not be called when it is needed."""
    for name in ("binds", "preview"):
        given = options.get(name)
        if given is not None and not callable(given):
            raise TypeError(f"{name}={given!r}: give a function")
    if inspect.iscoroutinefunction(options.get("binds")):
        raise TypeError("binds= is looked at again just before the start: give a plain function")


def bound_facts(binds: Callable[..., Mapping[str, Json]], *args: Any) -> dict[str, Json]:
    """The facts of the surroundings that an approval covers."""
    facts: object = binds(*args)
    if not isinstance(facts, Mapping):
        raise InvalidCall(
            f"binds= gives names and values, as {{'branch': 'main'}}, not {type(facts).__name__}",
            "binds",
        )
    return dict(facts)


def _is_time(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value)  # type: ignore[arg-type]  # a number, as was seen
