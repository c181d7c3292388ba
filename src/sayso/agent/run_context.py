"""What one process knows while it works on a run: the agent, the run, and the listeners."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from sayso import codec, rows
from sayso.agent.events import AgentEvent, Emit
from sayso.agent.models.base import Model
from sayso.agent.tool import Tool
from sayso.errors import InvalidCall
from sayso.gate import Gate
from sayso.rows import Call
from sayso.schema.strict import strict, without_nulls
from sayso.stores.base import Store
from sayso.stores.row_checks import refusals_in, tool_of
from sayso.types import Request
from sayso.views import request_of

if TYPE_CHECKING:
    from pydantic import TypeAdapter


class OutputType:
    """The declared type of an answer: a pydantic model, dataclass, TypedDict, or list of them."""

    def __init__(self, wanted: Any) -> None:
        from pydantic import PydanticUserError, TypeAdapter  # few agents declare a type

        from sayso.schema.models import pydantic_annotation

        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(pydantic_annotation(wanted))
            schema = self._adapter.json_schema(by_alias=True)
        except PydanticUserError as error:
            reason = str(error).partition("\n")[0]
            raise TypeError(f"output_type={wanted!r} has no JSON schema: {reason}") from None
        # Structured answers must be objects, so any other type is wrapped in one.
        self._wrapped = "properties" not in schema
        if self._wrapped:
            definitions = schema.pop("$defs", {})
            schema = {"type": "object", "properties": {"value": schema}, "required": ["value"]}
            schema["$defs"] = definitions
        self._open = {**schema, "additionalProperties": False}
        self.schema = strict(self._open)

    def read(self, text: str) -> Any:
        """Parse a model's answer. Raises ``ValueError`` with what does not fit."""
        from pydantic import ValidationError

        try:
            answer = codec.parse(text)
            if self._wrapped and not (isinstance(answer, dict) and answer.keys() == {"value"}):
                answer = {"value": answer}  # models without schema support omit the wrapper
            # In the strict form, null means "use the default" for fields that cannot be null.
            value = without_nulls(self._open, answer, self._open.get("$defs", {}))
            if self._wrapped:
                value = value["value"]
            return self._adapter.validate_json(codec.dumps(value))
        except (InvalidCall, KeyError, TypeError) as error:
            raise ValueError(f"it does not match the schema ({error})") from None
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = codec.path_text(first["loc"])
            raise ValueError(f"{where}: {first['msg']}" if where else first["msg"]) from None

    def dump(self, value: Any) -> str:
        return self._adapter.dump_json(value, by_alias=True).decode()

    def load(self, text: str) -> Any:
        """Return a stored answer. Raises ``ValueError`` if the type has changed since."""
        return self._adapter.validate_json(text)


class AgentSpec(Protocol):
    """The parts of an agent that a run uses."""

    name: str
    model: Model
    instructions: str
    tools: dict[str, Tool]
    max_turns: int
    tool_choice: str | Mapping[str, Any]
    parallel_tool_calls: bool | None
    settings: dict[str, Any]
    on_change: str
    listeners: list[Emit]
    output: OutputType | None

    @property
    def gate(self) -> Gate:
        """The agent's gate."""

    @property
    def digest(self) -> str:
        """A hash of the agent's definition."""


@dataclass(slots=True, kw_only=True)
class RunContext:
    """One process's entry into one run."""

    agent: AgentSpec
    thread: str
    run: str
    emit: Emit
    requester: str = ""
    deps: Any = None
    #: The limit passed to ``run``, if any. Overrides the agent's.
    max_turns: int | None = None
    streams: bool = False
    parent_call: str | None = None
    #: What the refusals of a new run last for, if that is not the run (``Run.scope``).
    refusal_scope: str = ""
    owner: str = field(init=False)
    gate: Gate = field(init=False)
    store: Store = field(init=False)

    def __post_init__(self) -> None:
        self.gate = self.agent.gate
        self.store = self.gate.store
        self.owner = f"{self.gate.driver.owner}:{secrets.token_hex(4)}"

    @property
    def tools(self) -> dict[str, Tool]:
        return self.agent.tools

    def tell(self, event: AgentEvent) -> None:
        if self.has_listeners:
            self.emit(replace(event, run=self.run, thread=self.thread, agent=self.agent.name))

    @property
    def has_listeners(self) -> bool:
        return self.streams or bool(self.agent.listeners)

    @property
    def has_channels(self) -> bool:
        """Whether telling people of a request may take until one of them has decided.

        A channel may prompt the person in front of it. A listener runs on the event loop and
        returns at once.
        """
        return bool(self.gate.channels)

    def request(self, call: Call) -> Request:
        tool = self._own_tool(call) or tool_of(self.store, call)
        return request_of(call, tool, self.store.now, refusals_in(self.store, call))

    def knows_tool(self, call: Call) -> bool:
        """Return whether ``request`` can answer without reading the store."""
        return not call.tool_digest or self._own_tool(call) is not None

    def _own_tool(self, call: Call) -> rows.Tool | None:
        tool = self.tools.get(call.tool)
        if tool is None or tool.stored.digest != call.tool_digest:
            return None
        return tool.stored
