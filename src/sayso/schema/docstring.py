"""Read a docstring: what the function does, and what each parameter means.

Google, NumPy and Sphinx forms, as far as people use them in tools; a line that fits none of them
stays in the description.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable

_GOOGLE_HEADING = re.compile(r"(Args|Arguments|Parameters|Params):\s*$")
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_NUMPY_HEADING = re.compile(r"(?:Other )?Parameters\s*$")
_NUMPY_ENTRY = re.compile(r"(\w+(?:\s*,\s*\w+)*)\s*(?::.*)?$")
_SPHINX_ENTRY = re.compile(r":(?:param|parameter|arg|argument)\s+(?:[^:]*\s)?(\w+):\s*(.*)")
_SPHINX_FIELD = re.compile(r":(?:param|parameter|arg|argument|type)\s+[^:]+:")


def split(docstring: str | None) -> tuple[str, dict[str, str]]:
    """Return the description without its parameter section, and the text of each parameter."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    for take in (_google, _numpy, _sphinx):
        rest, entries = take(lines)
        if entries:
            return _joined(rest), entries
    return _joined(lines), {}


def _joined(lines: Iterable[str]) -> str:
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _google(lines: list[str]) -> tuple[list[str], dict[str, str]]:
    start = _find(lines, _GOOGLE_HEADING)
    if start is None:
        return lines, {}
    end = _dedent_after(lines, start + 1)
    return lines[:start] + lines[end:], _entries(lines[start + 1 : end], _GOOGLE_ENTRY)


def _numpy(lines: list[str]) -> tuple[list[str], dict[str, str]]:
    start = _find(lines, _NUMPY_HEADING)
    if start is None or not _is_rule(lines, start + 1):
        return lines, {}
    end = next((i for i in range(start + 2, len(lines)) if _is_rule(lines, i + 1)), len(lines))
    return lines[:start] + lines[end:], _entries(lines[start + 2 : end], _NUMPY_ENTRY)


def _sphinx(lines: list[str]) -> tuple[list[str], dict[str, str]]:
    rest: list[str] = []
    fields: list[str] = []
    for line in lines:
        if _SPHINX_FIELD.match(line) or (fields and line.startswith(" ")):
            fields.append(line)
        else:
            rest.append(line)
    return rest, _entries(fields, _SPHINX_ENTRY)


def _entries(lines: list[str], pattern: re.Pattern[str]) -> dict[str, str]:
    """Collect ``name: text`` entries; deeper indented lines continue the one before."""
    found: dict[str, list[str]] = {}
    names: list[str] = []
    margin = min((_indent(line) for line in lines if line.strip()), default=0)
    for line in lines:
        if _indent(line) > margin or not line.strip():
            for name in names:
                found[name].append(line.strip())
        elif match := pattern.match(line.strip()):
            listed, *text = match.groups()
            names = re.split(r"\s*,\s*", listed)
            found |= {name: list(text) for name in names}
        else:
            names = []
    return {name: " ".join(filter(None, text)) for name, text in found.items()}


def _find(lines: list[str], pattern: re.Pattern[str]) -> int | None:
    return next((i for i, line in enumerate(lines) if pattern.match(line)), None)


def _dedent_after(lines: list[str], start: int) -> int:
    """Return the index of the first line from ``start`` on that is not indented."""
    indices = range(start, len(lines))
    return next((i for i in indices if lines[i].strip() and not _indent(lines[i])), len(lines))


def _is_rule(lines: list[str], index: int) -> bool:
    return index < len(lines) and re.fullmatch(r"-{3,}\s*", lines[index]) is not None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
