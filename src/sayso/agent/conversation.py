"""The conversation of a thread: building its messages, caching them, and adding to them.

Requests and decisions are never messages; only tool results are. The results of a turn are stored
together with the next reply, in the order of the model's calls, whenever they arrived.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

from sayso import codec
from sayso.agent.models.base import ModelReply, known_call_ids
from sayso.agent.run_context import RunContext
from sayso.forking import fork_safe_lock
from sayso.gate import outcomes
from sayso.rows import Call, CallStatus, Message
from sayso.types import Json

if TYPE_CHECKING:
    from sayso.gate import Gate
    from sayso.stores.base import Store

MessageBody: TypeAlias = dict[str, Json]

# --- messages ---


def user_message(text: str) -> MessageBody:
    return {"role": "user", "content": text}


def tool_message(call_id: str, name: str, content: str) -> MessageBody:
    return {"role": "tool", "call_id": call_id, "name": name, "content": content}


def approval_message(request_id: str, call: Call | None, error: str) -> MessageBody:
    """Return the decision on a call that the provider runs."""
    status, decision = (None, None) if call is None else (call.status, call.decision)
    reason = decision.message if decision is not None else ""
    if not reason and not error and status is not None:
        reason = outcomes.NOT_RUN.get(status, "")
    return {
        "role": "approval",
        "request_id": request_id,
        "approve": status is CallStatus.DONE,
        "reason": reason or error,
    }


def error_content(text: str) -> str:
    """Return an error as the model reads it, never with a traceback."""
    return codec.dumps({"error": text})


def result_content(call: Call) -> str:
    """Return what the model sees of a call that has ended."""
    if not outcomes.has_result(call):
        return error_content(outcomes.why_not(call))
    if call.kind == "question":
        return codec.dumps({"answer": codec.loads(call.result or "null")})
    return outcomes.result_text(call)


# --- the conversation of a run ---


class Conversation:
    """The messages that the model sees: stored ones, then those the next commit will add."""

    def __init__(self, ctx: RunContext) -> None:
        self.ctx = ctx
        self.saved: list[MessageBody] = []
        self.unsaved: list[MessageBody] = []
        #: The ids of all calls in it.
        self.call_ids: set[str] = set()
        self.usage: dict[str, int] = {}
        #: The number of model replies in this run.
        self.turns = 0
        #: The sequence number of the last stored message.
        self.last_seq = 0
        self._stored = StoredMessages([])

    def begin(self) -> None:
        """Begin a thread that is not stored yet."""
        self.saved, self.unsaved, self.last_seq = [], [], 0

    def load(self) -> None:
        """Read the thread and discard unsaved messages."""
        store, thread = self.ctx.store, self.ctx.thread
        cache = _caches.setdefault(self.ctx.gate, MessageCache())
        stored = self._stored = cache.read(store, thread)
        self.saved, self.call_ids = list(stored.messages), set(stored.call_ids)
        self.unsaved = []
        self.last_seq = stored.last[0]
        if not stored.messages and (row := store.thread(thread)) is not None:
            self.last_seq = row.messages  # more than none, if all of them were pruned
        self.turns, self.usage = stored.counts(self.ctx.run)
        cache.put(thread, stored)

    def for_tool(self) -> list[MessageBody]:
        """Return copies of all messages for a tool, which may change them."""
        return copies(self.saved + self.unsaved)

    def for_model(self) -> list[MessageBody]:
        """Return copies of all messages for the model, which may change them."""
        return self._stored.shown(self.saved) + copies(self.unsaved)

    @property
    def last(self) -> MessageBody:
        return self.saved[-1] if self.saved else {}

    def reply(self, reply: ModelReply) -> MessageBody:
        """Count a reply as a turn of this run and return its message."""
        self.turns += 1
        self.call_ids.update(call.id for call in reply.calls)
        # Half a surrogate pair cannot be encoded: it becomes a question mark.
        text = codec.dumps({**reply.message, "run": self.ctx.run})
        message: MessageBody = codec.loads(text.encode(errors="replace"))
        if reply.usage:
            message["usage"] = dict(reply.usage)
        _add_usage(self.usage, reply.usage.items())
        return message

    def rows(self) -> tuple[Message, ...]:
        """Return the unsaved messages as rows for the next commit."""
        return tuple(Message(self.ctx.run, codec.dumps(body)) for body in self.unsaved)

    def committed(self) -> None:
        self.last_seq += len(self.unsaved)
        self.saved += self.unsaved
        self.unsaved = []


# --- the cache: read only what is new ---
#
# A message never changes, but it may be pruned. So the store returns what comes after the cached
# messages only if it still has all of those. The last one is read again: a database that was
# restored may have other messages under the same numbers.

Row: TypeAlias = tuple[int, str]

#: Threads with fewer messages are not cached: reading them again is as fast.
_FEWEST_CACHED = 20
#: The size of a gate's cache, and the approximate overhead of a message and its copy.
_MOST_BYTES = 8 * 1024 * 1024
_MESSAGE_BYTES = 1000
_NESTED = (dict, list)


class StoredMessages:
    """The stored messages of one thread. Treat them as immutable."""

    def __init__(self, rows: list[Row]) -> None:
        self.messages: list[MessageBody] = []
        self.call_ids: set[str] = set()
        #: Copies of the first messages, as given to a model.
        self._shown: list[MessageBody] = []
        self.last: Row = (0, "")
        self.bytes = 0
        self._run, self._counted = "", 0
        self._turns = 0
        self._usage: dict[str, int] = {}
        self.extend(rows)

    def extend(self, rows: list[Row]) -> None:
        if rows:
            # Parsing one JSON array takes half the time of parsing the messages one by one.
            new = codec.loads(f"[{','.join(body for _, body in rows)}]")
            self.messages += new
            self.call_ids |= known_call_ids(new)
            self.last = rows[-1]
            self.bytes += sum(len(body) + _MESSAGE_BYTES for _, body in rows)

    def shown(self, messages: list[MessageBody]) -> list[MessageBody]:
        """Return copies of these messages, reusing earlier copies that were not changed."""
        shown = self._shown[: len(messages)]
        if shown != messages[: len(shown)]:
            shown = []
        shown += copies(messages[len(shown) :])
        self._shown = shown
        return shown.copy()

    def counts(self, run: str) -> tuple[int, dict[str, int]]:
        """Return a run's number of replies and its token usage."""
        if run != self._run:
            self._run, self._counted = run, self._start_of(run)
            self._turns, self._usage = 0, {}
        for message in self.messages[self._counted :]:
            if message.get("run") == run:
                self._turns += 1
                _add_usage(self._usage, message.get("usage", {}).items())
        self._counted = len(self.messages)
        return self._turns, dict(self._usage)

    def _start_of(self, run: str) -> int:
        """Return the index where a run's replies start. Runs of a thread never interleave."""
        for index in range(len(self.messages), 0, -1):
            message = self.messages[index - 1]
            if message["role"] == "assistant" and message.get("run") != run:
                return index
        return 0


