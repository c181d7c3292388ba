"""A store with rows in every status, and the database under it as somebody without a key sees it.

``build`` plays the stories through the public face and remembers every version of every row.
``Uses`` plays what the public face does with the rows afterwards: show, decide, start, return, sign
in, use a grant. What each use gives is compared with what it gives when nobody touched anything.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import psycopg
from postgres_server import shared_url

import sayso
from sayso import Gate, Inbox, Paused, Question, SaysoError
from sayso.engine.commands import Release, ReportResult
from sayso.inbox import create_token, remove_person, revoke_token
from sayso.inbox.people import authenticate
from sayso.keys import Keyring, new_key
from sayso.rows import Delivery
from sayso.stores.base import Store
from sayso.stores.postgres import PostgresStore
from sayso.stores.sqlite import SqliteStore
from sayso.testing import FakeClock, ScriptedModel, call, say

Row = dict[str, Any]
Rows = dict[str, list[Row]]

HMAC_KEY = new_key()
SERVER_KEY = new_key("ed25519")
KEYS = {"hmac": Keyring.parse(HMAC_KEY), "ed25519": Keyring.parse(SERVER_KEY)}
HOUR = 3600.0


# -- databases


class Database(Protocol):
    """The database as an attacker without a key sees it."""

    name: str

    def open(self, keys: Keyring, clock: FakeClock) -> Store: ...
    def columns(self) -> dict[str, list[str]]: ...
    def keys_of(self, table: str) -> list[str]: ...
    def read(self) -> Rows: ...
    def execute(self, statement: str, values: list[Any]) -> None: ...
    def keep(self) -> None:
        """Save all rows as they are now."""

    def restore(self) -> None:
        """Restore the saved rows."""

    def close(self) -> None: ...


class SqliteDatabase:
    """A file, restored before each case."""

    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.path = folder / "sayso.db"

    def open(self, keys: Keyring, clock: FakeClock) -> Store:
        return SqliteStore(self.path, keys=keys, clock=clock)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            connection.row_factory = sqlite3.Row
            yield connection

    def columns(self) -> dict[str, list[str]]:
        with self._connected() as db:
            names = [
                row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type='table'")
            ]
            return {
                name: [row["name"] for row in db.execute(f"PRAGMA table_info({name})")]
                for name in sorted(names)
            }

    def keys_of(self, table: str) -> list[str]:
        with self._connected() as db:
            rows = db.execute(f"PRAGMA table_info({table})").fetchall()
        return [row["name"] for row in rows if row["pk"]]

    def read(self) -> Rows:
        with self._connected() as db:
            return {
                name: [dict(row) for row in db.execute(f"SELECT * FROM {name}")]
                for name in self.columns()
            }

    def execute(self, statement: str, values: list[Any]) -> None:
        with self._connected() as db:
            db.execute(statement, values)

    def keep(self) -> None:
        with self._connected() as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        kept = self._folder / "kept"
        kept.mkdir(exist_ok=True)
        for file in self._folder.glob("sayso.db*"):
            if not file.name.endswith("-shm"):
                shutil.copyfile(file, kept / file.name)

    def restore(self) -> None:
        for file in self._folder.glob("sayso.db*"):
            file.unlink()
        for file in (self._folder / "kept").iterdir():
            shutil.copyfile(file, self._folder / file.name)
            os.chmod(self._folder / file.name, 0o600)

    def close(self) -> None:
        """Do nothing: no connection is open."""


class PgDatabase:
    """A schema, restored before each case."""

    name = "postgres"

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self._db = psycopg.connect(shared_url(), autocommit=True)
        self._db.execute(f'SET search_path TO "{schema}"')
        self._copy = f"{schema}_kept"
        # What the triggers would write is among the rows that are restored. On a connection of its
        # own, because PostgreSQL plans everything again after a change of this setting.
        self._restorer = psycopg.connect(shared_url(), autocommit=True)
        self._restorer.execute(f'SET search_path TO "{schema}"')
        self._restorer.execute("SET session_replication_role = replica")

    def open(self, keys: Keyring, clock: FakeClock) -> Store:
        return PostgresStore(shared_url(), schema=self.schema, keys=keys, clock=clock, size=2)

    def columns(self) -> dict[str, list[str]]:
        found = self._db.execute(
            "SELECT table_name, column_name FROM information_schema.columns "
            "WHERE table_schema = %s ORDER BY table_name, ordinal_position",
            [self.schema],
        )
        tables: dict[str, list[str]] = {}
        for table, column in found:
            tables.setdefault(table, []).append(column)
        return tables

    def keys_of(self, table: str) -> list[str]:
        found = self._db.execute(
            "SELECT a.attname FROM pg_index i JOIN pg_attribute a "
            "ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey) "
            "WHERE i.indrelid = %s::regclass AND i.indisprimary",
            [f'"{self.schema}".{table}'],
        )
        return [row[0] for row in found]

    def read(self) -> Rows:
        rows: Rows = {}
        for table, columns in self.columns().items():
            named = ", ".join(f"{c}::text" if c == "xid" else c for c in columns)
            found = self._db.execute(f"SELECT {named} FROM {table}")  # type: ignore[arg-type]
            rows[table] = [dict(zip(columns, row, strict=True)) for row in found]
        return rows

    def execute(self, statement: str, values: list[Any]) -> None:
        self._db.execute(statement.replace("?", "%s"), values)  # type: ignore[arg-type]

    def keep(self) -> None:
        self._db.execute(f'CREATE SCHEMA "{self._copy}"')  # type: ignore[arg-type]
        delete, insert = "", ""
        for table in self.columns():
            copy = f'"{self._copy}".{table}'
            self._db.execute(f"CREATE TABLE {copy} AS TABLE {table}")  # type: ignore[arg-type]
            self._db.execute(f"ANALYZE {copy}, {table}")  # type: ignore[arg-type]
            same = " AND ".join(f"kept.{key} = now.{key}" for key in self.keys_of(table))
            delete += (
                f"DELETE FROM {table} now WHERE NOT EXISTS (SELECT FROM {copy} kept "
                f"WHERE {same} AND kept.* IS NOT DISTINCT FROM now.*); "
            )
            insert += (
                f"INSERT INTO {table} SELECT * FROM {copy} kept "
                f"WHERE NOT EXISTS (SELECT FROM {table} now WHERE {same}); "
            )
        for table, column in (("event", "pos"), ("call", "n")):
            sequence = f'"{self.schema}".{table}_{column}_seq'
            insert += f"PERFORM setval('{sequence}', max({column})) FROM {table}; "
        # A function, because its statements are planned once.
        self._db.execute(
            f'CREATE FUNCTION "{self._copy}".restore() RETURNS void LANGUAGE plpgsql '  # type: ignore[arg-type]
            f"AS $$ BEGIN {delete} {insert} END $$"
        )

    def restore(self) -> None:
        """Delete and insert only the rows that differ, which are few."""
        self._restorer.execute(f'SELECT "{self._copy}".restore()')  # type: ignore[arg-type]

    def close(self) -> None:
        for schema in (self.schema, self._copy):
            self._db.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')  # type: ignore[arg-type]
        self._restorer.close()
        self._db.close()


# -- the agents and functions of the stories


class Faces:
    """The user's code: the same in the process that builds the store and in those that use it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.inbox = Inbox(store)
        self.gate = Gate(store, wait=0, agent="clerk")
        #: What really ran.
        self.ran: list[str] = []
        self.waits = threading.Event()
        self.began = threading.Event()
        self.blocked: list[threading.Thread] = []

    # Made when they are called: each takes longer than all that is done with it.

    @cached_property
    def send(self) -> Any:
        return self.gate.guard(needs_approval=True, preview=self._preview)(self._send)

    @cached_property
    def fails(self) -> Any:
        return self.gate.guard(needs_approval=True, name="fails")(self._fails)

    @cached_property
    def blocks(self) -> Any:
        return self.gate.guard(needs_approval=True, name="blocks")(self._blocks)

    @cached_property
    def short(self) -> Any:
        return self.gate.guard(needs_approval=True, name="short", expires_in=60)(self._send)

    @cached_property
    def both(self) -> Any:
        return self.gate.guard(needs_approval=True, name="both", quorum=2)(self._send)

    @cached_property
    def free(self) -> Any:
        return self.gate.guard(needs_approval=False, name="free")(self._send)

    @cached_property
    def keyed(self) -> Any:
        options = {"needs_approval": False, "effect_key": "mail:{to}"}
        return self.gate.guard(name="keyed", **options)(self._send)

    @cached_property
    def often(self) -> Any:
        return self.gate.guard(needs_approval=True, name="often")(self._send)

    @staticmethod
    def _preview(to: str, text: str = "hello") -> str:
        return f"To {to}: {text}"

    def _send(self, to: str, text: str = "hello") -> str:
        """Send a message."""
        self.ran.append(f"send {to} {text}")
        return f"sent to {to}"

    def _fails(self, to: str) -> str:
        """Send a message, and fail."""
        self.ran.append(f"fails {to}")
        raise ValueError(f"no such address: {to}")

    def _blocks(self, to: str) -> str:
        """Send a message, and wait for the answer."""
        self.ran.append(f"blocks {to}")
        self.began.set()
        assert self.waits.wait(60)
        return f"sent to {to}"

    def agent(self) -> tuple[sayso.Agent, ScriptedModel]:
        def deploy(version: str) -> str:
            """Deploy a version."""
            self.ran.append(f"deploy {version}")
            return f"deployed {version}"

        def choose(messages: Any) -> Any:
            last = messages[-1]
            if last.get("role") == "user" and "deploy" in str(last):
                return call("deploy", {"version": "1.2"})
            return say("Done.")

        model = ScriptedModel(choose)
        tool = sayso.tool(needs_approval=True)(deploy)
        return sayso.Agent("pilot", model=model, tools=[tool], store=self.store), model


