"""A call's row against the facts of its chain: what somebody wrote into the table is named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sayso import codec
from sayso.audit.facts import Facts
from sayso.audit.reading import DAMAGE
from sayso.engine.asking import envelope
from sayso.keys import Keyring
from sayso.rows import Call
from sayso.stores.row_checks import row_wrong
from sayso.types import Decided

_YES = frozenset({"approve", "edit", "allow", "grant"})


def differences(call: Call, facts: Facts, keys: Keyring) -> list[str]:
    """The columns in which the row is not what the chain says."""
    try:
        found = [name for name, same in _columns(call, facts) if not same]
        # The digest covers the rest: terms, binds, nonce, agent, revision, tool digest.
        if not found and codec.digest(envelope(call)) != call.digest:
            found.append("terms, or another column under its digest")
        if not found and keys.rows and row_wrong(keys, call):
            found.append("another column under its MAC")
    except DAMAGE as error:
        return [f"a column that cannot be read ({error})"]
    return found


def _columns(call: Call, facts: Facts) -> Iterator[tuple[str, bool]]:
    yield "thread", call.thread == facts.thread
    yield "run", call.run == facts.run
    yield "status", call.status == facts.status
    yield "args", codec.sha256(call.args.encode()) == facts.args == call.args_hash
    yield "original", _same_original(call, facts)
    yield "digest", call.digest == facts.digest
    yield "tool", call.tool == facts.tool
    yield "asked", call.asked == facts.asked or facts.doubted
    yield "expires_at", call.expires_at == facts.expires
    yield "votes", call.votes == tuple(facts.votes)
    yield "decision", _same_decision(call, facts)
    yield "quorum", _has_quorum(call, facts)
    yield "valid_until", _same_end(call)
    yield "attempt", call.attempt == facts.attempt
    yield "token", call.token == facts.token
    yield "grant", call.grant == facts.grant or facts.attempt == 0
    yield "doubt", call.doubt == facts.doubt
    yield "result", call.result == facts.result
    yield "created", call.created == facts.created


def _same_original(call: Call, facts: Facts) -> bool:
    if call.original is None:
        return facts.args == facts.first_args
    return codec.sha256(call.original.encode()) == facts.first_args


def _same_decision(call: Call, facts: Facts) -> bool:
    decision, wanted = call.decision, facts.decision
    if decision is None or wanted is None or not facts.by_rule:
        return decision == wanted
    return _same_rule(decision, wanted, call)


def _same_rule(decision: Decided, wanted: Decided, call: Call) -> bool:
    """What a policy or a grant decided, which nobody signs."""
    if wanted.type == "deny":
        return decision == replace(wanted, message=call.terms.description)
    return decision == replace(wanted, type="allow" if call.grant is None else "grant")


def _has_quorum(call: Call, facts: Facts) -> bool:
    decision = facts.decision
    if decision is None or facts.by_rule or decision.type not in _YES:
        return True
    return facts.voters >= call.terms.quorum


def _same_end(call: Call) -> bool:
    decision = call.decision
    if decision is None or decision.type not in _YES:
        return True
    return call.valid_until == decision.at + round(call.terms.valid_for * 1_000_000)
