"""The engine alone: its tables, its purity, and how a run's state follows from its calls."""

from __future__ import annotations

import ast
import hashlib
import inspect
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import sayso.engine
from sayso import codec
from sayso.engine import COMMANDS, EngineDeps, UnitOfWork, apply, commands
from sayso.engine.asking import doubt_digest, envelope, request_digest, terms_bound
from sayso.engine.commands import Command, NewCall, Propose, ReadRun, Record, Start
from sayso.engine.moves import MOVES, RUN_MOVES, IllegalMove, moved, run_moved
from sayso.engine.running import refresh_run, wake
from sayso.engine.unit_of_work import COUNTERS
from sayso.errors import NotFound, SaysoError
from sayso.rows import LIVE, OPEN, Call, CallStatus, Run, RunStatus, Thread
from sayso.types import Risk, Terms, Verdict

NOW = 1_000_000_000
ENDED = set(CallStatus) - OPEN


def a_call(**changes: Any) -> Call:
    call = Call(
        id="req_1",
        run="r",
        thread="t",
        key="k",
        kind="approval",
        agent="agent",
        tool="send",
        tool_digest="d",
        args="{}",
        args_hash="h",
        nonce="n",
        terms=Terms(),
        created=NOW,
    )
    return call._replace(**changes)


def a_run(**changes: Any) -> Run:
    return Run(id="r", thread="t", agent="agent", created=NOW)._replace(**changes)


def a_work(**rows: Any) -> UnitOfWork:
    deps = EngineDeps(
        sign=lambda data: f"signed {hashlib.sha256(data).hexdigest()}",
        verify=lambda data, signature: signature == f"signed {hashlib.sha256(data).hexdigest()}",
        link=lambda data: hashlib.sha256(data).hexdigest(),
        check_link=lambda data, link: link == hashlib.sha256(data).hexdigest(),
        mac=lambda data: f"mac {hashlib.sha256(data).hexdigest()}",
        matches=lambda scope, args: True,
        salt=lambda: b"salt",
    )
    return UnitOfWork(now=NOW, deps=deps, thread=Thread(id="t"), **rows)


def a_new_call(n: int = 1, **terms: Any) -> NewCall:
    return NewCall(
        id=f"req_{n}",
        key=f"k{n}",
        kind="approval",
        tool="send",
        tool_digest="d",
        args="{}",
        args_hash="h",
        nonce="n",
        terms=Terms(**terms),
    )


# -- the tables


@pytest.mark.parametrize(("start", "end"), list(product(CallStatus, CallStatus)))
def test_call_moves_only_along_its_table(start: CallStatus, end: CallStatus) -> None:
    call = a_call(status=start)
    if end in MOVES[start]:
        assert moved(call, end) == call._replace(status=end)
    else:
        with pytest.raises(IllegalMove, match=f"{start} → {end}"):
            moved(call, end)
    assert call.status is start


@pytest.mark.parametrize(("start", "end"), list(product(RunStatus, RunStatus)))
def test_run_moves_only_along_its_table(start: RunStatus, end: RunStatus) -> None:
    run = a_run(status=start)
    if end in RUN_MOVES[start] or end is start:
        assert run_moved(run, end) == run._replace(status=end)
    else:
        with pytest.raises(IllegalMove, match=f"{start} → {end}"):
            run_moved(run, end)


def test_tables_know_every_state() -> None:
    assert set(MOVES) == {None, *CallStatus}
    assert set(RUN_MOVES) == set(RunStatus)
    assert {status for status in CallStatus if MOVES[status]} == OPEN
    assert all(why for moves in [*MOVES.values(), *RUN_MOVES.values()] for why in moves.values())


def test_every_state_can_be_reached() -> None:
    reached: set[CallStatus] = set(MOVES[None])
    for _ in CallStatus:
        reached |= {to for status in reached for to in MOVES[status]}
    assert reached == set(CallStatus)


def test_running_call_returns_only_through_doubt() -> None:
    """From a running call there is no way back but through in_doubt, or by its own pause."""
    assert {to for to in MOVES[CallStatus.RUNNING] if to in OPEN} == {
        CallStatus.IN_DOUBT,
        CallStatus.READY,
    }
    assert [start for start in MOVES if CallStatus.RUNNING in MOVES[start]] == [CallStatus.READY]
    assert CallStatus.RUNNING not in MOVES[None]


def test_ended_call_never_runs() -> None:
    for status in ENDED:
        assert MOVES[status] == {}


def test_counters_follow_the_open_states() -> None:
    assert set(COUNTERS) == OPEN
    assert set(COUNTERS.values()) <= set(Run._fields)


# -- commands


