"""``guard`` and ``resume``: the two verbs that every adapter has."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, overload

from agent_framework import SupportsAgentRun, Workflow, WorkflowAgent

from sayso.adapters.agent_framework.guarded import Guarded
from sayso.adapters.agent_framework.workflow import Checkpoints, GuardedWorkflow
from sayso.gate import Gate
from sayso.gate.driven import Driven, check_gate
from sayso.gate.options import check_taken
from sayso.gate.run_result import RunResult
from sayso.policy import Policy
from sayso.types import Reviewer


@overload
def guard(
    agent: SupportsAgentRun, gate: Gate, policy: Policy | None = None, **kept: Any
) -> Guarded: ...
@overload
def guard(
    agent: Workflow | Callable[[], Workflow],
    gate: Gate,
    policy: Policy | None = None,
    *,
    checkpoints: Checkpoints,
) -> GuardedWorkflow: ...
def guard(agent: Any, gate: Gate, policy: Policy | None = None, **kept: Any) -> Any:
    """Make an agent or a workflow ask through the gate.

    For an agent, ``kept`` (``tools``, ``options``, ``function_invocation_kwargs``, …) is given to
    the framework on every run and resume. A workflow needs ``checkpoints``: a folder, or a function
    that gives a storage for a name; a function in place of the workflow builds a fresh one each
    time, so that several threads can be at work at once.
    """
    check_gate(gate, policy)
    if isinstance(agent, Workflow) or inspect.isroutine(agent):
        if set(kept) != {"checkpoints"}:
            raise TypeError(
                "a workflow is guarded with checkpoints='a folder', where the framework keeps how "
                "far it came, and with nothing else"
            )
        return GuardedWorkflow(agent, gate, policy, **kept)
    if isinstance(agent, WorkflowAgent):
        raise TypeError(
            "what a workflow asks gets lost in its as_agent(): guard the workflow itself, with "
            "guard(workflow, gate, checkpoints='a folder')"
        )
    if isinstance(agent, SupportsAgentRun):
        check_taken(kept, agent.run, "messages", "session", "stream")
        return Guarded(agent, gate, policy, **kept)
    raise TypeError(
        f"guard takes an agent, a workflow of WorkflowBuilder or a function that builds one, and "
        f"not {type(agent).__name__}"
    )


async def resume(
    guarded: Driven, where: str, decisions: Any = None, *, by: str | Reviewer = "user"
) -> RunResult:
    """Go on with a thread, after these decisions; calls that they leave out keep waiting."""
    return await guarded.resume(where, decisions=decisions, by=by)
