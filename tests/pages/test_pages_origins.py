"""Pages of other origins in a real Chromium: what they can make a signed-in browser send."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser
from server.served import Served, opened

from sayso.inbox.directory import new_link
from sayso.stores import open_store

pytestmark = pytest.mark.long

ATTACK = """
async ([url, id, digest]) => {
    const bodies = [
        {type: "approve", seen_digest: digest}, {type: "respond", value: 1}, {type: "reject"}
    ];
    for (const mode of ["no-cors", "cors"])
        for (const body of bodies)
            for (const credentials of ["include", "same-origin"])
                await fetch(`${url}/api/requests/${id}/decision`, {
                    method: "POST", mode, credentials, body: JSON.stringify(body),
                    headers: {"content-type": "text/plain"},
                }).catch(() => {});
}
"""


@pytest.fixture
def other_page() -> Iterator[str]:
    """A page on another port of the same machine: another origin, and the same site."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>other</title>")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_page_of_other_origin_cannot_decide(
    browser: Browser, other_page: str, tmp_path: Path
) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'sayso.db'}")
    server = Served(store, origins=[other_page]).start()
    context = browser.new_context()
    try:
        found = opened(server.client(server.token("bot", "agent")))
        page = context.new_page()
        page.goto(f"{server.url}/login#{new_link(store, 'ana')}")
        page.wait_for_url(f"{server.url}/inbox**")
        page.goto(other_page)
        page.evaluate(ATTACK, [server.url, found["id"], found["digest"]])
        call = store.call(found["id"])
        assert call is not None
        assert call.status == "asked"
        # The browser did send the cookie: only the origin kept these from deciding.
        assert context.cookies(server.url)
        page.goto(f"{server.url}/inbox")
        assert page.evaluate("fetch('/api/me').then(answer => answer.status)") == 200
    finally:
        context.close()
        server.stop()
