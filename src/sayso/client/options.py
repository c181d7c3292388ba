"""What may be said where something is asked of a server, and how it is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Literal, TypedDict

from sayso import codec
from sayso.gate.options import Wait, checked_words, terms_from
from sayso.types import Effect, Json, OnDuplicate, Risk

#: The longest key that the server takes in a header.
_MAX_KEY = 200


class _Terms(TypedDict, total=False):
    """Who decides and until when; it can only make the server's policy stricter."""

    #: What a person reads first; shown as the agent's words.
    title: str
    note: str
    description: str
    reviewers: str | Iterable[str]
    quorum: int
    risk: Risk | str
    expires_in: float | str | timedelta | None
    valid_for: float | str | timedelta


class OpenOptions(_Terms, total=False):
    """What goes with a request that a client opens."""

    #: Names the request: opened again under the same key, it is the same one.
    key: str
    run: str
    thread: str
    requester: str


class CallOptions(OpenOptions, total=False):
    """The same for a call of a tool."""

    schema: Mapping[str, Json]
    returns: Mapping[str, Json] | None
    preview: Json
    allowed: Iterable[str]
    effect: Effect
    #: Makes the effect unique among those of this agent: a template over the arguments.
    effect_key: str
    on_duplicate: OnDuplicate
    #: Facts of the surroundings that the approval covers; the claim sends them afresh.
    binds: Mapping[str, Json]


class RemoteAskOptions(_Terms, total=False):
    """What may be said where a remote gate asks; its runs and keys are its own."""

    wait: Wait
    key: str | Callable[[dict[str, Json]], str]


class RemoteGuardOptions(RemoteAskOptions, total=False):
    """The same for a guarded function, and how it is shown and run."""

    name: str
    allowed: Iterable[str]
    effect: Effect
    effect_key: str | Callable[[dict[str, Json]], str]
    on_duplicate: OnDuplicate
    binds: Callable[..., Mapping[str, Json]]
    preview: Callable[..., Json]
    raises: type[Exception] | Iterable[type[Exception]]
    #: As at a gate; nothing else can be said here, since only the server's policy lets a call pass.
    needs_approval: Literal[True]


_TERMS = (
    *("allowed", "reviewers", "quorum", "expires_in", "valid_for", "effect"),
    *("effect_key", "on_duplicate"),
)
_AS_THEY_ARE = (*("run", "thread", "requester", "schema", "returns", "preview", "binds"),)


def fresh_terms(options: Mapping[str, Any]) -> dict[str, Json]:
    """What the code demands of its reviewers now, for the server to compare."""
    return {name: body_of(options)[name] for name in ("reviewers", "quorum") if options.get(name)}


def body_of(options: Mapping[str, Any]) -> dict[str, Json]:
    """The options as fields of the request's body, checked before they travel."""
    terms = terms_from(options)
    body: dict[str, Json] = {}
    for name in _TERMS:
        if options.get(name) is not None:
            value = getattr(terms, name)
            body[name] = list(value) if isinstance(value, tuple) else value
    if options.get("risk") is not None:
        body["risk"] = {"level": terms.risk.level, "reasons": list(terms.risk.reasons)}
    for name in ("title", "note", "description"):
        if options.get(name):
            body[name] = checked_words(options[name], name)
    body |= {name: options[name] for name in _AS_THEY_ARE if options.get(name)}
    return body


def header_key(key: str) -> str:
    """The key as a header can carry it; one that cannot travel is known by its fingerprint."""
    fits = key.isascii() and key.isprintable() and key == key.strip() and len(key) <= _MAX_KEY
    return key if fits and key else f"sha256:{codec.sha256(key.encode('utf-8', 'surrogatepass'))}"
