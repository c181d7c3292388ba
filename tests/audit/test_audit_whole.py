"""What nobody touched is whole, whatever happened in it, also in use and after a crash."""

from __future__ import annotations

import hashlib
import hmac
import json
import shutil
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from audit_world import KEY, SERVER_KEY, World, opened, places

from assent import (
    Expired,
    Gate,
    Inbox,
    Paused,
    Policy,
    Question,
    Rejected,
    Reviewer,
    Rule,
    StoreError,
)
from assent.audit import export, verify
from assent.audit.facts import _LEADS_TO, _STAYS
from assent.engine.commands import Note, Record, Recover
from assent.keys import Keyring
from assent.rows import CallStatus
from assent.stores.memory import MemoryStore
from assent.stores.sqlite import SqliteStore
from assent.testing import FakeClock


class Interrupted(BaseException):
    """What stops a process while a call runs."""


class Everything:
    """One store in which everything has happened that can happen to a call."""

    def __init__(self, store: Any, clock: FakeClock) -> None:
        self.store, self.clock = store, clock
        self.gate = Gate(store, wait=0)
        self.inbox = Inbox(store)
        self.fails: BaseException | None = None

    def tool(self, **options: Any) -> Any:
        def send(to: str, subject: str = "hello") -> str:
            """Send a message."""
            if self.fails is not None:
                error, self.fails = self.fails, None
                raise error
            return f"sent to {to}"

        return self.gate.guard(**{"needs_approval": True, **options})(send)

    def ask(self, run: str, call: Any) -> Any:
        with pytest.raises(Paused) as paused, self.gate.run(run):
            call()
        self.check()
        return paused.value.requests[0]

    def decide(self, request: Any, decision: Any, by: Any = "ana", **options: Any) -> None:
        self.inbox.decide_sync(request.id, decision, by=by, **options)
        self.check()

    def go(self, run: str, call: Any) -> Any:
        try:
            with self.gate.run(run):
                return call()
        finally:
            self.check()

    def check(self) -> None:
        report = verify(self.store)
        assert report.problems == []

    # -- stories

    def plain_answers(self) -> None:
        send = self.tool()
        edit, no, answer = (self.ask(name, lambda: send("a")) for name in ("edit", "no", "answer"))
        self.decide(edit, edit.edit({"to": "b"}))
        assert self.go("edit", lambda: send("a")) == "sent to b"
        self.decide(no, no.reject("not today"))
        with pytest.raises(Rejected):
            self.go("no", lambda: send("a"))
        self.decide(answer, answer.respond("never mind"))
        assert self.go("answer", lambda: send("a")) == "never mind"
        size = self.ask("question", lambda: self.gate.ask_sync(Question("Size?")))
        self.decide(size, size.respond("L"))
        yes = self.ask("approval", lambda: self.gate.approve_sync("Publish?", {"n": 1}))
        self.decide(yes, yes.approve())
        assert self.go("approval", lambda: self.gate.approve_sync("Publish?", {"n": 1}))

    def endings(self) -> None:
        send = self.tool(expires_in=60)
        self.ask("late", lambda: send("a"))
        self.clock.advance(61)
        with pytest.raises(Expired):
            self.go("late", lambda: send("a"))
        cancelled = self.ask("cancelled", lambda: send("a"))
        self.inbox.cancel_sync(cancelled.id, by="ana")
        self.ask("superseded", lambda: send("a"))
        self.gate.supersede_sync("superseded")
        self.check()

    def quorum(self) -> None:
        send = self.tool(quorum=2, expires_in=60)
        ana, bob = Reviewer("ana", assurance="token"), Reviewer("bob", assurance="token")
        request = self.ask("quorum", lambda: send("a"))
        self.decide(request, request.approve(), ana)
        self.decide(request, request.edit({"to": "b"}), bob)
        request = self.inbox.get_sync(request.id)
        self.decide(request, request.approve(), ana)
        assert self.go("quorum", lambda: send("a")) == "sent to b"

    def rules(self) -> None:
        policy = Policy([Rule("send", verdict="deny"), Rule("note", verdict="allow")])
        gate = Gate(self.store, policy=policy, wait=0, agent="ruled")

        @gate.guard
        def send(to: str) -> str:
            return to

        @gate.guard
        def note(text: str) -> str:
            return text

        with pytest.raises(Exception, match="forbidden"), gate.run("denied"):
            send("a")
        with gate.run("allowed"):
            assert note("b") == "b"
        self.check()

    def again(self) -> None:
        send = self.tool(valid_for=60)
        request = self.ask("again", lambda: send("a"))
        self.decide(request, request.approve())
        self.clock.advance(61)
        request = self.ask("again", lambda: send("a"))
        self.decide(request, request.approve())
        changed = self.tool(version="2")
        request = self.ask("again", lambda: changed("a"))
        self.decide(request, request.approve())
        assert self.go("again", lambda: changed("a")) == "sent to a"

    def grants(self) -> None:
        send = self.tool(name="granted")
        request = self.ask("grant", lambda: send("a"))
        self.decide(request, request.approve(), grant={"scope": "any", "uses": 2})
        assert self.go("granted", lambda: send("b")) == "sent to b"
        self.fails = ValueError("no")
        with pytest.raises(ValueError, match="no"):
            self.go("failed", lambda: send("c"))
        self.ask("spent", lambda: send("d"))
        self.pauses(needs_approval=True, grant={"scope": "any", "uses": 1})

    def doubts(self) -> None:
        send = self.tool(expires_in=1000)
        for name, answer in (("run", "approve"), ("did", "respond"), ("give-up", "reject")):
            request = self.doubt(f"doubt-{name}", send)
            if answer == "respond":
                self.decide(request, request.respond("sent"))
            else:
                self.decide(request, getattr(request, answer)())
        request = self.doubt("doubt-late", send)
        self.late(request.id, "doubt-late")
        self.late(request.id, "doubt-late")  # nobody waits for it any more
        retried = self.tool(name="retried", idempotent=True)
        request = self.ask("retried", lambda: retried("a"))
        self.decide(request, request.approve())
        self.fails = Interrupted()
        with pytest.raises(Interrupted):
            self.go("retried", lambda: retried("a"))
        assert self.store.call(request.id).status is CallStatus.READY

    def doubt(self, run: str, send: Any) -> Any:
        request = self.ask(run, lambda: send("a"))
        self.decide(request, request.approve())
        self.fails = Interrupted()
        with pytest.raises(Interrupted):
            self.go(run, lambda: send("a"))
        doubted = self.inbox.get_sync(request.id)
        assert doubted.kind == "in_doubt"
        return doubted

    def late(self, call_id: str, run: str) -> None:
        call = self.store.call(call_id)
        token = {"token": call.token, "attempt": call.attempt}
        self.store.transact(
            Record(thread=run, run=run, call=call_id, ok=True, result='"x"', **token)
        )
        self.check()

    def pauses(self, needs_approval: bool = False, grant: Any = None) -> None:
        @self.gate.guard(needs_approval=needs_approval)
        def order() -> str:
            return str(self.gate.ask_sync("Which?"))

        if needs_approval:
            request = self.ask("granted-pause", order)
            self.decide(request, request.approve(), grant=grant)
        run = f"pauses-{needs_approval}"
        request = self.ask(run, order)
        assert request.question is not None
        self.decide(request, request.respond("this"))
        assert self.go(run, order) == "this"

    def restore(self) -> None:
        send = self.tool()
        request = self.ask("restored", lambda: send("a"))
        self.decide(request, request.approve())
        self.store.transact(Recover(thread="restored", run="restored", by="root"))
        self.check()
        self.store.transact(Note(type="policy_loaded", actor="gate", body={"digest": "x"}))
        self.check()

    def happen(self) -> None:
        for story in (
            self.plain_answers,
            self.endings,
            self.quorum,
            self.rules,
            self.again,
            self.grants,
            self.doubts,
            self.pauses,
            self.restore,
        ):
            story()
            self.store.seal()
            self.check()


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
def test_everything_that_can_happen_leaves_a_whole_store(kind: str, tmp_path: Path) -> None:
    clock = FakeClock()
    store: Any = MemoryStore(clock=clock)
    if kind == "sqlite":
        store = SqliteStore(tmp_path / "assent.db", clock=clock)
    everything = Everything(store, clock)
    everything.happen()
    seen = {event.type for _, event in store.events(limit=10_000)}
    assert {*_LEADS_TO, *_STAYS, "recorded", "decided"} <= seen
    clock.advance(1e6)
    assert store.prune(clock(), "ana")["runs"] > 5
    everything.check()
    report = verify(store)
    assert (report.ok, report.unsealed) == (True, 0)
    assert report.events == len(store.events(limit=10_000))
    store.close()


