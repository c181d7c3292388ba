"""One thread, from its first event to its head."""

from __future__ import annotations

import json
from collections import Counter

from assent.audit.calls import differences
from assent.audit.facts import Facts, Nonsense
from assent.audit.links import body_wrong, link_wrong
from assent.audit.reading import DAMAGE, Unreadable, chain_of
from assent.audit.report import Problem, Problems
from assent.audit.seals import Head, Seals
from assent.audit.system import SystemFacts
from assent.engine.work import head_bytes
from assent.keys import Keyring
from assent.rows import Call, Event, Thread
from assent.stores.base import Store


class Walk:
    """Reads a chain once; remembers where it ended, the calls that are open, and what is wrong."""

    def __init__(self, store: Store, thread: Thread, seals: Seals, system: SystemFacts) -> None:
        self._store = store
        self._keys = store.keys
        self._thread = thread
        self._seals = seals
        self._system = system
        self._head = seals.heads.get(thread.id)
        self._open: dict[str, Facts] = {}
        self._ended: set[str] = set()
        self._lost = False
        self._said = 0
        self.problems = Problems()
        self.events = 0
        self.seq, self.pos, self.hash = 0, 0, ""
        #: How many rows of calls belong to each run, and how often each grant was used.
        self.runs: Counter[str] = Counter()
        self.spent: Counter[str] = Counter()

    def go(self) -> None:
        """Check the whole thread."""
        try:
            for event in chain_of(self._store, self._thread.id):
                self._event(event)
            self._end()
        except Unreadable as error:
            self._say(self.seq + 1, f"it cannot be read, nor can those after it: {error}")
        except DAMAGE as error:
            self._say(self.seq + 1, f"the thread's own row cannot be read: {error}")
        for facts in self._open.values():
            self._row(facts)

    @property
    def unsealed(self) -> int:
        """How many events came after the last seal."""
        return max(0, self.seq - (0 if self._head is None else self._head.seq))

    def _say(self, seq: int, what: str, pos: int | None = None) -> None:
        # One problem per row of the chain: the first that is found is the cause.
        if seq != self._said:
            self._said = seq
            pos = self.pos if pos is None else pos
            self.problems.add(Problem(str(self._thread.id), seq, pos, what))

    # -- the chain

    def _event(self, event: Event) -> None:
        self.events += 1
        follows = event.seq == self.seq + 1
        if not follows and self._misplaced(event):
            return
        wrong = link_wrong(self._keys, self.hash, event) if follows else ""
        wrong = wrong or body_wrong(event) or self._out_of_place(event)
        if wrong:
            self._say(event.seq, wrong, event.pos)
        if event.call and not self._lost:
            self._call(event, trusted=not wrong)
        self.seq, self.pos, self.hash = event.seq, event.pos, event.hash

    def _misplaced(self, event: Event) -> bool:
        """Name a missing row, or one too many; whether to pass over this one."""
        if not isinstance(event.seq, int):
            raise Unreadable(self.seq, ValueError(f"its number is {event.seq!r}"))
        if event.seq <= self.seq:
            self._say(event.seq, "it is there twice", event.pos)
            return True
        last = event.seq - 1
        more = f", and all up to {last}" if last > self.seq + 1 else ""
        self._say(self.seq + 1, f"it is missing{more}")
        # Whose row it was is unknown, so that no call can be told from here on.
        self._lost = True
        self._open.clear()
        return False

    def _out_of_place(self, event: Event) -> str:
        if event.body is None and not self._system.pruned(event):
            return "its body is missing, and no pruning took it"
        if event.pos <= self.pos:
            return "in the store it stands before the row that it follows"
        if self._head is not None and self._head.seq == event.seq:
            self._compare(event, self._head)
        return ""

    def _compare(self, event: Event, head: Head) -> None:
        """The chain was written anew, with hashes that hold, if a seal has another one."""
        if event.hash != head.hash:
            broken = self._seals.first_broken(event.thread) or head
            what = f"seal {broken.n} has another hash for it: the chain was written anew"
            self._say(broken.seq, what, event.pos)

    def _end(self) -> None:
        thread = self._thread
        if self.seq < thread.seq:
            self._say(self.seq + 1, f"it is missing, and all up to {thread.seq}: they were cut off")
        elif self.seq > thread.seq:
            self._say(thread.seq + 1, f"its thread says that the chain ends at row {thread.seq}")
        elif self.hash != thread.head:
            self._say(self.seq, "its thread says that the chain ends with another hash")
        elif thread.seq and not self._keys.check_link(head_bytes(thread), thread.mac):
            self._say(
                self.seq + 1, f"no key proves that the chain ends at row {self.seq}: it was cut"
            )
        self._sealed()

    def _sealed(self) -> None:
        sealed, reach = self._thread.sealed, self._seals.reach(self._thread.id)
        if self._head is not None and self.seq < self._head.seq:
            what = f"it is missing: seal {self._head.n} has the rows up to {self._head.seq}"
            self._say(self.seq + 1, what)
        elif sealed > reach:
            self._say(sealed, "it was sealed, and that seal is missing")
        elif sealed < reach:
            self._say(reach, f"it is sealed, and its thread says that only row {sealed} is")

    # -- the calls

    def _call(self, event: Event, *, trusted: bool) -> None:
        if event.call in self._ended:
            if event.type != "late":
                self._say(event.seq, f"call {event.call} had ended before", event.pos)
            return
        facts = self._open.get(event.call)
        if facts is None:
            facts = self._open[event.call] = Facts(event.call, event.run, event.thread)
        facts.seq, facts.pos = event.seq, event.pos
        if event.body is None or not trusted:
            facts.blind, facts.pruned = True, trusted
        elif not facts.blind:
            self._tell(facts, event, event.body)
        if facts.ended:
            self._row(self._open.pop(event.call))
            self._ended.add(event.call)

    def _tell(self, facts: Facts, event: Event, body: str) -> None:
        try:
            facts.tell(event, json.loads(body), self._keys)
        except Nonsense as error:
            self._say(event.seq, f"call {facts.id}: {error}", event.pos)
        except DAMAGE:
            self._say(event.seq, "its body cannot be understood", event.pos)
        if event.type == "started" and facts.attempt == 1 and facts.grant is not None:
            self.spent[facts.grant] += 1  # a call spends one use, however often it starts

    def _row(self, facts: Facts) -> None:
        try:
            call = self._store.call(facts.id)
        except DAMAGE as error:
            call, wrong = None, f"has a row that cannot be read: {error}"
        else:
            wrong = _row_wrong(call, facts, self._keys)
        if call is not None:
            self.runs[call.run] += 1
        if wrong:
            what = f"call {facts.id} {wrong}"
            self.problems.add(Problem(facts.thread, facts.seq, facts.pos, what), table=True)


def _row_wrong(call: Call | None, facts: Facts, keys: Keyring) -> str:
    if facts.blind:
        return "was pruned, and its row is there again" if facts.pruned and call else ""
    if call is None:
        return "is missing from the table"
    columns = differences(call, facts, keys)
    return f"is not what its record says: {', '.join(columns)}" if columns else ""
