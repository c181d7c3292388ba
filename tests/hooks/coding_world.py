"""A real server, and the hook as a real process in front of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from live_server import LiveServer

import sayso
from sayso.inbox import create_token
from sayso.server import create_app
from sayso.server.serving import server_config
from sayso.stores import open_store
from sayso.stores.base import Store

PAYLOADS = Path(__file__).parent / "payloads"
#: As the console script starts it.
HOOK = [sys.executable, "-c", "from sayso.cli.entry import main; main()", "hook", "run"]


def payload(name: str, **changes: Any) -> dict[str, Any]:
    """A payload that was recorded with the real agent."""
    found: dict[str, Any] = json.loads((PAYLOADS / f"{name}.json").read_text())
    return found | changes


class Ran:
    """What the agent sees of one run of the hook."""

    def __init__(self, done: subprocess.CompletedProcess[bytes], seconds: float) -> None:
        self.code, self.seconds = done.returncode, seconds
        self.error = done.stderr.decode()
        self.said: dict[str, Any] = json.loads(done.stdout) if done.stdout.strip() else {}

    @property
    def verdict(self) -> str:
        """What the agent makes of it: exit code 2 denies."""
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
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("SAYSO")},
            "XDG_CONFIG_HOME": str(folder / "config"),
            "SAYSO_HOOK_SERVER": self.server.url,
            "SAYSO_HOOK_TOKEN": token,
        }

    def start(self, *options: str, **environment: str) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        env = self.environment | environment
        return subprocess.Popen([*HOOK, *options], stdin=pipe, stdout=pipe, stderr=pipe, env=env)

    def hook(self, data: object, *options: str, **environment: str) -> Ran:
        """Run the hook to its end."""
        began = time.monotonic()
        sent = data if isinstance(data, bytes) else json.dumps(data).encode()
        process = self.start(*options, **environment)
        out, error = process.communicate(sent, timeout=60)
        done = subprocess.CompletedProcess(HOOK, process.returncode, out, error)
        return Ran(done, time.monotonic() - began)

    def pending(self) -> list[sayso.Request]:
        return list(self.inbox.pending_sync().items)

    def decide(self, how: Callable[[sayso.Request], sayso.Decision]) -> sayso.Request:
        """Decide the only request, once it is there."""
        ends = time.monotonic() + 30
        while not (waiting := self.pending()):
            assert time.monotonic() < ends, "no request came"
            time.sleep(0.05)
        (request,) = waiting
        return self.inbox.decide_sync(request.id, how(request), by="ana")

    def asked(
        self, data: object, how: Callable[[sayso.Request], sayso.Decision], *options: str
    ) -> Ran:
        """Run the hook, and decide its request while it waits."""
        began = time.monotonic()
        process = self.start(*options)
        assert process.stdin is not None
        process.stdin.write(json.dumps(data).encode())
        process.stdin.close()
        process.stdin = None
        self.decide(how)
        out, error = process.communicate(timeout=60)
        done = subprocess.CompletedProcess(HOOK, process.returncode, out, error)
        return Ran(done, time.monotonic() - began)

    def close(self) -> None:
        self.app.state.sayso.feed.close()
        self.server.stop()
        self.store.close()
