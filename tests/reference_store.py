"""A second implementation of the store contract, to compare the others with.

It keeps rows in dictionaries and reads them with loops, so it shares no statement with the stores
in SQL. The state machines and the tests of lists expect of those what this one returns.
"""

from __future__ import annotations

import secrets
import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sayso.engine import Command, UnitOfWork
from sayso.engine.asking import due_step
from sayso.engine.budgets import budget_keys
from sayso.engine.commands import Needs
from sayso.engine.grants import RUN_TOOL
from sayso.engine.renewing import Renewal, renewed
from sayso.engine.row_macs import row_mac
from sayso.errors import Conflict
from sayso.forking import no_fork, renew_in_child
from sayso.keys import Keyring
from sayso.rows import (
    LIVE,
    RECENT_CALLS,
    SYSTEM_THREAD,
    TOOL_USE,
    Budget,
    Call,
    CallStatus,
    Credential,
    Delivery,
    Directory,
    EffectKey,
    Event,
    LiveProcess,
    Person,
    Run,
    StoredMessage,
    Thread,
    Tool,
)
from sayso.rows import (
    OPEN as OPEN_CALLS,
)
from sayso.stores.base import (
    RESERVED_SECONDS,
    Backlog,
    Boundary,
    Cursor,
    DecisionTime,
    Due,
    Hub,
    ListedCall,
    Listener,
    OpenAges,
    Query,
    Rekeyed,
    RequestGroup,
    SearchKey,
    Tallies,
    Tally,
    Viewer,
    Vitals,
    age_key,
    age_start,
    commit_name,
    engine_deps,
    page_key,
    page_start,
    position_of,
    pruned_note,
    run_commands,
)
from sayso.stores.listing import (
    APPROVING,
    DECIDED,
    OPEN,
    SLOT,
    UNASKED,
    decided,
    fits,
    group_key_of,
    is_for,
    list_status_of,
    list_statuses_of,
    search_key_of,
    sees_group,
    short,
    shows,
    took_width,
    words_of,
)
from sayso.stores.seals import Seal, SealSchedule, Unsealed, next_seal
from sayso.types import Grant, Micros, Refusal, look_of


def still_needed(ended: Iterable[Run], calls: Mapping[str, Call]) -> set[str]:
    """Return the ended runs whose parent call is still open: without them it would start again."""
    begun = ((run.id, calls.get(run.parent_call or "")) for run in ended)
    return {id for id, call in begun if call is not None and call.status in OPEN_CALLS}