def test_an_empty_store_is_whole() -> None:
    report = verify(MemoryStore())
    assert (report.ok, report.threads, report.events, report.seals) == (True, 0, 0, 0)


def test_a_store_in_memory_is_not_trusted_either(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.close()
    store = MemoryStore()
    world.use(store)
    call = world.order("order-1")
    store.seal()
    assert world.verify().ok
    store._events[2] = store._events[2]._replace(actor="eve")
    assert places(world.verify()) == [("order-1", 3)]
    store._events[2] = store._events[2]._replace(actor=f"worker:{world.gate.owner}")
    assert world.verify().ok
    store._calls[call] = store._calls[call]._replace(result='"forged"')
    assert places(world.verify()) == [("order-1", 4)]
    del store._threads["order-1"]
    assert places(world.verify())[0] == ("order-1", 1)


# -- in use, after a crash, after a restore


def test_a_store_in_use_is_whole(tmp_path: Path) -> None:
    with opened(World(tmp_path)) as world:
        for n in range(5):
            world.order(f"order-{n}")
        stop = threading.Event()
        errors: list[BaseException] = []

        def work() -> None:
            n = 0
            try:
                while not stop.is_set():
                    world.order(f"busy-{n}")
                    request = world.ask("busy", lambda n=n: world.send(f"{n}@example.com"))
                    world.approve(request)
                    with world.gate.run("busy"):
                        world.send(f"{n}@example.com")
                    if n % 7 == 0:
                        world.store.seal()
                    if n % 11 == 10:
                        world.clock.advance(1)
                        world.store.prune(world.clock(), "ana")
                    n += 1
            except BaseException as error:
                errors.append(error)

        worker = threading.Thread(target=work)
        worker.start()
        try:
            reports = [world.verify() for _ in range(25)]
        finally:
            stop.set()
            worker.join()
        assert errors == []
        assert [report.problems for report in reports] == [[]] * 25
        assert reports[-1].events > reports[0].events


def _meanwhile(world: World, monkeypatch: pytest.MonkeyPatch, *steps: Any) -> None:
    """Do something whenever the audit is about to read the row of a call."""
    waiting, read = list(steps), world.store.call

    def call(call_id: str) -> Any:
        if waiting:
            waiting.pop(0)()
        return read(call_id)

    monkeypatch.setattr(world.store, "call", call)


def test_a_call_may_move_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(World(tmp_path)) as world:
        request = world.ask("order-1")
        steps = (
            lambda: world.store.seal(),
            lambda: world.approve(request),
            lambda: world.store.seal(),
            lambda: world.order("order-0"),
        )
        _meanwhile(world, monkeypatch, *steps)
        assert world.verify().problems == []


def test_a_thread_may_be_sealed_while_it_is_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_threads = world.store.threads

    def threads(*page: Any) -> Any:
        world.store.seal()
        return list_threads(*page)

    monkeypatch.setattr(world.store, "threads", threads)
    report = world.verify()
    assert (report.problems, report.seals, report.unsealed) == ([], 1, 0)


def test_a_run_may_be_pruned_while_it_is_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    _meanwhile(world, monkeypatch, lambda: world.store.prune(world.clock() + 1, "ana"))
    assert world.verify().problems == []
    assert world.sql("SELECT count(*) FROM call") == [(0,)]


def test_a_store_is_whole_wherever_its_process_dies(tmp_path: Path) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()

    def boundary(name: str, when: str) -> None:
        folder = copies / f"{len(list(copies.iterdir())):02}-{name}-{when}"
        folder.mkdir()
        for file in (tmp_path / "store").glob("assent.db*"):
            shutil.copy(file, folder)

    (tmp_path / "store").mkdir()
    world = World(tmp_path / "store", boundary=boundary)
    world.order("order-1")
    world.store.seal()
    world.clock.advance(10)
    world.store.prune(world.clock(), "ana")
    world.close()
    counts = []
    for folder in sorted(copies.iterdir()):
        store = SqliteStore(folder / "assent.db", keys=Keyring.parse(KEY))
        report = verify(store)
        assert report.problems == []
        counts.append(report.events)
        store.close()
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert counts[-1] == 6


def test_a_store_that_went_back_in_time_is_told(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.order("order-1")
    world.close()
    shutil.copy(world.path, tmp_path / "backup")
    world.open()
    world.order("order-2")
    world.close()
    shutil.copy(tmp_path / "backup", world.path)
    world.open()
    report = world.verify()
    assert [str(problem) for problem in report.problems] == [
        "the store went back in time: a copy was put back, or its newest rows were cut"
    ]
    world.store.mark_recovered()
    assert world.verify().ok
    world.close()


def test_whole_threads_cut_from_the_end_of_an_unsealed_store_are_told(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.order("order-1")
    world.store.seal()
    world.order("order-2")
    for table in ("event", "call", "run"):
        world.sql(f"DELETE FROM {table} WHERE thread = 'order-2'")
    world.sql("DELETE FROM thread WHERE id = 'order-2'")
    world.store._unsealed = 0
    world.close()
    world.open()
    assert "its newest rows were cut" in str(world.verify().problems[0])
    world.close()


# -- what cannot be written does not happen


def _read_only(world: World, writer: sqlite3.Connection) -> None:
    writer.execute("PRAGMA query_only = 1")


def _full(world: World, writer: sqlite3.Connection) -> None:
    writer.execute("PRAGMA max_page_count = 1")  # no page more than there are
    notes = [Note(type="filler", actor=f"{n}") for n in range(1000)]
    with pytest.raises(StoreError, match="full"):
        list(map(world.store.transact, notes))


@pytest.mark.parametrize("stop", [_read_only, _full])
def test_a_decision_whose_event_cannot_be_written_is_refused(tmp_path: Path, stop: Any) -> None:
    with opened(World(tmp_path)) as world:
        request = world.ask("order-1")
        writer = world.store._writer
        assert writer is not None
        stop(world, writer)
        for decision in (request.approve(), request.reject("no"), request.edit({"to": "eve"})):
            with pytest.raises(StoreError, match="could not be written"):
                world.inbox.decide_sync(request.id, decision, by="ana")
        pending = world.inbox.pending_sync().items
        assert [(r.id, r.status, r.decision) for r in pending] == [(request.id, "pending", None)]
        assert [event.type for event in world.events("order-1")] == ["asked"]
        assert world.verify().ok
        writer.execute("PRAGMA query_only = 0")
        writer.execute("PRAGMA max_page_count = 1000000")
        world.approve(request)
        assert world.verify().ok


def test_a_tool_is_stored_although_the_first_try_failed(tmp_path: Path) -> None:
    with opened(World(tmp_path)) as world:
        writer = world.store._writer
        assert writer is not None
        writer.execute("PRAGMA query_only = 1")
        with pytest.raises(StoreError):
            world.ask("order-1")
        writer.execute("PRAGMA query_only = 0")
        assert world.ask("order-1").schema is not None


def test_an_impossible_command_does_not_stop_the_next_one(tmp_path: Path) -> None:
    with opened(World(tmp_path)) as world:
        with pytest.raises(TypeError):
            world.store.transact(Note(type="odd", actor="ana", body={"odd": object()}))
        world.order("order-1")
        assert world.verify().ok


# -- export


def test_the_export_holds_what_others_need_to_check_it(tmp_path: Path) -> None:
    with opened(World(tmp_path, SERVER_KEY)) as world:
        world.order("order-1")
        world.order("Bestellung-ü")
        world.store.seal()
        world.ask("order-3")
        lines = [json.loads(line) for line in export(world.store)]
    seals = [line for line in lines if line["kind"] == "seal"]
    events = [line for line in lines if line["kind"] == "event"]
    assert lines == seals + events
    assert (len(seals), len(events)) == (1, 11)
    heads = _recomputed(events, lambda data: "sha256." + hashlib.sha256(_LINK + data).hexdigest())
    for seal in seals:
        text = json.dumps([seal[k] for k in ("n", "at", "heads", "prev")], **_COMPACT)
        assert hashlib.sha256(text.encode()).hexdigest() == seal["hash"]
        for thread, seq, head in json.loads(seal["heads"]):
            assert heads[thread, seq] == head


def test_the_export_can_be_checked_with_the_secret(world: World) -> None:
    import base64

    secret = base64.urlsafe_b64decode(KEY.removeprefix("hmac:") + "=")
    link = hmac.digest(secret, _LINK, "sha256")
    name = Keyring.parse(KEY).primary_id
    events = [json.loads(line) for line in export(world.store)]
    heads = _recomputed(events, lambda d: f"{name}.{hmac.digest(link, d, 'sha256').hex()}")
    assert heads["order-3", 5] == world.thread("order-3").head


_LINK = b"assent/v1/link\0"
_COMPACT: dict[str, Any] = {"ensure_ascii": False, "separators": (",", ":")}


def _recomputed(events: list[dict[str, Any]], link: Any) -> dict[tuple[str, int], str]:
    heads: dict[tuple[str, int], str] = {}
    for event in events:
        assert hashlib.sha256(event["body"].encode()).hexdigest() == event["digest"]
        names = ("thread", "seq", "at", "type", "run", "call", "actor", "digest")
        place = (event["thread"], event["seq"])
        parts = [heads.get((place[0], place[1] - 1), ""), *(event[name] for name in names)]
        heads[place] = link(json.dumps(parts, ensure_ascii=False).encode())
        assert heads[place] == event["hash"]
    return heads


def test_a_pruned_or_damaged_store_can_be_exported(world: World) -> None:
    world.store.prune(world.clock() + 1, "ana")
    world.sql("UPDATE event SET actor = x'ff00' WHERE pos = 2")
    lines = [json.loads(line) for line in export(world.store)]
    events = [line for line in lines if line["kind"] == "event"]
    assert [event["body"] for event in events[:15]] == [None] * 15
    assert events[1]["actor"] == "b'\\xff\\x00'"
    assert events[15]["type"] == "pruned"
