"""Prove the promises with the user's own policy and tools, in stores that are thrown away.

A tool is used by its declaration alone: name, schema, description, terms. Its body is a recorder,
so nothing of the user ever runs. Each check makes a new store, makes the call, does what should not
succeed, and counts how often the recorder ran.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sqlite3
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from sayso import codec
from sayso.agent import Agent
from sayso.agent.agent import Resumable
from sayso.errors import InDoubt, NotAllowed, Paused, SaysoError, Tampered
from sayso.gate import Gate
from sayso.gate.framework.tools import FrameworkTool
from sayso.gate.gate import policy_in_force, policy_terms, read_policy
from sayso.gate.plan import Plan
from sayso.gate.scope import current_scope
from sayso.inbox import Inbox
from sayso.inbox.directory import add_person, new_link, sign_in
from sayso.inbox.people import authenticate_session
from sayso.keys import Keyring, new_key
from sayso.policy import Policy, Predicate, Rule
from sayso.rows import Call, Proven, Tool
from sayso.stores import open_store
from sayso.stores.base import Store
from sayso.sync import run_sync
from sayso.testing.clock import FakeClock
from sayso.types import Json, Request, Terms, ToolCall, Verdict

_RUN = "selftest"
#: Longer than any lease, so that a killed process has lost its own.
_AFTER_LEASES = 3600.0
_DENY = Policy([Rule(verdict="deny")])


class Failed(Exception):
    """A promise does not hold."""


class Skipped(Exception):
    """A check cannot be made here."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """What is known of a tool without running it."""

    agent: str
    tool: Tool
    args: dict[str, Json]
    own: Terms = field(default_factory=Terms)
    needs_approval: bool | Predicate | None = None


class Result(NamedTuple):
    """The outcome of one check: ``ok``, ``failed`` or ``skipped``, and why."""

    tool: str
    check: str
    outcome: str
    detail: str


def declarations(agent: Resumable) -> list[Declaration]:
    """Return the tools that an agent declares. Questions and sub-agents run nothing themselves."""
    if isinstance(agent, Agent):
        return [
            Declaration(
                agent.name,
                tool.stored,
                sample(tool.signature.parameters),
                tool.own,
                tool.needs_approval,
            )
            for tool in agent.tools.values()
            if tool.asks is None and tool.inner is None
        ]
    coverage = getattr(agent, "coverage", None)
    if coverage is None:
        return []
    names = dict.fromkeys(item.name for item in coverage() if item.gated and item.kind == "tool")
    return [named(agent.name, name, {}) for name in names]


def policy_of(agent: Resumable) -> Policy:
    """Return the policy that an agent brings, without opening its store."""
    if isinstance(agent, Agent):
        own = agent._policy
        if isinstance(own, str | Path):
            own = read_policy(str(own))
        return own or Policy()
    gate = getattr(agent, "gate", None)
    return Policy() if gate is None else policy_in_force(gate, getattr(agent, "policy", None))


def named(agent: str, name: str, args: Mapping[str, Json]) -> Declaration:
    """Return a tool of which only the name is known. It declares nothing, so it asks."""
    return Declaration(agent, FrameworkTool(name=name).stored, dict(args))


def sample(
    schema: Mapping[str, Any], definitions: Mapping[str, Any] | None = None
) -> dict[str, Json]:
    """Return an object that a JSON Schema allows, with required properties only."""
    value = _sample(schema, definitions or schema.get("$defs", {}))
    return value if isinstance(value, dict) else {}


_TEXTS = {"date": "2030-01-01", "date-time": "2030-01-01T00:00:00Z", "email": "a@example.com"}


def _sample(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Json:
    if "$ref" in schema:
        return _sample(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    given = [schema[key] for key in ("const", "default") if key in schema]
    given += schema.get("enum", ())
    if given:
        value: Json = given[0]
        return value
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return _sample(schema[key][0], definitions)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if kind == "object":
        properties = schema.get("properties", {})
        return {
            name: _sample(properties.get(name, {}), definitions)
            for name in schema.get("required", ())
        }
    if kind == "array":
        return [_sample(schema.get("items", {}), definitions)] * schema.get("minItems", 0)
    return _plain_sample(kind, schema)


def _plain_sample(kind: str, schema: Mapping[str, Any]) -> Json:
    if kind in ("integer", "number"):
        least: float = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
        return min(least, schema.get("maximum", least))
    if kind == "string":
        text = _TEXTS.get(schema.get("format", ""), "selftest")
        return text.ljust(schema.get("minLength", 0), "x")[: schema.get("maxLength", 200)]
    return False if kind == "boolean" else None


# -- one call in its own store


class Scene:
    """A new store, one tool whose body only records, and the people who may decide."""

    def __init__(self, place: Place, policy: Policy, declared: Declaration, recorder: Path) -> None:
        self.place = place
        self.clock = FakeClock()
        # No model of the user is called: it would see made-up calls, and decide them.
        rules = (replace(rule, reviewer=None, reviewer_allows=None) for rule in policy.rules)
        self.policy = Policy(rules, default=policy.default)
        self.declared = declared
        self.store = place.open(self.clock)
        self.inbox = Inbox(self.store)
        self._recorder = recorder
        self._recorder.write_bytes(b"")
        self._names: list[str] = []
        #: Ends the process in the middle of the call.
        self.deadly = False

    @property
    def runs(self) -> int:
        """How often the tool's body has run, in this process or another."""
        return self._recorder.stat().st_size

    def gate(self, policy: Policy | None = None) -> Gate:
        rules = self.policy if policy is None else policy
        return Gate(self.store, policy=rules, agent=self.declared.agent, wait=0)

    def terms(self) -> Terms:
        call = ToolCall(self.declared.tool.name, self.declared.args)
        declared = self.declared
        return run_sync(policy_terms(self.gate(), call, declared.own, declared.needs_approval))

    def attempt(
        self, *, policy: Policy | None = None, changed: bool = False, keys: tuple[str, ...] = ("1",)
    ) -> str:
        """Make the call, or come back to it. Return "ran", or the name of the error."""
        gate = self.gate(policy)
        outcome = ""
        try:
            with gate.run(_RUN):
                for key in keys:
                    try:
                        plan = self._plan(gate, key, changed)
                        run_sync(gate.driver.result(current_scope(gate.driver), plan))
                        outcome = "ran"
                    except (SaysoError, Paused) as error:
                        outcome = type(error).__name__
        except SaysoError as error:
            return outcome or type(error).__name__
        return outcome

    def _plan(self, gate: Gate, key: str, changed: bool) -> Plan:
        tool = self.declared.tool
        if changed:
            tool = Tool.of(tool.name, tool.schema, f"{tool.description} (changed)")

        async def terms(args: dict[str, Any]) -> Terms:
            call = ToolCall(tool.name, args)
            return await policy_terms(gate, call, self.declared.own, self.declared.needs_approval)

        async def record(call: Call) -> str:
            with self._recorder.open("ab") as file:
                file.write(b".")
            if self.deadly:
                os.kill(os.getpid(), signal.SIGKILL)
            return "recorded"

        args = codec.canonical(self.declared.args).decode()
        return Plan(
            key=key,
            kind="approval",
            args=args,
            agent=self.declared.agent,
            terms=terms,
            tool=tool,
            tool_name=tool.name,
            run=record,
        )

    def request(self) -> Request:
        """Return the pending request. Fail if there is none."""
        pending = list(self.inbox.pending_sync())
        if len(pending) != 1:
            raise Failed(f"{len(pending)} requests are pending instead of one")
        return pending[0]

    def person(self, name: str, *groups: str) -> Proven:
        """Return a signed-in person with these groups, who is added if necessary."""
        if name not in self._names:
            add_person(self.store, name, by="selftest", role="reviewer", groups=groups)
            self._names.append(name)
        link = new_link(self.store, name, role="reviewer")
        return authenticate_session(self.store, sign_in(self.store, link))

    def approve(self) -> None:
        """Approve the request with as many people as its terms need."""
        request = self.request()
        terms = self.terms()
        if terms.assurance == "passkey":
            raise Skipped("the rule needs a passkey, which no program can present")
        named_people = [name for name in request.reviewers if not name.startswith("group:")]
        groups = [name.removeprefix("group:") for name in request.reviewers if ":" in name]
        more = [f"selftest-{number}" for number in range(request.quorum)]
        for name in [*named_people, *more][: request.quorum]:
            by = self.person(name, *groups)
            self.inbox.decide_sync(self.request().id, self.request().approve(), by=by)

    def close(self) -> None:
        self.inbox.close()
        self.store.close()
        self.place.drop()


