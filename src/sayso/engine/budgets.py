"""Budgets: what the calls of a rule or a grant have added up to, counted when they start.

A rule or a grant may have limits (``sayso.policy.limits``). Each thing that a limit counts has a
row: a *budget*, with what each call added, and when. A call that no person decided starts only if
every limit has room for it; otherwise people are asked. A call that a person approved counts too,
if its rule has limits, and needs no room.

The row is locked by the transaction that starts the call, so calls that start at the same time are
counted one after the other. What a call added is returned only if nothing happened for certain: the
tool said so, or ``settle=`` did and a person gave up. A call that pauses and starts again counts
once, and so does one that runs again after a doubt.

A row has a limited number of entries: beyond that, neighbours are joined at the later one's time,
so that they count a little longer, and never shorter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from sayso.engine.grants import GIVEN_UNDER, return_step, take_step
from sayso.engine.unit_of_work import UnitOfWork, sha256_hex
from sayso.policy.limits import Amount, Limit, bound_limit
from sayso.rows import Budget, Call, Spent
from sayso.types import Grant, Micros

#: How many entries a budget has at most; more, if each of them is another value.
_MOST_ENTRIES = 256


def grant_limits(grant: Grant) -> list[Limit]:
    """Return the limits of a grant."""
    texts = json.loads(grant.scope).get(GIVEN_UNDER, {}).get("limits", ())
    return [Limit.parse(text).of_grant(grant.id) for text in texts]


def limits_of(call: Call, grants: Mapping[str, Grant]) -> list[Limit]:
    """Return the limits of a call's rule, and of the grant that it uses."""
    limits = [bound_limit(text) for text in call.terms.limits]
    grant = grants.get(call.grant or "")
    return limits if grant is None else [*limits, *grant_limits(grant)]


def budget_keys(
    calls: Iterable[Call], grants: Iterable[Grant], texts: Iterable[str] = ()
) -> list[str]:
    """Return the keys of the budgets that calls and grants have, in the order of their locks."""
    keys = {bound_limit(text).key for text in texts}
    keys |= {bound_limit(text).key for call in calls for text in call.terms.limits}
    keys |= {limit.key for grant in grants for limit in grant_limits(grant)}
    return sorted(keys)


class BudgetState(NamedTuple):
    """How much of a limit is used."""

    limit: str
    used: Decimal
    most: Decimal
    #: When the oldest entry stops counting; None if there is none.
    frees_at: Micros | None


def budget_state(budget: Budget | None, limit: Limit, now: Micros) -> BudgetState:
    """Return how much of a limit is used at a time."""
    used = used_of(budget, limit, now)
    frees_at = min((entry.at for entry in used), default=None)
    return BudgetState(
        limit=limit.text,
        used=_total(limit, used, ()),
        most=limit.most,
        frees_at=None if frees_at is None else frees_at + limit.per,
    )


def counts_too_little(budget: Budget | None, spent: Iterable[Spent]) -> bool:
    """Return whether a stored budget lacks something that was spent and still counts.

    It may have more: calls may have started since, and joined entries last longer.
    """
    entries = () if budget is None else budget.entries
    values = {entry.value for entry in spent}
    numbers = sum((Decimal(entry.number) for entry in spent), Decimal(0))
    counted = sum((Decimal(entry.number) for entry in entries), Decimal(0))
    return counted < numbers or not values <= {entry.value for entry in entries}


def why_no_room(work: UnitOfWork, call: Call) -> str:
    """Return why a call that nobody decided may not start under its limits; "" if it may."""
    args = None
    for limit in limits_of(call, work.grants):
        args = json.loads(call.args) if args is None else args
        amounts = limit.amounts(args)
        if amounts is None:
            return f"its limit cannot be counted: {limit.text}"
        budget = work.budgets.get(limit.key)
        if not has_room(budget, limit, amounts, work.now):
            used = _total(limit, used_of(budget, limit, work.now), ())
            return f"its limit is reached: {limit.text} ({used:f} used)"
    return ""


def has_room(budget: Budget | None, limit: Limit, amounts: Iterable[Amount], now: Micros) -> bool:
    """Return whether a limit has room for what a call would add."""
    return _total(limit, used_of(budget, limit, now), amounts) <= limit.most


