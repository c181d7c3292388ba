"""Rows ⇄ SQL, once for every SQL store: the statements in the common dialect, and who they serve.

``SqlTransaction`` is what the engine's shared ``carry_out`` needs of a database: load the rows of a
command, save the rows of a ``Work``. A store adds only its connection, its locking and its commit.
Placeholders are written ``?``; a store whose driver wants another mark translates them once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from assent.engine import Work
from assent.engine.commands import Needs
from assent.rows import (
    SYSTEM_THREAD,
    Call,
    Run,
    Thread,
)
from assent.stores.rowcodec import (
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
from assent.types import Grant


class Cursor(Protocol):
    """The part of a database cursor that is used here."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


Execute = Callable[[str, Sequence[Any]], Cursor]

_THREAD = "id, owner, messages, seq, head, mac, sealed"
_RUN = (
    "id, thread, agent, agent_digest, requester, parent_call, status, stop, wake, token, owner, "
    "ready_at, asked, ready, active, doubted, snapshot, output, created"
)
CALL = (
    "id, run, thread, key, kind, agent, tool, tool_digest, args, args_hash, nonce, rev, digest, "
    "terms, binds, note, preview, status, asked, original, expires_at, votes, decision, "
    "valid_until, grant_id, attempt, token, result, created, requester"
)
GRANT = (
    "id, agent, tool, tool_digest, scope, given_by, uses_left, ends, revoked, created, signature"
)
EVENT = "pos, thread, seq, at, type, run, call, actor, body, digest, hash"
PRINCIPAL = "id, token_hash, person, role, groups, ends, revoked, created, signature"

# Columns of a call that a command may change after the row is there.
_CALL_CHANGES = (
    "tool_digest, args, args_hash, rev, digest, terms, binds, preview, status, asked, original, "
    "expires_at, votes, decision, valid_until, grant_id, attempt, token, result"
)


def _marks(columns: str) -> str:
    return ", ".join("?" * (columns.count(",") + 1))


def _sets(columns: str) -> str:
    return ", ".join(f"{name} = ?" for name in columns.split(", "))


LOAD_THREAD = f"SELECT {_THREAD} FROM thread WHERE id = ?"
LOAD_RUN = f"SELECT {_RUN} FROM run WHERE id = ?"
LOAD_LIVE_RUN = f"SELECT {_RUN} FROM run WHERE thread = ? AND status IN ('running', 'paused')"
LOAD_CALL = f"SELECT {CALL} FROM call WHERE id = ?"
LOAD_CALL_BY_KEY = f"SELECT {CALL} FROM call WHERE run = ? AND key = ?"
LOAD_CALLS_OF_RUN = f"SELECT {CALL} FROM call WHERE run = ? ORDER BY n"
LOAD_GRANT = f"SELECT {GRANT} FROM standing WHERE id = ?"
LOAD_GRANTS_FOR = (
    f"SELECT {GRANT} FROM standing WHERE agent = ? AND tool_digest = ? AND revoked IS NULL"
)
LOAD_PEOPLE = f"SELECT {PRINCIPAL} FROM principal WHERE person = ?"
LOAD_PRINCIPAL = f"SELECT {PRINCIPAL} FROM principal WHERE id = ?"

