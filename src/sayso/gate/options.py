"""The options of ``guard``, ``ask`` and ``confirm``, their checks, and the terms made from them."""

from __future__ import annotations

import inspect
import logging
import math
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, TypeVar, cast

from sayso import codec
from sayso.engine.effects import has_body
from sayso.errors import InDoubt, InvalidCall, describe_error
from sayso.policy import Predicate, Rule
from sayso.policy.template import BadTemplate, check_template
from sayso.redaction import MAX_TITLE, clean_title, redacted_title, render_title, title_fields
from sayso.types import (
    HIGH_RISKS,
    SETTABLE_TERMS,
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
    """Distinguishes "not set" from ``None``, which means "forever"."""

    UNSET = "unset"


UNSET: Literal[Unset.UNSET] = Unset.UNSET
Wait: TypeAlias = float | Literal[Unset.UNSET] | None


#: A text with argument names in braces, or a function of the arguments.
Title: TypeAlias = str | Callable[[dict[str, Json]], str]


class TermOptions(TypedDict, total=False):
    """What people read about a request, who decides it, and until when."""

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


class AskOptions(TermOptions, total=False):
    """The options of ``ask`` and ``confirm``."""

    #: The first thing people read; for a function or a tool, made from its arguments.
    title: Title
    wait: Wait
    #: Identifies the call, instead of its content and count; for a function, made from arguments.
    key: str | Callable[[dict[str, Json]], str]


class FunctionOptions(AskOptions, total=False):
    """The options of every ``guard``: the same, and how the function is shown and run."""

    name: str
    allowed: Iterable[DecisionType]
    effect: Effect
    #: Makes the effect unique in the store: a template over the arguments, or a function of them.
    effect_key: str | Callable[[dict[str, Json]], str]
    on_duplicate: OnDuplicate
    binds: Callable[..., Mapping[str, Json]]
    preview: Callable[..., Json]
    #: Exceptions of the function: a stored failure is raised again as the same type.
    raises: type[Exception] | Iterable[type[Exception]]
    #: Exceptions of the function that mean "nothing happened", like ``sayso.NotExecuted``.
    not_executed: type[Exception] | Iterable[type[Exception]]


class GuardOptions(FunctionOptions, total=False):
    """The options of ``Gate.guard``, which has a policy and a store of its own."""

    needs_approval: bool | Predicate
    record: Recorded
    #: Finds out whether the effect of a call in doubt happened. Takes its key, and arguments by
    #: name; returns ``sayso.Ran(result)``, ``sayso.DidNotRun(evidence)`` or None.
    settle: Callable[..., Any]
    version: str


MAX_NAME = 200
MAX_WORDS = 20_000


def checked_string(words: object, name: str, most: int = MAX_WORDS) -> str:
    """Return a caller's text if it can be stored and shown in full, or raise ``InvalidCall``."""
    if not isinstance(words, str):
        raise InvalidCall(f"{name}: pass a string, not {type(words).__name__}", name)
    if len(words) > most:
        raise InvalidCall(f"{name} has {len(words):,} characters; the limit is {most:,}", name)
    try:
        words.encode()
    except UnicodeEncodeError:
        raise InvalidCall(
            f"{name} contains half a surrogate pair, which is not text: remove it", name
        ) from None
    return words


def checked_name(given: object, name: str) -> str:
    """Return a name that is short and not blank, or raise ``InvalidCall``."""
    words = checked_string(given, name, MAX_NAME)
    if not words.strip():
        raise InvalidCall(f"{name}: pass 1 to {MAX_NAME} characters, not only spaces", name)
    return words


def checked_thread(thread: str | None, longest: int = MAX_NAME) -> str:
    """Return the name of a thread; a new one for None.

    Raises ``InvalidCall`` if no thread can have that name.
    """
    if thread is None:
        return "thread_" + secrets.token_hex(8)
    if not isinstance(thread, str) or not thread.strip():
        raise InvalidCall(f"a thread needs a name of 1 to {longest} characters", "thread")
    if thread.startswith("@"):
        raise InvalidCall("thread names that begin with @ are reserved: use another", "thread")
    return checked_string(thread, "thread", longest)


def check_known(options: Mapping[str, Any], known: type) -> None:
    """Refuse a misspelt option instead of ignoring it."""
    names = set(known.__annotations__)
    unknown = sorted(set(options) - names)
    if unknown:
        raise TypeError(f"unknown option {', '.join(unknown)}; use {', '.join(sorted(names))}")


def check_taken(options: Mapping[str, Any], function: Callable[..., Any], *ours: str) -> None:
    """Refuse an option that a framework's function does not take, or that we set (``ours``)."""
    names = inspect.signature(function).parameters.values()
    own_names = {
        parameter.name for parameter in names if parameter.kind is parameter.KEYWORD_ONLY
    }.difference(ours)
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in names)
    unknown = sorted(set(options).intersection(ours) if takes_any else set(options) - own_names)
    if unknown:
        raise TypeError(f"unknown option {', '.join(unknown)}; use {', '.join(sorted(own_names))}")


