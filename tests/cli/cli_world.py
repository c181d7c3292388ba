"""A store with requests, the command line on it, and a person at a real terminal."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pexpect
from sayso_process import Terminal
from typer.testing import CliRunner

from sayso import Gate, Inbox, Paused, Request
from sayso.cli.entry import app_of
from sayso.inbox import os_user

ME = os_user().name
CONTROLS = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Broke(BaseException):
    """Interrupts a running tool, as a killed process would."""


class World:
    """One store. Each method opens it again, like a new process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder / 'sayso.db'}"
        self.ran: list[Any] = []
        self.broken = False

    # -- agents

    def ask(self, run: str, act: Callable[[Gate], Any], **options: Any) -> str:
        """Let an agent do something that pauses. Return the id of its request."""
        gate = Gate(self.url, agent=options.pop("agent", "assistant"), wait=0)
        try:
            with gate.run(run, requester=options.pop("requester", "")):
                act(gate)
        except Paused as paused:
            return paused.requests[0].id
        finally:
            gate.close()
        raise AssertionError(f"{run} did not pause")

    def mail(
        self, run: str = "r1", to: str = "ana@example.com", body: str = "Hi", **how: Any
    ) -> str:
        """Ask for a mail. Return the id of the request."""
        return self.ask(run, lambda gate: self.mailer(gate, **how)(to=to, body=body))

    def mailer(self, gate: Gate, **how: Any) -> Callable[..., Any]:
        def send_email(to: str, body: str = "", copies: list[str] | None = None) -> str:
            """Send an email."""
            self.ran.append((to, body))
            if self.broken:
                raise Broke
            return f"sent to {to}"

        return gate.guard(**{"needs_approval": True, **how})(send_email)

    def resume(
        self, run: str = "r1", to: str = "ana@example.com", body: str = "Hi", **how: Any
    ) -> Any:
        """Resume a run that asked for a mail."""
        gate = Gate(self.url, agent="assistant", wait=0)
        try:
            with gate.run(run):
                return self.mailer(gate, **how)(to=to, body=body)
        finally:
            gate.close()

    def doubt(self, run: str = "r1") -> str:
        """Return a mail that was approved and started, and whose process died."""
        request = self.mail(run)
        self.cli("approve", request, "--digest", self.get(request).digest)
        self.broken = True
        with suppress(Broke):
            self.resume(run)
        self.broken = False
        self.ran.clear()
        assert self.get(request).kind == "in_doubt"
        return request

    def get(self, request: str) -> Request:
        """Return the request as it is now."""
        inbox = Inbox(self.url)
        try:
            return inbox.get_sync(request)
        finally:
            inbox.close()

    # -- scripts

    def cli(self, *args: str, code: int = 0, token: str = "", **more: Any) -> str:
        """Run a command like a script. Return its output."""
        env = {"SAYSO_STORE": self.url, "SAYSO_TOKEN": token or None, "COLUMNS": "100", **more}
        stdin = env.pop("stdin", None)
        result = CliRunner().invoke(app_of(args[0]), list(args), env=env, input=stdin)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, (result.exit_code, result.output)
        return result.output

    def json(self, *args: str, code: int = 0, token: str = "") -> Any:
        """Run a command with --json. Return its parsed output."""
        return json.loads(self.cli(*args, "--json", code=code, token=token))

    def token(self, person: str, *options: str) -> str:
        """Create a token for a person."""
        made: str = self.json("token", "create", person, *options)["token"]
        return made

    # -- people

    def person(self, *args: str, rows: int = 40, columns: int = 80, **env: str) -> Person:
        """Return a person who runs a command in a terminal."""
        return Person(self, args, rows, columns, env)

    def editor(self, body: str) -> str:
        """Return an editor that changes the JSON in ``value``, or the file at ``path``."""
        path = self.folder / "fake_editor.py"
        head = "import json, os, pathlib, stat, sys\npath = pathlib.Path(sys.argv[-1])\n"
        read = "value = json.loads(path.read_text())\n" if "value" in body else ""
        write = "path.write_text(json.dumps(value))\n" if "value" in body else ""
        path.write_text(head + read + body + "\n" + write)
        return f"{sys.executable} {path}"


class Person:
    """A process of the command line on a pseudo-terminal."""

    def __init__(
        self, world: World, args: tuple[str, ...], rows: int, columns: int, env: dict[str, str]
    ) -> None:
        keep = {k: v for k, v in os.environ.items() if k not in ("CI", "SAYSO_TOKEN", "VISUAL")}
        whole = {
            **keep,
            "SAYSO_STORE": world.url,
            "TERM": "xterm-256color",
            "NO_COLOR": "1",
            **env,
        }
        self.process = Terminal(*args, cwd=Path.cwd(), env=whole, dimensions=(rows, columns))
        self.said = ""

    def sees(self, pattern: str) -> str:
        """Wait for a pattern on the screen. Return the text up to it."""
        self.process.expect(pattern)
        before: str = self.process.before + self.process.after
        self.said += before
        return CONTROLS.sub("", before)

    def types(self, words: str) -> None:
        """Type a line and Enter."""
        self.process.send(words + "\r")

    def at_prompt(self, words: str, prompt: str = r"\] *quit > |uit > ") -> str:
        """Wait for the prompt, then answer it."""
        seen = self.sees(prompt)
        self.types(words)
        return seen

    def ends(self, code: int) -> str:
        """Wait for the end. Return the whole screen, without control sequences."""
        self.process.expect(pexpect.EOF)
        self.said += self.process.before
        self.process.close()
        screen = CONTROLS.sub("", self.said)
        assert self.process.exitstatus == code, (self.process.exitstatus, screen)
        return screen


def digest(world: World, request: str) -> str:
    """Return the digest of a request, as a script finds it."""
    found: str = world.json("show", request)["digest"]
    return found
