"""Sealing and pruning, inside a transaction of the store."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from sayso import codec
from sayso.engine.commands import Note
from sayso.engine.row_macs import row_mac
from sayso.keys import Keyring
from sayso.rows import SYSTEM_THREAD, Thread, thread_from
from sayso.stores import seals
from sayso.stores.base import NEVER, pruned_note
from sayso.stores.row_checks import log
from sayso.stores.seals import Seal, Unsealed, next_seal, seal_from
from sayso.stores.sql import statements as sql
from sayso.stores.sql.statements import Dialect, Execute, Rows
from sayso.stores.sql.transaction import StoreParts
from sayso.types import Micros

# The system thread comes first: a pruning counts, under plain links, once it is sealed.
_MOVED = (
    f"SELECT id, seq, head FROM thread WHERE moved = 1 ORDER BY id <> '{SYSTEM_THREAD}', id LIMIT ?"
)
_LAST = f"SELECT {sql.SEAL} FROM seal ORDER BY n DESC LIMIT 1"
_ADD = f"INSERT INTO seal ({sql.SEAL}) VALUES (?, ?, ?, ?, ?, ?)"
_REACH = "UPDATE thread SET sealed = seq, moved = 0 WHERE id IN ({})"

# Each thread that moved has at least one unsealed event, so a seal's worth of threads is enough to
# know that a seal is due.
_UNSEALED = (
    "SELECT coalesce(sum(t.seq - t.sealed), 0), min(e.at), (SELECT max(pos) FROM event) "
    "FROM (SELECT id, seq, sealed FROM thread WHERE moved = 1 LIMIT ?) t "
    "LEFT JOIN event e ON e.thread = t.id AND e.seq = t.sealed + 1"
)


def find_unsealed(rows: Rows) -> Unsealed:
    """Read how much no seal covers yet."""
    ((count, oldest, pos),) = rows(_UNSEALED, (seals.SEAL_EVENTS,))
    # What is no number and no time was written by something else: seal the rest now.
    if not abs(count) < NEVER:
        count = seals.SEAL_EVENTS
    if not isinstance(oldest, int | None):
        oldest = 0
    return Unsealed(int(count), oldest, pos or 0)


def seal_moved(execute: Execute, keys: Keyring, at: Micros, dialect: Dialect) -> Seal | None:
    """Seal chains that moved, up to ``MOST_HEADS``.

    Runs inside the caller's transaction. A chain that another writer has locked is left for the
    next seal.
    """
    if not keys.can_sign:
        return None
    rows = execute(_MOVED + dialect.lock_free, (seals.MOST_HEADS,)).fetchall()
    # A forged row that no seal can hold must not keep the others from being sealed.
    moved = [row[:3] for row in rows if tuple(map(type, row[:3])) == (str, int, str)]
    if not moved:
        return None
    row = execute(_LAST, ()).fetchone()
    last = None if row is None else seal_from(row)
    if last is not None and not (isinstance(last.hash, str) and last.n < NEVER):
        log.warning("no seal was made: the last one was forged, see `sayso audit verify`")
        return None
    seal = next_seal(keys, last, moved, at)
    execute(_ADD, seal)
    # The rows are locked in this transaction, so ``seq`` is what was signed.
    execute(_REACH.format(dialect.strings), (codec.dumps([row[0] for row in moved]),))
    return seal


# A run can be pruned when it ended, its thread had no event since the limit, and no open call waits
# for its end: that call would start the run again. Written so that PostgreSQL looks at one run
# after the other, and does not read all events and calls first.
_OVER = (
    "coalesce((SELECT max(at) FROM event WHERE event.thread = run.thread), 0) < ? "
    "AND (parent_call IS NULL OR NOT EXISTS (SELECT 1 FROM call WHERE call.id = run.parent_call "
    "AND call.status IN ('asked', 'ready', 'running', 'in_doubt')))"
)
_ENDED = ("done", "failed", "cancelled")
_OVER_AMONG = (
    f"SELECT thread, id FROM run WHERE id IN ({{}}) AND status IN {_ENDED} AND {_OVER} ORDER BY id"
)
#: The oldest of each status, along its index, and of these the oldest.
_OLDEST_OVER = " UNION ALL ".join(
    "SELECT * FROM (SELECT created, id FROM run "
    f"WHERE status = '{status}' AND (created, id) > (?, ?) AND created < ? AND {_OVER} "
    f"ORDER BY created, id LIMIT ?) {status}"
    for status in _ENDED
)
_OVER_AFTER = f"SELECT created, id FROM ({_OLDEST_OVER}) ended ORDER BY created, id LIMIT ?"
#: How many runs one transaction prunes. Other writers wait for it, so it must be short.
PRUNE_RUNS = 100
#: Rows of the runs of a batch. One statement for all of them: on PostgreSQL each is a round trip.
_PRUNED = "thread IN ({0}) AND run IN ({0})"
_SAID = f"SELECT thread, seq FROM message WHERE {_PRUNED}"
_FORGET = {
    "messages": f"DELETE FROM message WHERE {_PRUNED}",
    "refusals": f"DELETE FROM refusal WHERE {_PRUNED}",
    "deliveries": f"DELETE FROM delivery WHERE request IN (SELECT id FROM call WHERE {_PRUNED})",
    "bodies": f"UPDATE event SET body = NULL WHERE {_PRUNED} AND body IS NOT NULL",
    "calls": f"DELETE FROM call WHERE {_PRUNED}",
    "runs": "DELETE FROM run WHERE thread IN ({0}) AND id IN ({0})",
}
_COUNTED = ("bodies", "calls", "runs", "messages")
#: How often calls of some runs used each grant: once, however often they were started.
_SPENT = (
    "SELECT grant_id, count(*) FROM call WHERE run IN ({}) AND grant_id IS NOT NULL "
    "AND attempt > 0 GROUP BY grant_id"
)
# A search key goes with the last call that used it.
_ORPHANS = (
    "DELETE FROM search_key "
    "WHERE NOT EXISTS (SELECT 1 FROM call WHERE call.search_key = search_key.id)",
    "DELETE FROM search_word "
    "WHERE NOT EXISTS (SELECT 1 FROM search_key WHERE search_key.id = search_word.search_key)",
)


def prune(
    execute: Execute,
    parts: StoreParts,
    runs: Sequence[str],
    before: Micros,
    by: str,
    dialect: Dialect,
) -> tuple[dict[str, int], Note]:
    """Null event bodies and delete rows; return the counts, and the note that makes it legal.

    Skips threads that a writer has locked, and threads whose row was tampered with: their rows are
    evidence.
    """
    threads: dict[str, Thread] = {}

    def over() -> list[tuple[str, str]]:
        among = _OVER_AMONG.format(dialect.strings)
        found = execute(among, (codec.dumps(list(runs)), before)).fetchall()
        return [(row[0], row[1]) for row in found]

    names_of_threads = codec.dumps(sorted({thread for thread, _ in over()}))
    load = sql.LOAD_THREADS.format(dialect.strings) + dialect.lock_free
    rows = execute(load, (names_of_threads,)).fetchall()
    threads.update({row.id: row for row in parts.decode.listed(thread_from, rows)})
    # Look again now that the threads are locked.
    forgotten = [pair for pair in over() if pair[0] in threads]
    names = [run for _, run in forgotten]
    spent = dict(execute(_SPENT.format(dialect.strings), (codec.dumps(names),)).fetchall())
    pruned = (codec.dumps(sorted({thread for thread, _ in forgotten})), codec.dumps(names))
    messages: dict[str, list[int]] = {}
    for thread, seq in execute(_SAID.format(dialect.strings), pruned).fetchall():
        messages.setdefault(thread, []).append(seq)
    for thread, seqs in messages.items():
        threads[thread] = threads[thread].without_messages(seqs)
    deleted = {
        name: execute(statement.format(dialect.strings), pruned).rowcount
        for name, statement in _FORGET.items()
    }
    counts = {name: deleted[name] for name in _COUNTED}
    for name in sorted({thread for thread, _ in forgotten}):
        mac = row_mac(threads[name], parts.deps.mac)
        execute(sql.SAVE_PRUNED, (threads[name].messages_pruned, mac, name))
    if len(runs) < PRUNE_RUNS:  # the last batch
        for statement in _ORPHANS:
            execute(statement, ())
        execute("DELETE FROM budget WHERE until < ?", (before,))
    return counts, pruned_note(before, by, forgotten, counts, spent)


def prune_in_batches(
    rows: Rows, before: Micros, one: Callable[[list[str]], dict[str, int]]
) -> dict[str, int]:
    """Prune a batch of runs after the other, and let other writers in between."""
    counts: Counter[str] = Counter()
    last: tuple[Micros, str] = (0, "")
    while True:
        of_status = (*last, before, before, PRUNE_RUNS)
        ended_runs = rows(_OVER_AFTER, (*of_status * len(_ENDED), PRUNE_RUNS))
        runs = [row[1] for row in ended_runs]
        began = time.monotonic()
        counts.update(one(runs))
        if len(runs) < PRUNE_RUNS:
            return dict(counts)
        last = tuple(ended_runs[-1])
        time.sleep(time.monotonic() - began)
