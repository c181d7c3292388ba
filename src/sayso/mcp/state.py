"""What proxies know of each other and across restarts: calls, connections, what servers declared.

``StateFile`` is for a proxy without a store. With ``--server`` the requests are elsewhere, and an
agent's token cannot list them. So the proxy keeps a file of the calls that it has not delivered,
and of what its servers declared. No decision depends on it: without it, people are asked again.

``Connections`` tell whether the connection that made a call is live. Two live connections that make
equal calls mean two calls; a client that connects again means its own.

``AcceptedDeclarations`` are in the store, or in the state file of a proxy without one. A server may
change what it tells the model after people have learned to trust it: a tool (its description,
schemas, hints and everything else that is listed) or its instructions. A declaration is stored
when it is first seen. If it differs later, clients get the accepted one, and each call of the tool
needs approval and shows the difference, until a person accepts the new declaration in the inbox.
"""

from __future__ import annotations

import difflib
import fcntl
import json
import logging
import os
import pwd
import secrets
import socket
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mcp_types as types
from starlette.types import ASGIApp, Receive, Scope, Send

from sayso import codec
from sayso.client import RemoteGate
from sayso.errors import Paused, SaysoError
from sayso.gate import Gate
from sayso.rows import CallStatus
from sayso.stores.address import address_of
from sayso.sync import read

log = logging.getLogger("sayso.mcp")


class StateFile:
    """One JSON file, shared by the proxies that use one token, and written as a whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        #: By the name of the run: the tool, the arguments that the model wrote, and the owner.
        self.calls: dict[str, list[str]] = {}
        #: By server and name: the accepted declarations.
        self.tools: dict[str, dict[str, list[dict[str, Any]]]] = {}
        self.read()

    def read(self) -> None:
        """Read what this or another process has written."""
        try:
            content = json.loads(self.path.read_text("utf-8"))
            self.calls = dict(content["calls"])
            self.tools = dict(content["tools"])
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError) as error:
            warning = "%s cannot be read, so open calls are asked about again: %s"
            log.warning(warning, self.path, error)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Read the file, and write what changes inside ``with``. Only this user can read it."""
        with _locked(self.path.with_suffix(".lock")):
            self.read()
            yield
            try:
                number, name = tempfile.mkstemp(dir=self.path.parent)
                with os.fdopen(number, "w", encoding="utf-8") as file:
                    json.dump({"calls": self.calls, "tools": self.tools}, file)
                os.replace(name, self.path)
            except OSError as error:
                log.warning("%s cannot be written: %s", self.path, error)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a file locked inside ``with``. Without the file, people are asked again."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = path.open("w")
    except OSError as error:
        log.warning("%s cannot be written: %s", path, error)
        yield
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def state_path(server: str, token: str) -> Path:
    """Return the path of the state file of a server's agent."""
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    digest = codec.sha256(f"{server}\n{token}".encode())[:24]
    return Path(home) / "sayso" / f"proxy-{digest}.json"


# -- connections


#: The connection of a client on standard input and output.
STDIO = "stdio"


