"""What local agents say to arguments that a person edits: their policy's terms, and errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sayso.agent.agent import Agent, Resumable, judge_edit
from sayso.gate.framework import FrameworkAgent
from sayso.inbox.decisions import Validate
from sayso.inbox.inbox import Judge
from sayso.rows import Call
from sayso.types import Json, Terms


def stored_terms(call: Call, args: Mapping[str, Json]) -> Terms:
    """Return a call's own terms: the gate of its agent checks again before the start."""
    return call.terms


def edit_judge(agents: Iterable[Resumable], otherwise: Judge = stored_terms) -> Judge:
    """Return a function that applies the right policy to edited arguments.

    These agents use their own policy, and calls of all others are left to ``otherwise``.
    """
    ours = {agent.name: agent for agent in agents if isinstance(agent, Agent)}

    def judge(call: Call, args: Mapping[str, Json]) -> Terms:
        agent = ours.get(call.agent)
        return otherwise(call, args) if agent is None else judge_edit(agent, call, args)

    return judge


def edit_validator(agents: Iterable[Resumable]) -> Validate:
    """Return a function that validates edits with the tools of these frameworks' agents."""
    ours = {agent.name: agent for agent in agents if isinstance(agent, FrameworkAgent)}

    def validate(call: Call, args: dict[str, Json]) -> str | None:
        agent = ours.get(call.agent)
        return None if agent is None else agent.validate_edit(call, args)

    return validate
