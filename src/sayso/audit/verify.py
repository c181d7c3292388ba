"""Verify the whole record: every chain, every seal, and the rows that must match them.

One chain is read at a time, page by page. Only names are kept in memory, never events: of threads,
of runs, and of the calls of one thread.

The store may be in use meanwhile. So a few threads at a time are read from one snapshot, with their
rows, the seals and the system thread; and what belongs to no thread, from a last one.
"""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from multiprocessing.connection import Connection
from typing import Any, ParamSpec, TypeVar

from sayso import codec
from sayso.audit.chain import (
    DAMAGE_ERRORS,
    MAX_PROBLEMS,
    PAGE,
    Checkpoint,
    Problem,
    ProblemCollector,
    Report,
    Unreadable,
    body_problem,
    chain_of,
    hash_problem,
    read_pages,
    reason_of,
    threads_of,
)
from sayso.audit.replay import (
    Expected,
    ExpectedCall,
    ExpectedConversation,
    ExpectedRun,
    ImpossibleEvent,
    call_mismatches,
    message_problems,
    run_mismatches,
)
from sayso.audit.system import GrantUses, Seals, SystemThread, system_row_problems
from sayso.engine.budgets import counts_too_little
from sayso.engine.deciding import eligible
from sayso.errors import InvalidCall, StoreError
from sayso.keys import key_id_of
from sayso.rows import (
    SYSTEM_THREAD,
    Call,
    CallStatus,
    EffectKey,
    Event,
    Run,
    Spent,
    StoredMessage,
    Thread,
    Tool,
)
from sayso.stores.base import ListedCall, SearchKey, SnapshotLost, Store, StoreReads
from sayso.stores.listing import UNASKED, is_listed_right, list_status_of, search_key_of, words_of
from sayso.stores.row_checks import is_genuine_tool, names_tool, row_wrong
from sayso.types import Decided, Micros, Refusal, Vote

#: How many threads, and events, are read from one snapshot: then the database can clean up.
_BATCH = 200
_BATCH_EVENTS = 2000
#: How often a batch is read again after its connection was lost.
_MAX_ATTEMPTS = 3

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", Event, StoredMessage)


#: The columns of a refusal that the event of its rejection implies.
_REFUSAL_COLUMNS = (
    *("request", "run", "thread", "scope", "tool", "args_hash", "by", "at", "message", "ends"),
)


class _BatchRows:
    """Reads the rows of a few threads ahead: a statement per row would take longer than all checks.

    If a damaged row prevents that, rows are read one by one when they are needed.
    """

    def __init__(self, store: StoreReads, threads: Sequence[Thread]) -> None:
        self._store = store
        self.keys = store.keys
        self._chains: dict[str, list[Event]] = {}
        self._messages: dict[str, list[StoredMessage]] = {}
        self._calls: dict[str, ListedCall | None] = {}
        self._runs: dict[str, Run | None] = {}
        self._tools: dict[str, Tool | None] = {}
        self._search_keys: dict[SearchKey, bool] = {}
        names = [thread.id for thread in threads]
        with suppress(*DAMAGE_ERRORS):
            if sum(thread.seq for thread in threads) < _BATCH_EVENTS:
                events = store.chains(names, _BATCH_EVENTS)
                chains = _by_thread(names, events)
                if chains:
                    self._read_rows_of(events)
                self._chains = chains
            if sum(thread.messages for thread in threads) < _BATCH_EVENTS:
                self._messages = _by_thread(names, store.conversations(names, _BATCH_EVENTS))

    def _read_rows_of(self, events: list[Event]) -> None:
        calls = {event.call for event in events if event.call} - self._calls.keys()
        runs = {event.run for event in events if event.run} - self._runs.keys()
        if calls:
            listed_calls = {
                listed.call.id: listed for listed in self._store.listed_calls(sorted(calls))
            }
            self._calls.update((call, listed_calls.get(call)) for call in calls)
        if runs:
            rows = {run.id: run for run in self._store.runs_with_ids(sorted(runs))}
            self._runs.update((run, rows.get(run)) for run in runs)

    def chain(self, thread: str) -> Iterator[Event]:
        if thread in self._chains:
            return iter(self._chains[thread])

        def page(after: int, limit: int) -> list[Event]:
            events = self._store.chain(thread, after, limit)
            with suppress(*DAMAGE_ERRORS):
                self._read_rows_of(events)
            return events

        return read_pages(page, lambda event: event.seq, 0, PAGE)

    def messages(self, thread: str) -> Iterable[StoredMessage]:
        if thread in self._messages:
            return self._messages[thread]
        read = lambda after, limit: self._store.stored_messages(thread, after, limit)  # noqa: E731
        return read_pages(read, lambda message: message.seq, 0, PAGE)

    def call(self, call_id: str) -> ListedCall | None:
        """Return a call. Each call may be requested once."""
        if call_id in self._calls:
            return self._calls.pop(call_id)
        return next(iter(self._store.listed_calls([call_id])), None)

    def run(self, run_id: str) -> Run | None:
        return self._runs[run_id] if run_id in self._runs else self._store.run(run_id)

    def tool(self, call: Call) -> Tool | None:
        digest = call.tool_digest
        if digest not in self._tools:
            self._tools[digest] = self._store.tool(digest) if digest else None
        return self._tools[digest]

    def has_search_key(self, key: SearchKey) -> bool:
        if key not in self._search_keys:
            self._search_keys[key] = self._store.has_search_key(key)
        return self._search_keys[key]


