"""A large result does not block the calls of others."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CallToolResult
from mcp_world import World
from test_mcp_front import connected
from waiting import until

from sayso import codec
from sayso.stores.sqlite.store import SqliteStore

POLICY = """
[[rule]]
tool = "catalog"
verdict = "allow"
effect = "{effect}"
"""


@pytest.mark.long
@pytest.mark.parametrize("effect", ["read", "once"])
async def test_large_result_does_not_block_the_loop(world: World, effect: str) -> None:
    policy = world.folder / "policy.toml"
    policy.write_text(POLICY.format(effect=effect))
    config = world.write(world.config(servers={"shop": world.stdio_shop()}))
    block = world.folder / "block"
    script = str(Path(__file__).with_name("monitored_proxy.py"))
    command = [sys.executable, script, str(config), world.url, str(policy), str(block)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as proxy:
        try:
            assert proxy.stdout is not None
            url = proxy.stdout.readline().strip()
            async with connected(url, None, "legacy") as client:
                await client.call_tool("catalog", {"megabytes": 1, "items": 1})
                block.unlink()
                until(block.exists)
                result = await client.call_tool("catalog", {"megabytes": 8, "items": 50_000})
                assert len(result.structured_content["items"]) == 50_000
                seconds = float(block.read_text())
        finally:
            proxy.terminate()
    print(f"{effect}: the loop was blocked for {seconds * 1000:.0f} ms")
    assert seconds <= 0.25


async def test_large_result_is_converted_in_os_threads(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    converted: list[tuple[str, bool]] = []

    def watch(owner: Any, name: str, size: Callable[[Any, Any], int]) -> None:
        original = getattr(owner, name)

        def watched(*args: Any, **options: Any) -> Any:
            result = original(*args, **options)
            if size(args, result) > 1_000_000:
                converted.append((name, threading.current_thread() is threading.main_thread()))
            return result

        monkeypatch.setattr(owner, name, watched)

    watch(codec, "loads", lambda args, _: len(args[0]))
    watch(CallToolResult, "model_dump_json", lambda _, text: len(text))
    watch(SqliteStore, "call_by_key", lambda _, row: len((row and row.result) or ""))
    async with world.client(policy=POLICY.format(effect="once")) as client:
        await client.call_tool("catalog", {"megabytes": 8, "items": 2})
    assert {name for name, _ in converted} == {"loads", "model_dump_json", "call_by_key"}
    assert [name for name, on_loop in converted if on_loop] == []


@pytest.mark.long
async def test_large_http_result_is_passed_on(world: World) -> None:
    config = world.config(servers={"shop": world.shop(protocol="legacy")})
    async with world.client(config=config, policy=POLICY.format(effect="once")) as client:
        result = await client.call_tool("catalog", {"megabytes": 8, "items": 2})
        assert [len(item) for item in result.structured_content["items"]] == [2_000_000] * 2
