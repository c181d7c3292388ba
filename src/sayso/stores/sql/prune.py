"""Forgetting: the contents of what ended long ago, while the chain stays verifiable."""

from __future__ import annotations

from sayso.engine.commands import Note
from sayso.stores.base import pruned_note
from sayso.stores.sql.dialect import SQLITE, Dialect, Execute
from sayso.types import Micros

# A run is over when it ended, nothing has happened on its thread since the limit, and no call has
# yet to hear of its end: that would begin it again.
_OVER = (
    "SELECT thread, id FROM run WHERE status IN ('done', 'failed', 'cancelled') "
    "AND NOT EXISTS (SELECT 1 FROM event WHERE event.thread = run.thread AND event.at >= ?) "
    "AND NOT EXISTS (SELECT 1 FROM call WHERE call.id = run.parent_call "
    "AND call.status IN ('asked', 'ready', 'running', 'in_doubt'))"
)
_HOLD = "SELECT id FROM thread WHERE id = ?"
_FORGET = {
    "bodies": "UPDATE event SET body = NULL WHERE thread = ? AND run = ? AND body IS NOT NULL",
    "calls": "DELETE FROM call WHERE thread = ? AND run = ?",
    "messages": "DELETE FROM message WHERE thread = ? AND run = ?",
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
    execute: Execute, before: Micros, by: str, dialect: Dialect = SQLITE
) -> tuple[dict[str, int], Note]:
    """Null the bodies and drop the rows; give the counts, and the fact that makes it legal."""
    counts = dict.fromkeys(_FORGET, 0)
    forgotten = _over(execute, before)
    if dialect.lock_free:
        # Whatever a writer holds is left alone; what is held here is looked at once more.
        free = {
            thread
            for thread in sorted({thread for thread, _ in forgotten})
            if execute(_HOLD + dialect.lock_free, (thread,)).fetchall()
        }
        forgotten = [pair for pair in _over(execute, before) if pair[0] in free]
    for pair in forgotten:
        for name, statement in _FORGET.items():
            counts[name] += execute(statement, pair).rowcount
    for statement in _ORPHANS:
        execute(statement, ())
    return counts, pruned_note(before, by, forgotten, counts)


def _over(execute: Execute, before: Micros) -> list[tuple[str, str]]:
    return [(row[0], row[1]) for row in execute(_OVER, (before,)).fetchall()]
