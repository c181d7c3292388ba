"""``Config``: the ``mcpServers`` JSON that every MCP host uses, and the proxy's own settings.

The proxy reads two objects named ``sayso``: one at the top level, for all servers, and one in the
entry of a server. Keys of other hosts are ignored, but an unknown key of ours is an error, because
a misspelt ``trust_hints`` must not be silent.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, get_args

from sayso.errors import SaysoError
from sayso.gate.options import MAX_NAME

OnAbandon = Literal["keep", "cancel"]
Recorded = Literal["all", "asked"]
#: ``auto`` speaks the newest era that a server understands, ``legacy`` the one with a handshake.
Protocol = Literal["auto", "legacy"]

#: The version that clients and servers see.
VERSION = version("sayso")
#: Seconds that a client is held. Several clients give up after 60 seconds.
DEFAULT_HOLD = 45.0
#: Between the name of a server and that of its tool.
SEPARATOR = "__"

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_PREFIX = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_TOP_KEYS = ("agent", "session", "policy", "hold", "clients", "on_abandon")
_SERVER_KEYS = ("trust_hints", "record", "on_abandon", "prefix", "protocol")


class InvalidConfig(SaysoError):
    """The configuration file of the proxy is not valid."""


@dataclass(frozen=True, kw_only=True)
class UpstreamConfig:
    """One server behind the proxy: a command to start, or a URL."""

    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Trust the server's hints about which of its tools only read.
    trust_hints: bool = False
    #: ``asked``: keep no record of reads that need no approval.
    record: Recorded = "all"
    on_abandon: OnAbandon = "keep"
    #: Put before the names of its tools and prompts. None: its name, if there are other servers.
    prefix: str | None = None
    protocol: Protocol = "auto"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The servers, and how the proxy treats its clients."""

    upstreams: tuple[UpstreamConfig, ...]
    #: The name of the agent in requests. With front authentication, the token's name is used.
    agent: str = "mcp"
    #: Groups calls: the same call made again in the same session is found again.
    session: str = "default"
    policy: Path | None = None
    hold: float = DEFAULT_HOLD
    #: The hold of clients by the name that they report.
    holds: Mapping[str, float] = field(default_factory=dict)

    def prefix_of(self, upstream: UpstreamConfig) -> str:
        """Return what the names of a server's tools begin with."""
        if upstream.prefix is not None:
            return f"{upstream.prefix}{SEPARATOR}" if upstream.prefix else ""
        return f"{upstream.name}{SEPARATOR}" if len(self.upstreams) > 1 else ""

    def hold_of(self, client: str) -> float:
        """Return how many seconds to hold a call of a client with this name."""
        return self.holds.get(client, self.hold)