class Connections:
    """The live connections of clients: here, and in other processes.

    An open call has an owner: a process, and a connection of it. A process with live connections
    keeps a file locked. The system unlocks it when the process ends, however that happens.
    """

    def __init__(self) -> None:
        self._host = socket.gethostname().replace("/", "").replace(":", "")
        self._process = f"{self._host}/{secrets.token_hex(8)}"
        self._folder = Path()
        #: How often each connection is in use: by a server, and by each open HTTP request.
        self._uses: Counter[str] = Counter()
        #: Unlocks the file of this process.
        self._unlock = ExitStack()

    def share(self, gate: Gate | RemoteGate, state: StateFile | None) -> None:
        """Set the folder that all processes have in common that share these calls.

        It does not depend on the environment that they were started with.
        """
        self._folder = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".local/state/sayso/proxies"
        if state is not None:
            self._folder = state.path.with_suffix(".proxies")
        elif isinstance(gate, Gate):
            path = address_of(gate.store.url).path
            if path is not None:
                self._folder = Path(f"{path.resolve()}.proxies")

    @contextmanager
    def live(self, connection: str) -> Iterator[None]:
        """Count a connection as live inside ``with``."""
        path = self._path(self._process)
        if not self._uses:
            self._unlock.enter_context(_locked(path))
        self._uses[connection] += 1
        try:
            yield
        finally:
            self._uses[connection] -= 1
            self._uses += Counter()  # drops what is no longer in use
            if not self._uses:
                with suppress(OSError):
                    path.unlink()
                self._unlock.close()

    def _path(self, process: str) -> Path:
        return self._folder / process.rpartition("/")[2]

    def owner(self, connection: str) -> str:
        """Return the name of a connection of this process among those of all processes."""
        return f"{self._process}:{connection}"

    def is_here(self, owner: str) -> bool:
        """Return whether a connection is or was one of this process."""
        return owner.startswith(f"{self._process}:")

    def is_live(self, owner: str) -> bool:
        """Return whether a connection is live.

        Of another process, all are or none; of another machine, those on standard input are.
        """
        process, _, connection = owner.partition(":")
        if self.is_here(owner):
            return self._uses[connection] > 0
        if process.partition("/")[0] != self._host:
            return connection == STDIO
        try:
            with self._path(process).open() as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False

    def counting(self, app: ASGIApp) -> ASGIApp:
        """Count sessions with open requests, event streams included, as live around an HTTP app."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            session = dict(scope.get("headers", ())).get(b"mcp-session-id")
            with self.live("http" if session is None else session.decode("latin-1")):
                await app(scope, receive, send)

        return counted


# -- what servers declare


Declaration = dict[str, Any]

#: The name of a server's instructions among its declarations. No tool has an empty name.
INSTRUCTIONS = ""


def declaration_of(tool: types.Tool) -> Declaration:
    """Return everything that a list of tools says about a tool, except its name."""
    return tool.model_dump(by_alias=True, mode="json", exclude_none=True, exclude={"name"})


@dataclass(eq=False)
class Pin:
    """A tool of a server, or its instructions: as declared now, and as people accepted it."""

    name: str
    declared: Declaration
    accepted: Declaration

    @property
    def changes(self) -> str:
        """How it differs from what was accepted; "" if it does not."""
        if self.declared == self.accepted:
            return ""
        old = _lines(self.accepted)
        new = _lines(self.declared)
        return "\n".join(difflib.unified_diff(old, new, "accepted", "now", lineterm="", n=2))


def _lines(declared: Declaration) -> list[str]:
    lines: list[str] = []
    for key, value in sorted(declared.items()):
        if not isinstance(value, str):
            value = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
        lines += f"{key}: {value}".splitlines()
    return lines


class AcceptedDeclarations:
    """The accepted declarations of one server."""

    def __init__(
        self, gate: Gate | RemoteGate, server: str, state: StateFile | None = None
    ) -> None:
        self._gate = gate
        self._state = state
        self._server = server
        self._run = f"mcp-tools:{gate.agent}:{server}"
        #: The accepted declarations, oldest first, by name.
        self._accepted: dict[str, list[Declaration]] = {}
        self._rows = 0

    async def pin(self, declarations: Mapping[str, Declaration]) -> dict[str, Pin]:
        """Compare what a server declares now with what was accepted.

        A declaration that is seen for the first time is accepted as it is.
        """
        await self.load()
        new = {n: item for n, item in declarations.items() if n not in self._accepted}
        if new:
            await self._add(new)
        pins: dict[str, Pin] = {}
        for name, declared in declarations.items():
            versions = self._accepted[name]
            pins[name] = Pin(name, declared, declared if declared in versions else versions[-1])
        return pins

    def newest(self, name: str) -> Declaration | None:
        """Return the declaration that was accepted last."""
        versions = self._accepted.get(name)
        return versions[-1] if versions else None

    async def ask(self, pin: Pin, shown: str) -> bool:
        """Ask people to accept a change. If they have accepted it, apply it and return True.

        ``shown`` names what has changed.
        """
        digest = codec.sha256(json.dumps(pin.declared, sort_keys=True).encode())
        question = f"Accept the changed {shown}? The MCP server {self._server} changed it."
        details = {"changed": shown, "changes": pin.changes, "digest": digest}
        try:
            async with self._gate.run(f"{self._run}:{pin.name[:60]}:{digest[:16]}"):
                accepted = await self._gate.confirm(question, details, key=digest, wait=0)
        except Paused:
            return False
        except SaysoError as error:
            log.warning("%s: cannot ask about its change: %s", shown, error)
            return False
        if accepted:
            await self._add({pin.name: pin.declared})
            pin.accepted = pin.declared
        return accepted

    # -- the store

    async def load(self) -> None:
        """Read the declarations that this or another process has stored since."""
        if not isinstance(self._gate, Gate):
            if self._state is not None:
                self._state.read()
                self._accept_stored(self._state)
            return
        store = self._gate.store
        rows = await read(store, store.calls_of, self._run)
        done = [row for row in rows if row.status is CallStatus.DONE and row.result]
        for row in sorted(done, key=lambda row: (row.created, row.key)):
            self._accept(json.loads(codec.loads(row.result or '"{}"')))
        self._rows = len(rows)

    def _accept(self, declarations: Mapping[str, Declaration]) -> None:
        for name, declared in declarations.items():
            versions = self._accepted.setdefault(name, [])
            if declared not in versions:
                versions.append(declared)

    def _accept_stored(self, state: StateFile) -> None:
        for name, versions in state.tools.get(self._server, {}).items():
            for declared in versions:
                self._accept({name: declared})

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
                    self._accept(json.loads(stored))
        if self._state is not None:
            with self._state.changing():
                self._accept_stored(self._state)
                self._accept(declarations)
                self._state.tools[self._server] = self._accepted
        self._accept(declarations)
