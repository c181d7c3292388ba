"""A large result does not block the calls of others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mcp_world import World
from test_proxy_http import connected
from waiting import until

POLICY = """
[[rule]]
tool = "catalog"
verdict = "allow"
effect = "{effect}"
"""


@pytest.mark.parametrize("effect", ["read", "once"])
async def test_large_result_does_not_block_the_loop(world: World, effect: str) -> None:
    policy = world.folder / "policy.toml"
    policy.write_text(POLICY.format(effect=effect))
    config = world.write(world.config(servers={"shop": world.stdio_shop()}))
    block = world.folder / "block"
    script = str(Path(__file__).with_name("monitored_proxy.py"))
    command = [sys.executable, script, str(config), world.url, str(policy), str(block)]
    blocks: list[float] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as proxy:
        try:
            assert proxy.stdout is not None
            url = proxy.stdout.readline().strip()
            async with connected(url, None, "legacy") as client:
                await client.call_tool("catalog", {"megabytes": 1, "items": 1})
                while not blocks or (min(blocks) > 0.1 and len(blocks) < 5):  # a busy machine
                    block.unlink()
                    until(block.exists)
                    result = await client.call_tool("catalog", {"megabytes": 8, "items": 50_000})
                    assert len(result.structured_content["items"]) == 50_000
                    blocks.append(float(block.read_text()))
        finally:
            proxy.terminate()
    print(f"{effect}: the loop was blocked for {min(blocks) * 1000:.0f} ms")
    assert min(blocks) <= 0.1


async def test_large_result_of_an_http_server_is_passed_on(world: World) -> None:
    config = world.config(servers={"shop": world.shop(protocol="legacy")})
    async with world.client(config=config, policy=POLICY.format(effect="once")) as client:
        result = await client.call_tool("catalog", {"megabytes": 8, "items": 2})
        assert [len(item) for item in result.structured_content["items"]] == [2_000_000] * 2