def read_config(path: Path) -> Config:
    """Read a configuration file. Raise ``InvalidConfig`` that names the file and the key."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise InvalidConfig(f"{path} cannot be read: {why}") from None
    try:
        data = json.loads(text, object_pairs_hook=_without_duplicates)
    except ValueError as error:
        raise InvalidConfig(f"{path} is not JSON: {error}") from None
    try:
        return parse_config(data, path.parent, os.environ)
    except InvalidConfig as error:
        raise InvalidConfig(f"{path}: {error}") from None


def parse_config(data: object, folder: Path, environ: Mapping[str, str]) -> Config:
    """Return the configuration in a JSON value. Relative paths are relative to ``folder``."""
    root = _object(data, "the file")
    if "mcpServers" not in root:
        raise InvalidConfig('there is no "mcpServers": name the servers to put behind approval')
    servers = _object(root["mcpServers"], "mcpServers")
    if not servers:
        raise InvalidConfig("mcpServers is empty: name at least one server")
    ours = _settings(root, "", _TOP_KEYS)
    abandon = _choice(ours, "on_abandon", OnAbandon, "keep", "sayso")
    upstreams = tuple(
        _upstream(name, _object(entry, f"mcpServers.{name}"), folder, environ, abandon)
        for name, entry in servers.items()
    )
    holds: dict[str, float] = {}
    for name, settings in _object(ours.get("clients", {}), "sayso.clients").items():
        entry = _object(settings, f"sayso.clients.{name}")
        for key in set(entry) - {"hold"}:
            raise InvalidConfig(f"sayso.clients.{name}.{key} is unknown; use hold")
        holds[name] = _seconds(entry, f"sayso.clients.{name}")
    prefixes: dict[str, str] = {}
    policy = _string(ours, "policy", "sayso", None)
    config = Config(
        upstreams=upstreams,
        agent=_string(ours, "agent", "sayso", "mcp") or "",
        session=_string(ours, "session", "sayso", "default") or "",
        policy=None if policy is None else folder / Path(policy).expanduser(),
        hold=_seconds(ours, "sayso"),
        holds=holds,
    )
    for field_name in ("agent", "session"):
        value = getattr(config, field_name)
        if not value.strip() or len(value) > MAX_NAME // 4 or value.startswith("@"):
            raise InvalidConfig(
                f"sayso.{field_name}: use 1 to {MAX_NAME // 4} characters, not beginning with @"
            )
    for upstream in upstreams:
        prefix = config.prefix_of(upstream)
        if prefix in prefixes:
            raise InvalidConfig(
                f"mcpServers.{prefixes[prefix]} and mcpServers.{upstream.name} have the same "
                "prefix: give one another name or prefix"
            )
        prefixes[prefix] = upstream.name
    return config


def _upstream(
    name: str,
    entry: Mapping[str, Any],
    folder: Path,
    environ: Mapping[str, str],
    abandon: OnAbandon,
) -> UpstreamConfig:
    at = f"mcpServers.{name}"
    if not _PREFIX.fullmatch(name):
        raise InvalidConfig(f"{at}: a name has 1 to 40 letters, digits, dots, dashes, underscores")
    _check_transport(entry, at)

    def fill(text: str, key: str) -> str:
        """Replace ``${NAME}`` and ``${NAME:-default}`` with environment variables."""

        def value(match: re.Match[str]) -> str:
            value = environ.get(match[1]) or match[2]
            if value is None:
                raise InvalidConfig(
                    f"{at}.{key} uses ${{{match[1]}}}: set that environment variable"
                )
            return value

        return _VARIABLE.sub(value, text)

    ours = _settings(entry, f"{at}.", _SERVER_KEYS)
    prefix = _string(ours, "prefix", f"{at}.sayso", None)
    if prefix and not _PREFIX.fullmatch(prefix):
        raise InvalidConfig(f"{at}.sayso.prefix: use up to 40 letters, digits and underscores")
    trust_hints = ours.get("trust_hints", False)
    if not isinstance(trust_hints, bool):
        raise InvalidConfig(f"{at}.sayso.trust_hints: write true or false")
    shared: dict[str, Any] = {
        "name": name,
        "trust_hints": trust_hints,
        "record": _choice(ours, "record", Recorded, "all", f"{at}.sayso"),
        "on_abandon": _choice(ours, "on_abandon", OnAbandon, abandon, f"{at}.sayso"),
        "prefix": prefix,
        "protocol": _choice(ours, "protocol", Protocol, "auto", f"{at}.sayso"),
    }
    if "url" in entry:
        url = fill(_string(entry, "url", at, "") or "", "url")
        if not url.startswith(("http://", "https://")):
            raise InvalidConfig(f"{at}.url: write an http:// or https:// address")
        headers = _string_map(entry.get("headers", {}), f"{at}.headers", fill)
        return UpstreamConfig(**shared, url=url, headers=headers)
    args = entry.get("args", [])
    if not isinstance(args, list) or not all(isinstance(arg, str) for arg in args):
        raise InvalidConfig(f"{at}.args: write a list of strings")
    cwd = _string(entry, "cwd", at, None)
    return UpstreamConfig(
        **shared,
        command=fill(_string(entry, "command", at, "") or "", "command"),
        args=tuple(fill(arg, "args") for arg in args),
        env=_string_map(entry.get("env", {}), f"{at}.env", fill),
        cwd=None if cwd is None else str(folder / Path(fill(cwd, "cwd")).expanduser()),
    )


def _check_transport(entry: Mapping[str, Any], at: str) -> None:
    if ("command" in entry) == ("url" in entry):
        raise InvalidConfig(f"{at}: give either a command to start or a url to connect to")
    kind = entry.get("type") or entry.get("transport")
    if kind not in (None, "stdio", "http", "streamable-http", "streamableHttp"):
        raise InvalidConfig(
            f"{at}.type: {kind!r} is not supported: use a server with stdio or streamable HTTP"
        )
    if "oauth" in entry:
        raise InvalidConfig(
            f"{at}.oauth: the proxy does not sign in with OAuth: put a token into headers, or use "
            "a command that signs in, such as npx mcp-remote URL"
        )


def _settings(entry: Mapping[str, Any], at: str, known: tuple[str, ...]) -> Mapping[str, Any]:
    ours = _object(entry.get("sayso", {}), f"{at}sayso")
    for key in ours:
        if key not in known:
            hint = f"; use {', '.join(known)}"
            if key in _SERVER_KEYS and not at:
                hint = ': put it into the entry of a server, as "sayso": {...}'
            raise InvalidConfig(f"{at}sayso.{key} is unknown{hint}")
    return ours


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{duplicate!r} appears twice in one object")
    return content


def _object(value: object, at: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidConfig(f"{at}: write a JSON object")
    return value


def _string(entry: Mapping[str, Any], key: str, at: str, default: str | None) -> str | None:
    value = entry.get(key, default)
    if value is not None and not isinstance(value, str):
        raise InvalidConfig(f"{at}.{key}: write a string")
    return value


def _string_map(value: object, at: str, fill: Callable[[str, str], str]) -> dict[str, str]:
    texts = _object(value, at)
    for name, text in texts.items():
        if not isinstance(text, str):
            raise InvalidConfig(f"{at}.{name}: write a string")
    key = at.rpartition(".")[2]
    return {name: fill(text, f"{key}.{name}") for name, text in texts.items()}


def _choice(entry: Mapping[str, Any], key: str, choices: Any, default: Any, at: str) -> Any:
    value = entry.get(key, default)
    if value not in get_args(choices):
        listed = " or ".join(f'"{choice}"' for choice in get_args(choices))
        raise InvalidConfig(f"{at}.{key}: write {listed}")
    return value


def _seconds(entry: Mapping[str, Any], at: str) -> float:
    value = entry.get("hold", DEFAULT_HOLD)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value <= 0:
        raise InvalidConfig(f"{at}.hold: write a positive number of seconds")
    return float(value)
