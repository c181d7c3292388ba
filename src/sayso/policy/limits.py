"""``Limit``: how much the calls of a rule or a grant may add up to within a time, as text.

    calls <= 20 per 1h
    sum(amount) <= 1000 per 1d
    distinct(to) <= 5 per 7d

``sum`` adds up a number argument, ``distinct`` counts different values of an argument, or of the
items of a list. The argument is a path, as in ``where``.

What a limit counts has a *key*: the measure with the tools and the agents of its rule, or with its
grant. So the count stays when the rule gets another name, place, limit or time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from decimal import Decimal
from typing import NamedTuple, TypeAlias

from sayso.errors import InvalidPolicy
from sayso.policy.condition import MISSING, ArgPath, is_number
from sayso.types import SECOND, Json, Micros

Duration: TypeAlias = float | timedelta | str

_LIMIT = re.compile(
    r"\s*(?:(?P<calls>calls)|(?P<measure>sum|distinct)\s*\((?P<path>.+)\))"
    r"\s*<=\s*(?P<most>\d{1,15}(?:\.\d{1,9})?)\s+per\s+(?P<per>\S+)\s*",
    re.ASCII,
)
_DURATION = re.compile(r"(\d{1,10}(?:\.\d{1,6})?)(s|m|h|d)", re.ASCII)
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
LIMIT_FORMS = "calls <= 20 per 1h, sum(amount) <= 1000 per 1d or distinct(to) <= 5 per 1d"
#: The most different values that are counted, and the longest time, in seconds.
_MOST_VALUES = 1000
_LONGEST = 366 * 86_400


def parse_duration(value: Duration | None, name: str) -> float | None:
    """Return a positive duration in seconds: from a number, a timedelta, "90s", "15m" or "7d"."""
    if value is None:
        return None
    length: object = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(length, str):
        match = _DURATION.fullmatch(length)
        length = float(match[1]) * _UNITS[match[2]] if match else None
    if isinstance(length, bool) or not isinstance(length, int | float) or not 0 < length < 1e10:
        raise InvalidPolicy(
            f'{name}={value!r}: use a positive number of seconds, or "15m", "24h" or "7d"'
        )
    return float(length)


def duration_text(seconds: float) -> str:
    """Return a duration as a policy file has it, such as "15m"."""
    for unit in ("d", "h", "m"):
        if seconds % _UNITS[unit] == 0:
            return f"{seconds / _UNITS[unit]:g}{unit}"
    return f"{seconds:g}s"


class Amount(NamedTuple):
    """What one call adds to a count."""

    #: Identifies the value whose occurrences are counted; "" for other measures.
    value: str
    number: Decimal


class Limit(NamedTuple):
    """At most so much within a time."""

    text: str
    #: ``calls``, ``sum`` or ``distinct``.
    measure: str
    path: ArgPath
    most: Decimal
    per: Micros
    #: What is counted, as JSON text.
    key: str = ""

    @classmethod
    def parse(cls, text: str) -> Limit:
        """Parse the text. Raise ``InvalidPolicy`` that says what to write."""
        match = _LIMIT.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise InvalidPolicy(f"limits={text!r:.80}: write {LIMIT_FORMS}")
        measure = match["calls"] or match["measure"]
        try:
            path = ArgPath(()) if match["calls"] else ArgPath.parse(match["path"])
        except InvalidPolicy:
            raise InvalidPolicy(f"limits={text!r:.80}: write {LIMIT_FORMS}") from None
        most = Decimal(match["most"])
        seconds = parse_duration(match["per"], "limits")
        if seconds is None or seconds > _LONGEST:
            raise InvalidPolicy(f"limits={text!r:.80}: the time is at most a year")
        if measure != "sum" and most != int(most):
            raise InvalidPolicy(f"limits={text!r:.80}: {measure} are counted: use a whole number")
        if measure == "distinct" and most > _MOST_VALUES:
            raise InvalidPolicy(f"limits={text!r:.80}: at most {_MOST_VALUES} values are counted")
        return cls(text.strip(), measure, path, most, round(seconds * SECOND))

    @property
    def counted(self) -> str:
        """What is counted: ``calls``, ``sum(amount)``."""
        return "".join(self.text.partition("<=")[0].split())

    def of_rule(self, tools: Iterable[str], agents: Iterable[str]) -> Limit:
        key = json.dumps([self.counted, sorted(tools), sorted(agents)], ensure_ascii=False)
        return self._replace(key=key)

    def of_grant(self, grant: str) -> Limit:
        return self._replace(key=json.dumps([self.counted, grant]))

    def amounts(self, args: Mapping[str, Json]) -> list[Amount] | None:
        """Return what a call adds; None if its argument cannot be counted."""
        if self.measure == "calls":
            return [Amount("", Decimal(1))]
        try:
            value = self.path.value(args)
        except TypeError:
            return None
        if self.measure == "sum":
            if not is_number(value) or value < 0:
                return None
            return [Amount("", Decimal(str(value)))]
        values = value if isinstance(value, list | tuple) else [value]
        if value is MISSING or any(item is None or isinstance(item, dict) for item in values):
            return None
        texts = {json.dumps(item, sort_keys=True) for item in values}
        return [Amount(text, Decimal(1)) for text in sorted(texts)]


def bound_text(limit: Limit) -> str:
    """Return a limit with its key as one text, for the terms of a call."""
    return json.dumps([limit.key, limit.text], ensure_ascii=False)


def bound_limit(text: str) -> Limit:
    """Return the limit of such a text."""
    key, limit = json.loads(text)
    return Limit.parse(limit)._replace(key=key)


def stricter_limits(old: Iterable[str], new: Iterable[str]) -> tuple[str, ...]:
    """Return the limits of both, and of two for the same count and time the lower one."""
    limits: dict[tuple[str, Micros], Limit] = {}
    for limit in map(bound_limit, (*old, *new)):
        other = limits.setdefault((limit.key, limit.per), limit)
        if limit.most < other.most:
            limits[limit.key, limit.per] = limit
    return tuple(map(bound_text, limits.values()))
