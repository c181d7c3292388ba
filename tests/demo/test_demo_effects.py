"""The demo records its effects, and uses the public API only."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

import sayso
import sayso.demo
from sayso.agent.agent import lend_store
from sayso.demo import Effects

SOURCE = Path(sayso.__file__).parent
PUBLIC = {
    *("sayso", "sayso.agent", "sayso.agent.models", "sayso.server", "sayso.testing"),
    "sayso.stores.address",  # the one place that reads a store's name
}


# -- effects


def test_effects_are_shared_and_outlive_their_object(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/sayso.db"
    Effects.beside(store).record("send", {"to": ["ana"], "n": 1})
    (row,) = Effects.beside(store).all()
    assert (row["tool"], row["args"]) == ("send", {"to": ["ana"], "n": 1})
    assert row["at"].startswith("20")
    json.dumps(row)
    Effects.beside(store).clear()
    assert Effects.beside(store).all() == []


async def test_effects_are_kept_next_to_store(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/lent.db"
    agent = sayso.demo.agent()
    lend_store(agent, store)
    await agent.run("time")
    agent.gate.close()
    assert [row["tool"] for row in Effects.beside(store).all()] == ["getLocalTime"]
    assert (tmp_path / "lent.db.effects").exists()


def test_effects_in_memory_are_cleared() -> None:
    effects = Effects.beside("memory://")
    effects.record("a", {})
    assert len(effects.all()) == 1
    effects.clear()
    assert effects.all() == []


# -- its place


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in found if name.split(".")[0] == "sayso"}


def test_demo_uses_public_api_only() -> None:
    for path in (SOURCE / "demo").glob("*.py"):
        modules = {name for name in imports_of(path) if name == name.lower()}
        inner = {name for name in modules if (SOURCE.parent / name.replace(".", "/")).is_dir()}
        inner |= {n for n in modules if (SOURCE.parent / f"{n.replace('.', '/')}.py").is_file()}
        assert {n for n in inner if not n.startswith("sayso.demo")} <= PUBLIC, path.name


@pytest.mark.long
def test_only_demo_command_imports_demo() -> None:
    elsewhere = [p for p in SOURCE.rglob("*.py") if "demo" not in p.relative_to(SOURCE).parts[0]]
    users = {p.name for p in elsewhere if any("sayso.demo" in name for name in imports_of(p))}
    assert users == {"chat.py"}