ADD_THREAD = f"INSERT INTO thread ({_THREAD}) VALUES ({_marks(_THREAD)})"
SAVE_THREAD = "UPDATE thread SET owner = ?, messages = ?, seq = ?, head = ?, mac = ? WHERE id = ?"
ADD_RUN = f"INSERT INTO run ({_RUN}) VALUES ({_marks(_RUN)})"
SAVE_RUN = (
    "UPDATE run SET status = ?, stop = ?, wake = ?, token = ?, owner = ?, ready_at = ?, asked = ?, "
    "ready = ?, active = ?, doubted = ?, snapshot = ?, output = ? WHERE id = ?"
)
ADD_CALL = f"INSERT INTO call ({CALL}) VALUES ({_marks(CALL)})"
SAVE_CALL = f"UPDATE call SET {_sets(_CALL_CHANGES)} WHERE id = ?"
ADD_TOOL = (
    "INSERT INTO tool (digest, name, schema, description) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (digest) DO NOTHING"
)
ADD_MESSAGE = "INSERT INTO message (thread, seq, run, body) VALUES (?, ?, ?, ?)"
ADD_EVENT = (
    "INSERT INTO event (thread, seq, at, type, run, call, actor, body, digest, hash) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
SAVE_GRANT = (
    f"INSERT INTO standing ({GRANT}) VALUES ({_marks(GRANT)}) ON CONFLICT (id) "
    "DO UPDATE SET uses_left = excluded.uses_left, revoked = excluded.revoked, "
    "signature = excluded.signature"
)
SAVE_PRINCIPAL = (
    f"INSERT INTO principal ({PRINCIPAL}) VALUES ({_marks(PRINCIPAL)}) "
    "ON CONFLICT (id) DO UPDATE SET revoked = excluded.revoked, signature = excluded.signature"
)


class SqlTransaction:
    """One open transaction: loads what a command needs, saves what became of it."""

    def __init__(self, execute: Execute, known_tools: set[str], lock: str = LOAD_THREAD) -> None:
        self._execute = execute
        self._known_tools = known_tools
        self._lock = lock
        self._new_threads: set[str] = set()

    def _one(self, sql: str, *values: Any) -> Any:
        return self._execute(sql, values).fetchone()

    def thread(self, thread_id: str) -> Thread:
        """The thread's row, locked; a thread that is not there yet is an empty one."""
        row = self._one(self._lock, thread_id)
        if row is None:
            self._new_threads.add(thread_id)
            return Thread(id=thread_id)
        return thread_from(row)

    def load(self, work: Work, needs: Needs) -> None:
        """Fill a work with the rows that its commands need; the thread is there and locked."""
        if needs.run is not None:
            row = self._one(LOAD_RUN, needs.run)
            work.run = None if row is None else run_from(row)
        for call in self._calls(work, needs):
            work.calls[call.id] = call
        for grant in self._grants(work, needs):
            work.grants[grant.id] = grant
        if needs.person is not None:
            rows = self._execute(LOAD_PEOPLE, (needs.person,)).fetchall()
            work.people = tuple(principal_from(row) for row in rows)
        if needs.principal is not None:
            row = self._one(LOAD_PRINCIPAL, needs.principal)
            work.principal = None if row is None else principal_from(row)
        if needs.system:
            work.system = self.thread(SYSTEM_THREAD)

    def _calls(self, work: Work, needs: Needs) -> Iterable[Call]:
        rows = [self._one(LOAD_CALL, call_id) for call_id in needs.calls]
        if work.run is not None:
            rows += [self._one(LOAD_CALL_BY_KEY, work.run.id, key) for key in needs.keys]
            if needs.statuses:
                marks = ", ".join("?" * len(needs.statuses))
                sql = f"SELECT {CALL} FROM call WHERE run = ? AND status IN ({marks}) ORDER BY n"
                rows += self._execute(sql, (work.run.id, *sorted(needs.statuses))).fetchall()
        return [call_from(row) for row in rows if row is not None]

    def _grants(self, work: Work, needs: Needs) -> Iterable[Grant]:
        rows: list[Any] = []
        for agent, tool_digest in needs.grants_for:
            rows += self._execute(LOAD_GRANTS_FOR, (agent, tool_digest)).fetchall()
        ids = list(needs.grants)
        if needs.spends:
            ids += [call.grant for call in work.calls.values() if call.grant is not None]
        rows += [self._one(LOAD_GRANT, grant_id) for grant_id in ids]
        return [grant_from(row) for row in rows if row is not None]

    def save(self, work: Work) -> None:
        """Write what changed: a constant number of rows, whatever the length of the thread."""
        if work.events or work.messages or work.new_run:
            self._save_thread(work.thread)
        if work.system is not None and work.system.seq:
            self._save_thread(work.system)
        if work.run_touched and work.run is not None:
            self._save_run(work.run, work.new_run)
        for call in work.touched_calls.values():
            self._save_call(call, call.id in work.new_calls)
        self._save_facts(work)

    def _save_facts(self, work: Work) -> None:
        for tool in work.tools:
            if tool.digest not in self._known_tools:
                values = (tool.digest, tool.name, tool.schema, tool.description)
                self._execute(ADD_TOOL, values)
        for seq, message in work.messages:
            self._execute(ADD_MESSAGE, (work.thread.id, seq, message.run, message.body))
        for grant in work.touched_grants.values():
            self._execute(SAVE_GRANT, grant_values(grant))
        for principal in work.principals:
            self._execute(SAVE_PRINCIPAL, principal_values(principal))
        for event in work.events:
            self._execute(ADD_EVENT, event_values(event))

    def _save_thread(self, thread: Thread) -> None:
        if thread.id in self._new_threads:
            self._new_threads.discard(thread.id)
            row = (thread.id, thread.owner, thread.messages, thread.seq, thread.head)
            self._execute(ADD_THREAD, (*row, thread.mac, thread.sealed))
        else:
            values = (thread.owner, thread.messages, thread.seq, thread.head, thread.mac)
            self._execute(SAVE_THREAD, (*values, thread.id))

    def _save_run(self, run: Run, new: bool) -> None:
        changes = (
            run.status.value,  # plain text binds at once, an enum is adapted first
            run.stop,
            run.wake,
            run.token,
            run.owner,
            run.ready_at,
            run.asked,
            run.ready,
            run.active,
            run.doubted,
            run.snapshot,
            run.output,
        )
        if new:
            fixed = (run.id, run.thread, run.agent, run.agent_digest, run.requester)
            self._execute(ADD_RUN, (*fixed, run.parent_call, *changes, run.created))
        else:
            self._execute(SAVE_RUN, (*changes, run.id))

    def _save_call(self, call: Call, new: bool) -> None:
        terms, votes = terms_to(call.terms), votes_to(call.votes)
        decision = decision_to(call.decision)
        outcome = (
            call.original,
            call.expires_at,
            votes,
            decision,
            call.valid_until,
            call.grant,
            call.attempt,
            call.token,
            call.result,
        )
        if new:
            fixed = (call.id, call.run, call.thread, call.key, call.kind, call.agent, call.tool)
            content = (call.tool_digest, call.args, call.args_hash, call.nonce, call.rev)
            shown = (call.digest, terms, call.binds, call.note, call.preview)
            state = (call.status.value, int(call.asked))
            self._execute(
                ADD_CALL, (*fixed, *content, *shown, *state, *outcome, call.created, call.requester)
            )
        else:
            changes = (call.tool_digest, call.args, call.args_hash, call.rev, call.digest, terms)
            stands = (call.binds, call.preview, call.status.value, int(call.asked))
            self._execute(SAVE_CALL, (*changes, *stands, *outcome, call.id))
