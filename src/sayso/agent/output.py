"""A typed answer: what the model is asked for, and how its text is read."""

from __future__ import annotations

from typing import Any

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from sayso import codec
from sayso.errors import InvalidCall
from sayso.schema.models import readable
from sayso.schema.strict import strict, without_nulls


class OutputType:
    """A pydantic model, a dataclass, a TypedDict, or a list of them."""

    def __init__(self, wanted: Any) -> None:
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(readable(wanted))
            schema = self._adapter.json_schema(by_alias=True)
        except PydanticUserError as error:
            said = str(error).partition("\n")[0]
            raise TypeError(f"output_type={wanted!r} cannot be asked for: {said}") from None
        # A model's answer is an object with named fields; anything else travels inside one.
        self._wrapped = "properties" not in schema
        if self._wrapped:
            definitions = schema.pop("$defs", {})
            schema = {"type": "object", "properties": {"value": schema}, "required": ["value"]}
            schema["$defs"] = definitions
        self._open = {**schema, "additionalProperties": False}
        self.schema = strict(self._open)

    def read(self, text: str) -> Any:
        """The answer as the wanted type; ValueError says what is wrong with it."""
        try:
            given = codec.parse(text)
            if self._wrapped and not (isinstance(given, dict) and given.keys() == {"value"}):
                given = {"value": given}  # models that know no schema leave the wrapping out
            # In the strict form null means "use the default", where the field cannot be null.
            value = without_nulls(self._open, given, self._open.get("$defs", {}))
            if self._wrapped:
                value = value["value"]
            return self._adapter.validate_json(codec.dumps(value))
        except (InvalidCall, KeyError, TypeError) as error:
            raise ValueError(f"it is not what was asked for ({error})") from None
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = codec.path_text(first["loc"])
            raise ValueError(f"{where}: {first['msg']}" if where else first["msg"]) from None

    def dump(self, value: Any) -> str:
        """The answer as it is stored."""
        return self._adapter.dump_json(value, by_alias=True).decode()

    def load(self, text: str) -> Any:
        """A stored answer, read back."""
        return self._adapter.validate_json(text)
