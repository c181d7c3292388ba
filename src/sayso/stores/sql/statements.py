"""The statements of the SQL stores, in the common dialect, and where SQLite and PostgreSQL differ.

Placeholders are written ``?``; a store whose driver wants another mark translates each text once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from operator import itemgetter
from typing import Any, Protocol

from sayso.rows import (
    LATER,
    RECENT_CALLS,
    SYSTEM_THREAD,
    TOOL_USE,
    Budget,
    Call,
    Credential,
    Delivery,
    EffectKey,
    Event,
    LiveProcess,
    Person,
    Run,
    StoredMessage,
    Thread,
    Tool,
)
from sayso.stores.seals import Seal
from sayso.types import Grant, Refusal


class ResultSet(Protocol):
    """The part of a database cursor that is used here."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


Execute = Callable[[str, Sequence[Any]], ResultSet]
#: The rows of a query, which may not have arrived yet. They can be read once.
Answers = Iterable[Sequence[Any]]
#: Sends a query.
Ask = Callable[[str, Sequence[Any]], Answers]
#: Sends a statement whose reply nobody reads.
Write = Callable[[str, Sequence[Any]], object]
#: Executes a SELECT and returns its rows.
Rows = Callable[[str, Sequence[Any]], list[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What one database spells in its own way."""

    name: str
    #: Compares a call's number, so that an index is used which begins with its list.
    at_number: str
    #: A SELECT of the strings in a JSON array, its only parameter.
    strings: str
    #: A SELECT of the names in the column ``reviewers``.
    reviewers: str
    #: Appended to a SELECT to lock its rows; empty where the whole file is locked.
    lock: str = ""
    #: The same for rows that only must not change.
    share: str = ""
    #: The same as ``lock``, skipping rows that another transaction has locked.
    lock_free: str = ""
    #: Written before a column to keep the planner from using its index.
    no_index: str = ""
    #: Whether a walk along a list is ordered by the list as well. Ordered by number alone, the
    #: planner may walk along the key and read all that is on other lists.
    list_order: bool = False


SQLITE = Dialect(
    name="sqlite",
    at_number="call.n >= number AND call.n <= number",
    strings="SELECT value FROM json_each(?)",
    reviewers="SELECT value FROM json_each(reviewers)",
    no_index="+",
)
POSTGRES = Dialect(
    name="postgres",
    at_number="call.n = number",
    strings="SELECT json_array_elements_text(?::json)",
    reviewers="SELECT json_array_elements_text(reviewers::json)",
    lock=" FOR UPDATE",
    share=" FOR SHARE",
    lock_free=" FOR UPDATE SKIP LOCKED",
    list_order=True,
)


# Columns are in the order of the row's fields, so that decoding need not name them again.
THREAD = ", ".join(Thread._fields)
RUN = ", ".join(Run._fields)
CALL = ", ".join("grant_id" if name == "grant" else name for name in Call._fields)
GRANT = ", ".join("given_by" if field.name == "by" else field.name for field in fields(Grant))
REFUSAL = ", ".join(
    "rejected_by" if field.name == "by" else field.name for field in fields(Refusal)
)
EVENT = ", ".join(Event._fields)
PERSON = ", ".join(Person._fields)
CREDENTIAL = ", ".join(Credential._fields)
MESSAGE = ", ".join(StoredMessage._fields)
EFFECT = ", ".join(EffectKey._fields)
BUDGET = ", ".join(Budget._fields)
TOOL = ", ".join(Tool._fields)
DELIVERY = ", ".join(Delivery._fields)
PROCESS = ", ".join(LiveProcess._fields)
SEAL = ", ".join(Seal._fields)

# Columns of a call that a command may change. Indexed columns are separate and written only when
# they change, or every change would touch every index.
CALL_CHANGES = (
    "tool_digest, args, args_hash, rev, digest, terms, binds, title, preview, status, asked, "
    "original, written, votes, decision, valid_until, grant_id, attempt, token, result, "
    "effect_key, doubt, refusals, seq, mac"
)
#: The columns that lists and counts are made from, after those of the row itself.
LISTED = (
    "list_status, search_key, request_group, decided_by, decided_at, opened_at, held_until, words"
)
CALL_OWN_PLACE = "expires_at, reminds_at, escalates_at, escalated, caller"
CALL_PLACE = f"{CALL_OWN_PLACE}, {LISTED}"
RUN_CHANGES = (
    "stop, wake, token, owner, ready_at, asked, ready, running, in_doubt, snapshot, output, "
    "scope, rejections, seq, mac"
)
THREAD_CHANGES = "messages, seq, head, mac"


def _marks(columns: str) -> str:
    return ", ".join("?" * (columns.count(",") + 1))


def _sets(columns: str) -> str:
    return ", ".join(f"{name} = ?" for name in columns.split(", "))


def _insert(table: str, columns: str) -> str:
    return f"INSERT INTO {table} ({columns}) VALUES ({_marks(columns)})"


def _put(table: str, columns: str, changes: Sequence[str] = ()) -> str:
    """Insert a row, or write these columns (else all) over the row that has its first column."""
    key, *others = columns.split(", ")
    sets = ", ".join(f"{name} = excluded.{name}" for name in changes or others)
    return f"{_insert(table, columns)} ON CONFLICT ({key}) DO UPDATE SET {sets}"


LOAD_THREAD = f"SELECT {THREAD} FROM thread WHERE id = ?"
LOAD_THREADS = f"SELECT {THREAD} FROM thread WHERE id IN ({{}})"
LOAD_RUN = f"SELECT {RUN} FROM run WHERE id = ?"
LOAD_LIVE_RUN = f"SELECT {RUN} FROM run WHERE thread = ? AND status IN ('running', 'paused')"
LOAD_CALL = f"SELECT {CALL} FROM call WHERE id = ?"
LOAD_CALL_BY_KEY = f"SELECT {CALL} FROM call WHERE run = ? AND key = ?"
LOAD_CALLS_OF_RUN = f"SELECT {CALL} FROM call WHERE run = ? ORDER BY n"
LOAD_CALLS_AMONG = f"SELECT {CALL} FROM call WHERE run = ? AND key IN ({{}}) ORDER BY n"
# The calls that a caller may join: those that its own tool use waits for, and those about which
# some caller was told to ask again.
LOAD_CALLS_TO_JOIN = (
    f"SELECT {CALL} FROM call WHERE run = ? AND (caller = '{LATER}' "
    "OR (caller = ? AND status IN ('asked', 'ready'))) ORDER BY n"
)
LOAD_RELEASED_CALL = (
    f"SELECT {CALL} FROM call WHERE run = ? AND caller = ? AND status = 'released' "
    "ORDER BY n DESC LIMIT 1"
)
LOAD_RELEASED_USE = (
    f"SELECT {CALL} FROM call WHERE n IN (SELECT n FROM call WHERE run = ? ORDER BY n DESC "
    f"LIMIT {RECENT_CALLS}) AND tool_digest = ? AND args_hash = ? AND status = 'released' "
    f"AND caller LIKE '{TOOL_USE}%' AND result IS NULL ORDER BY n DESC LIMIT 1"
)
LOAD_CALLS_IN = f"SELECT {CALL} FROM call WHERE run = ? AND status IN ({{}}) ORDER BY n"
# A conversation is read with its thread's row, which proves which messages there must be.
_OF_THREAD = ", ".join(f"thread.{name}" for name in THREAD.split(", "))
_OF_MESSAGE = ", ".join(f"said.{name}" for name in MESSAGE.split(", "))
_CONVERSATION = (
    f"SELECT {_OF_THREAD}, {_OF_MESSAGE} FROM thread LEFT JOIN ({{}}) AS said "
    "ON said.thread = thread.id WHERE thread.id = ? ORDER BY said.seq"
)
LOAD_MESSAGES = _CONVERSATION.format(f"SELECT {MESSAGE} FROM message WHERE thread = ? AND seq > ?")
LOAD_LAST_MESSAGE = (
    f"SELECT {_OF_THREAD}, {_OF_MESSAGE} FROM thread LEFT JOIN message AS said "
    "ON said.thread = thread.id AND said.seq = thread.messages WHERE thread.id = ?"
)
# One statement: between two, a thread could be committed with its first messages.
HAS_ORPHAN_MESSAGES = (
    "SELECT 1 FROM message WHERE thread = ? "
    "AND NOT EXISTS (SELECT 1 FROM thread WHERE id = ?) LIMIT 1"
)
SAVE_PRUNED = "UPDATE thread SET messages_pruned = ?, mac = ? WHERE id = ?"
LOAD_STORED_MESSAGES = (
    f"SELECT {MESSAGE} FROM message WHERE thread = ? AND seq > ? ORDER BY seq LIMIT ?"
)
_GROUP = "kind, agent, tool, risk, reviewers"
LOAD_LISTED_CALLS = (
    f"SELECT {', '.join(f'call.{name}' for name in f'{CALL}, {LISTED}'.split(', '))}, "
    f"{', '.join(f'of.{name}' for name in _GROUP.split(', '))} "
    "FROM call LEFT JOIN request_group AS of ON of.id = call.request_group WHERE call.id IN ({})"
)
LOAD_CHAINS = f"SELECT {EVENT} FROM event WHERE thread IN ({{}}) ORDER BY thread, seq LIMIT ?"
LOAD_CONVERSATIONS = (
    f"SELECT {MESSAGE} FROM message WHERE thread IN ({{}}) ORDER BY thread, seq LIMIT ?"
)
LOAD_CHAIN = f"SELECT {EVENT} FROM event WHERE thread = ? AND seq > ? ORDER BY seq LIMIT ?"
LOAD_EVENTS_SINCE = f"SELECT {EVENT} FROM event WHERE thread = ? AND seq >= ? ORDER BY seq"
LOAD_EVENTS_SINCE_CALLS = (
    f"SELECT {EVENT} FROM event WHERE thread = ? "
    f"AND seq >= (SELECT min(seq) FROM call WHERE id IN ({{}})) ORDER BY seq"
)
LOAD_GRANT = f"SELECT {GRANT} FROM grants WHERE id = ?"
LOAD_GRANTS_FOR = (
    f"SELECT {GRANT} FROM grants WHERE agent = ? AND tool_digest IN (?, ?) AND revoked IS NULL "
    "ORDER BY id"
)
LOAD_GRANTS_OF_RUN = (
    f"SELECT {GRANT} FROM grants WHERE agent = (SELECT agent FROM run WHERE id = ?) "
    "AND tool_digest = ? AND revoked IS NULL ORDER BY id"
)
LOAD_REFUSAL = f"SELECT {REFUSAL} FROM refusal WHERE id = ?"
LOAD_REFUSALS = f"SELECT {REFUSAL} FROM refusal WHERE id > ? ORDER BY id LIMIT ?"
# How many refusals of equal calls may count at the same time. Each of them was a decision.
_MOST_REFUSALS = 100
LOAD_REFUSALS_FOR = (
    f"SELECT {REFUSAL} FROM refusal WHERE agent = ? AND tool = ? AND args_hash = ? "
    f"AND lifted IS NULL ORDER BY at DESC LIMIT {_MOST_REFUSALS}"
)
_OF_REFUSAL = ", ".join(f"refusal.{name}" for name in REFUSAL.split(", "))
LOAD_REFUSALS_OF_CALL = (
    f"SELECT {_OF_REFUSAL} FROM call JOIN refusal ON refusal.agent = call.agent "
    "AND refusal.tool = call.tool AND refusal.args_hash IN (call.args_hash, ?) "
    f"WHERE call.id = ? AND lifted IS NULL ORDER BY at DESC LIMIT {_MOST_REFUSALS}"
)
LOAD_EFFECT = f"SELECT {EFFECT} FROM effect WHERE key = ?"
LOAD_EFFECTS = f"SELECT {EFFECT} FROM effect WHERE key > ? ORDER BY key LIMIT ?"
LOAD_TOOL = f"SELECT {TOOL} FROM tool WHERE digest = ?"
LOAD_PERSON = f"SELECT {PERSON} FROM person WHERE look = ?"
LOAD_ACTOR = LOAD_PERSON + " OR (stand_in <> '' AND stand_in = ?)"
LOAD_PEOPLE = f"SELECT {PERSON} FROM person ORDER BY name"
LOAD_ABSENT = f"SELECT {PERSON} FROM person WHERE stand_in <> '' ORDER BY name"
# One statement, so that the people are those of that event.
LOAD_DIRECTORY = (
    f"SELECT {PERSON}, last_seq, last_hash FROM (SELECT seq AS last_seq, head AS last_hash "
    f"FROM thread WHERE id = '{SYSTEM_THREAD}') AS system LEFT JOIN person ON true"
)
MOST_SYSTEM_EVENTS = 200
LOAD_SYSTEM_EVENTS = (
    f"SELECT seq, hash, type, body FROM event WHERE thread = '{SYSTEM_THREAD}' AND seq >= ? "
    f"ORDER BY seq LIMIT {MOST_SYSTEM_EVENTS}"
)
LOAD_CREDENTIAL = f"SELECT {CREDENTIAL} FROM credential WHERE hash = ?"
LOAD_CREDENTIALS = f"SELECT {CREDENTIAL} FROM credential ORDER BY created, id"
LOAD_CREDENTIALS_OF = f"SELECT {CREDENTIAL} FROM credential WHERE person = ? ORDER BY created, id"
DROP_CREDENTIAL = "DELETE FROM credential WHERE id = ?"
LOAD_GRANTS_BY = f"SELECT {GRANT} FROM grants WHERE given_by = ? AND revoked IS NULL ORDER BY id"

ADD_THREAD = _insert("thread", THREAD)
SAVE_THREAD = f"UPDATE thread SET {_sets(THREAD_CHANGES)} WHERE id = ?"
MOVE_THREAD = f"UPDATE thread SET {_sets(THREAD_CHANGES)}, moved = 1 WHERE id = ?"
OWN_THREAD = "UPDATE thread SET owner = ? WHERE id = ?"
ADD_RUN = _insert("run", RUN)
SAVE_RUN = f"UPDATE run SET {_sets(RUN_CHANGES)} WHERE id = ?"
MOVE_RUN = f"UPDATE run SET {_sets(RUN_CHANGES)}, status = ? WHERE id = ?"
_NEW_CALL = f"{CALL}, {LISTED}"
ADD_CALL = _insert("call", _NEW_CALL)
SAVE_CALL = f"UPDATE call SET {_sets(CALL_CHANGES)} WHERE id = ?"
MOVE_CALL = f"UPDATE call SET {_sets(CALL_CHANGES)}, {_sets(CALL_PLACE)} WHERE id = ?"
ADD_MESSAGE = _insert("message", MESSAGE)
_NEW_EVENT = EVENT.removesuffix(", pos")
ADD_EVENT = _insert("event", _NEW_EVENT)
SAVE_GRANT = _put("grants", GRANT, ("uses_left", "steps", "revoked", "signature", "mac"))
SAVE_REFUSAL = _put("refusal", REFUSAL, ("lifted", "lifted_by", "mac"))
SAVE_PERSON = _put("person", PERSON)
ADD_CREDENTIAL = _insert("credential", CREDENTIAL)
CREDENTIAL_CHANGES = "last_used, revoked, signature, mac"
SAVE_CREDENTIAL = f"UPDATE credential SET {_sets(CREDENTIAL_CHANGES)} WHERE id = ?"
# Two calls with the same effect key meet at its row: the second waits until the first commits. So a
# row must exist before it is read; a row that was not taken is deleted in the same transaction.
HOLD_EFFECT = (
    f"INSERT INTO effect ({EFFECT}) VALUES (?, '', '', '', '', '', 0, '') "
    "ON CONFLICT (key) DO NOTHING"
)
TAKE_EFFECT = _put("effect", EFFECT)
# As with effect keys, two calls that start at the same time meet at the row of their budget.
LOAD_BUDGET = f"SELECT {BUDGET} FROM budget WHERE key = ?"
LOAD_BUDGETS = f"SELECT {BUDGET} FROM budget WHERE mac <> '' ORDER BY key"
HOLD_BUDGET = (
    f"INSERT INTO budget ({BUDGET}) VALUES (?, '[]', 0, '[]', 0, '') ON CONFLICT (key) DO NOTHING"
)
SAVE_BUDGET = _put("budget", BUDGET)
DROP_UNUSED_BUDGET = "DELETE FROM budget WHERE key = ? AND mac = ''"
FREE_EFFECT = "DELETE FROM effect WHERE key = ? AND call = ?"

_DELIVERIES = f"SELECT {DELIVERY} FROM delivery WHERE "
LOAD_DELIVERY = f"{_DELIVERIES} id = ?"
LOAD_DELIVERIES_OF = f"{_DELIVERIES} request = ? AND request <> '' ORDER BY created, id"
LOAD_NEXT_DELIVERIES = (
    f"{_DELIVERIES} channel = ? AND next_at IS NOT NULL ORDER BY next_at, id LIMIT ?"
)
COUNT_DELIVERIES = "SELECT channel, state, count(*) FROM delivery GROUP BY channel, state"
ADD_DELIVERY = f"{_insert('delivery', DELIVERY)} ON CONFLICT (id) DO NOTHING"
DELIVERY_CHANGES = "digest, created, state, message, nonce, attempts, next_at, error, version"
SAVE_DELIVERY = f"UPDATE delivery SET {_sets(DELIVERY_CHANGES)} WHERE id = ? AND version = ?"
DROP_DELIVERY = "DELETE FROM delivery WHERE id = ? AND version = ?"

LOAD_PROCESSES = f"SELECT {PROCESS} FROM process WHERE seen > ? ORDER BY started, id"
PUT_PROCESS = _put("process", PROCESS, ("seen",))
DROP_PROCESS = "DELETE FROM process WHERE id = ?"
DROP_PROCESSES = "DELETE FROM process WHERE seen < ?"

#: Reads no rows, and fails if a table or column that the stores use is missing. Not one query over
#: all tables: PostgreSQL would take 20 milliseconds to choose the order of their joins.
CHECK_TABLES = "SELECT " + ", ".join(
    f"EXISTS (SELECT {columns} FROM {table} LIMIT 0)"
    for table, columns in {
        "meta": "key, value",
        "thread": THREAD,
        "message": MESSAGE,
        "run": RUN,
        "call": f"n, {_NEW_CALL}",
        "search_key": "id, kind, agent, tool, risk, words",
        "search_word": "word, search_key",
        "call_word": "list_status, word, n",
        "request_group": f"id, {_GROUP}",
        "open_count": "list_status, request_group, search_key, many",
        "tool": TOOL,
        "grants": GRANT,
        "refusal": REFUSAL,
        "event": EVENT,
        "seal": SEAL,
        "person": PERSON,
        "credential": CREDENTIAL,
        "cursor": "name, pos",
        "delivery": DELIVERY,
        "process": PROCESS,
        "effect": EFFECT,
        "budget": BUDGET,
    }.items()
)


def _picked(columns: str, some: str) -> itemgetter[Any]:
    """Return a function that picks some columns of a row."""
    names = columns.split(", ")
    return itemgetter(*(names.index(name) for name in some.split(", ")))


call_changes = _picked(CALL, CALL_CHANGES)
#: Works on the row itself too: these fields have the same form in its columns.
call_place = _picked(CALL, CALL_OWN_PLACE)
run_changes = _picked(RUN, RUN_CHANGES)
thread_changes = _picked(THREAD, THREAD_CHANGES)
credential_changes = _picked(CREDENTIAL, CREDENTIAL_CHANGES)
delivery_changes = _picked(DELIVERY, DELIVERY_CHANGES)
