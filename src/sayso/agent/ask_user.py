"""Questions as tools: the model asks, a person answers; a bad question goes back to the model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from sayso import codec
from sayso.agent.tool import Tool
from sayso.gate.guard import tool_of
from sayso.gate.options import question_terms
from sayso.schema import Signature
from sayso.schema.models import readable
from sayso.types import Json, Option, Question


@dataclass(frozen=True)
class AskedOption:
    """One choice that the model offers."""

    label: str
    value: str
    description: str | None = None


def _ask_user_question(
    question: str,
    options: Annotated[list[AskedOption], Field(min_length=2, max_length=5)] | None = None,
    allow_multiple: bool = False,
    free_text: bool = False,
) -> Any:
    """Ask the user a question and wait for the answer.

    Args:
        question: What to ask, in full.
        options: Two to five choices; leave out for an answer in the user's own words.
        allow_multiple: Whether several choices may be picked.
        free_text: Whether the user may also answer in their own words.
    """


def _question(args: dict[str, Json]) -> Question:
    options = tuple(
        Option(o["label"], o["value"], o["description"] or "") for o in args["options"] or ()
    )
    free_text = True if not options else bool(args["free_text"])
    return Question(args["question"], options, multiple=args["allow_multiple"], free_text=free_text)


def _question_tool(
    function: Any, name: str, description: str | None, asks: Any, version: str = ""
) -> Tool:
    signature = Signature.of(function, name=name, description=description)
    return Tool(
        signature=signature,
        function=None,
        stored=tool_of(signature, version),
        own=question_terms("question", ("respond", "reject"), {}),
        needs_approval=True,
        takes_context=False,
        strict=True,
        asks=asks,
    )


ask_user = _question_tool(_ask_user_question, "ask_user_question", None, _question)


def ask_user_for(answer: Any, *, name: str | None = None, description: str | None = None) -> Tool:
    """A tool with which the model asks the user for a model, a dataclass or a TypedDict."""
    schema = TypeAdapter(readable(answer)).json_schema()
    noun = re.sub(r"\W+", "_", getattr(answer, "__name__", "answer")).lower()

    def ask(question: str) -> Any:
        """Ask the user to fill in a form.

        Args:
            question: What to ask, in full.
        """

    def asks(args: dict[str, Json]) -> Question:
        return Question(args["question"], schema=schema)

    version = codec.digest({"answer": codec.dumps(schema)})
    return _question_tool(ask, name or f"ask_user_for_{noun}", description, asks, version)
