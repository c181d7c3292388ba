"""Rows to SQL and back, once for every SQL store.

``SqlTransaction`` is what ``run_commands`` needs of a database: it loads the rows of a command and
saves those of a ``UnitOfWork``. A store adds its connection, its locking and its commit.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from sayso.engine import EngineDeps, UnitOfWork
from sayso.engine.budgets import budget_keys
from sayso.engine.commands import Needs
from sayso.engine.grants import RUN_TOOL
from sayso.engine.unit_of_work import NOBODY, check_not_put_back
from sayso.rows import (
    SYSTEM_THREAD,
    Call,
    CallStatus,
    Directory,
    Run,
    Thread,
    Tool,
    budget_from,
    budget_values,
    call_from,
    credential_from,
    effect_from,
    event_from,
    grant_from,
    grant_values,
    person_from,
    person_values,
    refusal_from,
    refusal_values,
    run_from,
    run_values,
    thread_from,
)
from sayso.stores.base import SearchKey
from sayso.stores.listing import (
    UNGROUPED,
    GroupKey,
    decided,
    group_key_of,
    list_status_of,
    search_key_of,
    stays_on_list,
    words_of,
)
from sayso.stores.row_checks import DAMAGE, UNREADABLE, RowDecoder, event_taken, tampered
from sayso.stores.sql import statements as sql
from sayso.stores.sql.statements import Answers, Ask, Dialect, ResultSet, Write
from sayso.types import Micros, look_of

ADD_TOOL = (
    f"INSERT INTO tool ({sql.TOOL}) VALUES (?, ?, ?, ?, ?, ?) "
    # This also repairs a row that something else changed.
    "ON CONFLICT (digest) DO UPDATE SET name = excluded.name, schema = excluded.schema, "
    "description = excluded.description, version = excluded.version, title = excluded.title "
    "WHERE (tool.name, tool.schema, tool.description, tool.version, tool.title) <> "
    "(excluded.name, excluded.schema, excluded.description, excluded.version, excluded.title)"
)
ADD_SEARCH_KEY = (
    "INSERT INTO search_key (id, kind, agent, tool, risk, words) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (id) DO NOTHING"
)
ADD_GROUP_KEY = (
    "INSERT INTO request_group (id, kind, agent, tool, risk, reviewers) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (id) DO NOTHING"
)
ADD_WORDS = (
    "INSERT INTO search_word (word, search_key) VALUES {} ON CONFLICT (word, search_key) DO NOTHING"
)

#: Pruning deletes search keys without calls, so a cached one expires.
_SEARCH_KEY_SECONDS = 600.0
_MAX_CACHED = 20_000


class ToolCache:
    """Tools and search keys that are in the database, so they need not be written again.

    Many calls name the same tool and search key. Filled after commits. The directory is checked
    against the record whenever it is used.
    """

    def __init__(self) -> None:
        #: A tool never changes under its digest, so readers are served from here too.
        self.tools: dict[str, Tool] = {}
        self.search_keys: dict[int, float] = {}
        self.directory = NOBODY

    def learn(self, tools: Iterable[Tool], keys: Iterable[SearchKey | GroupKey] = ()) -> None:
        if len(self.tools) + len(self.search_keys) > _MAX_CACHED:
            self.forget()
        for tool in tools:
            self.tools[tool.digest] = tool
        for key in keys:
            self.search_keys[key.id] = time.monotonic() + _SEARCH_KEY_SECONDS

    def forget(self) -> None:
        """Empty the cache: rows were deleted."""
        self.tools = {}
        self.search_keys = {}


def add_search_keys(write: Write, search_keys: Iterable[SearchKey | GroupKey]) -> None:
    """Store new group keys, and new search keys with their words."""
    for key in sorted(search_keys):
        if isinstance(key, GroupKey):
            write(ADD_GROUP_KEY, key)
        else:
            words = "".join(f" {word}" for word in key.words)
            write(ADD_SEARCH_KEY, (key.id, key.kind, key.agent, key.tool, key.risk, words))
            if key.words:
                marks = ", ".join(["(?, ?)"] * len(key.words))
                pairs = [value for word in key.words for value in (word, key.id)]
                write(ADD_WORDS.format(marks), pairs)


def _stays(was: Call, call: Call) -> bool:
    """Return whether no indexed column of a call changes."""
    return (
        stays_on_list(was, call)
        and sql.call_place(was) == sql.call_place(call)
        and (
            was.decision is None
            or (was.status is CallStatus.ASKED) == (call.status is CallStatus.ASKED)
        )
        and was.tool_digest == call.tool_digest
        and (was.args, was.original, was.written) == (call.args, call.original, call.written)
        and was.title == call.title
        # in a tuple, what is the same object is not compared field by field
        and (was.terms, was.decision) == (call.terms, call.decision)
    )


class StoreParts(NamedTuple):
    """What every transaction of a store uses."""

    tool_cache: ToolCache
    deps: EngineDeps
    decode: RowDecoder
    #: ``None`` if the database's own clock counts.
    clock: Callable[[], Micros] | None


class _PeopleAnswers(NamedTuple):
    """What the database answers about people, and their credentials."""

    people: list[tuple[str, Answers]]
    presented: list[Answers]
    owned: list[Answers]
    #: The system thread's events since the directory was read.
    events: Answers


class SqlTransaction:
    """One open transaction: loads the rows of commands, and saves the changed ones.

    All queries are sent before the first answer is read, so a database on the network answers in
    one round trip.
    """

    def __init__(self, ask: Ask, write: Write, dialect: Dialect, parts: StoreParts) -> None:
        self._ask = ask
        self._write = write
        self._dialect = dialect
        self._tool_cache, self._deps, self._decode, self._clock = parts
        self._threads: dict[str, Thread | None] = {}
        self._run: Run | None = None
        self._calls: dict[str, Call] = {}
        #: Those of them that were read from the database just now.
        self._read: dict[str, Call] = {}
        self._read_run: Run | None = None
        #: The events since the oldest of some calls.
        self._later: Answers | None = None
        self._later_than: frozenset[str] = frozenset()
        #: The effect keys that were locked, each with a row that may not name a call yet.
        self._held: list[str] = []
        #: The same for budgets.
        self._held_budgets: list[str] = []
        #: What was written that many calls name, and that is not known to be in the database.
        self.new_tools: set[Tool] = set()
        self.new_keys: set[SearchKey | GroupKey] = set()

    def load(self, thread: str, needs: Needs) -> UnitOfWork:
        ask = self._ask
        lock = self._dialect.lock
        decode = self._decode
        row: Answers = [] if needs.fresh else ask(sql.LOAD_THREAD + lock, (thread,))
        run = self._ask_run(needs)
        calls = self._ask_calls(needs, run)
        if needs.spends and needs.calls:
            # A call that starts was decided, and its run claimed, so there are later events.
            marks = ", ".join("?" * len(needs.calls))
            self._later = ask(sql.LOAD_EVENTS_SINCE_CALLS.format(marks), (thread, *needs.calls))
            self._later_than = frozenset(needs.calls)
        grants = self._ask_grants(needs, run)
        refusals = self._ask_refusals(needs)
        system = ask(sql.LOAD_THREAD + lock, (SYSTEM_THREAD,)) if needs.system else None
        # After the system thread, as commands about people do.
        people = None
        if needs.people or needs.credentials or needs.credentials_of or needs.voters:
            people = self._ask_people(needs)
        time = self._ask_time()

        now = self._read_time(time)  # first: in a store of another version, no row is checked
        work = UnitOfWork(now=now, deps=self._deps, thread=self._thread(thread, row))
        for row in run or ():
            work.run = decode.one(run_from, row)
        self._run = self._read_run = work.run
        self._load_calls(work, calls)
        if needs.spends or needs.gives_back:
            # Known only now that the calls are loaded.
            spent = {call.grant for call in work.calls.values() if call.grant is not None}
            grants += [ask(sql.LOAD_GRANT + lock, (grant,)) for grant in sorted(spent)]
        self._load_effects(work, needs)
        for answers in grants:
            for grant in decode.genuine(grant_from, answers):
                work.grants[grant.id] = grant
        if needs.limits or work.grants or needs.spends or needs.gives_back:
            self._load_budgets(work, needs)
        self._load_refusals(work, refusals)
        if system is not None:
            work.system = self._thread(SYSTEM_THREAD, system)
        if people is not None:
            self._load_people(work, needs, people)
        return work

    def _ask_run(self, needs: Needs) -> Answers | None:
        if needs.run is None:
            return None
        return [] if needs.fresh else self._ask(sql.LOAD_RUN + self._dialect.lock, (needs.run,))

    def _ask_grants(self, needs: Needs, run: Answers | None) -> list[Answers]:
        ask = self._ask
        lock = self._dialect.lock
        # A run that is known not to exist has no grants.
        of_run = RUN_TOOL + ("" if run == [] else needs.run or "")
        grants: list[Answers] = []
        for pair in needs.grants_for:
            grants.append(ask(sql.LOAD_GRANTS_FOR + lock, (*pair, of_run)))
        if needs.run_grants:
            grants.append(ask(sql.LOAD_GRANTS_OF_RUN + lock, (needs.run, of_run)))
        for grant in needs.grants:
            grants.append(ask(sql.LOAD_GRANT + lock, (grant,)))
        for name in needs.grants_by:
            grants.append(ask(sql.LOAD_GRANTS_BY + lock, (name,)))
        return grants

    def _ask_people(self, needs: Needs) -> _PeopleAnswers:
        ask = self._ask
        share = self._dialect.share
        looks = {look_of(name): name for name in needs.people}
        people: list[tuple[str, Answers]] = []
        for look, name in sorted(looks.items()):
            if name in needs.absent:
                people.append((look, ask(sql.LOAD_ACTOR + share, (look, name))))
            else:
                people.append((look, ask(sql.LOAD_PERSON + share, (look,))))
        presented = [ask(sql.LOAD_CREDENTIAL + share, (hash,)) for hash in needs.credentials]
        owned = [ask(sql.LOAD_CREDENTIALS_OF, (name,)) for name in needs.credentials_of]
        events: Answers = ()
        if needs.voters:
            events = ask(sql.LOAD_SYSTEM_EVENTS, (self._tool_cache.directory.seq,))
        return _PeopleAnswers(people, presented, owned, events)

    def _load_people(self, work: UnitOfWork, needs: Needs, asked: _PeopleAnswers) -> None:
        decode = self._decode
        for look, answers in asked.people:
            for row in answers:
                # A bad row of the person raises; one of a person whom they represent is ignored.
                if row[1] == look:
                    work.people[look] = decode.one(person_from, row)
                else:
                    for absent in decode.genuine(person_from, (row,)):
                        work.people[absent.look] = absent
        for answers in asked.presented:
            for credential in decode.each(credential_from, answers):
                work.credentials[credential.hash] = credential
        for answers in asked.owned:
            for credential in decode.genuine(credential_from, answers):
                work.credentials[credential.hash] = credential
        if needs.voters:
            self._load_voters(work, needs)
            work.directory = self._directory(list(asked.events))

    def _directory(self, events: list[Any]) -> Directory:
        """Return everyone who is active: as known, but for those who were changed since."""
        known = self._tool_cache.directory
        if not events and not known.seq:
            return known
        changed: set[str] | None = None
        if 0 < len(events) < sql.MOST_SYSTEM_EVENTS and events[0][1] == known.head:
            if len(events) == 1:
                return known
            bodies = [body for _, _, type, body in events[1:] if type.startswith("person_")]
            changed = {json.loads(body)["person"] for body in bodies}
        directory = self._changed_directory(known, events, changed)
        self._tool_cache.directory = directory
        return directory

    def _changed_directory(
        self, known: Directory, events: list[Any], changed: set[str] | None
    ) -> Directory:
        """Read those who were changed, or everyone if it is not known who was."""
        if changed is not None and not changed:
            return known.at(*events[-1][:2])
        statement = sql.LOAD_DIRECTORY
        if changed is not None:
            statement += f" AND name IN ({', '.join('?' * len(changed))})"
        rows = list(self._ask(statement, tuple(sorted(changed or ()))))
        if not rows:
            return NOBODY
        people = self._decode.genuine(person_from, [r[:-2] for r in rows if r[0] is not None])
        *_, seq, head = rows[0]
        if changed is None:
            return Directory(people, seq, head)
        if head != events[-1][1]:  # another person was changed meanwhile
            return self._changed_directory(known, events, None)
        return known.later(people, seq, head)

    def _load_voters(self, work: UnitOfWork, needs: Needs) -> None:
        """Load the people who voted for the calls."""
        looks: set[str] = set()
        for call_id in needs.calls:
            call = work.calls.get(call_id)
            for vote in () if call is None else call.votes:
                looks.add(look_of(vote.by))
                if vote.on_behalf_of:
                    looks.add(look_of(vote.on_behalf_of))
        statement = sql.LOAD_PERSON + self._dialect.share
        answer_lists: list[Answers] = []
        for look in sorted(looks - work.people.keys()):
            answer_lists.append(self._ask(statement, (look,)))
        for answers in answer_lists:
            for person in self._decode.each(person_from, answers):
                work.people[person.look] = person

    def _ask_refusals(self, needs: Needs, calls: Iterable[Call] = ()) -> list[Answers]:
        """Ask for refusals. ``calls`` are those of ``needs.calls``, if they are loaded already."""
        answers: list[Answers] = []
        for equal in needs.refusals_for:
            answers.append(self._ask(sql.LOAD_REFUSALS_FOR, equal))
        for refusal_id in needs.refusals:
            answers.append(self._ask(sql.LOAD_REFUSAL, (refusal_id,)))
        if not needs.refusals_of_calls:
            return answers
        for call in calls:
            for args_hash in (call.args_hash, *needs.edited_args):
                equal = (call.agent, call.tool, args_hash)
                answers.append(self._ask(sql.LOAD_REFUSALS_FOR, equal))
        if not calls:
            edited = needs.edited_args[0] if needs.edited_args else ""
            for call_id in needs.calls:
                answers.append(self._ask(sql.LOAD_REFUSALS_OF_CALL, (edited, call_id)))
        return answers

    def _load_refusals(self, work: UnitOfWork, asked: Iterable[Answers]) -> None:
        """Decode refusals. A bad row raises: without it, a call might run that was rejected."""
        for answers in asked:
            for row in answers:
                refusal = self._decode.one(refusal_from, row)
                work.refusals[refusal.id] = refusal

    def _ask_time(self) -> ResultSet | None:
        """Ask a database that has a clock of its own for the time."""
        return None

    def _read_time(self, reply: ResultSet | None) -> Micros:
        assert self._clock is not None
        return self._clock()

    def _thread(self, thread_id: str, answers: Answers) -> Thread:
        """Return the stored thread, or an empty one if it does not exist yet."""
        thread = None
        for row in answers:
            thread = self._decode.one(thread_from, row)
        self._threads[thread_id] = thread
        return thread or Thread(id=thread_id)

    def _load_effects(self, work: UnitOfWork, needs: Needs) -> None:
        """Lock the keys of the effects that may start here, always in the same order."""
        effect_keys = set(needs.effects)
        if needs.spends:
            for call in work.calls.values():
                if call.effect_key:
                    effect_keys.add(call.effect_key)
        if not effect_keys:
            return
        self._held = sorted(effect_keys)
        answer_lists = []
        for key in self._held:
            self._write(sql.HOLD_EFFECT, (key,))
            answer_lists.append(self._ask(sql.LOAD_EFFECT + self._dialect.lock, (key,)))
        for answers in answer_lists:
            for effect in self._decode.each(effect_from, [row for row in answers if row[1]]):
                work.effects[effect.key] = effect
        others = [effect.call for effect in work.effects.values() if effect.call not in work.calls]
        for answers in [self._ask(sql.LOAD_CALL, (call_id,)) for call_id in others]:
            for row in answers:
                call = self._decode.one(call_from, row)
                work.effect_owners[call.id] = call

    def _load_budgets(self, work: UnitOfWork, needs: Needs) -> None:
        """Lock what the limits count of the calls that may start here, always in one order."""
        counts = needs.spends or needs.gives_back
        calls = [call for call in work.calls.values() if counts and call.terms.limits]
        if not (calls or work.grants or needs.limits):
            return
        grants = work.grants.values() if counts or needs.starts else ()
        keys = budget_keys(calls, grants, needs.limits)
        lock = self._dialect.lock
        if lock:
            for key in keys:
                self._write(sql.HOLD_BUDGET, (key,))
        answer_lists = [self._ask(sql.LOAD_BUDGET + lock, (key,)) for key in keys]
        for answers in answer_lists:
            for budget in self._decode.each(budget_from, [row for row in answers if row[-1]]):
                work.budgets[budget.key] = budget
        self._held_budgets = keys if lock else []

    def _save_budgets(self, work: UnitOfWork) -> None:
        for budget in work.touched_budgets.values():
            self._write(sql.SAVE_BUDGET, budget_values(budget))
        for key in self._held_budgets:
            if key not in work.budgets:
                self._write(sql.DROP_UNUSED_BUDGET, (key,))

    def _save_effects(self, work: UnitOfWork) -> None:
        for key, call in sorted(work.freed_effects.items()):
            self._write(sql.FREE_EFFECT, (key, call))
        for effect in work.taken_effects.values():
            self._write(sql.TAKE_EFFECT, effect)
        for key in self._held:
            if key not in work.effects:
                self._write(sql.FREE_EFFECT, (key, ""))

    def _ask_calls(self, needs: Needs, run: Answers | None) -> list[Answers]:
        answers: list[Answers] = []
        for call_id in needs.calls:
            answers.append(self._ask(sql.LOAD_CALL, (call_id,)))
        if run is None or run == []:  # a run that is known not to exist has no calls
            return answers
        for key in needs.keys:
            answers.append(self._ask(sql.LOAD_CALL_BY_KEY, (needs.run, key)))
        for caller in needs.callers:
            answers.append(self._ask(sql.LOAD_CALLS_TO_JOIN, (needs.run, caller)))
        if needs.statuses:
            statement = sql.LOAD_CALLS_IN.format(", ".join("?" * len(needs.statuses)))
            answers.append(self._ask(statement, (needs.run, *sorted(needs.statuses))))
        return answers

    def _load_calls(self, work: UnitOfWork, asked: Iterable[Answers]) -> None:
        for answers in asked:
            for row in answers:
                call = self._decode.one(call_from, row)
                self._calls[call.id] = self._read[call.id] = work.calls[call.id] = call

    def save(self, work: UnitOfWork) -> None:
        """Write what changed: a constant number of rows, however long the thread is."""
        if self._read or self._read_run is not None:
            self._check_not_put_back(work)
        if work.moves_thread:
            self._save_thread(work.thread)
        if work.run_touched and work.run is not None:
            self._save_run(work.run, work.new_run)
        for call in work.touched_calls.values():
            self._save_call(call, work)
        for event in work.events:
            self._write(sql.ADD_EVENT, event[:-1])
        for message in work.messages:
            self._write(sql.ADD_MESSAGE, message)
        self._save_rest(work)
        if work.touched_people or work.touched_credentials or work.dropped_credentials:
            self._save_people(work)

    def _save_rest(self, work: UnitOfWork) -> None:
        for grant in work.touched_grants.values():
            self._write(sql.SAVE_GRANT, grant_values(grant))
        for refusal in work.touched_refusals.values():
            self._write(sql.SAVE_REFUSAL, refusal_values(refusal))
        if work.touched_budgets or self._held_budgets:
            self._save_budgets(work)
        if self._held or work.freed_effects or work.taken_effects:
            self._save_effects(work)
        if work.system is not None and work.system.seq:
            self._save_thread(work.system)
        for tool in work.tools:
            if tool.digest not in self._tool_cache.tools:
                self.new_tools.add(tool)
        # Always in the same order, so that two writers cannot deadlock.
        for tool in sorted(self.new_tools):
            self._write(ADD_TOOL, tool)
        if self.new_keys:
            add_search_keys(self._write, self.new_keys)

    def _save_people(self, work: UnitOfWork) -> None:
        for person in work.touched_people.values():
            self._write(sql.SAVE_PERSON, person_values(person))
        # First, because a new row may have the hash of one that is dropped.
        for credential_id in work.dropped_credentials:
            self._write(sql.DROP_CREDENTIAL, (credential_id,))
        for credential in work.touched_credentials.values():
            if credential.id in work.new_credentials:
                self._write(sql.ADD_CREDENTIAL, credential)
            else:
                changes = sql.credential_changes(credential)
                self._write(sql.SAVE_CREDENTIAL, (*changes, credential.id))

    def _check_not_put_back(self, work: UnitOfWork) -> None:
        """Raise ``Tampered`` if a row that changes is older than the events after it allow."""
        rows: list[Call | Run] = [
            row for name, row in self._read.items() if name in work.touched_calls
        ]
        if self._read_run is not None and work.run_touched:
            rows = [self._read_run, *rows]
        if not rows:
            return
        thread = self._threads[work.thread.id] or Thread(id=work.thread.id)
        if any(row.seq > thread.seq for row in rows):
            raise event_taken()
        older = [row for row in rows if row.seq < thread.seq]
        if older:
            oldest = min(row.seq for row in older)
            later = self._later if self._later_than.issuperset(row.id for row in older) else None
            later = later or self._ask(sql.LOAD_EVENTS_SINCE, (thread.id, oldest))
            try:
                events = [event_from(row) for row in later]
                events = [event for event in events if event.seq >= oldest]
                check_not_put_back(self._deps, thread, older, events)
            except DAMAGE as error:
                what = f"an event of thread {thread.id} was changed: {UNREADABLE}"
                raise tampered(older[0].id, what) from error

    def _save_thread(self, thread: Thread) -> None:
        was = self._threads[thread.id]
        if was is None:
            self._write(sql.ADD_THREAD, thread)
            return
        save = sql.SAVE_THREAD if thread.moved == was.moved else sql.MOVE_THREAD
        self._write(save, (*sql.thread_changes(thread), thread.id))
        if was.owner != thread.owner:
            self._write(sql.OWN_THREAD, (thread.owner, thread.id))

    def _save_run(self, run: Run, new: bool) -> None:
        values = run_values(run)
        if new:
            self._write(sql.ADD_RUN, values)
        elif self._run is not None and self._run.status is run.status:
            self._write(sql.SAVE_RUN, (*sql.run_changes(values), run.id))
        else:
            self._write(sql.MOVE_RUN, (*sql.run_changes(values), run.status._value_, run.id))

    def _save_call(self, call: Call, work: UnitOfWork) -> None:
        values = work.call_values[call.id]
        was = self._calls.get(call.id)
        if call.id in work.new_calls:
            self._write(sql.ADD_CALL, (*values, *self._listed(call, work)))
        elif was is not None and _stays(was, call):
            self._write(sql.SAVE_CALL, (*sql.call_changes(values), call.id))
        else:
            place = (*sql.call_place(values), *self._listed(call, work))
            self._write(sql.MOVE_CALL, (*sql.call_changes(values), *place, call.id))

    def _listed(self, call: Call, work: UnitOfWork) -> tuple[Any, ...]:
        """Return the columns that lists and counts are made from."""
        list_status = list_status_of(call)
        group = self._known(group_key_of(call)) if list_status else UNGROUPED
        tool = self._tool_of(call, work)
        search_key = self._known(search_key_of(call, tool))
        return list_status, search_key, group, *decided(call), words_of(call, tool)

    def _known(self, key: SearchKey | GroupKey) -> int:
        """Return the id of a key, which is written if it is not known to be in the database."""
        if time.monotonic() >= self._tool_cache.search_keys.get(key.id, 0.0):
            self.new_keys.add(key)
        return key.id

    def _tool_of(self, call: Call, work: UnitOfWork) -> Tool | None:
        for tool in work.tools:
            if tool.digest == call.tool_digest:
                return tool
        cached_tool = self._tool_cache.tools.get(call.tool_digest)
        if cached_tool is not None or not call.tool_digest:
            return cached_tool
        for row in self._ask(sql.LOAD_TOOL, (call.tool_digest,)):
            return self._decode.tool(row)
        return None
