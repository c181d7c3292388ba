"""Format figures for the page, the plots and the terminal."""

from __future__ import annotations

from benchmarks.row import Check

_UNITS = {"ms": "ms", "bytes": "B", "percent": "%", "second": "/s"}


def figure(name: str, value: float) -> str:
    """Format a figure with its unit, which its name ends in."""
    unit = _UNITS.get(name.rpartition("_")[2], "")
    if unit == "B":
        return _bytes(value)
    if unit == "ms" and value >= 10_000:
        return f"{value / 1000:.1f} s"
    return f"{number(value)} {unit}".strip().replace(" /s", "/s")


def heading(name: str) -> str:
    """Return the name of a figure without its unit."""
    stem, _, unit = name.rpartition("_")
    words = stem if unit in ("ms", "bytes", "percent") and stem else name
    return words.replace("_", " ").replace("cpu", "CPU")


def number(value: float) -> str:
    """Format a number with three significant digits, without an exponent."""
    if value == round(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _bytes(value: float) -> str:
    for unit in ("B", "kB", "MB"):
        if abs(value) < 1000 or unit == "MB":
            break
        value /= 1000
    return f"{number(value)} {unit}"


def held(check: Check, *, named: bool = True) -> str:
    """Describe a check: its value and its bound."""
    bound = check.most if check.most is not None else check.least
    assert bound is not None
    sign = "≤" if check.most is not None else "≥"
    name = f"{check.what}: " if named else ""
    return f"{name}{_with(check.value, check.unit)} ({sign} {_bare(bound, check.unit)})"


def _with(value: float, unit: str) -> str:
    bare = _bare(value, unit)
    return bare if bare.startswith("1/") else f"{bare} {unit}".rstrip()


def _bare(value: float, unit: str) -> str:
    """Format a bound as a number, or as a fraction such as 1/6."""
    return f"1/{number(1 / value)}" if unit == "times" and 0 < value < 0.95 else number(value)
