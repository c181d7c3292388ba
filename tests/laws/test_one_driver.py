"""The life of a call is written once: this is checked in the source."""

from __future__ import annotations

import ast
import gc
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import sayso

SOURCE = Path(sayso.__file__).parent
#: A suite for stores sends every command by itself.
APART = SOURCE / "testing"


@cache
def everything() -> list[tuple[str, ast.AST]]:
    """Every node of the source, with the file that it is in."""
    found: list[tuple[str, ast.AST]] = []
    gc.disable()  # nothing here becomes garbage, and looking for it takes half of the time
    for path in sorted(SOURCE.rglob("*.py")):
        if APART not in path.parents:
            name = str(path.relative_to(SOURCE))
            found += [(name, node) for node in ast.walk(ast.parse(path.read_text("utf-8")))]
    gc.enable()
    return found


def nodes(kind: type[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    """The nodes of one kind."""
    return ((path, node) for path, node in everything() if isinstance(node, kind))


def built(name: str) -> list[str]:
    """Where something of this name is constructed."""
    found = []
    for path, node in nodes(ast.Call):
        assert isinstance(node, ast.Call)
        called = node.func
        label = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
        if label == name:
            found.append(path)
    return found


@pytest.mark.parametrize(
    "command",
    [
        *("Start", "Complete", "Record", "MarkInDoubt", "Suspend", "Settle"),
        *("Release", "Defer", "ReportResult"),
    ],
)
def test_attempt_commands_are_built_once(command: str) -> None:
    assert built(command) == ["gate/backend.py"]


def test_only_recheck_clears_a_start() -> None:
    """``start`` and ``complete`` take a ``Cleared`` row, and only ``clear`` makes one."""
    assert built("Cleared") == ["gate/backend.py"]
    # The other one answers an agent's prompt about a call that was released, and starts nothing.
    assert Counter(built("recheck")) == {"gate/backend.py": 1, "gate/plan.py": 1}


def test_lease_expiry_is_compared_once() -> None:
    """``Run.leased``, ``Run.lapsed`` and ``Run.due``; the stores ask the database the same."""
    compared = {
        path
        for path, node in nodes(ast.Compare)
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute) and part.attr == "ready_at"
        if any(isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in node.ops)  # type: ignore[attr-defined]
    }
    assert compared == {"rows.py"}


def test_every_path_uses_the_driver() -> None:
    """What runs an effect is the driver, and all that ask have their calls from it."""
    doors = ("gate", "agent", "client", "server", "worker", "adapters")
    runs = {path for path in built("execute") if path.startswith(doors)}
    assert runs == {"gate/driver.py", "agent/execution.py"}
    asks = {path for path in built("result") if path.startswith(("gate", "client", "agent"))}
    assert {"gate/gate.py", "gate/guard.py", "gate/framework/threads.py", "client/gate.py"} <= asks
