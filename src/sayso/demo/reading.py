"""What the script reads out of the user's words: cities, versions, numbers, days."""

from __future__ import annotations

import re

_CITY = re.compile(r"\bin\s+(?:the\s+city\s+of\s+)?([^?!.,;:\n]+)", re.I)
_HOW = re.compile(r"^(?:(?:very\s+)?slow\w*\s+)+", re.I)
_NOT_A_CITY = re.compile(
    r"\s+(?:today|tonight|tomorrow|now|please|right|this|on|at|for|and|but|with|slow\w*|thanks)\b.*",
    re.I | re.S,
)
_VERSION = re.compile(r"\bv?(\d+(?:\.\d+)+(?:[-+][0-9A-Za-z]+(?:[.-][0-9A-Za-z]+)*)?)\b")
_WHOLE_VERSION = re.compile(r"\bv(?:ersion)?\s*(\d+)\b", re.I)
_ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_NUMBER = re.compile(r"(?<![\w.])(\d{1,3}(?:,\d{3})+|\d+)(?![\w.]*\d)")
_PLACE = re.compile(r"\bto\s+([A-Z][\w'-]*(?:\s+[A-Z][\w'-]*)*)")
_ANY_PLACE = re.compile(r"\bto\s+([^\W\d_][\w'-]*)", re.I)
_DAY = re.compile(
    r"\b(monday|tuesday|wednesday|thursday|friday|saturday|sunday|today|tomorrow"
    r"|\d{4}-\d{2}-\d{2})\b",
    re.I,
)
_FILE = re.compile(r"(?<!\S)(?:[\w.~-]*/)*[\w-]+\.[A-Za-z]\w*")

_MOST_RECIPIENTS = 1000
_SOME_RECIPIENTS = 120


def city(text: str) -> str:
    """The city after "in", else New York."""
    found = _CITY.search(text)
    said = _HOW.sub("", found[1].strip()) if found else ""
    name = _NOT_A_CITY.sub("", f" {said}").strip()
    return name or "New York"


def version(text: str, otherwise: str) -> str:
    """A version such as 2.5.0, 2.5.0-rc1 or v3."""
    found = _VERSION.search(text) or _WHOLE_VERSION.search(text)
    return found[1] if found else otherwise


def recipients(text: str) -> list[str]:
    """The addresses in the text, or as many as it says; more than a hundred where it says none."""
    addresses = _ADDRESS.findall(text)
    if addresses:
        return list(dict.fromkeys(addresses))
    found = _NUMBER.search(text)
    count = int(found[1].replace(",", "")[:9]) if found else _SOME_RECIPIENTS
    count = min(max(count, 1), _MOST_RECIPIENTS)
    return [f"customer{number}@example.com" for number in range(1, count + 1)]


def days(text: str) -> int:
    """How many days old the records are."""
    found = re.search(r"\b(\d{1,4})\s*days?\b", text, re.I)
    return int(found[1]) if found else 30


def destination(text: str) -> str:
    """Where to fly."""
    found = _PLACE.search(text) or _ANY_PLACE.search(text)
    return found[1] if found else "Paris"


def day(text: str) -> str:
    """When to fly."""
    found = _DAY.search(text)
    return found[1] if found else "Friday"


def file(text: str) -> str:
    """A file's path."""
    found = _FILE.search(text)
    return found[0] if found else "reports/old.csv"
