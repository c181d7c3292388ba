"""Serve the demo: scripted agents behind a server, three requests to begin with, and the log.

``CodingAgent`` plays an agent that was not written with Sayso, such as Claude Code: before each
tool use it starts ``sayso hook run`` with the payload that Claude Code sends, and does what the
answer says. Its tools change nothing: they only log that they ran.
"""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
import tempfile
import threading
import uuid
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.responses import Response

import sayso
from sayso.demo import agent
from sayso.demo.tools import Effects, Record
from sayso.server import CurrentChatUser, JsonResponse, create_app
from sayso.stores.address import address_of

#: What the inbox opens with: threads, and the words that make the agent ask.
WELCOME = {
    "welcome-deploy": "Deploy version 2.5.0 to production",
    "welcome-records": "Delete records older than 90 days",
    "welcome-email": "Send an email to 250 customers",
}


def welcome(url: str, effects: Effects) -> None:
    """Let the agent make three requests that are worth deciding, if nobody asked anything yet."""
    inbox = sayso.Inbox(url)
    requests = inbox.pending_sync(status="any", limit=1)
    inbox.close()
    if not requests.items:
        asking = agent(url, effects)
        for thread, words in WELCOME.items():
            asking.run_sync(words, thread=thread)
        asking.close()


def demo_app(url: str, *, auth: bool = True) -> FastAPI:
    """Return the whole server on one store, with the demo agents and their log."""
    effects = Effects.beside(url)
    welcome(url, effects)
    coding = CodingAgent(url, effects.record)
    served = agent(None, effects, coding.start)
    app = create_app([served], store=url, auth=auth, environment="demo", demo=True)

    @app.get("/demo/effects", tags=["demo"], summary="What really ran")
    def ran(who: CurrentChatUser) -> JsonResponse:
        """Return one row per real execution of a tool, from the tools' own log."""
        return JsonResponse(effects.all())

    @app.delete("/demo/effects", tags=["demo"], summary="Empty the log", status_code=204)
    def forget(who: CurrentChatUser) -> Response:
        """Empty the log. The store's audit log stays."""
        effects.clear()
        return Response(status_code=204)

    return app


# -- the coding agent

#: Each tool use that it makes, one after the other.
USES: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        "Edit",
        {
            "file_path": "/srv/shop/deploy/production.yaml",
            "old_string": "replicas: 4\nmemory: 2Gi\nmigrate: false\n",
            "new_string": "replicas: 1\nmemory: 2Gi\nmigrate: true\n",
        },
    ),
    (
        "Bash",
        {
            "command": "git commit -am 'Migrate on deploy' && git push --force origin main",
            "description": "Commit the change and push it",
        },
    ),
)
_POLICY = str(Path(__file__).with_name("coding.toml"))
#: How long one hook waits for a person, in seconds. Then it says so, and the agent asks again.
_LIMIT = 60
#: How long a session may take to end after the last decision, in seconds.
_ENDING = 2.0


class CodingAgent:
    """A coding agent that works in a thread of its own, on one session at a time."""

    def __init__(self, store: str, record: Record) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="sayso-demo-hook-")
        config = Path(self._folder.name) / "hook.json"
        config.write_text(json.dumps({"store": address_of(store).url, "policy": _POLICY}))
        self._options = ("--config", str(config), "--limit", str(_LIMIT))
        self._record = record
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._hook: subprocess.Popen[str] | None = None
        self._closed = False
        atexit.register(self.close)

    def start(self) -> None:
        """Begin a session, unless one is under way."""
        if self._thread is not None:
            self._thread.join(_ENDING)
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()

    def close(self) -> None:
        """End the session. What it asked stays in the inbox."""
        with self._lock:
            self._closed = True
            if self._hook is not None:
                self._hook.kill()
            self._folder.cleanup()

    def _work(self) -> None:
        session = uuid.uuid4().hex
        for tool, args in USES:
            payload = {
                "session_id": session,
                "cwd": "/srv/shop",
                "tool_name": tool,
                "tool_input": args,
                "tool_use_id": f"toolu_{tool}_{session}",
            }
            while (answer := self._ask(payload)) == "ask again":
                pass
            if isinstance(answer, dict):
                self._record(tool, answer)
                self._run_hook(
                    {
                        **payload,
                        "hook_event_name": "PostToolUse",
                        "tool_input": answer,
                        "tool_response": {"stdout": "done, by the demo"},
                    }
                )

    def _ask(self, payload: dict[str, Any]) -> dict[str, Any] | str:
        """Return the arguments to run the tool with, or why it must not run."""
        printed = self._run_hook({**payload, "hook_event_name": "PreToolUse"})
        decision = json.loads(printed)["hookSpecificOutput"] if printed else {}
        if decision.get("permissionDecision") == "allow":
            args: dict[str, Any] = decision.get("updatedInput", payload["tool_input"])
            return args
        again = "No answer yet" in decision.get("permissionDecisionReason", "")
        return "ask again" if again else "denied"

    def _run_hook(self, payload: dict[str, Any]) -> str:
        """Run the hook program. Return what it printed: nothing if it denied or was ended."""
        with self._lock:
            if self._closed:
                return ""
            self._hook = subprocess.Popen(
                [sys.executable, "-m", "sayso", "hook", "run", *self._options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        return self._hook.communicate(json.dumps(payload))[0]
