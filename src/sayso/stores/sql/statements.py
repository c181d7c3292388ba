"""Every statement of the SQL stores that commands need, in the common dialect.

Placeholders are written ``?``; a store whose driver wants another mark translates them once.
"""

from __future__ import annotations

_THREAD = "id, owner, messages, seq, head, mac, sealed"
_RUN = (
    "id, thread, agent, agent_digest, requester, parent_call, status, stop, wake, token, owner, "
    "ready_at, asked, ready, running, in_doubt, snapshot, output, created"
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

# Columns of a call that a command may change after the row is there. Those that an index holds
# are written only when they change, or every index would be touched by every change.
_CALL_CHANGES = (
    "tool_digest, args, args_hash, rev, digest, terms, binds, preview, status, asked, original, "
    "votes, decision, valid_until, grant_id, attempt, token, result"
)
_CALL_PLACE = "expires_at, list_status, search_key"
_RUN_CHANGES = (
    "stop, wake, token, owner, ready_at, asked, ready, running, in_doubt, snapshot, output"
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
LOAD_CALLS_AMONG = f"SELECT {CALL} FROM call WHERE run = ? AND key IN ({{}}) ORDER BY n"
LOAD_CALLS_IN = f"SELECT {CALL} FROM call WHERE run = ? AND status IN ({{}}) ORDER BY n"
LOAD_MESSAGES = "SELECT seq, body FROM message WHERE thread = ? AND seq > ? ORDER BY seq"
LOAD_MESSAGES_ALSO = (
    "SELECT seq, body FROM message WHERE thread = ? AND seq = ? "
    "UNION ALL SELECT seq, body FROM message WHERE thread = ? AND seq > ? ORDER BY seq"
)
LOAD_STORED_MESSAGES = (
    "SELECT seq, run, body FROM message WHERE thread = ? AND seq > ? ORDER BY seq LIMIT ?"
)
LOAD_CHAIN = f"SELECT {EVENT} FROM event WHERE thread = ? AND seq > ? ORDER BY seq LIMIT ?"
LOAD_GRANT = f"SELECT {GRANT} FROM grants WHERE id = ?"
LOAD_GRANTS_FOR = (
    f"SELECT {GRANT} FROM grants WHERE agent = ? AND tool_digest = ? AND revoked IS NULL "
    "ORDER BY id"
)
LOAD_TOOL = "SELECT digest, name, schema, description FROM tool WHERE digest = ?"
LOAD_PEOPLE = f"SELECT {PRINCIPAL} FROM principal WHERE person = ?"
LOAD_PRINCIPAL = f"SELECT {PRINCIPAL} FROM principal WHERE id = ?"

ADD_THREAD = f"INSERT INTO thread ({_THREAD}, created) VALUES ({_marks(_THREAD)}, ?)"
SAVE_THREAD = "UPDATE thread SET messages = ?, seq = ?, head = ?, mac = ? WHERE id = ?"
OWN_THREAD = "UPDATE thread SET owner = ? WHERE id = ?"
ADD_RUN = f"INSERT INTO run ({_RUN}) VALUES ({_marks(_RUN)})"
SAVE_RUN = f"UPDATE run SET {_sets(_RUN_CHANGES)} WHERE id = ?"
MOVE_RUN = f"UPDATE run SET {_sets(_RUN_CHANGES)}, status = ? WHERE id = ?"
_NEW_CALL = f"{CALL}, list_status, search_key"
ADD_CALL = f"INSERT INTO call ({_NEW_CALL}) VALUES ({_marks(_NEW_CALL)})"
SAVE_CALL = f"UPDATE call SET {_sets(_CALL_CHANGES)} WHERE id = ?"
MOVE_CALL = f"UPDATE call SET {_sets(_CALL_CHANGES)}, {_sets(_CALL_PLACE)} WHERE id = ?"
ADD_MESSAGE = "INSERT INTO message (thread, seq, run, body) VALUES (?, ?, ?, ?)"
ADD_EVENT = (
    "INSERT INTO event (thread, seq, at, type, run, call, actor, body, digest, hash) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
SAVE_GRANT = (
    f"INSERT INTO grants ({GRANT}) VALUES ({_marks(GRANT)}) ON CONFLICT (id) "
    "DO UPDATE SET uses_left = excluded.uses_left, revoked = excluded.revoked, "
    "signature = excluded.signature"
)
SAVE_PRINCIPAL = (
    f"INSERT INTO principal ({PRINCIPAL}) VALUES ({_marks(PRINCIPAL)}) "
    "ON CONFLICT (id) DO UPDATE SET revoked = excluded.revoked, signature = excluded.signature"
)
