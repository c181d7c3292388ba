"""Make text that an agent wrote inert: write out hidden characters, without losing any.

Every renderer (terminal, web, log, chat) shows what this module returns, never the raw text.

A character that a reader cannot see, or that moves other characters, becomes ``⟨U+202E⟩``:
controls, bidi, zero-width and tag characters, unusual spaces, blank letters, private and unassigned
characters, lone surrogates. So does a combining mark that has no base character or is one of many,
because it would be drawn over other text. Emoji stay emoji, but their joiners and variation
selectors can carry hidden text, so a family is shown as its members and ``⟨U+200D⟩``.

The brackets ``⟨ ⟩`` are escaped too, though not counted as hidden. An agent that writes "⟨U+202E⟩"
is shown as ``⟨U+27E8⟩U+202E⟨U+27E9⟩``: each ``⟨`` on the screen is ours, so two different texts
never look the same. Nothing is trimmed, folded or normalized, and markup is shown as text.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sayso.types import BLANK

# Ours, then the two pairs that look like ours.
_BRACKETS = "\u27e8\u27e9\u2329\u232a\u276c\u276d"
_ARROWS = {"\n": "⏎", "\t": "⇥"}

# Few words of any script put more than four marks on a letter; more would cover other lines.
_MAX_MARKS = 4

# Scripts with letters that look like Latin ones, by the first word of their Unicode names.
_LIKE_LATIN = frozenset(
    ("ARMENIAN", "CHEROKEE", "COPTIC", "CYRILLIC", "FULLWIDTH", "GREEK", "LISU", "MATHEMATICAL")
)
# The letters that can spell a whole Latin word: Cyrillic, then Greek; small, then capital.
_LOOKALIKES = frozenset(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0455\u0456\u0458\u04bb\u04cf\u0501\u051b\u051d"
    "\u0405\u0406\u0408\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u04c0"
    "\u03b1\u03b9\u03bd\u03bf\u03c1\u03c5"
    "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7"
)
_BETWEEN_NAMES = re.compile(r"""[\s/\\:;,!?"'`|=&#%*<>()\[\]{}]+""")
_BETWEEN_LABELS = re.compile(r"[.@_+\-]+")
_MAX_NOTES = 5
_MAX_CODES = 4
_MAX_NAME = 60

_TRAILING_BLANK = re.compile(r"[ \t]$", re.MULTILINE)
_PLAIN_KEY = re.compile(r"\w[\w.\-]*")
_NOT_STRINGS = frozenset(("true", "false", "null", "none", "{}", "[]"))
_MAX_LABEL = 24
_MAX_INDENT = 20

_FINGERPRINT_KEY = os.urandom(32)
#: Values shorter than this get no fingerprint.
_MIN_FINGERPRINTED = 16


@dataclass(frozen=True, slots=True)
class Visible:
    """A text that is safe to print, with notes for its reader."""

    text: str
    hidden: int = 0
    notes: tuple[str, ...] = ()


def visible(text: str) -> Visible:
    """Write out every hidden character. Newline, tab and space stay."""
    if _is_plain(text):
        return Visible(text)
    escaped = _escape(text, _BRACKETS)
    # Each opening bracket is an escape of ours; the agent's own brackets were never hidden.
    hidden = escaped.count("⟨") - sum(map(text.count, _BRACKETS))
    return Visible(escaped, hidden, tuple(_notes(text, hidden)))


