"""A real server, and the hook as a real process in front of it.

The process is a fork of an interpreter that has loaded the hook, or a new interpreter where a test
is about that.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from live_server import LiveServer
from sayso_process import Piped, run
from waiting import PATIENCE, until

import sayso
from sayso.hooks.program import Config
from sayso.hooks.settings import HookOptions, save_config
from sayso.inbox import create_token
from sayso.server import create_app
from sayso.server.serving import server_config
from sayso.stores import open_store
from sayso.stores.base import Store

BASH = shutil.which("bash") or "/bin/sh"
PAYLOADS = Path(__file__).parent / "payloads"


def sayso_hook(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``sayso hook`` in the current folder and environment."""
    return run("hook", *arguments, cwd=Path.cwd(), env=os.environ)


def payload(name: str, **changes: Any) -> dict[str, Any]:
    """Return a payload that was recorded with the real agent."""
    found: dict[str, Any] = json.loads((PAYLOADS / f"{name}.json").read_text())
    return found | changes


def as_bytes(data: object) -> bytes:
    """Return bytes unchanged, and anything else as JSON."""
    return data if isinstance(data, bytes) else json.dumps(data).encode()


class Ran:
    """The result of one run of the hook, as the agent sees it."""

    def __init__(self, code: int, out: bytes, error: bytes, seconds: float) -> None:
        self.code, self.seconds = code, seconds
        self.error = error.decode()
        self.said: dict[str, Any] = json.loads(out) if out.strip() else {}

    @property
    def verdict(self) -> str:
        """The verdict that the agent reads: exit code 2 denies."""
        if self.code == 2:
            return "deny"
        assert self.code == 0, (self.code, self.error)
        said = self.said.get("hookSpecificOutput", self.said)
        decision = said.get("decision", {})
        return str(said.get("permissionDecision") or decision.get("behavior") or "pass")

    @property
    def reason(self) -> str:
        said = self.said.get("hookSpecificOutput", self.said)
        return str(said.get("permissionDecisionReason", "")) or self.error


class World:
    """A server with a policy, people who decide, and hooks that ask."""

    def __init__(self, folder: Path, policy: sayso.Policy | None = None) -> None:
        self.folder = folder
        self.store: Store = open_store(f"sqlite:///{folder / 'sayso.db'}")
        self.app = create_app(store=self.store, policy=policy)
        self.server = LiveServer(server_config(self.app, grace=2))
        self.server.start()
        self.inbox = sayso.Inbox(self.store)
        token, _ = create_token(self.store, "claude", by="test", role="agent")
        self.config = Config(server=self.server.url, token=token)
        self.config_file = folder / "hook.json"
        self.configure(self.config)

    def configure(self, config: Config) -> None:
        """Write the hook's configuration, as ``sayso hook install`` does."""
        save_config(self.config_file, config)

    def start(self, *options: str) -> Piped:
        config = ("--config", str(self.config_file))
        return Piped("hook", "run", *config, *options, cwd=Path.cwd(), env=os.environ)

    def hook(self, data: object, *options: str) -> Ran:
        """Run the hook to its end."""
        began = time.monotonic()
        process = self.start(*options)
        out, error = process.communicate(as_bytes(data))
        return Ran(process.wait(), out, error, time.monotonic() - began)

    def installed_hook(self, data: object, folder: Path | None = None, **environment: str) -> Ran:
        """Run the command that ``sayso hook install`` writes, as an agent does."""
        began = time.monotonic()
        done = subprocess.run(
            [BASH, "-c", HookOptions(config=str(self.config_file)).command()],
            input=as_bytes(data),
            capture_output=True,
            cwd=folder,
            env=os.environ | environment,
            timeout=PATIENCE,
        )
        return Ran(done.returncode, done.stdout, done.stderr, time.monotonic() - began)

    def pending(self) -> list[sayso.Request]:
        return list(self.inbox.pending_sync().items)

    def decide(self, how: Callable[[sayso.Request], sayso.Decision]) -> sayso.Request:
        """Decide the only request, once it is there."""
        (request,) = until(self.pending)
        return self.inbox.decide_sync(request.id, how(request), by="ana")

    def asked(
        self, data: object, how: Callable[[sayso.Request], sayso.Decision], *options: str
    ) -> Ran:
        """Run the hook, and decide its request while it waits."""
        began = time.monotonic()
        process = self.start(*options)
        process.stdin.write(as_bytes(data))
        process.stdin.close()
        self.decide(how)
        out, error = process.communicate()
        return Ran(process.wait(), out, error, time.monotonic() - began)

    def close(self) -> None:
        self.app.state.sayso.feed.close()
        self.server.stop()
        self.store.close()