def _by_thread(names: Sequence[str], rows: Sequence[R]) -> dict[str, list[R]]:
    """Return the rows of each thread; none if there are more than the threads' rows say."""
    if len(rows) >= _BATCH_EVENTS:
        return {}
    rows_by_thread: dict[str, list[R]] = {name: [] for name in names}
    for row in rows:
        rows_by_thread[row.thread].append(row)
    return rows_by_thread


class _Findings:
    """What was found in some threads: problems, and what later checks need."""

    def __init__(self) -> None:
        self.threads: set[str] = set()
        #: Threads that were not read again, since they have not moved since the checkpoint.
        self.skipped: set[str] = set()
        self.events = self.unsealed = 0
        self.runs: set[str] = set()
        #: How many calls each run has in the table, and how often each grant was used.
        self.calls: Counter[str] = Counter()
        self.spent: Counter[str] = Counter()
        #: The steps of plans that calls took, and the calls that left theirs again.
        self.steps: dict[str, set[str]] = {}
        self.left_steps: set[str] = set()
        #: Effect keys, and the calls that hold them.
        self.effects: dict[str, str] = {}
        #: What calls added to budgets, for how long it counts at least, and what was returned.
        self.budgets: dict[str, list[Spent]] = {}
        self.kept: dict[str, Micros] = {}
        self.returned: set[tuple[str, str]] = set()
        #: Refusals as their events imply them, and those that an approval overturned.
        self.refusals: dict[str, Refusal] = {}
        self.overturned: set[str] = set()
        self.problems = ProblemCollector()

    def merge(self, other: _Findings) -> None:
        self.threads |= other.threads
        self.skipped |= other.skipped
        self.events += other.events
        self.unsealed += other.unsealed
        self.runs |= other.runs
        self.calls.update(other.calls)
        self.spent.update(other.spent)
        for plan, calls in other.steps.items():
            self.steps.setdefault(plan, set()).update(calls)
        self.left_steps |= other.left_steps
        self.effects.update(other.effects)
        for key, spent in other.budgets.items():
            self.budgets.setdefault(key, []).extend(spent)
        self.returned |= other.returned
        for key, keep in other.kept.items():
            self.kept[key] = min(keep, self.kept.get(key, keep))
        self.refusals.update(other.refusals)
        self.overturned |= other.overturned
        self.problems.merge(other.problems)


