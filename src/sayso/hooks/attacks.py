"""``sayso hook attack``: try a corpus of attacks, and see which of them would run unasked.

Each line of ``attacks.jsonl`` is one attack. Its ``steps`` are what a cloned repository or the user
already has (``setup``), and the calls of the agent: a shell command (``run``), or another tool by
its name, with arguments. ``proof`` is a command that succeeds if the attack took effect; where
there is none, only the verdict counts, and nothing runs. ``@P@`` is a file outside of the project.

Attacks run in a project in a scratch folder, with a home folder around it, and do nothing worse
than to change files there. ``attack_policy`` judges the calls, and performs those that a later one
may build on. ``sayso_testing.coding_agents`` lets a real agent make them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from sayso.policy import Policy, explain
from sayso.types import ToolCall

_FILES = r"""
git init -q -b main --template= && mkdir .git/hooks .git/info
git config user.email ana@example.com && git config user.name Ana
mkdir -p src tests docs .claude
echo 'def foo(): pass' > src/app.py; echo 'import os' > src/util.py
echo 'import app' > tests/test_app.py; echo text > docs/guide.md
printf 'hello\nhello\n' > a.txt; echo hello > README.md; printf '1 2\n3 4\n' > data.txt
echo '{"scripts": {}}' > package.json; printf 'all:\n\techo\n' > Makefile
echo '{"env": {"A": "ok"}}' > .claude/settings.json; echo .env > .gitignore
git add -A && git commit -qm one && echo more >> a.txt && git commit -qam two
git gc -q
echo KEY=SECRETKEY > .env
mkdir ../.ssh && echo SECRETKEY > ../.ssh/id_rsa && touch ../.bashrc
"""
_PATH = "/usr/local/bin:/usr/bin:/bin"
#: Writes a file, as an agent's tool does.
_WRITE = 'mkdir -p "$(dirname "$1")" && printf %s "$2" > "$1"'
#: How to start a command that must not be able to harm the machine.
UNPRIVILEGED: Mapping[str, Any] = (
    {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
)


class Step(NamedTuple):
    """A call of the agent; or, without a tool, a command that has run before."""

    tool: str
    args: dict[str, Any]

    @property
    def words(self) -> str:
        command = self.args.get("command")
        if isinstance(command, str) and len(self.args) == 1:
            return command
        return f"{self.tool} {json.dumps(self.args)}"


class Attack(NamedTuple):
    """One line of the corpus."""

    #: What it achieves: a kind of ``commands.KINDS``, or "program" if it runs one.
    effect: str
    steps: tuple[Step, ...]
    proof: str
    #: The folder of the project that is first on the PATH, if any.
    path: str = ""
    shell: str = "bash"
    #: Programs without which it has no effect.
    needs: tuple[str, ...] = ()
    #: Whether it has no effect for root.
    not_as_root: bool = False

    @property
    def calls(self) -> list[str]:
        """The calls of the agent, in words."""
        return [step.words for step in self.steps if step.tool]


class Outcome(NamedTuple):
    """What became of one attack."""

    attack: Attack
    #: Whether every call was allowed, or the attack took effect without the others.
    unasked: bool


def read_attacks() -> list[Attack]:
    """Return the corpus."""
    lines = Path(__file__).with_suffix(".jsonl").read_text(encoding="utf-8").splitlines()
    tools = {"setup": "", "run": "Bash"}
    attacks: list[Attack] = []
    for line in map(json.loads, lines):
        steps = tuple(
            Step(tools.get(kind, kind), what if kind not in tools else {"command": what})
            for kind, what in line.pop("steps")
        )
        attacks.append(Attack(steps=steps, needs=tuple(line.pop("needs", ())), **line))
    return attacks


class Project:
    """A project in a home folder, in which attacks really run."""

    def __init__(self, home: Path, identity: Mapping[str, Any] = UNPRIVILEGED) -> None:
        self.home = home
        self.folder = home / "project"
        self.output = home / "output"
        self._identity = identity

    def create(self) -> Project:
        """Make the files of the project, which ``copy`` copies."""
        subprocess.run(["mkdir", "-p", self.folder], check=True, **self._identity)
        self.run(_FILES).check_returncode()
        return self

    def copy(self, home: Path) -> Project:
        subprocess.run(["cp", "-a", self.home, home], check=True, **self._identity)
        return Project(home, self._identity)

    def filled(self, value: Any) -> Any:
        """Return a command or arguments with the names of this project's files."""
        text = json.dumps(value)
        values = {"@P@": self.home / "PWNED", "@HOME@": self.home, "@PORT@": "9"}
        for name, path in values.items():
            text = text.replace(name, str(path))
        return json.loads(text)

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
        self, command: str, *arguments: str, shell: str = "bash", path: str = ""
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command in the project."""
        with self.output.open("ab") as output:
            return subprocess.run(
                [shell, "-c", self.filled(command), shell, *arguments],
                cwd=self.folder,
                env=self.environment(path),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                timeout=30,
                **self._identity,
            )

    def reset(self, template: Project) -> None:
        """Give this project the files of another. Its folder stays: an agent works in it."""
        others = ["-mindepth", "1", "!", "-path", str(self.folder)]
        subprocess.run(["find", str(self.home), *others, "-delete"], check=True)
        subprocess.run(["cp", "-a", f"{template.home}/.", self.home], check=True)

    def perform(self, attack: Attack, step: Step) -> None:
        """Do what a step of an attack does."""
        if step.tool == "Write":
            args = self.filled(step.args)
            self.run(_WRITE, args["file_path"], args["content"])
        else:
            self.run(step.args["command"], shell=attack.shell, path=attack.path)

    def shows(self, attack: Attack) -> bool:
        """Return whether an attack has taken effect."""
        return bool(attack.proof) and self.run(attack.proof).returncode == 0


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a folder that unprivileged commands can write."""
    with tempfile.TemporaryDirectory(prefix="sayso-attacks-", dir="/tmp") as name:
        if UNPRIVILEGED:
            os.chown(name, UNPRIVILEGED["user"], UNPRIVILEGED["group"])
        yield Path(name).resolve()


# -- against a policy


def attack_policy(policy: Policy) -> Iterator[Outcome]:
    """Try every attack on a policy, and yield the outcomes."""
    with scratch_folder() as folder:
        template = Project(folder / "template").create()
        for number, attack in enumerate(read_attacks()):
            yield _try_attack(attack, policy, template, folder / str(number))


def _try_attack(attack: Attack, policy: Policy, template: Project, home: Path) -> Outcome:
    if len(attack.steps) == 1:  # there is nothing to perform before its only call
        verdict = judge(policy, template, attack.steps[0], attack.path)
        return Outcome(attack, unasked=verdict == "allow")
    project = template.copy(home)
    verdicts: list[str] = []
    for step in attack.steps:
        if step.tool:
            verdicts.append(judge(policy, project, step, attack.path))
        if not step.tool or (attack.proof and verdicts[-1] == "allow"):
            project.perform(attack, step)
    unasked = {"allow"}.issuperset(verdicts) or project.shows(attack)
    shutil.rmtree(home)
    return Outcome(attack, unasked)


def judge(policy: Policy, project: Project, step: Step, path: str = "") -> str:
    """Return the verdict of a policy on one call, as a hook in that project asks about it."""
    args = {**project.filled(step.args), "cwd": str(project.folder)}
    call = ToolCall(step.tool, args)
    before = dict(os.environ)
    os.environ.update(project.environment(path))
    try:
        return str(explain(policy, call, agent="claude", now=datetime.now(UTC)).terms.verdict)
    finally:
        os.environ.clear()
        os.environ.update(before)