# -- building


@dataclass
class Built:
    """A store with rows in every status, and all their earlier versions."""

    database: Database
    keys: Keyring
    now: int
    ids: dict[str, str]
    tokens: dict[str, str]
    #: All rows, after each step.
    versions: list[Rows] = field(default_factory=list)

    def open(self) -> Store:
        clock = FakeClock()
        clock.set(self.now)
        return self.database.open(self.keys, clock)


def build(database: Database, keys: Keyring) -> Built:
    """Play all stories."""
    clock = FakeClock()
    faces = Faces(database.open(keys, clock))
    built = Built(database, keys, clock(), {}, {})
    _Stories(faces, clock, built).play()
    built.versions.append(database.read())
    built.now = clock()
    database.keep()  # before the store is closed, which would seal what no seal covers yet
    faces.waits.set()
    for thread in faces.blocked:  # or their results would come after a case has begun
        thread.join(60)
        assert not thread.is_alive()
    faces.gate.close()
    return built


class _Stories:
    def __init__(self, faces: Faces, clock: FakeClock, built: Built) -> None:
        self.faces, self.clock, self.built = faces, clock, built
        self.inbox, self.gate = faces.inbox, faces.gate

    def snap(self) -> None:
        self.built.versions.append(self.built.database.read())

    def ask(self, name: str, body: Callable[[], Any]) -> str:
        """Run something until it pauses. The request is stored under the name of its run."""
        try:
            with self.gate.run(name, requester="eve"):
                body()
        except Paused as paused:
            self.built.ids[name] = paused.requests[0].id
            self.snap()
            return paused.requests[0].id
        raise AssertionError(f"{name} did not pause")

    def decide(self, name: str, kind: str = "approve", *args: Any, **options: Any) -> None:
        request = self.inbox.get_sync(self.built.ids[name])
        decision = getattr(request, kind)(*args)
        self.inbox.decide_sync(request.id, decision, **({"by": "ana"} | options))
        self.snap()

    def enter(self, name: str, body: Callable[[], Any]) -> None:
        with contextlib.suppress(Exception), self.gate.run(name, requester="eve"):
            body()
        self.snap()

    def release(self, name: str) -> None:
        """Release an approved call to the agent, and report its result."""
        call = self.faces.store.call(self.built.ids[name])
        assert call is not None
        place = {"thread": call.thread, "run": call.run, "call": call.id}
        self.faces.store.transact(Release(**place, seen=call.mac, caller="use:1"))
        self.snap()
        self.faces.store.transact(ReportResult(**place, ok=True, result='"it ran"'))
        self.snap()

    def block(self, name: str) -> None:
        """Start a call that keeps running while the stories are played."""
        faces = self.faces
        faces.began.clear()

        def body() -> None:
            with contextlib.suppress(BaseException), self.gate.run(name, requester="eve"):
                faces.blocks("bo")

        thread = threading.Thread(target=body, daemon=True)
        faces.blocked.append(thread)
        thread.start()
        assert faces.began.wait(30)
        self.snap()

    def play(self) -> None:
        faces, inbox = self.faces, self.inbox
        built = self.built
        for person in ("ana", "bob", "cleo", "dan"):
            token, row = create_token(faces.store, person, by="root", groups=("finance",))
            built.tokens[person] = token
            if person == "cleo":
                self.snap()
                revoke_token(faces.store, row.id, by="root")
            if person == "dan":
                self.snap()
                remove_person(faces.store, person, by="root")
            self.snap()
        # What is in doubt, or expired, first: time has to pass.
        self.ask("in_doubt", lambda: faces.blocks("bo"))
        self.decide("in_doubt")
        self.block("in_doubt")
        self.ask("expired", lambda: faces.short("al"))
        self.clock.advance(HOUR)
        inbox.pending_sync()
        self.snap()
        # One request in each state, and a second one like it to swap it with.
        for name, to in (("asked", "al"), ("asked2", "bo")):
            self.ask(name, lambda to=to: faces.send(to))
        for name, to in (("ready", "al"), ("ready2", "bo"), ("done", "al"), ("done2", "bo")):
            self.ask(name, lambda to=to: faces.send(to))
            self.decide(name)
            if name.startswith("done"):
                self.enter(name, lambda to=to: faces.send(to))
        self.ask("failed", lambda: faces.fails("al"))
        self.decide("failed")
        self.enter("failed", lambda: faces.fails("al"))
        self.ask("rejected", lambda: faces.send("al"))
        self.decide("rejected", "reject", "not today")
        self.ask("responded", lambda: faces.send("al"))
        self.decide("responded", "respond", "I told them")
        self.ask("edited", lambda: faces.send("al"))
        self.decide("edited", "edit", {"to": "al", "text": "goodbye"})
        self.ask("cancelled", lambda: faces.send("al"))
        inbox.cancel_sync(built.ids["cancelled"], by="ana")
        self.snap()
        self.ask("stopped", lambda: faces.send("al"))
        self.gate.cancel_sync("stopped", by="ana", reason="no need")
        self.snap()
        self.ask("released", lambda: faces.send("al"))
        self.decide("released")
        self.release("released")
        self.ask("superseded", lambda: faces.send("al"))
        self.gate.supersede_sync("superseded")
        self.snap()
        self.ask("voted", lambda: faces.both("al"))
        self.decide("voted", token=built.tokens["ana"], by=None)
        self.ask("quorum", lambda: faces.both("al"))
        self.decide("quorum", token=built.tokens["ana"], by=None)
        self.decide("quorum", token=built.tokens["bob"], by=None)
        self.enter("free", lambda: faces.free("al"))
        self.enter("keyed", lambda: faces.keyed("al"))
        self.ask("question", lambda: self.gate.ask_sync(Question("Which size?")))
        self.ask("answered", lambda: self.gate.ask_sync(Question("Which size?")))
        self.decide("answered", "respond", "large")
        self.ask("unconfirmed", lambda: self.gate.confirm_sync("Delete production?"))
        self.ask("confirmed", lambda: self.gate.confirm_sync("Delete production?"))
        self.decide("confirmed")
        self.ask("refused", lambda: self.gate.confirm_sync("Delete production?"))
        self.decide("refused", "reject", "never")
        # Grants: one that is live, one that is used up, one that was taken back.
        for name, uses in (("live", 3), ("spent", 1), ("revoked", 3)):
            self.ask(f"grant {name}", lambda name=name: faces.often(name))
            grant = {"scope": "exact", "uses": uses, "limits": ["calls <= 9 per 30d"]}
            self.decide(f"grant {name}", grant=grant)
            self.enter(f"grant {name}", lambda name=name: faces.often(name))
            self.enter(f"use of {name}", lambda name=name: faces.often(name))
        (revoked,) = [g for g in inbox.grants_sync() if '"revoked"' in g.scope]
        inbox.revoke_sync(revoked.id, by="ana")
        self.snap()
        # A conversation that is paused, and one that is over.
        agent, _ = faces.agent()
        for thread in ("chat", "chat2", "chatted"):
            result = agent.run_sync("please deploy", thread=thread, requester="dora")
            built.ids[thread] = result.interruptions[0].id
            self.snap()
        self.decide("chatted")
        agent.resume_sync("chatted")
        self.snap()
        faces.store.move_cursor("reader", faces.store.tail(), expected="")
        messages = [
            Delivery(name, "telegram", name, "ana", built.ids["asked"], "d", "asked", 1)
            for name in ("77", "78")
        ]
        faces.store.put_deliveries(messages)
        # Running while the curtain falls.
        self.ask("running", lambda: faces.blocks("bo"))
        self.decide("running")
        self.block("running")
        faces.store.seal()
        self.snap()
        # What no seal covers yet.
        self.ask("unsealed", lambda: faces.send("al"))
        self.decide("unsealed")
        self.enter("unsealed", lambda: faces.send("al"))


