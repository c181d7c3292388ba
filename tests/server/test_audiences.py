"""Audiences of calls, runs and grants: others see only that they exist."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from served import FINANCE_ONLY, FOR_FINANCE, Serve, Served, opened
from test_feed import reading

import sayso
from sayso import Policy, Rule, open_store
from sayso.inbox.people import Audience
from sayso.server.audiences import EventAudiences
from sayso.testing import ScriptedModel, call, calls, say
from sayso.types import Reviewer

KEY = "sk-" + "b" * 40


def banker() -> sayso.Agent:
    """Pays for the people of finance, mails for everybody, in one turn."""

    @sayso.tool(needs_approval=True, reviewers=["group:finance"])
    def pay(account: str, euros: int) -> str:
        """Pay."""
        return f"paid {euros} to {account}, balance 1230456"

    @sayso.tool(needs_approval=True)
    def mail(to: str) -> str:
        """Mail."""
        return f"mailed {to}"

    pays = call("pay", {"account": "DE-payee", "euros": 7770777})
    both = calls(pays, call("mail", {"to": "ana"}))
    model = ScriptedModel([both, say("Both are done."), call("mail", {"to": "ben"}), say("Bye.")])
    return sayso.Agent("banker", model=model, tools=[pay, mail])


SECRETS = ("DE-payee", "7770777", "1230456", "8880888")


@pytest.fixture
def bank(serve: Serve) -> Served:
    return serve(agents=[banker()])


def people(server: Served) -> tuple[httpx.Client, ...]:
    roles = (("cleo", "chat"), ("ana", "reviewer"), ("fin", "reviewer", "finance"))
    return tuple(server.client(server.token(*role)) for role in (*roles, ("boss", "admin")))


def post(client: httpx.Client, words: str) -> None:
    said = {"id": words, "role": "user", "parts": [{"type": "text", "text": words}]}
    answer = client.post("/api/chat", json={"id": "c1", "messages": [said]})
    assert answer.status_code == 200


def requests(client: httpx.Client, **query: str) -> dict[str, Any]:
    found = client.get("/api/requests", params=query).json()["items"]
    return {item["tool"]: item for item in found}


def decide(client: httpx.Client, item: dict[str, Any], **body: Any) -> None:
    body = {"type": "approve", "seen_digest": item["digest"], **body}
    answer = client.post(f"/api/requests/{item['id']}/decision", json=body)
    assert answer.status_code == 200, answer.text


def test_hidden_calls_are_veiled_in_every_view(bank: Served) -> None:
    cleo, ana, fin, boss = people(bank)
    post(cleo, "Pay and mail")
    mail, pay = requests(ana)["mail"], requests(fin)["pay"]
    assert "pay" not in requests(ana)
    places = [f"/api/requests/{mail['id']}", f"/api/runs/{mail['run']}"]
    places += ["/api/chat/banker/c1/messages", "/api/chat/c1/stream", "/api/audit"]

    def check() -> None:
        for place in places:
            text = ana.get(place).text
            # That it was made is no secret; the record does not even say of what tool.
            assert ("pay" in text) == (place != "/api/audit"), place
            assert not [secret for secret in SECRETS if secret in text], place
        for client in (fin, boss):
            assert "DE-payee" in client.get(places[0]).text
            assert "DE-payee" in client.get(places[2]).text

    check()
    decide(fin, pay, type="edit", args={"account": "DE-payee", "euros": 8880888})
    decide(ana, mail)
    for _ in range(200):
        if "Both are done." in cleo.get("/api/chat/c1/messages").text:
            break
    check()
    post(cleo, "And ben")  # the calls are further up in the conversation now
    ben = requests(ana)["mail"]
    places[:2] = [f"/api/requests/{ben['id']}", f"/api/runs/{ben['run']}"]
    places.remove("/api/chat/c1/stream")  # which is of the last answer
    check()
    shown = ana.get(places[0]).json()["conversation"]
    (turn,) = [turn for turn in shown if len(turn.get("calls", ())) == 2]
    assert [made["name"] for made in turn["calls"]] == ["pay", "mail"]
    assert [made.get("veiled", False) for made in turn["calls"]] == [True, False]
    results = [turn for turn in shown if turn["role"] == "tool"]
    assert [turn.get("veiled", False) for turn in results] == [True, False]
    assert "mailed ana" in results[1]["text"]
    assert "DE-payee" in cleo.get("/api/chat/c1/messages").text  # it is their chat
    parts = [p for m in ana.get("/api/chat/c1/messages").json()["messages"] for p in m["parts"]]
    (veiled,) = [part for part in parts if part["type"] == "tool-pay"]
    assert (veiled["input"], veiled["state"]) == ({}, "output-available")  # over, and no failure
    assert "other reviewers" in veiled["output"]


def test_claimed_requester_may_not_see_request(serve: Serve) -> None:
    server = serve(policy=FOR_FINANCE)
    bot = server.client(server.token("bot", "agent"))
    made = opened(bot, args=FINANCE_ONLY, requester="ana")
    ana, ben = (server.client(server.token(name)) for name in ("ana", "ben"))
    assert ana.get(f"/api/requests/{made['id']}").status_code == 404
    assert ben.get(f"/api/requests/{made['id']}").status_code == 404


def test_feed_shows_only_visible_runs(bank: Served) -> None:
    _, ana, fin, boss = people(bank)
    others = sayso.Gate(bank.store, wait=0, agent="elsewhere")

    @others.guard(needs_approval=True, reviewers=["group:finance"])
    def wire(euros: int) -> str:
        """Wire."""
        return "wired"

    with reading(ana) as hers, reading(fin) as his, reading(boss) as all_of_it:
        for decided in (False, True):
            try:
                with others.run("secret-run"):
                    wire(5)
            except sayso.Paused as paused:
                assert not decided
                request = paused.requests[0]
                by = Reviewer("fin", ("finance",), "token")
                inbox = bank.app.state.sayso.inbox
                inbox.decide_sync(request.id, request.approve(), by=by)
        opened(bank.client(bank.token("bot", "agent")), run="open-run")
        seen = {}
        for name, reader in (("ana", hers), ("fin", his), ("boss", all_of_it)):
            found: list[dict[str, Any]] = []
            while not found or found[-1]["run"] != "bot/open-run":
                found.append(reader.next())
            seen[name] = found
    assert {event["run"] for event in seen["ana"]} == {"bot/open-run"}
    assert {"asked", "decided", "finished"} <= {e["type"] for e in seen["fin"]}
    assert "token_created" not in {event["type"] for event in seen["fin"]}
    assert "token_created" in {event["type"] for event in seen["boss"]}
    listed = {run["id"] for run in ana.get("/api/runs").json()["items"]}
    assert listed == {"bot/open-run"}


def test_sub_agent_run_is_visible_with_its_call(serve: Serve) -> None:
    inner = sayso.Agent("inner", model=ScriptedModel([say("The account is DE-payee.")]))
    looks = inner.as_tool(name="look_up")

    @sayso.tool(needs_approval=True, reviewers=["group:finance"])
    def pay(account: str) -> str:
        """Pay."""
        return "paid"

    turns = [call("look_up", {"input": "Whose?"}), call("pay", {"account": "DE-payee"})]
    outer = sayso.Agent("outer", model=ScriptedModel(turns), tools=[looks, pay])
    server = serve(agents=[outer])
    _, ana, fin, _ = people(server)
    assert outer.run_sync("Pay", thread="t").status == "paused"
    assert {run["agent"] for run in fin.get("/api/runs").json()["items"]} == {"inner", "outer"}
    assert ana.get("/api/runs").json()["items"] == []


def test_chat_before_its_request_is_private(bank: Served) -> None:
    cleo, ana, _, boss = people(bank)
    with reading(ana) as hers, reading(boss) as all_of_it:
        post(cleo, "Pay and mail")
        types = []
        while "asked" not in types:
            types.append(all_of_it.next()["type"])
        assert types[0] == "opened"
        assert hers.next()["type"] in ("asked", "opened", "claimed")


def test_record_hides_digests_of_masked_arguments(serve: Serve) -> None:
    server = serve()
    bot, ana = server.client(server.token("bot", "agent")), server.client(server.token("ana"))
    made = opened(bot, args={"pin": 4711})
    plain = opened(bot, key="k2", args={"amount": 5})
    revealed = ana.post(f"/api/requests/{made['id']}/reveal").json()
    decide(ana, revealed)
    places = ("/api/audit", f"/api/runs/{made['run']}", f"/api/requests/{made['id']}")
    for place in places:
        body = ana.get(place)
        assert made["digest"] not in body.text
        facts = body.json().get("items") or body.json().get("timeline") or body.json()["events"]
        mine = [f for f in facts if f["request"] == made["id"] or f["type"] == "revealed"]
        assert mine
        for fact in mine:
            assert not {"digest", "args", "salt"} & set(fact["body"]), fact
    assert plain["digest"] in ana.get("/api/audit").text


def test_secrets_in_messages_are_masked(serve: Serve) -> None:
    server = serve()
    bot, ana = server.client(server.token("bot", "agent")), server.client(server.token("ana"))
    question = {"text": f"Use {KEY}?", "options": [{"label": "Yes", "value": KEY}, "No"]}
    asked = opened(bot, "q", tool=None, args={}, question=question)
    risky = opened(bot, "r", risk={"level": "high", "reasons": [f"it has {KEY}"]})
    refused = opened(bot, "d")
    no = {"type": "reject", "message": f"not with {KEY}", "seen_digest": refused["digest"]}
    told = ana.post(f"/api/requests/{refused['id']}/decision", json=no)
    again = server.client(server.token("ben")).post(
        f"/api/requests/{refused['id']}/decision", json={**no, "message": "mine"}
    )
    assert again.status_code == 409
    off = opened(bot, "c")
    ana.post(f"/api/requests/{off['id']}/cancel", json={"message": f"because of {KEY}"})
    texts = [told.text, again.text]
    for made in (asked, risky, refused, off):
        for place in (f"/api/requests/{made['id']}", f"/api/runs/{made['run']}"):
            texts.append(ana.get(place).text)
    texts += [ana.get(f"/api/{name}").text for name in ("requests?status=any", "runs", "audit")]
    assert [text for text in texts if KEY in text] == []
    for made in (asked, risky):
        seen = ana.get(f"/api/requests/{made['id']}").json()
        assert (seen["masked"], seen["digest"]) == (True, None)
        assert KEY in ana.post(f"/api/requests/{made['id']}/reveal").text
    assert KEY in bot.get(f"/api/requests/{asked['id']}").text  # its own agent knows it


def test_schema_field_names_are_not_masked(serve: Serve) -> None:
    server = serve()
    bot, ana = server.client(server.token("bot", "agent")), server.client(server.token("ana"))
    schema = {"type": "object", "properties": {"password": {"type": "string"}}}
    asked = opened(bot, tool=None, args={}, question={"text": "Which?", "schema": schema})
    seen = ana.get(f"/api/requests/{asked['id']}").json()
    assert (seen["masked"], seen["question"]["schema"]) == (False, schema)


def test_grant_is_visible_with_its_call(serve: Serve) -> None:
    server = serve(policy=FOR_FINANCE)
    bot = server.client(server.token("bot", "agent"))
    ana, fin = (
        server.client(server.token("ana")),
        server.client(server.token("fin", "reviewer", "finance")),
    )
    made = opened(bot, args={"account": "DE-payee", "audience": "finance"})
    decide(fin, made, grant={"scope": "exact"})
    free = opened(bot, "k2", tool="login", args={"password": "hunter2"})
    decide(ana, ana.post(f"/api/requests/{free['id']}/reveal").json(), grant={"scope": "exact"})
    theirs, hers = fin.get("/api/grants").json()["items"], ana.get("/api/grants").json()["items"]
    assert [grant["tool"] for grant in hers] == ["login"]
    assert {grant["tool"] for grant in theirs} == {"login", "refund"}
    (paying,) = [grant for grant in theirs if grant["tool"] == "refund"]
    assert ana.delete(f"/api/grants/{paying['id']}").status_code == 404
    record = ana.get("/api/audit").text
    assert "DE-payee" not in record + json.dumps(hers)
    assert "hunter2" not in record + json.dumps(hers)
    assert "DE-payee" in fin.get("/api/audit").text
    assert fin.delete(f"/api/grants/{paying['id']}").status_code == 200


async def test_framework_calls_for_others_are_veiled(serve: Serve) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    from sayso.adapters.pydantic_ai import guard

    def pay(account: str) -> str:
        """Pay."""
        return f"paid to {account}"

    def mail(to: str) -> str:
        """Mail."""
        return f"mailed {to}"

    async def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        later = any(isinstance(message, ModelResponse) for message in messages)
        both = [ToolCallPart("pay", {"account": "DE-payee"}, "c1")]
        return ModelResponse(parts=[*([] if later else both), ToolCallPart("mail", {"to": "bo"})])

    server = serve()
    rules = [sayso.Rule("pay", reviewers=["group:finance"]), sayso.Rule("mail")]
    gate = sayso.Gate(server.store, agent="teller", wait=0)
    teller = guard(Agent(FunctionModel(reply), tools=[pay, mail]), gate, sayso.Policy(rules))
    await teller.run("go", thread="t1")
    inbox = server.app.state.sayso.inbox
    for request in (await inbox.pending()).items:
        by = Reviewer("fin", ("finance",), "token")
        await inbox.decide(request.id, request.approve(), by=by)
    await teller.resume("t1")
    _, ana, fin, _ = people(server)
    (waits,) = ana.get("/api/requests").json()["items"]
    for place in (f"/api/requests/{waits['id']}", f"/api/runs/{waits['run']}"):
        assert "paid to DE-payee" in fin.get(place).text
        assert "DE-payee" not in ana.get(place).text
        assert "mailed bo" in ana.get(place).text


def test_record_hides_names_from_other_reviewers(serve: Serve) -> None:
    server = serve(policy=Policy([Rule("fin_*", reviewers="group:finance")]))
    bot = server.client(server.token("payroll-bot", "agent"))
    ana = server.client(server.token("ana", "reviewer", "ops"))
    fin = server.client(server.token("fin", "reviewer", "finance"))
    admin = server.client(server.token("root", "admin"))
    made = opened(bot, tool="fin_pay", run="layoff-list", thread="merger-with-acme")
    fin.post(
        f"/api/requests/{made['id']}/decision",
        json={"type": "approve", "seen_digest": made["digest"]},
    )
    names = ("layoff-list", "merger-with-acme", "payroll-bot", made["digest"], "fin")
    for order in ("oldest", "newest"):
        seen = ana.get("/api/audit", params={"order": order}).json()["items"]
        whole = admin.get("/api/audit", params={"order": order}).json()["items"]
        assert [e["hash"] for e in seen] == [e["hash"] for e in whole]
        assert [e["type"] for e in seen] == [e["type"] for e in whole]
        assert [sorted(e) for e in seen] == [sorted(e) for e in whole]
        assert not [name for name in names if name in json.dumps(seen)]
        assert "layoff-list" in json.dumps(whole)
    assert "layoff-list" in fin.get("/api/audit").text


def test_verification_problems_hide_names_from_other_reviewers(
    serve: Serve, tmp_path: Path
) -> None:
    server = serve(policy=FOR_FINANCE)
    bot = server.client(server.token("bot", "agent"))
    opened(bot, run="layoff-list", args=FINANCE_ONLY)
    with closing(sqlite3.connect(tmp_path / "sayso.db")) as database, database:
        database.execute("UPDATE event SET actor = 'eve' WHERE thread LIKE '%layoff-list'")
    ana = server.client(server.token("ana")).post("/api/audit/verify").json()
    root = server.client(server.token("root", "admin")).post("/api/audit/verify").json()
    assert ana["ok"] is root["ok"] is False
    assert len(ana["problems"]) == len(root["problems"]) > 0
    assert "layoff-list" in json.dumps(root)
    assert "layoff-list" not in json.dumps(ana)


ADMINS_ONLY = Audience(everybody=False, names=frozenset())


@pytest.mark.parametrize("table", ["call", "run"])
def test_events_of_a_changed_row_are_for_admins(tmp_path: Path, table: str) -> None:
    """The row no longer proves who may see it."""
    store = open_store(tmp_path / "sayso.db")
    gate = sayso.Gate(store, agent="desk", wait=0)
    with pytest.raises(sayso.Paused), gate.run("r1", requester="cleo"):
        gate.confirm_sync("Publish?")
    gate.cancel_sync("r1")
    events = [event for _, event in store.events()]
    event = next(event for event in events if bool(event.call) is (table == "call"))
    assert EventAudiences(store).of(event) != ADMINS_ONLY
    with closing(sqlite3.connect(tmp_path / "sayso.db", isolation_level=None)) as file:
        file.execute(f"UPDATE {table} SET agent = 'another'")
    assert EventAudiences(store).of(event) == ADMINS_ONLY
    store.close()