# -- the checks

Check = Callable[[Scene], str]


def asks_first(scene: Scene) -> str:
    """Nothing runs before a person has decided"""
    _expect(scene.attempt(), "Paused")
    _expect_runs(scene, 0)
    return f"asks {' or '.join(scene.request().reviewers) or 'any reviewer'}"


def asking_agent_cannot_approve(scene: Scene) -> str:
    """The asking agent cannot approve"""
    scene.attempt()
    return _refuses(scene, scene.declared.agent)


def wrong_person_cannot_approve(scene: Scene) -> str:
    """A person whom the rule does not name cannot approve"""
    scene.attempt()
    if not scene.request().reviewers:
        raise Skipped("every reviewer may decide it")
    return _refuses(scene, scene.person("selftest-outsider"))


def _refuses(scene: Scene, by: str | Proven) -> str:
    try:
        scene.inbox.decide_sync(scene.request().id, scene.request().approve(), by=by)
    except NotAllowed:
        scene.attempt()
        _expect_runs(scene, 0)
        return "refused"
    raise Failed("the approval was accepted")


def approved_call_runs_once(scene: Scene) -> str:
    """What was approved runs once, also when it is resumed twice at the same time"""
    scene.attempt()
    scene.approve()
    resuming = [threading.Thread(target=scene.attempt) for _ in range(2)]
    for os_thread in resuming:
        os_thread.start()
    for os_thread in resuming:
        os_thread.join()
    _expect(scene.attempt(), "ran")
    _expect_runs(scene, 1)
    return "three resumes, one run"