# -- using


@dataclass(frozen=True)
class Outcome:
    """The outcome of one use: a value, or a refusal."""

    kind: str
    value: Any = None

    def __str__(self) -> str:
        return f"{self.kind}: {self.value}"


#: The stories that are entered again, and what their code does.
ENTERED: dict[str, Callable[[Faces], Any]] = {
    **{
        name: lambda f: f.send("al") for name in ("asked", "ready", "done", "rejected", "responded")
    },
    **{name: lambda f: f.send("bo") for name in ("asked2", "ready2", "done2")},
    **{name: lambda f: f.send("al") for name in ("edited", "cancelled", "stopped", "superseded")},
    "released": lambda f: f.send("al"),
    "responded": lambda f: f.send("al"),
    "unsealed": lambda f: f.send("al"),
    "fresh": lambda f: f.send("al"),
    "failed": lambda f: f.fails("al"),
    "expired": lambda f: f.short("al"),
    "voted": lambda f: f.both("al"),
    "quorum": lambda f: f.both("al"),
    "free": lambda f: f.free("al"),
    "keyed": lambda f: f.keyed("al"),
    "another keyed": lambda f: f.keyed("al"),
    "in_doubt": lambda f: f.blocks("bo"),
    "question": lambda f: f.gate.ask_sync(Question("Which size?")),
    "answered": lambda f: f.gate.ask_sync(Question("Which size?")),
    **{
        name: lambda f: f.gate.confirm_sync("Delete production?")
        for name in ("unconfirmed", "confirmed", "refused")
    },
    "again live": lambda f: f.often("live"),
    "again spent": lambda f: f.often("spent"),
    "again revoked": lambda f: f.often("revoked"),
}

