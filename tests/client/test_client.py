"""The client's methods: each route, each refusal by its name, no repetition."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from remote_world import People, Server, reserved, yes

import sayso
from sayso.client import Client, Unreachable
from sayso.client.client import header_key
from sayso.server.service import Limits


def test_ask_wait_claim_report(client: Client, people: People) -> None:
    made = client.open_sync("refund", {"amount": 5}, run="order-1", key="first")
    assert (made.status, made.run, made.agent) == ("pending", "bot/order-1", "bot")
    assert client.wait_sync(made.id, 0).status == "pending"
    people.will(lambda request: request.edit({"amount": 4}))
    assert client.wait_sync(made.id).status == "edited"
    claim = client.claim_sync(made.id, lease=20)
    assert (claim.args, claim.attempt, claim.lapsed) == ({"amount": 4}, 1, False)
    with pytest.raises(sayso.Conflict):
        client.claim_sync(made.id)
    assert client.renew_sync(claim) is True
    done = client.result_sync(claim, {"paid": 4})
    assert (done.execution.status, done.execution.result) == ("done", {"paid": 4})
    assert client.result_sync(claim, {"paid": 4}).execution == done.execution
    with pytest.raises(sayso.Conflict):
        client.result_sync(claim, {"paid": 400})
    assert client.renew_sync(claim) is False


async def test_async_client_asks_and_reports(server: Server, people: People) -> None:
    async with Client(server.url, people.token("bot")) as client:
        made = await client.confirm("Go?", {"where": "home"})
        people.will(yes)
        assert (await client.wait(made.id)).status == "approved"
        claim = await client.claim(made.id)
        failed = await client.result(claim, error="no petrol")
        assert (failed.execution.status, failed.execution.result) == ("failed", "no petrol")
        assert (await client.result(claim, error="no petrol")).execution == failed.execution
        asked = await client.ask("Where to?")
        assert (await client.cancel(asked.id, reason="never mind")).status == "cancelled"


def test_repeated_key_finds_its_request(client: Client, people: People) -> None:
    first = client.open_sync("refund", {"amount": 5}, key="k", run="r")
    assert client.open_sync("refund", {"amount": 5}, key="k", run="r").id == first.id
    with pytest.raises(sayso.Conflict, match="another body"):
        client.open_sync("refund", {"amount": 6}, key="k", run="r")
    with pytest.raises(sayso.Conflict, match="another body"):
        client.open_sync("erase", {"amount": 5}, key="k", run="r")
    assert len(people.pending()) == 1


def test_many_at_once_open_one_request(client: Client, people: People) -> None:
    ids: list[str] = []
    opening = [
        threading.Thread(
            target=lambda: ids.append(client.open_sync("refund", {"n": 1}, key="k", run="r").id)
        )
        for _ in range(8)
    ]
    for thread in opening:
        thread.start()
    for thread in opening:
        thread.join()
    assert len(ids) == 8
    assert len(set(ids)) == 1


def test_unsafe_keys_are_hashed() -> None:
    assert header_key("order-17/pay#0") == "order-17/pay#0"
    odd = ["", " padded ", "ünïcode", "new\nline", "x" * 201, "half \ud800 pair"]
    keys = {header_key(key) for key in odd}
    assert len(keys) == len(odd)
    assert all(key.isascii() and len(key) <= 200 for key in keys)


def test_wrong_token_or_role_is_refused(server: Server, people: People) -> None:
    with Client(server.url, "sayso_nonsense") as client, pytest.raises(sayso.Unauthenticated):
        client.open_sync("refund", {})
    with Client(server.url) as client, pytest.raises(sayso.Unauthenticated):
        client.open_sync("refund", {})
    reviewer = Client(server.url, people.token("zoe", "reviewer"))
    with reviewer, pytest.raises(sayso.NotAllowed, match="reviewer"):
        reviewer.open_sync("refund", {})
    other = Client(server.url, people.token("bot"), agent="other")
    with other, pytest.raises(sayso.NotAllowed, match="other"):
        other.open_sync("refund", {})
    assert people.pending() == []


def test_agent_sees_its_own_requests_only(client: Client, people: People) -> None:
    made = client.open_sync("refund", {}, run="r", key="k")
    people.decide(yes)
    with Client(client.url, people.token("eve")) as eve:
        for attempt in (eve.wait_sync, eve.claim_sync, eve.cancel_sync):
            with pytest.raises(sayso.NotFound):
                attempt(made.id)
        # Each agent has its own names: eve can neither take the name "r" nor learn of it.
        own = eve.open_sync("refund", {}, run="r", key="k")
        assert (own.run, own.status) == ("eve/r", "pending")
        eve.cancel_sync(own.id)
    claim = client.claim_sync(made.id)
    with Client(client.url, people.token("eve")) as eve:
        with pytest.raises(sayso.NotFound):
            eve.result_sync(claim, "forged")
        with pytest.raises(sayso.NotFound):
            eve.renew_sync(claim)


def test_errors_have_their_names_and_fields(client: Client) -> None:
    schema = {"type": "object", "properties": {"amount": {"type": "integer"}}}
    with pytest.raises(sayso.InvalidCall, match="amount") as invalid:
        client.open_sync("refund", {"amount": "x"}, schema=schema)
    assert invalid.value.path == "args.amount"
    with pytest.raises(sayso.NotFound, match="req_nothing"):
        client.wait_sync("req_nothing", 0)
    with pytest.raises(TypeError, match="kee"):
        client.open_sync("refund", {}, kee="k")
    with pytest.raises(sayso.InvalidPolicy, match="risk"):
        client.open_sync("refund", {}, risk="huge")


@pytest.mark.long
def test_rate_limit_is_retried_or_raised(serve: Callable[..., Server], people: People) -> None:
    server = serve(limits=Limits(open_requests=1))
    token = people.token("bot")
    with Client(server.url, token, patience=0.2) as client:
        client.open_sync("refund", {}, run="r", key="k")
        with pytest.raises(sayso.TooMany) as full:
            client.open_sync("refund", {}, run="r", key="other")
        assert full.value.wait == 30
    busy = serve(limits=Limits(per_minute=600, burst=2))
    with Client(busy.url, token, patience=30) as client:
        ids = {client.open_sync("look", {}, run="s", key=f"k{n}").id for n in range(4)}
    assert len(ids) == 4


@pytest.mark.parametrize("url", ["", "sayso.example", "ftp://sayso", "https://a:b@sayso", 5])
def test_invalid_address_is_refused(url: str) -> None:
    with pytest.raises(sayso.InvalidCall):
        Client(url)


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "ünïcode"])
def test_invalid_token_is_refused(token: str) -> None:
    with pytest.raises(sayso.InvalidCall, match="sayso token create"):
        Client("https://sayso.example", token)


def test_token_may_end_with_newline(server: Server, people: People) -> None:
    with Client(server.url, f"{people.token('bot')}\n") as client:
        assert client.ask_sync("There?").agent == "bot"


def test_id_is_only_an_id(client: Client) -> None:
    with pytest.raises(sayso.NotFound):
        client.wait_sync("../../healthz?", 0)


def test_other_server_is_refused(server: Server) -> None:
    with Client(f"{server.url}/metrics") as client, pytest.raises(sayso.SaysoError):
        client.wait_sync("req_1", 0)
    with Client(f"{server.url}/inbox") as client, pytest.raises(sayso.SaysoError):
        client.wait_sync("req_1", 0)


class Answering:
    """A server that is not Sayso, and always gives one answer."""

    def __init__(self, status: int, body: bytes, **headers: str) -> None:
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args: object) -> None: ...

            def do_GET(self) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.mark.parametrize(
    ("status", "body", "headers", "error", "message"),
    [
        (200, b"<html>", {}, sayso.SaysoError, "check that this is the URL"),
        (404, b"<html>", {}, Unreachable, "answered 404: check that this is the URL"),
        (302, b"", {"location": "/sign-in"}, Unreachable, "answered 302, redirecting to /sign-in"),
        (418, b'{"error": "Tea", "message": "a pot"}', {}, sayso.SaysoError, r"a pot \(Tea\)"),
        (503, b"busy", {"retry_after": "soon"}, Unreachable, "503"),
    ],
)
def test_answer_that_is_not_sayso_is_explained(
    status: int, body: bytes, headers: dict[str, str], error: type[Exception], message: str
) -> None:
    explained = pytest.raises(error, match=message)
    with closing(Answering(status, body, **headers)) as other:
        client = Client(other.url, patience=0.1)
        with client, explained:
            client.wait_sync("req_1", 0)


def test_client_imports_no_server() -> None:
    code = (
        "import sys, sayso.client\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "assert not loaded & {'fastapi', 'starlette', 'uvicorn', 'prometheus_client'}, loaded\n"
        "assert 'sayso.server' not in sys.modules\n"
    )
    command = [sys.executable, "-I", "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_unreachable_server_is_named() -> None:
    with reserved() as nobody:
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        with Client(url, patience=0.5) as client, pytest.raises(Unreachable, match="check the URL"):
            client.open_sync("refund", {})
