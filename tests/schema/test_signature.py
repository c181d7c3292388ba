"""Signatures: which functions can be tools, and the schema that each one gets."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, SecretStr

import sayso
from sayso import codec
from sayso.redaction import redact
from sayso.schema import Signature
from sayso.schema.functions import split_docstring


class Item(BaseModel):
    """A thing that is sold."""

    price: Decimal


async def send_email(
    to: str, subject: str, body: Annotated[str, Field(description="Plain text")], cc: str = ""
) -> str:
    """Send an email.

    It leaves at once.

    Args:
        to: The address.
        body: Not this, the Field wins.
        cc (str, optional): Somebody else,
            or nobody.
    """
    return "sent"


# --- reading a function ---


def test_function_becomes_a_schema() -> None:
    signature = Signature.of(send_email)
    assert signature.name == "send_email"
    assert signature.description == "Send an email.\n\nIt leaves at once."
    assert signature.returns == {"type": "string"}
    assert signature.parameters == {
        "type": "object",
        "properties": {
            "to": {"type": "string", "description": "The address."},
            "subject": {"type": "string"},
            "body": {"type": "string", "description": "Plain text"},
            "cc": {"type": "string", "default": "", "description": "Somebody else, or nobody."},
        },
        "required": ["to", "subject", "body"],
        "additionalProperties": False,
    }


def test_name_and_description_can_be_set() -> None:
    signature = Signature.of(send_email, name="mail-2", description="Mail it")
    assert (signature.name, signature.description) == ("mail-2", "Mail it")


def test_bare_function_has_empty_schema() -> None:
    def ping():  # type: ignore[no-untyped-def]
        return 1

    signature = Signature.of(ping)
    assert signature.description == ""
    assert signature.returns is None
    assert signature.parameters == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }
    assert signature.load(signature.intake({})) == ((), {})


def test_nested_classes_are_closed_and_described() -> None:
    def fn(items: list[Item]) -> None: ...

    item = Signature.of(fn).parameters["$defs"]["Item"]
    assert item["additionalProperties"] is False
    assert item["description"] == "A thing that is sold."
    assert "title" not in item["properties"]["price"]


def test_first_parameter_can_be_skipped_even_unresolvable() -> None:
    def fn(ctx: Nowhere, a: int, /, b: int) -> int:  # type: ignore[name-defined]  # noqa: F821
        return a + b

    signature = Signature.of(fn, skip_first=True)
    assert list(signature.parameters["properties"]) == ["a", "b"]
    args, kwargs = signature.load(signature.intake(signature.bind((1,), {"b": 2})))
    assert fn(None, *args, **kwargs) == 3


def test_function_may_use_later_definitions() -> None:
    def count(down: int) -> int:
        return later(count, down)

    signature = Signature.of(count)

    def later(function: Any, down: int) -> int:
        return function(down - 1) if down else 0

    assert signature.name == "count"
    assert count(3) == 0


def test_local_types_are_resolved() -> None:
    class Outer(BaseModel):
        a: int

    def build() -> Signature:
        class Inner(BaseModel):
            b: Literal["x"]

        def fn(outer: Outer, inner: Inner) -> Inner:
            return inner

        return Signature.of(fn)

    args = build().load(b'{"inner":{"b":"x"},"outer":{"a":1}}')[1]
    assert args["outer"] == Outer(a=1)
    assert args["inner"].b == "x"


def test_every_kind_of_callable_is_accepted() -> None:
    def fn(a: int, b: int, c: int = 3) -> int:
        """Add."""
        return a + b + c

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    class Adder:
        def __call__(self, a: int, b: int) -> int:
            return self.add(a, b)

        def add(self, a: int, b: int) -> int:
            return a + b

    partial = Signature.of(functools.partial(functools.partial(fn, 1), c=5))
    assert (partial.name, partial.description) == ("fn", "Add.")
    assert partial.load(partial.intake({"b": 2})) == ((), {"b": 2, "c": 5})
    for tool, name in ((wrapper, None), (Adder().add, None), (Adder(), "adder")):
        signature = Signature.of(tool, name=name)
        args, kwargs = signature.load(signature.intake({"a": 1, "b": 2}))
        assert tool(*args, **kwargs) in {3, 6}


def test_parameter_names_may_clash_with_pydantic() -> None:
    def fn(model_config: int, _private: int, schema: int, json: int, self_: int = 0) -> None: ...

    signature = Signature.of(fn)
    values = {"model_config": 1, "_private": 2, "schema": 3, "json": 4}
    assert signature.load(signature.intake(values)) == ((), {**values, "self_": 0})


def test_bind_adds_no_defaults() -> None:
    signature = Signature.of(send_email)
    assert signature.bind(("a", "b"), {"body": "c"}) == {"to": "a", "subject": "b", "body": "c"}
    for args, kwargs, message in [
        (("a",), {}, "missing a required argument: 'subject'"),
        (("a", "b", "c", "d", "e"), {}, "too many positional arguments"),
        (("a", "b", "c"), {"bcc": ""}, "unexpected keyword argument 'bcc'"),
        (("a", "b", "c"), {"to": ""}, "multiple values for argument 'to'"),
    ]:
        with pytest.raises(TypeError, match=rf"send_email\(\): .*{message}"):
            signature.bind(args, kwargs)


# --- refusing a function ---


def _args(*items: int) -> None: ...
def _kwargs(**items: int) -> None: ...
def _method(self: Any, a: int) -> None: ...
def _lost(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def _lost_result(a: int) -> Nowhere: ...  # type: ignore[name-defined]  # noqa: F821
def _opaque(a: int, db: Signature) -> None: ...
def _opaque_result(a: int) -> Signature: ...  # type: ignore[empty-body]
def _set(a: list[frozenset[int]]) -> None: ...
def _secret(a: SecretStr) -> None: ...
def _sentinel(a: int, b: Any = object()) -> None: ...  # noqa: B008


@pytest.mark.parametrize(
    ("fn", "advice"),
    [
        (_args, r"_args\(\) takes \*items.*name each parameter"),
        (_kwargs, r"takes \*\*items.*name each parameter"),
        (_method, "takes 'self'.*wrap the call in a function"),
        (_lost, r"'a' in _lost\(\) cannot be resolved.*Nowhere.*top of the module"),
        (_lost_result, "'return' in _lost_result.*cannot be resolved"),
        (_opaque, "'db' of _opaque.*no JSON form.*plain data"),
        (_opaque_result, "returns .*Signature, which cannot be stored"),
        (_set, "'a' of _set.*is a set.*take a list"),
        (_secret, "'a' of _secret.*secret type.*take a str"),
        (_sentinel, "'b' of _sentinel.*no JSON form"),
        (sayso.tool(send_email), "is a sayso.tool, for a sayso.Agent.*send_email.function"),
        (lambda a: a, "'<lambda>' is not a valid tool name.*name='send_email'"),
    ],
)
def test_unsuitable_function_is_refused(fn: Any, advice: str) -> None:
    with pytest.raises(TypeError, match=f"(?s){advice}"):
        Signature.of(fn)


@pytest.mark.parametrize("mark", [{"writeOnly": True}, {"format": "password"}])
def test_text_may_be_declared_secret(mark: dict[str, Any]) -> None:
    def login(user: str, password: str) -> None: ...

    login.__annotations__["password"] = Annotated[str, Field(json_schema_extra=mark)]
    signature = Signature.of(login)
    data = signature.intake({"user": "ana", "password": "hunter2"})
    assert json.loads(data)["password"] == "hunter2"
    shown = redact(json.loads(data), signature.parameters)
    assert "hunter2" not in str(shown.value)
    assert not shown.masked  # as good as shown


@pytest.mark.parametrize("name", ["", "a b", "a.b", "x" * 65, "naïve", "a\n"])
def test_invalid_tool_name_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match="is not a valid tool name"):
        Signature.of(send_email, name=name)


def test_other_objects_are_refused() -> None:
    for thing in (Item, 3):
        with pytest.raises(TypeError, match="is not a function; wrap it in one"):
            Signature.of(thing, name="thing")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="is not a function; wrap it in one"):
            Signature.of(thing)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no signature"):
        Signature.of(max)


# --- docstrings ---

GOOGLE = """Send it.

