"""Effect keys: they make an effect unique in the whole store.

A call with an effect key takes the key when it starts, in the same transaction: the row of the key
is locked, and if another call has it, this one does not start. The key belongs to its call while
the call runs, when it is done, and as long as it is unknown whether it ran. So it is released in
three cases only:

* the call raised an exception that means "nothing happened", and that was recorded;
* the call paused, or did not get to run: it takes the key again when it starts again;
* ``settle=`` found that the effect did not happen, and a person gave up on the call.

A person who gives up on a call in doubt does not release the key by that alone: it may have run.
Nor does ``prune``, which deletes the call, but not the fact that the effect has happened.

The keys of an agent on another machine are under its name (``bot/refund:17``), all others under
none (``/refund:17``), so that no agent can take a key of another one.
"""

from __future__ import annotations

import json

from sayso.engine.unit_of_work import UnitOfWork
from sayso.policy.template import effect_key
from sayso.rows import Call, CallStatus, EffectKey
from sayso.types import Terms

#: The text of a failure because an effect belongs to another call; see ``first_request``.
_DUPLICATE = "DuplicateEffect: the effect "
_BELONGS = " belongs to "


def is_remote(binds: str) -> bool:
    """Return whether an agent on another machine opened a call, which is bound to its body."""
    return bool(binds) and has_body(json.loads(binds))


def has_body(bound: object) -> bool:
    """Return whether this is what binds a call to the body that opened it, and to facts."""
    return isinstance(bound, dict) and "body" in bound and bound.keys() <= {"body", "facts"}


def key_of(agent: str, binds: str, terms: Terms, args: str, given: str = "") -> str:
    """Return the effect key of a call with its prefix, or "" if its effect need not be unique.

    ``given`` is the key that a function made, if the terms have no template.
    """
    if terms.effect == "read":
        return ""
    key = effect_key(terms.effect_key, json.loads(args)) if terms.effect_key else given
    if not key:
        return ""
    space = agent.replace("%", "%25").replace("/", "%2F") if is_remote(binds) else ""
    return f"{space}/{key}"


def shown_key(key: str) -> str:
    """Return a key as people and code know it."""
    return key.removeprefix("/")


def take_key(work: UnitOfWork, call: Call) -> EffectKey | None:
    """Take the key of a call that is about to start, or return the row of the call that has it."""
    if not call.effect_key or call.is_read:
        return None
    held = work.effects.get(call.effect_key)
    if held is not None and held.call != call.id:
        return held
    if held is None:
        effect = EffectKey(
            key=call.effect_key,
            call=call.id,
            run=call.run,
            thread=call.thread,
            agent=call.agent,
            requester=call.requester,
            created=work.now,
        )
        work.effects[effect.key] = work.taken_effects[effect.key] = effect
    return None


def free_key(work: UnitOfWork, call: Call) -> None:
    """Release the key of a call whose effect has certainly not happened."""
    if call.effect_key:
        work.freed_effects[call.effect_key] = call.id
        held = work.effects.get(call.effect_key)
        if held is not None and held.call == call.id:
            del work.effects[call.effect_key]
            work.taken_effects.pop(call.effect_key, None)


def close_duplicate(work: UnitOfWork, call: Call, first: EffectKey) -> Call:
    """Close a call whose effect belongs to another one, with that one's result if allowed."""
    owner = work.calls.get(first.call) or work.effect_owners.get(first.call)
    has_result = owner is not None and owner.status is CallStatus.DONE and owner.result is not None
    same = (first.agent, first.requester) == (call.agent, call.requester)
    wants = call.terms.on_duplicate == "result"
    if wants and has_result and same and owner is not None and owner.tool == call.tool:
        to = CallStatus.DONE
        result = owner.result
    else:
        status = "was pruned" if owner is None else f"is {owner.status}"
        message = f"{_DUPLICATE}{shown_key(call.effect_key)!r}{_BELONGS}{first.call}"
        to = CallStatus.FAILED
        result = f"{message}, which {status}: it does not run again"
    call = work.move(call, to, result=result)
    work.emit(
        "duplicate",
        actor="engine",
        call=call,
        effect_key=call.effect_key,
        first=first.call,
        ok=to is CallStatus.DONE,
        result=result,
    )
    return call


def first_request(call: Call) -> str:
    """Return the request that has the effect, if this call failed because of that; else ""."""
    result = (call.result or "") if call.status is CallStatus.FAILED and call.effect_key else ""
    if not result.startswith(_DUPLICATE):
        return ""
    return result.rpartition(_BELONGS)[2].partition(",")[0]
