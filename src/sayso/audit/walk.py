"""One thread, from its first event to its head."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sayso.audit.calls import differences
from sayso.audit.facts import Facts, Nonsense
from sayso.audit.links import body_wrong, link_wrong
from sayso.audit.reading import DAMAGE, PAGE, Unreadable, chain_of, pages
from sayso.audit.report import Problem, Problems
from sayso.audit.runs import Conversation, RunFacts, message_problems, run_differences
from sayso.audit.seals import Head, Seals
from sayso.audit.system import SystemFacts
from sayso.rows import Call, CallStatus, Event, Run, Thread
from sayso.stores.base import StoreReads
from sayso.stores.row_checks import row_wrong

_TRIES = 50


class Walk:
    """Reads a chain once; remembers where it ended, the calls that are open, and what is wrong."""

    def __init__(
        self, store: StoreReads, thread: Thread, seals: Seals, system: SystemFacts
    ) -> None:
        self._store = store
        self._keys = store.keys
        self._thread = thread
        self._seals = seals
        self._system = system
        self._head = seals.heads.get(thread.id)
        self._open: dict[str, Facts] = {}
        self._ended: set[str] = set()
        self._told_runs: dict[str, RunFacts] = {}
        self._conversation = Conversation()
        self._lost = False
        self._said = 0
        self.problems = Problems()
        self.events = 0
        self.seq, self.pos, self.hash = 0, 0, ""
        #: How many rows of calls belong to each run, and how often each grant was used.
        self.calls: Counter[str] = Counter()
        self.spent: Counter[str] = Counter()
        #: The calls that have the keys of their effects.
        self.effects: dict[str, str] = {}

    def go(self) -> None:
        """Check the whole thread."""
        try:
            self._read()
            self._settle()
        except Unreadable as error:
            self._say(self.seq + 1, f"it cannot be read, nor can those after it: {error}")
        except DAMAGE as error:
            self._say(self.seq + 1, f"the thread's own row cannot be read: {error}")

    def _read(self) -> None:
        """Walk on, up to where the thread's row says that the chain ends."""
        for event in chain_of(self._store, self._thread.id, self.seq):
            if isinstance(event.seq, int) and event.seq > self._thread.seq:
                break
            self._event(event)

    def _settle(self) -> None:
        """Compare what changes: while the store is in use, a row may be ahead of what was read."""
        for attempt in range(_TRIES):
            if attempt:
                self._seals.catch_up()  # after the row was read, so that none seems to be missing
                self._head = self._seals.heads.get(self._thread.id)
            found, calls = self._compared()
            now = self._store.thread(self._thread.id) if found.found else self._thread
            if now == self._thread and (attempt or not found.found):
                break
            self._thread = now or self._thread
            self._read()
        self.problems.merge(found)
        self.calls.update(calls)

    @property
    def runs(self) -> Iterable[str]:
        """The runs that the chain tells of."""
        return self._told_runs

    def _compared(self) -> tuple[Problems, Counter[str]]:
        found, calls = Problems(), Counter[str]()
        whole = not self._lost
        for seq, what in self._end():
            whole = False
            if seq != self._said:  # else this is only its consequence
                found.add(self._problem(seq, self.pos, what))
                break
        for facts in self._open.values():
            self._row(facts, found, calls)
        if whole:  # else what they tell is only its consequence
            for run in self._told_runs.values():
                self._run_row(run, found)
            self._conversation_rows(found)
        return found, calls

    @property
    def unsealed(self) -> int:
        """How many events came after the last seal."""
        return max(0, self.seq - (0 if self._head is None else self._head.seq))

    def _problem(self, seq: int, pos: int, what: str) -> Problem:
        return Problem(str(self._thread.id), seq, pos, what)

    def _say(self, seq: int, what: str, pos: int | None = None) -> None:
        self._said = seq
        self.problems.add(self._problem(seq, self.pos if pos is None else pos, what))

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
        if not self._lost:
            self._take_in(event, trusted=not wrong)
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
        self._told_runs.clear()
        return False

    def _out_of_place(self, event: Event) -> str:
        if event.body is None and not self._system.pruned(event.run, event.at):
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

    def _end(self) -> Iterator[tuple[int, str]]:
        """What is wrong with the end of the chain, the cause first."""
        thread = self._thread
        if self.seq < thread.seq:
            yield self.seq + 1, f"it is missing, and all up to {thread.seq}: they were cut off"
        elif self._store.chain(thread.id, self.seq, 1):
            yield self.seq + 1, f"its thread says that the chain ends at row {thread.seq}"
        elif self.hash != thread.head:
            yield self.seq, "its thread says that the chain ends with another hash"
        elif self._keys.rows and (wrong := row_wrong(self._keys, thread)):
            yield self.seq + 1, f"no key proves that the chain ends at row {self.seq}: {wrong}"
        sealed, reach = thread.sealed, self._seals.reach(thread.id)
        if self._head is not None and self.seq < self._head.seq:
            rows = f"the rows up to {self._head.seq}"
            yield self.seq + 1, f"it is missing: seal {self._head.n} has {rows}"
        elif sealed > reach:
            yield sealed, "it was sealed, and that seal is missing"
        elif sealed < reach:
            yield reach, f"it is sealed, and its thread says that only row {sealed} is"

    # -- what the events tell

    def _take_in(self, event: Event, *, trusted: bool) -> None:
        body: Any = None
        if trusted and event.body is not None:
            try:
                body = json.loads(event.body)
            except DAMAGE:
                self._say(event.seq, "its body cannot be understood", event.pos)
                trusted = False
        if event.call:
            self._call(event, body, pruned=trusted)
        if event.run:
            self._run(event, body, pruned=trusted)
        if body is None:
            self._conversation.blind = True
        else:
            self._tell(event, lambda: self._conversation.tell(event, body))

    def _tell(self, event: Event, tell: Callable[[], None], of: str = "") -> None:
        try:
            tell()
        except Nonsense as error:
            what = f"{of}{error}"
        except DAMAGE:
            what = "its body cannot be understood"
        else:
            return
        if self._said != event.seq:  # else it is named already
            self._say(event.seq, what, event.pos)

    # -- the runs and the conversation

    def _run(self, event: Event, body: Any, *, pruned: bool) -> None:
        facts = self._told_runs.get(event.run)
        again = facts is not None and facts.pruned and body is not None
        if facts is None or again:  # what was forgotten may begin anew under the same name
            facts = self._told_runs[event.run] = RunFacts(event.run, event.thread)
        facts.seq, facts.pos, facts.at = event.seq, event.pos, event.at
        if body is None:
            facts.blind, facts.pruned = True, pruned
        elif not facts.blind:
            self._tell(event, lambda: facts.tell(event, body))

    def _run_row(self, facts: RunFacts, problems: Problems) -> None:
        if facts.blind and not facts.pruned:
            return
        open_calls = Counter(
            call.status for call in self._open.values() if call.run == facts.id and call.status
        )
        try:
            wrong = self._run_wrong(self._store.run(facts.id), facts, open_calls)
        except DAMAGE as error:
            wrong = f"has a row that cannot be read: {error}"
        if wrong:
            problem = self._problem(facts.seq, facts.pos, f"run {facts.id} {wrong}")
            problems.add(problem, table=True)

    def _run_wrong(self, run: Run | None, facts: RunFacts, calls: Counter[CallStatus]) -> str:
        if facts.blind:
            return "was pruned, and its row is there again" if run is not None else ""
        if run is None:
            pruned = self._system.pruned(facts.id, facts.at)  # while we were reading
            return "" if pruned else "is missing from the table"
        columns = run_differences(run, facts, calls)
        return f"is not what its record says: {', '.join(columns)}" if columns else ""

    def _conversation_rows(self, problems: Problems) -> None:
        thread, talk = self._thread, self._conversation
        told = [one for one in talk.appended if not self._forgotten(one.event)]
        rows = pages(
            lambda after, limit: self._store.stored_messages(thread.id, after, limit),
            lambda message: message.seq,
            0,
            PAGE,
        )
        found = list(message_problems(told, rows, thread.messages, blind=talk.blind))
        if thread.owner != talk.owner and not (talk.blind and not talk.owner):
            found.append((None, f"its owner is {thread.owner!r}, and was {talk.owner!r}"))
        for event, what in found:
            seq, pos = (self.seq, self.pos) if event is None else (event.seq, event.pos)
            problems.add(self._problem(seq, pos, what), table=True)

    def _forgotten(self, event: Event) -> bool:
        return self._system.pruned(event.run, event.at)

    # -- the calls

    def _call(self, event: Event, body: Any, *, pruned: bool) -> None:
        if event.call in self._ended:
            if event.type != "late":
                self._say(event.seq, f"call {event.call} had ended before", event.pos)
            return
        facts = self._open.get(event.call)
        if facts is None:
            facts = self._open[event.call] = Facts(event.call, event.run, event.thread)
        facts.seq, facts.pos, facts.at = event.seq, event.pos, event.at
        if body is None:
            facts.blind, facts.pruned = True, pruned
        elif not facts.blind:
            self._tell_call(facts, event, body)
        if facts.ended:
            self._row(self._open.pop(event.call), self.problems, self.calls)
            self._ended.add(event.call)

    def _tell_call(self, facts: Facts, event: Event, body: Any) -> None:
        self._tell(event, lambda: facts.tell(event, body, self._keys), f"call {facts.id}: ")
        starts = event.type in ("started", "read_started")
        if starts and facts.attempt == 1 and facts.grant is not None:
            self.spent[facts.grant] += 1  # a call spends one use, however often it starts

    def _row(self, facts: Facts, problems: Problems, calls: Counter[str]) -> None:
        try:
            call = self._store.call(facts.id)
        except DAMAGE as error:
            call, wrong = None, f"has a row that cannot be read: {error}"
        else:
            wrong = self._row_wrong(call, facts)
        if call is not None:
            calls[call.run] += 1
        if facts.effect_key and not facts.blind:
            self.effects[facts.effect_key] = facts.id
        if wrong:
            problem = self._problem(facts.seq, facts.pos, f"call {facts.id} {wrong}")
            problems.add(problem, table=True)

    def _row_wrong(self, call: Call | None, facts: Facts) -> str:
        if facts.blind:
            return "was pruned, and its row is there again" if facts.pruned and call else ""
        if call is None:
            pruned = self._system.pruned(facts.run, facts.at)  # while we were reading
            return "" if pruned else "is missing from the table"
        columns = differences(call, facts, self._keys)
        return f"is not what its record says: {', '.join(columns)}" if columns else ""
