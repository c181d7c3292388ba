"""The export contains everything that others need to check it."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

from audit_world import KEY, SERVER_KEY, World, opened

from sayso.audit import export
from sayso.keys import Keyring


def test_export_is_enough_to_check_hashes(tmp_path: Path) -> None:
    with opened(World(tmp_path, SERVER_KEY)) as world:
        world.order("order-1")
        world.order("Bestellung-ü")
        world.store.seal()
        world.ask("order-3")
        lines = [json.loads(line) for line in export(world.store)]
    seals = [line for line in lines if line["kind"] == "seal"]
    events = [line for line in lines if line["kind"] == "event"]
    assert lines == seals + events
    assert (len(seals), len(events)) == (1, 11)
    heads = _recomputed(events, lambda data: "sha256." + hashlib.sha256(_LINK + data).hexdigest())
    for seal in seals:
        text = json.dumps([seal[k] for k in ("n", "at", "heads", "prev")], **_COMPACT)
        assert hashlib.sha256(text.encode()).hexdigest() == seal["hash"]
        for thread, seq, head in json.loads(seal["heads"]):
            assert heads[thread, seq] == head


def test_export_can_be_checked_with_the_secret(world: World) -> None:
    import base64

    secret = base64.urlsafe_b64decode(KEY.removeprefix("hmac:") + "=")
    link = hmac.digest(secret, _LINK, "sha256")
    name = Keyring.parse(KEY).primary_id
    events = [json.loads(line) for line in export(world.store)]
    heads = _recomputed(events, lambda d: f"{name}.{hmac.digest(link, d, 'sha256').hex()}")
    assert heads["order-3", 5] == world.thread("order-3").head


_LINK = b"sayso/v1/link\0"
_COMPACT: dict[str, Any] = {"ensure_ascii": False, "separators": (",", ":")}


def _recomputed(events: list[dict[str, Any]], link: Any) -> dict[tuple[str, int], str]:
    heads: dict[tuple[str, int], str] = {}
    for event in events:
        assert hashlib.sha256(event["body"].encode()).hexdigest() == event["digest"]
        names = ("thread", "seq", "at", "type", "run", "call", "actor", "digest")
        place = (event["thread"], event["seq"])
        parts = [heads.get((place[0], place[1] - 1), ""), *(event[name] for name in names)]
        heads[place] = link(json.dumps(parts, **_COMPACT).encode())
        assert heads[place] == event["hash"]
    return heads


def test_pruned_or_damaged_store_is_exported(world: World) -> None:
    world.store.prune(world.clock() + 1, "ana")
    world.sql("UPDATE event SET actor = x'ff00' WHERE pos = 2")
    lines = [json.loads(line) for line in export(world.store)]
    events = [line for line in lines if line["kind"] == "event"]
    assert [event["body"] for event in events[:15]] == [None] * 15
    assert events[1]["actor"] == "b'\\xff\\x00'"
    assert events[15]["type"] == "pruned"
