"""Results, interruptions and states under the names that the SDK gives them.

Code that was written for the SDK reads ``result.interruptions``, ``item.name``, ``item.arguments``
and ``result.final_output``, decides with ``result.to_state()`` and ``state.approve(item)``, and
passes the state to ``Runner.run``. All of it works on what a guarded agent returns; underneath are
the requests and the state of the gate.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from sayso.errors import InvalidDecision
from sayso.gate.run_result import RunResult, RunState
from sayso.rows import Call
from sayso.types import Request

#: ``always_approve=True``: every call of this tool, for the rest of this run.
ALWAYS: Mapping[str, Any] = {"scope": "any", "within": "run"}


class Named(str):
    """A name that can also be read as ``.name``, like that of the SDK's object."""

    __slots__ = ("description",)

    description: str

    def __new__(cls, name: str, description: str = "") -> Named:
        made = super().__new__(cls, name)
        made.description = description
        return made

    @property
    def name(self) -> str:
        """The name as a plain string."""
        return str(self)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Interruption(Request):
    """A pending request with the attributes of the SDK's ``ToolApprovalItem``."""

    type: ClassVar[str] = "tool_approval_item"

    #: The SDK's id of the call, with those of the calls around it.
    call_id: str = ""

    @classmethod
    def of(cls, call: Call, request: Request) -> Interruption:
        """Return a request as an interruption."""
        known = {one.name: getattr(request, one.name) for one in fields(request)}
        known["agent"] = Named(request.agent)
        if request.tool is not None:
            known["tool"] = Named(request.tool, request.description)
        return cls(**known, call_id=call.key)

    @property
    def tool_name(self) -> str | None:
        """The name of the tool; None for a question."""
        return None if self.tool is None else str(self.tool)

    name = tool_name

    @property
    def arguments(self) -> str:
        """The arguments as JSON, with every default: exactly what an approval would run."""
        return json.dumps(dict(self.args), ensure_ascii=False)


class State(RunState):
    """A run that waits, with the signatures of the SDK's ``RunState``."""

    __slots__ = ()

    def approve(  # type: ignore[override]
        self, request: Request | str, always_approve: bool = False, *, by: str = "user"
    ) -> None:
        """Stage an approval. ``always_approve`` also makes it a grant of ``by`` for the tool, for
        the rest of this run."""
        super().approve(request, by=by, grant=ALWAYS if always_approve else None)

    def reject(
        self,
        request: Request | str,
        message: str = "",
        *,
        rejection_message: str | None = None,
        always_reject: bool = False,
        by: str = "user",
    ) -> None:
        """Stage a rejection with its reason. Raises ``InvalidDecision`` for ``always_reject``."""
        if always_reject or not isinstance(message, str):
            raise InvalidDecision(
                "nobody can reject calls that were not made yet: reject this one, and give the "
                "policy a rule that denies the tool",
                "always_reject",
            )
        super().reject(request, rejection_message or message, by=by)

    def get_interruptions(self) -> list[Request]:
        """Return the pending requests."""
        return list(self.interruptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(RunResult):
    """What a guarded agent returns, with the attributes of the SDK's result."""

    interruptions: tuple[Interruption, ...] = ()

    @property
    def final_output(self) -> Any:
        """The output of the last agent, in its ``output_type``; None while the run waits."""
        return self.output

    def final_output_as(self, cls: Any, raise_if_incorrect_type: bool = False) -> Any:
        """Return the output; raise ``TypeError`` if that is wanted and it has another type."""
        if raise_if_incorrect_type and not isinstance(self.output, cls):
            raise TypeError(f"Final output is not of type {cls.__name__}")
        return self.output

    def to_state(self) -> RunState:
        """Return the state, on which decisions are staged."""
        return self.state
