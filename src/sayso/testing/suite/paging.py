"""Lists of requests: filters, order, and pages without gaps or duplicates while others write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sayso.rows import Call
from sayso.stores.base import Query, Viewer
from sayso.stores.listing import is_for
from sayso.testing.world import World, seconds
from sayso.types import Reviewer, Risk


def _ids(found: list[tuple[int, Call]]) -> list[str]:
    return [call.id for _, call in found]


def _walk(
    world: World, query: Query, between: Callable[[int], None] = lambda page: None
) -> list[str]:
    """Read all pages of a query, and call a function between them."""
    seen: list[str] = []
    for page in range(1_000):
        found = world.store.page(query)
        assert len(found) <= query.limit
        if not found:
            return seen
        seen += _ids(found)
        query = replace(query, after=found[-1][0])
        between(page)
    raise AssertionError("the pages do not end")


class Paging:
    """``page``, ``groups``, ``waiting`` and ``calls_like``."""

    def _one_of_each(self, world: World) -> dict[str, Call]:
        calls = {
            "asked": world.ask(),
            "approved": world.decide(world.ask()),
            "edited": world.decide(world.ask(), "edit", args={}),
            "rejected": world.decide(world.ask(), "reject"),
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
        calls = self._one_of_each(world)
        found = _ids(world.store.page(Query(status=status)))
        assert found == [calls[name].id for name in names]

    def test_closed_and_any(self, world: World) -> None:
        calls = self._one_of_each(world)
        never_asked = {calls[name].id for name in ("allowed", "denied", "ran")}
        pending = set(_ids(world.store.page(Query())))
        everything = {call.id for call in calls.values()}
        assert set(_ids(world.store.page(Query(status="any")))) == everything - never_asked
        listed = world.store.listed_calls([*everything, "req_none"])
        assert {one.call for one in listed} == {world.call(call) for call in calls.values()}
        assert {one.call.id for one in listed if not one.list_status} == never_asked
        assert sum(count for _, count in world.store.call_counts()) == len(everything)
        closed = set(_ids(world.store.page(Query(status="closed"))))
        assert closed == everything - never_asked - pending

    def test_by_kind(self, world: World) -> None:
        calls = self._one_of_each(world)
        for kind, name in (("question", "question"), ("in_doubt", "in_doubt")):
            assert _ids(world.store.page(Query(kind=kind))) == [calls[name].id]
        assert _ids(world.store.page(Query(kind="approval"))) == [calls["asked"].id]

    def test_by_place_agent_and_tool(self, world: World) -> None:
        one = world.ask("send")
        (two,) = world.propose(world.new("pay"), run="r2", thread="t2", agent="other")
        for filters, call in [
            ({"tool": "send"}, one),
            ({"tool": "pay"}, two),
            ({"agent": "agent"}, one),
            ({"agent": "other"}, two),
            ({"thread": "t"}, one),
            ({"run": "r2"}, two),
            ({"run": "r2", "agent": "other", "tool": "pay", "thread": "t2"}, two),
        ]:
            assert _ids(world.store.page(Query(**filters))) == [call.id], filters  # type: ignore[arg-type]
        assert world.store.page(Query(run="r2", agent="agent")) == []

    def test_oldest_and_newest_first(self, world: World) -> None:
        made = [world.ask().id for _ in range(5)]
        assert _ids(world.store.page(Query())) == made
        assert _ids(world.store.page(Query(sort="newest"))) == made[::-1]
        assert _ids(world.store.page(Query(limit=2))) == made[:2]

    def test_soonest_end_first_and_those_without_one_last(self, world: World) -> None:
        ends = [30, None, 10, 20, None, 10]
        made = [world.ask(expires_in=end).id for end in ends]
        order = [made[n] for n in (2, 5, 3, 0, 1, 4)]
        assert _ids(world.store.page(Query(sort="expiring"))) == order
        for limit in (1, 2, 3, 4):
            assert _walk(world, Query(sort="expiring", limit=limit)) == order

    @pytest.mark.parametrize("limit", [1, 2, 3, 7])
    @pytest.mark.parametrize("sort", ["oldest", "newest", "expiring"])
    @pytest.mark.parametrize("status", ["pending", "any", "closed"])
    def test_all_pages_together_are_the_whole(
        self, world: World, status: str, sort: str, limit: int
    ) -> None:
        self._one_of_each(world)
        whole = _ids(world.store.page(Query(status=status, sort=sort, limit=100)))
        assert _walk(world, Query(status=status, sort=sort, limit=limit)) == whole

    @pytest.mark.parametrize("sort", ["oldest", "newest", "expiring"])
    @pytest.mark.parametrize("status", ["pending", "any"])
    def test_nothing_is_lost_or_doubled_while_others_write(
        self, world: World, status: str, sort: str
    ) -> None:
        ends = [None, 500, 100, 300, None, 200, 400, 250, 150, None, 50, 600]
        made = [world.ask(expires_in=end).id for end in ends]
        gone: set[str] = set()

        def between(page: int) -> None:
            # Decide the last request shown and one not yet shown, and make a new one.
            last = [call.id for _, call in world.store.page(Query(sort=sort, limit=3))]
            for call_id in (last[0], made[(7 * page + 5) % len(made)]):
                if world.call(call_id).status == "asked":
                    world.decide(call_id, "reject")
                    gone.add(call_id)
            world.ask(expires_in=[None, 5, 275, 10_000][page % 4])

        def limited(page: int) -> None:
            if page < 6:
                between(page)

        seen = _walk(world, Query(status=status, sort=sort, limit=2), limited)
        assert len(seen) == len(set(seen)), "a row came twice"
        lost = set(made) - set(seen)
        assert lost <= (gone if status == "pending" else set()), "a row was lost"

    def test_a_cursor_from_nowhere_is_no_error(self, world: World) -> None:
        made = [world.ask(expires_in=5).id, world.ask().id]
        for sort, first in (("oldest", made), ("newest", []), ("expiring", made)):
            assert _ids(world.store.page(Query(sort=sort, after=0))) == first
        for sort in ("oldest", "newest", "expiring"):
            world.store.page(Query(sort=sort, after=10**40))
            world.store.page(Query(sort=sort, after=-(10**40)))

    def test_how_many_wait(self, world: World) -> None:
        assert world.store.waiting() == {"asked": 0, "in_doubt": 0}
        self._one_of_each(world)
        found = [call.status.value for _, call in world.store.page(Query(limit=99))]
        counted = {name: found.count(name) for name in ("asked", "in_doubt")}
        assert world.store.waiting() == counted
        assert min(counted.values()) > 0

    def _crowd(self, world: World) -> None:
        """Requests that differ in everything that groups tell apart."""
        self._one_of_each(world)
        member = Reviewer("ana", groups=("money",), assurance="token")
        for n in range(6):
            world.ask("pay", run=f"r{n % 2}", thread=f"t{n % 2}", expires_in=[None, 9, 5][n % 3])
        world.ask("pay", risk=Risk("high"), reviewers=("ana", "group:money"))
        world.decide(world.ask("pay", reviewers=("group:money",)), by=member)
        world.propose(
            world.new("send", reviewers=("ben",)), run="r9", thread="t9", requester="cleo"
        )
        world.propose(world.new("send"), run="r8", thread="t8", agent="other", requester="cleo")

    def test_groups_count_what_the_pages_list(self, world: World) -> None:
        self._crowd(world)
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

    def test_outcomes_are_those_of_the_pages(self, world: World) -> None:
        self._crowd(world)
        for status, sort, limit in (("any", "newest", 99), ("pending", "oldest", 3)):
            for names in (None, ("zoe",), ("ana",), ("cleo", "group:money")):
                viewer = Viewer(names=None if names is None else frozenset(names))
                listed = world.store.page(Query(status=status, sort=sort, limit=limit))
                calls = [call for _, call in listed]
                found = world.store.outcomes(viewer, status=status, sort=sort, limit=limit)
                assert sorted(at for one in found for at in one.created) == sorted(
                    call.created for call in calls
                )
                visible = [call for call in calls if is_for(viewer, call)]
                decided = [c.decision for c in visible if c.decision is not None]
                people = [(d.by, d.at) for d in decided if d.channel != "policy"]
                seen = [one for one in found if one.visible]
                assert sum(len(one.created) for one in seen) == len(visible)
                assert sorted((one.decided_by, at) for one in seen for at in one.decided) == sorted(
                    people
                )
                assert sorted(at for one in seen for at in one.expired) == sorted(
                    call.expires_at or 0 for call in visible if call.status == "expired"
                )

    def test_counts_follow_every_move(self, world: World) -> None:
        calls = self._one_of_each(world)
        assert world.store.miscounted() == 0
        world.decide(calls["asked"])
        world.decide(calls["in_doubt"], "reject")
        assert world.store.waiting() == {"asked": 1, "in_doubt": 0}
        assert sum(group.count for group in world.store.groups(Query(), Viewer())) == 1
        assert world.store.miscounted() == 0

    def test_ids_by_their_beginning(self, world: World) -> None:
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
