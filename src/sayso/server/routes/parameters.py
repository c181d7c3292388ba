"""Path and query parameters that several routes share."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

RequestId = Annotated[str, Path(description="the request's id, such as `req_7f3a…`")]
Agent = Annotated[str | None, Query(description="the agent's name")]
Tool = Annotated[str | None, Query(description="the tool's name")]
Thread = Annotated[str | None, Query(description="the thread's id, which is a chat's id")]
Run = Annotated[str | None, Query(description="the run's id")]
ExpiresWithin = Annotated[
    int | None, Query(ge=1, le=10**9, description="only what expires within so many seconds")
]
After = Annotated[str | None, Query(max_length=100, description="the `next` of the page before")]
Limit = Annotated[int, Query(ge=1, le=500, description="how many items at most")]
