"""A policy made from LangChain's ``interrupt_on``."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from policy_world import ALLOW, ASK, NOON, boom, drive_async, judge, other_predicate

from sayso.errors import InvalidPolicy
from sayso.policy import Policy
from sayso.types import DECISIONS, Terms, ToolCall


def test_true_false_and_a_mapping() -> None:
    policy = Policy.from_interrupt_on(
        {
            "write": True,
            "read": False,
            "sql": {"allowed_decisions": ["reject", "approve"], "description": "look closely"},
        }
    )
    assert judge(policy, "write").allowed == DECISIONS
    assert judge(policy, "write").rule == "interrupt_on write"
    assert judge(policy, "read", needs_approval=True).verdict is ALLOW
    sql = judge(policy, "sql")
    assert (sql.verdict, sql.allowed, sql.description) == (
        ASK,
        ("approve", "reject"),
        "look closely",
    )
    assert judge(policy, "other").verdict is ALLOW
    assert judge(policy, "other", needs_approval=True).verdict is ASK


def test_when_is_called_as_langchain_calls_it() -> None:
    seen: list[Any] = []

    def when(request: Any) -> bool:
        seen.append(request)
        return bool(request.tool_call["args"]["path"].startswith("/etc"))

    policy = Policy.from_interrupt_on({"write": {"allowed_decisions": ["approve"], "when": when}})
    assert judge(policy, "write", {"path": "/etc/hosts"}).verdict is ASK
    assert judge(policy, "write", {"path": "notes"}).verdict is ALLOW
    assert judge(policy, "write", {}).risk.level == "high"
    assert seen[0].tool_call == {
        "name": "write",
        "args": {"path": "/etc/hosts"},
        "id": None,
        "type": "tool_call",
    }
    assert (seen[0].tool, seen[0].runtime, seen[0].state) == (None, None, {"messages": []})


async def test_when_may_be_async() -> None:
    async def when(request: Any) -> bool:
        return bool(request.tool_call["args"]["n"] > 5)

    policy = Policy.from_interrupt_on({"write": {"allowed_decisions": ["approve"], "when": when}})
    predicate = policy.rules[0].when
    assert inspect.iscoroutinefunction(predicate)
    for n, verdict in ((9, ASK), (1, ALLOW)):
        call = ToolCall("write", {"n": n})
        terms = await drive_async(policy.judge(call, agent="bot", now=NOON, own=Terms()))
        assert terms.verdict is verdict


def test_descriptions_are_called_as_langchain_calls_them() -> None:
    def three(tool_call: Any, state: Any, runtime: Any) -> str:
        return f"{tool_call['name']} {tool_call['args']['n']} {state['messages']} {runtime}"

    class Object:
        def __call__(self, tool_call: Any) -> str:
            return f"{tool_call['id']} {tool_call['type']}"

    def of(description: Any) -> str:
        config = {"allowed_decisions": ["approve"], "description": description}
        return judge(Policy.from_interrupt_on({"t": config}), "t", {"n": 1}).description

    assert of(three) == "t 1 [] None"
    assert of(lambda *given: str(len(given))) == "3"
    assert of(lambda tool_call: tool_call["name"]) == "t"
    assert of(lambda tool_call, style="short": style) == "short"
    assert of(Object()) == "c1 tool_call"
    assert of(lambda tool_call: tool_call["nothing"]) == (
        "(the description could not be made: KeyError)"
    )


def test_digest_names_the_wrapped_function() -> None:
    def config(when: Any) -> Policy:
        return Policy.from_interrupt_on({"t": {"allowed_decisions": ["approve"], "when": when}})

    assert config(boom).digest == config(boom).digest
    assert config(boom).digest != config(other_predicate).digest


APPROVE: dict[Any, Any] = {"allowed_decisions": ["approve"]}


@pytest.mark.parametrize(
    ("interrupt_on", "message"),
    [
        (None, "interrupt_on: map a tool"),
        (["write"], "interrupt_on: map a tool"),
        ({"write": None}, r"interrupt_on\['write'\]: use True, False or a mapping"),
        ({"write": "approve"}, "use True, False or a mapping"),
        ({"write": 1}, "use True, False or a mapping"),
        ({"write": {}}, "allowed_decisions is a list of approve"),
        ({"write": {"allowed_decisions": []}}, "allowed_decisions is a list"),
        ({"write": {"allowed_decisions": None}}, "allowed_decisions is a list"),
        ({"write": {"allowed_decisions": "approve"}}, "allowed_decisions is a list"),
        ({"write": {"allowed_decisions": ["yolo"]}}, "approve, edit, reject, respond"),
        ({"write": {"allowed_decisions": [["approve"]]}}, "allowed_decisions is a list"),
        ({"write": {"alowed_decisions": ["approve"]}}, "unknown alowed_decisions"),
        ({"write": {**APPROVE, 5: 5}}, "unknown 5"),
        ({"write": {**APPROVE, "when": "always"}}, "when is a function"),
        ({"write": {**APPROVE, "description": 5}}, "description is a string or a function"),
        ({"write": {**APPROVE, "description": lambda: ""}}, "description takes"),
        ({"write": {**APPROVE, "description": lambda a, b: ""}}, "description takes"),
        ({"write_*": True}, "exact name"),
        ({"": True}, "exact name"),
        ({5: True}, "exact name"),
        ({" write": True}, "no spaces"),
    ],
)
def test_malformed_mapping_is_refused(interrupt_on: Any, message: str) -> None:
    with pytest.raises(InvalidPolicy, match=message):
        Policy.from_interrupt_on(interrupt_on)


def test_args_schema_is_accepted_as_langchain_does() -> None:
    config = {**APPROVE, "args_schema": {"type": "object"}}
    assert judge(Policy.from_interrupt_on({"t": config}), "t").verdict is ASK


def test_description_may_be_a_builtin_without_a_signature() -> None:
    policy = Policy.from_interrupt_on({"write": {**APPROVE, "description": str}})
    describe: Any = policy.rules[0].description
    assert "write" in describe(ToolCall("write", {}))
