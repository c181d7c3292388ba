"""``title=``: the headline of a request, made of the arguments and covered by the digest."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import Gate, Inbox, InvalidCall, Paused
from sayso.engine.row_macs import row_mac
from sayso.redaction import title_of
from sayso.server.request_views import common_view
from sayso.stores.base import Store
from sayso.stores.memory import MemoryStore
from sayso.testing import FakeClock, ScriptedModel, call, say
from sayso.views import request_json
from sayso_testing.world import World

TEMPLATE = "Refund {euros} euros to order {order}"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def refunding(store: Store, **options: Any) -> Callable[..., str]:
    gate = Gate(store, wait=0)

    @gate.guard(needs_approval=True, **options)
    def refund(order: str, euros: float, password: str = "") -> str:
        """Give the money back."""
        return f"refunded {order}"

    def enter(*args: Any, **kwargs: Any) -> str:
        with gate.run("r"):
            return refund(*args, **kwargs)

    return enter


def paused(body: Callable[[], Any]) -> sayso.Request:
    with pytest.raises(Paused) as caught:
        body()
    return caught.value.requests[0]


def titled(store: Store, title: Any, *args: Any) -> str:
    return paused(lambda: refunding(store, title=title)(*args)).title


def test_title_template_uses_the_arguments(store: MemoryStore) -> None:
    request = paused(lambda: refunding(store, title=TEMPLATE)("A-1", 20))
    assert request.title == "Refund 20 euros to order A-1"
    assert Inbox(store).get_sync(request.id).title == request.title
    assert request_json(request)["title"] == request.title


def test_title_is_empty_by_default(store: MemoryStore) -> None:
    assert paused(lambda: refunding(store)("A-1", 20)).title == ""


def test_title_function_uses_the_arguments(store: MemoryStore) -> None:
    title = lambda args: f"{args['order']}: {args['euros']} euros"  # noqa: E731
    assert titled(store, title, "A-1", 20) == "A-1: 20 euros"


def test_digest_covers_the_title(store: MemoryStore) -> None:
    request = paused(lambda: refunding(store, title=lambda args: "small")("A-1", 20))
    row = store.call(request.id)
    assert row is not None
    changed = row._replace(title="smaller")
    mac = row_mac(changed, store._parts.deps.mac)  # as if the row key were known
    statement = "UPDATE call SET title = ?, mac = ? WHERE id = ?"
    store._connection.execute(statement, (changed.title, mac, row.id))
    Inbox(store).decide_sync(request.id, request.approve(), by="ana")
    with pytest.raises(sayso.Tampered, match="does not match its digest"):
        refunding(store)("A-1", 20)


def test_changed_title_template_asks_again(store: MemoryStore) -> None:
    request = paused(lambda: refunding(store, title=TEMPLATE)("A-1", 20))
    Inbox(store).decide_sync(request.id, request.approve(), by="ana")
    again = paused(lambda: refunding(store, title="Send {euros} euros")("A-1", 20))
    assert (again.id, again.title, again.status) == (request.id, "Send 20 euros", "pending")
    assert again.digest != request.digest


@pytest.mark.parametrize(
    "template",
    [
        *(
            "{order.__class__}",
            "{order[0]}",
            "{0}",
            "{}",
            "{order!r}",
            "{order:>9}",
            "{order:{euros}}",
        ),
        *("{unknown}", "{", "}", "{order", "x" * 400),
    ],
)
def test_title_template_with_unknown_name_is_refused(store: MemoryStore, template: str) -> None:
    with pytest.raises(InvalidCall, match="title"):
        refunding(store, title=template)


@pytest.mark.parametrize("title", [7, ["x"], b"x"])
def test_title_of_wrong_type_is_refused(store: MemoryStore, title: Any) -> None:
    with pytest.raises(TypeError, match="title"):
        refunding(store, title=title)


def test_coroutine_function_is_refused(store: MemoryStore) -> None:
    async def title(args: dict[str, Any]) -> str:
        return ""

    with pytest.raises(TypeError, match="sync function"):
        refunding(store, title=title)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("{euros}", "to {euros}"),
        ("{order.__class__}", "to {order.__class__}"),
        ("a\nb\t c", "to a b c"),
        ("a\u202eb", "to a⟨U+202E⟩b"),
        ("a\x1b[2Jb", "to a⟨U+001B⟩[2Jb"),
    ],
)
def test_hostile_argument_is_inert_in_the_title(store: MemoryStore, value: str, shown: str) -> None:
    assert titled(store, "to {order}", value, 1) == shown


def test_braces_can_be_written(store: MemoryStore) -> None:
    assert titled(store, "{{{order}}}", "A-1", 1) == "{A-1}"


def test_long_title_is_cut(store: MemoryStore) -> None:
    title = titled(store, "to {order}", "x" * 1000, 1)
    assert len(title) == 300
    assert title.endswith("…")


def test_title_masks_secret_arguments(store: MemoryStore) -> None:
    title = titled(store, "{order} with {password}", "A-1", 1, "hunter2hunter2")
    assert title == "A-1 with ••••"


@pytest.mark.parametrize("title", [lambda args: args["nope"], lambda args: 7, lambda args: None])
def test_failing_title_function_does_not_block_the_request(
    store: MemoryStore, title: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        request = paused(lambda: refunding(store, title=title)("A-1", 20))
    assert request.title == ""
    assert "no title" in caplog.text


def test_edit_renews_the_title(store: MemoryStore) -> None:
    request = paused(lambda: refunding(store, title=TEMPLATE)("A-1", 20))
    edited = Inbox(store).decide_sync(request.id, request.edit({"euros": 5.5}), by="ana")
    assert edited.title == "Refund 5.5 euros to order A-1"
    assert refunding(store, title=TEMPLATE)("A-1", 20) == "refunded A-1"


def test_edit_drops_a_title_made_by_code(store: MemoryStore) -> None:
    request = paused(lambda: refunding(store, title=lambda args: "20 euros")("A-1", 20))
    edited = Inbox(store).decide_sync(request.id, request.edit({"euros": 5.5}), by="ana")
    assert edited.title == ""


def test_questions_accept_a_plain_title(store: MemoryStore) -> None:
    gate = Gate(store, wait=0)
    with gate.run("r"):
        asked = paused(lambda: gate.ask_sync("Which?", title="A {question}"))
    with gate.run("r2"):
        confirmed = paused(lambda: gate.confirm_sync("Publish?", title="Release\n1.0"))
        with pytest.raises(InvalidCall, match="title"):
            gate.confirm_sync("Publish?", title=7)  # type: ignore[arg-type]
    assert (asked.title, confirmed.title) == ("A {question}", "Release 1.0")


def test_agent_tool_accepts_a_title(tmp_path: Path) -> None:
    @sayso.tool(needs_approval=True, title="Refund {order}")
    def refund(order: str) -> str:
        return f"refunded {order}"

    with pytest.raises(InvalidCall, match="has no argument 'unknown'"):
        sayso.tool(title="{unknown}", name="send")(lambda order: order)
    model = ScriptedModel([call("refund", {"order": "A-1"}), say("Done.")])
    store = f"sqlite:///{tmp_path / 'a.db'}"
    agent = sayso.Agent("clerk", model=model, tools=[refund], store=store)
    result = agent.run_sync("Go.", thread="t")
    assert [request.title for request in result.interruptions] == ["Refund A-1"]
    state = sayso.RunState.from_json(result.state.to_json())
    assert [request.title for request in state.interruptions] == ["Refund A-1"]


def test_hidden_characters_of_titles_are_escaped_once(store: MemoryStore) -> None:
    request = paused(lambda: refunding(store, title=TEMPLATE)("A\u202e-1 ⟨b⟩", 20))
    shown = common_view(request)["shown"]
    assert shown["title"] == "Refund 20 euros to order A⟨U+202E⟩-1 ⟨U+27E8⟩b⟨U+27E9⟩"
    assert title_of(request) == request.title == shown["title"]


@pytest.mark.parametrize(
    ("tool", "args", "title"),
    [
        ("getWeatherInformation", {"city": "Oslo"}, "Get weather information: Oslo"),
        ("send_email", {"body": "Hi,\nbye", "to": ["a", "b"]}, "Send email: 2 to"),
        ("HTTPGet", {"follow": True, "url": "http://x"}, "HTTP get: follow, http://x"),
        ("pay", {"api_key": "sk-" + "a" * 30, "euros": 5}, "Pay: ••••, 5"),
        ("fin.pay", {}, "Fin pay"),
        ("rm", {"path": "a\u202eb"}, "Rm: a⟨U+202E⟩b"),
        ("move", {"from": {"x": 1}, "to": None}, "Move"),
    ],
)
def test_missing_title_is_derived(tool: str, args: dict[str, Any], title: str) -> None:
    store = MemoryStore()
    call = World(store, FakeClock()).ask(tool, args=args)
    assert title_of(sayso.Inbox(store).get_sync(call.id)) == title
