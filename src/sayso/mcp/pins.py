"""``Pins``: what each tool looked like when it was first seen, kept in the store.

A server may change what a tool says or takes after people have learned to trust it. The face of a
tool (its title, description, schemas and hints) is stored when it is first seen. If it differs
later, each call of the tool needs approval and shows the difference, until a person accepts the new
face in the inbox.
"""

from __future__ import annotations

import difflib
import json
import logging
from collections.abc import Mapping
from typing import Any

import mcp_types as types

from sayso import codec
from sayso.client import RemoteGate
from sayso.errors import Paused, SaysoError
from sayso.gate import Gate
from sayso.mcp.journal import Journal
from sayso.rows import CallStatus
from sayso.sync import read

log = logging.getLogger("sayso.mcp")

Face = dict[str, Any]


def face_of(tool: types.Tool) -> Face:
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


def digest_of(face: Face) -> str:
    """Return the digest that identifies a face."""
    return codec.sha256(json.dumps(face, sort_keys=True, ensure_ascii=True).encode())


def difference(old: Face, new: Face) -> str:
    """Return what changed, line by line."""
    lines = difflib.unified_diff(_lines(old), _lines(new), "accepted", "now", lineterm="", n=2)
    return "\n".join(lines)


def _lines(face: Face) -> list[str]:
    found = [f"title: {face['title']}", *f"description: {face['description']}".splitlines()]
    for part in ("inputSchema", "outputSchema", "annotations"):
        whole = json.dumps(face[part], indent=2, sort_keys=True, ensure_ascii=False)
        found += f"{part}: {whole}".splitlines()
    return found


class Pins:
    """The accepted faces of the tools of one server."""

    def __init__(
        self, gate: Gate | RemoteGate, server: str, journal: Journal | None = None
    ) -> None:
        self._gate = gate
        self._journal = journal
        self._server = server
        self._run = f"mcp-tools:{gate.agent}:{server}"
        #: The accepted faces by the tool's own name: the first, and those that people accepted.
        self._accepted: dict[str, list[Face]] = {}
        self._rows = 0

    async def check(self, tools: Mapping[str, Face]) -> dict[str, str]:
        """Return how each tool differs from what was accepted; tools that do not are left out.

        A tool that is seen for the first time is accepted as it is.
        """
        await self._load()
        new = {name: face for name, face in tools.items() if name not in self._accepted}
        if new:
            await self._add(new)
        changed: dict[str, str] = {}
        for name, face in tools.items():
            known = self._accepted.get(name, [face])
            if not any(digest_of(face) == digest_of(one) for one in known):
                changed[name] = difference(known[-1], face)
        return changed

    async def accepted(self, name: str, shown: str, face: Face, changes: str) -> bool:
        """Ask people to accept a changed tool. Return whether they have."""
        digest = digest_of(face)
        question = f"Accept the changed tool {shown}? Its server {self._server} changed it."
        details = {"tool": shown, "changes": changes, "digest": digest}
        try:
            async with self._gate.run(f"{self._run}:{name[:60]}:{digest[:16]}"):
                yes = await self._gate.confirm(question, details, key=digest, wait=0)
        except Paused:
            return False
        except SaysoError as error:
            log.warning("%s: people could not be asked about its change: %s", shown, error)
            return False
        if yes:
            await self._add({name: face})
        return yes

    # -- the store

    async def _load(self) -> None:
        """Read the faces that this or another process has stored since."""
        if not isinstance(self._gate, Gate):
            if self._journal is not None:
                self._accepted = self._journal.faces.setdefault(self._server, {})
            return
        store = self._gate.store
        rows = await read(store, store.calls_of, self._run)
        done = [row for row in rows if row.status is CallStatus.DONE and row.result]
        for row in sorted(done, key=lambda row: (row.created, row.key)):
            for name, face in json.loads(codec.loads(row.result or '"{}"')).items():
                self._accept(name, face)
        self._rows = len(rows)

    def _accept(self, name: str, face: Face) -> None:
        known = self._accepted.setdefault(name, [])
        if not any(digest_of(face) == digest_of(one) for one in known):
            known.append(face)

    async def _add(self, faces: dict[str, Face]) -> None:
        if isinstance(self._gate, Gate):
            # As text, because a schema may contain numbers that no call may hold.
            ours = json.dumps(faces)
            async with self._gate.run(self._run):
                kept = ""
                while kept != ours:
                    # Another process may have taken the number: then its faces come first.
                    kept = await self._gate.once(f"seen-{self._rows}", lambda: ours)
                    self._rows += 1
                    for name, face in json.loads(kept).items():
                        self._accept(name, face)
        for name, face in faces.items():
            self._accept(name, face)
        if self._journal is not None:
            self._journal.save()