def test_every_command_has_name_and_handler() -> None:
    found = {
        value
        for _, value in inspect.getmembers(commands, inspect.isclass)
        if issubclass(value, Command) and not value.__subclasses__()
    }
    assert set(COMMANDS) == found - {ReadRun}  # which has no boundary: it changes nothing
    assert len({command.name for command in COMMANDS}) == len(COMMANDS)
    assert all(command.name.isidentifier() for command in COMMANDS)
    assert set(sayso.engine._HANDLERS) == found


def test_commands_are_frozen() -> None:
    command = Propose(thread="t", run="r", agent="a")
    with pytest.raises(AttributeError):
        command.thread = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    "command", [Start(thread="t", run="r", calls=(), seen=(), owner="w", lease=1)]
)
def test_command_on_missing_row_raises(command: Command) -> None:
    with pytest.raises(NotFound):
        apply(a_work(), command)


# -- purity

#: Standard modules that compute and do nothing else.
COMPUTING = {
    "__future__",
    "collections",
    "dataclasses",
    "decimal",
    "enum",
    "functools",
    "hashlib",
    "struct",
    "json",
    "operator",
    "typing",
}
PURE = {f"sayso.{name}" for name in ("engine", "frozen", "rows", "types", "errors", "policy")}
FILES = sorted(Path(sayso.engine.__file__).parent.glob("*.py"))


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_engine_imports_no_clock_and_no_io(path: Path) -> None:
    for name in imports(path):
        pure = any(name == home or name.startswith(f"{home}.") for home in PURE)
        assert pure or name.split(".")[0] in COMPUTING, f"{path.name} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_engine_calls_no_clock_and_no_io(path: Path) -> None:
    forbidden = {"open", "print", "input", "exec", "eval", "now", "today", "utcnow", "__import__"}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            target = node.func
            name = target.id if isinstance(target, ast.Name) else getattr(target, "attr", "")
            assert name not in forbidden, f"{path.name}:{node.lineno} calls {name}"


def test_same_commands_give_the_same_rows() -> None:
    def story() -> UnitOfWork:
        work = a_work()
        apply(
            work,
            Propose(
                thread="t",
                run="r",
                agent="agent",
                calls=(a_new_call(1, verdict=Verdict.ALLOW), a_new_call(2)),
                owner="w",
                lease=5,
            ),
        )
        call = work.calls["req_1"]
        apply(
            work,
            Record(
                thread="t",
                run="r",
                call=call.id,
                token=call.token,
                attempt=call.attempt,
                ok=True,
                result="1",
            ),
        )
        work.close()
        return work

    one, two = story(), story()
    assert one.calls == two.calls
    assert (one.run, one.thread, one.events) == (two.run, two.thread, two.events)
    assert [event.type for event in one.events] == ["allowed", "started", "asked", "recorded"]
    assert {event.at for event in one.events} == {NOW}


def test_rows_are_never_changed_in_place() -> None:
    call, run = a_call(status=CallStatus.READY), a_run(ready=1, ready_at=NOW)
    before = (call, run)
    work = a_work(run=run, calls={call.id: call})
    apply(work, Start(thread="t", run="r", calls=(call.id,), seen=(call.mac,), owner="w", lease=5))
    assert (call, run) == before
    assert call.status is CallStatus.READY
    assert work.calls[call.id].status is CallStatus.RUNNING


def test_chain_links_each_event_to_previous() -> None:
    work = a_work()
    apply(work, Propose(thread="t", run="r", agent="a", calls=(a_new_call(1), a_new_call(2))))
    work.close()
    first, second = work.events
    assert (first.seq, second.seq) == (1, 2)
    assert work.thread.head == second.hash != first.hash
    assert work.thread.mac


# -- what a decision binds

#: Terms that a person need not rely on: outside the digest, on purpose.
UNBOUND = {
    *("verdict", "preset", "expires_in", "declared", "record", "effect_key", "on_duplicate"),
    *("limits", "risk_declared", "observed", "opinion"),
}


def test_every_term_is_bound_or_excluded() -> None:
    bound = set(terms_bound(Terms(reviewer="model:a", plan=True))) | {"reviewer_allows"}
    assert bound | UNBOUND == {field.name for field in fields(Terms)}


