"""The lists of requests that people see: which list a call is on, and how search finds it.

``list_status`` is a column with one value per public status, so that one index serves every list,
and a call that starts and finishes stays where it is.

A search key is what many calls have in common: kind, agent, tool, risk and description. Its words
are stored once, and each call refers to its search key. A search looks up the words, then the calls
of those keys, so it costs the same over ten requests and a hundred thousand. Its title, arguments,
run and requester give each call further words. Groups of requests are counted by what their
reviewers see alike, which is their group key.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, get_args
from unicodedata import normalize

from sayso import codec
from sayso.redaction import PLACEHOLDER, may_have_secrets, redact, secrets_in
from sayso.rows import Call, CallStatus, Tool
from sayso.stores.base import ListedCall, Query, SearchKey, Viewer
from sayso.types import MODEL, SECOND, Json, Micros, RequestStatus, plain_name
from sayso.views import APPROVED, is_request, public_status

#: The list statuses of open requests; an index names them.
OPEN = ("asked", "in_doubt")
_CLOSED = tuple(name for name in get_args(RequestStatus) if name != "pending")
#: The list status of calls that no person was asked about, and the id of their group key.
UNASKED = ""
UNGROUPED = 0

_LIST_STATUSES = {
    "pending": OPEN,
    "closed": _CLOSED,
    "any": (*OPEN, *_CLOSED),
    **{name: (name,) for name in _CLOSED},
}


def list_status_of(call: Call) -> str:
    """Return the list that a call is on now."""
    status = call.status
    if not call.asked and status is not CallStatus.IN_DOUBT:
        return UNASKED
    if status is CallStatus.IN_DOUBT or (status is CallStatus.ASKED and call.decision is None):
        return status._value_
    return public_status(call)


def stays_on_list(was: Call, call: Call) -> bool:
    """Return whether a call is still on the list that it was on."""
    if was.status in APPROVED and call.status in APPROVED:
        return (was.asked, was.original is None) == (call.asked, call.original is None)
    return list_status_of(was) == list_status_of(call)


def list_statuses_of(query: Query) -> tuple[str, ...]:
    """Return the list statuses that a query covers; its ``kind`` may exclude ``in_doubt``."""
    list_statuses = _LIST_STATUSES[query.status]
    if query.kind is None:
        return list_statuses
    return tuple(
        name for name in list_statuses if (name == "in_doubt") == (query.kind == "in_doubt")
    )


_CHUNK = re.compile(r"[^\W_]+")
#: Splits camel case, before a capital that follows a small letter or starts a word (HTTPServer).
_HUMP = re.compile(r"(?<=[^\W_])(?<![A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

_LONGEST = 48
_LONGEST_NAME = 200
_MOST_WORDS = 64
#: Longer argument values are not searched.
_LONGEST_VALUE = 200
#: Characters of arguments up to which a redacted description is cached.
_LONGEST_CACHED = 4_000
_MOST_WANTED = 12
#: Shorter prefixes match too many ids.
_SHORTEST_ID = 3
_ID = "req_"


class GroupKey(NamedTuple):
    """What the requests of a group have in common; ``id`` is a hash of all of it.

    Who may see one of them sees the others too, apart from requesters and who decided.
    """

    id: int
    kind: str
    agent: str
    tool: str
    risk: str
    #: The names of the reviewers, as a JSON array.
    reviewers: str


class Wanted(NamedTuple):
    """A parsed search text: prefixes of words, or of an id."""

    words: tuple[str, ...]
    ids: tuple[str, ...]


def number_of(values: Sequence[object]) -> int:
    """Return a number of 63 bits that identifies values, for a key of the database."""
    return int(codec.sha256(codec.dumps(values).encode())[:16], 16) >> 1


def search_key_of(call: Call, tool: Tool | None) -> SearchKey:
    """Return the search key of a call. It finds what people see, and no masked value."""
    terms = call.terms
    description = terms.description or ("" if tool is None else tool.description)
    if description:
        schema = "" if tool is None else tool.schema
        texts = (call.args, call.original, call.written)
        secret = tuple(text for text in texts if text and may_have_secrets(text, schema))
        is_short = sum(map(len, secret)) <= _LONGEST_CACHED
        redacted = _redacted if is_short else _redacted.__wrapped__
        description = redacted(description, secret, schema if secret else "")
    return _search_key(call.kind, call.agent, call.tool, terms.risk.level, description)


@lru_cache(maxsize=256)
def _redacted(description: str, arguments: tuple[str, ...], schema: str) -> str:
    """Return a description without the secrets of the arguments that it repeats."""
    parameters = codec.loads(schema)["parameters"] if schema else None
    secrets = secrets_in(*((codec.loads(text), parameters) for text in arguments))
    redacted_text: str = redact(description, None, secrets).value
    return redacted_text


@lru_cache(maxsize=4096)
def _search_key(kind: str, agent: str, tool: str, risk: str, description: str) -> SearchKey:
    number = number_of([kind, agent, tool, risk, description])
    words = tuple(dict.fromkeys([*_name(tool), *_name(agent), *_words(description)]))
    return SearchKey(number, kind, short(agent), short(tool), risk, words[:_MOST_WORDS])


def words_of(call: Call, tool: Tool | None) -> str:
    """Return the words of one call's title, arguments, run and requester, each after a space.

    Long and masked values are left out, and so is every word of a call that no person was asked
    about.
    """
    if not is_request(call):
        return ""
    texts = (call.args, call.original or "", call.written or "")
    is_short = sum(map(len, texts)) <= _LONGEST_CACHED
    words = _words_of if is_short else _words_of.__wrapped__
    about = (call.title, call.run.removeprefix("run_"), call.requester)
    return words(about, texts, "" if tool is None else tool.schema)


@lru_cache(maxsize=256)
def _words_of(about: tuple[str, ...], arguments: tuple[str, ...], schema: str) -> str:
    args = codec.loads(arguments[0])
    names, values = _leaves([*about, args])
    # Not the JSON itself: its colons would look like assignments.
    if any(arguments[1:]) or may_have_secrets("\n".join((*names, *values)), schema):
        parameters = codec.loads(schema)["parameters"] if schema else None
        secrets = secrets_in(*((codec.loads(text), parameters) for text in arguments if text))
        shown_args = redact(args, parameters, secrets).value
        _, values = _leaves([redact(list(about), None, secrets).value, shown_args])
    short_values = [value for value in values if len(value) <= _LONGEST_VALUE]
    words = dict.fromkeys(_words(PLACEHOLDER.sub(" ", " ".join(short_values))))
    return " ".join(("", *words)[: _MOST_WORDS + 1])


def _leaves(value: Json) -> tuple[list[str], list[str]]:
    """Return the names in a value, and its texts and numbers, in order."""
    names: list[str] = []
    leaves: list[str] = []
    rest = [value]
    while rest:
        value = rest.pop(0)
        if isinstance(value, dict):
            names += value
            rest[:0] = value.values()
        elif isinstance(value, list):
            rest[:0] = value
        elif isinstance(value, str):
            leaves.append(value)
        elif type(value) in (int, float):
            leaves.append(str(value))
    return names, leaves


def group_key_of(call: Call) -> GroupKey:
    terms = call.terms
    reviewers = call.reviewers if call.escalated else terms.reviewers
    return _group_key(call.kind, call.agent, call.tool, terms.risk.level, reviewers)


@lru_cache(maxsize=4096)
def _group_key(kind: str, agent: str, tool: str, risk: str, reviewers: tuple[str, ...]) -> GroupKey:
    names = codec.dumps(list(reviewers))
    number = number_of([kind, agent, tool, risk, names])
    return GroupKey(number, kind, short(agent), short(tool), risk, names)


class ListedDecision(NamedTuple):
    """What lists and counts know of a decision."""

    by: str | None = None
    #: If a person made it: when, and since when they had the request open, as their page says.
    at: Micros | None = None
    opened: Micros | None = None
    #: When it takes effect, if it can be undone until then.
    held_until: Micros | None = None


def decided(call: Call) -> ListedDecision:
    """Return what lists and counts know of the decision of a call."""
    decision = call.decision
    if decision is None:
        return _UNDECIDED
    if decision.channel == "policy" or decision.by.startswith(MODEL):
        return tuple.__new__(ListedDecision, (decision.by, None, None, None))
    claim = codec.loads(decision.claim) if decision.claim else {}
    opened = decision.at - round(claim["seconds"] * SECOND) if claim else None
    held_until = decision.not_before if call.status is CallStatus.ASKED else None
    return tuple.__new__(ListedDecision, (decision.by, decision.at, opened, held_until))


_UNDECIDED = ListedDecision()


#: A time is counted in slots of 15 minutes: every time zone's day begins with one.
SLOT: Micros = 900_000_000
#: The list statuses of requests that a person decided, and which of them are approvals.
DECIDED = ("approved", "edited", "rejected", "responded")
APPROVING = ("approved", "edited")
#: Up to how many seconds (0: any) the time to a decision is rounded down to multiples of how many.
TOOK_STEPS = ((20, 1), (60, 5), (600, 30), (3600, 180), (86_400, 1800), (0, 21_600))


def took_width(seconds: int) -> int:
    """Return the width of the step that a time to a decision was rounded down to."""
    return next(step for end, step in TOOK_STEPS if seconds < end or not end)


def is_listed_right(found: ListedCall, tool: Tool | None) -> bool:
    """Return whether the lists and counts show a call as its row says.

    No MAC covers what is compared here.
    """
    call = found.call
    list_status = list_status_of(call)
    group = group_key_of(call)[1:] if list_status else None
    right = (list_status, search_key_of(call, tool).id, group, *decided(call))
    return found[1:-1] == right


def short(name: str) -> str:
    """Shorten a name so that an index can hold it."""
    return name if len(name) <= _LONGEST_NAME else name[:40] + codec.sha256(name.encode())


def _words(text: str) -> list[str]:
    words: list[str] = []
    for chunk in _CHUNK.findall(normalize("NFKC", text)):
        if not chunk.islower():  # else it has no humps
            words += _HUMP.split(chunk)
        words.append(chunk)
    return [word.casefold()[:_LONGEST] for word in words]


def _name(text: str) -> list[str]:
    """Return the words of a name, and the whole name without separators."""
    joined_name = "".join(_CHUNK.findall(normalize("NFKC", text))).casefold()[:_LONGEST]
    return [*_words(text), joined_name] if joined_name else []


def wanted(text: str) -> Wanted:
    """Parse a search text; one without letters or digits matches nothing."""
    chunks = [chunk.casefold()[:_LONGEST] for chunk in _CHUNK.findall(normalize("NFKC", text))]
    stripped_text = text.strip()
    rest = stripped_text.removeprefix(_ID)
    ids = (stripped_text, _ID + rest) if len(rest) >= _SHORTEST_ID else ()
    return Wanted(tuple(dict.fromkeys(chunks))[:_MOST_WANTED], tuple(dict.fromkeys(ids)))


def fits(call: Call, query: Query) -> bool:
    """Return whether a call matches a query, apart from its status and text."""
    for name in ("thread", "run", "agent", "tool"):
        value = getattr(query, name)
        if value is not None and getattr(call, name) != value:
            return False
    if query.agents is not None and call.agent not in query.agents:
        return False
    if query.created_after is not None and call.created < query.created_after:
        return False
    if query.created_before is not None and call.created > query.created_before:
        return False
    names = {
        "kind": call.kind,
        "agent": call.agent,
        "tool": call.tool,
        "risk": call.terms.risk.level,
    }
    if not all(part in names[name].lower() for name, part in query.parts):
        return False
    if query.expires_by is not None and not (
        call.expires_at is not None and call.expires_at <= query.expires_by
    ):
        return False
    return query.risk in (None, call.terms.risk.level) and (
        query.kind in (None, "in_doubt", call.kind)
    )


def sees_group(viewer: Viewer, reviewers: Sequence[str]) -> bool:
    """Return whether a viewer sees every request with these reviewers."""
    if viewer.names is None:
        return True
    if not reviewers:
        return not viewer.only_theirs
    return not viewer.names.isdisjoint(reviewers)


def is_for(viewer: Viewer, call: Call) -> bool:
    """Return whether a viewer's groups count a call."""
    reviewers = call.reviewers
    names = viewer.names
    if names is None or sees_group(viewer, reviewers) or plain_name(call.requester) in names:
        return True
    return bool(reviewers) and call.decision is not None and call.decision.by in names


def shows(call: Call, tool: Tool | None, text: str | None) -> bool:
    """Return whether a search for this text finds a call."""
    if not text:
        return True
    words, ids = wanted(text)
    if any(call.id.startswith(start) for start in ids):
        return True
    here = (*search_key_of(call, tool).words, *words_of(call, tool).split())
    return bool(words) and all(any(word.startswith(start) for word in here) for start in words)


def after_prefix(prefix: str) -> str:
    """Return the end of the range of strings with this prefix."""
    return prefix + "\U0010ffff"
