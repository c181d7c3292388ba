"""The peers, each in its own environment under ``.bench-peers/``, created on first use."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from importlib.metadata import Distribution
from pathlib import Path

from benchmarks.rounds import THEIRS, Command

HOME = Path(__file__).parent.parent / ".bench-peers"

PYTHON = {
    "holdpoint": ("holdpoint==0.2.0",),
    "ctrlrun": ("ctrlrun==0.12.2",),
    "langgraph": (
        "langchain>=1.4,<2",
        "langgraph>=1.2,<2",
        "langgraph-checkpoint-sqlite>=3.1,<4",
        "langgraph-checkpoint-postgres>=3.2,<4",
        "psycopg[binary,pool]>=3.2,<4",
    ),
    "openai_agents": ("openai-agents>=0.24,<1",),
    "pydantic_ai": (
        "pydantic-ai-slim>=2.66,<3",
        "fastapi>=0.162",
        "uvicorn>=0.54",
        "uvloop>=0.22,<1",  # uvicorn uses both if they are installed, and ours are
        "httptools>=0.7,<1",
    ),
}
NPM = {"ai_sdk": ("ai@7.0.169", "zod@4")}

#: The packages whose versions the page names.
NAMED = {
    "holdpoint": ("holdpoint",),
    "ctrlrun": ("ctrlrun",),
    "langgraph": (
        "langchain",
        "langgraph",
        "langgraph-checkpoint-sqlite",
        "langgraph-checkpoint-postgres",
        "psycopg",
    ),
    "openai_agents": ("openai-agents",),
    "pydantic_ai": ("pydantic-ai-slim", "fastapi", "uvicorn"),
}


def theirs(peer: str, script: str, *args: str | Path) -> Command:
    """Return the command that runs a script in a peer's environment."""
    return (python_of(peer), THEIRS / script, *args)


def python_of(peer: str) -> Path:
    """Return a Python that has one peer installed."""
    home, packages = HOME / peer, PYTHON[peer]
    python = home / "bin" / "python"
    if not _stamp(home, packages).exists():
        _begin(home, packages)
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
        _stamp(home, packages).touch()
    return python


def npm_of(peer: str, script: str) -> Path:
    """Return the command that runs a script for an npm package, in a folder that has it."""
    home, packages = HOME / peer, NPM[peer]
    if not _stamp(home, packages).exists():
        _begin(home, packages)
        home.mkdir(parents=True)
        (home / "package.json").write_text('{"private": true, "type": "module"}')
        subprocess.run(["npm", "install", "--silent", *packages], cwd=home, check=True)
        _stamp(home, packages).touch()
    return Path(shutil.copy(THEIRS / script, home / script))


def _begin(home: Path, packages: tuple[str, ...]) -> None:
    print(f"installing {', '.join(packages)} into {HOME.name}/{home.name} ...", flush=True)
    shutil.rmtree(home, ignore_errors=True)


def _stamp(home: Path, packages: tuple[str, ...]) -> Path:
    """Return a marker file for these packages: other versions make a new environment."""
    return home / f".ready-{hashlib.sha256(json.dumps(packages).encode()).hexdigest()[:12]}"


def versions() -> dict[str, str]:
    """Return the installed versions, by package."""
    found: dict[str, str] = {}
    for peer, names in NAMED.items():
        places = [str(place) for place in (HOME / peer).glob("lib/python*/site-packages")]
        for name in names:
            for installed in Distribution.discover(name=name, path=places):
                found[name] = installed.version
    for peer, packages in NPM.items():
        name = packages[0].partition("@")[0]
        file = HOME / peer / "node_modules" / name / "package.json"
        if file.exists():
            found[f"{name} (npm)"] = json.loads(file.read_text("utf-8"))["version"]
    return found
