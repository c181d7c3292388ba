"""The three columns that hold structure, as compact JSON text: terms, votes, decision."""

from __future__ import annotations

import json
from dataclasses import fields
from functools import lru_cache
from typing import Any

from assent.types import Decided, Risk, Terms, Verdict, Vote

_DEFAULTS = {field.name: getattr(Terms(), field.name) for field in fields(Terms)}


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@lru_cache(maxsize=1024)
def terms_to(terms: Terms) -> str:
    """Terms as text; what equals the default is left out, because most of them do."""
    changed: dict[str, Any] = {}
    for name, default in _DEFAULTS.items():
        value = getattr(terms, name)
        if value != default:
            changed[name] = value
    if "risk" in changed:
        changed["risk"] = [terms.risk.level, *terms.risk.reasons]
    return _dumps(changed)


@lru_cache(maxsize=1024)
def terms_from(text: str) -> Terms:
    """Text as terms."""
    values = json.loads(text)
    for name in ("allowed", "reviewers"):
        if name in values:
            values[name] = tuple(values[name])
    if "risk" in values:
        level, *reasons = values["risk"]
        values["risk"] = Risk(level, tuple(reasons))
    if "verdict" in values:
        values["verdict"] = Verdict(values["verdict"])
    return Terms(**values)


def votes_to(votes: tuple[Vote, ...]) -> str:
    """Votes as text."""
    if not votes:
        return ""
    return _dumps([[v.type, v.by, v.at, v.assurance, v.digest, v.signature] for v in votes])


def votes_from(text: str) -> tuple[Vote, ...]:
    """Text as votes."""
    if not text:
        return ()
    return tuple(
        Vote(type=t, by=by, at=at, assurance=a, digest=d, signature=s)
        for t, by, at, a, d, s in json.loads(text)
    )


def decision_to(decision: Decided | None) -> str | None:
    """A decision as text."""
    if decision is None:
        return None
    d = decision
    return _dumps(
        [d.type, d.by, d.at, d.channel, d.assurance, d.digest, d.signature, d.message, d.value]
    )


def decision_from(text: str | None) -> Decided | None:
    """Text as a decision."""
    if text is None:
        return None
    type, by, at, channel, assurance, digest, signature, message, value = json.loads(text)
    return Decided(
        type=type,
        by=by,
        at=at,
        channel=channel,
        assurance=assurance,
        digest=digest,
        signature=signature,
        message=message,
        value=value,
    )
