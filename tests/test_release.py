"""A release can be made: its files, metadata, notes and bill of materials agree."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
BUNDLED = (ROOT / "THIRD_PARTY_LICENSES").read_text("utf-8")
SECTION = re.compile(r"^-{80}\n\n(\S+) (\S+)\n\nLicense: (.+)$", re.M)


def run(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)


def test_windows_is_refused_at_import() -> None:
    done = run("-c", "import sys; sys.platform = 'win32'; import sayso")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: Sayso runs on Linux and macOS. On Windows, ")


def test_release_notes_need_matching_tag() -> None:
    script = "scripts/release_notes.py"
    source = PROJECT["urls"]["Source"]
    notes = run(script, f"v{PROJECT['version']}", source)
    assert notes.returncode == 0, notes.stderr
    assert "### Added" in notes.stdout
    for tag, repository, said in (
        ("v9.9.9", source, "the tag says 9.9.9"),
        (f"v{PROJECT['version']}", "https://example.com/fork", "lead to"),
    ):
        refused = run(script, tag, repository)
        assert refused.returncode == 1
        assert said in refused.stderr


def test_only_publishing_job_gets_identity() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8")
    workflow: dict[Any, Any] = yaml.safe_load(text)
    assert workflow[True]["push"] == {"tags": ["v*"]}  # YAML reads `on` as a boolean
    assert workflow["permissions"] == {"contents": "read"}
    jobs = workflow["jobs"]
    identity = {name for name in jobs if "id-token" in jobs[name].get("permissions", {})}
    assert identity == {"publish"}
    assert jobs["publish"]["needs"] == "build"
    assert jobs["publish"]["environment"] == "pypi"
    assert "secrets." not in text
    assert "make release-check" in text


# -- the packages in the web app


def test_bundled_packages_match_lock() -> None:
    lock = json.loads((ROOT / "ui" / "package-lock.json").read_text("utf-8"))["packages"]
    locked = {(path.split("node_modules/")[-1], one.get("version")) for path, one in lock.items()}
    bundled = {(name, version) for name, version, _ in SECTION.findall(BUNDLED)}
    assert len(bundled) > 15
    assert bundled <= locked
    wanted = json.loads((ROOT / "ui" / "package.json").read_text("utf-8"))["dependencies"]
    assert wanted.keys() <= {name for name, _ in bundled}


def test_bundled_packages_have_license_texts() -> None:
    for section in BUNDLED.split("-" * 80)[1:]:
        assert re.search(r"Copyright|Permission is hereby|no licence file", section), section[:60]
    assert "Apache License" in BUNDLED  # also for the packages that only name it


def test_license_expression_covers_bundled_packages() -> None:
    bundled = {license_id for _, _, license_id in SECTION.findall(BUNDLED)}
    assert {"MIT", *bundled} == set(PROJECT["license"].split(" AND "))


def test_bill_of_materials_names_bundled_packages(tmp_path: Path) -> None:
    path = tmp_path / "bill.json"
    assert run("scripts/bill_of_materials.py", str(path)).returncode == 0
    bill = json.loads(path.read_text("utf-8"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    parts = bill["metadata"]["component"]["components"]
    named = [(part["name"], part["version"]) for part in parts]
    assert named == [(name, version) for name, version, _ in SECTION.findall(BUNDLED)]
    urls = {part["purl"] for part in bill["components"]}
    for requirement in PROJECT["dependencies"]:
        name = re.split("[<>=]", requirement)[0]
        assert any(url.startswith(f"pkg:pypi/{name}@") for url in urls), name


# -- the whole


@pytest.mark.long
def test_release_check_passes_for_newest_server() -> None:
    """The files are built and checked, and used in one new environment; the rest is `make`'s."""
    one = ["--python", sys.executable, "--extra", "server", "--resolution", "highest"]
    done = run("scripts/release_check.py", *one)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sayso demo: works" in done.stdout
    assert "1 of 1 environments work" in done.stdout
