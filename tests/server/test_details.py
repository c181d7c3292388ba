"""Access to messages and counts around calls that are for others."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from served import FINANCE_ONLY, FOR_FINANCE, Serve, opened
from test_audiences import SECRETS, decide, people, requests

import sayso
from sayso.server import details
from sayso.testing import ScriptedModel, call, say
from sayso.types import Reviewer


async def test_text_about_hidden_calls_is_veiled(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    @sayso.tool(needs_approval=True, reviewers=["group:finance"])
    def pay(account: str) -> str:
        """Pay."""
        return "paid, balance 1230456"

    @sayso.tool(needs_approval=True)
    def mail(to: str) -> str:
        """Mail."""
        return "mailed"

    script = [
        call("pay", {"account": "DE-payee"}, text="I pay DE-payee now."),
        say("DE-payee has it, 1230456 are left."),
        call("pay", {"account": "DE-payee"}, text="DE-payee again."),
        call("mail", {"to": "ana"}, text="It is paid, ana is next."),
        say("DE-payee is paid, and ana knows."),
        say("You are welcome."),
    ]
    agent = sayso.Agent("banker", model=ScriptedModel(script), tools=[pay, mail])
    server = serve(agents=[agent], workers=0)
    cleo, ana, fin, boss = people(server)
    inbox = server.app.state.sayso.inbox
    by = Reviewer("fin", ("finance",), "token")

    async def said(words: str) -> None:
        result = await agent.run(words, thread="c1", requester="cleo")
        while result.interruptions:
            (request,) = result.interruptions
            if request.tool == "mail":
                break
            await inbox.decide(request.id, request.approve(), by=by)
            result = await agent.resume("c1")

    await said("Pay DE-payee")
    assert ana.get("/api/chat/c1/messages").status_code == 404
    await said("Again, and tell ana")
    mail_request = requests(ana)["mail"]
    run = mail_request["run"]
    places = [f"/api/requests/{mail_request['id']}", f"/api/runs/{run}", "/api/runs"]
    places += ["/api/chat/c1/messages", "/api/chat/c1/stream"]

    def check(*shown: str) -> None:
        for place in places:
            text = ana.get(place).text
            assert not [secret for secret in SECRETS if secret in text], (place, text)
        for place in (places[0], places[3]):
            assert [words for words in shown if words not in ana.get(place).text] == []
            for client in (fin, boss) if shown else ():
                assert "1230456 are left" in client.get(place).text

    check("Again, and tell ana", "It is paid, ana is next.")
    decide(ana, mail_request)
    await agent.resume("c1")
    check("Again, and tell ana", "It is paid, ana is next.", "may describe a call")
    assert "DE-payee is paid" in fin.get(f"/api/runs/{run}").json()["output"]
    assert "may describe" in ana.get(f"/api/runs/{run}").json()["output"]
    await said("Thanks")
    check("Thanks", "You are welcome.")
    monkeypatch.setattr(details, "_LAST_MESSAGES", 3)  # where only the end of an exchange is read
    tail = ana.get(places[0]).json()["conversation"]
    assert [turn.get("veiled", False) for turn in tail] == [True, False, False]
    check()
    assert "DE-payee has it" in cleo.get(places[3]).text


def test_figures_count_only_visible_requests(serve: Serve) -> None:
    server = serve(policy=FOR_FINANCE)
    bot = server.client(server.token("bot", "agent"))
    _, ana, fin, boss = people(server)
    opened(bot, "waits", tool="pay", args=FINANCE_ONLY)
    decide(fin, opened(bot, "paid", tool="pay", args=FINANCE_ONLY))
    decide(ana, opened(bot, "mailed", tool="mail"))

    def told(client: httpx.Client) -> tuple[Any, ...]:
        figures = client.get("/api/stats").json()
        tools = {row["tool"]: row["asked"] for row in figures["tools"]}
        names = {row["name"] for row in figures["reviewers"]}
        asked = sum(day["asked"] for day in figures["per_day"])
        return figures["open"]["count"], figures["decided"]["count"], asked, tools, names

    assert told(ana) == (0, 1, 1, {"mail": 1}, {"ana"})
    assert told(fin) == told(boss) == (1, 2, 3, {"pay": 2, "mail": 1}, {"ana", "fin"})


def test_conflict_quotes_no_digest(serve: Serve) -> None:
    server = serve()
    bot, ana = server.client(server.token("bot", "agent")), server.client(server.token("ana"))
    made = opened(bot, args={"pin": 4711})
    body = {"type": "approve", "seen_digest": "0" * 64}
    refused = ana.post(f"/api/requests/{made['id']}/decision", json=body)
    assert (refused.status_code, "revision 1" in refused.text) == (409, True)
    assert made["digest"][:8] not in refused.text


def test_result_without_its_call_follows_the_tool() -> None:
    """Only the end of a conversation is read, and a result names its call by a provider's id."""
    store = sayso.open_store("memory://")
    gate = sayso.Gate(store, policy=FOR_FINANCE, agent="desk", wait=0)

    @gate.guard
    def refund(amount: int, audience: str = "") -> None: ...

    for thread, args in (("t1", FINANCE_ONLY), ("t2", {"amount": 5})):
        with pytest.raises(sayso.Paused), gate.run(thread):
            refund(**args)
    result = {"role": "tool", "call_id": "call_0", "name": "refund", "content": "5 euros"}
    ana, fin = Reviewer("ana"), Reviewer("fin", ("finance",))

    def withheld(by: Reviewer, thread: str) -> bool:
        return details.MessageVisibility(store, thread, by).of([result])[0].text

    assert [withheld(by, "t1") for by in (ana, fin)] == [True, False]
    assert [withheld(by, "t2") for by in (ana, fin)] == [False, False]
    store.close()
