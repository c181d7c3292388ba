"""What the fake OpenAI server refuses, so that a test which passes means something.

The rules and messages follow the real service as far as they are known: the documented ones, and
those that people report. One is ours: results must come in the order of their calls (the real
service takes any), which ``any_order`` turns off.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

Body = dict[str, Any]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_MODES = ("none", "auto", "required")


class Refusal(Exception):
    """A request that the service answers with an error."""

    def __init__(
        self, message: str, param: str | None = None, code: str | None = None, status: int = 400
    ) -> None:
        super().__init__(message)
        self.status = status
        self.error = {
            "message": message,
            "type": "invalid_request_error",
            "param": param,
            "code": code,
        }


def check_chat(body: Body, *, any_order: bool = False) -> None:
    """Refuse a body that /v1/chat/completions would refuse."""
    _check_model(body)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refusal("Invalid type for 'messages': expected a non-empty array.", "messages")
    for index, message in enumerate(messages):
        _check_message(message, f"messages[{index}]")
    _check_results(messages, any_order)
    functions = [_nested(tool, n) for n, tool in enumerate(body.get("tools") or ())]
    _check_tools(body, functions, "tools[{}].function")
    _check_choice(body, [function["name"] for function in functions], nested=True)
    form = body.get("response_format") or {}
    if form.get("type") == "json_schema":
        check_format(form["json_schema"], "response_format")
    if "stream_options" in body and not body.get("stream"):
        raise Refusal(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
            "stream_options",
        )


def check_flat_tools(body: Body) -> None:
    """Refuse tools and a tool choice that /v1/responses would refuse."""
    _check_model(body)
    tools = list(body.get("tools") or ())
    functions = [tool for tool in tools if tool.get("type") == "function"]
    for index, tool in enumerate(tools):
        keys = ("name", "parameters", "strict") if tool in functions else ("type",)
        for key in keys:
            if key not in tool:
                param = f"tools[{index}].{key}"
                raise Refusal(
                    f"Missing required parameter: '{param}'.", param, "missing_required_parameter"
                )
    _check_tools(body, functions, "tools[{}]")
    _check_choice(body, [function["name"] for function in functions], nested=False)


def check_format(form: Body, param: str) -> None:
    """Refuse the schema of a structured answer that the service would refuse."""
    name = form.get("name", "")
    if not _NAME.match(name):
        raise Refusal(f"Invalid '{param}.name': string does not match pattern.", param)
    fault = schema_fault(form.get("schema") or {}) if form.get("strict") else None
    if fault:
        raise Refusal(f"Invalid schema for response_format '{name}': {fault}", param)


def _check_model(body: Body) -> None:
    if not isinstance(body.get("model"), str):
        raise Refusal("you must provide a model parameter", "model")


# --- messages ---


def _check_message(message: Body, param: str) -> None:
    role = message.get("role")
    if role not in _ROLES:
        raise Refusal(f"Invalid value: '{role}'. Supported values are: {_ROLES}.", f"{param}.role")
    content = message.get("content")
    if role == "assistant" and (message.get("tool_calls") or message.get("refusal")):
        content = content or ""
    if not isinstance(content, str | list):
        raise Refusal(
            f"Invalid value for 'content': expected a string, got {_json_type(content)}.",
            f"{param}.content",
        )
    if "tool_calls" in message:
        _check_calls(message["tool_calls"], f"{param}.tool_calls")


def _check_calls(calls: Any, param: str) -> None:
    if not calls:
        raise Refusal(
            f"Invalid '{param}': empty array. Expected an array with minimum length 1, but got an "
            "empty array instead.",
            param,
            "empty_array",
        )
    for index, call in enumerate(calls):
        function = call.get("function") or {}
        if not isinstance(call.get("id"), str) or not call["id"]:
            raise Refusal(f"Missing required parameter: '{param}[{index}].id'.", param)
        if call.get("type") != "function" or not isinstance(function.get("arguments"), str):
            raise Refusal(f"Invalid type for '{param}[{index}]': expected a function call.", param)
        if not _NAME.match(function.get("name", "")):
            where = f"{param}[{index}].function.name"
            raise Refusal(f"Invalid '{where}': string does not match pattern.", where)
    ids = [call["id"] for call in calls]
    if len(set(ids)) < len(ids):
        raise Refusal(f"Duplicate value for 'tool_call_id' in '{param}'.", param)


def _check_results(messages: Sequence[Body], any_order: bool) -> None:
    """Each call must have one result, right after the message that made it."""
    at = 0
    while at < len(messages):
        message, after = messages[at], at + 1
        if message["role"] == "tool":
            raise Refusal(
                "Invalid parameter: messages with role 'tool' must be a response to a preceeding "
                "message with 'tool_calls'.",
                f"messages.[{at}].role",
            )
        while after < len(messages) and messages[after]["role"] == "tool":
            after += 1
        if message["role"] == "assistant":
            wanted = [call["id"] for call in message.get("tool_calls") or ()]
            given = [result.get("tool_call_id") for result in messages[at + 1 : after]]
            _compare(wanted, given, at, any_order)
            at = after
        else:
            at += 1


def _compare(wanted: list[str], given: list[Any], at: int, any_order: bool) -> None:
    if not wanted and not given:
        return
    missing = [id for id in wanted if id not in given]
    if missing:
        raise Refusal(
            "An assistant message with 'tool_calls' must be followed by tool messages responding "
            "to each 'tool_call_id'. The following tool_call_ids did not have response messages: "
            + ", ".join(missing),
            f"messages.[{at + 1}].role",
        )
    for id in given:
        if id not in wanted or given.count(id) > 1:
            raise Refusal(
                f"Invalid parameter: 'tool_call_id' of '{id}' not found in 'tool_calls' of "
                "previous message.",
                f"messages.[{at + 1}].tool_call_id",
            )
    if not any_order and given != wanted:
        raise Refusal(f"The results {given} are not in the order of their calls {wanted}.")


# --- tools ---


def _nested(tool: Body, index: int) -> Body:
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, dict):
        param = f"tools[{index}].function"
        raise Refusal(
            f"Missing required parameter: '{param}'.", param, "missing_required_parameter"
        )
    return function


def _check_tools(body: Body, functions: Sequence[Body], place: str) -> None:
    if body.get("tools") == []:
        raise Refusal("Invalid 'tools': empty array.", "tools", "empty_array")
    if not body.get("tools") and "parallel_tool_calls" in body:
        raise Refusal(
            "Invalid value for 'parallel_tool_calls': 'parallel_tool_calls' is only allowed when "
            "'tools' are specified.",
            "parallel_tool_calls",
        )
    for index, function in enumerate(functions):
        _check_function(function, place.format(index))
    names = [function["name"] for function in functions]
    if len(set(names)) < len(names):
        raise Refusal("Function names must be unique.", "tools")


def _check_function(function: Body, param: str) -> None:
    name = function.get("name", "")
    if not _NAME.match(name):
        raise Refusal(
            f"Invalid '{param}.name': string does not match pattern. Expected a string that "
            "matches the pattern '^[a-zA-Z0-9_-]+$'.",
            f"{param}.name",
        )
    schema = function.get("parameters") or {}
    fault = None
    if function.get("strict"):
        fault = schema_fault(schema)
    elif schema and schema.get("type") != "object":
        got = schema.get("type")
        fault = f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{got}\"'."
    if fault:
        raise Refusal(
            f"Invalid schema for function '{name}': {fault}",
            f"{param}.parameters",
            "invalid_function_parameters",
        )


def _check_choice(body: Body, names: Sequence[str], *, nested: bool) -> None:
    choice = body.get("tool_choice")
    if choice is None:
        return
    if not body.get("tools"):
        raise Refusal(
            "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are "
            "specified.",
            "tool_choice",
        )
    if isinstance(choice, str):
        if choice not in _MODES:
            raise Refusal(f"Invalid value: '{choice}'. Supported: {_MODES}.", "tool_choice")
        return
    for name in _chosen(choice, nested):
        if name not in names:
            raise Refusal(
                f"Invalid value for 'tool_choice': '{name}' not found in 'tools'.", "tool_choice"
            )


def _chosen(choice: Body, nested: bool) -> Iterator[Any]:
    """Yield the functions that a tool choice names, in the one form that this API takes."""
    if choice.get("type") == "allowed_tools":
        inner = choice.get("allowed_tools") if nested else choice
        if not isinstance(inner, dict) or inner.get("mode") not in ("auto", "required"):
            raise Refusal("Missing required parameter: 'tool_choice.mode'.", "tool_choice.mode")
        for tool in inner["tools"]:
            yield from _chosen(tool, nested)
    elif choice.get("type") == "function":
        inner = choice.get("function") if nested else choice
        if not isinstance(inner, dict) or "name" not in inner:
            raise Refusal("Missing required parameter: 'tool_choice.name'.", "tool_choice")
        yield inner["name"]


def _json_type(value: Any) -> str:
    return "null" if value is None else type(value).__name__


Node = dict[str, Any]
Path = tuple[str, ...]

_FORBIDDEN = frozenset(
    {"allOf", "oneOf", "not", "if", "then", "else", "default", "prefixItems"}
    | {"dependentRequired", "dependentSchemas", "patternProperties"}
)
_TYPED = frozenset({"type", "anyOf", "$ref", "enum", "const"})
_MOST_LEVELS = 10
_MOST_PROPERTIES = 5_000


def schema_fault(schema: Node) -> str | None:
    """Say what the service has against a strict schema, if anything."""
    if schema.get("type") != "object":
        return f"schema must be a JSON Schema of 'type: \"object\"', got '{schema.get('type')}'."
    found = list(_nodes(schema, (), 1))
    if sum(len(node.get("properties", ())) for _, node, _ in found) > _MOST_PROPERTIES:
        return f"more than {_MOST_PROPERTIES} properties."
    for path, node, level in found:
        fault = _too_deep(level) or _node_fault(node)
        if fault:
            return f"In context={path}, {fault}"
    return None


def _nodes(node: Any, path: Path, level: int) -> Iterator[tuple[Path, Node, int]]:
    if not isinstance(node, dict):
        return
    yield path, node, level
    for key in ("properties", "$defs"):
        for name, child in (node.get(key) or {}).items():
            yield from _nodes(child, (*path, key, name), level + (key == "properties"))
    yield from _nodes(node.get("items"), (*path, "items"), level)
    for index, child in enumerate(node.get("anyOf") or ()):
        yield from _nodes(child, (*path, "anyOf", str(index)), level)


def _too_deep(level: int) -> str | None:
    return f"more than {_MOST_LEVELS} levels." if level > _MOST_LEVELS + 1 else None


def _node_fault(node: Node) -> str | None:
    for key in node:
        if key in _FORBIDDEN:
            return f"'{key}' is not permitted."
    if not _TYPED & node.keys():
        return "schema must have a 'type' key."
    if "$ref" in node and len(node) > 1:
        return f"$ref cannot have keywords {sorted(node.keys() - {'$ref'})}."
    if node.get("type") == "array" and "items" not in node:
        return "array schema missing items."
    return _object_fault(node) if node.get("type") == "object" else None


def _object_fault(node: Node) -> str | None:
    if node.get("additionalProperties") is not False:
        return "'additionalProperties' is required to be supplied and to be false."
    names, required = node.get("properties", {}), node.get("required")
    missing = [name for name in names if name not in (required or ())]
    if required is None or missing:
        return (
            "'required' is required to be supplied and to be an array including every key in "
            f"properties. Missing {missing}."
        )
    extra = [name for name in required if name not in names]
    return f"Extra required key {extra} supplied." if extra else None
