"""JSON Schemas: made from a function's signature, or stored and checked against.

Read ``functions`` (inspect a function), ``models`` (its pydantic models), ``signature`` (convert a
call to stored bytes and back), ``strict`` (OpenAI's strict form, and defaults), and ``validation``
(check any JSON value against any JSON Schema, within bounds of time and depth).
"""

from typing import TYPE_CHECKING, Any

from sayso.schema.strict import with_defaults
from sayso.schema.validation import (
    check_schema,
    closed,
    edit_rules,
    errors,
    matches,
    remote_schema,
    remote_tool,
    whole_text,
)

if TYPE_CHECKING:
    from sayso.schema.signature import Signature

__all__ = [
    "Signature",
    "check_schema",
    "closed",
    "edit_rules",
    "errors",
    "matches",
    "remote_schema",
    "remote_tool",
    "whole_text",
    "with_defaults",
]


def __getattr__(name: str) -> Any:
    if name == "Signature":  # imports pydantic, which takes as long as all of Sayso
        from sayso.schema.signature import Signature

        return Signature
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
