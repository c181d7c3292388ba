"""A standing yes, made from an approval: for what, how often, how long."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from sayso import codec
from sayso.engine.grants import UNDER, surroundings
from sayso.errors import InvalidCall, InvalidDecision
from sayso.hiding import declared
from sayso.rows import Call
from sayso.stores.base import Store
from sayso.types import Grant, Json, Micros, Reviewer, Terms

_DAY = 86_400.0


def new_grant(call: Call, wanted: Mapping[str, Any], by: Reviewer, now: Micros) -> Grant:
    """The grant that goes with this approval: for a day, unless they say otherwise."""
    if not isinstance(wanted, Mapping):
        raise InvalidDecision("grant: give an object with scope, uses or ends_in", "grant")
    unknown = set(wanted) - {"scope", "uses", "ends_in"}
    if unknown:
        raise InvalidDecision(
            f"grant: no {', '.join(sorted(unknown))}; use scope, uses, ends_in", "grant"
        )
    uses, ends_in = wanted.get("uses"), wanted.get("ends_in", _DAY)
    if uses is not None and (type(uses) is not int or not 1 <= uses <= 1_000_000):
        raise InvalidDecision("grant: uses is a whole number from 1", "grant.uses")
    if type(ends_in) not in (int, float) or not 0 < ends_in <= 366 * _DAY:
        raise InvalidDecision(
            "grant: ends_in is a number of seconds, at most a year", "grant.ends_in"
        )
    return Grant(
        id="grt_" + secrets.token_hex(6),
        agent=call.agent,
        tool=call.tool,
        tool_digest=call.tool_digest,
        scope=codec.dumps(_under(call, by, _scope(call, wanted.get("scope", "exact")))),
        by=by.name,
        created=now,
        uses_left=uses,
        ends=now + round(ends_in * 1_000_000),
    )


def _scope(call: Call, scope: Json) -> Mapping[str, Json]:
    if scope == "exact":
        return {"const": codec.loads(call.args)}
    if scope == "any":
        return {}
    from sayso import schema  # brings pydantic, which reading the inbox does not need

    try:
        schema.check_schema(scope)
    except InvalidCall as error:
        raise InvalidDecision(f"grant: the scope is not a schema: {error}", "grant.scope") from None
    if not schema.matches(scope, codec.loads(call.args)):
        raise InvalidDecision("grant: the scope does not fit the call it comes from", "grant.scope")
    checked: Mapping[str, Json] = scope
    return checked


def _under(call: Call, by: Reviewer, scope: Mapping[str, Json]) -> Mapping[str, Json]:
    """Add to the scope whom its rule asks, how surely we know who gave it, and the surroundings it
    was given in: it covers no call that wants others, wants to be surer, or is made elsewhere."""
    reviewers = list(call.terms.reviewers)
    kept = {name: value for name, value in scope.items() if name != UNDER}
    under: dict[str, Json] = {}
    if reviewers or by.assurance != Terms().assurance:
        under |= {"reviewers": reviewers, "assurance": by.assurance}
    if (facts := surroundings(call)) is not None:
        under["binds"] = facts
    return {**kept, UNDER: under} if under else kept


def scope_of(grant: Grant) -> dict[str, Json]:
    """The arguments that a grant covers, as a schema."""
    return {name: value for name, value in codec.loads(grant.scope).items() if name != UNDER}


def shown_scope(store: Store, grant: Grant) -> dict[str, Json]:
    """The same for people: of arguments, without what their tool declares secret."""
    scope, tool = scope_of(grant), store.tool(grant.tool_digest)
    if set(scope) == {"const"} and tool is not None:
        scope["const"] = declared(scope["const"], codec.loads(tool.schema)["parameters"])
    return scope
