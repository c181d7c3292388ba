"""Installing the hook into agents' settings, and removing it."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from coding_world import World, sayso_hook

from sayso import Inbox
from sayso.hooks import settings
from sayso.hooks.program import Config, HookError, load_config
from sayso.hooks.settings import AGENTS, HookOptions, SettingsError, save_config
from sayso.inbox import authenticate

ALL = sorted(AGENTS)
OPTIONS = HookOptions(config="/nowhere/hook.json")


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


@pytest.mark.parametrize("name", sorted(THEIRS))
@pytest.mark.parametrize("before", ["none", "empty", "theirs"])
def test_uninstall_restores_the_original_settings(
    home: Path, tmp_path: Path, name: str, before: str
) -> None:
    agent = AGENTS[name]
    path = agent.file("user", tmp_path)
    theirs = {"none": None, "empty": {}, "theirs": THEIRS[name]}[before]
    if theirs is not None:
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(theirs))
    assert settings.install(agent, path, OPTIONS)
    once = path.read_bytes()
    assert not settings.install(agent, path, OPTIONS), "installing twice changes nothing"
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
    settings.install(agent, path, HookOptions(config="/c.json", limit=100))
    settings.install(agent, path, HookOptions(config="/c.json", limit=200, python="/opt/python"))
    text = path.read_text()
    assert "--limit 100" not in text
    count = 4 if agent.permission else 3
    assert text.count("hook run --config /c.json --limit 200 || {") == count
    assert text.count("/opt/python -I -S ") == count
    assert str(230 * agent.unit) in text


def test_opencode_plugin_is_installed_and_removed(home: Path, tmp_path: Path) -> None:
    agent = AGENTS["opencode"]
    path = agent.file("user", tmp_path)
    assert path == home / ".config" / "opencode" / "plugin" / "sayso.js"
    assert settings.install(agent, path, OPTIONS)
    assert not settings.install(agent, path, OPTIONS), "installing twice changes nothing"
    assert set(settings.read_settings(path)["hooks"]) == {agent.before, agent.after, agent.prompt}
    assert settings.uninstall(agent, path)
    assert not path.exists()


def test_foreign_opencode_plugin_is_kept(home: Path, tmp_path: Path) -> None:
    path = AGENTS["opencode"].file("user", tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text("export const Mine = async () => ({})\n")
    with pytest.raises(SettingsError, match="not the plugin of Sayso"):
        settings.install(AGENTS["opencode"], path, OPTIONS)
    assert "Mine" in path.read_text()


def test_uninstall_keeps_other_hooks_of_the_group(home: Path, tmp_path: Path) -> None:
    path = AGENTS["claude"].file("user", tmp_path)
    settings.install(AGENTS["claude"], path, OPTIONS)
    found = json.loads(path.read_text())
    found["hooks"]["PreToolUse"][0]["hooks"].append({"type": "command", "command": "mine.sh"})
    path.write_text(json.dumps(found))
    settings.uninstall(AGENTS["claude"], path)
    left = json.loads(path.read_text())["hooks"]
    assert [hook["command"] for hook in left["PreToolUse"][0]["hooks"]] == ["mine.sh"]


@pytest.mark.parametrize("text", ["{", "[]", '{"hooks": []}', '{"hooks": {"PreToolUse": {}}}'])
def test_unreadable_settings_file_is_not_changed(home: Path, tmp_path: Path, text: str) -> None:
    path = tmp_path / "settings.json"
    path.write_text(text)
    for act in (
        lambda: settings.install(AGENTS["claude"], path, OPTIONS),
        lambda: settings.uninstall(AGENTS["claude"], path),
    ):
        with pytest.raises(SettingsError):
            act()
        assert path.read_text() == text


def test_settings_in_the_place_of_a_folder_are_an_error(home: Path, tmp_path: Path) -> None:
    (tmp_path / "settings.json").mkdir()
    with pytest.raises(SettingsError, match="cannot be read"):
        settings.install(AGENTS["claude"], tmp_path / "settings.json", OPTIONS)
    (tmp_path / "full").write_text("")
    with pytest.raises(SettingsError, match="cannot be written"):
        save_config(tmp_path / "full" / "hook.json", Config(server="http://127.0.0.1:8321"))


def test_install_keeps_links_and_permissions(home: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text("{}")
    real.chmod(0o640)
    path = AGENTS["claude"].file("user", tmp_path)
    path.parent.mkdir(parents=True)
    path.symlink_to(real)
    settings.install(AGENTS["claude"], path, OPTIONS)
    assert path.is_symlink()
    assert "hook run" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


@pytest.mark.parametrize("script", ["exit 1", "kill -9 $$", "exit 2"])
def test_failing_program_denies_with_a_message(tmp_path: Path, script: str) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho why >&2\n{script}\n")
    python.chmod(0o755)
    command = HookOptions(config="/c.json", python=str(python)).command()
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.returncode == 2
    assert ("the hook failed" in done.stderr) == (script != "exit 2")


def test_command_quotes_paths(home: Path, tmp_path: Path) -> None:
    python = tmp_path / 'it\'s a "folder"' / "python"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\necho "$@" > ran; exit 0\n')
    python.chmod(0o755)
    options = HookOptions(config="/a b/hook.json", python=str(python))
    done = subprocess.run(options.command(), shell=True, cwd=tmp_path)
    assert done.returncode == 0
    arguments = (tmp_path / "ran").read_text()
    assert arguments.endswith("/sayso/__main__.py hook run --config /a b/hook.json --limit 570\n")
    path = tmp_path / "settings.json"
    settings.install(AGENTS["claude"], path, options)
    assert settings.uninstall(AGENTS["claude"], path)


def test_old_command_is_replaced(home: Path, tmp_path: Path) -> None:
    """Versions before wrote no configuration into the command."""
    path = tmp_path / "settings.json"
    settings.install(AGENTS["claude"], path, OPTIONS)
    found = json.loads(path.read_text())
    for groups in found["hooks"].values():
        groups[0]["hooks"][0]["command"] = "sh -c '/usr/bin/sayso hook run --limit 570 || exit 2'"
    path.write_text(json.dumps(found))
    assert settings.install(AGENTS["claude"], path, OPTIONS)
    assert path.read_text().count("hook run") == 4


def test_install_saves_the_server(home: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    given = ("--server", "http://127.0.0.1:9", "--token-file", str(token))
    shown = sayso_hook("install", "claude", "--project", "--print", *given)
    assert shown.returncode == 0
    assert not (tmp_path / ".claude").exists()
    assert not (home / ".local").exists()
    assert sayso_hook("install", "claude", "--project", *given).returncode == 0
    assert (tmp_path / ".claude" / "settings.json").exists()
    stored = home / ".local" / "share" / "sayso" / "claude.json"
    assert stat.S_IMODE(stored.stat().st_mode) == 0o600
    assert load_config(str(stored)) == Config(server="http://127.0.0.1:9", token="secret")
    assert "secret" not in (tmp_path / ".claude" / "settings.json").read_text()
    assert str(stored) in (tmp_path / ".claude" / "settings.json").read_text()
    assert "already" in sayso_hook("install", "claude", "--project").stdout
    assert load_config(str(stored)).token == "secret"
    assert "Removed" in sayso_hook("uninstall", "claude", "--project").stdout
    assert "no hook" in sayso_hook("uninstall", "claude", "--project").stdout


@pytest.mark.long
def test_install_without_options_writes_private_files(home: Path, tmp_path: Path) -> None:
    done = sayso_hook("install", "claude")
    assert done.returncode == 0, done.stderr
    data = home / ".local" / "share" / "sayso"
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in data.iterdir()}
    assert set(modes.values()) == {0o600}, modes
    assert {"sayso.db", "claude.json"} <= modes.keys()
    assert any("key" in name for name in modes)
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    assert list(tmp_path.iterdir()) == [home], "nothing is in the project"
    config = load_config(str(data / "claude.json"))
    assert config.server == "http://127.0.0.1:8321"
    with Inbox(f"sqlite:///{data / 'sayso.db'}") as inbox:
        assert authenticate(inbox.store, config.token).role == "agent"
    assert f"sayso serve --policy balanced --store sqlite:///{data}/sayso.db" in done.stdout
    again = sayso_hook("install", "claude")
    assert load_config(str(data / "claude.json")) == config
    assert "sayso serve --policy balanced" in again.stdout


@pytest.mark.long
def test_agents_have_separate_tokens(home: Path, world: World) -> None:
    for agent in ("claude", "codex"):
        assert sayso_hook("install", agent).returncode == 0
    data = home / ".local" / "share" / "sayso"
    with Inbox(f"sqlite:///{data / 'sayso.db'}") as inbox:
        names = {
            agent: authenticate(inbox.store, load_config(str(data / f"{agent}.json")).token).name
            for agent in ("claude", "codex")
        }
    assert names == {"claude": "claude", "codex": "codex"}
    assert "claude.json" in (home / ".claude" / "settings.json").read_text()
    assert "codex.json" in (home / ".codex" / "hooks.json").read_text()


def test_policy_file_does_not_depend_on_folder(home: Path) -> None:
    """The hook runs in the folder of the agent, where a repository may have a file so named."""
    installed = sayso_hook(
        "install", "claude", "--store", "x.db", "--policy", "team.toml", "--observe", "strict"
    )
    assert installed.returncode == 0, installed.stderr
    path = home / ".local" / "share" / "sayso" / "claude.json"
    config = load_config(str(path))
    assert config.policy == str(Path.cwd() / "team.toml")
    assert config.observe == "strict"
    save_config(path, config._replace(policy="team.toml"))
    with pytest.raises(HookError, match="install the hook again"):
        load_config(str(path))


@pytest.mark.parametrize(
    "wrong",
    [
        ("install", "emacs"),
        ("install", "claude", "--project", "--user", "--store", "x.db"),
        ("install", "claude", "--server", "http://x", "--store", "x.db"),
        ("install", "claude", "--token-file", "x", "--store", "x.db"),
        ("install", "claude", "--server", "http://x", "--token-file", "/nowhere/token"),
        ("install", "claude", "--server", "http://x", "--policy", "balanced"),
        ("install", "copilot", "--prompts", "--store", "x.db"),
        ("install", "copilot", "--defer", "--store", "x.db"),
        ("install", "claude", "--defer", "--prompts", "--store", "x.db"),
        ("install", "claude", "--limit", "1", "--store", "x.db"),
        ("test", "emacs"),
    ],
)
def test_contradictory_options_are_refused(home: Path, wrong: tuple[str, ...]) -> None:
    assert sayso_hook(*wrong).returncode == 2
    assert not (home / ".claude").exists()


def test_prompts_option_installs_the_prompt_event(home: Path, tmp_path: Path) -> None:
    assert sayso_hook("install", "claude", "--prompts", "--store", "sqlite:///x.db").returncode == 0
    hooks = json.loads((home / ".claude" / "settings.json").read_text())["hooks"]
    assert sorted(hooks) == ["PermissionRequest", "PostToolUse", "UserPromptSubmit"]
    assert sayso_hook("install", "claude").returncode == 0
    hooks = json.loads((home / ".claude" / "settings.json").read_text())["hooks"]
    both = ["PermissionRequest", "PostToolUse", "PreToolUse", "UserPromptSubmit"]
    assert sorted(hooks) == both


def test_install_warns_about_replaced_prompts(home: Path) -> None:
    where = ("--store", "sqlite:///x.db")
    assert "--keep-prompts" in sayso_hook("install", "claude", "--keep-prompts", *where).stderr
    done = sayso_hook("install", "claude", "--replace-prompts", *where)
    assert "nothing else stops it" in done.stdout
    assert "--replace-prompts" in (home / ".claude" / "settings.json").read_text()
