"""A local server that speaks OpenAI's wire format, for tests of anything that uses their client.

    with FakeOpenAI([call("pay", {"amount": 3}), say("Paid.")]) as server:
        model = OpenAIChat("gpt-4o", base_url=server.base_url, api_key="test")

It answers ``/v1/chat/completions`` and ``/v1/responses``, streamed or not, with the next step of
its script, and refuses what the real service refuses: a call without its result, an unknown call
id, an incomplete strict schema, reasoning that lost its call. A refused request uses up no step.

A step is a reply (``say``, ``call``, ``calls``, ``refuse``, any ``ModelReply``), a text, or one of
``HttpError``, ``Slow``, ``Cut``, ``Output`` and ``Raw``; or a function of the request's body that
gives one. A call without an id gets one, and ``call(…, finish="length")`` is cut short on the wire.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR
from types import TracebackType
from typing import Any, ClassVar, Self, TypeAlias

from fake_openai.bodies import (
    Ids,
    chat_body,
    chat_events,
    response,
    response_body,
    response_events,
)
from fake_openai.items import Memory
from fake_openai.rules import Refusal, check_chat
from sayso.agent.models.base import ModelReply

Body = dict[str, Any]

_CHAT, _RESPONSES = "/v1/chat/completions", "/v1/responses"


@dataclass(frozen=True)
class HttpError:
    """An error of the service; by default it lets the client try again at once."""

    status: int = 500
    message: str = "The server had an error while processing your request."
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=lambda: {"retry-after-ms": "1"})


@dataclass(frozen=True)
class Slow:
    """A step that is answered only after some time."""

    step: Step
    seconds: float


@dataclass(frozen=True)
class Cut:
    """A reply that breaks off: after some events if it is streamed, otherwise half-way.

    With ``politely``, a stream just ends there, as if it were complete.
    """

    step: Step
    after: int = 2
    politely: bool = False


@dataclass(frozen=True)
class Output:
    """A completed response with exactly these output items, in this order; ``more`` overrides."""

    items: tuple[Body, ...]
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Raw:
    """Any body, or any events, as they are: for servers that are odd. Text goes out as text."""

    body: Body | str = field(default_factory=dict)
    events: tuple[Body | str, ...] | None = None


Step: TypeAlias = (
    ModelReply | str | HttpError | Slow | Cut | Output | Raw | Callable[[Body], "Step"]
)


@dataclass(frozen=True)
class Seen:
    """One request as it came; the names of its headers are in lower case."""

    path: str
    headers: Mapping[str, str]
    body: Body


class FakeOpenAI:
    """A scripted server on 127.0.0.1, in a thread of its own; ``requests`` holds all that came.

    ``any_order`` takes results in another order than their calls, as the real service does. With
    ``api_key``, requests must carry that key; otherwise any will do.
    """

    def __init__(
        self, steps: Iterable[Step] = (), *, api_key: str | None = None, any_order: bool = False
    ) -> None:
        self.requests: list[Seen] = []
        self.errors: list[BaseException] = []
        self.api_key = api_key
        self.any_order = any_order
        self.memory = Memory()
        self.ids = Ids()
        self.stopping = threading.Event()
        self._steps = list(steps)
        self._lock = threading.Lock()
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.fake = self
        self._thread = threading.Thread(
            target=self._http.serve_forever, args=(0.02,), name="fake-openai", daemon=True
        )

    @property
    def base_url(self) -> str:
        """What to give the client as ``base_url``."""
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    @property
    def bodies(self) -> list[Body]:
        """The bodies of all requests so far."""
        return [seen.body for seen in self.requests]

    @property
    def left(self) -> int:
        """How many steps nobody has asked for yet."""
        return len(self._steps)

    def add(self, *steps: Step) -> None:
        """Add steps to the end of the script."""
        with self._lock:
            self._steps += steps

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stopping.set()
        self._http.shutdown()
        self._http.hang_up()
        self._http.server_close()  # waits for the handlers
        self._thread.join()

    def next_step(self) -> Step:
        """Take the next step of the script, or refuse the request."""
        with self._lock:
            if self._steps:
                return self._steps.pop(0)
        raise Refusal(
            f"The script of FakeOpenAI has ended: request {len(self.requests)} has no step.",
            code="script_ended",
        )


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    fake: FakeOpenAI

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._connections: set[Any] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """End the connections that clients keep open."""
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that went away is no news, and the handler keeps the rest."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    paths: ClassVar = (_CHAT, _RESPONSES)

    def do_POST(self) -> None:
        fake = self.server.fake
        try:
            body = self._request()
            self._answer(body, fake.next_step())
        except Refusal as refusal:
            self._send_json(refusal.status, {"error": refusal.error})
        except OSError:
            self.close_connection = True  # the client did not wait
        except Exception as error:
            fake.errors.append(error)
            message = f"the fake server itself failed: {error!r}"
            self._send_json(400, {"error": {"message": message, "code": "fake_server_failed"}})

    def _request(self) -> Body:
        """Read and check the request; what is wrong with it is raised as a Refusal."""
        fake = self.server.fake
        data = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.path not in self.paths:
            raise Refusal(f"Invalid URL (POST {self.path})", status=404)
        try:
            body: Body = json.loads(data)
        except ValueError:
            raise Refusal("We could not parse the JSON body of your request.") from None
        headers = {key.lower(): value for key, value in self.headers.items()}
        fake.requests.append(Seen(self.path, headers, body))
        self._check_key(fake.api_key)
        if self.path == _CHAT:
            check_chat(body, any_order=fake.any_order)
        else:
            fake.memory.check(body, any_order=fake.any_order)
        return body

    def _check_key(self, key: str | None) -> None:
        kind, _, given = (self.headers.get("authorization") or "").partition(" ")
        if kind != "Bearer" or not given or (key is not None and given != key):
            raise Refusal("Incorrect API key provided.", code="invalid_api_key", status=401)

    def _answer(self, body: Body, step: Step, cut: Cut | None = None) -> None:
        if isinstance(step, Slow):
            self.server.fake.stopping.wait(step.seconds)
            self._answer(body, step.step, cut)
        elif isinstance(step, Cut):
            self._answer(body, step.step, step)
        elif isinstance(step, HttpError):
            error = {"message": step.message, "type": "server_error", "code": step.code}
            self._send_json(step.status, {"error": error}, step.headers)
        elif isinstance(step, Raw):
            self._send(body, step.body, step.events, cut)
        elif callable(step):
            self._answer(body, step(body), cut)
        else:
            self._send(body, self._made(body, step), None, cut)

    def _made(self, body: Body, step: ModelReply | str | Output) -> Body:
        fake = self.server.fake
        reply = ModelReply(step) if isinstance(step, str) else step
        if self.path == _CHAT:
            if not isinstance(reply, ModelReply) or reply.items or reply.approvals:
                raise TypeError("only the Responses API has output items and hosted approvals")
            return chat_body(reply, body, fake.ids)
        if isinstance(reply, Output):
            made = response([dict(i) for i in reply.items], body, fake.ids) | dict(reply.more)
        else:
            made = response_body(reply, body, fake.ids)
        fake.memory.remember(body, made)
        return made

    def _send(
        self, body: Body, answer: Body | str, events: Iterable[Body | str] | None, cut: Cut | None
    ) -> None:
        if not body.get("stream"):
            self._send_whole(answer, cut)
        elif events is not None or isinstance(answer, dict):
            self._send_events(self._events(body, answer) if events is None else events, cut)
        else:
            self._send_whole(answer, cut)

    def _events(self, body: Body, answer: Any) -> Iterator[Body | str]:
        if self.path == _CHAT:
            usage = (body.get("stream_options") or {}).get("include_usage", False)
            return chat_events(answer, usage=usage)
        return response_events(answer)

    def _send_whole(self, answer: Body | str, cut: Cut | None) -> None:
        if isinstance(answer, str):
            self._send_bytes(200, answer.encode(), {"content-type": "text/html"})
            return
        data = json.dumps(answer).encode()
        self._send_bytes(200, data, sent=len(data) // 2 if cut else None)

    def _send_events(self, events: Iterable[Body | str], cut: Cut | None) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for number, event in enumerate(events):
            if cut is not None and number >= cut.after:
                break
            self._send_chunk(_sse(event))
        if cut is None or cut.politely:
            self._send_chunk(b"")
        else:
            self.close_connection = True

    def _send_chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def _send_json(self, status: int, body: Body, headers: Mapping[str, str] | None = None) -> None:
        self._send_bytes(status, json.dumps(body).encode(), headers)

    def _send_bytes(
        self,
        status: int,
        data: bytes,
        headers: Mapping[str, str] | None = None,
        sent: int | None = None,
    ) -> None:
        self.send_response(status)
        plain = {"content-type": "application/json", "content-length": str(len(data))}
        for key, value in {**plain, **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(data[:sent])
        self.close_connection = self.close_connection or sent is not None

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent; ``requests`` and ``errors`` say all there is."""


def _sse(event: Body | str) -> bytes:
    if isinstance(event, str):
        return f"data: {event}\n\n".encode()
    name = f"event: {event['type']}\n" if "type" in event else ""
    return f"{name}data: {json.dumps(event)}\n\n".encode()