#: The stories that a person decides.
DECIDED = {"asked": "approve", "asked2": "approve", "in_doubt": "reject", "question": "respond"}


class Uses:
    """Everything that the public API does with the rows."""

    def __init__(self, built: Built) -> None:
        self._built = built

    def play(self, stories: frozenset[str] | None = None) -> dict[str, Outcome]:
        """Open the store as it is now and use it; gives what each use gave.

        With ``stories``, only what concerns them, beside the lists and what is new.
        """
        logging.disable(logging.CRITICAL)
        found: dict[str, Outcome] = {}
        try:
            faces = Faces(self._built.open())
        except SaysoError as error:
            return {"open": Outcome("refused", type(error).__name__)}
        finally:
            logging.disable(logging.NOTSET)
        faces.waits.set()
        logging.disable(logging.CRITICAL)
        try:
            for name, use in self._uses(faces):
                verb, _, story = name.partition(" ")
                if stories is not None and verb != "list" and story not in {*stories, "fresh"}:
                    continue
                faces.ran.clear()
                found[name] = _outcome(use, faces)
        finally:
            logging.disable(logging.NOTSET)
            with contextlib.suppress(SaysoError):
                faces.gate.close()
        return found

    def _uses(self, faces: Faces) -> Iterator[tuple[str, Callable[[], Any]]]:
        built, inbox, store = self._built, faces.inbox, faces.store
        for name, token in built.tokens.items():
            yield f"token {name}", lambda token=token: authenticate(store, token)
        for name, id in built.ids.items():
            yield f"show {name}", lambda id=id: inbox.get_sync(id)
            yield f"events {name}", lambda id=id: [e._replace(pos=0) for e in inbox.events_sync(id)]
        yield "list pending", lambda: {r.id: r for r in inbox.pending_sync(limit=100).items}
        yield "list history", lambda: {r.id: r for r in inbox.history_sync(limit=100).items}
        yield "list grants", lambda: {g.id: g for g in inbox.grants_sync(live_only=False)}
        yield "list refusals", lambda: {r.id: r for r in inbox.refusals_sync(live_only=False)}
        yield "list people", lambda: {p.name: p for p in store.people()}
        yield "list tokens", lambda: {c.id: c for c in store.credentials()}
        yield "list runs", lambda: {r.id: r for _, r in store.runs(limit=100)}
        yield "list chats", lambda: {t.id: t.owner for _, t in store.threads_of("dora", limit=100)}
        for name, body in ENTERED.items():
            if name in DECIDED:
                yield f"decide {name}", lambda name=name: self._decide(faces, name)
            yield f"enter {name}", lambda name=name, body=body: self._enter(faces, name, body)
        rejected = ENTERED["rejected"]
        yield "repeat rejected", lambda: self._enter(faces, "repeated", rejected)
        yield "resume chat", lambda: self._chat(faces, "chat")
        yield "read chatted", lambda: store.messages("chatted")
        yield "continue chatted", lambda: self._go_on(faces, "chatted")

    def _decide(self, faces: Faces, name: str) -> Any:
        request = faces.inbox.get_sync(self._built.ids[name])
        kind = DECIDED[name]
        given = {"approve": (), "reject": ("no",), "respond": ("large",)}[kind]
        decision = getattr(request, kind)(*given)
        decided = faces.inbox.decide_sync(request.id, decision, by="ana")
        return decided.status, decided.tool, decided.args, decided.question

    @staticmethod
    def _enter(faces: Faces, name: str, body: Callable[[Faces], Any]) -> Any:
        with faces.gate.run(name, requester="eve"):
            return body(faces)

    def _chat(self, faces: Faces, thread: str) -> Any:
        agent, model = faces.agent()
        request = faces.inbox.get_sync(self._built.ids[thread])
        faces.inbox.decide_sync(request.id, request.approve(), by="ana")
        result = agent.resume_sync(thread)
        return result.status, result.output, [r.messages for r in model.requests]

    @staticmethod
    def _go_on(faces: Faces, thread: str) -> Any:
        agent, model = faces.agent()
        result = agent.run_sync("and now?", thread=thread, requester="dora")
        return result.status, result.output, [r.messages for r in model.requests]


