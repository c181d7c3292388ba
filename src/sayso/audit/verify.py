"""The whole record: every chain, every seal, and the rows that must agree with them.

One chain is read at a time, page by page; what is kept are names, never events: of the threads, the
runs, and the calls of one thread.

The store may be in use meanwhile. Rows and events are written together but read apart, so what
looks wrong is read again until it has stood still: only then it is a problem.
"""

from __future__ import annotations

from collections import Counter

from sayso.audit.reading import DAMAGE, PAGE, Unreadable, chain_of, pages, threads_of
from sayso.audit.report import MOST_PROBLEMS, Problem, Problems, Report
from sayso.audit.seals import Seals
from sayso.audit.system import SystemFacts, standing_problems
from sayso.audit.walk import Walk
from sayso.rows import SYSTEM_THREAD, Call, CallStatus, EffectKey, Event, Run, Thread
from sayso.stores.base import ListedCall, Store
from sayso.stores.listing import list_status_of, search_key_of
from sayso.stores.row_checks import row_wrong

_TRIES = 10


def verify(store: Store) -> Report:
    """Read everything that a store has and name what is not as it was written."""
    return _Audit(store).report()


class _Audit:
    def __init__(self, store: Store) -> None:
        self._store = rows = store.unchecked()
        self._problems = Problems()
        self._seals = Seals(rows, self._problems)
        self._system = SystemFacts(rows, self._seals)
        self._threads: set[str] = set()
        self._runs: set[str] = set()
        self._calls_of: Counter[str] = Counter()
        self._spent: Counter[str] = Counter()
        self._effects: dict[str, str] = {}
        self._events = self._unsealed = 0
        #: What the tools say of themselves, by their digests.
        self._described: dict[str, str] = {}

    def report(self) -> Report:
        if self._store.restored():
            self._say(
                "the store went back in time: a copy was put back, or its newest rows were cut"
            )
        self._system.catch_up()
        self._walk_threads()
        self._missing_threads()
        self._lone_events()
        self._lone_calls()
        self._lone_runs()
        self._standing()
        self._unique_effects()
        return Report(
            threads=len(self._threads),
            events=self._events,
            seals=self._seals.count,
            unsealed=self._unsealed,
            problems=self._problems.first(),
            found=self._problems.found,
        )

    def _say(self, what: str, thread: str = "", seq: int = 0, pos: int = 0) -> None:
        self._problems.add(Problem(thread, seq, pos, what))

    def _say_of_table(self, what: str, thread: str = "") -> None:
        self._problems.add(Problem(thread, 0, 0, what), table=True)

    # -- chains

    def _walk_threads(self) -> None:
        previous = ""
        try:
            for thread in threads_of(self._store):
                self._threads.add(thread.id)
                self._thread(thread)
                previous = thread.id
        except Unreadable as error:
            self._say(f"the threads after {previous!r} cannot be read: {error}")

    def _thread(self, thread: Thread) -> None:
        walk = Walk(self._store, thread, self._seals, self._system)
        walk.go()
        self._events += walk.events
        self._unsealed += walk.unsealed
        self._runs.update(walk.runs)
        self._calls_of.update(walk.calls)
        self._spent.update(walk.spent)
        self._effects.update(walk.effects)
        self._problems.merge(walk.problems)

    # -- what belongs to nothing

    def _missing(self, threads: set[str]) -> set[str]:
        """Those of the threads that have no row even now; some may have begun since the listing."""
        try:
            return threads and threads - {thread.id for thread in threads_of(self._store)}
        except Unreadable:
            return set()  # told already

    def _missing_threads(self) -> None:
        for thread in self._missing(self._seals.heads.keys() - self._threads):
            head = self._seals.heads[thread]
            if not self._store.chain(thread, 0, 1):
                what = f"the whole thread is missing: seal {head.n} has its rows up to {head.seq}"
                self._say(what, thread, 1)

    def _lone_events(self) -> None:
        lone: dict[str, Event] = {}
        try:
            for _, event in pages(self._store.events, lambda pair: pair[0], "", PAGE):
                if event.thread not in self._threads and len(lone) < MOST_PROBLEMS:
                    lone.setdefault(event.thread, event)
        except Unreadable as error:
            if not self._problems.found:
                self._say(f"the events after position {error.after} cannot be read: {error}")
        for thread in self._missing(set(lone)):
            event = lone[thread]
            self._say("its thread has no row", str(thread), event.seq, event.pos)

    def _lone_calls(self) -> None:
        try:
            for listed in pages(self._store.listed_calls, lambda one: one.n, 0, PAGE):
                self._calls_of[listed.call.run] -= 1
                self._listed(listed)
            for run, count in self._calls_of.items():
                for call in self._store.calls_of(run) if count < 0 else ():
                    self._made(call)
        except Unreadable as error:
            if not self._problems.found:
                self._say_of_table(f"the calls after number {error.after} cannot be read: {error}")

    def _lone_runs(self) -> None:
        after: str | None = None
        try:
            while page := self._store.runs(after=after, limit=PAGE):
                after = page[-1][0]
                for _, run in page:
                    if run.id not in self._runs and not self._began(run):
                        what = f"run {run.id} is in the table, and nobody began it"
                        self._say_of_table(what, run.thread)
        except (*DAMAGE, Unreadable) as error:
            if not self._problems.found:
                self._say_of_table(f"the runs cannot be read: {error}")

    def _began(self, run: Run) -> bool:
        """Whether it has begun since its thread was read."""
        return any(event.run == run.id for event in chain_of(self._store, run.thread))

    def _listed(self, listed: ListedCall) -> None:
        """The index of the lists has no MAC: a call that it hides is not shown to anybody."""
        call, keys = listed.call, self._store.keys
        try:
            if keys.rows and row_wrong(keys, call):
                return  # it is named already
            is_right = listed.list_status == list_status_of(call)
            is_right = is_right and listed.search_key == self._search_key(call)
        except DAMAGE:
            return  # likewise
        if not is_right:
            what = f"call {call.id} is listed as {listed.list_status!r}, where nobody finds it"
            self._say_of_table(what, call.thread)

    def _search_key(self, call: Call) -> int:
        if call.tool_digest not in self._described:
            tool = self._store.tool(call.tool_digest) if call.tool_digest else None
            self._described[call.tool_digest] = "" if tool is None else tool.description
        return search_key_of(call, self._described[call.tool_digest]).id

    def _made(self, call: Call) -> None:
        """A call that is in the table must have an event that says so."""
        if not any(event.call == call.id for event in chain_of(self._store, call.thread)):
            self._say_of_table(f"call {call.id} is in the table, and nobody made it", call.thread)

    def _standing(self) -> None:
        try:
            for _ in range(_TRIES):
                found = standing_problems(self._store, self._system, self._spent)
                if not found or not self._system.catch_up():
                    break
        except DAMAGE as error:
            found = [Problem(SYSTEM_THREAD, 0, 0, f"grants or tokens cannot be read: {error}")]
        for problem in found:
            self._problems.add(problem, table=True)

    # -- effects that are unique by their key

    def _unique_effects(self) -> None:
        """Each key belongs to the call that its row names, and each such call has its key."""
        store = self._store
        try:
            for effect in pages(store.effects, lambda effect: effect.key, "", PAGE):
                if wrong := self._effect_wrong(effect):
                    self._say_of_table(f"effect {effect.key} {wrong}", effect.thread)
            for key, call_id in self._effects.items():
                held, call = store.effect(key), store.call(call_id)
                # Of a pruned call, the key is all that is left, and must be.
                if (held is None or held.call != call_id) and (call is None or _has_key(call, key)):
                    self._say_of_table(f"effect {key} of call {call_id} is missing from the table")
        except (Unreadable, *DAMAGE) as error:
            self._say_of_table(f"the effects cannot be read: {error}")

    def _effect_wrong(self, effect: EffectKey) -> str:
        store = self._store
        if store.keys.rows and (wrong := row_wrong(store.keys, effect)):
            return f"is not as it was written: {wrong}"
        call = store.call(effect.call)
        if call is None:
            pruned = self._system.pruned(effect.run, effect.created)
            return "" if pruned else f"belongs to call {effect.call}, which is not there"
        if _has_key(call, effect.key) or store.effect(effect.key) != effect:
            return ""
        return f"belongs to call {call.id}, which does not have it"


def _has_key(call: Call, key: str) -> bool:
    """Whether a call has an effect by this key: done, under way, or for all that is known."""
    failed = call.status is CallStatus.FAILED
    did_not_run = call.doubt is not None and call.doubt.answer == "did_not_run"
    gave_up = call.decision is not None and call.decision.type == "reject" and not did_not_run
    return call.effect_key == key and (gave_up or not failed)