@pytest.mark.parametrize(
    "change",
    [
        {"id": "req_2"},
        {"nonce": "m"},
        {"rev": 2},
        {"kind": "question"},
        {"agent": "other"},
        {"run": "r2"},
        {"tool_digest": "e"},
        {"args_hash": "i"},
        {"binds": "{}"},
        {"expires_at": NOW},
        {"key": "k2"},
        {"terms": Terms(description="x")},
        {"terms": Terms(on_expiry="cancel")},
        {"terms": Terms(rule="x")},
        {"terms": Terms(policy="x")},
        {"terms": Terms(allowed=("reject",))},
        {"terms": Terms(reviewers=("ana",))},
        {"terms": Terms(quorum=2)},
        {"terms": Terms(requester_decides=False)},
        {"terms": Terms(assurance="token")},
        {"terms": Terms(risk=Risk("high"))},
        {"terms": Terms(risk=Risk("low", ("it moves money",)))},
        {"note": "trust me"},
        {"preview": "1"},
        {"tool": "other"},
        {"thread": "t2"},
        {"terms": Terms(effect="idempotent")},
        {"terms": Terms(notify_via=("push",))},
        {"terms": Terms(remind_after=60)},
        {"terms": Terms(escalate_after=60)},
        {"terms": Terms(escalate_to=("ana",))},
        {"terms": Terms(reviewer="model:a")},
        {"terms": Terms(plan=True)},
    ],
    ids=str,
)
def test_another_call_has_another_envelope(change: dict[str, Any]) -> None:
    assert envelope(a_call(**change)) != envelope(a_call())


@pytest.mark.parametrize(
    "change", [{"result": "1"}, {"status": CallStatus.DONE}, {"escalated": True}]
)
def test_envelope_ignores_outcomes(change: dict[str, Any]) -> None:
    assert envelope(a_call(**change)) == envelope(a_call())


def test_envelope_is_canonical_json() -> None:
    terms = Terms(reviewer="model:a", plan=True, reviewers=("ana", "group:ü"))
    text = envelope(a_call(terms=terms, key='a "b"\\é'))
    assert codec.canonical(codec.loads(text)).decode() == text


def test_doubt_binds_its_attempt() -> None:
    doubts = [doubt_digest(d, n) for d in "ab" for n in (1, 2)]
    assert len(set(doubts)) == 4
    assert request_digest(a_call()) not in doubts


# -- how a run's state follows from its calls

LEASE_ENDS = NOW + 10


@pytest.mark.parametrize("stop", ["", "enough"])
@pytest.mark.parametrize("hold", [False, True])
@pytest.mark.parametrize("owner", [None, "w"])
@pytest.mark.parametrize("active", [0, 1])
@pytest.mark.parametrize("ready", [0, 1])
@pytest.mark.parametrize("waiting", [{}, {"asked": 1}, {"in_doubt": 1}], ids=str)
def test_run_state_follows_its_calls(
    waiting: dict[str, int], ready: int, active: int, owner: str | None, hold: bool, stop: str
) -> None:
    lease = LEASE_ENDS if owner else None
    run = a_run(stop=stop, owner=owner, ready_at=lease, ready=ready, running=active, **waiting)
    work = a_work(run=run)
    refresh_run(work, hold=hold)
    after = work.require_run()
    got = (after.status, after.owner, after.ready_at)
    if active or (hold and owner):
        assert got == ("running", owner, lease), "who works keeps the lease"
    elif stop:
        assert got == ("cancelled", None, None)
        assert [event.type for event in work.pending_events] == ["run_cancelled"]
    elif ready:
        assert got == ("running", None, NOW), "something can go on, so it is due"
    elif waiting:
        assert got == ("paused", None, None)
    else:
        assert got == ("running", None, None)


@pytest.mark.parametrize("status", sorted(set(RunStatus) - LIVE))
def test_ended_run_is_not_changed(status: RunStatus) -> None:
    work = a_work(run=a_run(status=status, in_doubt=1))
    refresh_run(work)
    assert work.require_run() == a_run(status=status, in_doubt=1)


@pytest.mark.parametrize(("seen", "due"), [(None, None), (3, None), (2, NOW)])
def test_unseen_wake_leaves_run_due(seen: int | None, due: int | None) -> None:
    work = a_work(run=a_run(wake=3, asked=1))
    refresh_run(work, wake_seen=seen)
    assert work.require_run().ready_at == due


@pytest.mark.parametrize(
    ("run", "due"),
    [
        ({"status": RunStatus.PAUSED}, NOW),
        ({"owner": "w", "ready_at": LEASE_ENDS}, LEASE_ENDS),
        ({"owner": "w", "ready_at": NOW}, NOW),
        ({"owner": "w", "ready_at": NOW - 5}, NOW),
        ({"status": RunStatus.CANCELLED}, None),
        ({"status": RunStatus.DONE}, None),
    ],
    ids=str,
)
def test_wake_makes_run_due(run: dict[str, Any], due: int | None) -> None:
    work = a_work(run=a_run(**run))
    wake(work)
    assert work.require_run().ready_at == due
    assert work.require_run().wake == 1


def test_illegal_move_is_a_sayso_error() -> None:
    assert issubclass(IllegalMove, SaysoError)
