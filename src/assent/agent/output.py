"""A typed answer: what the model is asked for, and how its text is read."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter, ValidationError

from assent.schema.strict import strict


class OutputType:
    """A pydantic model, a dataclass, a TypedDict, or a list of them."""

    def __init__(self, wanted: Any) -> None:
        self._adapter: TypeAdapter[Any] = TypeAdapter(wanted)
        schema = self._adapter.json_schema()
        # A model's answer is an object; anything else travels inside one.
        self._wrapped = schema.get("type") != "object"
        if self._wrapped:
            definitions = schema.pop("$defs", {})
            schema = {"type": "object", "properties": {"value": schema}, "required": ["value"]}
            schema["$defs"] = definitions
        self.schema = strict({**schema, "additionalProperties": False})

    def read(self, text: str) -> Any:
        """The answer as the wanted type; ValueError says what is wrong with it."""
        try:
            if not self._wrapped:
                return self._adapter.validate_json(text)
            outer = TypeAdapter(dict[str, Any]).validate_json(text)
            return self._adapter.validate_python(outer.get("value"))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise ValueError(f"{where}: {first['msg']}" if where else first["msg"]) from None

    def dump(self, value: Any) -> str:
        """The answer as it is stored."""
        return self._adapter.dump_json(value).decode()

    def load(self, text: str) -> Any:
        """A stored answer, read back."""
        return self._adapter.validate_json(text)
