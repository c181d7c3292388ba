"""Adapters: one package per framework or wire protocol, each imported only by its users.

They do not know each other. What they share is in ``agents.py``, ``calls.py`` and
``conversation.py`` (the log of a thread), and here: the check that a framework is installed in a
version that is tested.
Start with ``guard.py`` of the framework that you know; all of them have the same shape.
"""

from __future__ import annotations

import re
from importlib import import_module, metadata

from sayso.gate import guarded_runs

# As early as possible: code may keep `pool.submit` before it guards an agent.
guarded_runs.install()

_REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)(?P<range>[^;]*);.*extra == ['\"](?P<extra>[\w-]+)['\"]"
)
_BOUND = re.compile(r"(?P<how>>=|<)\s*(?P<version>[\w.]+)")


def require(extra: str, module: str, missing: str) -> None:
    """Import the framework of an adapter.

    Raises ``ImportError`` if it is not installed, or in a version that is not tested.
    """
    _check_versions(extra)  # before an import that may take seconds
    try:
        import_module(module)
    except ImportError as error:
        message = f'{missing}: pip install "sayso[{extra}]"'
        raise ImportError(message, name=error.name) from error


def _check_versions(extra: str) -> None:
    """Raise ``ImportError`` if a package of an extra has a version outside of the extra's range.

    Both ends of each range are tested. Other versions may fail in unknown ways, and an adapter must
    not fail open.
    """
    for line in metadata.requires("sayso") or ():
        requirement = _REQUIREMENT.match(line)
        if requirement is None or requirement["extra"] != extra:
            continue
        name, bounds = requirement["name"], requirement["range"].strip()
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # the import says so
        for bound in _BOUND.finditer(bounds):
            below = _release(installed) < _release(bound["version"])
            if below is (bound["how"] == ">="):
                raise ImportError(
                    f"{name} {installed} is installed, and Sayso is tested with {name}{bounds}: "
                    f'pip install "sayso[{extra}]"',
                    name=name,
                )


def release_of(package: str) -> tuple[int, ...]:
    """Return the numbers of an installed package's version."""
    return _release(metadata.version(package))


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version; a release candidate counts as the release."""
    parts = re.match(r"\d+(\.\d+)*", version)
    numbers = [int(part) for part in parts[0].split(".")] if parts else [0]
    while numbers and numbers[-1] == 0:
        numbers.pop()  # 1.0 is 1.0.0
    return tuple(numbers)
