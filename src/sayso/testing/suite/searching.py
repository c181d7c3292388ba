"""Search: requests by text, risk and age, and the lists of runs and threads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sayso.engine.commands import Propose, Reask
from sayso.rows import Call, Tool
from sayso.stores.base import Query
from sayso.testing.world import SECOND, World, seconds, tool_of
from sayso.types import Risk


def _found(world: World, **filters: Any) -> list[str]:
    return [call.id for _, call in world.store.page(Query(**filters))]


def _walk(world: World, **filters: Any) -> list[str]:
    """Return all pages, read two rows at a time."""
    query, seen = Query(limit=2, **filters), list[str]()
    while page := world.store.page(query):
        seen += [call.id for _, call in page]
        query = replace(query, after=page[-1][0])
    return seen


class Searching:
    """``page`` with a text and other filters, ``runs``, ``threads_of``, ``next_due``."""

    def _mail(self, world: World) -> tuple[Call, Call]:
        mail = world.ask("send_mail", description='Mails the "100%" offer', risk=Risk("high"))
        new = world.new("payInvoice", id="req_special")
        (pay,) = world.propose(new, run="r2", thread="t2", agent="Ops-Bot")
        return mail, pay

    @pytest.mark.parametrize(
        "text",
        ["mail", "SEND_", "send_mail", "sendmail", "sendMail", "offer mails", "of ma se", "100%"],
    )
    def test_words_begin_alike(self, world: World, text: str) -> None:
        mail, _ = self._mail(world)
        assert _found(world, text=text) == [mail.id]

    @pytest.mark.parametrize(
        "text", ["pay", "invoice", "payinv", "PayInvoice", "bot", "ops bot", "opsbot", "invoice op"]
    )
    def test_names_are_split_at_capitals_and_marks(self, world: World, text: str) -> None:
        _, pay = self._mail(world)
        assert _found(world, text=text) == [pay.id]

    @pytest.mark.parametrize(
        "text", ["ail", "mail pay", "nothing", "%", "_", "\\", "'", "' OR 1=1 --", "\x00", "mailx"]
    )
    def test_what_is_not_there_is_not_found(self, world: World, text: str) -> None:
        self._mail(world)
        assert _found(world, text=text) == []

    def test_requests_by_how_their_id_begins(self, world: World) -> None:
        _, pay = self._mail(world)
        for text in ("req_special", "req_spe", "special", "spe", " req_spec "):
            assert _found(world, text=text) == [pay.id], text
        for text in ("req_", "req_sp", "sp", "ecial", "req_specially"):
            assert _found(world, text=text) == [], text

    def test_an_empty_text_is_no_filter(self, world: World) -> None:
        mail, pay = self._mail(world)
        assert _found(world, text="") == _found(world, text=None) == [mail.id, pay.id]

    def test_letters_of_the_world(self, world: World) -> None:
        call = world.ask("überweisen", description="Straße ÉCLAIR 送金 ﬁnal")
        for text in ("ÜBER", "strasse", "éclair", "E\u0301CLAIR", "送", "final"):
            assert _found(world, text=text) == [call.id], text

    def test_the_tools_own_description_counts_where_the_terms_have_none(self, world: World) -> None:
        tool = tool_of("pay")._replace(description="Moves money abroad").redigested()

        def propose(*tools: Tool, **terms: Any) -> str:
            new = replace(world.new("pay", **terms), tool_digest=tool.digest)
            world.transact(Propose(thread="t", run="r", agent="a", calls=(new,), tools=tools))
            return new.id

        plain, described = propose(tool), propose(tool, description="Refunds a customer")
        assert _found(world, text="money abroad") == [plain]
        assert _found(world, text="refund pay") == [described]
        world.reopen()
        propose()
        assert len(_found(world, text="money")) == 2, "the tool is known, and was not sent again"

    def test_words_go_with_every_other_filter(self, world: World) -> None:
        mail, pay = self._mail(world)
        assert _found(world, text="pay", tool="send_mail") == []
        assert _found(world, text="mail", tool="send_mail", agent="agent") == [mail.id]
        assert _found(world, text="mail", run="r") == _found(world, text="mail", thread="t")
        assert _found(world, text="mail", thread="t2") == []
        assert _found(world, text="special", thread="t2") == [pay.id]
        assert _found(world, text="special", thread="t2", tool="send_mail") == []
        assert _found(world, text="special", agent="agent") == []
        assert _found(world, text="mail", sort="expiring") == [mail.id]
        assert _found(world, text="special", sort="expiring") == [pay.id]

    def test_a_search_follows_what_becomes_of_a_request(self, world: World) -> None:
        call = world.ask("pay", description="first words")
        reask = _reask(world.decide(call), description="second thoughts")
        (again,) = world.store.transact(reask)
        assert _found(world, text="first") == []
        assert _found(world, text="second") == [again.id]
        world.decide(again, "reject")
        assert _found(world, text="second") == []
        assert _found(world, text="second", status="rejected") == [call.id]
        assert _found(world, text="second", status="any") == [call.id]

    def test_each_call_with_a_description_of_its_own(self, world: World) -> None:
        made = [world.ask("pay", description=f"Invoice {n} for {'abc'[n % 3]}") for n in range(12)]
        assert _found(world, text="invoice 7") == [made[7].id]
        assert _found(world, text="invoice 1") == [made[n].id for n in (1, 10, 11)]
        for sort, order in (("oldest", made), ("newest", made[::-1])):
            assert _walk(world, text="invoice", sort=sort) == [call.id for call in order]

    @pytest.mark.parametrize("sort", ["oldest", "newest", "expiring"])
    @pytest.mark.parametrize("status", ["pending", "closed", "any", "rejected"])
    def test_filters_agree_with_reading_everything(
        self, world: World, status: str, sort: str
    ) -> None:
        for n in range(14):
            new = world.new(
                f"tool_{n % 3}",
                description="" if n % 2 else f"words number {n}",
                risk=Risk(("low", "high")[n % 2]),
                expires_in=(None, 500, 100 + n)[n % 3],
                verdict="allow" if n == 5 else "ask",
            )
            place: Any = {"run": f"r{n % 4}", "thread": f"t{n % 4}", "agent": f"agent {n % 2}"}
            (call,) = world.propose(new, **place)
            world.clock.advance(1)
            if n % 4 == 1 and n != 5:
                world.decide(call, ("reject", "approve")[n % 8 > 4])
        filters: list[dict[str, Any]] = [
            {},
            {"tool": "tool_1"},
            {"agent": "agent 1"},
            {"agents": ("agent 0", "agent 1")},
            {"agents": ()},
            {"risk": "high"},
            {"risk": "critical"},
            {"kind": "approval"},
            {"text": "words"},
            {"text": "tool 2"},
            {"text": "number", "agent": "agent 0", "tool": "tool_2"},
            {"created_after": world.clock() - seconds(5)},
            {"created_after": world.clock() - seconds(7), "tool": "tool_0"},
            {"thread": "t1", "risk": "high"},
            {"created_after": world.clock() + 1},
        ]
        for some in filters:
            whole = [c for _, c in world.store.page(Query(status=status, sort=sort, limit=999))]
            wanted = [call.id for call in whole if _matches(call, some)]
            assert _found(world, status=status, sort=sort, **some) == wanted, some
            assert _walk(world, status=status, sort=sort, **some) == wanted, some

    # -- runs and threads

    def test_runs_are_listed_newest_first(self, world: World) -> None:
        for n in range(7):
            place: Any = {"run": f"r{n}", "thread": f"t{n % 6}", "agent": f"a{n % 2}"}
            (call,) = world.propose(world.new(), **place)
            if n == 0:
                world.decide(call, "reject")
            if n % 3 == 0:
                world.finish(("done", "failed")[n % 2], run=f"r{n}", thread=f"t{n % 6}")
            world.clock.advance(n % 2)
        everything = [f"r{n}" for n in range(6, -1, -1)]
        assert sorted(self._runs(world)) == sorted(everything)
        stamps = [(run.created, run.id) for _, run in world.store.runs()]
        assert stamps == sorted(stamps, reverse=True)
        for filters in (
            {"status": "paused"},
            {"status": "failed"},
            {"agent": "a1"},
            {"agent": "a1", "status": "paused"},
            {"thread": "t0"},
            {"thread": "t0", "status": "done"},
            {"thread": "t0", "agent": "a0", "status": "done"},
            {"agent": "nobody"},
            {"thread": "nowhere"},
        ):
            wanted = [
                run.id
                for _, run in world.store.runs(limit=99)
                if all(getattr(run, name) == value for name, value in filters.items())
            ]
            assert self._runs(world, **filters) == wanted, filters

    def _runs(self, world: World, **filters: Any) -> list[str]:
        """Read all pages, and check that together they are the full list."""
        whole = [run.id for _, run in world.store.runs(limit=99, **filters)]
        seen: list[str] = []
        after: str | None = None
        while page := world.store.runs(after=after, limit=2, **filters):
            seen += [run.id for _, run in page]
            after = page[-1][0]
        assert seen == whole
        return seen

    def test_a_key_from_nowhere_is_no_error(self, world: World) -> None:
        world.ask()
        for key in ("", "x", "9" * 40, "9" * 40 + ".z", "-1.r", "1", ".", "0.r"):
            assert len(world.store.runs(after=key)) in (0, 1)
            assert world.store.threads_of("ana", after=key) == []

    def test_who_speaks_first_owns_the_conversation(self, world: World) -> None:
        for n, who in enumerate(["ana", "bo", "ana", "", "ana"]):
            world.propose(run=f"r{n}", thread=f"t{n}", says=("hello",), requester=who)
            world.clock.advance(1)
        world.finish(run="r1", thread="t1")
        world.propose(run="r9", thread="t1", says=("me too",), requester="ana")
        mine = world.store.threads_of("ana")
        assert [thread.id for _, thread in mine] == ["t4", "t2", "t0"]
        assert {thread.owner for _, thread in mine} == {"ana"}
        assert [thread.id for _, thread in world.store.threads_of("ana", mine[0][0], 1)] == ["t2"]
        assert world.store.threads_of("ana", mine[-1][0]) == []
        assert [thread.id for _, thread in world.store.threads_of("bo")] == ["t1"]
        assert world.store.threads_of("") == world.store.threads_of("nobody") == []
        world.reopen()
        again = world.store.threads_of("ana")
        assert [thread.id for _, thread in again] == ["t4", "t2", "t0"]

    # -- what is due next

    def test_the_next_time_that_something_is_due(self, world: World) -> None:
        store, start = world.store, world.clock()
        assert store.next_due() is None
        world.ask()
        assert store.next_due() is None, "it waits for ever"
        late = world.ask(expires_in=90)
        soon = world.ask(expires_in=60, run="r2", thread="t2")
        assert store.next_due() == start + 60 * SECOND
        assert store.next_due(start + 60 * SECOND) == start + 90 * SECOND
        assert store.next_due(start + 90 * SECOND) is None
        world.decide(soon, "reject")
        assert store.next_due(start) == start + 90 * SECOND
        world.running(run="r3", thread="t3", lease=seconds(30))
        assert store.next_due(start) == start + 30 * SECOND
        world.cancel(late)
        assert store.next_due(start + 30 * SECOND) is None

    # -- cursors of readers

    def test_a_cursor_is_moved_by_one_only(self, world: World) -> None:
        store = world.store
        assert store.cursor("hooks") == ""
        assert not store.move_cursor("hooks", "5", expected="4")
        assert store.move_cursor("hooks", "5", expected="")
        assert not store.move_cursor("hooks", "6", expected="")
        assert store.move_cursor("hooks", "7", expected="5")
        assert (store.cursor("hooks"), store.cursor("other")) == ("7", "")
        world.reopen()
        assert world.store.cursor("hooks") == "7"
        assert world.store.move_cursor("other", "1", expected="")


def _reask(call: Call, **terms: Any) -> Reask:
    return Reask(
        thread=call.thread,
        run=call.run,
        call=call.id,
        reason="changed",
        terms=replace(call.terms, **terms),
    )


def _matches(call: Call, filters: dict[str, Any]) -> bool:
    """Return whether a call matches, by a second, plain implementation of the filters."""
    text = f"{call.tool} {call.agent} {call.terms.description}".replace("_", " ")
    tests: dict[str, Any] = {
        "tool": lambda value: call.tool == value,
        "agent": lambda value: call.agent == value,
        "agents": lambda value: call.agent in value,
        "risk": lambda value: call.terms.risk.level == value,
        "kind": lambda value: call.kind == value,
        "thread": lambda value: call.thread == value,
        "created_after": lambda value: call.created >= value,
        "text": lambda value: all(word in text.split() for word in value.split()),
    }
    return all(tests[name](value) for name, value in filters.items())
