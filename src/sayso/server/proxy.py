"""Sign-in by a trusted proxy, which has authenticated the caller and names them in a header.

Anyone can send a header, so it counts only on a connection from a peer that the settings name: an
IP address, a network, or a unix socket. The peer is the other end of the connection, whatever
``X-Forwarded-For`` says; on any other connection the header means nothing. With ``issuer``, the
header is a token that the proxy has signed, which is verified as well.

Rights need a row, so the server opens a session for the person, and another one when that has
ended: as any session, it is listed, counts in one place, and ends with the person. Nothing of it
leaves the server. The header has to name the person on every request.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sayso.errors import InvalidPolicy, Unauthenticated
from sayso.inbox import directory
from sayso.inbox.directory import Identified
from sayso.inbox.people import authenticate_session
from sayso.rows import Proven
from sayso.server.settings import check_url, load_settings
from sayso.stores.base import Store
from sayso.sync import read, to_thread
from sayso.types import Micros

if TYPE_CHECKING:
    from sayso.server.oidc import SigningKeys

log = logging.getLogger("sayso.server")

#: Where a connection's other end stands in the state of an ASGI scope. Headers cannot set it.
PEER = "sayso.peer"
UNIX = "unix"
_HEADER = re.compile(r"[a-z0-9-]+", re.ASCII)
#: Headers with another meaning.
_TAKEN = frozenset(("authorization", "cookie", "host", "origin"))
_MOST_SESSIONS = 10_000
_MOST_GROUPS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings:
    """Which proxy may say who the caller is, and how."""

    #: Where its connections come from: IP addresses, networks, or ``unix``.
    peers: tuple[str, ...]
    #: The header that names the person, or contains the signed token.
    header: str
    #: The header with the person's groups, separated by commas; "" if groups are kept here.
    groups_header: str = ""
    #: Who signs the tokens, for whom, and the address or file of the keys (a JWK set).
    issuer: str = ""
    audience: str = ""
    keys: str = ""
    #: The claim that becomes a person's name when they come for the first time.
    name_claim: str = "email"
    #: The claim with a person's groups; "" if groups are kept here.
    groups_claim: str = ""
    #: Only members of these groups may sign in; empty for everybody whom the proxy lets through.
    groups: tuple[str, ...] = ()
    #: Members of these groups are admins; everybody else is a reviewer.
    admin_groups: tuple[str, ...] = ()
    #: Names the proxy in the origin of people.
    name: str = "proxy"

    def __post_init__(self) -> None:
        if not self.peers:
            raise InvalidPolicy(f'peers is empty: name the proxy\'s addresses, or "{UNIX}"')
        self.networks()
        for header in (self.header.lower(), *filter(None, [self.groups_header.lower()])):
            if not _HEADER.fullmatch(header) or header in _TAKEN:
                raise InvalidPolicy(f"{header!r:.80} cannot name people: use another header")
        signed = (self.issuer, self.audience, self.keys)
        if any(signed) and not all(signed):
            raise InvalidPolicy("signed tokens need all of issuer, audience and keys")
        if self.issuer and self.groups_header:
            raise InvalidPolicy("groups_header is not signed: use groups_claim with signed tokens")
        if "://" in self.keys:
            check_url("keys", self.keys)
        if (self.groups or self.admin_groups) and not (self.groups_header or self.groups_claim):
            raise InvalidPolicy("groups and admin_groups need groups_header or groups_claim")

    @classmethod
    def load(cls, path: str | Path) -> ProxySettings:
        """Read the settings from a TOML file."""
        settings = load_settings(cls, path)
        if settings.keys and "://" not in settings.keys:
            settings = replace(settings, keys=str(Path(path).parent / settings.keys))
        return settings

    def networks(self) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
        """Return the peers that are addresses or networks."""
        try:
            networks = [ipaddress.ip_network(peer) for peer in self.peers if peer != UNIX]
        except ValueError as error:
            raise InvalidPolicy(f"peers: {error}") from None
        if any(network.prefixlen == 0 for network in networks):
            raise InvalidPolicy("peers: a network of all addresses names nobody: list the proxy's")
        return networks


class Named(NamedTuple):
    """Whom a proxy names in one request."""

    who: Identified
    #: When they proved who they are, if a signed token says so; 0 if nothing does.
    signed_in: Micros = 0
    #: When the signed token ends.
    ends: Micros | None = None


class ProxySignIn(NamedTuple):
    """A caller whom the proxy has named, with the session that their rights come from."""

    by: Proven
    session: str
    ends: Micros | None


class TrustedProxy:
    """One proxy whose word counts."""

    def __init__(self, settings: ProxySettings) -> None:
        self.settings = settings
        self._networks = settings.networks()
        self._header = settings.header.lower()
        self._groups_header = settings.groups_header.lower()
        #: The secrets of the sessions that were opened here, by origin.
        self._sessions: dict[tuple[str, str], str] = {}
        self._opening = asyncio.Lock()
        self._warned = False
        self._keys: SigningKeys | None = None
        if settings.issuer:
            from sayso.server.oidc import SigningKeys, new_client  # needs an extra

            self._client = new_client()
            self._keys = SigningKeys(self._client)

    async def close(self) -> None:
        if self._keys is not None:
            await self._client.aclose()

    async def identify(
        self, store: Store, scope: Mapping[str, Any], device: str, count: Callable[[str], None]
    ) -> ProxySignIn | None:
        """Return whom the proxy names in this request; ``None`` if it is not from the proxy.

        ``count`` is called before a session is opened, and raises if that happens too often. Raises
        ``Unauthenticated`` if the proxy's header cannot be understood or verified, and
        ``NotAllowed`` if the person may not sign in.
        """
        sent = _sent(scope, self._header)
        peer = str(scope.get("state", {}).get(PEER, ""))
        if not sent or not self._is_proxy(peer):
            if sent and not self._warned:
                self._warned = True
                log.warning(
                    "ignored %s from %s, which is not one of the proxy's peers",
                    self._header,
                    peer or "an unknown peer",
                )
            return None
        value = _only(sent, self._header)
        if not value:
            raise Unauthenticated(f"the proxy sent an empty {self._header}: sign in at the proxy")
        groups = _sent(scope, self._groups_header)
        person = await self._named(value, _only(groups, self._groups_header) if groups else "")
        secret = self._sessions.get(person.who.origin, "")
        by = await read(store, _present, store, secret, person)
        if by is None:
            async with self._opening:
                secret = self._sessions.get(person.who.origin, "")
                by = await read(store, _present, store, secret, person)
                if by is None:
                    count(f"sign-in of {person.who.origin[1]}")
                    secret = await to_thread(self._open, store, person, device)
                    by = await read(store, authenticate_session, store, secret)
        return ProxySignIn(by, secret, person.ends)

    def _is_proxy(self, peer: str) -> bool:
        if peer == UNIX:
            return UNIX in self.settings.peers
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)

    async def _named(self, value: str, groups: str) -> Named:
        settings = self.settings
        if self._keys is None:
            return Named(self._plain(value, groups))
        from sayso.server.oidc import KEYS_PAUSE, identified, moment_of, sign_in_of

        claims = await self._keys.verified(
            value,
            settings.keys if "://" in settings.keys else Path(settings.keys),
            issuer=settings.issuer,
            audience=settings.audience,
            essential=("exp", "sub"),
            purpose="proxy's",
            pause=KEYS_PAUSE,
        )
        person = sign_in_of(claims, settings)
        ends = moment_of(claims["exp"])
        return Named(identified(person, settings), person.authenticated_at or 0, ends)

    def _plain(self, value: str, listed: str) -> Identified:
        settings = self.settings
        if "," in value:
            raise Unauthenticated(f"{self._header} has a comma in it, so it may name two people")
        groups: tuple[str, ...] | None = None
        if self._groups_header:
            groups = tuple(name.strip() for name in listed.split(",")) if listed else ()
            if not all(groups) or len(groups) > _MOST_GROUPS:
                raise Unauthenticated(f"{self._groups_header} is not a list of groups")
        role = None
        if settings.groups and not set(settings.groups) & set(groups or ()):
            raise Unauthenticated("you are in no group that may sign in here: ask an admin")
        if settings.admin_groups:
            role = "admin" if set(settings.admin_groups) & set(groups or ()) else "reviewer"
        return Identified((f"proxy:{settings.name}", value), value, groups=groups, role=role)

    def _open(self, store: Store, named: Named, device: str) -> str:
        opened_by = f"proxy:{self.settings.name}"
        secret = directory.sign_in_as(
            store, named.who, signed_in=named.signed_in, session_id=opened_by, device=device
        )
        if len(self._sessions) >= _MOST_SESSIONS:
            self._sessions.pop(next(iter(self._sessions)))
        self._sessions[named.who.origin] = secret
        return secret


def _sent(scope: Mapping[str, Any], wanted: str) -> list[tuple[bytes, bytes]]:
    """Return the headers that some proxies take for this one, exact or not."""
    return [
        (name, value)
        for name, value in scope["headers"]
        if wanted and name.decode("latin-1").lower().replace("_", "-") == wanted
    ]


def _only(sent: list[tuple[bytes, bytes]], wanted: str) -> str:
    """Return the value of a header that was sent once. Raise ``Unauthenticated``.

    One that was sent twice, or with an underscore for a hyphen, may not be from the proxy.
    """
    if len(sent) > 1 or sent[0][0].decode("latin-1").lower() != wanted:
        raise Unauthenticated(f"the header {wanted} was sent twice or misspelt: send it once")
    try:
        return sent[0][1].decode("utf-8").strip()
    except UnicodeDecodeError:
        raise Unauthenticated(
            f"the header {wanted} is not UTF-8: let the proxy encode it"
        ) from None


def _present(store: Store, secret: str, named: Named) -> Proven | None:
    """Return the person of an open session, if the store knows them as the proxy does."""
    try:
        by = authenticate_session(store, secret) if secret else None
    except Unauthenticated:
        return None
    if by is None or by.signed_in < named.signed_in or named.who.role not in (None, by.role):
        return None
    return by if named.who.groups is None or set(by.groups) == set(named.who.groups) else None
