"""Lists of requests and runs: filters, order, search, groups, and pages while others write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sayso import codec
from sayso.engine.commands import Propose, Reask
from sayso.errors import NotAllowed
from sayso.rows import Call, Delivery, Tool
from sayso.stores.base import DecisionTime, Query, Viewer
from sayso.stores.listing import (
    APPROVING,
    DECIDED,
    OPEN,
    SLOT,
    is_for,
    list_status_of,
    sees_group,
    took_width,
)
from sayso.types import Reviewer, Risk
from sayso_testing.world import RUN, SECOND, World, seconds, tool_of


def _found(world: World, **filters: Any) -> list[str]:
    return [call.id for _, call in world.store.page(Query(**filters))]


def _counted(world: World, **filters: Any) -> int:
    return sum(group.count for group in world.store.groups(Query(**filters), Viewer()))


def _walk(
    world: World,
    *,
    limit: int = 2,
    between: Callable[[int], None] = lambda page: None,
    **filters: Any,
) -> list[str]:
    """Read all pages of a query, and call a function between them."""
    query, seen = Query(limit=limit, **filters), list[str]()
    for page in range(1_000):
        found = world.store.page(query)
        assert len(found) <= limit
        if not found:
            return seen
        seen += [call.id for _, call in found]
        query = replace(query, after=found[-1][0])
        between(page)
    raise AssertionError("the pages do not end")


class ListTests:
    """``page``, ``groups``, ``tallies``, ``waiting`` and ``calls_like``."""

    def _add_one_of_each(self, world: World) -> dict[str, Call]:
        calls = {
            "asked": world.ask(),
            "approved": world.decide(world.ask()),
            "edited": world.decide(world.ask(), "edit", args={}),
            "rejected": world.decide(world.ask(args={"to": "eve"}), "reject"),
            "responded": world.decide(world.ask(), "respond", value=1),
            "expired": world.ask(expires_in=1),
            "cancelled": world.ask(),
            "superseded": world.ask(),
            "question": world.ask(tool="", kind="question"),
            "allowed": world.ready(),
            "denied": world.ask(verdict="deny"),
            "ran": world.record(world.running()),
        }
        world.clock.advance(1)
        world.expire(calls["expired"])
        world.cancel(calls["cancelled"])
        world.cancel(calls["superseded"], superseded=True)
        done = world.decide(world.ask())
        calls["done"] = world.record(world.start(done)[0])
        failed = world.decide(world.ask())
        calls["failed"] = world.record(world.start(failed)[0], ok=False)
        calls["in_doubt"] = world.doubted()
        given_up = world.doubted()
        calls["given_up"] = world.decide(given_up, "reject")
        return calls

    @pytest.mark.parametrize(
        ("status", "names"),
        [
            ("pending", ["asked", "question", "in_doubt"]),
            ("approved", ["approved", "done", "failed", "given_up"]),
            ("edited", ["edited"]),
            ("rejected", ["rejected"]),
            ("responded", ["responded"]),
            ("expired", ["expired"]),
            ("cancelled", ["cancelled"]),
            ("superseded", ["superseded"]),
        ],
    )
    def test_by_status(self, world: World, status: str, names: list[str]) -> None:
        calls = self._add_one_of_each(world)
        found = _found(world, status=status)
        assert found == [calls[name].id for name in names]

    def test_closed_and_any(self, world: World) -> None:
        calls = self._add_one_of_each(world)
        never_asked = {calls[name].id for name in ("allowed", "denied", "ran")}
        pending = set(_found(world))
        everything = {call.id for call in calls.values()}
        assert set(_found(world, status="any")) == everything - never_asked
        listed = world.store.listed_calls([*everything, "req_none"])
        assert {row.call for row in listed} == {world.call(call) for call in calls.values()}
        assert {row.call.id for row in listed if not row.list_status} == never_asked
        assert sum(count for _, count in world.store.call_counts()) == len(everything)
        closed = set(_found(world, status="closed"))
        assert closed == everything - never_asked - pending

    def test_by_kind(self, world: World) -> None:
        calls = self._add_one_of_each(world)
        for kind, name in (("question", "question"), ("in_doubt", "in_doubt")):
            assert _found(world, kind=kind) == [calls[name].id]
        assert _found(world, kind="approval") == [calls["asked"].id]

    def test_by_place_agent_and_tool(self, world: World) -> None:
        first = world.ask("send")
        (second,) = world.propose(world.new("pay"), run="r2", thread="t2", agent="other")
        for filters, call in [
            ({"tool": "send"}, first),
            ({"tool": "pay"}, second),
            ({"agent": "agent"}, first),
            ({"agent": "other"}, second),
            ({"thread": "t"}, first),
            ({"run": "r2"}, second),
            ({"run": "r2", "agent": "other", "tool": "pay", "thread": "t2"}, second),
        ]:
            assert _found(world, **filters) == [call.id], filters
        assert world.store.page(Query(run="r2", agent="agent")) == []

    def test_oldest_and_newest_first(self, world: World) -> None:
        ids = [world.ask().id for _ in range(5)]
        assert _found(world) == ids
        assert _found(world, sort="newest") == ids[::-1]
        assert _found(world, limit=2) == ids[:2]

    def test_expiring_sort_lists_requests_without_end_last(self, world: World) -> None:
        ends = [30, None, 10, 20, None, 10]
        ids = [world.ask(expires_in=end).id for end in ends]
        order = [ids[n] for n in (2, 5, 3, 0, 1, 4)]
        assert _found(world, sort="expiring") == order
        for limit in (1, 2, 3, 4):
            assert _walk(world, sort="expiring", limit=limit) == order

    @pytest.mark.parametrize("limit", [1, 2, 3, 7])
    @pytest.mark.parametrize("sort", ["oldest", "newest", "expiring"])
    @pytest.mark.parametrize("status", ["pending", "any", "closed"])
    def test_pages_join_to_the_full_list(
        self, world: World, status: str, sort: str, limit: int
    ) -> None:
        self._add_one_of_each(world)
        full = _found(world, status=status, sort=sort, limit=100)
        assert _walk(world, status=status, sort=sort, limit=limit) == full

    @pytest.mark.parametrize("sort", ["oldest", "newest", "expiring"])
    @pytest.mark.parametrize("status", ["pending", "any"])
    def test_pages_neither_lose_nor_repeat_during_writes(
        self, world: World, status: str, sort: str
    ) -> None:
        ends = [None, 500, 100, 300, None, 200, 400, 250, 150, None, 50, 600]
        ids = [world.ask(expires_in=end).id for end in ends]
        gone: set[str] = set()

        def between(page: int) -> None:
            # Decide the last request shown and one not yet shown, and make a new one.
            if page >= 6:
                return
            last = [call.id for _, call in world.store.page(Query(sort=sort, limit=3))]
            for call_id in (last[0], ids[(7 * page + 5) % len(ids)]):
                if world.call(call_id).status == "asked":
                    world.decide(call_id, "reject")
                    gone.add(call_id)
            world.ask(expires_in=[None, 5, 275, 10_000][page % 4])

        seen = _walk(world, between=between, status=status, sort=sort)
        assert len(seen) == len(set(seen)), "a row came twice"
        lost = set(ids) - set(seen)
        assert lost <= (gone if status == "pending" else set()), "a row was lost"

    def test_unknown_cursor_of_a_page_is_no_error(self, world: World) -> None:
        ids = [world.ask(expires_in=5).id, world.ask().id]
        for sort, first in (("oldest", ids), ("newest", []), ("expiring", ids)):
            assert _found(world, sort=sort, after=0) == first
        for sort in ("oldest", "newest", "expiring"):
            world.store.page(Query(sort=sort, after=10**40))
            world.store.page(Query(sort=sort, after=-(10**40)))

    def test_counts_of_pending_requests(self, world: World) -> None:
        assert world.store.waiting() == {"asked": 0, "in_doubt": 0}
        self._add_one_of_each(world)
        found = [call.status.value for _, call in world.store.page(Query(limit=99))]
        counted = {name: found.count(name) for name in ("asked", "in_doubt")}
        assert world.store.waiting() == counted
        assert min(counted.values()) > 0

    def _add_varied_requests(self, world: World) -> None:
        """Requests that differ in everything that groups tell apart."""
        self._add_one_of_each(world)
        member = Reviewer("ana", groups=("money",))
        for n in range(6):
            world.ask("pay", run=f"r{n % 2}", thread=f"t{n % 2}", expires_in=[None, 9, 5][n % 3])
        world.ask("pay", risk=Risk("high"), reviewers=("ana", "group:money"))
        world.decide(world.ask("pay", reviewers=("group:money",)), by=member)
        world.propose(
            world.new("send", reviewers=("ben",)), run="r9", thread="t9", requester="cleo"
        )
        world.propose(world.new("send"), run="r8", thread="t8", agent="other", requester="cleo")

    def test_groups_match_the_pages(self, world: World) -> None:
        self._add_varied_requests(world)
        for query in (
            Query(),
            Query(status="any"),
            Query(status="closed"),
            Query(kind="in_doubt"),
            Query(kind="question"),
            Query(kind="approval", tool="pay"),
            Query(agent="other"),
            Query(risk="high"),
            Query(run="r1"),
            Query(thread="t0", tool="pay"),
            Query(text="pay"),
            Query(expires_by=world.clock() + seconds(6)),
            Query(text="req_00"),
            Query(text="req_0001", risk="low"),
            Query(text="nothing"),
        ):
            for viewer in (
                Viewer(),
                Viewer(names=frozenset(("zoe",))),
                Viewer(names=frozenset(("zoe", "group:money"))),
                Viewer(names=frozenset(("ana",))),
                Viewer(names=frozenset(("cleo",))),
                Viewer(names=frozenset(("cleo",)), only_theirs=True),
                Viewer(names=frozenset(("ana",)), only_theirs=True),
            ):
                self._check_groups(world, query, viewer)

    def _check_groups(self, world: World, query: Query, viewer: Viewer) -> None:
        by_group: dict[tuple[str, ...], list[Call]] = {}
        for _, call in world.store.page(replace(query, limit=99)):
            if is_for(viewer, call):
                kind = "in_doubt" if call.status == "in_doubt" else call.kind
                key = (kind, call.agent, call.tool, call.terms.risk.level)
                by_group.setdefault(key, []).append(call)
        found = world.store.groups(query, viewer)
        keys = [(group.kind, group.agent, group.tool, group.risk) for group in found]
        assert sorted(by_group) == keys, (query, viewer)
        for key, group in zip(keys, found, strict=True):
            calls = by_group[key]
            ends = [call.expires_at for call in calls if call.expires_at is not None]
            assert group.count == len(calls), (query, viewer)
            assert group.expires == min(ends, default=None)
            assert group.created == min(call.created for call in calls)

    def test_tallies_match_the_pages(self, world: World) -> None:
        began = world.clock() // SLOT * SLOT
        self._add_varied_requests(world)
        for hours in (1, 30, 200):
            self._check_tallies(world, began)
            calls = self._add_one_of_each(world)
            world.clock.advance(hours * 3600)
            world.decide(calls["question"], "respond", value=1)
            world.decide(calls["in_doubt"], "reject")
            self._check_tallies(world, began)
        # An earlier time than that of other requests: the clock was set back.
        world.clock.set(world.clock() - seconds(100 * 3600))
        world.decide(world.ask("late"))
        self._check_tallies(world, began)

    def _check_tallies(self, world: World, began: int) -> None:
        hour, pages = seconds(3600), world.store.page(Query(status="any", limit=999))
        for names in (None, ("zoe",), ("ana",), ("cleo", "group:money")):
            viewer = Viewer(names=None if names is None else frozenset(names))
            for since in ([began], [began - hour, began, began + hour, began + 40 * hour]):
                tallies: Counter[tuple[str, str, str, int]] = Counter()
                times: Counter[DecisionTime] = Counter()
                for _, call in pages:
                    if not sees_group(viewer, call.terms.reviewers):
                        continue
                    for what, at in _moments(call):
                        period = sum(start // SLOT <= at // SLOT for start in since) - 1
                        if period < 0:
                            continue
                        tallies[what, call.kind, call.tool, period] += 1
                        if call.decision is not None and what in DECIDED:
                            took = max(at - call.created, 0) // seconds(1)
                            took -= took % took_width(took)
                            approved = what in APPROVING
                            times[DecisionTime(call.decision.by, approved, took)] += 1
                found = world.store.tallies(viewer, since)
                assert found.times == times
                assert tallies == {
                    (tally.what, tally.kind, tally.tool, period): count
                    for tally in found.tallies
                    for period, count in enumerate(tally.counts)
                    if count
                }
            waiting = [call for _, call in pages if list_status_of(call) in OPEN]
            created = [c.created for c in waiting if sees_group(viewer, c.terms.reviewers)]
            ages = world.store.open_ages(viewer, [began, began + hour])
            newer = [sum(began <= at < began + hour for at in created)]
            newer.append(sum(at >= began + hour for at in created))
            assert ages == (len(created), min(created, default=None), tuple(newer))

    def test_pruned_requests_are_no_longer_counted(self, world: World) -> None:
        began = world.clock()
        for name in ("old", "new"):
            call = world.decide(world.ask(run=name, thread=name))
            world.record(world.start(call)[0])
            world.finish(run=name, thread=name)
            world.clock.advance(3600)
        assert sum(world.store.tallies(Viewer(), [began]).times.values()) == 2
        assert world.store.prune(began + seconds(3600), "ana")["calls"] == 1
        assert sum(world.store.tallies(Viewer(), [began]).times.values()) == 1

    def test_counts_follow_every_move(self, world: World) -> None:
        calls = self._add_one_of_each(world)
        assert world.store.miscounted() == 0
        world.decide(calls["asked"])
        world.decide(calls["in_doubt"], "reject")
        assert world.store.waiting() == {"asked": 1, "in_doubt": 0}
        assert sum(group.count for group in world.store.groups(Query(), Viewer())) == 1
        assert world.store.miscounted() == 0

    def test_calls_like_finds_ids_by_prefix(self, world: World) -> None:
        for name in ("req_aa1", "req_aa2", "req_ab", "REQ_AA", "req_a%"):
            world.ask(id=name)
        store = world.store
        assert store.calls_like("req_aa", 9) == ["req_aa1", "req_aa2"]
        assert store.calls_like("req_aa1", 9) == ["req_aa1"]
        assert store.calls_like("req_a%", 9) == ["req_a%"]
        assert store.calls_like("req_a_", 9) == []
        assert len(store.calls_like("req_", 2)) == 2
        assert store.calls_like("", 9) != []
        assert store.calls_like("none", 9) == []


class SearchTests:
    """``page`` with a text and other filters, ``runs``, ``threads_of``, ``next_due``."""

    def _add_two_mails(self, world: World) -> tuple[Call, Call]:
        mail = world.ask("send_mail", description='Mails the "100%" offer', risk=Risk("high"))
        new = world.new("payInvoice", id="req_special")
        (pay,) = world.propose(new, run="r2", thread="t2", agent="Ops-Bot")
        return mail, pay

    @pytest.mark.parametrize(
        "text",
        ["mail", "SEND_", "send_mail", "sendmail", "sendMail", "offer mails", "of ma se", "100%"],
    )
    def test_search_matches_the_start_of_words(self, world: World, text: str) -> None:
        mail, _ = self._add_two_mails(world)
        assert _found(world, text=text) == [mail.id]

    @pytest.mark.parametrize(
        "text", ["pay", "invoice", "payinv", "PayInvoice", "bot", "ops bot", "opsbot", "invoice op"]
    )
    def test_names_are_split_at_capitals_and_marks(self, world: World, text: str) -> None:
        _, pay = self._add_two_mails(world)
        assert _found(world, text=text) == [pay.id]

    @pytest.mark.parametrize(
        "text", ["ail", "mail pay", "nothing", "%", "_", "\\", "'", "' OR 1=1 --", "\x00", "mailx"]
    )
    def test_search_without_a_match_is_empty(self, world: World, text: str) -> None:
        self._add_two_mails(world)
        assert _found(world, text=text) == []

    def test_search_by_the_start_of_an_id(self, world: World) -> None:
        _, pay = self._add_two_mails(world)
        for text in ("req_special", "req_spe", "special", "spe", " req_spec "):
            assert _found(world, text=text) == [pay.id], text
        for text in ("req_", "req_sp", "sp", "ecial", "req_specially"):
            assert _found(world, text=text) == [], text

    @pytest.mark.parametrize("text", ["hunter2", "hunter", "HUNTER2", "4821", "482", "tiger7"])
    def test_search_finds_no_masked_value(self, world: World, text: str) -> None:
        properties = {"code": {"type": "string", "writeOnly": True}}
        schema = codec.dumps({"parameters": {"type": "object", "properties": properties}})
        tool = tool_of("login")._replace(schema=schema).redigested()
        secrets = {"password": "hunter2", "pin": 4821, "code": "tiger7", "to": "ana"}
        descriptions = ("Signs in with Hunter2", "Enter 4821 first", "Opens TIGER7 for ana")
        calls = []
        for number, description in enumerate(descriptions):
            new = world.new("login", key=f"k{number}", args=secrets, description=description)
            propose = Propose(
                thread="t",
                run="r",
                agent="a",
                calls=(replace(new, tool_digest=tool.digest),),
                tools=(tool,),
            )
            calls += world.transact(propose)[0]
        assert _found(world, text=text) == []
        assert _found(world, text="signs") == [calls[0].id]
        assert _found(world, text="opens ana") == [calls[2].id]
        edited = world.decide(calls[0], "edit", args={**secrets, "password": "other-one"})
        assert _found(world, text=text, status="any") == []
        assert _found(world, text="signs", status="any") == [edited.id]

    @pytest.mark.parametrize(
        "text",
        ["Hooli", "A-16", "ana@hooli.example", "ledger", "41.5", "order 17", "refund hooli", "ben"],
    )
    def test_search_finds_titles_and_arguments(self, world: World, text: str) -> None:
        args = {"to": "ana@hooli.example", "lines": [{"item": "A-16", "euros": 41.5}]}
        new = world.new("refund", args=args, title="Refund to the Ledger")
        (call,) = world.propose(new, run="order-17", thread="t2", requester="ben")
        world.ask("refund", args={"to": "x" * 201 + " hooliganism"})
        assert _found(world, text=text) == [call.id]
        assert _found(world, text=text, sort="expiring") == [call.id]
        assert _counted(world, text=text) == 1
        world.decide(call, "reject")
        assert _found(world, text=text) == []
        assert _found(world, text=text, status="any", sort="newest") == [call.id]
        assert _counted(world, text=text) == 0

    def test_search_follows_an_edit(self, world: World) -> None:
        call = world.ask("refund", args={"to": "hooli"})
        edited = world.decide(call, "edit", args={"to": "initech"})
        assert _found(world, text="initech", status="any") == [edited.id]
        assert _found(world, text="hooli", status="any") == []

    def test_search_meets_common_words_along_the_list(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls = [
            world.ask("pay", args={"to": f"hooli {n}", "city": "Bern" if n % 2 else "Ulm"})
            for n in range(10)
        ]
        bern = [call.id for call in calls[1::2]]
        assert _counted(world, text="hooli bern") == 5
        monkeypatch.setattr("sayso.stores.sql.reads.MANY_CALLS", 3)
        assert _found(world, text="hooli bern") == bern
        assert _found(world, text="hooli bern", sort="newest") == bern[::-1]
        assert _found(world, text="pay hooli 7") == [calls[7].id]

    def test_empty_text_is_no_filter(self, world: World) -> None:
        mail, pay = self._add_two_mails(world)
        assert _found(world, text="") == _found(world, text=None) == [mail.id, pay.id]

    def test_search_ignores_case_and_normalizes_letters(self, world: World) -> None:
        call = world.ask("überweisen", description="Straße ÉCLAIR 送金 ﬁnal")
        for text in ("ÜBER", "strasse", "éclair", "E\u0301CLAIR", "送", "final"):
            assert _found(world, text=text) == [call.id], text

    def test_search_falls_back_to_the_tool_description(self, world: World) -> None:
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

    def test_text_combines_with_every_other_filter(self, world: World) -> None:
        mail, pay = self._add_two_mails(world)
        assert _found(world, text="pay", tool="send_mail") == []
        assert _found(world, text="mail", tool="send_mail", agent="agent") == [mail.id]
        assert _found(world, text="mail", run="r") == _found(world, text="mail", thread="t")
        assert _found(world, text="mail", thread="t2") == []
        assert _found(world, text="special", thread="t2") == [pay.id]
        assert _found(world, text="special", thread="t2", tool="send_mail") == []
        assert _found(world, text="special", agent="agent") == []
        assert _found(world, text="mail", sort="expiring") == [mail.id]
        assert _found(world, text="special", sort="expiring") == [pay.id]

    def test_search_follows_status_and_description(self, world: World) -> None:
        call = world.ask("pay", description="first words")
        terms = replace(world.decide(call).terms, description="second thoughts")
        (again,) = world.transact(Reask(**RUN, call=call.id, reason="changed", terms=terms))
        assert _found(world, text="first") == []
        assert _found(world, text="second") == [again.id]
        world.decide(again, "reject")
        assert _found(world, text="second") == []
        assert _found(world, text="second", status="rejected") == [call.id]
        assert _found(world, text="second", status="any") == [call.id]

    def test_search_separates_similar_descriptions(self, world: World) -> None:
        calls = [world.ask("pay", description=f"Invoice {n} for {'abc'[n % 3]}") for n in range(12)]
        assert _found(world, text="invoice 7") == [calls[7].id]
        assert _found(world, text="invoice 1") == [calls[n].id for n in (1, 10, 11)]
        for sort, order in (("oldest", calls), ("newest", calls[::-1])):
            assert _walk(world, text="invoice", sort=sort) == [call.id for call in order]

    @pytest.mark.parametrize("sort", ["oldest", "newest", "expiring"])
    @pytest.mark.parametrize("status", ["pending", "closed", "any", "rejected"])
    def test_filters_agree_with_reading_everything(
        self, world: World, status: str, sort: str
    ) -> None:
        for n in range(14):
            new = world.new(
                f"tool_{n % 3}",
                {"to": n},
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
            full = [c for _, c in world.store.page(Query(status=status, sort=sort, limit=999))]
            wanted = [call.id for call in full if _matches(call, some)]
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
        full = [run.id for _, run in world.store.runs(limit=99, **filters)]
        seen: list[str] = []
        after: str | None = None
        while page := world.store.runs(after=after, limit=2, **filters):
            seen += [run.id for _, run in page]
            after = page[-1][0]
        assert seen == full
        return seen

    def test_unknown_key_of_a_page_is_no_error(self, world: World) -> None:
        world.ask()
        for key in ("", "x", "9" * 40, "9" * 40 + ".z", "-1.r", "1", ".", "0.r"):
            assert len(world.store.runs(after=key)) in (0, 1)
            assert world.store.threads_of("ana", after=key) == []

    def test_first_requester_owns_the_thread(self, world: World) -> None:
        for n, who in enumerate(["ana", "bo", "ana", "", "ana"]):
            world.propose(run=f"r{n}", thread=f"t{n}", says=("hello",), requester=who)
            world.clock.advance(1)
        world.finish(run="r1", thread="t1")
        for other in ("ana", "", "agent:bo"):
            with pytest.raises(NotAllowed, match="belongs to bo"):
                world.propose(run="r9", thread="t1", says=("me too",), requester=other)
        assert world.store.run("r9") is None
        world.propose(run="r9", thread="t1", says=("more",), requester="bo")
        world.propose(run="r10", thread="t10", says=("hello",), requester="agent:ana")
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

    def test_next_due(self, world: World) -> None:
        store, start = world.store, world.clock()
        assert store.next_due() is None
        world.ask()
        assert store.next_due() is None, "it waits for ever"
        late = world.ask(expires_in=90)
        soon = world.ask(args={"to": "eve"}, expires_in=60, run="r2", thread="t2")
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

    def test_cursor_moves_only_from_its_expected_position(self, world: World) -> None:
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

    # -- deliveries

    def test_delivery_is_added_once_and_changed_at_its_version(self, world: World) -> None:
        store = world.store
        row = _delivery("one", next_at=5)
        assert store.put_deliveries([row, _delivery("two", next_at=3), row]) == [True, True, False]
        stored = store.delivery("one")
        assert stored == row._replace(version=1)
        sent = stored._replace(state="sent", next_at=None, message="[7]")
        assert store.put_deliveries([sent, sent]) == [True, False]
        assert store.put_deliveries([sent._replace(state="gone")]) == [False]
        world.reopen()
        assert world.store.delivery("one") == sent._replace(version=2)
        assert world.store.put_deliveries([sent._replace(version=2, state="gone")]) == [True]
        assert world.store.delivery("one") is None

    def test_deliveries_are_listed_by_channel_and_request(self, world: World) -> None:
        store = world.store
        late = _delivery("a", next_at=9)
        soon = _delivery("b", next_at=2, created=8)
        rows = [late, soon, _delivery("c"), _delivery("d", channel="slack", request="")]
        assert store.put_deliveries(rows) == [True] * 4
        assert [row.id for row in store.next_deliveries("telegram", 9)] == ["b", "a"]
        assert [row.id for row in store.next_deliveries("telegram", 1)] == ["b"]
        assert [row.id for row in store.deliveries_of("req_1")] == ["a", "c", "b"]
        assert store.deliveries_of("") == []
        assert store.count_deliveries() == {("telegram", "due"): 3, ("slack", "due"): 1}

    def test_vitals_report_work_that_waits(self, world: World) -> None:
        store = world.store
        vitals = store.vitals()
        assert (vitals.oldest_request, vitals.runs_due, vitals.overdue) == (None, 0, 0)
        assert vitals.backlogs == {}
        first = world.ask(expires_in=60)
        world.clock.advance(30)
        world.ask(run="later", thread="later")
        assert store.vitals().oldest_request == first.created
        assert store.vitals().unsealed_since == first.created
        world.clock.advance(40)
        vitals = store.vitals()
        assert (vitals.overdue, vitals.overdue_since) == (1, first.expires_at)
        failed = _delivery("failed", next_at=9)._replace(attempts=1, error="no answer")
        assert store.put_deliveries([failed, _delivery("new", next_at=9)]) == [True, True]
        assert {name: row.failing for name, row in store.vitals().backlogs.items()} == {
            "telegram": 1
        }

    def test_vitals_count_due_runs_of_agents(self, world: World) -> None:
        (call,) = world.propose(world.new("send"), agent_digest="v1")
        assert world.store.vitals().runs_due == 0
        world.decide(call, "reject")
        vitals = world.store.vitals()
        assert (vitals.runs_due, vitals.runs_due_since) == (1, world.clock())

    def test_delivery_is_pruned_with_its_request(self, world: World) -> None:
        call = world.ask()
        rows = [_delivery("mine", request=call.id), _delivery("other", request="req_other")]
        assert world.store.put_deliveries(rows) == [True, True]
        world.decide(call, "reject")
        world.finish()
        world.clock.advance(100)
        world.store.prune(world.clock(), "admin")
        assert world.store.delivery("mine") is None
        assert world.store.delivery("other") is not None


def _delivery(name: str, **fields: Any) -> Delivery:
    plain: dict[str, Any] = {"channel": "telegram", "target": "77", "person": "ana"}
    plain |= {"request": "req_1", "digest": "d", "step": "asked", "created": 1}
    return Delivery(id=name, **plain | fields)


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


def _moments(call: Call) -> list[tuple[str, int]]:
    """Return what statistics count of a call, and when it happened."""
    status = list_status_of(call)
    moments = [("asked", call.created)] if status else []
    if status == "expired":
        moments.append((status, call.expires_at or call.created))
    elif status in DECIDED and call.decision is not None and call.decision.channel != "policy":
        moments.append((status, call.decision.at))
    return moments
