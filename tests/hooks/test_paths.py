"""What a repository's settings and its folders make of a command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sayso.hooks.calls import call_kinds
from sayso.hooks.commands import command_kinds

_IDENTITY = ("-c", "user.name=Ana", "-c", "user.email=ana@example.com")


def git(folder: Path, *words: str) -> None:
    command = ["git", *_IDENTITY, "-c", "protocol.file.allow=always", "-C", str(folder), *words]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "work" / "project"
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "--template=")
    (folder / "a.txt").write_text("a\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    return folder


def configure(repository: Path, text: str) -> None:
    with (repository / ".git" / "config").open("a") as file:
        file.write(text)


@pytest.mark.parametrize(
    "text",
    [
        '[remote "origin"]\n\turl = git@example.com:a/b.git\n\tfetch = +refs/*:refs/x/*\n',
        '[branch "main"]\r\n\tremote = origin ; a comment\r\n\tmerge = refs/heads/main\r\n',
        "[core]\n\tfsmonitor = false\n\tautocrlf = input\n\tsshCommand = ssh -i ~/.ssh/id_work\n",
        '[submodule "b"]\n\turl = https://example.com/b.git\n\tactive = true\n',
        "[user]\n\tname = Ana\n[commit]\n\tgpgSign = true\n# a comment\n\n[alias]\n\tst = status\n",
    ],
)
def test_usual_settings_are_known(repository: Path, text: str) -> None:
    configure(repository, text)
    assert command_kinds("git status", str(repository)) == {"read"}


@pytest.mark.parametrize(
    "text",
    [
        "[core]\n\tfsmonitor = ./x\n",
        "[core]\n\tfsmonitor = true;./x\n",
        "[core]\tfsmonitor = ./x\n",
        "[core]\n\tabbrev = 7\\\n[alias]\n\tfsmonitor = ./x\n",
        "[core]\n\tabbrev = 7\\\r\n[alias]\n\tfsmonitor = ./x\n",
        "[pager]\n\tlog = ./x\n",
        '[diff "x"]\n\ttextconv = ./x\n',
        "[diff.x]\n\ttextconv = ./x\n",
        '[gpg "ssh"]\n\tdefaultKeyCommand = ./x\n',
        '[remote "origin"]\n\tpromisor = true\n',
        "[include]\n\tpath = ../x\n",
        "[core]\n\tworktree = ../..\n",
        "[core]\n\thooksPath = .husky\n\thooksPath = hooks\n",
        '[core]\n\thooksPath = "ho\\\\oks"\n',
        "[new]\n\tsetting = 1\n",
        "#" * 100_000 + "\n[core]\n\tfsmonitor = ./x\n",
    ],
)
def test_other_settings_are_asked_about(repository: Path, text: str) -> None:
    configure(repository, text)
    assert command_kinds("git status", str(repository)) & {"other", "unclear"}


def test_submodule_with_usual_settings_is_known(repository: Path) -> None:
    git(repository, "submodule", "add", "-q", str(repository), "part")
    assert command_kinds("git status", str(repository)) == {"read"}
    assert command_kinds("cd part && git log", str(repository)) == {"read"}


def test_submodule_that_runs_program_is_asked_about(repository: Path) -> None:
    git(repository, "submodule", "add", "-q", str(repository), "part")
    git(repository / "part", "config", "core.fsmonitor", "./x")
    assert command_kinds("git status", str(repository)) == {"read", "other"}


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("Bild \u00e4\u2705.png", {"read"}),
        ("Screenshot 3.04\u202fPM.png", {"read"}),  # as macOS names them
        (".e\u200cnv", {"unclear"}),
        ("a\u202eb", {"unclear"}),
        ("a\0b", {"unclear"}),
        ("id_r\u017fa", {"secret"}),
    ],
)
def test_names_that_hide_characters_are_unclear(
    repository: Path, name: str, kinds: set[str]
) -> None:
    arguments = {"cwd": str(repository), "file_path": name}
    assert call_kinds("Read", arguments) == kinds


@pytest.mark.parametrize("path", [" /etc/x", " ~/x", "a.txt\n", "file:///etc/x"])
def test_path_that_agents_read_differently_is_unclear(repository: Path, path: str) -> None:
    arguments = {"cwd": str(repository), "file_path": path, "content": ""}
    assert "unclear" in call_kinds("Write", arguments)


def test_program_of_version_manager_obeys_project(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim = tmp_path / "asdf" / "shims" / "node"
    shim.parent.mkdir(parents=True)
    shim.write_text("#!/bin/sh\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shim.parent}:/usr/bin:/bin")
    assert command_kinds("node --version", str(repository)) == {"read"}
    (repository / ".tool-versions").write_text("nodejs path:./evil\n")
    assert command_kinds("node --version", str(repository)) == {"other"}


def test_sed_of_macos_takes_suffix() -> None:
    code = (
        "import sys; sys.platform = 'darwin'\n"
        "from sayso.hooks.commands import command_kinds\n"
        "print(command_kinds(\"sed -i 's/a/b/' 'w x' y\", '/src/project'))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "{'other'}"


@pytest.mark.parametrize(
    ("command", "kinds"),
    [
        ("git blame a.txt", {"read"}),
        ("git show HEAD:a.txt HEAD~1:a.txt", {"read"}),
        ("git show HEAD", {"read", "secret"}),
        ("git show HEAD:a.txt HEAD", {"read", "secret"}),
        ("git show ':/one'", {"read", "secret"}),
        ("git blame .env", {"read", "secret"}),
        ("git show HEAD:.env", {"read", "secret"}),
    ],
)
def test_git_shows_credentials_unless_it_names_others(
    repository: Path, command: str, kinds: set[str]
) -> None:
    (repository / ".env").write_text("KEY=1\n")
    git(repository, "add", ".env")
    assert command_kinds(command, str(repository)) == kinds
