"""``results.json``: the last result of every row, each with its date, and where it was measured."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import machine, peers
from benchmarks.row import Row

FILE = Path(__file__).parent / "results.json"


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def load(file: Path = FILE) -> dict[str, Any]:
    """Read the results, or return an empty document."""
    if not file.exists():
        return {"machine": {}, "versions": {}, "rows": []}
    kept: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return kept


def save_row(measured: Mapping[str, Any], rows: Mapping[str, Row], file: Path = FILE) -> None:
    """Replace the result of a row, and keep all others."""
    before = load(file)
    result = {**measured, "machine": machine.facts()}
    found = {row["name"]: row for row in [*before["rows"], result]}
    save({**before, "rows": [found[name] for name in rows if name in found]}, file)


def save_environment(file: Path = FILE, *, whole: bool = True) -> None:
    """Write the versions and, if every row was measured, the machine of them all."""
    before = load(file)
    versions = {**before["versions"], **machine.own_versions(), **peers.versions()}
    where = machine.facts() if whole or not before["machine"] else before["machine"]
    save({**before, "machine": where, "versions": versions}, file)


def with_current_texts(results: dict[str, Any], rows: Mapping[str, Row]) -> dict[str, Any]:
    """Return the results with the current texts of each row."""
    texts = ("work", "beside", "goal", "durability", "shown", "explanation")
    rows_with_texts = [
        {**row, **{text: getattr(rows[row["name"]], text) for text in texts}}
        for row in results["rows"]
        if row["name"] in rows
    ]
    return {**results, "rows": rows_with_texts}


def text_of(results: Mapping[str, Any]) -> str:
    return json.dumps(results, indent=2, ensure_ascii=False) + "\n"


def save(results: Mapping[str, Any], file: Path = FILE) -> None:
    file.write_text(text_of(results), encoding="utf-8")