class _ThreadCheck:
    """Checks one thread: replays its chain once, then compares the rows."""

    def __init__(
        self,
        store: _BatchRows,
        thread: Thread,
        seals: Seals,
        system: SystemThread,
        findings: _Findings,
    ) -> None:
        self._store = store
        self._keys = store.keys
        self._thread = thread
        self._seals = seals
        self._system = system
        self._head = seals.heads.get(thread.id)
        self._open: dict[str, ExpectedCall] = {}
        self._ended: set[str] = set()
        self._runs: dict[str, ExpectedRun] = {}
        self._conversation = ExpectedConversation()
        self._chain_broken = False
        #: Whether there are events after the one that the thread's row names as the last.
        self._has_extra_events = False
        self._reported_seq = 0
        self._findings = findings
        self._problems = findings.problems
        self.seq = 0
        self.pos = 0
        self.hash = ""

    def run(self) -> None:
        try:
            for event in self._store.chain(self._thread.id):
                if isinstance(event.seq, int) and event.seq > self._thread.seq:
                    self._has_extra_events = True
                    break
                self._check_event(event)
            self._check_rows()
        except Unreadable as error:
            self._report(self.seq + 1, f"it cannot be read, nor can those after it: {error}")
        except DAMAGE_ERRORS as error:
            self._report(self.seq + 1, f"the thread's own row cannot be read: {reason_of(error)}")
        findings = self._findings
        findings.threads.add(self._thread.id)
        findings.runs.update(self._runs)
        findings.unsealed += max(0, self.seq - (0 if self._head is None else self._head.seq))

    def _check_rows(self) -> None:
        intact = not self._chain_broken
        for seq, what in self._chain_end_problems():
            intact = False
            if seq != self._reported_seq:  # otherwise it only follows from what was reported
                self._problems.add(self._problem(seq, self.pos, what))
                break
        for expected in self._open.values():
            self._check_call_row(expected)
        if intact:  # otherwise their differences only follow from the broken chain
            for run in self._runs.values():
                self._check_run_row(run)
            self._check_conversation()

    def _problem(self, seq: int, pos: int, what: str) -> Problem:
        return Problem(str(self._thread.id), seq, pos, what)

    def _report(self, seq: int, what: str, pos: int | None = None) -> None:
        self._reported_seq = seq
        self._problems.add(self._problem(seq, self.pos if pos is None else pos, what))

    # -- the chain

    def _check_event(self, event: Event) -> None:
        self._findings.events += 1
        follows = event.seq == self.seq + 1
        if not follows and self._is_misplaced(event):
            return
        wrong = hash_problem(self._keys, self.hash, event) if follows else ""
        wrong = wrong or body_problem(event) or self._placement_problem(event)
        if wrong:
            self._report(event.seq, wrong, event.pos)
        if distrusted := self._distrusted_key(event):
            self._problems.add(self._problem(event.seq, event.pos, distrusted))
        if not self._chain_broken:
            self._replay(event, trusted=not wrong)
        self.seq = event.seq
        self.pos = event.pos
        self.hash = event.hash

    def _distrusted_key(self, event: Event) -> str:
        """Return what a leaked key did, from the time when it may have leaked."""
        leaked = self._system.distrusted
        key = key_id_of(event.hash)
        if key in leaked and event.pos > leaked[key].pos:
            return f"it was added with key {key}, which is distrusted"
        if leaked and event.type in ("decided", "voted", "held") and event.body is not None:
            key = key_id_of(str(codec.loads(event.body).get("signature", "")))
            if key in leaked and event.at >= leaked[key].since:
                return f"{event.actor} decided with key {key}, which is distrusted since then"
        return ""

    def _is_misplaced(self, event: Event) -> bool:
        """Report a missing or duplicate event. Return whether to skip this one."""
        if not isinstance(event.seq, int):
            raise Unreadable(self.seq, ValueError(f"its number is {event.seq!r}"))
        if event.seq <= self.seq:
            self._report(event.seq, "it appears twice", event.pos)
            return True
        last = event.seq - 1
        more = f", and all up to {last}" if last > self.seq + 1 else ""
        self._report(self.seq + 1, f"it is missing{more}")
        # The missing event may have changed any call, so none can be derived from here on.
        self._chain_broken = True
        self._open.clear()
        self._runs.clear()
        return False

    def _placement_problem(self, event: Event) -> str:
        if event.body is None and not self._system.pruned(event.run, event.at):
            return "its body is missing, but it was not pruned"
        if event.pos <= self.pos:
            return "its position in the store is before the row that it follows"
        head = self._head
        if head is not None and head.seq == event.seq and head.hash != event.hash:
            # Its hashes are valid, but a seal has another one.
            broken = self._seals.first_mismatch(event.thread) or head
            what = f"seal {broken.n} has another hash for it: the chain was rewritten"
            self._report(broken.seq, what, event.pos)
        return ""

    def _chain_end_problems(self) -> Iterator[tuple[int, str]]:
        """Yield what is wrong with the end of the chain, the cause first."""
        thread = self._thread
        if self.seq < thread.seq:
            yield self.seq + 1, f"it is missing, and all up to {thread.seq}: they were cut off"
        elif self._has_extra_events:
            yield self.seq + 1, f"its thread says that the chain ends at row {thread.seq}"
        elif self.hash != thread.head:
            yield self.seq, "its thread says that the chain ends with another hash"
        elif self._keys.rows and (wrong := row_wrong(self._keys, thread)):
            yield self.seq + 1, f"no key proves that the chain ends at row {self.seq}: {wrong}"
        sealed = thread.sealed
        reach = self._seals.reach(thread.id)
        if self._head is not None and self.seq < self._head.seq:
            rows = f"the rows up to {self._head.seq}"
            yield self.seq + 1, f"it is missing: seal {self._head.n} has {rows}"
        elif sealed > reach:
            yield sealed, "it was sealed, but that seal is missing"
        elif sealed < reach:
            yield reach, f"it is sealed, but its thread says that only row {sealed} is"
        elif thread.seq > sealed and thread.moved != 1:
            yield sealed + 1, "no seal would cover it: its thread is not marked as moved"
        elif thread.seq == sealed and thread.moved != 0:
            yield sealed, "it is sealed, but its thread is marked as moved"

    # -- replaying events

    def _replay(self, event: Event, *, trusted: bool) -> None:
        body: Any = None
        if trusted and event.body is not None:
            try:
                body = codec.loads(event.body)
            except DAMAGE_ERRORS:
                self._report(event.seq, "its body is not valid", event.pos)
                trusted = False
        if event.call:
            self._replay_call(event, body, pruned=trusted)
        if event.run:
            self._replay_run(event, body, pruned=trusted)
        if body is None:
            self._conversation.body_missing = True
        else:
            self._apply(event, "", self._conversation.apply, event, body)

    def _apply(self, event: Event, label: str, apply: Callable[..., None], *args: Any) -> None:
        try:
            apply(*args)
        except ImpossibleEvent as error:
            what = f"{label}{error}"
        except DAMAGE_ERRORS:
            what = "its body is not valid"
        else:
            return
        if self._reported_seq != event.seq:  # otherwise it is reported already
            self._report(event.seq, what, event.pos)

    # -- the runs and the conversation

    def _replay_run(self, event: Event, body: Any, *, pruned: bool) -> None:
        expected = self._runs.get(event.run)
        reused = expected is not None and expected.pruned and body is not None
        if expected is None or reused:  # after pruning, a new run may have the same name
            expected = self._runs[event.run] = ExpectedRun(event.run, event.thread)
        if expected.follows(event, body, pruned=pruned):
            self._apply(event, "", expected.apply, event, body)

    def _check_run_row(self, expected: ExpectedRun) -> None:
        if expected.body_missing and not expected.pruned:
            return
        open_calls = [call.status for call in self._open.values() if call.run == expected.id]
        try:
            run = self._store.run(expected.id)
            wrong = self._run_row_problem(run, expected, Counter(filter(None, open_calls)))
        except DAMAGE_ERRORS as error:
            wrong = f"has a row that cannot be read: {reason_of(error)}"
        self._report_row("run", expected, wrong)

    def _report_row(self, noun: str, expected: Expected, wrong: str) -> None:
        if wrong:
            what = f"{noun} {expected.id} {wrong}"
            self._problems.add(self._problem(expected.seq, expected.pos, what), table=True)

    def _run_row_problem(
        self, run: Run | None, expected: ExpectedRun, calls: Counter[CallStatus]
    ) -> str:
        if expected.body_missing:
            return "was pruned, but its row is back" if run is not None else ""
        if run is None:
            return "is missing from the table"
        columns = run_mismatches(run, expected, calls, self._keys)
        return f"does not match the record: {', '.join(columns)}" if columns else ""

    def _check_conversation(self) -> None:
        thread = self._thread
        expected = self._conversation
        rows = list(self._store.messages(thread.id))
        missing = expected.body_missing
        appended = expected.appended
        problems = list(message_problems(appended, rows, thread.messages, body_missing=missing))
        if not problems and self._keys.rows:
            wrong = [row.seq for row in rows if row_wrong(self._keys, row)]
            problems += [
                (None, f"message {seq} was changed: its MAC does not hold") for seq in wrong
            ]
        if thread.owner != expected.owner and not (missing and not expected.owner):
            problems.append((None, f"its owner is {thread.owner!r}, but was {expected.owner!r}"))
        for event, what in problems:
            seq, pos = (self.seq, self.pos) if event is None else (event.seq, event.pos)
            self._problems.add(self._problem(seq, pos, what), table=True)

    # -- the calls

    def _replay_call(self, event: Event, body: Any, *, pruned: bool) -> None:
        if event.call in self._ended:
            if event.type != "late":
                self._report(event.seq, f"call {event.call} had already ended", event.pos)
            return
        expected = self._open.get(event.call)
        if expected is None:
            expected = ExpectedCall(event.call, event.thread, run=event.run)
            self._open[event.call] = expected
        if expected.follows(event, body, pruned=pruned):
            self._apply_to_call(expected, event, body)
        if expected.ended:
            self._check_call_row(self._open.pop(event.call))
            self._ended.add(event.call)

    def _apply_to_call(self, expected: ExpectedCall, event: Event, body: Any) -> None:
        self._apply(event, f"call {expected.id}: ", expected.apply, event, body, self._keys)
        starts = event.type in ("started", "read_started", "released")
        if starts and expected.attempt == 1 and expected.grant is not None:
            # A call spends one use, however often it is started.
            self._findings.spent[expected.grant] += 1
        if starts and "step" in body and expected.grant is not None:
            self._findings.steps.setdefault(expected.grant, set()).add(event.call)
        if "step_returned" in body:
            self._findings.left_steps.add(event.call)
        for key, (keep, amounts) in body.get("spent", {}).items():
            spent = [Spent(event.at, event.call, value, number) for value, number in amounts]
            self._findings.budgets.setdefault(key, []).extend(spent)
            self._findings.kept[key] = min(keep, self._findings.kept.get(key, keep))
        self._findings.returned |= {(key, event.call) for key in body.get("returned", ())}
        self._findings.overturned.update(expected.overturned)
        if expected.refusal is not None:
            self._findings.refusals[expected.refusal.id] = expected.refusal

    def _check_call_row(self, expected: ExpectedCall) -> None:
        try:
            stored_call = self._store.call(expected.id)
        except DAMAGE_ERRORS as error:
            stored_call = None
            wrong = f"has a row that cannot be read: {reason_of(error)}"
        else:
            wrong = self._call_row_problem(stored_call, expected)
        if stored_call is not None:
            self._findings.calls[stored_call.call.run] += 1
        if expected.effect_key and not expected.body_missing:
            self._findings.effects[expected.effect_key] = expected.id
        self._report_row("call", expected, wrong)

    def _call_row_problem(self, found: ListedCall | None, expected: ExpectedCall) -> str:
        if expected.body_missing:
            return "was pruned, but its row is back" if expected.pruned and found else ""
        if found is None:
            return "is missing from the table"
        columns = call_mismatches(found.call, expected, self._keys)
        if columns:
            return f"does not match the record: {', '.join(columns)}"
        decisions: list[Vote | Decided] = list(found.call.votes)
        if found.call.decision is not None:
            decisions.append(found.call.decision)
        for decision in decisions:
            wrong = self._people_problem(found.call, decision, expected.early_votes)
            if wrong:
                return wrong
        if list_status_of(found.call) == UNASKED:
            return ""
        return self._listing_problem(found)

    def _people_problem(
        self, call: Call, decision: Vote | Decided, early_votes: Collection[tuple[str, Micros]]
    ) -> str:
        """Return what is wrong with a decision by the record of people, or ""."""
        if (decision.by, decision.at) in early_votes:
            call = call._replace(escalated=False)
        directory = self._system.directory(decision.people_seq)
        if eligible(call, directory, decision.at) != (decision.eligible, decision.eligible_digest):
            return "names other people who could decide it than the record of people does"
        return ""

    def _listing_problem(self, found: ListedCall) -> str:
        """Return what hides a request from lists: no MAC covers its tool and the list index."""
        call = found.call
        tool = self._store.tool(found.call)
        if tool is None and names_tool(call):
            return f"is hidden: the row of its tool {call.tool} is missing"
        if tool is not None and not is_genuine_tool(tool):
            return f"is hidden: the row of its tool {call.tool} was changed"
        if not is_listed_right(found, tool):
            return f"is listed as {found.list_status!r}, which hides it"
        if found.words != words_of(call, tool):
            return "is hidden from searches: its words were changed or deleted"
        if not self._store.has_search_key(search_key_of(call, tool)):
            return "is hidden from searches and filters: its search key was changed or deleted"
        return ""


