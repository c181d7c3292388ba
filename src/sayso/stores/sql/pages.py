"""Pages of requests in SQL: every list is a few short walks along an index.

A page without a search takes its rows from each list status in order. A search finds the search
keys first: if they are few, the first calls of each are merged; if they are many, so are the calls,
and a walk along the list meets enough of them soon. Requests of one run or thread are few, and
simply read.

Statements are split so that no planner has a choice to get wrong. Limits stand in them as numbers:
a planner that does not know one takes it for a tenth of all rows, and plans anew each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from heapq import nlargest, nsmallest
from typing import Any

from sayso.rows import Call
from sayso.stores.base import NEVER, Query, page_key, page_start
from sayso.stores.listing import (
    OPEN,
    Wanted,
    after_prefix,
    fits,
    list_status_of,
    list_statuses_of,
    short,
    wanted,
)
from sayso.stores.row_checks import RowDecoder, log
from sayso.stores.sql import statements as sql
from sayso.stores.sql.dialect import Dialect
from sayso.stores.sql.rowcodec import call_from

Rows = Callable[[str, Sequence[Any]], list[Any]]
#: A piece of SQL and its values.
Piece = tuple[str, list[Any]]

#: More search keys than these, and the calls that show them are met soon enough by walking.
FEW_SEARCH_KEYS = 1000
#: So many calls are too many to be sorted for one page.
MANY_CALLS = 2000

_ENDS = sql.CALL.split(", ").index("expires_at")
END = f"coalesce(expires_at, {NEVER})"
WAITS = f"list_status IN ({', '.join(repr(name) for name in OPEN)})"
_ORDER = {"oldest": "n", "newest": "n DESC", "expiring": f"{END}, n"}
_BEGINS = "search_word WHERE word >= ? AND word < ?"


class Pages:
    """One query for a page, while it is turned into statements."""

    def __init__(self, rows: Rows, dialect: Dialect, decode: RowDecoder, query: Query) -> None:
        self._rows = rows
        self._dialect = dialect
        self._decode = decode
        self._query = query
        self._statuses = list_statuses_of(query)
        self._wanted = wanted(query.text) if query.text else None

    def page(self) -> list[tuple[int, Call]]:
        """The rows of the page, each with the key that the next page comes after."""
        query = self._query
        numbers = self._numbers() if self._statuses else None
        if numbers is None:
            return []
        text, values = numbers
        statement = (
            f"SELECT {sql.CALL}, n FROM call WHERE n IN ({text}) "
            f"ORDER BY {_ORDER[query.sort]} LIMIT {query.limit:d}"
        )
        rows = self._rows(statement, values)
        numbers_of = {row[0]: row[-1] for row in rows}
        calls = [c for c in self._decode.listed(call_from, rows) if self._belongs(c)]
        found = [(page_key(query, numbers_of[c.id], c.expires_at), c) for c in calls]
        if len(found) < len(rows) == query.limit:
            # Rows that were left out do not shorten the list: what comes after them is there.
            last = page_key(query, rows[-1][-1], rows[-1][_ENDS])
            more = replace(query, after=last, limit=query.limit - len(found))
            found += Pages(self._rows, self._dialect, self._decode, more).page()
        return found

    def _belongs(self, call: Call) -> bool:
        """Whether a row is in the right list: the columns of the index have no MAC of their own."""
        query = self._query
        if list_status_of(call) in self._statuses and fits(call, query):
            return True
        log.warning("left out of a list: request %s is indexed as something else", call.id)
        return False

    def _numbers(self) -> Piece | None:
        """Where the numbers of the page's rows come from, and perhaps some more."""
        query = self._query
        if query.run is not None or query.thread is not None:
            return self._among(self._of_place(), self._matches())
        shows = self._shows()
        if shows is None:
            return self._walk(None)
        found = self._of_search_keys() if self._search_keys_are_few() else None
        if found is None:
            return _union([self._walk(self._shows()), self._by_id()])
        return (", ".join("?" * len(found)), found) if found else None

    # -- one run or thread

    def _of_place(self) -> Piece:
        query, parts, values = self._query, [], []
        if query.run is not None:
            parts.append("run = ?")
            values.append(query.run)
        if query.thread is not None:
            parts.append("run IN (SELECT id FROM run WHERE thread = ?)")
            values.append(query.thread)
        return " AND ".join(parts), values

    def _matches(self) -> Piece | None:
        """The condition on a call at hand: its search key, or its id."""
        shows, like = self._shows(), self._id_is_like()
        if shows is None or like is None:
            return shows
        text, values = _both([like, self._shows(without_text=True)])
        return f"({shows[0]} OR ({text}))", [*shows[1], *values]

    def _among(self, place: Piece, matches: Piece | None) -> Piece:
        """Out of a few calls, all of which are read: those in our lists, later, that match."""
        text, values = _both([self._on(self._statuses), self._later(), matches])
        columns = "n, id, list_status, search_key, created, expires_at"
        here = f"SELECT {columns} FROM call WHERE {place[0]}"
        found = f"WITH here AS MATERIALIZED ({here}) SELECT n FROM here AS call WHERE {text}"
        return f"SELECT n FROM ({found}) AS found", [*place[1], *values]

    # -- along the lists

    def _walk(self, shows: Piece | None) -> Piece:
        """The first calls of each list, in order."""
        if self._query.sort == "expiring":
            return self._cut(self._on(self._statuses), shows)
        return _union([self._cut(self._on([list_status]), shows) for list_status in self._statuses])

    def _cut(self, on: Piece, shows: Piece | None) -> Piece:
        text, values = _both([on, self._later(), shows])
        order = _ORDER[self._query.sort]
        inner = f"SELECT n FROM call WHERE {text} ORDER BY {order} LIMIT {self._query.limit:d}"
        return f"SELECT n FROM ({inner}) AS walked", values

    def _on(self, list_statuses: Sequence[str]) -> Piece:
        """The condition that names lists, said so that a partial index knows itself in it."""
        names = ", ".join(repr(name) for name in list_statuses)
        text = f"list_status IN ({names})" if len(list_statuses) > 1 else f"list_status = {names}"
        if self._query.sort == "expiring":
            return (f"{WAITS} AND {text}" if set(list_statuses) <= set(OPEN) else text), []
        return f"list_status <> '' AND {text}", []

    def _later(self) -> Piece | None:
        """What comes after the page before, and is not too old."""
        query, parts, values = self._query, [], []
        if query.created_after is not None:
            parts.append("created >= ?")
            values.append(query.created_after)
        if query.after is not None:
            end, n = page_start(query)
            if query.sort == "expiring":
                parts.append(f"{END} >= ? AND ({END} > ? OR n > ?)")
                values += [end, end, n]
            else:
                parts.append("n > ?" if query.sort == "oldest" else "n < ?")
                values.append(n)
        return (" AND ".join(parts), values) if parts else None

    # -- through the search keys

    def _shows(self, *, without_text: bool = False) -> Piece | None:
        """The condition on a call's search key, if the query has any."""
        text, values = self._search_key_is(None if without_text else self._wanted)
        if not text:
            return None
        found = f"SELECT 1 FROM search_key WHERE search_key.id = call.search_key AND {text}"
        return f"EXISTS ({found})", values

    def _search_key_is(self, words: Wanted | None) -> Piece:
        query, parts, values = self._query, [], []
        for name in ("agent", "tool", "risk"):
            value = getattr(query, name)
            if value is not None:
                parts.append(f"{name} = ?")
                values.append(short(value))
        if query.agents is not None:
            marks = ", ".join("?" * len(query.agents))
            parts.append(f"agent IN ({marks})" if marks else "1 = 0")
            values += [short(agent) for agent in query.agents]
        if query.kind not in (None, "in_doubt"):
            parts.append("kind = ?")
            values.append(query.kind)
        if words is not None:
            parts += ["1 = 0"] if not words.words else []
            for word in words.words:
                parts.append("words LIKE ?")
                values.append(f"% {word}%")
        return " AND ".join(parts), values

    def _search_keys_are_few(self) -> bool:
        """Count up to the limit; with words, the rarest of them decides and comes first."""
        words = self._wanted
        if words is None or not words.words:
            text, values = self._search_key_is(words)
            counted = f"SELECT 1 FROM search_key WHERE {text} LIMIT {FEW_SEARCH_KEYS + 1}"
            counts = self._rows(f"SELECT count(*) FROM ({counted}) AS counted", values)[0]
        else:
            counted = (
                f"(SELECT count(*) FROM (SELECT 1 FROM {_BEGINS} LIMIT {FEW_SEARCH_KEYS + 1}) AS c)"
            )
            ranges = [end for word in words.words for end in (word, after_prefix(word))]
            counts = self._rows(f"SELECT {', '.join([counted] * len(words.words))}", ranges)[0]
            ordered = [word for _, word in sorted(zip(counts, words.words, strict=True))]
            self._wanted = Wanted(tuple(ordered), words.ids)
        return bool(min(counts) <= FEW_SEARCH_KEYS)

    def _of_search_keys(self) -> list[int] | None:
        """Merge the first calls of a few search keys; None where that would cost too much."""
        query = self._query
        if query.sort == "expiring" and not self._calls_are_few():
            return None
        limit = MANY_CALLS if query.sort == "expiring" else query.limit
        lists = [text.split(",") for text in self._first_of_search_keys(limit)]
        found = {int(n) for numbers in lists for n in numbers}
        by_id = self._by_id()
        if by_id is not None:
            found.update(row[0] for row in self._rows(*by_id))
        if query.sort == "expiring":
            return sorted(found)
        return (nlargest if query.sort == "newest" else nsmallest)(limit, found)

    def _calls_are_few(self) -> bool:
        """Whether all calls of the search keys can be sorted by their end for one page."""
        search_keys, values = self._search_keys()
        on, _ = self._on(self._statuses)
        some = f"SELECT 1 FROM call WHERE search_key IN ({search_keys}) AND {on} LIMIT {MANY_CALLS}"
        counted = self._rows(f"SELECT count(*) FROM ({some}) AS counted", values)
        return bool(counted[0][0] < MANY_CALLS)

    def _first_of_search_keys(self, limit: int) -> Iterable[str]:
        """For each search key and list, the numbers of its first calls as one text."""
        later, values = _both([self._later()])
        columns, all_values = [], []
        for list_status in self._statuses:
            first = (
                "SELECT n FROM call WHERE call.search_key = search_key.id "
                f"AND list_status = '{list_status}' AND {later} "
                f"ORDER BY {'n DESC' if self._query.sort == 'newest' else 'n'} LIMIT {limit:d}"
            )
            columns.append(f"(SELECT {self._dialect.numbers} FROM ({first}) AS first)")
            all_values += values
        search_keys, search_key_values = self._search_keys()
        statement = f"SELECT {', '.join(columns)} FROM search_key WHERE id IN ({search_keys})"
        for row in self._rows(statement, [*all_values, *search_key_values]):
            yield from filter(None, row)

    def _search_keys(self) -> Piece:
        """The ids of the search keys that the query is about."""
        text, values = self._search_key_is(self._wanted)
        if self._wanted is not None and self._wanted.words:
            rarest = self._wanted.words[0]
            text = f"id IN (SELECT search_key FROM {_BEGINS}) AND {text}"
            values = [rarest, after_prefix(rarest), *values]
        return f"SELECT id FROM search_key WHERE {text}", values

    # -- by id

    def _by_id(self) -> Piece | None:
        """Calls whose id begins as the text does; the rest of the query holds for them too."""
        like = self._id_is_like()
        return None if like is None else self._among(like, self._shows(without_text=True))

    def _id_is_like(self) -> Piece | None:
        ids = () if self._wanted is None else self._wanted.ids
        text = " OR ".join(["(id >= ? AND id < ?)"] * len(ids))
        values = [end for start in ids for end in (start, after_prefix(start))]
        return (f"({text})", values) if ids else None


def _both(pieces: Iterable[Piece | None]) -> Piece:
    """All the conditions that there are."""
    there = [piece for piece in pieces if piece is not None]
    text = " AND ".join(text for text, _ in there) or "1 = 1"
    return text, [value for _, values in there for value in values]


def _union(pieces: Iterable[Piece | None]) -> Piece:
    there = [piece for piece in pieces if piece is not None]
    text = " UNION ALL ".join(text for text, _ in there)
    return text, [value for _, values in there for value in values]
