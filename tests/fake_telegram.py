"""Telegram's API on a socket: what the real client library talks to in tests."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

TOKEN = "123:fake"


class FakeTelegram:
    """Keeps the messages of each chat; the test presses buttons and writes."""

    def __init__(self) -> None:
        #: By chat and message id: text, and the value of each button by its label.
        self.messages: dict[tuple[int, int], dict[str, Any]] = {}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.alerts: list[str] = []
        #: Answers a call with an error first, if it returns one.
        self.refuse: Callable[[str, dict[str, Any]], tuple[int, dict[str, Any]] | None] = (
            lambda *_: None
        )
        #: Kept until a later offset confirms them.
        self._updates: list[dict[str, Any]] = []
        self._number = 100
        self._update = 1
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None: ...

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
                fields = {name: values[0] for name, values in parse_qs(body).items()}
                status, reply = fake.answer(self.path, fields)
                data = json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                with contextlib.suppress(BrokenPipeError):  # the client was killed
                    self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    # -- the API

    def answer(self, path: str, fields: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        prefix, _, method = path.rpartition("/")
        if prefix != f"/bot{TOKEN}":
            return 401, {"ok": False, "error_code": 401, "description": "Unauthorized"}
        if method != "getUpdates":
            self.calls.append((method, fields))
        if (refusal := self.refuse(method, fields)) is not None:
            return refusal
        return 200, {"ok": True, "result": getattr(self, f"_{method.lower()}")(fields)}

    def _getme(self, _: dict[str, Any]) -> Any:
        return {"id": 123, "is_bot": True, "first_name": "Sayso", "username": "sayso_bot"}

    def _deletewebhook(self, _: dict[str, Any]) -> Any:
        return True

    _setwebhook = _deletewebhook

    def _getupdates(self, fields: dict[str, Any]) -> Any:
        offset = int(fields.get("offset", 0))
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            pending = [update for update in self._updates if update["update_id"] >= offset]
            if pending:
                return pending
            time.sleep(0.005)
        return []

    def _sendmessage(self, fields: dict[str, Any]) -> Any:
        self._number += 1
        return self._show(int(fields["chat_id"]), self._number, fields)

    def _editmessagetext(self, fields: dict[str, Any]) -> Any:
        return self._show(int(fields["chat_id"]), int(fields["message_id"]), fields)

    def _answercallbackquery(self, fields: dict[str, Any]) -> Any:
        self.alerts.append(fields.get("text", ""))
        return True

    def _show(self, chat: int, number: int, fields: dict[str, Any]) -> dict[str, Any]:
        markup = json.loads(fields.get("reply_markup", "{}"))
        keyboard = [button for row in markup.get("inline_keyboard", ()) for button in row]
        for button in keyboard:
            assert len(button["callback_data"].encode()) <= 64, "Telegram refuses this"
        buttons = {button["text"]: button["callback_data"] for button in keyboard}
        assert len(fields["text"].encode("utf-16-le")) <= 2 * 4096, "Telegram refuses this"
        self.messages[chat, number] = {
            "text": fields["text"],
            "buttons": buttons,
            "force_reply": bool(markup.get("force_reply")),
        }
        return _message(chat, number, fields["text"])

    # -- people

    def shown(self, chat: int) -> list[dict[str, Any]]:
        """Return what the messages of a chat show now, oldest first."""
        return [m for (where, _), m in sorted(self.messages.items()) if where == chat]

    def press(self, chat: int, label: str, **changes: Any) -> dict[str, Any]:
        """Press a button of the last message that has it; return the update."""
        number, message = next(
            (n, m)
            for (where, n), m in sorted(self.messages.items(), reverse=True)
            if where == chat and label in m["buttons"]
        )
        query = {
            "id": "q1",
            "from": _user(changes.get("by", chat)),
            "chat_instance": "1",
            "message": _message(changes.get("place", chat), changes.get("number", number), "x"),
            "data": changes.get("data", message["buttons"][label]),
        }
        return self.post({"callback_query": query})

    def write(self, chat: int, text: str, reply_to: int | None = None) -> dict[str, Any]:
        message = {**_message(chat, 5, text), "from": _user(chat)}
        if reply_to is not None:
            message["reply_to_message"] = _message(chat, reply_to, "x")
        return self.post({"message": message})

    def reply(self, chat: int, text: str) -> dict[str, Any]:
        """Reply to the last question of the bot."""
        number = max(n for (c, n), m in self.messages.items() if c == chat and m["force_reply"])
        return self.write(chat, text, number)

    def post(self, update: dict[str, Any]) -> dict[str, Any]:
        self._update += 1
        update = {"update_id": self._update, **update}
        self._updates.append(update)
        return update

    def repeat(self, update: dict[str, Any]) -> None:
        """Let a person do the same once more."""
        self._update += 1
        self._updates.append({**update, "update_id": self._update})


def _user(user: int) -> dict[str, Any]:
    return {"id": user, "is_bot": False, "first_name": "x"}


def _message(chat: int, number: int, text: str) -> dict[str, Any]:
    return {"message_id": number, "date": 1, "chat": {"id": chat, "type": "private"}, "text": text}