def used_of(budget: Budget | None, limit: Limit, now: Micros) -> list[Spent]:
    """Return the entries of a budget that count for a limit now."""
    return [] if budget is None else [e for e in budget.entries if e.at > now - limit.per]


def _total(limit: Limit, used: Iterable[Spent], amounts: Iterable[Amount]) -> Decimal:
    if limit.measure == "distinct":
        values = {entry.value for entry in used} | {_short(amount.value) for amount in amounts}
        return Decimal(len(values))
    spent = sum((Decimal(entry.number) for entry in used), Decimal(0))
    return spent + sum((amount.number for amount in amounts), Decimal(0))


def _short(value: str) -> str:
    """Return what stands for a value: other people may see the budget than the call."""
    return value and sha256_hex(value)[:16]


def charge(work: UnitOfWork, call: Call) -> dict[str, Any]:
    """Count a call that starts for the first time. Return what its event says about it."""
    spent: dict[str, tuple[Micros, list[list[str]]]] = {}
    if call.attempt or not (call.terms.limits or call.grant):
        return spent
    for limit in limits_of(call, work.grants):
        added: list[Spent] = []
        if limit.key not in spent:  # a limit for another time may count the same
            added = entries_of(call, limit, work.now)
        budget = spent_of(work.budgets.get(limit.key), limit, added, work.now)
        pairs = [[entry.value, entry.number] for entry in added]
        spent[limit.key] = (budget.keep, pairs or spent.get(limit.key, (0, []))[1])
        put_budget(work, budget)
    return {**take_step(work, call), **({"spent": spent} if spent else {})}


def entries_of(call: Call, limit: Limit, now: Micros) -> list[Spent]:
    """Return what a call adds to the budget of a limit."""
    amounts = limit.amounts(json.loads(call.args)) or ()
    return [Spent(now, call.id, _short(a.value), f"{a.number:f}") for a in amounts]


def spent_of(budget: Budget | None, limit: Limit, added: Iterable[Spent], now: Micros) -> Budget:
    """Return a budget with these entries, without those that count for none of its limits."""
    budget = budget or Budget(key=limit.key)
    texts = [text for text in budget.limits if text != limit.text]
    keep = max(budget.keep, limit.per)
    entries = tuple(entry for entry in (*budget.entries, *added) if entry.at > now - keep)
    return budget._replace(limits=(*texts[-4:], limit.text), keep=keep, entries=_joined(entries))


def put_budget(work: UnitOfWork, budget: Budget) -> None:
    until = max((entry.at for entry in budget.entries), default=0) + budget.keep
    budget = budget._replace(until=until)
    work.budgets[budget.key] = work.touched_budgets[budget.key] = budget


def _joined(entries: tuple[Spent, ...]) -> tuple[Spent, ...]:
    """Join neighbours of the same value until there are not too many entries."""
    entries_left = list(entries)
    while len(entries_left) > _MOST_ENTRIES:
        pairs = list(_neighbours(entries_left))
        if not pairs:
            break
        _, first, second = min(pairs)
        older = entries_left[first]
        newer = entries_left[second]
        number = Decimal(older.number) + Decimal(newer.number)
        entries_left[second] = Spent(newer.at, "", newer.value, f"{number:f}")
        del entries_left[first]
    return tuple(entries_left)


def _neighbours(entries: list[Spent]) -> Iterator[tuple[Micros, int, int]]:
    """Yield neighbours of the same value: how long the joined entry would last, and their places.

    An entry that reaches far back is not joined again as long as others are shorter.
    """
    last: dict[str, int] = {}
    before: dict[str, Micros] = {}
    for place, entry in enumerate(entries):
        if entry.value in last:
            previous = last[entry.value]
            start = before.get(entry.value, entries[previous].at)
            yield entry.at - start, previous, place
            before[entry.value] = entries[previous].at
        last[entry.value] = place


def give_back(work: UnitOfWork, call: Call) -> dict[str, Any]:
    """Return what a call added, and its step of a plan, because nothing happened.

    An entry that was joined stays.
    """
    returned: list[str] = []
    for limit in limits_of(call, work.grants):
        budget = work.budgets.get(limit.key)
        if budget is None:
            continue
        entries = tuple(entry for entry in budget.entries if entry.call != call.id)
        if entries != budget.entries:
            put_budget(work, budget._replace(entries=entries))
            returned.append(limit.key)
    return {**return_step(work, call), **({"returned": returned} if returned else {})}
