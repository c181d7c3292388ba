"""Forgetting: the contents of what ended long ago, while the chain stays verifiable."""

from __future__ import annotations

from sayso.engine import EngineDeps
from sayso.engine.commands import Note
from sayso.engine.row_macs import row_mac
from sayso.rows import Thread
from sayso.stores.base import pruned_note
from sayso.stores.row_checks import RowDecoder
from sayso.stores.sql import statements as sql
from sayso.stores.sql.dialect import SQLITE, Dialect, Execute
from sayso.stores.sql.rowcodec import thread_from
from sayso.types import Micros

# A run is over when it ended, nothing has happened on its thread since the limit, and no call has
# yet to hear of its end: that would begin it again.
_OVER = (
    "SELECT thread, id FROM run WHERE status IN ('done', 'failed', 'cancelled') "
    "AND NOT EXISTS (SELECT 1 FROM event WHERE event.thread = run.thread AND event.at >= ?) "
    "AND NOT EXISTS (SELECT 1 FROM call WHERE call.id = run.parent_call "
    "AND call.status IN ('asked', 'ready', 'running', 'in_doubt'))"
)
_SAID = "SELECT seq FROM message WHERE thread = ? AND run = ?"
_UNSAY = "DELETE FROM message WHERE thread = ? AND run = ?"
_FORGET = {
    "bodies": "UPDATE event SET body = NULL WHERE thread = ? AND run = ? AND body IS NOT NULL",
    "calls": "DELETE FROM call WHERE thread = ? AND run = ?",
    "runs": "DELETE FROM run WHERE thread = ? AND id = ?",
}
# What was said of tools goes with the last call that showed it.
_ORPHANS = (
    "DELETE FROM search_key "
    "WHERE NOT EXISTS (SELECT 1 FROM call WHERE call.search_key = search_key.id)",
    "DELETE FROM search_word "
    "WHERE NOT EXISTS (SELECT 1 FROM search_key WHERE search_key.id = search_word.search_key)",
)


def prune(
    execute: Execute,
    deps: EngineDeps,
    decode: RowDecoder,
    before: Micros,
    by: str,
    dialect: Dialect = SQLITE,
) -> tuple[dict[str, int], Note]:
    """Null the bodies and drop the rows; give the counts, and the fact that makes it legal.

    A thread that a writer holds is left alone, and so is one whose row was changed by something
    else: what is left of it is evidence.
    """
    counts = dict.fromkeys((*_FORGET, "messages"), 0)
    threads: dict[str, Thread] = {}
    for name in sorted({thread for thread, _ in _over(execute, before)}):
        rows = execute(sql.LOAD_THREAD + dialect.lock_free, (name,)).fetchall()
        threads.update({row.id: row for row in decode.listed(thread_from, rows)})
    # What is held here is looked at once more.
    forgotten = [pair for pair in _over(execute, before) if pair[0] in threads]
    for pair in forgotten:
        said = [row[0] for row in execute(_SAID, pair).fetchall()]
        if said:
            threads[pair[0]] = threads[pair[0]].without_messages(said)
            counts["messages"] += execute(_UNSAY, pair).rowcount
        for name, statement in _FORGET.items():
            counts[name] += execute(statement, pair).rowcount
    for name in sorted({thread for thread, _ in forgotten}):
        mac = row_mac(threads[name], deps.mac)
        execute(sql.SAVE_PRUNED, (threads[name].messages_pruned, mac, name))
    for statement in _ORPHANS:
        execute(statement, ())
    return counts, pruned_note(before, by, forgotten, counts)


def _over(execute: Execute, before: Micros) -> list[tuple[str, str]]:
    return [(row[0], row[1]) for row in execute(_OVER, (before,)).fetchall()]
