"""What is stored once and named by many calls: tools, and faces with their words."""

from __future__ import annotations

import time
from collections.abc import Iterable

from sayso.rows import Tool
from sayso.stores.faces import Face
from sayso.stores.sql.dialect import Execute

ADD_TOOL = (
    "INSERT INTO tool (digest, name, schema, description) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (digest) DO NOTHING"
)
ADD_FACE = (
    "INSERT INTO face (id, kind, agent, tool, risk, words) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (id) DO NOTHING"
)
ADD_WORDS = "INSERT INTO face_word (word, face) VALUES {} ON CONFLICT (word, face) DO NOTHING"

#: Pruning drops faces without calls. Whoever remembers one for longer than this looks again.
_SURE_SECONDS = 600.0
_MOST = 20_000


class Known:
    """What is in the database for sure and need not be written again; filled after commits."""

    def __init__(self) -> None:
        #: A tool never changes under its digest, so that this is also what a reader is given.
        self.tools: dict[str, Tool] = {}
        self.faces: dict[int, float] = {}

    def has_face(self, number: int) -> bool:
        return time.monotonic() < self.faces.get(number, 0.0)

    def learn(self, tools: Iterable[Tool], faces: Iterable[int]) -> None:
        """Remember what was committed just now."""
        if len(self.tools) + len(self.faces) > _MOST:
            self.forget()
        self.tools.update((tool.digest, tool) for tool in tools)
        self.faces.update(dict.fromkeys(faces, time.monotonic() + _SURE_SECONDS))

    def forget(self) -> None:
        """Look again for everything: rows were dropped."""
        self.tools, self.faces = {}, {}


def add_tools(execute: Execute, tools: Iterable[Tool], known: Known) -> None:
    """Store the tools that are new. Always in one order, so that two writers cannot deadlock."""
    for tool in sorted(set(tools)):
        if tool.digest not in known.tools:
            execute(ADD_TOOL, (tool.digest, tool.name, tool.schema, tool.description))


def add_faces(execute: Execute, faces: Iterable[Face], known: Known) -> None:
    """Store the faces that are new, with their words."""
    for face in sorted(set(faces)):
        if not known.has_face(face.id):
            words = "".join(f" {word}" for word in face.words)
            execute(ADD_FACE, (face.id, face.kind, face.agent, face.tool, face.risk, words))
            if face.words:
                marks = ", ".join(["(?, ?)"] * len(face.words))
                pairs = [value for word in face.words for value in (word, face.id)]
                execute(ADD_WORDS.format(marks), pairs)