def killed_call_is_in_doubt(scene: Scene) -> str:
    """A process that is killed in the call leaves a doubt, and nothing runs again unasked"""
    effect = scene.terms().effect
    if effect != "once":
        raise Skipped(f'the effect is "{effect}", which may run again')
    scene.attempt()
    scene.approve()
    scene.deadly = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the store survives a fork
        child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            scene.attempt()
        os._exit(1)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        raise Failed("the call did not start in another process")
    scene.deadly = False
    scene.clock.advance(_AFTER_LEASES)
    outcome = scene.attempt()
    if outcome not in (InDoubt.__name__, Paused.__name__):
        raise Failed(f"the call ended as {outcome}")
    if scene.request().kind != "in_doubt":
        raise Failed("nobody is asked to settle it")
    _expect_runs(scene, 1)
    return "in doubt; a person is asked"


def changed_row_is_refused(scene: Scene) -> str:
    """A row that was changed in the database is refused, before and after the approval"""
    scene.attempt()
    scene.approve()
    scene.place.execute("""UPDATE call SET args = '{"forged": true}'""")
    _expect(scene.attempt(), Tampered.__name__)
    _expect_runs(scene, 0)
    return "Tampered"


def expired_request_runs_nothing(scene: Scene) -> str:
    """A request that expired cannot be approved, and an approval that is too old asks again"""
    terms = scene.terms()
    scene.attempt()
    request = scene.request()
    if terms.expires_in is not None:
        scene.clock.advance(terms.expires_in + 1)
        with contextlib.suppress(SaysoError):
            scene.inbox.decide_sync(request.id, request.approve(), by=scene.person("selftest-0"))
        scene.attempt()
        _expect_runs(scene, 0)
        return f"expired after {terms.expires_in:g} seconds"
    scene.approve()
    scene.clock.advance(terms.valid_for + 1)
    _expect(scene.attempt(), "Paused")
    _expect_runs(scene, 0)
    return f"asked again after {terms.valid_for:g} seconds"


def stale_policy_is_judged_again(scene: Scene) -> str:
    """A call that was approved under an older policy is judged by the one in force"""
    scene.attempt()
    scene.approve()
    scene.attempt(policy=_DENY)
    _expect_runs(scene, 0)
    return "denied by the policy in force"


def changed_tool_is_asked_again(scene: Scene) -> str:
    """An approval does not cover a tool that has changed since"""
    scene.attempt()
    scene.approve()
    _expect(scene.attempt(changed=True), "Paused")
    _expect_runs(scene, 0)
    return "asked again"


