"""Print the changes of a release, for the tag that releases it.

    python scripts/release_notes.py v0.1.0 https://github.com/owner/name

Fails if the tag, ``pyproject.toml``, ``sayso.__version__``, the test kit and the changelog do not
name one version, if the changelog gives no date for it, or if the project's URLs lead elsewhere.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(tag: str, repository: str) -> None:
    """Check that everything agrees, and print the notes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    kit = tomllib.loads((ROOT / "testkit" / "pyproject.toml").read_text("utf-8"))["project"]
    version = project["version"]
    source = (ROOT / "src" / "sayso" / "__init__.py").read_text("utf-8")
    found = re.search(r'^__version__ = "(.+)"$', source, re.M)
    named = {"the tag": tag.removeprefix("v"), "testkit/pyproject.toml": kit["version"]}
    named["sayso.__version__"] = found[1] if found else ""
    wrong = [f"{place} says {other}" for place, other in named.items() if other != version]
    if project["urls"]["Source"] != repository:
        wrong.append(f"the project's URLs lead to {project['urls']['Source']}, not {repository}")
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    notes = re.search(
        rf"^## {re.escape(version)} - (\S+)\n(.*?)(?=^## |\Z)", changelog, re.M | re.S
    )
    if notes is None or not re.fullmatch(r"20\d\d-\d\d-\d\d", notes[1]):
        wrong.append(f"CHANGELOG.md has no section '## {version} - YYYY-MM-DD'")
    if wrong or notes is None:
        raise SystemExit(f"pyproject.toml says {version}, but {'; '.join(wrong)}")
    print(notes[2].strip())


if __name__ == "__main__":
    main(*sys.argv[1:])
