"""Installing the hook into agents' settings, removing it, and the doctor."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from coding_world import World
from sayso_process import run

from sayso.hooks import settings
from sayso.hooks.program import Config, load_config
from sayso.hooks.settings import AGENTS, HookOptions, SettingsError

ALL = sorted(AGENTS)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home folder."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for name in list(os.environ):
        if name.startswith(("SAYSO", "CLAUDE", "CODEX", "COPILOT", "GEMINI", "XDG")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return folder


def sayso(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run("hook", *arguments, cwd=Path.cwd(), env=os.environ | environment)


#: What people have in these files besides.
THEIRS: dict[str, Any] = {
    "claude": {
        "permissions": {"deny": ["Bash(rm *)"]},
        "hooks": {
            "PreToolUse": [
                {"matcher": "Bash", "hooks": [{"type": "command", "command": "lint.sh"}]}
            ],
            "Stop": [{"hooks": [{"type": "command", "command": "say done"}]}],
        },
        "model": "opus ünïcode",
    },
    "codex": {"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "x"}]}]}},
    "copilot": {"version": 1, "hooks": {"preToolUse": [{"type": "command", "bash": "x"}]}},
    "gemini": {"theme": "dark"},
}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("before", ["none", "empty", "theirs"])
def test_install_and_uninstall_leave_the_rest_alone(
    home: Path, tmp_path: Path, name: str, before: str
) -> None:
    agent = AGENTS[name]
    path = agent.file("user", tmp_path)
    theirs = {"none": None, "empty": {}, "theirs": THEIRS[name]}[before]
    if theirs is not None:
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(theirs))
    assert settings.install(agent, path, HookOptions())
    once = path.read_bytes()
    assert not settings.install(agent, path, HookOptions()), "installing twice changes nothing"
    assert path.read_bytes() == once
    merged = json.loads(once)
    assert agent.before in merged["hooks"]
    assert agent.after in merged["hooks"]
    for key, value in (theirs or {}).items():
        if key != "hooks":
            assert merged[key] == value
    assert settings.uninstall(agent, path)
    assert not settings.uninstall(agent, path)
    left = json.loads(path.read_text()) if path.exists() else None
    assert left == (theirs or None), left


@pytest.mark.parametrize("name", ALL)
def test_other_options_replace_the_entry(home: Path, tmp_path: Path, name: str) -> None:
    agent, path = AGENTS[name], AGENTS[name].file("user", tmp_path)
    settings.install(agent, path, HookOptions(limit=100))
    settings.install(agent, path, HookOptions(limit=200, program="/opt/other/sayso"))
    text = path.read_text()
    assert "--limit 100" not in text
    assert text.count("/opt/other/sayso hook run --limit 200 || exit 2") == 3
    assert str(230 * agent.unit) in text


def test_a_hook_in_a_group_of_others_is_removed_alone(home: Path, tmp_path: Path) -> None:
    path = AGENTS["claude"].file("user", tmp_path)
    settings.install(AGENTS["claude"], path, HookOptions())
    found = json.loads(path.read_text())
    found["hooks"]["PreToolUse"][0]["hooks"].append({"type": "command", "command": "mine.sh"})
    path.write_text(json.dumps(found))
    settings.uninstall(AGENTS["claude"], path)
    left = json.loads(path.read_text())["hooks"]
    assert [hook["command"] for hook in left["PreToolUse"][0]["hooks"]] == ["mine.sh"]


@pytest.mark.parametrize("text", ["{", "[]", '{"hooks": []}', '{"hooks": {"PreToolUse": {}}}'])
def test_a_file_that_we_do_not_understand_is_left_alone(
    home: Path, tmp_path: Path, text: str
) -> None:
    path = tmp_path / "settings.json"
    path.write_text(text)
    for act in (
        lambda: settings.install(AGENTS["claude"], path, HookOptions()),
        lambda: settings.uninstall(AGENTS["claude"], path),
    ):
        with pytest.raises(SettingsError):
            act()
        assert path.read_text() == text


def test_links_and_permissions_stay(home: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text("{}")
    real.chmod(0o640)
    path = AGENTS["claude"].file("user", tmp_path)
    path.parent.mkdir(parents=True)
    path.symlink_to(real)
    settings.install(AGENTS["claude"], path, HookOptions())
    assert path.is_symlink()
    assert "hook run" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_a_path_with_quotes_and_spaces(home: Path, tmp_path: Path) -> None:
    program = tmp_path / 'it\'s a "folder"' / "sayso"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$@" > ran; exit 0\n')
    program.chmod(0o755)
    command = HookOptions(program=str(program)).command()
    done = subprocess.run(command, shell=True, cwd=tmp_path)
    assert (done.returncode, (tmp_path / "ran").read_text()) == (0, "hook run --limit 570\n")
    path = tmp_path / "settings.json"
    settings.install(AGENTS["claude"], path, HookOptions(program=str(program)))
    assert settings.uninstall(AGENTS["claude"], path)


def test_the_command_line(home: Path, tmp_path: Path) -> None:
    refused = sayso("install", "claude")
    assert refused.returncode == 2
    assert "--server URL --token-file FILE" in refused.stderr
    token = tmp_path / "token"
    token.write_text("secret\n")
    given = ("--server", "http://127.0.0.1:9", "--token-file", str(token))
    shown = sayso("install", "claude", "--project", "--print", *given)
    assert shown.returncode == 0
    assert not (tmp_path / ".claude").exists()
    assert not (home / ".config").exists()
    assert sayso("install", "claude", "--project", *given).returncode == 0
    assert (tmp_path / ".claude" / "settings.json").exists()
    stored = home / ".config" / "sayso" / "hook.json"
    assert stat.S_IMODE(stored.stat().st_mode) == 0o600
    assert load_config() == Config(server="http://127.0.0.1:9", token="secret")
    assert "secret" not in (tmp_path / ".claude" / "settings.json").read_text()
    assert "already" in sayso("install", "claude", "--project").stdout
    assert "Removed" in sayso("uninstall", "claude", "--project").stdout
    assert "no hook" in sayso("uninstall", "claude", "--project").stdout


@pytest.mark.parametrize(
    "wrong",
    [
        ("install", "emacs"),
        ("install", "claude", "--project", "--user", "--store", "x.db"),
        ("install", "claude", "--server", "http://x", "--store", "x.db"),
        ("install", "claude", "--token-file", "x", "--store", "x.db"),
        ("install", "claude", "--server", "http://x", "--token-file", "/nowhere/token"),
        ("install", "claude", "--server", "http://x", "--policy", "balanced"),
        ("install", "codex", "--prompts", "--store", "x.db"),
        ("install", "copilot", "--defer", "--store", "x.db"),
        ("install", "claude", "--defer", "--prompts", "--store", "x.db"),
        ("install", "claude", "--limit", "1", "--store", "x.db"),
        ("test", "gemini"),
    ],
)
def test_options_that_make_no_sense(home: Path, wrong: tuple[str, ...]) -> None:
    assert sayso(*wrong).returncode == 2
    assert not (home / ".claude").exists()


def test_prompts_are_another_event(home: Path, tmp_path: Path) -> None:
    assert sayso("install", "claude", "--prompts", "--store", "sqlite:///x.db").returncode == 0
    hooks = json.loads((home / ".claude" / "settings.json").read_text())["hooks"]
    assert sorted(hooks) == ["PermissionRequest", "PostToolUse", "UserPromptSubmit"]
    assert sayso("install", "claude").returncode == 0
    hooks = json.loads((home / ".claude" / "settings.json").read_text())["hooks"]
    assert sorted(hooks) == ["PostToolUse", "PreToolUse", "UserPromptSubmit"]


# -- doctor


def checked(*arguments: str) -> tuple[int, dict[str, str]]:
    done = sayso("doctor", "--json", *arguments)
    found = json.loads(done.stdout)
    assert found["ok"] == (done.returncode == 0)
    worst: dict[str, str] = {}
    for check in found["checks"]:
        worst[f"{check['level']}: {check['name']}"] = check["message"]
    return done.returncode, worst


def test_the_doctor_finds_nothing_wrong(
    home: Path, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text(world.environment["SAYSO_HOOK_TOKEN"])
    sayso("install", "claude", "--server", world.server.url, "--token-file", str(token))
    code, found = checked()
    assert code == 0, found
    events = ("PreToolUse", "PostToolUse", "UserPromptSubmit")
    assert set(found) == {"ok: server", *(f"ok: claude user {event}" for event in events)}
    code, found = checked("codex")
    assert (code, "problem: codex" in found) == (1, True)
    monkeypatch.setenv("SAYSO_TOKEN", "ana's")
    assert "warning: environment" in checked()[1]


def test_the_doctor_finds_what_is_wrong(home: Path, world: World, tmp_path: Path) -> None:
    assert checked()[0] == 1  # nothing is installed
    token = tmp_path / "token"
    token.write_text("wrong")
    sayso("install", "claude", "--server", world.server.url, "--token-file", str(token))
    assert "refuses the token" in checked()[1]["problem: server"]
    (home / ".config" / "sayso" / "hook.json").chmod(0o644)
    assert "chmod 600" in checked()[1]["problem: config"]

    path = home / ".claude" / "settings.json"
    good = path.read_text()
    for wrong, name, message in (
        (good.replace('"timeout": 600', '"timeout": 60'), "PreToolUse", "then runs the tool"),
        (good.replace(" || exit 2", ""), "PreToolUse", "does not deny"),
        (good.replace("sh -c '/", "sh -c '/gone/"), "PreToolUse", "is not a program"),
        (good.replace('"timeout": 600', '"x": 1'), "PreToolUse", "no time-out"),
    ):
        assert wrong != good
        path.write_text(wrong)
        assert message in checked()[1][f"problem: claude user {name}"]
    path.write_text("{")
    assert "problem: claude user" in checked()[1]


@pytest.mark.parametrize(
    ("more", "level"),
    [
        ({"permissions": {"allow": ["Bash(npm run *)"]}}, "warning"),
        ({"permissions": {"allow": ["mcp__github"]}}, "warning"),
        ({"permissions": {"defaultMode": "bypassPermissions"}}, "warning"),
        ({"disableAllHooks": True}, "problem"),
        ({"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "x"}]}]}}, "warning"),
        ({"hooks": {"PostToolUse": [{"hooks": [{"type": "command", "command": "x"}]}]}}, ""),
        ({"permissions": {"allow": ["Read"]}}, ""),
        ({"permissions": {"deny": ["Bash"]}}, ""),
    ],
)
def test_the_doctor_reads_the_agents_own_rules(
    home: Path, tmp_path: Path, more: dict[str, Any], level: str
) -> None:
    agent = AGENTS["claude"]
    path = agent.file("project", tmp_path)
    path.parent.mkdir()
    path.write_text(json.dumps(more))
    settings.install(agent, path, HookOptions())
    levels = {found.level for found in settings.check(agent, tmp_path)} - {"ok"}
    assert levels == ({level} if level else set())


def test_codex_has_to_trust_the_hook(home: Path, tmp_path: Path) -> None:
    agent = AGENTS["codex"]
    settings.install(agent, agent.file("user", tmp_path), HookOptions())
    found = {one.name: one.level for one in settings.check(agent, tmp_path)}
    assert found["codex trust"] == "problem"
    config = home / ".codex" / "config.toml"
    config.write_text('[hooks.state."hooks.json:pre_tool_use:0:0"]\ntrusted_hash = "sha256:1"\n')
    found = {one.name: one.level for one in settings.check(agent, tmp_path)}
    assert found["codex trust"] == "ok"


def test_copilot_skips_hooks_of_a_project(home: Path, tmp_path: Path) -> None:
    agent = AGENTS["copilot"]
    settings.install(agent, agent.file("project", tmp_path), HookOptions())
    found = {one.name: one.level for one in settings.check(agent, tmp_path)}
    assert found["copilot trust"] == "warning"
