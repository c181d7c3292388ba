"""What the fake Responses API refuses in its input, and what it remembers of its own answers.

The real service knows which reasoning led to which call, and refuses a conversation that lost one
of the two; so the fake keeps the pairs that it sent. With ``store`` it keeps whole responses too,
for ``previous_response_id``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from fake_openai.rules import Refusal, check_flat_tools, check_format

Body = dict[str, Any]

_ROLES = ("user", "assistant", "system", "developer")
_PREFIXES = {
    "function_call": "fc",
    "message": "msg",
    "reasoning": "rs",
    "mcp_approval_request": "mcpr",
    "mcp_call": "mcp",
    "mcp_list_tools": "mcpl",
}
_NEEDED: dict[str, tuple[str, ...]] = {
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id", "output"),
    "mcp_approval_request": ("id", "name", "arguments", "server_label"),
    "mcp_approval_response": ("approval_request_id", "approve"),
    "message": ("role", "content"),
    "reasoning": ("id", "summary"),
}
_FROM_OUTSIDE = ("function_call_output", "mcp_approval_response")
_NO_REASONING = re.compile(r"(gpt-3\.5|gpt-4)")
_ENCRYPTED = "reasoning.encrypted_content"


class Memory:
    """The responses that one server gave, as far as later requests must agree with them."""

    def __init__(self) -> None:
        self._conversations: dict[str, list[Body]] = {}
        self._reasoning_of: dict[str, str] = {}

    def check(self, body: Body, *, any_order: bool = False) -> None:
        """Refuse a body that /v1/responses would refuse."""
        check_flat_tools(body)
        if _ENCRYPTED in (body.get("include") or ()) and _NO_REASONING.match(body["model"]):
            raise Refusal("Encrypted content is not supported with this model.", "include")
        form = (body.get("text") or {}).get("format") or {}
        if form.get("type") == "json_schema":
            check_format(form, "text.format")
        given = _given(body)
        for index, item in enumerate(given):
            _check_item(item, f"input[{index}]", stored=body.get("store", True))
        items = self._before(body) + given
        self._check_reasoning(items)
        _check_calls(items, any_order)
        _check_approvals(items, body)

    def remember(self, body: Body, response: Body) -> None:
        """Keep what a response tied together, and all of it if it is stored."""
        output = response.get("output") or []
        for item, after in pairwise(output):
            if item.get("type") == "reasoning" and after.get("id"):
                self._reasoning_of[after["id"]] = item["id"]
        if body.get("store", True) and response.get("id"):
            self._conversations[response["id"]] = self._before(body) + _given(body) + output

    def _before(self, body: Body) -> list[Body]:
        id = body.get("previous_response_id")
        if id is not None and id not in self._conversations:
            raise Refusal(
                f"Previous response with id '{id}' not found.",
                "previous_response_id",
                "previous_response_not_found",
            )
        return self._conversations[id] if id is not None else []

    def _check_reasoning(self, items: Sequence[Body]) -> None:
        before: set[str] = set()
        for index, item in enumerate(items):
            id, kind = item.get("id", ""), item.get("type", "message")
            if kind == "reasoning":
                before.add(id)
                _check_followed(items, index)
            needed = self._reasoning_of.get(id)
            if needed is not None and needed not in before:
                raise Refusal(
                    f"Item '{id}' of type '{kind}' was provided without its required 'reasoning' "
                    f"item: '{needed}'.",
                    "input",
                )


def _given(body: Body) -> list[Body]:
    given = body.get("input")
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if not isinstance(given, list):
        raise Refusal("Missing required parameter: 'input'.", "input")
    return given


def _check_item(item: Body, param: str, *, stored: bool) -> None:
    kind = item.get("type", "message")
    for key in _NEEDED.get(kind, ()):
        if item.get(key) is None:
            where = f"{param}.{key}"
            raise Refusal(
                f"Missing required parameter: '{where}'.", where, "missing_required_parameter"
            )
    if kind not in _NEEDED and not kind.endswith(("_call", "_output", "_tools", "_reference")):
        raise Refusal(f"Invalid value: '{kind}'.", f"{param}.type", "invalid_value")
    _check_id(item, kind, param)
    if kind == "message":
        _check_message(item, param)
    if kind == "reasoning" and not stored and not item.get("encrypted_content"):
        raise Refusal(
            f"Item with id '{item['id']}' not found. Items are not persisted when `store` is set "
            "to false. Try again with `store` set to true, or remove this item from your input.",
            "input",
            status=404,
        )


def _check_id(item: Body, kind: str, param: str) -> None:
    id, prefix = item.get("id"), _PREFIXES.get(kind)
    if id is not None and prefix is not None and not id.startswith(prefix):
        raise Refusal(
            f"Invalid '{param}.id': '{id}'. Expected an ID that begins with '{prefix}'.",
            f"{param}.id",
            "invalid_value",
        )


def _check_message(item: Body, param: str) -> None:
    if item["role"] not in _ROLES:
        raise Refusal(f"Invalid value: '{item['role']}'.", f"{param}.role", "invalid_value")
    if isinstance(item["content"], str):
        return
    mine = ("output_text", "refusal") if item["role"] == "assistant" else None
    for index, part in enumerate(item["content"]):
        kind = part.get("type", "")
        if kind not in mine if mine else not kind.startswith("input_"):
            where = f"{param}.content[{index}]"
            raise Refusal(f"Invalid value: '{kind}'.", where, "invalid_value")


def _check_followed(items: Sequence[Body], index: int) -> None:
    rest = (item for item in items[index + 1 :] if item.get("type") != "reasoning")
    after = next(rest, {"role": "user"})
    if after.get("type") in _FROM_OUTSIDE or after.get("role", "assistant") != "assistant":
        raise Refusal(
            f"Item '{items[index]['id']}' of type 'reasoning' was provided without its required "
            "following item.",
            "input",
        )


def _check_calls(items: Sequence[Body], any_order: bool) -> None:
    made: list[str] = []
    answered: list[str] = []
    for item in items:
        if item.get("type") == "function_call":
            made.append(item["call_id"])
        if item.get("type") == "function_call_output":
            if item["call_id"] not in made:
                raise Refusal(
                    f"No tool call found for function call output with call_id {item['call_id']}.",
                    "input",
                )
            answered.append(item["call_id"])
    for id, times in (Counter(made) + Counter(answered)).items():
        if id not in answered:
            raise Refusal(f"No tool output found for function call {id}.", "input")
        if times > 2:
            raise Refusal(f"Duplicate item found with call_id {id}.", "input")
    if not any_order and made != answered:
        raise Refusal(f"The results {answered} are not in the order of their calls {made}.")


def _check_approvals(items: Sequence[Body], body: Body) -> None:
    asked = {i["id"]: i["server_label"] for i in items if i.get("type") == "mcp_approval_request"}
    answers = [item for item in items if item.get("type") == "mcp_approval_response"]
    given = [item["approval_request_id"] for item in answers]
    for id in given:
        if id not in asked or given.count(id) > 1:
            raise Refusal(f"No approval request found with id {id}, or it was answered.", "input")
    missing = [id for id in asked if id not in given]
    if missing:
        raise Refusal(
            "The following MCP approval requests do not have an approval: " + ", ".join(missing),
            "input",
        )
    servers = {tool.get("server_label") for tool in body.get("tools") or ()}
    for server in asked.values():
        if server not in servers:
            raise Refusal(f"MCP server '{server}' is not among the tools.", "tools")
