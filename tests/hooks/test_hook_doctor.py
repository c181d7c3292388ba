"""``sayso hook doctor``: whether an agent would ask."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from coding_world import World, payload, sayso_hook

from sayso.hooks import doctor, settings
from sayso.hooks.program import Config
from sayso.hooks.settings import AGENTS, HookOptions, config_file, save_config

CONFIG = Config(store="sqlite:////nowhere/sayso.db")


def checked(*arguments: str) -> tuple[int, dict[str, str]]:
    """Run the doctor. Return its exit code, and a message for each level and name."""
    done = sayso_hook("doctor", "--json", *arguments)
    found = json.loads(done.stdout)
    assert found["ok"] == (done.returncode == 0)
    messages = {f"{one['level']}: {one['name']}": one["message"] for one in found["checks"]}
    return done.returncode, messages


def install(name: str, project: Path, scope: settings.Scope = "user") -> Path:
    """Install the hook of an agent. Return its settings file."""
    save_config(config_file(name), CONFIG)
    agent = AGENTS[name]
    path = agent.file(scope, project)
    settings.install(agent, path, HookOptions(config=str(config_file(name))))
    return path


def problems(name: str, project: Path, system: Path = Path("/nowhere")) -> list[str]:
    results = doctor.check(AGENTS[name], project, system)
    return [result.message for result in results if result.level == "problem"]


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def trust(home: Path, path: Path, *events: str) -> None:
    """Trust these hooks of Codex, as accepting them in /hooks does."""
    entries = json.loads(path.read_text())["hooks"]
    lines = []
    for event in events:
        (entry,) = entries[event]
        label = re.sub("(?<=[a-z])(?=[A-Z])", "_", event).lower()
        trusted = doctor.codex_hash(label, entry["matcher"], entry["hooks"][0])
        lines.append(f'[hooks.state."{path}:{label}:0:0"]\ntrusted_hash = "{trusted}"\n')
    write(home / ".codex" / "config.toml", "".join(lines))


def test_installed_hook_has_no_problem(
    home: Path, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text(world.config.token)
    sayso_hook("install", "claude", "--server", world.server.url, "--token-file", str(token))
    code, found = checked()
    assert code == 0, found
    assert "ok: claude server" in found
    assert "ok: claude user PreToolUse" in found
    assert all(name.startswith("ok: ") for name in found)
    code, found = checked("codex")
    assert (code, "problem: codex" in found) == (1, True)
    monkeypatch.setenv("SAYSO_TOKEN", "ana's")
    assert "warning: environment" in checked()[1]


def test_unasked_tool_use_is_a_problem(home: Path, world: World, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(world.config.token)
    sayso_hook("install", "claude", "--server", world.server.url, "--token-file", str(token))
    world.hook(payload("claude_pre", tool_name="Read"))
    assert "last spoke" in checked()[1]["ok: claude server"]
    world.hook(payload("claude_post", tool_use_id="never asked"))
    code, found = checked()
    assert (code, "not asked about: Bash" in found["problem: claude server"]) == (1, True)


def test_missing_hook_is_a_problem(home: Path) -> None:
    assert checked()[0] == 1
    for name in AGENTS:
        assert checked(name)[0] == 1


def test_unusable_configuration_is_a_problem(home: Path, world: World, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("wrong")
    sayso_hook("install", "claude", "--server", world.server.url, "--token-file", str(token))
    assert "refuses the token" in checked()[1]["problem: claude server"]
    config_file("claude").chmod(0o644)
    assert "chmod 600" in checked()[1]["problem: claude config"]
    config_file("claude").unlink()
    assert "cannot be read" in checked()[1]["problem: claude config"]


@pytest.mark.parametrize(
    ("good", "wrong"),
    [
        ('"timeout": 600', '"timeout": 60'),
        ('"timeout": 600', '"x": 1'),
        ('"timeout": 600', '"timeout": 600, "async": true'),
        ('"timeout": 600', '"timeout": 600, "if": "Bash(git *)"'),
        ('"timeout": 600', '"timeout": 600, "once": true'),
        (settings.GUARD, ""),
        ("exit 2", "exit 0"),
        ("/bin/sh -c '/", "/bin/sh -c '/gone/"),
        ("/bin/sh -c", "sh -c"),
        (" -I -S", ""),
        ("--config /", "--config "),
        ('"matcher": "*"', '"matcher": "Edit"'),
        ('"matcher": "*"', '"matcher": "*", "disabled": true'),
        ('"type": "command"', '"type": "prompt"'),
    ],
)
def test_changed_entry_is_a_problem(home: Path, tmp_path: Path, good: str, wrong: str) -> None:
    path = install("claude", tmp_path)
    assert problems("claude", tmp_path) == []
    text = path.read_text()
    assert good in text
    path.write_text(text.replace(good, wrong))
    assert problems("claude", tmp_path)


def test_removed_event_is_a_problem(home: Path, tmp_path: Path) -> None:
    path = install("claude", tmp_path)
    found = json.loads(path.read_text())
    del found["hooks"]["PreToolUse"]
    path.write_text(json.dumps(found))
    assert any("not installed" in problem for problem in problems("claude", tmp_path))


def test_hook_without_tool_events_is_a_warning(home: Path, tmp_path: Path) -> None:
    store = "sqlite:////nowhere/sayso.db"
    for agent in ("claude", "codex"):
        assert sayso_hook("install", agent, "--prompts", "--store", store).returncode == 0
    assert problems("claude", tmp_path) == []
    assert "only prompts" in checked("claude")[1]["warning: claude user PermissionRequest"]
    events = json.loads(AGENTS["codex"].file("user", tmp_path).read_text())["hooks"]
    assert ("PermissionRequest" in events, "PreToolUse" in events) == (True, False)


#: What a repository, a user or an administrator can write: it turns Claude Code's hooks off.
OFF: list[tuple[str, Any]] = [
    ("project/.claude/settings.json", {"disableAllHooks": True}),
    ("project/.claude/settings.local.json", {"disableAllHooks": True}),
    ("project/.claude/settings.local.json", {"disableAllHooks": "yes"}),
    ("project/.claude/settings.local.json", "{"),
    ("project/.claude/settings.local.json", {"hooks": {"disabled": ["sayso"]}}),
    ("project/.claude/settings.local.json", {"hooksOfTomorrow": {"skip": True}}),
    ("project/.claude/settings.json", {"env": {"SAYSO_HOOK_STORE": "sqlite:///x.db"}}),
    ("project/.claude/settings.json", {"env": {"CLAUDE_CODE_SIMPLE": "1"}}),
    ("project/.claude/settings.json", {"env": {"LD_PRELOAD": "./x.so"}}),
    ("project/.claude/settings.json", {"env": {"BASH_ENV": "./x"}}),
    ("project/.claude/settings.local.json", {"env": {"GIT_EXTERNAL_DIFF": "./x"}}),
    ("home/.claude/settings.json", {"env": {"CLAUDE_CODE_SHELL_PREFIX": "./x"}}),
    ("etc/claude-code/managed-settings.json", {"allowManagedHooksOnly": True}),
    ("etc/claude-code/managed-settings.json", {"strictPluginOnlyCustomization": True}),
    ("etc/claude-code/managed-settings.d/10.json", {"disableAllHooks": True}),
]


@pytest.mark.parametrize(("file", "content"), OFF, ids=[f"{f} {c}" for f, c in OFF])
def test_claude_switched_off_is_a_problem(
    home: Path, tmp_path: Path, file: str, content: Any
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    path = install("claude", project)
    assert problems("claude", project, tmp_path) == []
    if isinstance(content, dict) and file == "home/.claude/settings.json":
        content = {**json.loads(path.read_text()), **content}
    write(tmp_path / file, content)
    assert problems("claude", project, tmp_path)


def test_repository_above_folder_counts(home: Path, tmp_path: Path) -> None:
    inner = tmp_path / "repository" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "repository" / ".git").mkdir()
    install("claude", inner)
    write(tmp_path / "repository/.claude/settings.json", {"disableAllHooks": True})
    assert problems("claude", inner)


@pytest.mark.parametrize(
    "content",
    [
        {"env": {"NODE_ENV": "test", "ANTHROPIC_MODEL": "opus"}},
        {"disableAllHooks": False, "allowedHttpHookUrls": ["https://x"]},
        {"mcpServers": {"webhooks": {"command": "x"}}},
    ],
)
def test_harmless_settings_are_no_problem(home: Path, tmp_path: Path, content: Any) -> None:
    install("claude", tmp_path)
    write(tmp_path / ".claude" / "settings.json", content)
    assert problems("claude", tmp_path) == []


def test_managed_hook_survives_user_switches(home: Path, tmp_path: Path) -> None:
    user = install("claude", tmp_path)
    managed = {**json.loads(user.read_text()), "allowManagedHooksOnly": True}
    write(tmp_path / "etc/claude-code/managed-settings.json", managed)
    write(tmp_path / ".claude/settings.local.json", {"disableAllHooks": True})
    user.unlink()
    assert problems("claude", tmp_path, tmp_path) == []
    write(tmp_path / "etc/claude-code/managed-settings.json", {**managed, "disableAllHooks": True})
    assert problems("claude", tmp_path, tmp_path)


def test_environment_of_the_agent_is_a_problem(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("claude", tmp_path)
    monkeypatch.setenv("CLAUDE_CODE_SIMPLE", "1")
    assert any("CLAUDE_CODE_SIMPLE" in problem for problem in problems("claude", tmp_path))


@pytest.mark.parametrize(
    ("more", "level"),
    [
        ({"permissions": {"allow": ["Bash(npm run *)"]}}, "warning"),
        ({"permissions": {"allow": ["mcp__github"]}}, "warning"),
        ({"permissions": {"defaultMode": "bypassPermissions"}}, "warning"),
        ({"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "x"}]}]}}, "warning"),
        ({"hooks": {"PostToolUse": [{"hooks": [{"type": "command", "command": "x"}]}]}}, ""),
        ({"permissions": {"allow": ["Read"]}}, ""),
        ({"permissions": {"deny": ["Bash"]}}, ""),
    ],
)
def test_permission_rules_of_the_agent_are_checked(
    home: Path, tmp_path: Path, more: dict[str, Any], level: str
) -> None:
    path = AGENTS["claude"].file("project", tmp_path)
    write(path, more)
    install("claude", tmp_path, "project")
    results = [
        result
        for result in doctor.check(AGENTS["claude"], tmp_path, Path("/nowhere"))
        if result.name != "claude store"
    ]
    assert {result.level for result in results} - {"ok"} == ({level} if level else set())


# -- Codex


def test_codex_hash_matches_codex() -> None:
    """Recorded with `hooks/list` of the app server of Codex 0.166.0."""
    command = {"type": "command", "command": "true", "timeout": 600}
    assert (
        doctor.codex_hash("pre_tool_use", "x", command)
        == "sha256:4eca37a3fab64cea94fe7d4829c451ae5fe62e968b8b824578cc1d1598afe7e3"
    )


def test_codex_trusts_each_hook(home: Path, tmp_path: Path) -> None:
    path = install("codex", tmp_path)
    events = [event for event in json.loads(path.read_text())["hooks"]]
    assert len(problems("codex", tmp_path)) == len(events)
    trust(home, path, "PostToolUse")
    assert any("until you trust it" in problem for problem in problems("codex", tmp_path))
    trust(home, path, *events)
    assert problems("codex", tmp_path) == []
    config = home / ".codex" / "config.toml"
    write(config, config.read_text().replace("sha256:", "sha256:0"))
    assert problems("codex", tmp_path)


def test_codex_skips_hooks_of_an_untrusted_folder(home: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    write(project / ".codex" / "hooks.json", install("codex", tmp_path).read_text())
    config = home / ".codex" / "config.toml"
    write(config, "")
    assert any("a folder that it does not trust" in one for one in problems("codex", project))
    write(config, f'[projects."{project}"]\ntrust_level = "trusted"\n')
    assert not any("a folder that it does not trust" in one for one in problems("codex", project))


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("etc/codex/requirements.toml", "allow_managed_hooks_only = true\n"),
        ("etc/codex/requirements.toml", "[features]\nhooks = false\n"),
        ("etc/codex/managed_config.toml", "[features]\nhooks = false\n"),
        ("project/.codex/config.toml", "[features]\nhooks = false\n"),
        ("project/.codex/config.toml", "[profiles.quick.features]\nhooks = false\n"),
        ("project/.codex/config.toml", "hooks ="),
        ("home/.codex/config.toml", "[features]\nhooks = false\n"),
        ("home/.codex/config.toml", "enabled = false\n"),
    ],
)
def test_codex_switched_off_is_a_problem(
    home: Path, tmp_path: Path, file: str, content: str
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    path = install("codex", project)
    trust(home, path, *json.loads(path.read_text())["hooks"])
    assert problems("codex", project, tmp_path) == []
    before = (tmp_path / file).read_text() if (tmp_path / file).exists() else ""
    write(tmp_path / file, before + content)
    assert problems("codex", project, tmp_path)


# -- Copilot, Gemini and OpenCode


@pytest.mark.parametrize(
    ("name", "file", "content"),
    [
        ("copilot", "home/.copilot/hooks/other.json", {"version": 1, "disableAllHooks": True}),
        ("copilot", "home/.copilot/settings.json", {"disableAllHooks": True}),
        ("copilot", "project/.github/hooks/x.json", {"version": 1, "disableAllHooks": True}),
        ("copilot", "project/.github/copilot/settings.local.json", {"disableAllHooks": True}),
        ("gemini", "project/.gemini/settings.json", {"hooksConfig": {"enabled": False}}),
        ("gemini", "project/.gemini/settings.json", {"hooksConfig": {"disabled": ["sayso"]}}),
        ("gemini", "etc/gemini-cli/settings.json", {"tools": {"enableHooks": False}}),
        ("gemini", "home/.gemini/trustedFolders.json", {}),
        ("gemini", "home/.gemini/trustedFolders.json", {"/": "DO_NOT_TRUST"}),
        ("opencode", "project/.opencode/plugin/evil.js", "export const Evil = 1"),
        ("opencode", "project/.opencode/plugins/evil.ts", "export const Evil = 1"),
        ("opencode", "home/.config/opencode/plugin/sayso.js", "export const Mine = 1"),
    ],
)
def test_other_agents_switched_off_are_problems(
    home: Path, tmp_path: Path, name: str, file: str, content: Any
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    install(name, project)
    write(home / ".copilot" / "config.json", '// a comment\n{"model": "x"}')
    write(home / ".gemini" / "trustedFolders.json", {str(project): "TRUST_FOLDER"})
    assert problems(name, project, tmp_path) == []
    write(tmp_path / file, content)
    assert problems(name, project, tmp_path)


def test_copilot_skips_hooks_of_untrusted_folder(home: Path, tmp_path: Path) -> None:
    install("copilot", tmp_path, "project")
    assert any("does not trust" in problem for problem in problems("copilot", tmp_path))
    write(home / ".copilot" / "config.json", {"trusted_folders": [str(tmp_path)]})
    assert problems("copilot", tmp_path) == []


def test_changed_opencode_plugin_is_problem(home: Path, tmp_path: Path) -> None:
    path = install("opencode", tmp_path)
    assert problems("opencode", tmp_path) == []
    path.write_text(path.read_text().replace("throw new Error", "console.log"))
    assert any("was changed" in problem for problem in problems("opencode", tmp_path))


def test_gemini_trust_can_be_off(home: Path, tmp_path: Path) -> None:
    path = install("gemini", tmp_path)
    assert any("does not trust" in problem for problem in problems("gemini", tmp_path))
    content = {**json.loads(path.read_text()), "security": {"folderTrust": {"enabled": False}}}
    write(path, content)
    assert problems("gemini", tmp_path) == []
