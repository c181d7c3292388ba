"""Whether the server is well, and its figures."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

import assent
from assent.errors import AssentError
from assent.server.answers import JsonAnswer
from assent.server.service import service_of
from assent.twin import hop

router = APIRouter(tags=["health"])


@router.get(
    "/healthz",
    summary="Liveness, and a check of the store",
    responses={200: {"model": dict[str, Any]}, 503: {"model": dict[str, Any]}},
)
async def healthz(request: Request) -> JsonAnswer:
    """200 while the store can be read; 503, and what is wrong, while it cannot."""
    service = service_of(request)
    try:
        await hop(service.store.tail)
    except AssentError as error:
        said = {"status": "unwell", "store": str(error), "version": assent.__version__}
        return JsonAnswer(said, 503)
    restored = await hop(service.store.restored)
    body = {
        "status": "waiting for `assent recover`" if restored else "ok",
        "store": "restored" if restored else "ok",
        "version": assent.__version__,
        "busy": service.worker.busy,
    }
    return JsonAnswer(body, 503 if restored else 200)


@router.get(
    "/metrics",
    summary="Figures for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}},
)
async def metrics(request: Request) -> Response:
    """In Prometheus' text format."""
    service = service_of(request)
    service.metrics.readers.set(service.feed.readers)
    return Response(service.metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")
