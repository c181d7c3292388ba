"""Footprints: the words of a command, how many a grant has to name, and resolved files."""

from __future__ import annotations

from pathlib import Path

import pytest

from sayso.hooks.footprints import footprint, resolve


@pytest.mark.parametrize(
    ("command", "least", "usual"),
    [
        ("npm test", 2, 2),
        ("npm run build --prod", 2, 3),
        ("git fetch origin main --tags", 2, 3),
        ("make check", 2, 2),
        ("pytest -x", 1, 1),
        ("pytest", 1, 1),
        ("touch a b", 1, 1),
        ("python manage.py migrate", 2, 2),
        ("./gradlew test", 2, 2),
        ("python -c pass", 0, 0),
        ("npm --prefix x test", 0, 0),
        ("git -C x fetch", 0, 0),
        ("git push origin", 0, 0),
        ("env make", 0, 0),
        ("timeout 5 make", 0, 0),
        ("eval make", 0, 0),
        ("ssh host ls", 0, 0),
        ("rm -rf build", 0, 0),
    ],
)
def test_grant_has_to_name_leading_words(command: str, least: int, usual: int) -> None:
    parts = footprint("Bash", {"command": command, "cwd": "/srv/shop"})
    assert parts is not None
    assert (parts["least"], parts["usual"]) == (least, usual)


@pytest.mark.parametrize(
    "command", ["a; b", "a | b", "a && b", "a > b", "a 2>&1", "a &", "a $B", "a *", "A=1 b", "a\nb"]
)
def test_compound_command_has_no_leading_words(command: str) -> None:
    parts = footprint("Bash", {"command": command, "cwd": "/srv/shop"})
    assert parts is not None
    assert "words" not in parts


def test_path_with_null_byte_is_unclear() -> None:
    parts = footprint("Write", {"file_path": "a", "content": "", "cwd": "/srv/\0"})
    assert parts == {"kinds": ["unclear"], "places": []}


def test_links_are_resolved(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "link").symlink_to("src")
    (project / "away").symlink_to("/etc")
    (tmp_path / "alias").symlink_to(project)
    cwd = str(tmp_path / "alias")
    directory = str(project.resolve())
    for path, file in (("link/a.py", "src/a.py"), ("away/x", "/etc/x"), ("src/..", ".")):
        place = resolve("Read", {"file_path": path, "cwd": cwd})
        assert place == {"directory": directory, "files": [file]}
