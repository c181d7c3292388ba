"""JSON Schemas: made from a function's signature, or stored and checked against.

``Signature`` carries a call from Python to stored bytes and back; ``errors``, ``matches`` and
``check_schema`` work on any JSON Schema, ``foreign_schema`` makes one of somebody else's safe, and
``completed`` puts its defaults in.
"""

from sayso.schema.defaults import completed
from sayso.schema.signature import Signature
from sayso.schema.validation import (
    check_schema,
    errors,
    foreign_schema,
    matches,
    remote_tool,
)

__all__ = [
    "Signature",
    "check_schema",
    "completed",
    "errors",
    "foreign_schema",
    "matches",
    "remote_tool",
]
