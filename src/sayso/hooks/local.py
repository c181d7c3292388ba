"""Ask a store on this machine instead of a server.

The hook opens the store's file as any other process does, so it imports more and starts slower than
with a server. Anyone who can run the agent can then write the store: see SECURITY.md.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from sayso import codec
from sayso.engine.commands import NotePrompt
from sayso.gate import Gate
from sayso.gate.gate import policy_terms
from sayso.gate.options import fixed_title
from sayso.gate.plan import Plan, find_use, is_still_approved
from sayso.gate.scope import RunScope
from sayso.hooks.dialects import ToolUse
from sayso.rows import Call
from sayso.schema import remote_tool
from sayso.stores.row_checks import request_in
from sayso.sync import read
from sayso.types import Terms, ToolCall
from sayso.views import request_json


def ask_store(
    store: str,
    policy: str,
    use: ToolUse,
    wait: float,
    *,
    prompts: bool = False,
    observe: str = "",
) -> dict[str, Any]:
    """Ask about a tool use, wait, and release the call. Return the request as JSON.

    With ``prompts``, the agent would ask its user, so what a preset allows is asked about too.
    """

    async def ask(gate: Gate) -> Call:
        plan = plan_of(gate, use, wait, prompts=prompts)
        if prompts:
            released = await read(gate.store, find_use, gate.store, _run(use), plan)
            if released is not None:
                if await is_still_approved(gate.store, plan, released):
                    return released
                plan = replace(plan, caller=released.caller)
        entry = RunScope(gate.driver, _run(use), "")
        return await gate.driver.release(entry, plan)

    return _with_gate(store, policy, use, ask, observe)


def report_to_store(store: str, use: ToolUse) -> dict[str, Any]:
    """Report what a tool use did. Return the request as JSON, or raise ``LookupError``."""

    async def report(gate: Gate) -> Call:
        call = await gate.backend.report(
            _run(use), use.caller, use.ok, use.short_result, use.shown_args
        )
        if call is None:
            raise LookupError(f"nothing was released to {use.caller}")
        return call

    return _with_gate(store, "", use, report)


def note_prompt(store: str, use: ToolUse) -> None:
    """Note that the user has written something new, which ends the session's refusals."""
    gate = Gate(store, agent=use.dialect, wait=0)
    try:
        gate.store.transact(NotePrompt(thread=_run(use), run=_run(use)))
    finally:
        gate.close()


def _with_gate(
    store: str,
    policy: str,
    use: ToolUse,
    act: Callable[[Gate], Coroutine[Any, Any, Call]],
    observe: str = "",
) -> dict[str, Any]:
    gate = Gate(store, agent=use.dialect, policy=policy or None, observe=observe or None, wait=0)
    try:
        call = asyncio.run(act(gate))
        return request_json(request_in(gate.store, call.as_asked))
    finally:
        gate.close()


def _run(use: ToolUse) -> str:
    return f"{use.dialect}/{use.run}"


def plan_of(gate: Gate, use: ToolUse, wait: float, *, prompts: bool = False) -> Plan:
    """Return the plan for a tool use."""

    async def terms(args: dict[str, Any]) -> Terms:
        needs_approval = True if prompts else None
        return await policy_terms(gate, ToolCall(use.tool, args), Terms(), needs_approval)

    return Plan(
        key=f"hook={secrets.token_hex(16)}",
        kind="approval",
        args=codec.canonical(use.shown_args).decode(),
        agent=use.dialect,
        terms=terms,
        tool=remote_tool(use.tool, use.schema, None, ""),
        tool_name=use.tool,
        title=fixed_title(use.title),
        note=use.note,
        wait=max(wait, 0.0),
        caller=use.caller,
    )
