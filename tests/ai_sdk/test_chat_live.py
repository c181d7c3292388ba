"""How often a client gets an update, and how few rows are read for it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from ai_sdk_browser import Browser, chunks_in

import sayso
from sayso.adapters.chat import live
from sayso.stores.base import Store
from sayso.testing import ScriptedModel, call, say


@sayso.tool(needs_approval=True)
def fire(target: str) -> str:
    return f"fired {target}"


def gunner(store: Store) -> sayso.Agent:
    model = ScriptedModel([call("fire", {"target": "x"}), say("It is done, and well.")])
    return sayso.Agent("gunner", model=model, tools=[fire], store=store)


async def approved(browser: Browser) -> list[str]:
    """The pieces of the answer to an approval."""
    await browser.say("go")
    (part,) = browser.open_cards
    browser.respond(part, True)
    return [piece async for piece in await browser.stream()]


async def test_chunks_are_batched_until_the_end(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_TOGETHER_SECONDS", 3600.0)
    monkeypatch.setattr(live, "_QUIET_SECONDS", 3600.0)
    first, last = await approved(Browser(gunner(store)))
    assert '"status":"approved"' in first  # what was decided is seen at once
    types = [chunk["type"] for chunk in chunks_in(first + last)]
    assert types == [
        *("start", "data-request", "tool-output-available"),
        *("start-step", "text-start", "text-delta", "text-end", "finish-step", "finish"),
    ]


async def test_unbatched_answer_is_the_same(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_TOGETHER_SECONDS", 0.0)
    chunks = chunks_in("".join(await approved(Browser(gunner(store)))))
    assert "".join(c.get("delta", "") for c in chunks) == "It is done, and well."
    outputs = [c["output"] for c in chunks if c["type"] == "tool-output-available"]
    assert outputs == ["fired x"]


async def test_approval_reads_rows_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_TOGETHER_SECONDS", 3600.0)
    monkeypatch.setattr(live, "_QUIET_SECONDS", 3600.0)
    asked: Counter[str] = Counter()
    browser = Browser(gunner(store))
    await browser.say("go")
    for name in ("chain", "messages"):
        monkeypatch.setattr(store, name, _counted(getattr(store, name), name, asked))
    (part,) = browser.open_cards
    browser.respond(part, True)
    await browser.post()
    assert asked["chain"] == 0  # whose chat it is was known
    assert asked["messages"] == 3  # by the chat before and after, and by the agent


def _counted(method: Any, name: str, asked: Counter[str]) -> Any:
    def counted(*args: Any, **options: Any) -> Any:
        asked[name] += 1
        return method(*args, **options)

    return counted


async def test_stranger_is_refused_with_cached_owner(store: Store) -> None:
    agent = gunner(store)
    owner, stranger = Browser(agent), Browser(agent, by="eve")
    await owner.say("go")
    with pytest.raises(sayso.NotFound):
        await stranger.say("go")
    stranger.messages = owner.messages
    (part,) = owner.open_cards
    owner.respond(part, True)
    with pytest.raises(sayso.NotFound):
        await stranger.post()
    await owner.post()
    assert owner.tools[0]["output"] == "fired x"
