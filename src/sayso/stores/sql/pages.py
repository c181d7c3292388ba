"""Pages of requests in SQL: every list is a few short walks along an index.

A page without a search takes its rows from each shelf in order. A search finds the faces first: if
they are few, the first calls of each are merged; if they are many, so are the calls, and a walk
along the shelf meets enough of them soon. Requests of one run or thread are few, and simply read.

Statements are split so that no planner has a choice to get wrong. Limits stand in them as numbers:
a planner that does not know one takes it for a tenth of all rows, and plans anew each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import nlargest, nsmallest
from typing import Any

from sayso.rows import Call
from sayso.stores.base import NEVER, Query, page_key, page_start
from sayso.stores.faces import Wanted, after_prefix, short, wanted
from sayso.stores.shelf import OPEN, UNASKED, shelves_of
from sayso.stores.sql import statements as sql
from sayso.stores.sql.dialect import Dialect
from sayso.stores.sql.rowcodec import call_from

Rows = Callable[[str, Sequence[Any]], list[Any]]
#: A piece of SQL and its values.
Piece = tuple[str, list[Any]]

#: More faces than these, and the calls that show them are met soon enough by walking.
FEW_FACES = 1000
#: So many calls are too many to be sorted for one page.
MANY_CALLS = 2000

END = f"coalesce(expires_at, {NEVER})"
WAITS = f"shelf IN ({', '.join(repr(name) for name in OPEN)})"
_ORDER = {"oldest": "n", "newest": "n DESC", "expiring": f"{END}, n"}
_BEGINS = "face_word WHERE word >= ? AND word < ?"


class Pages:
    """One query for a page, while it is turned into statements."""

    def __init__(self, rows: Rows, dialect: Dialect, query: Query) -> None:
        self._rows = rows
        self._dialect = dialect
        self._query = query
        self._shelves = shelves_of(query)
        self._wanted = wanted(query.text) if query.text else None

    def page(self) -> list[tuple[int, Call]]:
        """The rows of the page, each with the key that the next page comes after."""
        query = self._query
        numbers = self._numbers() if self._shelves else None
        if numbers is None:
            return []
        text, values = numbers
        statement = (
            f"SELECT {sql.CALL}, n FROM call WHERE n IN ({text}) "
            f"ORDER BY {_ORDER[query.sort]} LIMIT {query.limit:d}"
        )
        rows = self._rows(statement, values)
        calls = [(row[-1], call_from(row)) for row in rows]
        return [(page_key(query, n, call.expires_at), call) for n, call in calls]

    def _numbers(self) -> Piece | None:
        """Where the numbers of the page's rows come from, and perhaps some more."""
        query = self._query
        if query.run is not None or query.thread is not None:
            return self._among(self._of_place(), self._matches())
        shows = self._shows()
        if shows is None:
            return self._walk(None)
        found = self._of_faces() if self._faces_are_few() else None
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
        """The condition on a call at hand: its face, or its id."""
        shows, like = self._shows(), self._id_is_like()
        if shows is None or like is None:
            return shows
        text, values = _both([like, self._shows(without_text=True)])
        return f"({shows[0]} OR ({text}))", [*shows[1], *values]

    def _among(self, place: Piece, matches: Piece | None) -> Piece:
        """Out of a few calls, all of which are read: those on our shelves, later, that match."""
        text, values = _both([self._on(self._shelves), self._later(), matches])
        here = f"SELECT n, id, shelf, face, created, expires_at FROM call WHERE {place[0]}"
        found = f"WITH here AS MATERIALIZED ({here}) SELECT n FROM here AS call WHERE {text}"
        return f"SELECT n FROM ({found}) AS found", [*place[1], *values]

    # -- along the shelves

    def _walk(self, shows: Piece | None) -> Piece:
        """The first calls of each shelf, in order."""
        if self._query.sort == "expiring":
            return self._cut(self._on(self._shelves), shows)
        return _union([self._cut(self._on([shelf]), shows) for shelf in self._shelves])

    def _cut(self, on: Piece, shows: Piece | None) -> Piece:
        text, values = _both([on, self._later(), shows])
        order = _ORDER[self._query.sort]
        inner = f"SELECT n FROM call WHERE {text} ORDER BY {order} LIMIT {self._query.limit:d}"
        return f"SELECT n FROM ({inner}) AS walked", values

    def _on(self, shelves: Sequence[str]) -> Piece:
        """The condition that names shelves, said so that a partial index knows itself in it."""
        names = ", ".join(repr(name) for name in shelves)
        text = f"shelf IN ({names})" if len(shelves) > 1 else f"shelf = {names}"
        if self._query.sort == "expiring":
            return (f"{WAITS} AND {text}" if set(shelves) <= set(OPEN) else text), []
        return (text if UNASKED in shelves else f"shelf <> '' AND {text}"), []

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

    # -- through the faces

    def _shows(self, *, without_text: bool = False) -> Piece | None:
        """The condition on a call's face, if the query has any."""
        text, values = self._face_is(None if without_text else self._wanted)
        if not text:
            return None
        found = f"EXISTS (SELECT 1 FROM face WHERE face.id = call.face AND {text})"
        return found, values

    def _face_is(self, words: Wanted | None) -> Piece:
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

    def _faces_are_few(self) -> bool:
        """Count up to the limit; with words, the rarest of them decides and comes first."""
        words = self._wanted
        if words is None or not words.words:
            text, values = self._face_is(words)
            counted = f"SELECT 1 FROM face WHERE {text} LIMIT {FEW_FACES + 1}"
            counts = self._rows(f"SELECT count(*) FROM ({counted}) AS counted", values)[0]
        else:
            counted = f"(SELECT count(*) FROM (SELECT 1 FROM {_BEGINS} LIMIT {FEW_FACES + 1}) AS c)"
            ranges = [end for word in words.words for end in (word, after_prefix(word))]
            counts = self._rows(f"SELECT {', '.join([counted] * len(words.words))}", ranges)[0]
            ordered = [word for _, word in sorted(zip(counts, words.words, strict=True))]
            self._wanted = Wanted(tuple(ordered), words.ids)
        return bool(min(counts) <= FEW_FACES)

    def _of_faces(self) -> list[int] | None:
        """The first calls of each of a few faces, merged here; or nothing, if that is no way."""
        query = self._query
        if query.sort == "expiring" and not self._calls_are_few():
            return None
        limit = MANY_CALLS if query.sort == "expiring" else query.limit
        lists = [text.split(",") for text in self._first_of_faces(limit)]
        found = {int(n) for numbers in lists for n in numbers}
        by_id = self._by_id()
        if by_id is not None:
            found.update(row[0] for row in self._rows(*by_id))
        if query.sort == "expiring":
            return sorted(found)
        return (nlargest if query.sort == "newest" else nsmallest)(limit, found)

    def _calls_are_few(self) -> bool:
        """Whether all calls of the faces can be sorted by their end for one page."""
        faces, values = self._faces()
        on, _ = self._on(self._shelves)
        some = f"SELECT 1 FROM call WHERE face IN ({faces}) AND {on} LIMIT {MANY_CALLS}"
        counted = self._rows(f"SELECT count(*) FROM ({some}) AS counted", values)
        return bool(counted[0][0] < MANY_CALLS)

    def _first_of_faces(self, limit: int) -> Iterable[str]:
        """For each face and shelf, the numbers of its first calls as one text."""
        later, values = _both([self._later()])
        columns, all_values = [], []
        for shelf in self._shelves:
            first = (
                f"SELECT n FROM call WHERE call.face = face.id AND shelf = '{shelf}' AND {later} "
                f"ORDER BY {'n DESC' if self._query.sort == 'newest' else 'n'} LIMIT {limit:d}"
            )
            columns.append(f"(SELECT {self._dialect.numbers} FROM ({first}) AS first)")
            all_values += values
        faces, face_values = self._faces()
        statement = f"SELECT {', '.join(columns)} FROM face WHERE id IN ({faces})"
        for row in self._rows(statement, [*all_values, *face_values]):
            yield from filter(None, row)

    def _faces(self) -> Piece:
        """The ids of the faces that the query is about."""
        text, values = self._face_is(self._wanted)
        if self._wanted is not None and self._wanted.words:
            rarest = self._wanted.words[0]
            text = f"id IN (SELECT face FROM {_BEGINS}) AND {text}"
            values = [rarest, after_prefix(rarest), *values]
        return f"SELECT id FROM face WHERE {text}", values

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