def _outcome(use: Callable[[], Any], faces: Faces) -> Outcome:
    try:
        value = use()
    except Paused:
        return Outcome("asks", tuple(faces.ran))
    except SaysoError as error:
        # What ran before it was refused has run.
        return Outcome("refused", (type(error).__name__, *faces.ran))
    except Exception as error:
        if type(error) in (ValueError,) and "no such address" in str(error):
            return Outcome("gives", (repr(error), *faces.ran))
        return Outcome("broke", repr(error))
    if isinstance(value, Mapping):
        return Outcome("lists", {key: repr(one) for key, one in value.items()})
    return Outcome("gives", (repr(value), *faces.ran))


def compare(before: Mapping[str, Outcome], after: Mapping[str, Outcome]) -> dict[str, str]:
    """What became of each use: ``refused``, ``altered`` or ``broke``; those that are as they were
    are left out."""
    if "open" in after:
        return {"open": "refused"}
    found: dict[str, str] = {}
    for name, now in after.items():
        was = before[name]
        if now == was:
            continue
        if now.kind == "broke":
            found[name] = "broke"
        elif now.kind in ("refused", "asks") and _ran(now) == ():
            found[name] = "refused"
        elif now.kind == was.kind == "lists" and now.value.items() <= was.value.items():
            found[name] = "refused"  # left out
        else:
            found[name] = "altered"
    return found


def _ran(outcome: Outcome) -> tuple[str, ...]:
    return tuple(outcome.value[1:] if outcome.kind == "refused" else outcome.value)
