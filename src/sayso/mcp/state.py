"""What a proxy remembers across restarts: open calls, and how each tool was declared.

``StateFile`` is for a proxy without a store. With ``--server`` the requests are elsewhere, and an
agent's token cannot list them. So the proxy keeps a file of the calls that it has not delivered,
and of how its tools were declared. No decision depends on it: without it, people are asked again.

``AcceptedTools`` are in the store, or in the state file of a proxy without one. A server may change
a tool's description or parameters after people have learned to trust it. The declaration of a tool
(its title, description, schemas and hints) is stored when it is first seen. If it differs later,
each call of the tool needs approval and shows the difference, until a person accepts the new
declaration in the inbox.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mcp_types as types

from sayso import codec
from sayso.client import RemoteGate
from sayso.errors import Paused, SaysoError
from sayso.gate import Gate
from sayso.rows import CallStatus
from sayso.sync import read

log = logging.getLogger("sayso.mcp")


class StateFile:
    """One JSON file, written as a whole on each change."""

    def __init__(self, path: Path) -> None:
        self._path = path
        #: By the name of the run: the tool, and the arguments that the model wrote.
        self.calls: dict[str, list[str]] = {}
        #: By server and tool: the accepted declarations.
        self.tools: dict[str, dict[str, list[dict[str, Any]]]] = {}
        try:
            found = json.loads(path.read_text("utf-8"))
            self.calls, self.tools = dict(found["calls"]), dict(found["tools"])
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("%s cannot be read, so open calls are asked about again: %s", path, error)

    def save(self) -> None:
        """Write the file, which only this user can read."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(dir=self._path.parent)
        try:
            with os.fdopen(number, "w", encoding="utf-8") as file:
                json.dump({"calls": self.calls, "tools": self.tools}, file)
            os.replace(name, self._path)
        except OSError as error:
            log.warning("%s cannot be written: %s", self._path, error)
            with contextlib.suppress(OSError):
                os.unlink(name)


def state_path(server: str, token: str) -> Path:
    """Return the path of the state file of a server's agent."""
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    digest = codec.sha256(f"{server}\n{token}".encode())[:24]
    return Path(home) / "sayso" / f"proxy-{digest}.json"


# -- tools as they were declared


Declaration = dict[str, Any]


def declaration_of(tool: types.Tool) -> Declaration:
    """Return everything about a tool that a person or a model relies on."""
    return {
        "title": tool.title or "",
        "description": tool.description or "",
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "annotations": None
        if tool.annotations is None
        else tool.annotations.model_dump(by_alias=True, mode="json", exclude_none=True),
    }


def digest_of(declared: Declaration) -> str:
    return codec.sha256(json.dumps(declared, sort_keys=True, ensure_ascii=True).encode())


def difference(old: Declaration, new: Declaration) -> str:
    lines = difflib.unified_diff(_lines(old), _lines(new), "accepted", "now", lineterm="", n=2)
    return "\n".join(lines)


def _lines(declared: Declaration) -> list[str]:
    found = [f"title: {declared['title']}", *f"description: {declared['description']}".splitlines()]
    for part in ("inputSchema", "outputSchema", "annotations"):
        value = json.dumps(declared[part], indent=2, sort_keys=True, ensure_ascii=False)
        found += f"{part}: {value}".splitlines()
    return found


class AcceptedTools:
    """The accepted declarations of the tools of one server."""

    def __init__(
        self, gate: Gate | RemoteGate, server: str, state: StateFile | None = None
    ) -> None:
        self._gate = gate
        self._state = state
        self._server = server
        self._run = f"mcp-tools:{gate.agent}:{server}"
        #: The accepted declarations, oldest first, by the tool's own name.
        self._accepted: dict[str, list[Declaration]] = {}
        self._rows = 0

    async def check(self, tools: Mapping[str, Declaration]) -> dict[str, str]:
        """Return how each changed tool differs from the accepted declaration.

        A tool that is seen for the first time is accepted as it is.
        """
        await self._load()
        new = {name: declared for name, declared in tools.items() if name not in self._accepted}
        if new:
            await self._add(new)
        changed: dict[str, str] = {}
        for name, declared in tools.items():
            known = self._accepted.get(name, [declared])
            if not any(digest_of(declared) == digest_of(accepted) for accepted in known):
                changed[name] = difference(known[-1], declared)
        return changed

    async def ask(self, name: str, shown: str, declared: Declaration, changes: str) -> bool:
        """Ask people to accept a changed tool. Return whether they have accepted it."""
        digest = digest_of(declared)
        question = f"Accept the changed tool {shown}? Its server {self._server} changed it."
        details = {"tool": shown, "changes": changes, "digest": digest}
        try:
            async with self._gate.run(f"{self._run}:{name[:60]}:{digest[:16]}"):
                accepted = await self._gate.confirm(question, details, key=digest, wait=0)
        except Paused:
            return False
        except SaysoError as error:
            log.warning("%s: cannot ask about its change: %s", shown, error)
            return False
        if accepted:
            await self._add({name: declared})
        return accepted

    # -- the store

    async def _load(self) -> None:
        """Read the declarations that this or another process has stored since."""
        if not isinstance(self._gate, Gate):
            if self._state is not None:
                self._accepted = self._state.tools.setdefault(self._server, {})
            return
        store = self._gate.store
        rows = await read(store, store.calls_of, self._run)
        done = [row for row in rows if row.status is CallStatus.DONE and row.result]
        for row in sorted(done, key=lambda row: (row.created, row.key)):
            for name, declared in json.loads(codec.loads(row.result or '"{}"')).items():
                self._accept(name, declared)
        self._rows = len(rows)

    def _accept(self, name: str, declared: Declaration) -> None:
        known = self._accepted.setdefault(name, [])
        if not any(digest_of(declared) == digest_of(accepted) for accepted in known):
            known.append(declared)

    async def _add(self, declarations: dict[str, Declaration]) -> None:
        if isinstance(self._gate, Gate):
            # As text, because a schema may contain numbers that no call may hold.
            ours = json.dumps(declarations)
            async with self._gate.run(self._run):
                stored = ""
                while stored != ours:
                    # Another process may have used the number: then its declarations come first.
                    stored = await self._gate.once(f"seen-{self._rows}", lambda: ours)
                    self._rows += 1
                    for name, declared in json.loads(stored).items():
                        self._accept(name, declared)
        for name, declared in declarations.items():
            self._accept(name, declared)
        if self._state is not None:
            self._state.save()
