"""A framework's tool as the gate knows it: what is shown of it, and how its arguments are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from sayso import codec
from sayso.errors import InvalidCall
from sayso.policy import Predicate
from sayso.rows import Tool
from sayso.types import Declared, Json, Terms, Verdict

#: The own terms of an agent that is a tool: it changes nothing itself, and its calls have rows.
SUB_AGENT_TERMS = Declared(effect="idempotent", stated=frozenset({"effect"}))


@dataclass(frozen=True, kw_only=True)
class ForeignTool:
    """A framework's tool as the gate knows it: a name, a text and a JSON Schema."""

    name: str
    description: str = ""
    #: JSON Schema of the arguments, an object.
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    version: str = ""
    #: Counts where no rule of the policy does.
    needs_approval: bool | Predicate = False
    own: Terms = field(default_factory=Terms)
    #: Validates and completes arguments the framework's own way, instead of by the schema alone.
    read: Callable[[dict[str, Json]], Mapping[str, Json]] | None = None
    #: The only decisions that fit its calls; without ``approve`` among them, people are asked.
    possible: tuple[str, ...] | None = None

    @cached_property
    def rules(self) -> dict[str, Any]:
        """The schema that is shown and kept to: it allows what the function itself takes for an
        argument that is left out, also in ``note: str = None``."""
        known = self.parameters.get("properties", {})
        nullable = {name: _or_none(known[name]) for name in self._unsaid}
        return {**self.parameters, **({"properties": {**known, **nullable}} if nullable else {})}

    @cached_property
    def _unsaid(self) -> frozenset[str]:
        """Arguments that are None where they are left out, and that nobody may write so."""
        from sayso import schema

        rules = self.parameters
        known = rules.get("properties", {})
        shared = {"$defs": rules["$defs"]} if "$defs" in rules else {}
        return frozenset(
            name
            for name, said in known.items()
            if isinstance(said, Mapping)
            and said.get("default", ...) is None
            and schema.errors({**said, **shared}, None)
        )

    def passed(self, args: Mapping[str, Json]) -> dict[str, Json]:
        """The arguments as the framework takes them: what is None by being left out, left out."""
        return {n: v for n, v in args.items() if v is not None or n not in self._unsaid}

    @cached_property
    def stored(self) -> Tool:
        """The face that is stored; its digest covers name, schema, description and version."""
        face = {"parameters": self.rules, "returns": None}
        codec.canonical(face)  # a schema that JSON would bend is refused where it is declared
        return Tool.of(self.name, codec.dumps(face), self.description, self.version)

    def intake(self, args: Mapping[str, Json]) -> str:
        """The arguments as they are stored, shown and run, with every default; or InvalidCall."""
        text = self._completed(codec.loads(codec.canonical(dict(args))))
        if self.read is not None and self._completed(codec.loads(text)) != text:
            raise InvalidCall(f"the arguments of {self.name} change when they are read again")
        return text

    def _completed(self, args: dict[str, Json]) -> str:
        from sayso import schema  # brings jsonschema

        complete = self.read or self._with_defaults
        unsaid = dict.fromkeys(self._unsaid)
        text = codec.canonical({**unsaid, **complete(self.passed(args))}).decode()
        wrong = schema.errors(self.rules, codec.loads(text))
        if wrong:
            path, message = wrong[0]
            raise InvalidCall(f"{path}: {message}" if path else message, path)
        return text

    def _with_defaults(self, args: dict[str, Json]) -> dict[str, Json]:
        known = self.parameters.get("properties", {})
        defaults = {n: p["default"] for n, p in known.items() if "default" in p}
        return {**defaults, **args}


def _or_none(rules: Mapping[str, Any]) -> dict[str, Any]:
    about = {k: v for k, v in rules.items() if k in ("title", "description", "default")}
    rest = {k: v for k, v in rules.items() if k not in about}
    return {"anyOf": [rest, {"type": "null"}], **about}


def narrowed(terms: Terms, possible: tuple[str, ...]) -> Terms:
    """The terms with no other decisions than these."""
    kept = tuple(name for name in terms.allowed if name in possible)
    terms = replace(terms, allowed=kept if possible[0] in kept else possible)
    asks = "approve" not in possible and terms.verdict is Verdict.ALLOW
    return replace(terms, verdict=Verdict.ASK) if asks else terms