class ReferenceStore:
    """A store in dictionaries, gone with the process."""

    def __init__(
        self,
        *,
        keys: Keyring | None = None,
        clock: Callable[[], Micros] = lambda: time.time_ns() // 1000,
        boundary: Boundary | None = None,
    ) -> None:
        self.url = "memory://reference"
        self.quick_reads = True
        self.incarnation = secrets.token_hex(16)
        self.keys = keys or Keyring.ephemeral()
        self.boundary = boundary
        self.now = clock
        self._deps = engine_deps(self.keys)
        self.after_fork()
        renew_in_child(self)
        self._hub = Hub()
        self._threads: dict[str, Thread] = {}
        self._cursors: dict[str, str] = {}
        self._deliveries: dict[str, Delivery] = {}
        self._runs: dict[str, Run] = {}
        self._calls: dict[str, Call] = {}
        self._order: dict[str, int] = {}
        self._by_key: dict[tuple[str, str], str] = {}
        self._tools: dict[str, Tool] = {}
        self._messages: dict[str, list[StoredMessage]] = {}
        self._grants: dict[str, Grant] = {}
        self._refusals: dict[str, Refusal] = {}
        #: By the look of the name.
        self._people: dict[str, Person] = {}
        #: By the hash of the secret.
        self._credentials: dict[str, Credential] = {}
        self._effects: dict[str, EffectKey] = {}
        self._budgets: dict[str, Budget] = {}
        self._events: list[Event] = []
        self._chains: dict[str, list[int]] = {}
        self._seals: list[Seal] = []
        self._schedule = SealSchedule()
        self._boundary_name = ""

    def after_fork(self) -> None:
        """Free the lock. A forked child has a copy of the store, and the parent has the store."""
        self._lock = threading.RLock()
        #: The token, worker and end of each reservation, by run.
        self._reserved: dict[str, tuple[int, str, float]] = {}

    # -- writing

    def transact(self, *commands: Command) -> list[Any]:
        with self._lock, no_fork.lock:
            self._boundary_name = commit_name(commands)
            results, work = run_commands(self, commands)
            if self._schedule.may_be_due(len(self._events), self.now()):
                self.seal_if_due()
        self._hub.publish({event.thread for event in work.events})
        return results

    def renew(self, renewals: Sequence[Renewal], patience: float) -> dict[str, bool]:
        with self._lock, no_fork.lock:
            now, mac = self.now(), self._deps.mac
            extended: dict[str, bool] = {}
            self._cross("renew", "before")
            for renewal in renewals:
                rows: dict[str, Any] = self._calls if renewal.call else self._runs
                row = rows.get(renewal.row)
                if row is None or (renewal.call and row.status is not CallStatus.IN_DOUBT):
                    continue
                longer = renewed(row, renewal, now, mac)
                extended[renewal.row] = longer is not None
                if longer is not None:
                    rows[renewal.row] = longer
            self._cross("renew", "after")
        return extended

    def _cross(self, name: str, when: str) -> None:
        if self.boundary is not None:
            self.boundary(name, when)

    def load(self, thread: str, needs: Needs) -> UnitOfWork:
        work = UnitOfWork(now=self.now(), deps=self._deps, thread=self._thread(thread))
        if needs.run is not None:
            work.run = None if needs.fresh else self._runs.get(needs.run)
        work.calls = {call.id: call for call in self._needed_calls(needs)}
        wanted = set(needs.grants)
        if needs.spends or needs.gives_back:
            wanted |= {call.grant for call in work.calls.values() if call.grant}
        for grant in self._grants.values():
            fits = grant.revoked is None and (grant.agent, grant.tool_digest) in needs.grants_for
            if grant.revoked is None and grant.tool_digest == RUN_TOOL + (needs.run or ""):
                agents = {agent for agent, _ in needs.grants_for}
                fits = needs.run_grants or grant.agent in agents
            given = grant.by in needs.grants_by and grant.revoked is None
            if fits or given or grant.id in wanted:
                work.grants[grant.id] = grant
        work.refusals = {refusal.id: refusal for refusal in self._needed_refusals(needs)}
        keys = set(needs.effects)
        if needs.spends:
            keys |= {call.effect_key for call in work.calls.values() if call.effect_key}
        work.effects = {key: self._effects[key] for key in keys if key in self._effects}
        effect_owners = [self._calls.get(effect.call) for effect in work.effects.values()]
        work.effect_owners = {call.id: call for call in effect_owners if call is not None}
        counts = needs.spends or needs.gives_back
        calls = work.calls.values() if counts else ()
        grants = work.grants.values() if counts or needs.starts else ()
        for key in budget_keys(calls, grants, needs.limits):
            if key in self._budgets:
                work.budgets[key] = self._budgets[key]
        if needs.system:
            work.system = self._thread(SYSTEM_THREAD)
        self._load_people(work, needs)
        return work

    def _load_people(self, work: UnitOfWork, needs: Needs) -> None:
        calls = list(work.calls.values()) if needs.voters else []
        votes = [vote for call in calls for vote in call.votes]
        named = {*needs.people, *(n for vote in votes for n in (vote.by, vote.on_behalf_of))}
        looks = {look_of(name) for name in named}
        for look, person in self._people.items():
            if look in looks or person.stand_in in needs.absent:
                work.people[look] = person
        work.directory = Directory(self._people.values(), self._thread(SYSTEM_THREAD).seq)
        for hash, credential in self._credentials.items():
            if hash in needs.credentials or credential.person in needs.credentials_of:
                work.credentials[hash] = credential

    def _needed_refusals(self, needs: Needs) -> Iterable[Refusal]:
        equal = set(needs.refusals_for)
        for call_id in needs.calls if needs.refusals_of_calls else ():
            call = self._calls.get(call_id)
            if call is not None:
                hashes = (call.args_hash, *needs.edited_args)
                equal |= {(call.agent, call.tool, args_hash) for args_hash in hashes}
        for refusal in self._refusals.values():
            fits = (refusal.agent, refusal.tool, refusal.args_hash) in equal
            if refusal.id in needs.refusals or (fits and refusal.lifted is None):
                yield refusal

    def _needed_calls(self, needs: Needs) -> Iterable[Call]:
        found = [self._calls.get(call_id) for call_id in needs.calls]
        if needs.run in self._runs:
            found += [self.call_by_key(needs.run, key) for key in needs.keys]
        if needs.run in self._runs and (needs.statuses or needs.callers):
            for call in self.calls_of(needs.run):
                joinable = any(call.can_be_joined_by(caller) for caller in needs.callers)
                found += [call] if joinable or call.status in needs.statuses else []
        return [call for call in found if call is not None]

    def _thread(self, thread_id: str) -> Thread:
        return self._threads.get(thread_id) or Thread(id=thread_id)

    def save(self, work: UnitOfWork) -> None:
        """Write what changed. Nothing was touched so far, so raising here undoes everything."""
        run = work.run
        self._check_unique(work)
        self._cross(self._boundary_name, "before")
        for thread in (work.thread, work.system):
            if thread is not None and (thread.seq or thread.messages or work.new_run):
                self._threads[thread.id] = thread
        if run is not None and work.run_touched:
            self._runs[run.id] = run
        for call in work.touched_calls.values():
            self._order.setdefault(call.id, len(self._order) + 1)
            self._by_key[call.run, call.key] = call.id
            self._calls[call.id] = call
        self._tools.update({tool.digest: tool for tool in work.tools})
        self._messages.setdefault(work.thread.id, []).extend(work.messages)
        self._grants.update(work.touched_grants)
        self._refusals.update(work.touched_refusals)
        for key, call_id in work.freed_effects.items():
            if key in self._effects and self._effects[key].call == call_id:
                del self._effects[key]
        self._effects.update(work.taken_effects)
        self._budgets.update(work.touched_budgets)
        self._people.update({p.look: p for p in work.touched_people.values()})
        for hash, credential in list(self._credentials.items()):
            if credential.id in work.dropped_credentials:
                del self._credentials[hash]
        self._credentials.update({c.hash: c for c in work.touched_credentials.values()})
        for event in work.events:
            self._events.append(event._replace(pos=len(self._events) + 1))
            self._chains.setdefault(event.thread, []).append(len(self._events))
        self._cross(self._boundary_name, "after")

    def _check_unique(self, work: UnitOfWork) -> None:
        """Enforce what the unique indexes of a database would."""
        run = work.run
        live = self.live_run(run.thread) if run is not None and run.status in LIVE else None
        if run is not None and live is not None and live.id != run.id:
            raise Conflict(f"thread {live.thread} has a live run already: {live.id}")
        taken = [call_id for call_id in work.new_calls if call_id in self._calls]
        taken += [run.id] if run is not None and work.new_run and run.id in self._runs else []
        ids = {hash: credential.id for hash, credential in self._credentials.items()}
        hashes = {credential_id: hash for hash, credential_id in ids.items()}
        taken += [
            c.id
            for c in work.touched_credentials.values()
            if (ids.get(c.hash, c.id), hashes.get(c.id, c.hash)) != (c.id, c.hash)
        ]
        if taken:
            raise Conflict(f"{taken[0]} exists already: use another id")

    def seal(self) -> Seal | None:
        with self._lock, no_fork.lock:
            moved = [t.id for t in self._moved()]
            if not moved or not self.keys.can_sign:
                return None
            heads = [(t.id, t.seq, t.head) for t in map(self._threads.__getitem__, moved)]
            last = self._seals[-1] if self._seals else None
            self._seals.append(next_seal(self.keys, last, heads, self.now()))
            for thread in moved:
                row = self._threads[thread]
                self._threads[thread] = row._replace(sealed=row.seq, moved=0)
            return self._seals[-1]

    def _moved(self) -> list[Thread]:
        moved = [t for t in self._threads.values() if t.moved]
        return sorted(moved, key=lambda t: (t.id != SYSTEM_THREAD, t.id))

    def seal_if_due(self) -> Seal | None:
        with self._lock, no_fork.lock:
            return self._schedule.seal_if_due(self.now(), self._unsealed, self.seal)

    def _unsealed(self) -> Unsealed:
        moved = self._moved()
        first = (self._events[self._chains[t.id][t.sealed] - 1].at for t in moved)
        count = sum(t.seq - t.sealed for t in moved)
        return Unsealed(count, min(first, default=None), len(self._events))

    def prune(self, before: Micros, by: str) -> dict[str, int]:
        with self._lock, no_fork.lock:
            busy = {event.thread for event in self._events if event.at >= before}
            ended = [r for r in self._runs.values() if r.status not in LIVE]
            needed = still_needed(ended, self._calls)
            over = [r for r in ended if r.thread not in busy and r.id not in needed]
            forgotten = [(run.thread, run.id) for run in over]
            ids = {run.id for run in over}
            counts = {"bodies": 0, "calls": 0, "messages": 0, "runs": len(over)}
            for index, event in enumerate(self._events):
                if event.run in ids and event.body is not None:
                    self._events[index] = event._replace(body=None)
                    counts["bodies"] += 1
            spent: Counter[str] = Counter()
            pruned = {call.id for call in self._calls.values() if call.run in ids}
            for call in [c for c in self._calls.values() if c.run in ids]:
                if call.grant is not None and call.attempt:
                    spent[call.grant] += 1
                del self._calls[call.id], self._by_key[call.run, call.key]
                counts["calls"] += 1
            for refusal in [one for one in self._refusals.values() if one.run in ids]:
                del self._refusals[refusal.id]
            for row in [one for one in self._deliveries.values() if one.request in pruned]:
                del self._deliveries[row.id]
            for thread, said in self._messages.items():
                gone = [message.seq for message in said if message.run in ids]
                if gone:
                    row = self._threads[thread].without_messages(gone)
                    self._threads[thread] = row._replace(mac=row_mac(row, self._deps.mac))
                    self._messages[thread] = [m for m in said if m.run not in ids]
                    counts["messages"] += len(gone)
            for run in over:
                del self._runs[run.id]
            kept = {key: one for key, one in self._budgets.items() if one.until >= before}
            self._budgets = kept
            self.transact(pruned_note(before, by, forgotten, counts, spent))
            self.seal()
            return counts

    # -- reading

    @contextmanager
    def snapshot(self) -> Iterator[ReferenceStore]:
        """Read the store as it is at this moment: other OS threads wait."""
        with self._lock, no_fork.lock:
            yield self

    def run(self, run_id: str) -> Run | None:
        return self._runs.get(run_id)

    def live_run(self, thread: str) -> Run | None:
        runs = list(self._runs.values())
        return next((r for r in runs if r.thread == thread and r.status in LIVE), None)

    def last_run(self, thread: str) -> Run | None:
        said = self._messages.get(thread)
        return self.live_run(thread) or (self._runs.get(said[-1].run) if said else None)

    def call(self, call_id: str) -> Call | None:
        return self._calls.get(call_id)

    def call_by_key(self, run: str, key: str) -> Call | None:
        call_id = self._by_key.get((run, key))
        return None if call_id is None else self._calls[call_id]

    def released_call(self, run: str, caller: str) -> Call | None:
        calls = [c for c in self.calls_of(run) if c.status is CallStatus.RELEASED]
        return next((c for c in reversed(calls) if c.caller == caller), None)

    def released_use(self, run: str, tool_digest: str, args_hash: str) -> Call | None:
        for call in reversed(self.calls_of(run)[-RECENT_CALLS:]):
            fits = (call.tool_digest, call.args_hash, call.result) == (tool_digest, args_hash, None)
            if fits and call.status is CallStatus.RELEASED and call.caller.startswith(TOOL_USE):
                return call
        return None

    def calls_of(self, run: str, keys: Sequence[str] | None = None) -> list[Call]:
        calls = [call for call in list(self._calls.values()) if call.run == run]
        return calls if keys is None else [call for call in calls if call.key in keys]

    def calls_since(
        self, since: Micros, agent: str | None = None, tool: str | None = None
    ) -> Iterator[Call]:
        calls = sorted(self._calls.values(), key=lambda call: call.created, reverse=True)
        recent = [call for call in calls if call.created >= since]
        ours = [call for call in recent if agent in (None, call.agent)]
        return iter([call for call in ours if tool in (None, call.tool)])

    def calls_like(self, prefix: str, limit: int) -> list[str]:
        return sorted(call_id for call_id in list(self._calls) if call_id.startswith(prefix))[
            :limit
        ]

    def tool(self, digest: str) -> Tool | None:
        return self._tools.get(digest)

    def messages(self, thread: str, after: int = 0) -> list[tuple[int, str]]:
        messages = list(self._messages.get(thread, ()))
        return [(message.seq, message.body) for message in messages if message.seq > after]

    def messages_beyond(self, thread: str, after: int, count: int) -> list[tuple[int, str]] | None:
        found = self.messages(thread)
        newer = [message for message in found if message[0] > after]
        return newer if len(found) - len(newer) == count else None

    def stored_messages(
        self, thread: str, after: int = 0, limit: int = 1000
    ) -> list[StoredMessage]:
        said = list(self._messages.get(thread, ()))
        return [message for message in said if message.seq > after][:limit]

    def page(self, query: Query) -> list[tuple[int, Call]]:
        found = [
            (page_key(query, self._order[call.id], call.expires_at), call)
            for call in list(self._calls.values())
            if self._fits(call, query)
        ]
        if query.after is not None:
            start = page_start(query)[1] if query.sort != "expiring" else query.after
            newest = query.sort == "newest"
            found = [p for p in found if (p[0] < start if newest else p[0] > start)]
        found.sort(key=lambda pair: pair[0], reverse=query.sort == "newest")
        return found[: query.limit]

    def groups(self, query: Query, viewer: Viewer) -> list[RequestGroup]:
        found: dict[tuple[str, str, str, str], list[Call]] = {}
        for call in list(self._calls.values()):
            if self._fits(call, query) and is_for(viewer, call):
                in_doubt = list_status_of(call) == "in_doubt"
                kind = "in_doubt" if in_doubt else call.kind
                key = (kind, short(call.agent), short(call.tool), call.terms.risk.level)
                found.setdefault(key, []).append(call)
        return [
            RequestGroup(
                *key,
                len(calls),
                min((call.expires_at for call in calls if call.expires_at), default=None),
                min(calls, key=lambda call: self._order[call.id]).created,
            )
            for key, calls in sorted(found.items())
        ]

    def _fits(self, call: Call, query: Query) -> bool:
        if list_status_of(call) not in list_statuses_of(query) or not fits(call, query):
            return False
        return shows(call, self._tools.get(call.tool_digest), query.text)

    def _search_key(self, call: Call) -> SearchKey:
        return search_key_of(call, self._tools.get(call.tool_digest))

    def tallies(self, viewer: Viewer, since: Sequence[Micros]) -> Tallies:
        slots = [at // SLOT for at in since]
        counts: dict[tuple[str, str, str], list[int]] = {}
        times: Counter[DecisionTime] = Counter()
        for call in list(self._calls.values()):
            if not sees_group(viewer, call.terms.reviewers):
                continue
            for what, at in _moments(call):
                period = bisect_right(slots, at // SLOT) - 1
                if period < 0:
                    continue
                key = (what, call.kind, short(call.tool))
                counts.setdefault(key, [0] * len(slots))[period] += 1
                if what in DECIDED:
                    seconds = max(at - (decided(call).opened or call.created), 0) // 1_000_000
                    seconds -= seconds % took_width(seconds)
                    times[DecisionTime(decided(call)[0] or "", what in APPROVING, seconds)] += 1
        return Tallies([Tally(*key, tuple(each)) for key, each in counts.items()], dict(times))

    def open_ages(self, viewer: Viewer, since: Sequence[Micros]) -> OpenAges:
        created = [
            call.created
            for call in list(self._calls.values())
            if list_status_of(call) in OPEN and sees_group(viewer, call.terms.reviewers)
        ]
        periods = Counter(bisect_right(since, at) - 1 for at in created)
        newer = tuple(periods[n] for n in range(len(since)))
        return OpenAges(len(created), min(created, default=None), newer)

    def miscounted(self) -> int:
        return 0

    def key_uses(self, most: int) -> dict[str, Counter[str]]:
        return {}

    def has_signed(self, key_id: str) -> bool:
        return key_id == self.keys.primary_id

    def rekey(self, table: str, after: Sequence[Any] | None) -> Rekeyed:
        return Rekeyed(None, 0, Counter())  # it has one key for as long as it lives

    def processes(self) -> list[LiveProcess]:
        return []  # no other process can open it

    def waiting(self) -> dict[str, int]:
        list_statuses = [list_status_of(call) for call in list(self._calls.values())]
        return {name: list_statuses.count(name) for name in OPEN}

    def vitals(self) -> Vitals:
        now = self.now()
        calls = list(self._calls.values())
        created = [call.created for call in calls if list_status_of(call) in OPEN]
        ends = [call.expires_at for call in calls if list_status_of(call) == "asked"]
        overdue = [end for end in ends if end is not None and end <= now]
        runs = [run for run in list(self._runs.values()) if run.agent_digest and run.due(now)]
        due = [run.ready_at for run in runs if run.owner is None and run.ready_at is not None]
        unsealed = self._unsealed()
        waiting = [row for row in self._deliveries.values() if row.next_at is not None]
        return Vitals(
            oldest_request=min(created, default=None),
            runs_due=len(due),
            runs_due_since=min(due, default=None),
            overdue=len(overdue),
            overdue_since=min(overdue, default=None),
            unsealed=unsealed.events,
            unsealed_since=unsealed.oldest,
            backlogs={
                channel: self._backlog([row for row in waiting if row.channel == channel], now)
                for channel in {row.channel for row in waiting}
            },
        )

    def _backlog(self, waiting: Sequence[Delivery], now: Micros) -> Backlog:
        steps = [row.next_at for row in waiting if row.state != "seen"]
        due = [at for at in steps if at is not None and at <= now]
        return Backlog(sum(1 for row in waiting if row.error), len(due), min(due, default=None))

    def runs(
        self,
        *,
        status: str | None = None,
        agent: str | None = None,
        thread: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> list[tuple[str, Run]]:
        start = age_start(after)
        found = [
            run
            for run in list(self._runs.values())
            if status in (None, run.status)
            and agent in (None, run.agent)
            and thread in (None, run.thread)
            and (run.created, run.id) < start
        ]
        found.sort(key=lambda run: (run.created, run.id), reverse=True)
        return [(age_key(run.created, run.id), run) for run in found[:limit]]

    def threads_of(
        self, owner: str, after: str | None = None, limit: int = 50
    ) -> list[tuple[str, Thread]]:
        start = age_start(after)
        owned = [t for t in list(self._threads.values()) if owner and t.owner == owner]
        found = sorted(((thread.created, thread.id) for thread in owned), reverse=True)
        after_start = [pair for pair in found if pair < start][:limit]
        return [(age_key(at, name), self._threads[name]) for at, name in after_start]

    def grants(self, *, live_only: bool = True) -> list[Grant]:
        grants = sorted(self._grants.values(), key=lambda g: (g.created, g.id))
        return [g for g in grants if g.live(self.now())] if live_only else grants

    def refusals(
        self, *, after: str | None = None, limit: int = 50, lifted: bool = False
    ) -> list[tuple[str, Refusal]]:
        found = [r for r in list(self._refusals.values()) if lifted or r.lifted is None]
        found.sort(key=lambda refusal: (refusal.at, refusal.id), reverse=True)
        start = age_start(after)
        older = [r for r in found if (r.at, r.id) < start or after is None]
        return [(age_key(refusal.at, refusal.id), refusal) for refusal in older[:limit]]

    def refusal(self, refusal_id: str) -> Refusal | None:
        return self._refusals.get(refusal_id)

    def refusals_of(self, agent: str, tool: str, args_hash: str) -> list[Refusal]:
        content = (agent, tool, args_hash)
        refusals = [
            refusal
            for refusal in list(self._refusals.values())
            if (refusal.agent, refusal.tool, refusal.args_hash) == content
            and refusal.lifted is None
        ]
        return sorted(refusals, key=lambda refusal: refusal.at, reverse=True)

    def all_refusals(self, after: str = "", limit: int = 1000) -> list[Refusal]:
        return [r for _, r in sorted(self._refusals.items()) if r.id > after][:limit]

    def people(self) -> list[Person]:
        return sorted(self._people.values())

    def person(self, name: str) -> Person | None:
        return self._people.get(look_of(name))

    def absent(self) -> list[Person]:
        return [person for person in self.people() if person.stand_in]

    def actor(self, name: str) -> tuple[Person | None, list[Person]]:
        return self.person(name), [p for p in self.absent() if p.stand_in == name]

    def credentials(self, person: str | None = None) -> list[Credential]:
        rows = [c for c in list(self._credentials.values()) if person in (None, c.person)]
        return sorted(rows, key=lambda c: (c.created, c.id))

    def credential(self, hash: str) -> Credential | None:
        return self._credentials.get(hash)

    def budgets(self) -> list[Budget]:
        return [self._budgets[key] for key in sorted(self._budgets)]

    def effect(self, key: str) -> EffectKey | None:
        return self._effects.get(key)

    def effects(self, after: str = "", limit: int = 1000) -> list[EffectKey]:
        keys = sorted(key for key in list(self._effects) if key > after)
        return [self._effects[key] for key in keys[:limit]]

    def overdue(self, limit: int = 100) -> list[Due]:
        now = self.now()
        expired, held = (
            [
                (call.due_at or 0, Due(call.thread, call.run, call.id))
                for call in list(self._calls.values())
                if call.overdue(now) and bool(call.held) == is_held
            ]
            for is_held in (False, True)
        )
        steps = [
            (call.step_at or 0, Due(call.thread, call.run, call.id))
            for call in list(self._calls.values())
            if due_step(call, now)
        ]
        lapsed = [
            (run.ready_at or 0, Due(run.thread, run.id, None))
            for run in list(self._runs.values())
            if run.owner is not None and run.due(now)
        ]
        first = [
            sorted(due, key=lambda pair: pair[0])[:limit] for due in (expired, held, steps, lapsed)
        ]
        return [due for found in first for _, due in found]

    def next_due(self, after: Micros = 0) -> Micros | None:
        calls = list(self._calls.values())
        times = [at for call in calls for at in (call.due_at, call.step_at)]
        times += [run.ready_at for run in list(self._runs.values())]
        return min((time for time in times if time is not None and time > after), default=None)

    def ready(self, agents: Sequence[str], limit: int = 1) -> list[Run]:
        now = self.now()
        due = [
            (run.ready_at or 0, run)
            for run in list(self._runs.values())
            if run.agent in agents and run.due(now)
        ]
        return [run for _, run in sorted(due, key=lambda pair: pair[0])[:limit]]

    def reserve(
        self, agents: Sequence[str], limit: int, worker: str, skip: Collection[str] = ()
    ) -> list[Run]:
        now, found = time.monotonic(), list[Run]()
        with self._lock:
            self._reserved = {r: kept for r, kept in self._reserved.items() if kept[2] > now}
            for run in self.ready(agents, len(self._runs)):
                skipped = run.id in skip or run.thread in skip
                token, other, _ = self._reserved.get(run.id, (run.token, worker, now))
                if limit and not skipped and (token != run.token or other == worker):
                    self._reserved[run.id] = (run.token, worker, now + RESERVED_SECONDS)
                    limit -= 1
                    found.append(run)
                elif skipped:
                    found.append(run)
        return found

    def open_runs(self) -> Iterable[Run]:
        return [r for r in list(self._runs.values()) if r.status in LIVE and r.ready + r.running]

    def events(self, after: Cursor = "", limit: int = 500) -> list[tuple[Cursor, Event]]:
        start = position_of(after)
        return [(str(event.pos), event) for event in self._events[start : start + limit]]

    def newest(self, before: Cursor = "", limit: int = 100) -> list[tuple[Cursor, Event]]:
        end = max(position_of(before) - 1, 0) if before else len(self._events)
        found = self._events[max(end - limit, 0) : end]
        return [(str(event.pos), event) for event in reversed(found)]

    def tail(self) -> Cursor:
        return str(len(self._events))

    def chain(self, thread: str, after: int = 0, limit: int = 1000) -> list[Event]:
        positions = self._chains.get(thread, [])
        return [self._events[pos - 1] for pos in positions[after : after + limit]]

    def call_events(self, call_id: str, limit: int = 1000) -> list[Event]:
        found = [event for event in self._events if call_id and event.call == call_id]
        return found[:limit]

    def thread(self, thread: str) -> Thread | None:
        return self._threads.get(thread)

    def threads(self, after: str = "", limit: int = 1000) -> list[Thread]:
        names = sorted(name for name in list(self._threads) if name > after)
        return [self._threads[name] for name in names[:limit]]

    def cursor(self, name: str) -> str:
        return self._cursors.get(name, "")

    def move_cursor(self, name: str, to: str, *, expected: str) -> bool:
        with self._lock, no_fork.lock:
            moved = self.cursor(name) == expected
            if moved:
                self._cursors[name] = to
            return moved

    def put_deliveries(self, deliveries: Sequence[Delivery]) -> list[bool]:
        with self._lock, no_fork.lock:
            return [self._put_delivery(row) for row in deliveries]

    def _put_delivery(self, row: Delivery) -> bool:
        stored = self._deliveries.get(row.id)
        if (0 if stored is None else stored.version) != row.version:
            return False
        if row.state == "gone":
            del self._deliveries[row.id]
        else:
            self._deliveries[row.id] = row._replace(version=row.version + 1)
        return True

    def delivery(self, delivery_id: str) -> Delivery | None:
        return self._deliveries.get(delivery_id)

    def deliveries_of(self, request: str) -> list[Delivery]:
        rows = [row for row in self._deliveries.values() if request and row.request == request]
        return sorted(rows, key=lambda row: (row.created, row.id))

    def next_deliveries(self, channel: str, limit: int) -> list[Delivery]:
        rows = [row for row in self._deliveries.values() if row.channel == channel]
        waiting = [(row.next_at, row.id, row) for row in rows if row.next_at is not None]
        return [row for *_, row in sorted(waiting)[:limit]]

    def count_deliveries(self) -> dict[tuple[str, str], int]:
        return Counter((row.channel, row.state) for row in self._deliveries.values())

    def seals(self, after: int = 0, limit: int = 100) -> list[Seal]:
        return self._seals[after : after + limit]

    def chains(self, threads: Sequence[str], limit: int) -> list[Event]:
        events = [event for thread in sorted(threads) for event in self.chain(thread, 0, limit)]
        return events[:limit]

    def conversations(self, threads: Sequence[str], limit: int) -> list[StoredMessage]:
        said = [m for thread in sorted(threads) for m in self.stored_messages(thread, 0, limit)]
        return said[:limit]

    def listed_calls(self, ids: Sequence[str]) -> list[ListedCall]:
        return [
            ListedCall(
                call,
                list_status := list_status_of(call),
                self._search_key(call).id,
                group_key_of(call)[1:] if list_status else None,
                *decided(call),
                words_of(call, self._tools.get(call.tool_digest)),
            )
            for call in map(self.call, ids)
            if call is not None
        ]

    def call_row(self, call_id: str) -> dict[str, Any] | None:
        call = self._calls.get(call_id)
        return None if call is None else call._asdict()

    def has_search_key(self, key: SearchKey) -> bool:
        return True  # it is computed, not stored

    def runs_with_ids(self, ids: Sequence[str]) -> list[Run]:
        return [run for run in map(self.run, ids) if run is not None]

    def call_counts(self) -> list[tuple[str, int]]:
        return list(Counter(call.run for call in list(self._calls.values())).items())

    def run_threads(self, after: str = "", limit: int = 1000) -> list[tuple[str, str]]:
        found = sorted((run.id, run.thread) for run in list(self._runs.values()) if run.id > after)
        return found[:limit]

    def orphan_events(self, limit: int) -> list[tuple[str, int]]:
        return [(thread, 1) for thread in self._chains if thread not in self._threads][:limit]

    # -- the rest

    def restored(self) -> bool:
        """Return ``False``: a store in memory cannot be restored."""
        return False

    def mark_recovered(self) -> None:
        """Do nothing."""

    def subscribe(self, thread: str | None, listener: Callable[[], None]) -> Listener:
        return self._hub.subscribe(thread, listener)

    def close(self) -> None:
        """Seal what moved. The rows stay while you hold a reference to the store."""
        self.seal()


def _moments(call: Call) -> list[tuple[str, Micros]]:
    """Return what statistics count of a call, and when it happened."""
    status = list_status_of(call)
    moments = [] if status == UNASKED else [("asked", call.created)]
    decided_at = decided(call)[1]
    if status == "expired":
        moments.append((status, call.expires_at or call.created))
    elif status in DECIDED and decided_at is not None:
        moments.append((status, decided_at))
    return moments