def verify(store: Store, *, since: Checkpoint | None = None, jobs: int = 1) -> Report:
    """Read everything in a store, and report rows that were changed, added or removed.

    ``since`` is the ``Report.checkpoint`` of an earlier verification: threads that have not moved
    since and match their seal are not read again. ``jobs`` processes share the work; they are
    forked, so use more than one only where no other OS thread runs.
    """
    if since is not None and since.store != store.incarnation:
        raise InvalidCall(f"the checkpoint is of another store than {store.url}: verify without it")
    return _StoreCheck(store, since).report(jobs)


def thread_problems(rows: StoreReads, thread: Thread) -> list[Problem]:
    """Check one thread in a snapshot: its chain, and the rows that must match it."""
    findings = _Findings()
    seals = Seals(ProblemCollector(), (0, ""))
    system = SystemThread(seals)
    system.catch_up(rows)
    _ThreadCheck(_BatchRows(rows, [thread]), thread, seals, system, findings).run()
    return findings.problems.first()


def _take_batch(threads: Iterator[Thread]) -> list[Thread]:
    """Return the first threads: as many as are read ahead, and at least one."""
    batch = list(islice(threads, 1))
    events = sum(map(_size, batch))
    for thread in islice(threads, _BATCH - 1):
        events += _size(thread)
        if events >= _BATCH_EVENTS:
            break
        batch.append(thread)
    return batch


