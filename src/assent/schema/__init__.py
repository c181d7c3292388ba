"""JSON Schemas: made from a function's signature, or stored and checked against.

``Signature`` carries a call from Python to stored bytes and back; ``errors``, ``matches`` and
``check_schema`` work on any JSON Schema, and ``completed`` puts its defaults in.
"""

from assent.schema.defaults import completed
from assent.schema.signature import Signature
from assent.schema.validation import check_schema, errors, matches

__all__ = ["Signature", "check_schema", "completed", "errors", "matches"]
