"""JSON in the person's own editor: a private file, read back strictly."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from sayso import codec, text
from sayso.errors import InvalidCall
from sayso.hiding import referred
from sayso.types import Json

_FALLBACKS = ("nano", "vi")
_EMPTY: dict[str, Json] = {"array": [], "string": "", "number": 0, "integer": 0, "boolean": False}
#: Past this many levels a schema that refers to itself is left to the person.
_DEEPEST = 8


class NoEditor(Exception):
    """There is no editor, or it failed; the message says what to do."""


def as_json(value: Json) -> str:
    """JSON for a person's eyes: what cannot be seen is written as an escape."""
    raw = json.dumps(value, indent=2, ensure_ascii=False)
    hidden = (char for char in set(raw) if char > "~" and text.visible(char).hidden)
    return raw.translate({ord(char): json.dumps(char)[1:-1] for char in hidden}) + "\n"


def edited(content: str) -> str:
    """What the person made of this text."""
    command = [*_editor(), ""]
    with tempfile.TemporaryDirectory(prefix="sayso-") as folder:  # for this user alone
        path = Path(folder) / "edit.json"
        path.touch(0o600)
        path.write_text(content, encoding="utf-8")
        command[-1] = str(path)
        try:
            done = subprocess.run(command, check=False)
            if done.returncode != 0:
                raise NoEditor(f"the editor {command[0]!r} ended with code {done.returncode}")
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise NoEditor(f"the editor {command[0]!r} could not be used: {error}") from error


def _editor() -> list[str]:
    chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    try:
        words = shlex.split(chosen) if chosen else []
    except ValueError as error:
        raise NoEditor(f"$VISUAL or $EDITOR cannot be read: {error}") from None
    if words:
        return words
    found = next(filter(shutil.which, _FALLBACKS), None)
    if found is None:
        raise NoEditor("there is no editor: set EDITOR to one")
    return [found]


def parsed(written: str, rules: Mapping[str, Json] | None) -> Json:
    """The JSON that was written, if it is valid and fits the schema; else ``InvalidCall``."""
    from sayso import schema  # brings pydantic, which most people at a prompt do not need

    value = codec.parse(written)
    wrong = schema.errors(rules, value) if rules is not None else []
    if wrong:
        path, message = wrong[0]
        raise InvalidCall(f"{path}: {message}" if path else message, path)
    return value


def skeleton(rules: Json) -> Json:
    """Something to start from: the defaults of a schema, or empty values of its types."""
    return _empty(rules, rules, _DEEPEST)


def _empty(rules: Json, root: Json, depth: int) -> Json:
    """The same for a part of ``root``, which may refer to itself."""
    if not isinstance(rules, Mapping) or not depth:
        return None
    for said in ("default", "const"):
        if said in rules:
            return rules[said]
    if rules.get("enum"):
        return rules["enum"][0]
    if "$ref" in rules:
        return _empty(referred(root, rules["$ref"]), root, depth - 1)
    if rules.get("type") == "object":
        fields = rules.get("properties", {}).items()
        return {key: _empty(part, root, depth - 1) for key, part in fields}
    kind = rules.get("type")
    return _EMPTY.get(kind) if isinstance(kind, str) else None