def terms_from(options: Mapping[str, Any], **fixed: Any) -> Terms:
    """Return terms made from the options, checked like those of a rule."""
    changes = {name: options[name] for name in SETTABLE_TERMS if options.get(name) is not None}
    if callable(changes.get("effect_key")):
        del changes["effect_key"]  # a function makes the key, not a template
    rule = Rule(verdict="ask", **changes)
    values = {name: getattr(rule, name) for name in changes}
    risky = isinstance(rule.risk, Risk) and rule.risk.level in HIGH_RISKS
    if risky and "requester_decides" not in changes:
        values["requester_decides"] = False
    return Terms(**{"risk_declared": "risk" in changes, **values, **fixed})


def own_terms(options: Mapping[str, Any]) -> Declared:
    stated = frozenset(name for name in SETTABLE_TERMS if options.get(name) is not None)
    terms = terms_from(options, declared="effect" in stated)
    return Declared(**as_fields(terms), stated=stated)


def question_terms(kind: str, allowed: tuple[str, ...], options: Mapping[str, Any]) -> Terms:
    fixed = {"verdict": Verdict.ASK, "rule": kind}
    description = checked_string(options.get("description") or "", "description")
    return terms_from({**options, "allowed": allowed}, description=description, **fixed)


def allow_only(terms: Terms, decisions: tuple[str, ...]) -> Terms:
    """Return the terms of a call that can take only these decisions.

    If a person can only give its result, it always asks for one.
    """
    allowed = tuple(name for name in terms.allowed if name in decisions)
    terms = replace(terms, allowed=allowed if decisions[0] in allowed else decisions)
    asks = "approve" not in decisions and terms.verdict is Verdict.ALLOW
    return replace(terms, verdict=Verdict.ASK) if asks else terms


def checked_wait(wait: float | None) -> float | None:
    """Return seconds, 0, or None for forever; otherwise raise ``InvalidCall``."""
    if wait is None:
        return None
    if not _is_time(wait) or wait < 0:
        raise InvalidCall(
            f"wait={wait!r}: use seconds, 0 to pause at once, or None to wait forever", "wait"
        )
    return float(wait)


def checked_channels(channels: Iterable[T]) -> tuple[T, ...]:
    channel_list = tuple(channels) if isinstance(channels, Iterable) else (channels,)
    for channel in channel_list:
        if not callable(channel):
            raise TypeError(
                f"channels={channel!r:.80}: pass a list of async functions of the request"
            )
    return channel_list


def checked_lease(lease: float) -> float:
    if not _is_time(lease) or lease <= 0:
        raise InvalidCall(f"lease={lease!r}: use a positive number of seconds", "lease")
    return lease


def checked_needs(needs: bool | Predicate) -> bool | Predicate:
    """Return ``needs_approval`` if it is a boolean or a predicate: 0 or "" must not mean no."""
    if not isinstance(needs, bool) and not callable(needs):
        raise TypeError(f"needs_approval={needs!r}: use True, False or a predicate over the args")
    return needs


def checked_exceptions(options: Mapping[str, Any], name: str) -> tuple[type[Exception], ...]:
    """Return the exception classes of ``raises=`` or ``not_executed=``."""
    option = options.get(name, ())
    classes = tuple(option) if isinstance(option, Iterable) else (option,)
    for one in classes:
        if not (isinstance(one, type) and issubclass(one, Exception)):
            raise TypeError(f"{name}={one!r}: pass exception classes: {name}=(PaymentError,)")
    return classes


