"""Rows ⇄ SQL, once for every SQL store.

``SqlTransaction`` is what ``run_commands`` needs of a database: it loads the rows of a command and
saves those of a ``UnitOfWork``. A store adds its connection, its locking and its commit.
"""

from __future__ import annotations

from collections.abc import Callable

from sayso.engine import EngineDeps, UnitOfWork
from sayso.engine.command import Needs
from sayso.rows import SYSTEM_THREAD, Call, Run, Thread
from sayso.stores.listing import SearchKey, list_status_of, search_key_of
from sayso.stores.sql import statements as sql
from sayso.stores.sql.dialect import Dialect, Execute, Reply
from sayso.stores.sql.rowcodec import (
    call_from,
    decision_to,
    event_values,
    grant_from,
    grant_values,
    principal_from,
    principal_values,
    run_from,
    terms_to,
    thread_from,
    votes_to,
)
from sayso.stores.sql.tool_cache import ToolCache, add_search_keys, add_tools
from sayso.types import Micros


class SqlTransaction:
    """One open transaction: loads what a command needs, saves what became of it.

    All that a command needs is asked for before the first answer is read: a database at the other
    end of a wire answers in one go.
    """

    def __init__(
        self,
        execute: Execute,
        tool_cache: ToolCache,
        dialect: Dialect,
        deps: EngineDeps,
        clock: Callable[[], Micros],
    ) -> None:
        self._execute = execute
        self._tool_cache = tool_cache
        self._dialect = dialect
        self._deps = deps
        self._clock = clock
        self._threads: dict[str, Thread | None] = {}
        self._run: Run | None = None
        self._calls: dict[str, Call] = {}
        self.search_keys: set[SearchKey] = set()

    def load(self, thread: str, needs: Needs) -> UnitOfWork:
        """Lock the thread, and load the rows that the commands need."""
        ask, lock = self._execute, self._dialect.lock
        row = ask(sql.LOAD_THREAD + lock, (thread,))
        run = ask(sql.LOAD_RUN + lock, (needs.run,)) if needs.run is not None else None
        calls = self._ask_calls(needs)
        grants = [ask(sql.LOAD_GRANTS_FOR + lock, pair) for pair in needs.grants_for]
        grants += [ask(sql.LOAD_GRANT + lock, (grant,)) for grant in needs.grants]
        people = ask(sql.LOAD_PEOPLE, (needs.person,)) if needs.person is not None else None
        token = ask(sql.LOAD_PRINCIPAL, (needs.principal,)) if needs.principal is not None else None
        system = ask(sql.LOAD_THREAD + lock, (SYSTEM_THREAD,)) if needs.system else None
        time = self._ask_time()

        thread_ = self._thread(thread, row)
        work = UnitOfWork(now=self._read_time(time), deps=self._deps, thread=thread_)
        if run is not None:
            self._run = work.run = next((run_from(row) for row in run.fetchall()), None)
        for call in (call_from(row) for reply in calls for row in reply.fetchall()):
            self._calls[call.id] = work.calls[call.id] = call
        grants += self._ask_spent(work, needs)
        for grant in (grant_from(row) for reply in grants for row in reply.fetchall()):
            work.grants[grant.id] = grant
        if people is not None:
            work.people = tuple(principal_from(row) for row in people.fetchall())
        if token is not None:
            work.principal = next((principal_from(row) for row in token.fetchall()), None)
        if system is not None:
            work.system = self._thread(SYSTEM_THREAD, system)
        return work

    def _ask_time(self) -> Reply | None:
        """Ask a database that has a clock of its own for the time."""
        return None

    def _read_time(self, reply: Reply | None) -> Micros:
        return self._clock()

    def _thread(self, thread_id: str, reply: Reply) -> Thread:
        """A thread as it is stored; one that is not there yet is an empty one."""
        row = reply.fetchone()
        thread = self._threads[thread_id] = None if row is None else thread_from(row)
        return thread or Thread(id=thread_id)

    def _ask_spent(self, work: UnitOfWork, needs: Needs) -> list[Reply]:
        """Which grants the calls of a start use is known only when these are loaded."""
        if not needs.spends:
            return []
        spent = {call.grant for call in work.calls.values() if call.grant is not None}
        lock = self._dialect.lock
        return [self._execute(sql.LOAD_GRANT + lock, (grant,)) for grant in sorted(spent)]

    def _ask_calls(self, needs: Needs) -> list[Reply]:
        replies = [self._execute(sql.LOAD_CALL, (call_id,)) for call_id in needs.calls]
        if needs.run is not None:
            replies += [self._execute(sql.LOAD_CALL_BY_KEY, (needs.run, key)) for key in needs.keys]
            if needs.statuses:
                marks = ", ".join("?" * len(needs.statuses))
                asked = (
                    f"SELECT {sql.CALL} FROM call WHERE run = ? AND status IN ({marks}) ORDER BY n"
                )
                replies.append(self._execute(asked, (needs.run, *sorted(needs.statuses))))
        return replies

    def save(self, work: UnitOfWork) -> None:
        """Write what changed: a constant number of rows, whatever the length of the thread."""
        if work.moves_thread:
            self._save_thread(work.thread, work.now)
        if work.run_touched and work.run is not None:
            self._save_run(work.run, work.new_run)
        for call in work.touched_calls.values():
            self._save_call(call, work)
        for grant in work.touched_grants.values():
            self._execute(sql.SAVE_GRANT, grant_values(grant))
        if work.system is not None and work.system.seq:
            self._save_thread(work.system, work.now)
        add_tools(self._execute, work.tools, self._tool_cache)
        add_search_keys(self._execute, self.search_keys, self._tool_cache)
        for seq, message in work.messages:
            self._execute(sql.ADD_MESSAGE, (work.thread.id, seq, message.run, message.body))
        for principal in work.principals:
            self._execute(sql.SAVE_PRINCIPAL, principal_values(principal))
        for event in work.events:
            self._execute(sql.ADD_EVENT, event_values(event))

    def _save_thread(self, thread: Thread, now: Micros) -> None:
        was = self._threads[thread.id]
        changes = (thread.messages, thread.seq, thread.head, thread.mac)
        if was is None:
            row = (thread.id, thread.owner, *changes, thread.sealed)
            self._execute(sql.ADD_THREAD, (*row, now))
            return
        self._execute(sql.SAVE_THREAD, (*changes, thread.id))
        if was.owner != thread.owner:
            self._execute(sql.OWN_THREAD, (thread.owner, thread.id))

    def _save_run(self, run: Run, new: bool) -> None:
        changes = (
            run.stop,
            run.wake,
            run.token,
            run.owner,
            run.ready_at,
            run.asked,
            run.ready,
            run.running,
            run.in_doubt,
            run.snapshot,
            run.output,
        )
        status = run.status.value  # plain text binds at once, an enum is adapted first
        if new:
            fixed = (run.id, run.thread, run.agent, run.agent_digest, run.requester)
            self._execute(sql.ADD_RUN, (*fixed, run.parent_call, status, *changes, run.created))
        elif self._run is not None and self._run.status is run.status:
            self._execute(sql.SAVE_RUN, (*changes, run.id))
        else:
            self._execute(sql.MOVE_RUN, (*changes, status, run.id))

    def _save_call(self, call: Call, work: UnitOfWork) -> None:
        terms, votes = terms_to(call.terms), votes_to(call.votes)
        decision = decision_to(call.decision)
        state = (call.status.value, int(call.asked))
        outcome = (
            votes,
            decision,
            call.valid_until,
            call.grant,
            call.attempt,
            call.token,
            call.result,
        )
        if call.id in work.new_calls:
            fixed = (call.id, call.run, call.thread, call.key, call.kind, call.agent, call.tool)
            content = (call.tool_digest, call.args, call.args_hash, call.nonce, call.rev)
            shown = (call.digest, terms, call.binds, call.note, call.preview)
            ends = (call.original, call.expires_at)
            made = (
                call.created,
                call.requester,
                list_status_of(call),
                self._search_key(call, work),
            )
            self._execute(sql.ADD_CALL, (*fixed, *content, *shown, *state, *ends, *outcome, *made))
            return
        changes = (call.tool_digest, call.args, call.args_hash, call.rev, call.digest, terms)
        values = (*changes, call.binds, call.preview, *state, call.original, *outcome)
        list_status = list_status_of(call)
        if self._stays(call, list_status):
            self._execute(sql.SAVE_CALL, (*values, call.id))
        else:
            place = (call.expires_at, list_status, self._search_key(call, work))
            self._execute(sql.MOVE_CALL, (*values, *place, call.id))

    def _stays(self, call: Call, list_status: str) -> bool:
        """Whether all that an index holds of a call is as it was."""
        was = self._calls.get(call.id)
        return (
            was is not None
            and list_status_of(was) == list_status
            and was.expires_at == call.expires_at
            and was.tool_digest == call.tool_digest
            and was.terms == call.terms
        )

    def _search_key(self, call: Call, work: UnitOfWork) -> int:
        search_key = search_key_of(
            call, "" if call.terms.description else self._described(call, work)
        )
        self.search_keys.add(search_key)
        return search_key.id

    def _described(self, call: Call, work: UnitOfWork) -> str:
        """What the call's tool says of itself."""
        for tool in work.tools:
            if tool.digest == call.tool_digest:
                return tool.description
        known = self._tool_cache.tools.get(call.tool_digest)
        if known is not None or not call.tool_digest:
            return "" if known is None else known.description
        row = self._execute(sql.LOAD_TOOL, (call.tool_digest,)).fetchone()
        return "" if row is None else str(row[3])
