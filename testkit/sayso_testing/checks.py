"""The invariants of every store.

``check_store`` reads a store through its protocol, and raises ``AssertionError`` for the first
invariant that is broken: the chains and their heads, the stream of events, the seals, the counters
of runs. The events of each call must lead to its status, and every move must be legal.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable

from sayso import codec
from sayso.engine.asking import request_digest, signed_bytes
from sayso.engine.moves import MOVES
from sayso.engine.unit_of_work import COUNTERS, link_bytes
from sayso.rows import LIVE, Call, CallStatus, Event, Run, RunStatus, Thread
from sayso.stores.base import Cursor, Store
from sayso.stores.row_checks import row_wrong
from sayso.stores.seals import Seal, seal_bytes

_S = CallStatus

#: The status of a call after each type of event; ``decided`` and ``recorded`` depend on more.
_NEXT_STATUS = {
    "asked": _S.ASKED,
    "allowed": _S.READY,
    "denied": _S.REJECTED,
    "refused": _S.REJECTED,
    "reasked": _S.ASKED,
    "started": _S.RUNNING,
    "released": _S.RELEASED,
    "suspended": _S.READY,
    "in_doubt": _S.IN_DOUBT,
    "retried": _S.READY,
    "expired": _S.EXPIRED,
    "cancelled": _S.CANCELLED,
    "superseded": _S.SUPERSEDED,
}
_STATUS_UNCHANGED = frozenset(
    {
        *("voted", "revised", "tightened", "late", "settled", "read_started", "read_stopped"),
        *("joined", "deferred", "reported", "attempt_ended", "votes_voided", "held", "undone"),
        *("reminded", "escalated", "signed_again", "reviewed"),
    }
)
#: Events that may follow the end of a run: they move nothing.
_ALLOWED_AFTER_END = ("late", "broke", "reported", "prompted")
_READ_EVENTS = frozenset({"read_started", "read_stopped"})
_STATUS_AFTER_DECISION = {
    (_S.ASKED, "approve"): _S.READY,
    (_S.ASKED, "edit"): _S.READY,
    (_S.ASKED, "reject"): _S.REJECTED,
    (_S.ASKED, "model"): _S.READY,
    (_S.ASKED, "respond"): _S.RESPONDED,
    (_S.IN_DOUBT, "approve"): _S.READY,
    (_S.IN_DOUBT, "reject"): _S.FAILED,
    (_S.IN_DOUBT, "respond"): _S.DONE,
}


def check_store(store: Store, runs: Iterable[str] = ()) -> None:
    """Check all threads, events and seals, and every call of the runs with these ids."""
    events = all_events(store)
    check_stream(events)
    for thread in all_threads(store):
        check_chain(store, thread, [e for _, e in events if e.thread == thread.id])
    check_seals(store)
    for run_id in runs:
        run = store.run(run_id)
        if run is not None:
            calls = store.calls_of(run_id)
            check_run(run, calls, [e for _, e in events if e.run == run_id])
            for call in calls:
                check_call(call)
                check_signatures(store, call)


def all_events(store: Store, page: int = 200) -> list[tuple[Cursor, Event]]:
    """Return all events, read page by page."""
    found: list[tuple[Cursor, Event]] = []
    while batch := store.events(found[-1][0] if found else "", page):
        found += batch
    return found


def all_threads(store: Store, page: int = 50) -> list[Thread]:
    """Return all threads, read page by page."""
    found: list[Thread] = []
    while batch := store.threads(found[-1].id if found else "", page):
        found += batch
    return found


def chain_events(store: Store, thread: str, page: int = 50) -> list[Event]:
    """Return the events of a thread, read page by page."""
    found: list[Event] = []
    while batch := store.chain(thread, found[-1].seq if found else 0, page):
        found += batch
    return found


def all_seals(store: Store, page: int = 3) -> list[Seal]:
    """Return all seals, read page by page."""
    found: list[Seal] = []
    while batch := store.seals(found[-1].n if found else 0, page):
        found += batch
    return found


def check_stream(events: list[tuple[Cursor, Event]]) -> None:
    """Check that each event occurs once, and that threads are in the order of their chains."""
    cursors = [cursor for cursor, _ in events]
    assert len(set(cursors)) == len(cursors), "two events with one cursor"
    last: Counter[str] = Counter()
    for _, event in events:
        last[event.thread] += 1
        assert event.seq == last[event.thread], f"{event.thread}: {event.seq} is out of order"


def check_chain(store: Store, thread: Thread, streamed: list[Event]) -> None:
    """Recompute the links of a thread, and compare the last one with its head."""
    chain = chain_events(store, thread.id)
    assert chain == streamed, f"{thread.id}: chain and stream differ"
    before = ""
    for seq, event in enumerate(chain, 1):
        where = f"{thread.id} #{seq}"
        assert (event.thread, event.seq) == (thread.id, seq), f"{where}: an event is missing"
        if event.body is not None:
            digest = hashlib.sha256(event.body.encode()).hexdigest()
            assert digest == event.digest, f"{where}: the body does not match its digest"
        assert store.keys.check_link(link_bytes(before, event), event.hash), f"{where}: bad link"
        before = event.hash
    assert (thread.seq, thread.head) == (len(chain), before), f"{thread.id}: bad head"
    if chain:
        assert not row_wrong(store.keys, thread), f"thread {thread.id}: bad MAC"
    assert thread.sealed <= thread.seq
    assert thread.moved == (thread.sealed < thread.seq), f"{thread.id}: marked wrongly"


def check_seals(store: Store) -> None:
    """Check that each seal is signed, links to the previous one, and names heads that existed."""
    before = ""
    for number, seal in enumerate(all_seals(store), 1):
        digest = codec.sha256(seal_bytes(seal.n, seal.at, seal.heads, seal.prev))
        assert (seal.n, seal.prev, seal.hash) == (number, before, digest), f"seal {seal.n}"
        assert store.keys.verify(seal.hash.encode(), seal.signature), f"seal {seal.n}: signature"
        for thread, seq, head in codec.loads(seal.heads):
            (link,) = store.chain(thread, seq - 1, 1)
            assert (link.seq, link.hash) == (seq, head), f"seal {seal.n}: {thread}"
        before = seal.hash


def check_run(run: Run, calls: list[Call], events: list[Event]) -> None:
    """Check that the counters, status and events of a run agree with its calls."""
    count = Counter(call.status for call in calls)
    for status, name in COUNTERS.items():
        assert getattr(run, name) == count[status], f"{run.id}: {name} is not {count[status]}"
    if run.status not in LIVE:
        assert (run.owner, run.ready_at) == (None, None), f"{run.id} is over, but still due"
        assert run.running == run.asked == run.ready == 0, f"{run.id} is over, with open calls"
    if run.status is RunStatus.PAUSED:
        assert run.running == 0, f"{run.id} is paused while a call runs"
    if run.running:
        assert run.owner is not None, f"{run.id} has a running call and no owner"
        assert run.ready_at is not None, f"{run.id} has a running call and no lease"
    if run.ready and run.owner is None and run.status is RunStatus.RUNNING:
        assert run.ready_at is not None, f"{run.id} is ready, but not due"
    check_ends(events)
    for call in calls:
        assert (call.run, call.thread) == (run.id, run.thread)
        call_events = [event for event in events if event.call == call.id]
        replayed = replay(call, call_events)
        assert replayed is call.status, f"{call.id}: its events lead to another status"


def check_ends(events: list[Event]) -> None:
    """Check that a finished run only changes by being reopened, or records a late result."""
    finished = False
    for event in events:
        if event.type in ("finished", "reopened"):
            assert finished is (event.type == "reopened"), f"{event.run}: {event.type!r} twice"
            finished = event.type == "finished"
        else:
            assert not finished or event.type in _ALLOWED_AFTER_END, f"{event.run}: {event}"


def check_call(call: Call) -> None:
    """Check that the fields of a call fit its status."""
    closed_by_person = (_S.RESPONDED, _S.REJECTED)
    if call.status in (*closed_by_person, _S.READY, _S.RUNNING):
        assert call.decision is not None, f"{call.id} is {call.status} without a decision"
    if call.status in (_S.ASKED, _S.EXPIRED):
        undecided = call.decision is None or (call.held and call.held.not_before)
        assert undecided, f"{call.id} is {call.status} with a decision"
    if call.status in (_S.ASKED, *closed_by_person, _S.EXPIRED):
        assert call.attempt == 0 or call.asked
    if call.status is _S.RUNNING:
        assert call.attempt > 0, f"{call.id} never started"
    assert len({vote.by for vote in call.votes}) == len(call.votes), f"{call.id}: voted twice"


def check_signatures(store: Store, call: Call) -> None:
    """Check the MAC and digest of a call, and the signatures of the people who approved it."""
    assert not row_wrong(store.keys, call), f"{call.id}: bad MAC"
    assert request_digest(call) == call.digest, f"{call.id} does not match its digest"
    decision = call.decision
    if call.status not in (_S.ASKED, _S.READY, _S.RUNNING) or decision is None:
        return
    if decision.type in ("allow", "grant"):
        assert decision.signature == "", f"{call.id}: a decision by a rule has no signature"
    else:
        signed = store.keys.verify(signed_bytes(decision), decision.signature)
        assert signed, f"{call.id}: the approval has a bad signature"
    for vote in call.votes:
        assert vote.digest == decision.digest, f"{call.id}: a vote for something else"
        signed = store.keys.verify(signed_bytes(vote), vote.signature)
        assert signed, f"{call.id}: a vote has a bad signature"


def _check_unchanged_status(event: Event, status: CallStatus | None, same_attempt: bool) -> None:
    if event.type in _READ_EVENTS:
        assert (status, same_attempt) == (_S.READY, True), event
    elif event.type == "reported":
        assert status is _S.RELEASED, event
    elif event.type == "joined":
        assert status is not _S.RELEASED, event
    elif event.type in ("settled", "attempt_ended"):
        assert (status, same_attempt) == (_S.IN_DOUBT, True), event
    elif event.type == "signed_again":
        assert status is _S.READY, event
    else:
        assert event.type == "late" or status in (_S.ASKED, _S.IN_DOUBT), event


def replay(call: Call, events: list[Event]) -> CallStatus | None:
    """Return the status that a call's events lead to.

    Check that every move is legal, and that each time of asking has one outcome.
    """
    status: CallStatus | None = None
    attempt, outcomes = 0, 0
    for event in events:
        body = codec.loads(event.body or "{}")
        if event.type in _STATUS_UNCHANGED:
            attempt += event.type == "read_started"
            _check_unchanged_status(event, status, body.get("attempt", attempt) == attempt)
            continue
        if event.type == "decided":
            assert status is not None
            to = _STATUS_AFTER_DECISION[status, body["decision"]]
            outcomes += 1
        elif event.type == "duplicate":
            assert (status, bool(call.effect_key)) == (_S.READY, True), event
            to = _S.DONE if body["ok"] else _S.FAILED
        elif event.type in ("recorded", "read_recorded"):
            reads = event.type == "read_recorded"
            assert reads == (status is _S.READY) == (call.terms.effect == "read"), event
            to = _S.DONE if body["ok"] else _S.FAILED
        else:
            to = _NEXT_STATUS[event.type]
        assert to in MOVES[status], f"{call.id}: {status} → {to} by {event.type!r}"
        if event.type in ("asked", "reasked", "in_doubt"):
            outcomes = 0
        if event.type in ("started", "released"):
            attempt += 1
            assert body["attempt"] == attempt, f"{call.id}: started twice as {body['attempt']}"
        if event.type == "retried":
            assert call.terms.effect == "idempotent", (
                f"{call.id} was retried, but is not idempotent"
            )
        assert outcomes <= 1, f"{call.id}: two outcomes"
        status = to
    return status