def rejection_persists(scene: Scene) -> str:
    """A rejected call is not asked again when the agent repeats it"""
    scene.attempt()
    request = scene.request()
    groups = [name.removeprefix("group:") for name in request.reviewers if ":" in name]
    people = [name for name in request.reviewers if not name.startswith("group:")]
    by = scene.person((people or ["selftest-0"])[0], *groups)
    scene.inbox.decide_sync(request.id, request.reject("selftest"), by=by)
    scene.attempt(keys=("1", "2", "3"))
    _expect_runs(scene, 0)
    if list(scene.inbox.pending_sync()):
        raise Failed("people are asked about it again")
    return "refused three times, with the stored reason"


def denied_call_never_runs(scene: Scene) -> str:
    """A denied call does not run, and nobody is asked"""
    scene.attempt()
    _expect_runs(scene, 0)
    if list(scene.inbox.pending_sync()):
        raise Failed("people are asked about it")
    return f"denied by {scene.terms().rule}"


def allowed_call_runs_once(scene: Scene) -> str:
    """A call that needs no person runs once under its key"""
    _expect(scene.attempt(), "ran")
    _expect(scene.attempt(), "ran")
    _expect_runs(scene, 1)
    return f"allowed by {scene.terms().rule}"


CHECKS: Mapping[Verdict, tuple[Check, ...]] = {
    Verdict.ASK: (
        asks_first,
        asking_agent_cannot_approve,
        wrong_person_cannot_approve,
        approved_call_runs_once,
        killed_call_is_in_doubt,
        changed_row_is_refused,
        expired_request_runs_nothing,
        stale_policy_is_judged_again,
        changed_tool_is_asked_again,
        rejection_persists,
    ),
    Verdict.DENY: (denied_call_never_runs,),
    Verdict.ALLOW: (allowed_call_runs_once,),
}


def _expect(outcome: str, expected: str) -> None:
    if outcome != expected:
        raise Failed(f"the call ended as {outcome}, not as {expected}")


def _expect_runs(scene: Scene, expected: int) -> None:
    if scene.runs != expected:
        raise Failed(f"the tool ran {scene.runs} times, not {expected}")


def check_tool(place: Place, policy: Policy, declared: Declaration) -> Iterator[Result]:
    """Make every check that suits what the policy says about a call of this tool."""
    with tempfile.TemporaryDirectory() as folder:
        recorder = Path(folder) / "runs"
        scene = Scene(place, policy, declared, recorder)
        try:
            verdict = scene.terms().verdict
        finally:
            scene.close()
        for check in CHECKS[verdict]:
            scene = Scene(place, policy, declared, recorder)
            try:
                outcome = "ok", check(scene)
            except Skipped as why:
                outcome = "skipped", str(why)
            except (Failed, SaysoError) as error:
                outcome = "failed", str(error)
            finally:
                scene.close()
            yield Result(declared.tool.name, check.__doc__ or "", *outcome)


# -- stores that are thrown away


class Place:
    """Where a scene's store is made: a scratch file."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def open(self, clock: FakeClock) -> Store:
        self._folder = tempfile.TemporaryDirectory()
        return open_store(f"sqlite:///{self._path}", keys=Keyring.parse(new_key()), clock=clock)

    @property
    def _path(self) -> Path:
        assert self._folder is not None
        return Path(self._folder.name) / "selftest.db"

    def execute(self, statement: str) -> None:
        """Change the database behind Sayso's back."""
        with contextlib.closing(sqlite3.connect(self._path)) as connection, connection:
            connection.execute(statement)

    def drop(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()


class PostgresPlace(Place):
    """A scratch schema of a PostgreSQL database."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._schema = ""

    def open(self, clock: FakeClock) -> Store:
        self._schema = f"sayso_selftest_{secrets.token_hex(6)}"
        keys = Keyring.parse(new_key())
        return open_store(self._url, keys=keys, clock=clock, schema=self._schema)

    def execute(self, statement: str) -> None:
        self._run(f"SET search_path TO {self._schema}", statement)

    def drop(self) -> None:
        self._run(f"DROP SCHEMA IF EXISTS {self._schema} CASCADE")

    def _run(self, *statements: str) -> None:
        import psycopg

        from sayso.stores.postgres.database import split_schema

        with psycopg.connect(split_schema(self._url)[0]) as connection:
            for statement in statements:
                connection.execute(statement.encode())


def place_for(url: str) -> AbstractContextManager[Place]:
    """Return where to make scratch stores that are like the one with this URL."""
    return contextlib.nullcontext(
        PostgresPlace(url) if url.startswith(("postgres:", "postgresql:")) else Place()
    )
