"""Path and query parameters that several routes share."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Path, Query

from sayso.types import KINDS, RISKS, STATUS_FILTERS

RequestId = Annotated[str, Path(description="the request's id, such as `req_7f3a…`")]
Agent = Annotated[str | None, Query(description="the agent's name")]
Tool = Annotated[str | None, Query(description="the tool's name")]
Thread = Annotated[str | None, Query(description="the thread's id, which is a chat's id")]
Mine = Annotated[bool, Query(description="only requests for you in particular, not for everyone")]
After = Annotated[str | None, Query(max_length=100, description="the `next` of the page before")]
Limit = Annotated[int, Query(ge=1, le=500, description="how many items at most")]


async def _request_filters(
    status: Annotated[
        str, Query(description="the status", json_schema_extra={"enum": [*STATUS_FILTERS]})
    ] = "pending",
    kind: Annotated[
        str | None, Query(description="the kind", json_schema_extra={"enum": [*KINDS]})
    ] = None,
    agent: Agent = None,
    tool: Tool = None,
    thread: Thread = None,
    run: Annotated[str | None, Query(description="the run's id")] = None,
    risk: Annotated[
        str | None, Query(description="the risk level", json_schema_extra={"enum": [*RISKS]})
    ] = None,
    q: Annotated[
        str | None,
        Query(
            description="words of title, arguments, tool, agent, description, run, requester or "
            "id; `tool:pay agent:billing risk:high kind:question older:1h newer:7d` filter"
        ),
    ] = None,
    expires_within: Annotated[
        int | None,
        Query(ge=1, le=10**9, description="only requests that expire within this many seconds"),
    ] = None,
) -> dict[str, Any]:
    values = {"kind": kind, "agent": agent, "tool": tool, "thread": thread, "run": run}
    values |= {"risk": risk, "q": q}
    filters = {name: value for name, value in values.items() if value}
    return {"status": status or "pending", **filters, "expires_within": expires_within}


#: Which requests a list shows or a count counts.
RequestFilters = Annotated[dict[str, Any], Depends(_request_filters)]
