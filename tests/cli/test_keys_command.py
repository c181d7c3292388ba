"""``sayso keys``: a new key step by step, in a file or in the variable."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from cli_world import World

from sayso.audit import verify
from sayso.cli.keys import rotated_lines
from sayso.inbox.key_rotation import Rotated
from sayso.keys import Keyring, new_key
from sayso.stores import open_store


def step(world: World, *words: str) -> dict[str, Any]:
    done: dict[str, Any] = json.loads(world.cli("keys", *words, "--json"))
    return done


def test_key_file_is_rotated_step_by_step(world: World) -> None:
    request = world.mail()
    file = world.folder / "sayso.db.key"
    old = file.read_text().split()
    added = step(world, "rotate")
    assert (added["step"], file.read_text().split()[0]) == ("added", old[0])
    first = step(world, "rotate")
    assert (first["step"], first["key"]) == ("first", added["key"])
    assert file.read_text().split()[1:] == old
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    signed = step(world, "rotate")
    assert signed["step"] == "signed"
    assert signed["left"] == {}
    assert signed["changed"]["requests"] == 1
    assert signed["spare"] == [Keyring.parse(old[0]).primary_id]
    assert step(world, "rotate", "--drop")["changed"] == {}
    assert len(file.read_text().split()) == 1
    world.cli("approve", request, "--digest", world.get(request).digest)
    assert world.resume() == "sent to ana@example.com"
    (row,) = step(world, "list")
    assert row["key"] == added["key"]
    keys = Keyring.parse(f"{file.read_text()},{old[0]}")
    store = open_store(world.url, keys=keys)
    assert verify(store).ok
    store.close()


def test_variable_is_printed_to_be_set(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    old = new_key()
    monkeypatch.setenv("SAYSO_KEY", old)
    world.mail()
    text = world.cli("keys", "rotate")
    (line,) = [line for line in text.splitlines() if line.startswith("SAYSO_KEY=")]
    both = line.removeprefix("SAYSO_KEY=")
    assert both.startswith(f"{old},")
    monkeypatch.setenv("SAYSO_KEY", both)
    assert "signs, and" in world.cli("keys", "rotate")


def test_ed25519_key_gets_another_pair(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAYSO_KEY", new_key("ed25519"))
    world.mail()
    text = world.cli("keys", "rotate")
    assert "ed25519-public:" in text
    assert "row:" in text


@pytest.mark.parametrize("where", ["file", "credential"])
def test_named_key_file_is_rotated(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str
) -> None:
    folder = tmp_path / "credentials"
    folder.mkdir()
    file = folder / "sayso-key"
    file.write_text(new_key())
    file.chmod(0o600)
    if where == "file":
        monkeypatch.setenv("SAYSO_KEY_FILE", str(file))
    else:
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(folder))
    world.mail()
    assert str(file) in world.cli("keys", "rotate")
    assert len(file.read_text().split()) == 2
    (check,) = [
        c for c in json.loads(world.cli("doctor", "--json"))["checks"] if c["name"] == "key"
    ]
    assert str(file) in check["text"]


def test_distrust_needs_another_key_first(world: World) -> None:
    world.mail()
    (row,) = step(world, "list")
    assert row["rows"]["open requests"] == 1
    text = world.cli("keys", "distrust", row["key"], "--from", "2026-01-01", code=6)
    assert "still signs here" in text


def test_rows_that_still_need_a_key_are_listed() -> None:
    left = {"calls": {"11aa": 2, "": 1}, "people": {"11aa": 1, "22bb": 3}}
    lines = rotated_lines(Rotated("33cc", {"calls": 1_500}, left))
    assert [line.text for line in lines] == [
        "Signed again with 33cc: 1,500 calls.",
        "still need 11aa: 2 calls, 1 people",
        "1 calls fail their check, so they were not signed: see `sayso audit verify`",
        "still need 22bb: 3 people",
    ]
