"""A tool with which the model asks a person something."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from agents import function_tool
from pydantic import Field

from sayso import codec
from sayso.adapters.openai_agents.drive import the_drive
from sayso.errors import Rejected
from sayso.types import Option, Question


@dataclass(frozen=True)
class Choice:
    """One choice that the model offers."""

    label: str
    value: str
    description: str | None = None


async def _ask_user_question(
    question: str,
    options: Annotated[list[Choice], Field(min_length=2, max_length=5)] | None = None,
    allow_multiple: bool = False,
    free_text: bool = False,
) -> str:
    """Ask the user a question and wait for the answer.

    Args:
        question: What to ask, in full.
        options: Two to five choices; leave out for an answer in the user's own words.
        allow_multiple: Whether several choices may be picked.
        free_text: Whether the user may also answer in their own words.
    """
    choices = tuple(Option(o.label, o.value, o.description or "") for o in options or ())
    asked = Question(question, choices, multiple=allow_multiple, free_text=free_text or not choices)
    try:
        answer: Any = await the_drive("ask_user_question").calls.gate.ask(asked)
    except Rejected as no:
        decision = None if no.request is None else no.request.decision
        return f"The user will not answer. {'' if decision is None else decision.message}".strip()
    return answer if isinstance(answer, str) else codec.dumps(answer)


#: The question stands in the inbox of whichever gate guards the agent; the answer is the result.
ask_user = function_tool(_ask_user_question, name_override="ask_user_question")