class MessageCache:
    """The least recently used cache of a gate's conversations, by thread."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, StoredMessages] = OrderedDict()
        self._bytes = 0
        self._lock = fork_safe_lock()

    def read(self, store: Store, thread: str) -> StoredMessages:
        """Return a thread's messages and take them out of the cache, so no one shares them."""
        stored = self._take(thread)
        if stored is not None:
            rows = store.messages_beyond(thread, stored.last[0] - 1, len(stored.messages) - 1)
            if rows and rows[0] == stored.last:
                stored.extend(rows[1:])
                return stored
        return StoredMessages(store.messages(thread))

    def _take(self, thread: str) -> StoredMessages | None:
        with self._lock:
            stored = self._kept.pop(thread, None)
            self._bytes -= 0 if stored is None else stored.bytes
            return stored

    def put(self, thread: str, stored: StoredMessages) -> None:
        """Cache a thread's messages, evicting the least recently used."""
        if len(stored.messages) < _FEWEST_CACHED:
            return
        self._take(thread)
        with self._lock:
            self._kept[thread] = stored
            self._bytes += stored.bytes
            while self._bytes > _MOST_BYTES:
                _, oldest = self._kept.popitem(last=False)
                self._bytes -= oldest.bytes


_caches: WeakKeyDictionary[Gate, MessageCache] = WeakKeyDictionary()


def copies(messages: list[MessageBody]) -> list[MessageBody]:
    return [_copy(message) for message in messages]


def _copy(value: Any) -> Any:
    # Faster than copy.deepcopy, because most values are strings.
    if isinstance(value, list):
        return [_copy(part) if isinstance(part, _NESTED) else part for part in value]
    copied = value.copy()
    for name, part in copied.items():
        if isinstance(part, _NESTED):
            copied[name] = _copy(part)
    return copied


def _add_usage(usage: dict[str, int], more: Iterable[tuple[str, int]]) -> None:
    for name, count in more:
        usage[name] = usage.get(name, 0) + count
