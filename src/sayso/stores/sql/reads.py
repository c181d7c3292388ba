"""The reads of every SQL store: small SELECTs in the common dialect, mapped to values.

``RequestPage`` builds the pages of requests: every list is a few short walks along an index.

- A page without a search takes its rows from each list status, in order.
- A search reads each list apart. It counts the calls of each word there, and of the filters. If
  those of the rarest are few, all of them are read. If they are many, the first of them are: the
  calls of one word, or of one search key, are a range of an index for each list, in order.
- A word that begins many different words, or the words of many search keys, has no such range. Its
  calls are met on a walk along the list.
- Calls that have one of the words may all lack another one. A quick page looks at so many of them
  and no more, and says where to continue.
- The requests of one run or thread are few, and all of them are read.

Statements are split so that no planner has a choice to get wrong. Limits are written as literals: a
planner that does not know a limit assumes a tenth of all rows, and plans again each time.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from itertools import chain, zip_longest
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from sayso.engine.row_macs import AuthenticRow
from sayso.rows import (
    Budget,
    Call,
    Credential,
    Delivery,
    EffectKey,
    Event,
    LiveProcess,
    Person,
    Run,
    RunStatus,
    StoredMessage,
    Thread,
    Tool,
    budget_from,
    call_from,
    credential_from,
    effect_from,
    event_from,
    grant_from,
    message_from,
    person_from,
    refusal_from,
    run_from,
    thread_from,
)
from sayso.stores.base import (
    NEVER,
    Due,
    ListedCall,
    OpenAges,
    Query,
    RequestGroup,
    SearchKey,
    Tallies,
    Viewer,
    Vitals,
    age_key,
    age_start,
    page_key,
    page_start,
)
from sayso.stores.listing import (
    OPEN,
    GroupKey,
    Wanted,
    after_prefix,
    fits,
    list_status_of,
    list_statuses_of,
    short,
    wanted,
)
from sayso.stores.row_checks import (
    DAMAGE,
    UNCHECKED,
    UNREADABLE,
    Decode,
    RowDecoder,
    log,
    tampered,
)
from sayso.stores.seals import Seal, seal_from
from sayso.stores.sql import statements as sql
from sayso.stores.sql import statistics
from sayso.stores.sql.presence import live_processes
from sayso.stores.sql.rekeying import has_signed, key_uses
from sayso.stores.sql.statements import Dialect, Execute, Rows
from sayso.stores.sql.transaction import ToolCache
from sayso.types import Grant, Micros, Refusal, iso, look_of

K = TypeVar("K")
T = TypeVar("T")
R = TypeVar("R", bound=AuthenticRow)
N = TypeVar("N", Run, Thread, Refusal)
#: SQL text and its values.
Piece = tuple[str, list[Any]]

#: This many calls of a list can all be read for a page. A search counts no more in groups, and a
#: quick page looks at no more.
MANY_CALLS = 5_000
#: The calls of this many words and search keys of a list are merged in order.
FEW_RANGES = 32
#: This many entries of an index can be read for a page.
MANY_ENTRIES = 50_000
#: More search keys than this are not read.
MANY_SEARCH_KEYS = 1000

_ENDS = sql.CALL.split(", ").index("expires_at")
END = f"coalesce(expires_at, {NEVER})"
#: When people are reminded of an open request, and when it escalates.
_STEPS = ("reminds_at", "escalates_at")
WAITS = f"list_status IN ({', '.join(repr(name) for name in OPEN)})"
_ORDER = {"oldest": "n", "newest": "n DESC", "expiring": f"{END}, n"}
#: How the keys of a page compare with the key before it, and with the last one.
_COMPARED = {"oldest": (">", "<="), "newest": ("<", ">="), "expiring": (">", "<=")}
#: The columns by which a query chooses its calls.
_CHECKED = "n, id, list_status, search_key, created, expires_at, words"
_BEGINS = "word >= ? AND word < ?"
#: Ends an EXISTS that looks for one row: PostgreSQL must not read all rows that there could be.
_EACH = "LIMIT 1 OFFSET 0"
_COUNT_WORDS = (
    "SELECT count(*) FROM call JOIN call_word ON call_word.list_status = call.list_status "
    "AND call_word.n = call.n WHERE call_word.word IN ({}) AND call.id = ?"
)


class RequestPage:
    """Builds and runs the statements for one page of requests, or for their groups."""

    def __init__(
        self,
        rows: Rows,
        dialect: Dialect,
        decode: RowDecoder,
        query: Query,
        *,
        quick: bool = False,
    ) -> None:
        self._rows = rows
        self._dialect = dialect
        self._decode = decode
        self._query = query
        self._quick = quick
        #: The key after which nothing is looked at.
        self._end: int | None = None
        self._statuses = list_statuses_of(query)
        self._wanted = wanted(query.text) if query.text else None

    def page(self) -> tuple[list[tuple[int, Call]], int | None]:
        """Return the calls of the page, each with the key to continue after.

        Rows that are left out do not shorten the page. A quick page may be short; then the key to
        continue after is returned as well.
        """
        query = self._query
        numbers = dict[str, int]()

        def rows_after(after: int | None) -> list[Any]:
            self._query = replace(query, after=after)
            rows = self._read()
            numbers.update((row[0], row[-1]) for row in rows)
            return rows

        calls = first_rows(
            query.limit,
            self._listed,
            rows_after,
            lambda row: self._key_of(row[_ENDS], row[-1]),
            query.after,
        )
        page = [(page_key(query, numbers[call.id], call.expires_at), call) for call in calls]
        return page, self._end if len(page) < query.limit else None

    def _key_of(self, ends: Any, n: int) -> int | None:
        """Return the key to continue after a row, which may have been tampered with.

        ``None`` if no request can follow: SQLite sorts what is no number after all numbers.
        """
        if self._query.sort != "expiring" or isinstance(ends, int | None):
            return page_key(self._query, n, ends)
        if isinstance(ends, float) and ends < NEVER:
            return page_key(self._query, 0, math.ceil(max(ends, -NEVER)))
        return None

    def _read(self) -> list[Any]:
        self._end = None
        numbers = self._numbers() if self._statuses else None
        if numbers is None:
            return []
        text, values = numbers
        statement = (
            f"SELECT {sql.CALL}, list_status, n FROM call WHERE n IN ({text}) "
            f"ORDER BY {_ORDER[self._query.sort]} LIMIT {self._query.limit:d}"
        )
        return self._rows(statement, values)

    def groups(self, viewer: Viewer) -> list[RequestGroup]:
        """Count the requests of the query by kind, agent, tool and risk.

        Open requests are counted already: their groups are a few rows, and so are the oldest of
        each group and the first to expire. What a viewer sees of other people's groups is what
        they asked for or decided, which an index finds. Only a text and filters that a group does
        not have in common (age, expiry, one run or thread, a closed status) have to read requests;
        of a text, no more than ``MANY_CALLS`` of each list.
        """
        query = self._query
        if not self._statuses:
            return []
        ages = (query.created_after, query.created_before)
        apart = (*ages, query.expires_by, query.run, query.thread, query.text or None)
        if apart == (None,) * 6 and set(self._statuses) <= set(OPEN):
            counts = [(piece, False) for piece in (self._counted(viewer), *self._own_open(viewer))]
        else:
            counts = self._read_calls(viewer)
        joined_groups: dict[tuple[str, str, str, str], RequestGroup] = {}
        for (statement, values), at_least in counts:
            for list_status, kind, agent, tool, risk, many, ends, created in self._rows(
                statement, values
            ):
                key = ("in_doubt" if list_status == "in_doubt" else kind, agent, tool, risk)
                end = None if ends == NEVER else ends
                _ = iso(end), iso(created), "".join(key)  # raises if they are no times and texts
                group = RequestGroup(*key, int(many), end, created, at_least)
                joined_groups[key] = group.joined(joined_groups.get(key))
        return [joined_groups[key] for key in sorted(joined_groups)]

    def _counted(self, viewer: Viewer) -> Piece:
        """Read the counts of the groups that a viewer sees as a whole."""
        on = self._on_index()[0]
        visible_groups, group_values = self._group_is(viewer)
        counted = (
            "SELECT request_group, list_status, sum(many) AS many FROM open_count "
            f"WHERE {on} GROUP BY request_group, list_status HAVING sum(many) > 0"
        )
        open_calls = (
            "FROM call WHERE call.request_group = counted.request_group "
            f"AND call.list_status = counted.list_status AND {WAITS}"
        )
        text = (
            "SELECT list_status, kind, agent, tool, risk, many, "
            f"(SELECT {END} {open_calls} ORDER BY {END} LIMIT 1), "
            f"(SELECT created {open_calls} ORDER BY created LIMIT 1) FROM ({counted}) AS counted "
            f"JOIN request_group ON request_group.id = counted.request_group WHERE {visible_groups}"
        )
        return text, group_values

    def _own_open(self, viewer: Viewer) -> list[Piece]:
        """Count what a viewer asked for or decided in groups that they do not see as a whole."""
        if viewer.names is None:
            return []
        names = sorted(viewer.names)
        marks = ", ".join("?" * len(names))
        requested_calls = f"requester <> '' AND requester IN ({marks})"
        apart = self._group_is(viewer, whole=False)
        counts = [self._in_groups([self._on_index(), (requested_calls, names)], apart)]
        if "in_doubt" in self._statuses:
            # An open call that was decided is in doubt.
            decided = (
                "list_status <> '' AND list_status = 'in_doubt' "
                f"AND decided_by IN ({marks}) AND NOT ({requested_calls})"
            )
            by_name = self._group_is(viewer, whole=False, named=True)
            counts.append(self._in_groups([(decided, names * 2)], by_name))
        return counts

    def _read_calls(self, viewer: Viewer) -> list[tuple[Piece, bool]]:
        """Count the calls that match and that the viewer may see, and say which counts are cut."""
        query = self._query
        few: list[Piece | None] = [self._later()]
        if viewer.names is not None:
            names = sorted(viewer.names)
            marks = ", ".join("?" * len(names))
            visible_groups, values = self._group_is(viewer)
            text = (
                f"(request_group IN (SELECT id FROM request_group WHERE {visible_groups}) "
                f"OR requester IN ({marks}) OR (decided_by IN ({marks}) "
                "AND request_group IN (SELECT id FROM request_group WHERE reviewers <> '[]')))"
            )
            few.append((text, [*values, *names, *names]))
        of_group = self._group_is(Viewer())
        if query.run is not None or query.thread is not None:
            few += [self._on_index(), self._of_run_or_thread(), self._matches()]
            return [(self._in_groups(few, of_group), False)]
        if self._wanted is None:
            return [(self._in_groups([self._on_index(), *few], of_group), False)]
        sources = self._sources()
        counts = list[tuple[Piece, bool]]()
        for list_status in self._statuses:
            calls = self._some_of(list_status, sources)
            if calls is not None:
                here = [self._at_number(list_status), *few]
                rarest = min((source.counts[list_status] for source in sources), default=0)
                counts.append((self._in_groups(here, of_group, calls), rarest > MANY_CALLS))
        return counts

    def _in_groups(
        self, calls: Sequence[Piece | None], group: Piece, among: Piece | None = None
    ) -> Piece:
        of_call, call_values = _all_of(calls)
        of_group, group_values = group
        rows = "call"
        row_values = list[Any]()
        if among is not None:
            rows = f"({among[0]}) AS numbers CROSS JOIN call"
            row_values = among[1]
        counted = (
            f"SELECT request_group, list_status, count(*) AS many, min({END}) AS ends, "
            f"min(created) AS oldest FROM {rows} WHERE {of_call} "
            "GROUP BY request_group, list_status"
        )
        text = (
            "SELECT list_status, kind, agent, tool, risk, many, ends, oldest "
            f"FROM ({counted}) AS counted "
            f"JOIN request_group ON request_group.id = counted.request_group WHERE {of_group}"
        )
        return text, [*row_values, *call_values, *group_values]

    def _group_is(self, viewer: Viewer, *, whole: bool = True, named: bool = False) -> Piece:
        """Match the groups of the query that a viewer sees as a whole, or (``whole``) does not.

        ``listing.is_for`` says which. With ``named``, only groups that have reviewers.
        """
        pieces = [self._search_key_is(None)]
        if named:
            pieces.append(("reviewers <> '[]'", []))
        if viewer.names is not None:
            visible_groups, names = statistics.seen_by(self._dialect, viewer)
            pieces.append((visible_groups if whole else f"NOT {visible_groups}", names))
        return _all_of(pieces)

    def _on_index(self) -> Piece:
        """Name the lists so that the indexes of open calls serve, if they are open."""
        return _on_lists(self._statuses), []

    def _listed(self, rows: Sequence[Any]) -> Iterator[Call]:
        """Decode the rows that match the query: no MAC covers the columns of the index.

        A call may have moved to another list since its number was read.
        """
        for row in rows:
            for call in self._decode.listed(call_from, [row[:-2]]):
                list_status = list_status_of(call)
                if list_status in self._statuses and fits(call, self._query):
                    yield call
                elif list_status != row[-2] or list_status in self._statuses:
                    log.warning(
                        "left out of a list: request %s is indexed as something else", call.id
                    )

    def _numbers(self) -> Piece | None:
        """Select the numbers of the page's rows, and perhaps some more; ``None`` if none match."""
        query = self._query
        if query.run is not None or query.thread is not None:
            return self._among(self._of_run_or_thread(), self._matches())
        sources = self._sources()
        if not sources and self._wanted is None:
            if self._between() is not None:
                self._find_end(dict.fromkeys(self._statuses), MANY_ENTRIES)
            return self._walk(None)
        leads = {
            list_status: self._lead(list_status, sources)
            for list_status in self._statuses
            if sources and min(source.counts[list_status] for source in sources) > MANY_CALLS
        }
        self._find_end(leads, MANY_CALLS)
        pieces = [self._by_id()]
        for list_status in self._statuses:
            if list_status in leads:
                pieces.append(self._first_of_many(list_status, sources, leads[list_status]))
            elif sources:
                pieces.append(self._first_of(list_status, sources))
        return _union_of(pieces) if any(pieces) else None

    # -- the end of a quick page

    def _find_end(self, leads: Mapping[str, _Lead | None], many: int) -> None:
        """Find where to stop, so that a quick page looks at so many calls of these lists."""
        if not (self._quick and leads):
            return
        ends = list[Piece]()
        if self._query.sort != "expiring":
            for list_status, lead in leads.items():
                if lead is None:
                    (place, values), order = self._along(list_status)
                    text = f"SELECT 0 AS ends, n FROM call WHERE {place} ORDER BY {order}"
                    ends.append(_row_at(many // len(leads), text, values))
                else:
                    each = many // (len(leads) * len(lead.ranges))
                    ends += [_row_at(each, *self._in_order(calls)) for calls in lead.ranges]
        elif set(leads) <= set(OPEN):
            ends.append(_row_at(MANY_CALLS // 2, *self._open_by_expiry(f"{END} AS ends, n")))
        keys = [self._key_of(*row) for row in self._rows(*_union_of(ends))] if ends else []
        first = max if self._query.sort == "newest" else min
        self._end = first((key for key in keys if key is not None), default=None)

    def _in_order(self, calls: Piece) -> Piece:
        text, values = _all_of([self._place("number")])
        return (
            f"SELECT 0 AS ends, number AS n FROM ({calls[0]}) AS calls "
            f"WHERE {text} ORDER BY {self._order()}",
            [*calls[1], *values],
        )

    def _open_by_expiry(self, columns: str) -> Piece:
        text, values = _all_of([(WAITS, []), self._place()])
        return f"SELECT {columns} FROM call WHERE {text} ORDER BY {_ORDER['expiring']}", values

    # -- one run or thread

    def _of_run_or_thread(self) -> Piece:
        query = self._query
        pieces = list[Piece]()
        if query.run is not None:
            pieces.append(("run = ?", [query.run]))
        if query.thread is not None:
            pieces.append(("run IN (SELECT id FROM run WHERE thread = ?)", [query.thread]))
        return _all_of(pieces)

    def _matches(self) -> Piece | None:
        """Match a call by its search key or its id."""
        shows = self._shows()
        like = self._id_is_like()
        if shows is None or like is None:
            return shows
        text, values = _all_of([like, self._shows(without_text=True)])
        return f"({shows[0]} OR ({text}))", [*shows[1], *values]

    def _among(self, few: Piece, matches: Piece | None) -> Piece:
        """Read a few calls and select those that are on our lists, later, and match."""
        text, values = _all_of([self._on(self._statuses), self._later(), matches])
        here = f"SELECT {_CHECKED} FROM call WHERE {few[0]}"
        numbers = f"WITH here AS MATERIALIZED ({here}) SELECT n FROM here AS call WHERE {text}"
        return f"SELECT n AS number FROM ({numbers}) AS found", [*few[1], *values]

    # -- along the lists

    def _walk(self, shows: Piece | None) -> Piece:
        """Select the first calls of each list, in order."""
        if self._query.sort == "expiring":
            return self._walk_by_expiry(self._statuses, shows)
        return _union_of([self._walk_on(list_status, shows) for list_status in self._statuses])

    def _walk_by_expiry(self, list_statuses: Sequence[str], shows: Piece | None) -> Piece:
        if self._end is None:
            pieces = [self._on(list_statuses), self._later(), shows]
            return self._cut(pieces, _ORDER["expiring"])
        # A planner that sees more than this walk would read all requests without an expiry. No
        # index has all that is compared here, so half as many are looked at.
        text, values = self._open_by_expiry(_CHECKED)
        chosen = [(_is_one_of(list_statuses), []), self._between(), shows]
        rows = f"({text} LIMIT {MANY_CALLS // 2 + 1}) AS call", values
        return self._cut(chosen, _ORDER["expiring"], rows)

    def _walk_on(self, list_status: str, shows: Piece | None) -> Piece:
        if self._query.sort == "expiring":
            return self._walk_by_expiry([list_status], shows)
        place, order = self._along(list_status)
        return self._cut([place, self._between(), shows], order)

    def _along(self, list_status: str) -> tuple[Piece, str]:
        """Return where and how to walk along a list, by the index that has its order.

        A range of lists that holds one is as good as naming it, but only that index has the order.
        """
        query = self._query
        if not self._dialect.list_order:
            return _all_of([self._on([list_status]), self._place()]), _ORDER[query.sort]
        pieces: list[Piece] = [("list_status <> ''", [])]
        # Each end of the walk is a row, so that the index is not read before or after it.
        for key, compared in zip((query.after, self._end), _COMPARED[query.sort], strict=True):
            if key is None:
                pieces.append((f"list_status {compared[0]}= '{list_status}'", []))
            else:
                row = f"(list_status, n) {compared} ('{list_status}', ?)"
                pieces.append((row, [page_start(replace(query, after=key))[1]]))
        direction = " DESC" if query.sort == "newest" else ""
        return _all_of(pieces), f"list_status{direction}, n{direction}"

    def _cut(self, pieces: Sequence[Piece | None], order: str, rows: Piece = ("call", [])) -> Piece:
        text, values = _all_of(pieces)
        limit = self._query.limit
        inner = f"SELECT n FROM {rows[0]} WHERE {text} ORDER BY {order} LIMIT {limit:d}"
        return f"SELECT n FROM ({inner}) AS walked", [*rows[1], *values]

    def _on(self, list_statuses: Sequence[str]) -> Piece:
        """Name the lists, in the words that let the planner use a partial index."""
        if self._query.sort == "expiring":
            return _on_lists(list_statuses), []
        return f"list_status <> '' AND {_is_one_of(list_statuses)}", []

    def _between(self) -> Piece | None:
        """Leave out what is too old, too new, or expires too late."""
        query = self._query
        pieces = list[Piece]()
        if query.created_after is not None:
            pieces.append(("created >= ?", [query.created_after]))
        if query.created_before is not None:
            pieces.append(("created <= ?", [query.created_before]))
        if query.expires_by is not None:
            pieces.append((f"{END} <= ?", [query.expires_by]))
        return _all_of(pieces) if pieces else None

    def _later(self) -> Piece | None:
        """Continue after the previous page, and leave out what is too old."""
        pieces = [self._between(), self._place()]
        return _all_of(pieces) if any(pieces) else None

    def _place(self, number: str = "n") -> Piece | None:
        """Start after the previous page, and end where a quick page does."""
        query = self._query
        pieces = list[Piece]()
        for key, compared in zip((query.after, self._end), _COMPARED[query.sort], strict=True):
            if key is None:
                continue
            end, n = page_start(replace(query, after=key))
            if query.sort == "expiring":
                # SQLite finds the expiry in an index, and PostgreSQL the row.
                row = f"{END} {compared[0]}= ? AND ({END}, n) {compared} (?, ?)"
                pieces.append((row, [end, end, n]))
            else:
                pieces.append((f"{number} {compared} ?", [n]))
        return _all_of(pieces) if pieces else None

    # -- through the search keys

    def _shows(self, *, without_text: bool = False) -> Piece | None:
        """Match a call's search key and words; ``None`` if the query does not restrict them."""
        words = None if without_text else self._wanted
        piece = self._search_key_is(words, "search_key.words || call.words")
        if piece is None:
            return None
        text, values = piece
        # PostgreSQL expects next to no match for each LIKE, and would sort all instead of walking
        # along the list; of a CASE it expects every second row.
        case = f"CASE WHEN {text} THEN TRUE ELSE FALSE END"
        search_keys = f"SELECT 1 FROM search_key WHERE search_key.id = call.search_key AND {case}"
        return f"EXISTS ({search_keys})", values

    def _search_key_is(self, words: Wanted | None, column: str = "words") -> Piece | None:
        query = self._query
        pieces = list[Piece]()
        for name in ("agent", "tool", "risk"):
            value = getattr(query, name)
            if value is not None:
                pieces.append((f"{name} = ?", [short(value)]))
        for name, part in query.parts:
            escaped = "".join(f"!{char}" if char in "!%_" else char for char in part)
            pieces.append((f"lower({name}) LIKE ? ESCAPE '!'", [f"%{escaped}%"]))
        if query.agents is not None:
            marks = ", ".join("?" * len(query.agents))
            agents = [short(agent) for agent in query.agents]
            pieces.append((f"agent IN ({marks})" if marks else "1 = 0", agents))
        if query.kind not in (None, "in_doubt"):
            pieces.append(("kind = ?", [query.kind]))
        if words is not None:
            pieces.append(_words_are(words, column))
        return _all_of(pieces) if pieces else None

    # -- through the words and search keys of each list

    def _sources(self) -> list[_Source]:
        """Find the search keys of each word and of the filters, and count their calls by list."""
        words = () if self._wanted is None else self._wanted.words
        if self._wanted is not None and not words:
            return []
        ends = [(word, after_prefix(word)) for word in words]
        keyed = [(f"SELECT search_key FROM search_word WHERE {_BEGINS}", [*each]) for each in ends]
        filters = self._search_key_is(None)
        if filters is not None:
            keyed.append((f"SELECT id FROM search_key WHERE {filters[0]}", filters[1]))
        if not keyed:
            return []
        limited = [
            (f"SELECT {place}, key.* FROM ({text} LIMIT {MANY_SEARCH_KEYS + 1}) AS key", values)
            for place, (text, values) in enumerate(keyed)
        ]
        search_keys: list[list[int]] = [[] for _ in keyed]
        for place, search_key in self._rows(*_union_of(limited)):
            search_keys[place].append(search_key)
        sources = [
            _Source(
                each_ends, None if len(each) > MANY_SEARCH_KEYS else tuple(dict.fromkeys(each)), {}
            )
            for each, each_ends in zip_longest(search_keys, ends)
        ]
        columns, values = zip(*[source.counted() for source in sources], strict=True)
        names = ", ".join(f"('{name}')" for name in self._statuses)
        statement = (
            f"WITH list(name) AS (VALUES {names}) SELECT name, {', '.join(columns)} FROM list"
        )
        for name, *counts in self._rows(statement, [*chain(*values)]):
            for source, count in zip(sources, counts, strict=True):
                source.counts[name] = count
        return sources

    def _first_of(self, list_status: str, sources: Sequence[_Source]) -> Piece | None:
        """Select the first calls of a list that all sources have."""
        ordered = sorted(sources, key=lambda source: source.counts[list_status])
        count = ordered[0].counts[list_status]
        if not count:
            return None
        numbers = self._numbers_of(list_status, ordered[0].calls(list_status), ordered[1:])
        if self._query.sort != "expiring":
            return self._limited(*numbers)
        # The planner knows a limit, and not how rare the words are on one list.
        most = max(256, 1 << (2 * count).bit_length())
        here, values = _all_of([self._at_number(list_status), self._later()])
        walked = (
            f"SELECT n FROM ({numbers[0]} LIMIT {most}) AS found CROSS JOIN call WHERE {here} "
            f"ORDER BY {_ORDER['expiring']} LIMIT {self._query.limit:d}"
        )
        return f"SELECT n FROM ({walked}) AS walked", [*numbers[1], *values]

    def _lead(self, list_status: str, sources: Sequence[_Source]) -> _Lead | None:
        """Choose the source whose calls are read in order; ``None`` to walk along the list."""
        if self._query.sort != "expiring":
            for source in sources:
                ranges = self._ranges(list_status, source)
                if ranges is not None:
                    return _Lead(source, ranges)
        return None

    def _first_of_many(
        self, list_status: str, sources: Sequence[_Source], lead: _Lead | None
    ) -> Piece:
        if lead is None:
            return self._walk_on(list_status, self._shows())
        others = [source for source in sources if source is not lead.source]
        numbers = [self._numbers_of(list_status, each, others) for each in lead.ranges]
        return _union_of([self._limited(*each) for each in numbers])

    def _some_of(self, list_status: str, sources: Sequence[_Source]) -> Piece | None:
        """Select the calls of a list to count in groups, not more than ``MANY_CALLS``."""
        ordered = sorted(sources, key=lambda source: source.counts[list_status])
        by_id = self._by_id()
        numbers = None
        if ordered and ordered[0].counts[list_status]:
            calls = ordered[0].calls(list_status)
            checked = ordered if ordered[0].search_keys is None else ordered[1:]
            # The groups are filtered, so that their calls need not be.
            others = [source for source in checked if source.words]
            limited = f"SELECT number FROM ({calls[0]} LIMIT {MANY_CALLS}) AS cut", calls[1]
            numbers = self._numbers_of(list_status, limited, others)
        return _union_of([numbers, by_id], "UNION") if numbers or by_id else None

    def _numbers_of(self, list_status: str, calls: Piece, others: Sequence[_Source]) -> Piece:
        """Select the numbers of those calls that the other sources have as well."""
        pieces: list[Piece | None] = []
        if self._query.sort != "expiring":
            pieces.append(self._place("number"))
        between = self._between()
        if between is not None:
            pieces.append(self._has([self._at_number(list_status), between]))
        pieces += [self._is_of(list_status, source) for source in others]
        text, values = _all_of(pieces)
        return f"SELECT number FROM ({calls[0]}) AS found WHERE {text}", [*calls[1], *values]

    def _limited(self, text: str, values: list[Any]) -> Piece:
        first = f"{text} ORDER BY {self._order()} LIMIT {self._query.limit:d}"
        return f"SELECT number FROM ({first}) AS first", values

    def _order(self) -> str:
        return "number DESC" if self._query.sort == "newest" else "number"

    def _is_of(self, list_status: str, source: _Source) -> Piece:
        """Match the number of a call of a source, by indexes alone if it has few ranges."""
        words = self._words_on(list_status, source)
        search_keys = source.search_keys
        if words is None or search_keys is None or len(search_keys) > FEW_RANGES:
            return self._has([("call.n = number", []), self._shows()])
        pieces = list[Piece]()
        if words:
            on = f"list_status = '{list_status}' AND word IN ({', '.join('?' * len(words))})"
            pieces.append(
                (f"EXISTS (SELECT 1 FROM call_word WHERE {on} AND n = number {_EACH})", words)
            )
        if search_keys:
            marks = ", ".join("?" * len(search_keys))
            keyed = (f"search_key IN ({marks})", [*search_keys])
            pieces.append(self._has([keyed, self._at_number(list_status)]))
        text = " OR ".join(text for text, _ in pieces)
        return f"({text or '1 = 0'})", [value for _, values in pieces for value in values]

    def _has(self, pieces: Iterable[Piece | None]) -> Piece:
        text, values = _all_of(pieces)
        return f"EXISTS (SELECT 1 FROM call WHERE {text} {_EACH})", values

    def _at_number(self, list_status: str) -> Piece:
        """Name a call by its number, so that an index of its list serves."""
        at = self._dialect.at_number
        return f"{at} AND list_status = '{list_status}' AND list_status <> ''", []

    def _ranges(self, list_status: str, source: _Source) -> list[Piece] | None:
        """Return ranges of indexes that have the calls of a source in order; ``None`` if many."""
        words = self._words_on(list_status, source)
        search_keys = source.search_keys
        if words is None or search_keys is None or len(words) + len(search_keys) > FEW_RANGES:
            return None
        on = f"list_status = '{list_status}'"
        by_word = f"SELECT n AS number FROM call_word WHERE {on} AND word = ?"
        by_key = f"SELECT n AS number FROM call WHERE {on} AND search_key = ?"
        return [*((by_word, [each]) for each in words), *((by_key, [each]) for each in search_keys)]

    def _words_on(self, list_status: str, source: _Source) -> list[str] | None:
        """Read the words of a source that calls of a list have; ``None`` if they are many."""
        if source.words is None:
            return []
        first = f"SELECT word FROM call_word WHERE list_status = '{list_status}' AND"
        statement = (
            f"WITH RECURSIVE own(word, place) AS (SELECT ({first} {_BEGINS} ORDER BY word LIMIT 1),"
            f" 0 UNION ALL SELECT ({first} word > own.word AND word < ? ORDER BY word LIMIT 1), "
            f"place + 1 FROM own WHERE own.word IS NOT NULL AND place < {FEW_RANGES}) "
            "SELECT word FROM own WHERE word IS NOT NULL"
        )
        rows = self._rows(statement, [*source.words, source.words[1]])
        return None if len(rows) > FEW_RANGES else [row[0] for row in rows]

    # -- by id

    def _by_id(self) -> Piece | None:
        """Select calls whose id starts with the text and that match the rest of the query."""
        like = self._id_is_like()
        return None if like is None else self._among(like, self._shows(without_text=True))

    def _id_is_like(self) -> Piece | None:
        ids = () if self._wanted is None else self._wanted.ids
        text = " OR ".join(["(id >= ? AND id < ?)"] * len(ids))
        values = [end for start in ids for end in (start, after_prefix(start))]
        return (f"({text})", values) if ids else None


class _Source(NamedTuple):
    """What calls have in common: a word of the text, or the filters."""

    #: Where the words that it begins start and end; ``None`` for the filters.
    words: tuple[str, str] | None
    #: The search keys with such a word; ``None`` if they are too many to be read.
    search_keys: tuple[int, ...] | None
    #: How many calls of each list have it. One more than ``MANY_CALLS`` means more than that.
    counts: dict[str, int]

    def counted(self) -> Piece:
        """Count the calls of a list that is named by a column."""
        if self.search_keys is None:
            return str(MANY_CALLS + 1), []
        counts = [
            (f"(SELECT count(*) FROM ({text} LIMIT {MANY_CALLS + 1}) AS counted)", values)
            for text, values in self._parts("name")
        ]
        text = " + ".join(text for text, _ in counts)
        return text or "0", [value for _, values in counts for value in values]

    def calls(self, list_status: str) -> Piece:
        """Select the numbers of its calls on a list, not more than ``MANY_CALLS`` of a part."""
        on = f"'{list_status}'"
        parts = self._parts(on)
        if self.search_keys is None:
            every = f"SELECT n AS number FROM call WHERE list_status = {on} AND list_status <> ''"
            parts = [(every, [])]
        limited = [
            (f"SELECT DISTINCT number FROM ({text} LIMIT {MANY_CALLS}) AS part", values)
            for text, values in parts
        ]
        return _union_of(limited, "UNION")

    def _parts(self, on: str) -> list[Piece]:
        parts = list[Piece]()
        if self.words is not None:
            by_word = f"SELECT n AS number FROM call_word WHERE list_status = {on} AND {_BEGINS}"
            parts.append((by_word, [*self.words]))
        if self.search_keys:
            marks = ", ".join("?" * len(self.search_keys))
            by_key = (
                f"SELECT n AS number FROM call WHERE search_key IN ({marks}) AND list_status = {on}"
            )
            parts.append((by_key, [*self.search_keys]))
        return parts


class _Lead(NamedTuple):
    """The source that leads a search of common words, and the ranges of indexes with its calls."""

    source: _Source
    ranges: list[Piece]


def _row_at(offset: int, text: str, values: list[Any]) -> Piece:
    return f"SELECT ends, n FROM ({text} LIMIT 1 OFFSET {offset}) AS row_at", values


def _words_are(wanted: Wanted, column: str = "words") -> Piece:
    """Match the words in a column; a text without words matches none."""
    text = " AND ".join([f"{column} LIKE ?"] * len(wanted.words)) or "1 = 0"
    return text, [f"% {word}%" for word in wanted.words]


def _is_one_of(list_statuses: Sequence[str]) -> str:
    names = ", ".join(repr(name) for name in list_statuses)
    return f"list_status IN ({names})" if len(list_statuses) > 1 else f"list_status = {names}"


def _on_lists(list_statuses: Sequence[str]) -> str:
    """Name lists so that the partial indexes of open calls serve, if they are open.

    All open lists are named once: PostgreSQL expects fewer rows from a condition that is repeated,
    and would sort them instead of walking along the index.
    """
    if set(list_statuses) == set(OPEN):
        return WAITS
    text = _is_one_of(list_statuses)
    return f"{WAITS} AND {text}" if set(list_statuses) <= set(OPEN) else text


def _all_of(pieces: Iterable[Piece | None]) -> Piece:
    parts = [piece for piece in pieces if piece is not None]
    text = " AND ".join(text for text, _ in parts) or "1 = 1"
    return text, [value for _, values in parts for value in values]


def _union_of(pieces: Iterable[Piece | None], union: str = "UNION ALL") -> Piece:
    parts = [piece for piece in pieces if piece is not None]
    text = f" {union} ".join(text for text, _ in parts)
    return text, [value for _, values in parts for value in values]


_RUNS = sql.LOAD_RUN.removesuffix(" WHERE id = ?")
#: How many columns a thread has, before those of a message that is joined to it.
_THREAD = len(Thread._fields)
#: How many calls are read at once, and more than any store has.
_CALLS_READ = 4000
_MOST_CALLS = (1 << 63) - 1
_CREATED = Call._fields.index("created")
_THREADS = sql.LOAD_THREAD.removesuffix(" WHERE id = ?")


def first_rows(
    limit: int,
    listed: Callable[[list[Any]], Iterable[T]],
    rows_after: Callable[[K | None], list[Any]],
    key_of: Callable[[Any], K | None],
    after: K | None,
) -> list[T]:
    """Return the first rows of a list, as ``listed`` decodes them.

    Those that it leaves out do not shorten the list.
    """
    decoded_rows: list[T] = []
    known_keys: set[Any] = set()
    while True:
        rows = rows_after(after)
        # A key that was tampered with may lead back to rows that were read.
        new = [row for row in rows if row[0] not in known_keys]
        known_keys.update(row[0] for row in new)
        decoded_rows += listed(new)
        if len(decoded_rows) >= limit or len(rows) < limit or not new:
            return decoded_rows[:limit]
        after = key_of(rows[-1])
        if after is None:
            return decoded_rows


def _counted(count: Callable[..., T], *args: Any) -> T:
    """Count rows of an index, which no MAC covers; raise ``Tampered`` if it holds what is none."""
    try:
        return count(*args)
    except DAMAGE as error:
        raise tampered("the index of requests", UNREADABLE) from error


class SqlReads:
    """The reads of a SQL store, over the store's own ``_rows``."""

    _dialect: Dialect
    _tool_cache: ToolCache
    _decode: RowDecoder
    #: ``None`` for the clock of the database, which a store then reads itself.
    _clock: Callable[[], Micros] | None

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        raise NotImplementedError

    def now(self) -> Micros:
        """Return the time of the store's clock."""
        assert self._clock is not None
        return self._clock()

    def _sql_now(self) -> tuple[str, tuple[Micros, ...]]:
        """Return the time as SQL and its values."""
        return "?", (self.now(),)

    def _row(self, statement: str, *values: Any) -> Any:
        rows = self._rows(statement, values)
        return rows[0] if rows else None

    def _one(self, decode: Decode[R], statement: str, *values: Any) -> R | None:
        row = self._row(statement, *values)
        return None if row is None else self._decode.one(decode, row)

    def run(self, run_id: str) -> Run | None:
        return self._one(run_from, sql.LOAD_RUN, run_id)

    def live_run(self, thread: str) -> Run | None:
        return self._one(run_from, sql.LOAD_LIVE_RUN, thread)

    def last_run(self, thread: str) -> Run | None:
        live = self.live_run(thread)
        if live is not None:
            return live
        _, messages = self._conversation(thread, None)
        return self.run(messages[0].run) if messages else None

    def call(self, call_id: str) -> Call | None:
        return self._one(call_from, sql.LOAD_CALL, call_id)

    def call_by_key(self, run: str, key: str) -> Call | None:
        return self._one(call_from, sql.LOAD_CALL_BY_KEY, run, key)

    def released_call(self, run: str, caller: str) -> Call | None:
        return self._one(call_from, sql.LOAD_RELEASED_CALL, run, caller)

    def released_use(self, run: str, tool_digest: str, args_hash: str) -> Call | None:
        return self._one(call_from, sql.LOAD_RELEASED_USE, run, tool_digest, args_hash)

    def calls_of(self, run: str, keys: Sequence[str] | None = None) -> list[Call]:
        if keys is None:
            rows = self._rows(sql.LOAD_CALLS_OF_RUN, (run,))
        elif len(keys) == 1:
            rows = self._rows(sql.LOAD_CALL_BY_KEY, (run, keys[0]))
        else:
            among = sql.LOAD_CALLS_AMONG.format(self._dialect.strings)
            rows = self._rows(among, (run, json.dumps(keys)))
        return self._decode.each(call_from, rows)

    def calls_since(
        self, since: Micros, agent: str | None = None, tool: str | None = None
    ) -> Iterator[Call]:
        names = {"agent": agent, "tool": tool}
        wanted = {column: short(name) for column, name in names.items() if name is not None}
        keys = " AND ".join(f"{column} = ?" for column in wanted)
        few = ""
        if wanted:  # read from the index of search keys alone
            few = (
                f"AND n IN (SELECT n FROM call WHERE n < ? AND created >= {since:d} AND search_key "
                f"IN (SELECT id FROM search_key WHERE {keys}) ORDER BY n DESC LIMIT {_CALLS_READ})"
            )
        statement = (
            f"SELECT {sql.CALL}, n FROM call WHERE n < ? {few} ORDER BY n DESC LIMIT {_CALLS_READ}"
        )
        before = _MOST_CALLS
        while rows := self._rows(statement, (before, *([before] if few else []), *wanted.values())):
            recent = [row for row in rows if row[_CREATED] >= since]
            for call in self._decode.listed(call_from, recent):
                if agent in (None, call.agent) and tool in (None, call.tool):
                    yield call
            if not recent:
                return  # numbers are given out in about the order of time
            before = rows[-1][-1]

    def calls_like(self, prefix: str, limit: int) -> list[str]:
        statement = "SELECT id FROM call WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"
        return [row[0] for row in self._rows(statement, (prefix, after_prefix(prefix), limit))]

    def tool(self, digest: str) -> Tool | None:
        tool = self._tool_cache.tools.get(digest)
        if tool is None:
            row = self._row(sql.LOAD_TOOL, digest)
            if row is not None:
                tool = self._decode.tool(row)
                self._tool_cache.learn((tool,))
        return tool

    def messages(self, thread: str, after: int = 0) -> list[tuple[int, str]]:
        _, messages = self._conversation(thread, after)
        return [(message.seq, message.body) for message in messages]

    def messages_beyond(self, thread: str, after: int, count: int) -> list[tuple[int, str]] | None:
        row, messages = self._conversation(thread, after)
        stored = 0 if row is None else row.kept_up_to(after)
        return [(message.seq, message.body) for message in messages] if stored == count else None

    def _conversation(
        self, thread: str, after: int | None
    ) -> tuple[Thread | None, list[StoredMessage]]:
        """Read messages after a number, or the last one, with their thread's row, in one snapshot.

        The row proves which messages must be there. Raises ``Tampered`` if one is missing or was
        added.
        """
        if after is None:
            rows = self._rows(sql.LOAD_LAST_MESSAGE, (thread,))
        else:
            rows = self._rows(sql.LOAD_MESSAGES, (thread, after, thread))
        if not rows:
            if self._decode.checks and self._rows(sql.HAS_ORPHAN_MESSAGES, (thread, thread)):
                raise tampered(f"thread {thread}", "its row is missing, and it has messages")
            return None, []
        row = self._decode.one(thread_from, rows[0][:_THREAD])
        message_rows = [
            joined_row[_THREAD:] for joined_row in rows if joined_row[_THREAD] is not None
        ]
        messages = self._decode.each(message_from, message_rows)
        first = row.messages if after is None else after + 1
        stored = {m.seq for m in messages}
        expected = set(row.kept_messages(first, row.messages))
        if self._decode.checks and stored != expected:
            wrong = min(stored ^ expected)
            what = "missing" if wrong in expected else "not one that it has"
            raise tampered(f"thread {thread}", f"message {wrong} of it is {what}")
        return row, messages

    def stored_messages(
        self, thread: str, after: int = 0, limit: int = 1000
    ) -> list[StoredMessage]:
        rows = self._rows(sql.LOAD_STORED_MESSAGES, (thread, after, limit))
        return self._decode.each(message_from, rows)

    def page(self, query: Query) -> list[tuple[int, Call]]:
        return RequestPage(self._rows, self._dialect, self._decode, query).page()[0]

    def quick_page(self, query: Query) -> tuple[list[tuple[int, Call]], int | None]:
        return RequestPage(self._rows, self._dialect, self._decode, query, quick=True).page()

    def groups(self, query: Query, viewer: Viewer) -> list[RequestGroup]:
        page = RequestPage(self._rows, self._dialect, self._decode, query)
        return _counted(page.groups, viewer)

    def key_uses(self, most: int) -> dict[str, Counter[str]]:
        return key_uses(self._rows, most)

    def has_signed(self, key_id: str) -> bool:
        return has_signed(self._rows, key_id)

    def processes(self) -> list[LiveProcess]:
        return live_processes(self._rows, self.now())

    def waiting(self) -> dict[str, int]:
        rows = self._rows("SELECT list_status, sum(many) FROM open_count GROUP BY list_status")
        counts = dict(rows)
        return {name: _counted(int, counts.get(name, 0)) for name in OPEN}

    def vitals(self) -> Vitals:
        return _counted(statistics.vitals, self._rows, self.now())

    def tallies(self, viewer: Viewer, since: Sequence[Micros]) -> Tallies:
        return _counted(statistics.tallies, self._rows, self._dialect, viewer, since)

    def open_ages(self, viewer: Viewer, since: Sequence[Micros]) -> OpenAges:
        return _counted(statistics.open_ages, self._rows, self._dialect, viewer, since)

    def miscounted(self) -> int:
        of = "list_status, request_group, search_key"
        counts = (
            f"SELECT {of}, many FROM open_count UNION ALL SELECT {of}, -1 FROM call WHERE {WAITS}"
        )
        wrong = f"SELECT 1 FROM ({counts}) AS b GROUP BY {of} HAVING sum(many) <> 0"
        return int(self._rows(f"SELECT count(*) FROM ({wrong}) AS wrong")[0][0])

    def runs(
        self,
        *,
        status: str | None = None,
        agent: str | None = None,
        thread: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> list[tuple[str, Run]]:
        place = "created <= ? AND (created < ? OR id < ?)"
        column_values = list[Any]()
        for column, value in (("agent", agent), ("thread", thread)):
            if value is not None:
                place += f" AND {column} = ?"
                column_values.append(value)
        # A short walk along the index of each status; one thread has few runs.
        if status is not None:
            statuses = [f"status = '{RunStatus(status)}'"]
        elif thread is not None:
            statuses = ["1 = 1"]
        else:
            statuses = [f"status = '{each}'" for each in RunStatus]
        walks = " UNION ALL ".join(
            f"SELECT id FROM (SELECT id FROM run WHERE {condition} AND {place} "
            "ORDER BY created DESC, id DESC LIMIT ?) AS walked"
            for condition in statuses
        )
        statement = f"{_RUNS} WHERE id IN ({walks}) ORDER BY created DESC, id DESC LIMIT ?"

        def rows_before(at: Micros, name: str) -> list[Any]:
            walked = [at, at, name, *column_values, limit] * len(statuses)
            return self._rows(statement, (*walked, limit))

        return self._newest_first(run_from, Run._fields, rows_before, after, limit)

    def _newest_first(
        self,
        decode: Decode[N],
        columns: Sequence[str],
        rows_before: Callable[[Micros, str], list[Any]],
        after: str | None,
        limit: int,
        time: str = "created",
    ) -> list[tuple[str, N]]:
        at = columns.index(time)
        rows = first_rows(
            limit,
            partial(self._decode.listed, decode),
            lambda key: rows_before(*age_start(key)),
            lambda row: age_key(row[at], row[0]),
            after,
        )
        return [(age_key(getattr(row, time), row.id), row) for row in rows]

    def threads_of(
        self, owner: str, after: str | None = None, limit: int = 50
    ) -> list[tuple[str, Thread]]:
        statement = (
            f"{_THREADS} WHERE owner <> '' AND owner = ? "
            "AND created <= ? AND (created < ? OR id < ?) ORDER BY created DESC, id DESC LIMIT ?"
        )

        def rows_before(at: Micros, name: str) -> list[Any]:
            return self._rows(statement, (owner, at, at, name, limit))

        return self._newest_first(thread_from, Thread._fields, rows_before, after, limit)

    def grants(self, *, live_only: bool = True) -> list[Grant]:
        rows = self._rows(f"SELECT {sql.GRANT} FROM grants ORDER BY created, id")
        grants = self._decode.listed(grant_from, rows)
        now = self.now()
        return [g for g in grants if g.live(now)] if live_only else grants

    def budgets(self) -> list[Budget]:
        return self._decode.listed(budget_from, self._rows(sql.LOAD_BUDGETS))

    def refusals(
        self, *, after: str | None = None, limit: int = 50, lifted: bool = False
    ) -> list[tuple[str, Refusal]]:
        which = "" if lifted else "lifted IS NULL AND "
        statement = (
            f"SELECT {sql.REFUSAL} FROM refusal WHERE {which}at <= ? AND (at < ? OR id < ?) "
            "ORDER BY at DESC, id DESC LIMIT ?"
        )

        def rows_before(at: Micros, name: str) -> list[Any]:
            return self._rows(statement, (at, at, name, limit))

        names = [field.name for field in fields(Refusal)]
        return self._newest_first(refusal_from, names, rows_before, after, limit, "at")

    def refusal(self, refusal_id: str) -> Refusal | None:
        return self._one(refusal_from, sql.LOAD_REFUSAL, refusal_id)

    def refusals_of(self, agent: str, tool: str, args_hash: str) -> list[Refusal]:
        rows = self._rows(sql.LOAD_REFUSALS_FOR, (agent, tool, args_hash))
        return self._decode.each(refusal_from, rows)

    def all_refusals(self, after: str = "", limit: int = 1000) -> list[Refusal]:
        return self._by_id(refusal_from, sql.LOAD_REFUSALS, after, limit)

    def people(self) -> list[Person]:
        return self._decode.listed(person_from, self._rows(sql.LOAD_PEOPLE))

    def person(self, name: str) -> Person | None:
        return self._one(person_from, sql.LOAD_PERSON, look_of(name))

    def absent(self) -> list[Person]:
        return self._decode.listed(person_from, self._rows(sql.LOAD_ABSENT))

    def actor(self, name: str) -> tuple[Person | None, list[Person]]:
        look = look_of(name)
        person = None
        absent_rows = []
        for row in self._rows(sql.LOAD_ACTOR, (look, name)):
            if row[1] == look:
                person = self._decode.one(person_from, row)
            else:
                absent_rows.append(row)
        return person, self._decode.listed(person_from, absent_rows)

    def credentials(self, person: str | None = None) -> list[Credential]:
        if person is None:
            rows = self._rows(sql.LOAD_CREDENTIALS)
        else:
            rows = self._rows(sql.LOAD_CREDENTIALS_OF, (person,))
        return self._decode.listed(credential_from, rows)

    def effect(self, key: str) -> EffectKey | None:
        return self._one(effect_from, sql.LOAD_EFFECT, key)

    def effects(self, after: str = "", limit: int = 1000) -> list[EffectKey]:
        return self._by_id(effect_from, sql.LOAD_EFFECTS, after, limit)

    def _by_id(self, decode: Decode[R], statement: str, after: str, limit: int) -> list[R]:
        """Read a list in the order of its first column."""
        listed = partial(self._decode.listed, decode)
        read = lambda key: self._rows(statement, (key, limit))  # noqa: E731
        return first_rows(limit, listed, read, itemgetter(0), after)

    def credential(self, hash: str) -> Credential | None:
        return self._one(credential_from, sql.LOAD_CREDENTIAL, hash)

    def overdue(self, limit: int = 100) -> list[Due]:
        now, time_values = self._sql_now()
        expired = (
            f"SELECT thread, run, id FROM call WHERE {WAITS} AND list_status = 'asked' "
            f"AND {END} <= {now} ORDER BY {END}, n LIMIT {limit:d}"
        )
        held = (
            f"SELECT thread, run, id FROM call WHERE held_until <= {now} "
            f"ORDER BY held_until LIMIT {limit:d}"
        )
        lapsed = (
            f"SELECT thread, id, NULL FROM run WHERE ready_at <= {now} AND owner IS NOT NULL "
            f"ORDER BY ready_at LIMIT {limit:d}"
        )
        steps = [
            f"SELECT thread, run, id FROM call WHERE list_status = 'asked' AND {at} <= {now} "
            f"ORDER BY {at} LIMIT {limit:d}"
            for at in _STEPS
        ]
        statements = (expired, held, *steps, lapsed)
        rows = self._rows(_chained(*statements), [*time_values] * len(statements))
        return [Due(*row) for row in dict.fromkeys(map(tuple, rows))]

    def next_due(self, after: Micros = 0) -> Micros | None:
        ends = (
            f"SELECT {END} FROM call WHERE {WAITS} AND list_status = 'asked' AND {END} > ? "
            f"AND {END} < {NEVER} ORDER BY {END}, n LIMIT 1"
        )
        held = "SELECT held_until FROM call WHERE held_until > ? ORDER BY held_until LIMIT 1"
        dues = "SELECT ready_at FROM run WHERE ready_at > ? ORDER BY ready_at LIMIT 1"
        steps = [
            f"SELECT {at} FROM call WHERE list_status = 'asked' AND {at} > ? ORDER BY {at} LIMIT 1"
            for at in _STEPS
        ]
        statements = (ends, held, *steps, dues)
        times = self._rows(_chained(*statements), [after] * len(statements))
        # What is no time was written by something else, and is never due.
        return min((row[0] for row in times if isinstance(row[0], int)), default=None)

    def ready(self, agents: Sequence[str], limit: int = 1) -> list[Run]:
        if not agents:
            return []
        marks = ", ".join("?" * len(agents))
        agent = f"{self._dialect.no_index}agent"  # an agent has many runs, and few are due
        now, time_values = self._sql_now()
        statement = (
            f"{_RUNS} WHERE ready_at <= {now} AND {agent} IN ({marks}) "
            f"ORDER BY ready_at LIMIT ? OFFSET ?{self._dialect.lock_free}"
        )
        due_runs: list[Run] = []
        passed = 0
        while True:
            rows = self._rows(statement, (*time_values, *agents, limit, passed))
            due_runs += self._decode.listed(run_from, rows)
            passed += len(rows)
            # Runs that fail their check do not hide those behind them from workers.
            if len(due_runs) >= limit or len(rows) < limit:
                return due_runs[:limit]

    def open_runs(self) -> Iterable[Run]:
        rows = self._rows(f"{_RUNS} WHERE status IN ('running', 'paused') AND ready + running > 0")
        return self._decode.listed(run_from, rows)

    def chain(self, thread: str, after: int = 0, limit: int = 1000) -> list[Event]:
        return [event_from(row) for row in self._rows(sql.LOAD_CHAIN, (thread, after, limit))]

    def call_events(self, call_id: str, limit: int = 1000) -> list[Event]:
        # The second condition lets the planner use the partial index.
        statement = (
            f"SELECT {sql.EVENT} FROM event WHERE call = ? AND call <> '' ORDER BY seq LIMIT ?"
        )
        return [event_from(row) for row in self._rows(statement, (call_id, limit))]

    def thread(self, thread: str) -> Thread | None:
        return self._one(thread_from, sql.LOAD_THREAD, thread)

    def threads(self, after: str = "", limit: int = 1000) -> list[Thread]:
        statement = f"{_THREADS} WHERE id > ? ORDER BY id LIMIT ?"
        return self._by_id(thread_from, statement, after, limit)

    def cursor(self, name: str) -> str:
        row = self._row("SELECT pos FROM cursor WHERE name = ?", name)
        return "" if row is None else str(row[0])

    def delivery(self, delivery_id: str) -> Delivery | None:
        row = self._row(sql.LOAD_DELIVERY, delivery_id)
        return None if row is None else Delivery(*row)

    def deliveries_of(self, request: str) -> list[Delivery]:
        return [Delivery(*row) for row in self._rows(sql.LOAD_DELIVERIES_OF, (request,))]

    def next_deliveries(self, channel: str, limit: int) -> list[Delivery]:
        rows = self._rows(sql.LOAD_NEXT_DELIVERIES, (channel, limit))
        return [Delivery(*row) for row in rows]

    def count_deliveries(self) -> dict[tuple[str, str], int]:
        return {(row[0], row[1]): row[2] for row in self._rows(sql.COUNT_DELIVERIES, ())}

    def seals(self, after: int = 0, limit: int = 100) -> list[Seal]:
        statement = f"SELECT {sql.SEAL} FROM seal WHERE n > ? ORDER BY n LIMIT ?"
        return [seal_from(row) for row in self._rows(statement, (after, limit))]

    def _among(self, statement: str, names: Sequence[str], *values: Any) -> list[Any]:
        return self._rows(statement.format(self._dialect.strings), (json.dumps(names), *values))

    def chains(self, threads: Sequence[str], limit: int) -> list[Event]:
        return [event_from(row) for row in self._among(sql.LOAD_CHAINS, threads, limit)]

    def conversations(self, threads: Sequence[str], limit: int) -> list[StoredMessage]:
        rows = self._among(sql.LOAD_CONVERSATIONS, threads, limit)
        return self._decode.each(message_from, rows)

    def listed_calls(self, ids: Sequence[str]) -> list[ListedCall]:
        rows = self._among(sql.LOAD_LISTED_CALLS, ids)
        calls = self._decode.each(call_from, rows)
        listed_at = -len(sql.LISTED.split(", ")) - len(GroupKey._fields) + 1
        listed_calls = []
        for row, call in zip(rows, calls, strict=True):
            list_status, search_key, _, by, at, opened, held, words, *group = row[listed_at:]
            in_group = None if group[0] is None else tuple(group)
            names = words.split()
            indexed = self._among(_COUNT_WORDS, names, call.id)
            listed = (list_status, search_key, in_group, by, at, opened, held)
            indexed_words = words if indexed == [(len(names),)] else None
            listed_calls.append(ListedCall(call, *listed, indexed_words))
        return listed_calls

    def call_row(self, call_id: str) -> dict[str, Any] | None:
        columns = f"{sql.CALL}, {sql.LISTED}"
        row = self._row(f"SELECT {columns} FROM call WHERE id = ?", call_id)
        return None if row is None else dict(zip(columns.split(", "), row, strict=True))

    def has_search_key(self, key: SearchKey) -> bool:
        words = "".join(f" {word}" for word in key.words)
        statement = "SELECT id, kind, agent, tool, risk, words FROM search_key WHERE id = ?"
        if self._row(statement, key.id) != (*key[:-1], words):
            return False
        among = f"SELECT count(*) FROM search_word WHERE word IN ({{}}) AND search_key = {key.id:d}"
        return bool(self._among(among, key.words) == [(len(key.words),)])

    def runs_with_ids(self, ids: Sequence[str]) -> list[Run]:
        return self._decode.each(run_from, self._among(f"{_RUNS} WHERE id IN ({{}})", ids))

    def call_counts(self) -> list[tuple[str, int]]:
        return [(run, n) for run, n in self._rows("SELECT run, count(*) FROM call GROUP BY run")]

    def run_threads(self, after: str = "", limit: int = 1000) -> list[tuple[str, str]]:
        statement = "SELECT id, thread FROM run WHERE id > ? ORDER BY id LIMIT ?"
        return [(run, thread) for run, thread in self._rows(statement, (after, limit))]

    def orphan_events(self, limit: int) -> list[tuple[str, int]]:
        statement = (
            "SELECT thread, min(seq) FROM event WHERE NOT EXISTS "
            "(SELECT 1 FROM thread WHERE thread.id = event.thread) GROUP BY event.thread LIMIT ?"
        )
        return [(thread, seq) for thread, seq in self._rows(statement, (limit,))]


class Snapshot(SqlReads):
    """The reads of a store at one moment, over ``rows``, without checking any MAC."""

    def __init__(self, store: Any, rows: Rows) -> None:
        self._dialect = store._dialect
        self._tool_cache = ToolCache()
        self._decode = UNCHECKED
        self._read = rows
        self._clock = store.now
        self.url = store.url
        self.keys = store.keys
        self.incarnation = store.incarnation

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        return self._read(statement, values)


def _chained(*statements: str) -> str:
    """Return the rows of several ordered statements, one after the other."""
    each = (f"SELECT * FROM ({statement}) AS part{n}" for n, statement in enumerate(statements))
    return " UNION ALL ".join(each)


def move_cursor(execute: Execute, name: str, to: str, expected: str) -> bool:
    """Move a named cursor if it is at ``expected``."""
    statement = "UPDATE cursor SET pos = ? WHERE name = ? AND pos = ?"
    moved = execute(statement, (to, name, expected)).rowcount
    if not moved and not expected:
        statement = "INSERT INTO cursor (pos, name) VALUES (?, ?) ON CONFLICT (name) DO NOTHING"
        moved = execute(statement, (to, name)).rowcount
    return bool(moved)


def put_deliveries(execute: Execute, deliveries: Sequence[Delivery]) -> list[bool]:
    """Add, change or delete deliveries; return for each whether it still was of its version."""
    written = []
    for row in deliveries:
        place = (row.id, row.version)
        saved = row._replace(version=row.version + 1)
        if row.state == "gone":
            reply = execute(sql.DROP_DELIVERY, place)
        elif row.version:
            reply = execute(sql.SAVE_DELIVERY, (*sql.delivery_changes(saved), *place))
        else:
            reply = execute(sql.ADD_DELIVERY, saved)
        written.append(bool(reply.rowcount))
    return written
