"""Undoing: a decision may be made so that its author can take it back for a few seconds.

Such a decision is stored at once, like any other, and names the time when it takes effect
(``Decided.not_before``). Until then it is *held*: the row has the decision, and its status is still
``asked``. So people see that the request is decided, and by whom, and nobody else can decide it;
while its run, which reads the status, waits as before. No adapter, hook, proxy or worker has to
know about it. When the time comes, the first process that looks lets the decision take effect, as
it closes a request that has expired (``Expire``), so the author need not stay.

What the decision brings with it waits too. A rejection rejects no equal call and stops no run
before it takes effect, and a grant that was given with an approval covers nothing before that time.
A vote that leaves a request open counts at once, because it lets nothing start. If it becomes the
last that was missing, the decision is held until no voter can undo their vote any more.

To undo a decision makes a new revision, so that an old copy of the decision decides nothing. The
arguments of an edit, and the other columns that it changed, are again as they were before it. They
are kept with the decision as long as it is held (``Decided.undo``).
"""

from __future__ import annotations

import json
from typing import Any

from sayso.engine.asking import renew
from sayso.engine.commands import Decide, Undo
from sayso.engine.grants import revoke
from sayso.engine.people import present
from sayso.engine.unit_of_work import UnitOfWork
from sayso.errors import Conflict, NotAllowed
from sayso.rows import Call, CallStatus, call_from, call_values, dumps

#: What an edit changes of a request.
_EDITED = (
    *("args", "args_hash", "written", "original", "terms", "title", "preview", "effect_key"),
    *("expires_at", "escalates_at", "refusals"),
)


def undo_note(call: Call, command: Decide) -> str:
    """Return what is needed to undo a decision, besides the row that it makes."""
    note: dict[str, Any] = {}
    if command.grant is not None:
        note["grant"] = command.grant.id
    if command.type == "edit":
        values = dict(zip(Call._fields, call_values(call), strict=True))
        note["before"] = {name: values[name] for name in _EDITED}
    return dumps(note) if note else ""


def _content_before(call: Call, note: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a call as they were before it was edited."""
    before = note.get("before", {})
    values = zip(Call._fields, call_values(call), strict=True)
    row = call_from([before.get(name, value) for name, value in values])
    return {name: getattr(row, name) for name in before}


def undo(work: UnitOfWork, command: Undo) -> Call:
    """Take back a decision, or a vote, that its author made and may still undo."""
    call = work.require_call(command.call)
    by = present(work, command.by)
    made = [vote for vote in (call.decision, *call.votes) if vote is not None]
    own = [vote for vote in made if vote.by == by.name]
    if not own and call.decision is not None:
        raise NotAllowed(
            f"{call.decision.by} decided {call.id}, and nobody else can undo that: cancel the "
            "request if the call must not run"
        )
    if not own:
        raise Conflict(f"{by.name} has not decided {call.id}: there is nothing to undo")
    if call.status is not CallStatus.ASKED or max(vote.not_before for vote in own) <= work.now:
        raise Conflict(f"the decision on {call.id} has taken effect: it is too late to undo it")
    if call.held is None:
        call = work.put_call(
            call._replace(votes=tuple(vote for vote in call.votes if vote.by != by.name))
        )
        work.emit("votes_voided", actor=by.name, call=call, void=[by.name])
        return call
    note = json.loads(call.held.undo) if call.held.undo else {}
    if note.get("grant", "") != command.grant:
        raise Conflict(f"request {call.id} has changed: read it again")
    grant = work.grants.get(command.grant)
    if grant is not None and grant.revoked is None:
        revoke(work, grant, by.name)
    return renew(work, call, "undone", by.name, **_content_before(call, note))
