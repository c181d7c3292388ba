"""Settings of sign-in, from TOML files: their keys, types and addresses are checked."""

from __future__ import annotations

import tomllib
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from sayso.errors import InvalidPolicy

S = TypeVar("S")


def load_settings(
    shape: type[S], path: str | Path, *, files: dict[str, str] | None = None, **texts: str
) -> S:
    """Read a TOML file into a dataclass whose fields are texts and tuples of texts.

    ``files`` names keys whose value is a file that contains the field: ``{key: field}``. ``texts``
    are the fields that the file itself may not contain, with their defaults.
    """
    try:
        table = tomllib.loads(Path(path).read_text("utf-8"))
        for key, name in (files or {}).items():
            if key in table:
                texts[name] = (Path(path).parent / table.pop(key)).read_text("utf-8").strip()
    except (OSError, ValueError, TypeError) as error:
        raise InvalidPolicy(f"{path}: {error}") from None
    by_name = {field.name: field for field in fields(shape) if field.name not in texts}  # type: ignore[arg-type]
    for name, value in table.items():
        if name not in by_name:
            raise InvalidPolicy(f"{path}: {name!r} is not one of {', '.join(by_name)}")
        is_list = by_name[name].type != "str"
        if not is_text_list(value) if is_list else not isinstance(value, str):
            raise InvalidPolicy(f"{path}: {name} is {'a list of texts' if is_list else 'text'}")
        table[name] = tuple(value) if is_list else value
    missing = [n for n, field in by_name.items() if field.default is MISSING and n not in table]
    if missing:
        raise InvalidPolicy(f"{path}: {', '.join(missing)} is missing")
    return shape(**table, **texts)


def check_url(name: str, url: object) -> None:
    """Raise ``InvalidPolicy`` unless this is an address that nobody on the way can change."""
    parts = urlsplit(url) if isinstance(url, str) else urlsplit("")
    local = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if parts.scheme != "https" and not (parts.scheme == "http" and local):
        raise InvalidPolicy(
            f"{name} is {url!r:.200}: use an https:// address (http:// on this machine only)"
        )


def is_text_list(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
