"""The configuration: valid and invalid files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sayso.mcp.config import InvalidConfig, parse_config, read_config

SHOP = {"command": "shop"}


def parsed(config: Any, **environ: str) -> Any:
    return parse_config(config, Path("/etc/shop"), environ)


def test_servers_and_settings() -> None:
    config = parsed(
        {
            "mcpServers": {
                "shop": {
                    "command": "npx",
                    "args": ["-y", "shop", "${HOME}/x"],
                    "env": {"KEY": "${KEY:-none}"},
                    "autoApprove": ["order"],
                    "sayso": {"trust_hints": True, "record": "asked", "on_abandon": "cancel"},
                },
                "far": {
                    "type": "http",
                    "url": "https://mcp.example/mcp",
                    "headers": {"Authorization": "Bearer ${TOKEN}"},
                },
            },
            "sayso": {
                "policy": "rules.toml",
                "hold": 30,
                "clients": {"claude-code": {"hold": 200}},
            },
        },
        HOME="/srv/ana",
        TOKEN="t0ken",
    )
    shop, far = config.upstreams
    assert (shop.command, shop.args) == ("npx", ("-y", "shop", "/srv/ana/x"))
    assert shop.env == {"KEY": "none"}
    assert (shop.trust_hints, shop.record, shop.on_abandon) == (True, "asked", "cancel")
    assert far.headers == {"Authorization": "Bearer t0ken"}
    assert (far.trust_hints, far.record, far.on_abandon) == (False, "all", "keep")
    assert config.policy == Path("/etc/shop/rules.toml")
    assert (config.hold_of("claude-code"), config.hold_of("other")) == (200, 30)
    assert (config.prefix_of(shop), config.prefix_of(far)) == ("shop__", "far__")


def test_one_server_needs_no_prefix() -> None:
    config = parsed({"mcpServers": {"shop": SHOP}})
    assert config.prefix_of(config.upstreams[0]) == ""
    config = parsed({"mcpServers": {"shop": {**SHOP, "sayso": {"prefix": "s"}}}})
    assert config.prefix_of(config.upstreams[0]) == "s__"
    assert config.hold == 45


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ([], "the file: write a JSON object"),
        ({}, 'there is no "mcpServers"'),
        ({"mcpServers": {}}, "mcpServers is empty"),
        ({"mcpServers": {"a b": SHOP}}, "a name has 1 to 40 letters"),
        ({"mcpServers": {"a": {}}}, "mcpServers.a: give either a command"),
        ({"mcpServers": {"a": {**SHOP, "url": "http://x"}}}, "give either a command"),
        ({"mcpServers": {"a": {"url": "ftp://x"}}}, "mcpServers.a.url: write an http://"),
        ({"mcpServers": {"a": {"url": "http://x", "type": "sse"}}}, "'sse' is not supported"),
        (
            {"mcpServers": {"a": {"url": "http://x", "oauth": {"clientId": "c"}}}},
            "mcpServers.a.oauth: the proxy does not sign in with OAuth",
        ),
        ({"mcpServers": {"a": {**SHOP, "args": "x"}}}, "mcpServers.a.args: write a list"),
        ({"mcpServers": {"a": {**SHOP, "env": {"K": 1}}}}, "mcpServers.a.env.K: write a string"),
        ({"mcpServers": {"a": {**SHOP, "env": {"K": "${K}"}}}}, "mcpServers.a.env.K uses ${K}"),
        (
            {"mcpServers": {"a": {**SHOP, "sayso": {"trust_hint": True}}}},
            "mcpServers.a.sayso.trust_hint is unknown",
        ),
        (
            {"mcpServers": {"a": {**SHOP, "sayso": {"trust_hints": "yes"}}}},
            "trust_hints: write true or false",
        ),
        (
            {"mcpServers": {"a": SHOP}, "sayso": {"trust_hints": True}},
            "sayso.trust_hints is unknown: put it into the entry of a server",
        ),
        ({"mcpServers": {"a": SHOP}, "sayso": {"hold": 0}}, "sayso.hold: write a positive number"),
        (
            {"mcpServers": {"a": SHOP}, "sayso": {"on_abandon": "drop"}},
            'sayso.on_abandon: write "keep" or "cancel"',
        ),
        (
            {"mcpServers": {"a": SHOP, "b": {**SHOP, "sayso": {"prefix": "a"}}}},
            "mcpServers.a and mcpServers.b have the same prefix",
        ),
        ({"mcpServers": {"a": SHOP}, "sayso": {"agent": "@x"}}, "sayso.agent: use 1 to"),
        (
            {"mcpServers": {"a": SHOP}, "sayso": {"clients": {"Desk": {"wait": 5}}}},
            "sayso.clients.Desk.wait is unknown; use hold",
        ),
        (
            {"mcpServers": {"a": {**SHOP, "sayso": {"prefix": "a b"}}}},
            "sayso.prefix: use up to 40 letters",
        ),
        ({"mcpServers": {"a": {**SHOP, "cwd": 5}}}, "mcpServers.a.cwd: write a string"),
    ],
)
def test_invalid_config_is_refused(config: Any, message: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        parsed(config)
    assert message in str(refused.value)


def test_error_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    with pytest.raises(InvalidConfig, match=r"mcp\.json cannot be read: No such file"):
        read_config(path)
    path.write_text('{"mcpServers": {"a": 1, "a": 2}}')
    with pytest.raises(InvalidConfig, match="'a' appears twice"):
        read_config(path)
    path.write_text(json.dumps({"mcpServers": 3}))
    with pytest.raises(InvalidConfig, match=r"mcp\.json: mcpServers: write a JSON object"):
        read_config(path)
