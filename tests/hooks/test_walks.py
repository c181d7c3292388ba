"""The walks of ``docs/hooks.md``, word for word in an empty home."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from coding_world import PAYLOADS

PAGE = (Path(__file__).parents[2] / "docs" / "hooks.md").read_text()
#: In a network of its own, so that the port of the walk is free. Where that is not allowed, here.
ALONE = ["unshare", "--map-root-user", "--net"]
LOOPBACK = (
    "import fcntl, os, socket, struct, sys\n"
    "fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh', b'lo', 0x41))\n"
    "os.execv(sys.argv[1], sys.argv[1:])\n"
)
WAIT = "until (exec 3<>/dev/tcp/127.0.0.1/8321) 2>/dev/null; do sleep 0.1; done"
#: The agent of the walk: it runs its hook, as the settings say, before the tool use of a payload.
AGENT = """#!{python}
import json, pathlib, subprocess, sys
settings = json.loads(pathlib.Path({settings!r}).expanduser().read_text())
hook = settings["hooks"]["PreToolUse"][0]["hooks"][0]
done = subprocess.run(hook["command"], shell=True, input=pathlib.Path({payload!r}).read_bytes())
print("the hook exited with", done.returncode)
"""


def walk(heading: str) -> list[str]:
    """Return the commands of the console block below a heading."""
    block = PAGE.split(f"## {heading}")[1].split("```console\n")[1].split("```")[0]
    lines = [line.removeprefix("$ ") for line in block.splitlines()]
    assert lines.pop(0) == "pip install 'sayso[server]'"  # these tests have it
    return lines


@pytest.mark.parametrize(
    ("agent", "heading", "settings"),
    [
        ("claude", "Claude Code in two minutes", "~/.claude/settings.json"),
        ("codex", "Codex in two minutes", "~/.codex/hooks.json"),
    ],
)
def test_walk_works_in_empty_home(
    home: Path, tmp_path: Path, agent: str, heading: str, settings: str
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    asked = tmp_path / "payload.json"
    sent = json.loads((PAYLOADS / f"{agent}_pre.json").read_text())
    sent["tool_input"] = {"command": "rm -rf /src"}
    asked.write_text(json.dumps(sent))
    program = programs / agent
    program.write_text(AGENT.format(python=sys.executable, settings=settings, payload=str(asked)))
    program.chmod(0o755)
    (programs / "sayso").symlink_to(Path(sys.executable).with_name("sayso"))
    project = tmp_path / "project"
    project.mkdir()
    lines = walk(heading)
    # A person waits until the server says that it is there, and then uses the agent.
    lines = [line if not line.endswith("&") else f"{line}\n{WAIT}" for line in lines]
    if agent not in lines:
        lines.append(agent)
    inbox = "sayso inbox --json --store ~/.local/share/sayso/sayso.db"
    script = "\n".join(["set -e", "trap 'kill %1' EXIT", *lines, inbox])
    # Nobody decides, so the hook soon answers that it has no answer yet.
    script = script.replace(f"install {agent}", f"install {agent} --limit 5")
    bash = shutil.which("bash") or "bash"
    command = [sys.executable, "-c", LOOPBACK, bash, "-c", script]
    if subprocess.run([*ALONE, "true"], capture_output=True).returncode == 0:
        command = [*ALONE, *command]
    else:
        command = command[3:]
    done = subprocess.run(
        command,
        cwd=project,
        env={"HOME": str(home), "PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the hook exited with 0" in done.stdout
    assert "No answer yet" in done.stdout
    (request,) = json.loads(done.stdout[done.stdout.index('{\n  "items"') :])["items"]
    assert (request["agent"], request["args"]["command"]) == (agent, "rm -rf /src")
    assert list(project.iterdir()) == []
    served = re.search(r"^    (sayso serve .*)$", done.stdout, re.M)
    assert served is not None
    written = next(line for line in walk(heading) if line.startswith("sayso serve"))
    path = written.split()[-2].replace("~", str(home))
    assert served[1] == f"sayso serve --policy balanced --store sqlite:///{path}"
