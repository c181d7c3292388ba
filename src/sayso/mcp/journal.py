"""``Journal``: what a proxy without a store must remember across restarts, in a file.

With ``--server`` the requests are elsewhere, and an agent's token cannot list them. So the proxy
notes which calls it has not handed over, and what its tools looked like. The file decides nothing:
without it, people are asked again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

from sayso import codec

log = logging.getLogger("sayso.mcp")


class Journal:
    """One JSON file, written as a whole on each change."""

    def __init__(self, path: Path) -> None:
        self._path = path
        #: By the name of the run: the tool, and the arguments that the model wrote.
        self.calls: dict[str, list[str]] = {}
        #: By server and tool: the accepted faces.
        self.faces: dict[str, dict[str, list[dict[str, Any]]]] = {}
        try:
            found = json.loads(path.read_text("utf-8"))
            self.calls, self.faces = dict(found["calls"]), dict(found["faces"])
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("%s cannot be read, so open calls are asked again: %s", path, error)

    def save(self) -> None:
        """Write the file, which only this user can read."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(dir=self._path.parent)
        try:
            with os.fdopen(number, "w", encoding="utf-8") as file:
                json.dump({"calls": self.calls, "faces": self.faces}, file)
            os.replace(name, self._path)
        except OSError as error:
            log.warning("%s cannot be written: %s", self._path, error)
            with contextlib.suppress(OSError):
                os.unlink(name)


def journal_path(server: str, token: str) -> Path:
    """Return where the journal of a server's agent is."""
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    whose = codec.sha256(f"{server}\n{token}".encode())[:24]
    return Path(home) / "sayso" / f"proxy-{whose}.json"