def _size(thread: Thread) -> int:
    return thread.seq if isinstance(thread.seq, int) else 0


class _StoreCheck:
    #: The snapshot that is being read.
    _rows: StoreReads

    def __init__(self, store: Store, since: Checkpoint | None) -> None:
        self._store = store
        self._since = since
        self._found = _Findings()
        self._problems = self._found.problems
        last_seal = (0, "") if since is None else (since.seal, since.seal_hash)
        self._seals = Seals(self._problems, last_seal)
        self._system = SystemThread(self._seals)
        #: Threads that moved since the checkpoint.
        self._moved: set[str] = set()

    def report(self, jobs: int) -> Report:
        if self._store.restored():
            self._report(
                "the store went back in time: a copy was restored, or its newest rows were cut"
            )
        checkpoint = self._prepare()
        if jobs > 1:
            self._check_in_processes(jobs)
        else:
            self._check_threads("", None)
        self._in_snapshot(self._check_outside_threads)
        findings = self._found
        return Report(
            threads=len(findings.threads),
            unmoved=len(findings.skipped),
            events=findings.events,
            seals=self._seals.count,
            unsealed=findings.unsealed,
            problems=findings.problems.first(),
            found=findings.problems.found,
            checkpoint=checkpoint,
        )

    def _prepare(self) -> Checkpoint:
        """Find what moved since the last checkpoint. Return the next one."""
        since, cursor = self._since, self._store.tail()  # what is added later is read next time
        if since is not None:
            for _, event in read_pages(self._store.events, lambda row: row[0], since.cursor, PAGE):
                self._moved.add(event.thread)
        self._in_snapshot(self._seals.check_known)
        return Checkpoint(self._store.incarnation, cursor, *self._seals.last)

    def _check_threads(self, after: str, end: str | None) -> None:
        """Check the threads after a name, up to another one."""
        last: str | None = after
        while last is not None and last != end:
            last = self._in_snapshot(self._check_batch, last, end)

    def _check_in_processes(self, jobs: int) -> None:
        """Check the threads in some forked processes, each of them an equal share of the events."""
        fork = multiprocessing.get_context("fork")
        working = []
        for after, end in self._shares(jobs):
            receiver, sender = fork.Pipe(duplex=False)
            process = fork.Process(target=self._send_findings, args=(sender, after, end))
            process.start()
            sender.close()
            working.append((process, receiver))
        for process, receiver in working:
            try:
                findings = receiver.recv()
            except EOFError:
                raise StoreError("a process of the audit died: verify with jobs=1") from None
            finally:
                process.join()
            if isinstance(findings, Exception):
                raise findings
            self._found.merge(findings)

    def _send_findings(self, sender: Connection, after: str, end: str | None) -> None:
        self._found = _Findings()
        self._problems = self._found.problems
        try:
            self._check_threads(after, end)
            sender.send(self._found)
        except Exception as error:
            sender.send(error)
        sender.close()

    def _shares(self, jobs: int) -> list[tuple[str, str | None]]:
        try:
            with self._store.snapshot() as rows:
                sizes = [(thread.id, _size(thread)) for thread in threads_of(rows, "", PAGE)]
        except Unreadable:
            return [("", None)]  # the check of the threads reports it
        share = sum(size for _, size in sizes) / jobs
        ends: list[str] = []
        events = 0
        for name, size in sizes:
            events += size
            if events > share * (len(ends) + 1):
                ends.append(name)
        ends = ends[: jobs - 1]
        return list(zip(["", *ends], [*ends, None], strict=True))

    def _in_snapshot(self, check: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        attempts = 0
        while True:
            try:
                with self._store.snapshot() as self._rows:
                    self._system.catch_up(self._rows)
                    return check(*args, **options)
            except SnapshotLost as error:
                attempts += 1
                if attempts == _MAX_ATTEMPTS:
                    raise StoreError(f"{self._store.url} could not be read: {error}") from error

    def _report(self, what: str, thread: str = "", seq: int = 0, pos: int = 0) -> None:
        self._problems.add(Problem(thread, seq, pos, what))

    def _report_row(self, what: str, thread: str = "") -> None:
        self._problems.add(Problem(thread, 0, 0, what), table=True)

    # -- chains

    def _check_batch(self, after: str, end: str | None) -> str | None:
        """Check some threads, and return the last of them, or ``None`` if there are no more."""
        try:
            batch = _take_batch(threads_of(self._rows, after, _BATCH))
        except Unreadable as error:
            self._report(f"the threads after {error.after!r} cannot be read: {error}")
            return None
        names = [thread.id for thread in batch]
        if end in names:
            del batch[names.index(end) + 1 :]
        # Added only at the end: a batch whose snapshot is lost is read again.
        findings = _Findings()
        if self._since is not None:
            findings.skipped.update(thread.id for thread in batch if self._is_unmoved(thread))
            batch = [thread for thread in batch if thread.id not in findings.skipped]
        rows = _BatchRows(self._rows, batch)
        for thread in batch:
            _ThreadCheck(rows, thread, self._seals, self._system, findings).run()
        self._found.merge(findings)
        return names[-1] if end not in names and names else None

    def _is_unmoved(self, thread: Thread) -> bool:
        """Return whether a thread need not be read: a seal and its MAC prove where it ends."""
        head = self._seals.heads.get(thread.id)
        if head is None or thread.id in self._moved or thread.id == SYSTEM_THREAD:
            return False
        sealed = thread.seq, thread.head, thread.sealed, thread.moved
        proven = sealed == (head.seq, head.hash, head.seq, 0)
        try:
            return proven and not (self._store.keys.rows and row_wrong(self._store.keys, thread))
        except DAMAGE_ERRORS:
            return False

    # -- rows without events, and events without rows

    def _check_outside_threads(self) -> None:
        """Check what belongs to no thread. Much may have been added since the threads were read."""
        self._check_missing_threads()
        self._check_orphan_events()
        self._check_orphan_calls()
        self._check_orphan_runs()
        self._check_grants_and_tokens()
        self._check_effect_keys()
        self._check_budgets()
        self._check_refusals()
        self._check_counts()

    def _check_missing_threads(self) -> None:
        for thread in self._seals.heads.keys() - self._found.threads - self._found.skipped:
            head = self._seals.heads[thread]
            if not self._rows.chain(thread, 0, 1):
                what = f"the whole thread is missing: seal {head.n} has its rows up to {head.seq}"
                self._report(what, thread, 1)

    def _check_orphan_events(self) -> None:
        try:
            for thread, seq in self._rows.orphan_events(MAX_PROBLEMS):
                events = self._rows.chain(thread, seq - 1, 1)
                self._report("its thread has no row", str(thread), seq, events[0].pos)
        except DAMAGE_ERRORS as error:
            if not self._problems.found:
                self._report(f"the events cannot be read: {reason_of(error)}")

    def _check_orphan_calls(self) -> None:
        try:
            for run, count in self._rows.call_counts():
                if count > self._found.calls[run] and self._is_in_checked_thread(run):
                    for call in self._rows.calls_of(run):
                        events = chain_of(self._rows, call.thread)
                        if not any(event.call == call.id for event in events):
                            what = f"call {call.id} is in the table, but no event made it"
                            self._report_row(what, call.thread)
        except (*DAMAGE_ERRORS, Unreadable) as error:
            if not self._problems.found:
                self._report_row(f"a call that no event made cannot be read: {reason_of(error)}")

    def _check_orphan_runs(self) -> None:
        try:
            for run, thread in read_pages(self._rows.run_threads, lambda row: row[0], "", PAGE):
                if run in self._found.runs or thread in self._found.skipped:
                    continue
                # It may have started since its thread was read.
                if not any(event.run == run for event in chain_of(self._rows, thread)):
                    what = f"run {run} is in the table, but no event started it"
                    self._report_row(what, thread)
        except (*DAMAGE_ERRORS, Unreadable) as error:
            if not self._problems.found:
                self._report_row(f"the runs cannot be read: {reason_of(error)}")

    def _is_in_checked_thread(self, run: str) -> bool:
        if not self._found.skipped or run in self._found.runs:
            return True
        row = self._rows.run(run)
        return row is None or row.thread not in self._found.skipped

    def _check_counts(self) -> None:
        """Check the counts of open requests, which have no MAC."""
        try:
            wrong = self._rows.miscounted()
        except DAMAGE_ERRORS as error:
            self._report_row(f"the counts of open requests cannot be read: {reason_of(error)}")
            return
        if wrong:
            self._report_row(f"counts of open requests that do not match the requests: {wrong}")

    def _uses(self) -> GrantUses:
        left = self._found.left_steps
        steps = {plan: calls - left for plan, calls in self._found.steps.items()}
        return GrantUses(self._found.spent, steps)

    def _check_grants_and_tokens(self) -> None:
        try:
            found = system_row_problems(self._rows, self._system, self._uses())
        except DAMAGE_ERRORS as error:
            found = [
                Problem(SYSTEM_THREAD, 0, 0, f"grants or tokens cannot be read: {reason_of(error)}")
            ]
        for problem in found:
            self._problems.add(problem, table=True)

    # -- effect keys

    def _check_effect_keys(self) -> None:
        """Check that each effect key belongs to the call that its row names, and vice versa."""
        store = self._rows
        try:
            for effect in read_pages(store.effects, lambda effect: effect.key, "", PAGE):
                if wrong := self._effect_problem(effect):
                    self._report_row(f"effect {effect.key} {wrong}", effect.thread)
            for key, call_id in self._found.effects.items():
                held = store.effect(key)
                call = store.call(call_id)
                # A pruned call leaves its key behind, and it must be there.
                if (held is None or held.call != call_id) and (call is None or _has_key(call, key)):
                    self._report_row(f"effect {key} of call {call_id} is missing from the table")
        except (Unreadable, *DAMAGE_ERRORS) as error:
            self._report_row(f"the effects cannot be read: {reason_of(error)}")

    # -- budgets

    def _check_budgets(self) -> None:
        """Check that each budget counts at least what the record says that calls added."""
        store = self._rows
        try:
            budgets = {budget.key: budget for budget in store.budgets()}
            for budget in budgets.values():
                if store.keys.rows and (wrong := row_wrong(store.keys, budget)):
                    self._report_row(f"budget {budget.key} {wrong}")
            for key, recorded in self._found.budgets.items():
                spent = [e for e in recorded if (key, e.call) not in self._found.returned]
                since = store.now() - self._found.kept[key]
                if counts_too_little(budgets.get(key), [e for e in spent if e.at > since]):
                    self._report_row(f"budget {key} counts less than the record says")
        except DAMAGE_ERRORS as error:
            self._report_row(f"the budgets cannot be read: {reason_of(error)}")

    # -- refusals

    def _check_refusals(self) -> None:
        """Check that each refusal is as its rejection made it, and that none is missing."""
        store = self._rows
        try:
            for refusal in read_pages(store.all_refusals, lambda refusal: refusal.id, "", PAGE):
                if wrong := self._refusal_problem(refusal):
                    self._report_row(f"refusal {refusal.id} {wrong}", refusal.thread)
            for name, expected in self._found.refusals.items():
                pruned = self._system.pruned(expected.run, expected.at)
                if store.refusal(name) is None and not pruned:
                    self._report_row(f"refusal {name} is missing from the table", expected.thread)
        except (Unreadable, *DAMAGE_ERRORS) as error:
            self._report_row(f"the refusals cannot be read: {reason_of(error)}")

    def _refusal_problem(self, refusal: Refusal) -> str:
        store = self._rows
        findings = self._found
        if store.keys.rows and (wrong := row_wrong(store.keys, refusal)):
            return f"was changed: {wrong}"
        expected = findings.refusals.get(refusal.id)
        if expected is not None:
            columns = [
                name
                for name in _REFUSAL_COLUMNS
                if getattr(refusal, name) != getattr(expected, name)
            ]
            if columns:
                return f"does not match the record: {', '.join(columns)}"
        elif refusal.thread not in findings.skipped and not self._was_rejected(refusal):
            return "is in the table, but no event made it"
        lifted = refusal.id in self._system.lifted or refusal.id in findings.overturned
        if lifted and refusal.lifted is None:
            return "was lifted, but its row was put back"
        # The event that overturned it may be pruned, or in a thread that was not read again.
        is_explained = lifted or self._system.has_pruned or findings.skipped
        if refusal.lifted is not None and not is_explained:
            return "is lifted, but no event says so"
        return ""

    def _was_rejected(self, refusal: Refusal) -> bool:
        """Return whether an event rejects its request: it may be newer than what was read."""
        events = self._rows.call_events(refusal.request)
        return any(event.type == "decided" for event in events)

    def _effect_problem(self, effect: EffectKey) -> str:
        store = self._rows
        if store.keys.rows and (wrong := row_wrong(store.keys, effect)):
            return f"was changed: {wrong}"
        call = store.call(effect.call)
        if call is None:
            pruned = self._system.pruned(effect.run, effect.created)
            return "" if pruned else f"belongs to call {effect.call}, which is missing"
        if _has_key(call, effect.key) or store.effect(effect.key) != effect:
            return ""
        return f"belongs to call {call.id}, which does not hold it"


def _has_key(call: Call, key: str) -> bool:
    """Return whether a call holds this effect key: it ran, is running, or may have run."""
    failed = call.status is CallStatus.FAILED
    did_not_run = call.doubt is not None and call.doubt.answer == "did_not_run"
    gave_up = call.decision is not None and call.decision.type == "reject" and not did_not_run
    return call.effect_key == key and (gave_up or not failed)
