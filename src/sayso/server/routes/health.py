"""Whether the server is well, and its figures."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from sayso.server.service import service_of
from sayso.server.wire.answers import JsonAnswer
from sayso.server.wire.docs import gives

router = APIRouter(tags=["health"])


@router.head("/healthz", include_in_schema=False)  # how some balancers ask
@router.get(
    "/healthz",
    summary="Liveness, and a check of the store",
    responses={200: gives(dict[str, Any]), 503: gives(dict[str, Any])},
)
async def healthz(request: Request) -> JsonAnswer:
    """200 while the store can be read; 503 within two seconds, and why, while it cannot."""
    service = service_of(request)
    code, body = await service.pulse.felt()
    return JsonAnswer({**body, "busy": service.worker.busy}, code)


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
    service.metrics.busy.set(service.worker.busy)
    service.metrics.wait(await service.pulse.waiting())
    return Response(service.metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")