def checked_not_executed(options: Mapping[str, Any]) -> tuple[type[Exception], ...]:
    """Return the exceptions that mean "nothing happened"; those that never can are refused."""
    classes = checked_exceptions(options, "not_executed")
    for error_class in classes:
        if error_class is Exception or issubclass(error_class, InDoubt):
            raise TypeError(
                f"not_executed={error_class.__name__}: it can be raised after the effect happened; "
                "name exceptions that mean that nothing did, such as not_executed=(CardDeclined,)"
            )
    return classes


def checked_effect_key(
    options: Mapping[str, Any], arguments: Iterable[str]
) -> Callable[[dict[str, Json]], str] | None:
    """Return ``effect_key`` if it is a function. If it is a template, it must fit the arguments."""
    effect_key = options.get("effect_key")
    if effect_key is None:
        if options.get("on_duplicate") is not None:
            raise TypeError("on_duplicate= needs effect_key=, which says what a duplicate is")
        return None
    if options.get("effect") == "read":
        raise TypeError("effect_key=: a read has no effect to keep unique: leave it out")
    if inspect.iscoroutinefunction(effect_key):
        raise TypeError("effect_key= is called again just before the start: use a sync function")
    if callable(effect_key):
        return cast("Callable[[dict[str, Json]], str]", effect_key)
    try:
        check_template(effect_key, arguments)
    except BadTemplate as error:
        raise TypeError(f"effect_key={effect_key!r:.80}: {error}") from None
    return None


def fixed_title(title: object) -> Callable[[str], str] | None:
    """Return a function that returns the title of a question or a confirmation."""
    words = checked_string(title or "", "title", MAX_TITLE)
    return (lambda _: clean_title(words)) if words else None


def checked_title(title: object, signature: Signature) -> Title | None:
    """Return the title if it can be made from the arguments of a function."""
    if title is None:
        return None
    if isinstance(title, str):
        checked_string(title, "title", MAX_TITLE)
        names = set(signature.parameters.get("properties", ()))
        for name in title_fields(title):
            if name not in names:
                name_list = ", ".join(sorted(names)) or "none"
                raise InvalidCall(
                    f"title: {signature.name} has no argument {name!r}; it has {name_list}", "title"
                )
    elif not callable(title) or inspect.iscoroutinefunction(title):
        raise TypeError(f"title={title!r:.80}: pass a string, or a sync function of the arguments")
    return title


def title_maker(
    title: Title | None, parameters: Mapping[str, Any] | None = None
) -> Callable[[str], str] | None:
    """Return a function that makes the title from stored arguments, or None without a title.

    If ``title=`` raises, the request has no title and a warning is logged: people are asked anyway.
    """
    if title is None:
        return None

    def make(args: str) -> str:
        values = codec.loads(args)
        if isinstance(title, str):
            return render_title(title, values, parameters)
        try:
            text = title(values)
            if not isinstance(text, str):
                raise TypeError(f"it returned {type(text).__name__}, not a string")
            return redacted_title(text, values, parameters)
        except Exception as error:
            log.warning("no title: title= failed: %s", describe_error(error))
            return ""

    return make


def checked_functions(options: Mapping[str, Any]) -> None:
    for name in ("binds", "preview"):
        function = options.get(name)
        if function is not None and not callable(function):
            raise TypeError(f"{name}={function!r}: pass a function")
    if inspect.iscoroutinefunction(options.get("binds")):
        raise TypeError("binds= is called again just before the start: use a sync function")


def bound_facts(binds: Callable[..., Mapping[str, Json]], *args: Any) -> dict[str, Json]:
    facts: object = binds(*args)
    if not isinstance(facts, Mapping):
        raise InvalidCall(
            f"binds= returned {type(facts).__name__}: return a mapping, as {{'branch': 'main'}}",
            "binds",
        )
    if has_body(dict(facts)):
        raise InvalidCall(
            "binds= returned nothing but 'body', which stands for the body of a request from "
            "another machine: use another name, such as 'text'",
            "binds",
        )
    return dict(facts)


def _is_time(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value)  # type: ignore[arg-type]  # a number, as was seen
