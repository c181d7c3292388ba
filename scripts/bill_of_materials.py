"""Write the software bill of materials of the release, as CycloneDX 1.6.

    python scripts/bill_of_materials.py dist/sayso.cdx.json

It has the npm packages whose code is in the web app, from ``THIRD_PARTY_LICENSES``, and the Python
packages that ``pip install 'sayso[server]'`` brings, at the versions of ``requirements/demo.txt``,
which the tests run with.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import quote

ROOT = Path(__file__).resolve().parent.parent
BUNDLED = re.compile(r"^-{80}\n\n(\S+) (\S+)\n\nLicense: (.+)$", re.M)
PINNED = re.compile(r"^([\w.-]+)==([\w.]+)( ;|$)", re.M)


def bundled() -> list[tuple[str, str, str]]:
    """Return name, version and licence of each npm package in the web app."""
    text = (ROOT / "THIRD_PARTY_LICENSES").read_text("utf-8")
    return [(found[1], found[2], found[3]) for found in BUNDLED.finditer(text)]


def bill() -> dict[str, Any]:
    """Return the bill of materials."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    release = component("pypi", project["name"], project["version"], "application")
    release["licenses"] = [{"expression": project["license"]}]
    parts = []
    for name, version, license_id in bundled():
        part = component("npm", name, version)
        parts.append({**part, "licenses": [{"license": {"id": license_id}}]})
    pinned = (ROOT / "requirements" / "demo.txt").read_text("utf-8")
    needed = [component("pypi", found[1], found[2]) for found in PINNED.finditer(pinned)]
    refs = [part["bom-ref"] for part in needed]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**release, "components": parts}},
        "components": needed,
        "dependencies": [
            {"ref": release["bom-ref"], "dependsOn": refs},
            *({"ref": ref} for ref in refs),
        ],
    }


def component(kind: str, name: str, version: str, sort: str = "library") -> dict[str, Any]:
    """Return a component, which its package URL identifies."""
    url = f"pkg:{kind}/{quote(name, safe='/')}@{version}"
    return {"type": sort, "bom-ref": url, "name": name, "version": version, "purl": url}


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(bill(), indent=2) + "\n", "utf-8")