def inert(value: Any) -> Any:
    """Return the same JSON value with hidden characters made visible in every string."""
    if isinstance(value, str):
        return visible(value).text
    if isinstance(value, dict):
        return {inline(str(key)): inert(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [inert(item) for item in value]
    return value


def inline(text: str) -> str:
    """Like ``visible``, on one line: newline becomes ``⏎`` and tab ``⇥``."""
    escaped = _escape(text, _BRACKETS + "".join(_ARROWS.values()))
    for char, arrow in _ARROWS.items():
        escaped = escaped.replace(char, arrow)
    return escaped


def examined(value: object) -> Visible:
    """Return all strings and keys of a JSON value, one per line, with notes for the reader."""
    strings = list(_strings(value))
    joined = "\n".join(strings)
    return Visible(joined) if all(map(_is_plain, strings)) else visible(joined)


def notes(value: object) -> tuple[str, ...]:
    """Return the notes for a reader of this JSON value, each once."""
    return examined(value).notes


def without_escapes(inert_text: str) -> str:
    """Return an inert text without the brackets of its escapes, which no note is about."""
    return inert_text.replace("⟨", "").replace("⟩", "")


def fingerprint(value: str) -> str:
    """Return a mask for a secret: its length and, if it is long, a keyed fingerprint.

    The key is a secret of this process, so the fingerprint of a guess cannot be computed. Short
    values have none: a caller who can have guesses masked could compare the masks.
    """
    if len(value) < _MIN_FINGERPRINTED:
        return mask(value)
    data = value.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(data, key=_FINGERPRINT_KEY, digest_size=4).hexdigest()
    return f"{mask(value)[:-1]}, fingerprint {digest})"


def mask(value: str) -> str:
    """Return a mask that says nothing but how long the value is."""
    return f"•••• ({many(len(value), 'char')})"


def lines(value: object) -> list[str]:
    """Lay out a JSON value as ``key: value`` lines: complete, inert, no two values alike.

    A string is quoted if it could be taken for another value. One with newlines follows its key,
    behind a ``│`` gutter. Beyond twenty levels the depth is a number, ``[21]``, so that indentation
    cannot outgrow the value. If you wrap a line, indent its continuation. Raises ``TypeError`` for
    a value that JSON does not have.
    """
    if isinstance(value, str):
        return _block(value, 0) if "\n" in value else [_quote(value)]
    out: list[str] = []
    todo = _entries(value, 0) or [(0, "", value)]
    while todo:
        depth, head, item = todo.pop()
        if entries := _entries(item, depth + 1):
            out.append(head.rstrip())
            todo.extend(entries)
        elif isinstance(item, str) and "\n" in item:
            out.append(head.rstrip())
            out.extend(_block(item, depth + 1))
        else:
            out.append(head + _scalar(item))
    return out


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _is_hidden(char: str) -> bool:
    return char in BLANK or not (char.isprintable() or char in _ARROWS)


def _code(char: str) -> str:
    return f"U+{ord(char):04X}"


def _mark(char: str) -> str:
    return f"⟨{_code(char)}⟩"


def many(number: int, noun: str) -> str:
    """Return a number with its noun: 1 request, 2 requests."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _escape(text: str, ours: str) -> str:
    """Write out hidden characters, and the characters that only we may use."""
    if _is_plain(text):
        return text
    chars = set(text)
    table = {ord(char): _mark(char) for char in chars if char in ours or _is_hidden(char)}
    if combining := {char for char in chars if unicodedata.category(char)[0] == "M"}:
        return "".join(_escape_marks(text, combining, table))
    return text.translate(table) if table else text


def _escape_marks(text: str, combining: set[str], table: dict[int, str]) -> Iterator[str]:
    """Escape by the table, and each combining mark without a letter or after too many others."""
    marks = _MAX_MARKS
    for char in text:
        escaped = table.get(ord(char), char)
        if escaped is not char or char.isspace():
            marks = _MAX_MARKS
        elif char in combining:
            marks += 1
            escaped = char if marks <= _MAX_MARKS else _mark(char)
        else:
            marks = 0
        yield escaped


def _strings(value: object) -> Iterator[str]:
    """Yield all keys and strings in order. No recursion, since the agent chooses the depth."""
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            todo.extend(reversed([part for pair in item.items() for part in pair]))
        elif isinstance(item, (list, tuple)):
            todo.extend(reversed(item))


def _notes(text: str, hidden: int) -> Iterator[str]:
    if hidden:
        yield many(hidden, "hidden character")
    if any(bracket in text for bracket in _BRACKETS):
        yield "contains the brackets ⟨ ⟩ itself; they are shown as code points"
    if not unicodedata.is_normalized("NFC", text):
        yield "text is not NFC-normalised"
    yield from _mixed_names(text)


def _mixed_names(text: str) -> Iterator[str]:
    """Yield notes on hosts, addresses, path parts and identifiers with letters that look Latin."""
    scripts = {char: _script(char) for char in set(text)}
    if not {"LATIN"} < set(scripts.values()) - {""}:
        return
    names = dict.fromkeys(_BETWEEN_NAMES.split(text))
    mixed = [(name, odd) for name in names if (odd := _odd_letters(name, scripts))]
    for name, odd in mixed[:_MAX_NOTES]:
        kinds = " and ".join(dict.fromkeys(scripts[char].title() for char in odd))
        short = inline(name[:_MAX_NAME]) + "…" * (len(name) > _MAX_NAME)
        codes = ", ".join(map(_code, odd[:_MAX_CODES])) + ", …" * (len(odd) > _MAX_CODES)
        yield f"mixes Latin and {kinds} letters: '{short}' ({codes})"
    if more := len(mixed[_MAX_NOTES:]):
        yield f"mixes letters in {many(more, 'more word')}"


def _script(char: str) -> str:
    """Return the script of a letter if it is Latin or looks like Latin, else an empty string."""
    name = unicodedata.name(char, "").split(" ")[0] if char.isalpha() else ""
    return name if name == "LATIN" or name in _LIKE_LATIN else ""


def _odd_letters(name: str, scripts: dict[str, str]) -> list[str]:
    """Return the letters that are mixed with Latin ones, or imitate a label of a Latin host."""
    if name.isascii() or all(scripts[char] != "LATIN" for char in name):
        return []
    names: list[str] = []
    is_host = "." in name or "@" in name
    for label in _BETWEEN_LABELS.split(name):
        letters = [char for char in label if scripts[char]]
        odd = [char for char in letters if scripts[char] != "LATIN"]
        # Two letters are more often a unit (μm, kΩ) than a name.
        mixed = len(odd) < len(letters) and (is_host or len(letters) > 2)
        if mixed or (is_host and _LOOKALIKES.issuperset(odd)):
            names.extend(odd)
    return list(dict.fromkeys(names))


def _entries(value: object, depth: int) -> list[tuple[int, str, object]]:
    """Return the entries of a container as (depth, head, value), last first; else an empty list."""
    if isinstance(value, dict):
        labels = [_label(key) for key in value]
        width = max((len(label) for label in labels if len(label) <= _MAX_LABEL), default=0)
        heads = [f"{_indent(depth)}{label.ljust(width)} " for label in labels]
        return [(depth, *pair) for pair in zip(heads, value.values(), strict=True)][::-1]
    if isinstance(value, (list, tuple)):
        head = _indent(depth) + "- "
        return [(depth, head, item) for item in reversed(value)]
    return []


def _label(key: str) -> str:
    return (inline(key) if _PLAIN_KEY.fullmatch(key) else _quote(key)) + ":"


def _indent(depth: int) -> str:
    return "  " * depth if depth <= _MAX_INDENT else "  " * _MAX_INDENT + f"[{depth}] "


def _block(text: str, depth: int) -> list[str]:
    """Put each line of a text behind a gutter, and write out a space at the end of a line."""
    gutter = _indent(depth) + "│ "
    escaped = _TRAILING_BLANK.sub(lambda found: _mark(found[0]), _escape(text, _BRACKETS))
    return [gutter + line for line in escaped.split("\n")]


def _scalar(value: object) -> str:
    if isinstance(value, str):
        return _quote(value) if _needs_quotes(value) else inline(value)
    # ``json`` writes the same digits ten times slower, which matters for long lists of numbers.
    return repr(value) if type(value) is int else json.dumps(value)


def _quote(text: str) -> str:
    escaped = inline(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _needs_quotes(text: str) -> bool:
    """Return whether an unquoted string could be taken for another value, or hide its ends."""
    if not text or " " in (text[0], text[-1]) or text[0] == '"' or text.lower() in _NOT_STRINGS:
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True