At once.

Args:
    to: The address.
    body (str, optional): The text: long
        or short.

        Even two paragraphs.
    **more: Others.

Returns:
    An id.
"""
NUMPY = """Send it.

At once.

Parameters
----------
to : str
    The address.
body, more : str, optional
    The text
    of it.

Returns
-------
str
    An id.
"""
SPHINX = """Send it.

At once.

:param to: The address.
:type to: str
:param str body: The text
    of it.
:returns: An id.
"""


def test_google_docstring_is_split() -> None:
    text, meanings = split_docstring(GOOGLE)
    assert text == "Send it.\n\nAt once.\n\nReturns:\n    An id."
    assert meanings == {
        "to": "The address.",
        "body": "The text: long or short. Even two paragraphs.",
        "more": "Others.",
    }


def test_numpy_docstring_is_split() -> None:
    text, meanings = split_docstring(NUMPY)
    assert text == "Send it.\n\nAt once.\n\nReturns\n-------\nstr\n    An id."
    assert meanings == {"to": "The address.", "body": "The text of it.", "more": "The text of it."}


def test_sphinx_docstring_is_split() -> None:
    text, meanings = split_docstring(SPHINX)
    assert text == "Send it.\n\nAt once.\n\n:returns: An id."
    assert meanings == {"to": "The address.", "body": "The text of it."}


@pytest.mark.parametrize(
    ("doc", "text"),
    [
        (None, ""),
        ("  One line.  ", "One line."),
        ("Args:", "Args:"),
        ("Do.\n\nParameters\n\nare nice.", "Do.\n\nParameters\n\nare nice."),
        ("Do.\n\nArgs:\n    not an entry\n", "Do.\n\nArgs:\n    not an entry"),
    ],
)
def test_docstrings_without_parameters(doc: str | None, text: str) -> None:
    assert split_docstring(doc) == (text, {})


def test_jsonschema_is_imported_late() -> None:
    code = "import sys, sayso.schema; print('jsonschema' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


# -- functions that are inspected again


def test_equal_parameters_share_only_a_model() -> None:
    def made(text: str) -> Signature:
        def pay(to: str, amount: int = 1) -> str:
            return to

        pay.__doc__ = f"Pay.\n\nArgs:\n    to: {text}\n"
        return Signature.of(pay)

    one, other = made("A name."), made("An account.")
    assert one._arguments is other._arguments
    assert one.parameters["properties"]["to"]["description"] == "A name."
    assert other.parameters["properties"]["to"]["description"] == "An account."
    assert one.parameters["properties"]["amount"] is not other.parameters["properties"]["amount"]


def test_equal_defaults_of_other_types_stay_distinct() -> None:
    def made(value: Any) -> Signature:
        def pay(amount=value):  # type: ignore[no-untyped-def]
            return amount

        return Signature.of(pay)

    values = (1, True, 1.0, 0, False, 0.0, -0.0, "", None)
    taken = [made(value).intake({}) for value in values]
    assert taken == [codec.canonical({"amount": value}) for value in values]
    defaults = [made(value).parameters["properties"]["amount"]["default"] for value in values]
    assert [repr(value) for value in defaults] == [repr(value) for value in values]
