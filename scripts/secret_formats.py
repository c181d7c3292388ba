"""Write ``src/sayso/secret_formats.json``: what the tokens of well-known services look like.

The formats are those of gitleaks (https://github.com/gitleaks/gitleaks, MIT License, Copyright (c)
2019 Zachary Rice). Run it with the path of a newer ``config/gitleaks.toml`` to update them:

    python scripts/secret_formats.py gitleaks.toml

Left out are rules that guess by what is written around a value, because ``sayso.redaction`` has
its own for those, and rules that Python's regular expressions, unlike Go's, cannot search in linear
time.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path

TARGET = Path(__file__).parents[1] / "src" / "sayso" / "secret_formats.json"
#: These begin with what may stand before a value: a name and an equals sign, a command, a file.
_BY_CONTEXT = re.compile(r"(\(\?i\))?\[\\w\.-\]\{0,50\}\?|\\bcurl|.*<")
_LEFT_OUT = {"private-key", "kubernetes-secret-yaml", "jwt-base64", "sourcegraph-access-token"}
_FLAGS_INSIDE = re.compile(r"(?<!^)\(\?i\)")
#: What has to follow a token in a source file. In a sentence a comma may follow, or a bracket.
_END = r"""(?:[\x60'"\s;]|\\[nr]|$)"""
_UNBOUNDED = re.compile(r"\{(\d+),\}")


def main(source: str) -> None:
    """Convert the rules of a ``gitleaks.toml``."""
    rules = tomllib.loads(Path(source).read_text("utf-8"))["rules"]
    found = {}
    for rule in rules:
        regex = rule.get("regex", "")
        wanted = regex and not _BY_CONTEXT.match(regex) and rule["id"] not in _LEFT_OUT
        if wanted and (pattern := _python(regex)) is not None:
            found[rule["id"]] = {"keywords": rule["keywords"], "regex": pattern}
    TARGET.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", "utf-8")
    print(f"{len(found)} of {len(rules)} rules")


def _python(regex: str) -> str | None:
    """Return a Go pattern as Python spells it; a flag in the middle holds for all of it.

    Repetitions get an upper bound, so that a search takes linear time; ``sayso.redaction`` extends
    what was found to the end of the token.
    """
    regex = regex.replace(r"\z", r"\Z").replace("[[:alnum:]]", "[0-9A-Za-z]").removesuffix(_END)
    regex = _UNBOUNDED.sub(r"{\1,1000}", regex)
    if _FLAGS_INSIDE.search(regex):
        regex = "(?i)" + _FLAGS_INSIDE.sub("", regex).removeprefix("(?i)")
    try:
        re.compile(regex)
    except re.error:
        return None
    return regex


if __name__ == "__main__":
    main(sys.argv[1])
