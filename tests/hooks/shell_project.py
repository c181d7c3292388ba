"""A project with a home folder around it, in which commands really run.

They run without the rights of the user who runs the tests, if that is root.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sayso import Policy, ToolCall
from sayso.types import Terms

_FILES = r"""
git init -q -b main && git config user.email ana@example.com && git config user.name Ana
mkdir -p src tests docs .claude
echo 'def foo(): pass' > src/app.py; echo 'import os' > src/util.py
echo 'import app' > tests/test_app.py; echo text > docs/guide.md
printf 'hello\nhello\n' > a.txt; echo hello > README.md; printf '1 2\n3 4\n' > data.txt
echo '{"scripts": {}}' > package.json; printf 'all:\n\techo\n' > Makefile
echo ok > .claude/settings.json; echo .env > .gitignore
git add -A && git commit -qm one && echo more >> a.txt && git commit -qam two
echo KEY=SECRETKEY > .env
mkdir ../.ssh && echo SECRETKEY > ../.ssh/id_rsa && touch ../.bashrc
"""


#: How to start a command that must not be able to harm the machine.
UNPRIVILEGED: dict[str, Any] = (
    {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
)
_PATH = "/usr/local/bin:/usr/bin:/bin"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a folder that unprivileged commands can write."""
    with tempfile.TemporaryDirectory(prefix="sayso-shell-", dir="/tmp") as name:
        if UNPRIVILEGED:
            os.chown(name, UNPRIVILEGED["user"], UNPRIVILEGED["group"])
        yield Path(name)


class Project:
    """A copy of the project in its own home folder."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / "project"
        self.output = home / "output"

    @classmethod
    def create(cls, home: Path) -> Project:
        """Make a project, which ``copy`` copies."""
        project = cls(home)
        subprocess.run(["mkdir", "-p", project.folder], check=True, **UNPRIVILEGED)
        project.run(_FILES).check_returncode()
        return project

    def copy(self, home: Path) -> Project:
        subprocess.run(["cp", "-a", self.home, home], check=True, **UNPRIVILEGED)
        return Project(home)

    def filled(self, text: str) -> str:
        """Return a command with the names of this project's files."""
        values = {"@P@": self.home / "PWNED", "@HOME@": self.home, "@PORT@": "9"}
        for name, value in values.items():
            text = text.replace(name, str(value))
        return text

    def environment(self, path: str = "") -> dict[str, str]:
        return {
            "PATH": f"{self.folder / path}:{_PATH}" if path else _PATH,
            "HOME": str(self.home),
            "PWNED": str(self.home / "PWNED"),
            "STDOUT": str(self.output),
            "NETLOG": str(self.home / "netlog"),
            "GIT_CONFIG_NOSYSTEM": "1",
        }

    def run(
        self, command: str, *, shell: str = "bash", path: str = ""
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command in the project."""
        with self.output.open("ab") as output:
            return subprocess.run(
                [shell, "-c", self.filled(command)],
                cwd=self.folder,
                env=self.environment(path),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                timeout=30,
                **UNPRIVILEGED,
            )


def verdict(
    preset: str, tool: str, args: Mapping[str, Any], environment: Mapping[str, str] | None = None
) -> str:
    """Return what a preset says about a call, with these variables."""
    with patch.dict(os.environ, environment or {}):
        judging = Policy.preset(preset).judge(
            ToolCall(tool, dict(args)),
            agent="claude",
            now=datetime.now(UTC),
            own=Terms(),
            needs_approval=True,
        )
        try:
            predicate, copied = next(judging)
            while True:
                predicate, copied = judging.send(predicate(copied))
        except StopIteration as stop:
            return str(stop.value.verdict)


def read_lines(name: str) -> list[dict[str, Any]]:
    """Return the objects of a file of JSON lines in this folder."""
    text = (Path(__file__).parent / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]
