"""The web app: one page for every address, and its files."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.staticfiles import StaticFiles

STATIC = Path(__file__).parents[1] / "static"
PAGES = ("", "inbox", "grants", "chat", "runs", "history", "insights", "login")


def add_pages(app: FastAPI) -> None:
    """Serve the app; the page itself holds nothing secret, its data comes from the API."""
    if not (STATIC / "index.html").is_file():
        app.add_route("/", _missing, include_in_schema=False)
        return
    app.mount("/assets", StaticFiles(directory=STATIC / "assets"), name="assets")
    for name in PAGES:
        app.add_route(f"/{name}", _page, include_in_schema=False)
        if name:
            app.add_route(f"/{name}/{{rest:path}}", _page, include_in_schema=False)


async def _page(request: Request) -> Response:
    return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})


async def _missing(request: Request) -> Response:
    return PlainTextResponse("The web app is not built: run `make ui`. The API is at /api.\n")
