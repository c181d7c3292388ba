"""The last touch to the OpenAPI document: what each name in a path or a query means, said once."""

from __future__ import annotations

from typing import Any

_MEANS = {
    "agent": "the agent's name, as in `GET /api/agents`; the default one if it is left out",
    "chat_id": "the chat's id, which the client chose",
    "days": "how many days back",
    "grant_id": "the grant's id, as in `GET /api/grants`",
    "limit": "how many at most",
    "request_id": "the request's id, such as `req_7f3a…`",
    "run": "the run's id",
    "run_id": "the run's id",
    "thread": "the thread's id, which is a chat's id",
    "tool": "the tool's name",
}
#: Where nobody has to be signed in.
_OPEN = ("/healthz", "/metrics", "/api/login")
_OF_LISTS = {"agent": "the agent's name"}
_SAID = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Welcome ana"}]}
_POST = {"id": "chat-1", "trigger": "submit-message", "messages": [_SAID]}


def worded(document: dict[str, Any]) -> None:
    """Describe every parameter, and give a chat's answers no other form than they have."""
    for path, operations in document["paths"].items():
        chat = path.startswith(("/api/chat/", "/api/chat-recipe")) or path == "/api/chat"
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                name = parameter["name"]
                means = _MEANS.get(name) if chat else _OF_LISTS.get(name, _MEANS.get(name))
                if means is not None:
                    parameter.setdefault("description", means)
            if chat and "requestBody" in operation:
                operation["requestBody"]["content"]["application/json"]["example"] = _POST
            if path in _OPEN:
                operation["security"] = []
            _word_answers(operation["responses"], chat)


def _word_answers(responses: dict[str, Any], chat: bool) -> None:
    for code, response in responses.items():
        content = response.get("content", {})
        if chat and code.startswith("4"):  # the client shows it as it is: one line of text
            response["content"] = content = {"text/plain": {}}
        if "text/event-stream" in content:
            content.pop("application/json", None)
        for kind, form in content.items():
            if kind.startswith("text/"):
                form.setdefault("schema", {"type": "string"})
