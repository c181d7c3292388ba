"""Rows on a server: the same life of a call, over HTTP.

The server asks its policy, keeps the leases and re-checks a claim, with the fresh side that the
claim sends. What is lost between a claim and its report is in doubt when the claim has lapsed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sayso import codec
from sayso.client.client import LONGEST_POLL, Claim, Client
from sayso.client.reading import row_of
from sayso.client.wire import nap
from sayso.errors import Conflict, DuplicateEffect, InvalidCall, Leased, SaysoError
from sayso.gate.backend import RunEntry, Step, moved
from sayso.gate.plan import Plan
from sayso.gate.reentrancy import refuse_own_run
from sayso.gate.settling import Settler
from sayso.rows import Call, CallStatus
from sayso.types import Request
from sayso.views import question_from

log = logging.getLogger("sayso.client")

_FIRST_NAP, _LONGEST_NAP = 0.1, 3.0


class HttpBackend:
    """Rows on a server, for an agent with a token of its own."""

    def __init__(self, client: Client, lease: float) -> None:
        self._client = client
        self._lease = lease
        #: The claims of attempts that run here.
        self._claims: dict[str, Claim] = {}

    @property
    def place(self) -> str:
        """The server's address."""
        return self._client.url

    def check_usable(self) -> None:
        """The server looks after its store."""

    # -- asking

    async def find(self, entry: RunEntry, plan: Plan) -> Call | None:
        return None  # opened again under the same key, it is the same request

    async def propose(self, entry: RunEntry, plan: Plan) -> Step:
        client, content = self._client, codec.loads(plan.args)
        options: dict[str, Any] = {
            **plan.options,
            "key": plan.key,
            "run": entry.name,
            "requester": entry.requester,
            "note": plan.note,
        }
        if plan.title is not None:
            options["title"] = plan.title(plan.args)
        if plan.kind == "question":
            return Step(row_of(await client.ask(question_from(content), **options)))
        if plan.tool is None:
            opened = await client.confirm(content["text"], content["details"], **options)
            return Step(row_of(opened))
        face = codec.loads(plan.tool.schema)
        options |= {"schema": face["parameters"], "returns": face["returns"]}
        options["description"] = plan.tool.description
        if binds := plan.binds():
            options["binds"] = codec.loads(binds)
        if plan.effect_key is not None:
            options["effect_key"] = str(plan.effect_key(content))
        if plan.preview is not None:
            options["preview"] = codec.loads(await plan.preview(plan.args, 1))
        return Step(row_of(await client.open(plan.tool_name, content, **options)))

    # -- looking and waiting

    async def look(self, call: Call) -> Call:
        return row_of(await self.request(call))

    async def wait(self, call: Call, timeout: float | None) -> Call:
        ends = None if timeout is None else time.monotonic() + timeout
        pause = _FIRST_NAP
        while True:
            left = LONGEST_POLL if ends is None else max(ends - time.monotonic(), 0.0)
            poll = min(left, LONGEST_POLL)
            began = time.monotonic()
            now = row_of(await self._client.wait(call.id, poll))
            over = ends is not None and time.monotonic() >= ends
            if moved(now, call) or over:
                return now
            if time.monotonic() - began < poll / 2:
                # A server that does not wait by itself is not to be rushed.
                await nap(pause if ends is None else min(pause, max(left, 0.001)))
                pause = min(pause * 2, _LONGEST_NAP)

    # -- starting

    async def begin(self, entry: RunEntry, plan: Plan, call: Call) -> Step:
        claim = await self._claimed(entry, plan, call)
        if claim is None:
            return Step(await self.look(call))
        self._claims[call.id] = claim
        args = codec.canonical(dict(claim.args)).decode()
        running = call._replace(
            status=CallStatus.RUNNING, token=claim.token, attempt=claim.attempt, args=args
        )
        return Step(running, True)

    async def confirm(self, entry: RunEntry, plan: Plan, call: Call) -> Call:
        claim = await self._claimed(entry, plan, call)
        if claim is not None:
            return row_of(await self._client.result(claim, True))
        return await self.look(call)

    async def _claimed(self, entry: RunEntry, plan: Plan, call: Call) -> Claim | None:
        """The right to run it, unless another process has it, or works on this run just now."""
        binds = plan.binds()
        try:
            return await self._client.claim(
                call.id,
                lease=self._lease,
                tool_digest=None if plan.tool is None else _digest_of(plan),
                binds=codec.loads(binds) if binds else None,
                effect_key=_effect_key(plan, call),
                terms=dict(plan.options),
            )
        except DuplicateEffect:
            return None  # the row says which request has its effect
        except Conflict as error:
            refuse_own_run(self.place, entry.name)
            log.info("%s: not claimed: %s", call.id, error)
            await nap(_FIRST_NAP)
            return None

    # -- ending

    async def end(
        self,
        entry: RunEntry,
        call: Call,
        ok: bool,
        result: str | None,
        *,
        why: str = "",
        retry: bool = False,
    ) -> Call:
        claim = self._claims.pop(call.id)
        if ok and result is not None:
            value = codec.loads(result)
            try:
                codec.canonical(value)
            except InvalidCall as error:
                result, why = None, str(error)
            else:
                return row_of(await self._client.result(claim, value))
        if result is None:
            return row_of(await self._client.report(claim, "not_kept", why))
        try:
            return row_of(await self._client.result(claim, error=result))
        except SaysoError as lost:
            log.warning("%s: its failure could not be reported: %s", call.id, lost)
            return call._replace(status=CallStatus.FAILED, result=result)

    async def suspend(self, call: Call, *, elsewhere: bool = False) -> Call:
        return row_of(await self._client.report(self._claims.pop(call.id), "paused"))

    async def doubt(self, call: Call, reason: str) -> Call:
        claim = self._claims.pop(call.id)
        try:
            return row_of(await self._client.report(claim, "in_doubt", reason))
        except SaysoError as lost:
            log.warning("%s: no report got through, its claim will lapse: %s", call.id, lost)
            return call

    async def settle(self, call: Call, ask: Settler) -> Call:
        raise SaysoError("a doubt on a server is settled by the people there")

    @contextmanager
    def lease(self, entry: RunEntry, call: Call, began: float) -> Iterator[Claim]:
        claim, over = self._claims[call.id], threading.Event()
        name = f"sayso-claim-{call.id}"
        # An OS thread, because the function that runs meanwhile may block the event loop.
        threading.Thread(target=self._beat, args=(claim, over), name=name, daemon=True).start()
        try:
            yield claim
        finally:
            over.set()

    def _beat(self, claim: Claim, over: threading.Event) -> None:
        while not over.wait(claim.lease / 3):
            try:
                ours = self._client.renew_sync(claim)
            except (SaysoError, RuntimeError) as error:  # a closed client is a RuntimeError
                log.warning("%s: the claim could not be renewed: %s", claim.request, error)
                continue
            if not ours:
                log.warning("%s: the claim is not ours any more", claim.request)
                return

    # -- the rest

    def inner_run(self, call: Call) -> str | None:
        return call.id  # the claim holds the call's own run

    async def request(self, call: Call) -> Request:
        return await self._client.wait(call.id, 0)

    async def stop_reason(self, call: Call) -> str:
        return ""

    async def leased(self, call: Call) -> Leased:
        return Leased(
            f"{call.id} is leased until its claim lapses: another process runs it, or died; come "
            "back then, or wait for it (wait=None)"
        )

    async def finish(self, entry: RunEntry, status: str, output: str | None = None) -> None:
        """The server ends a run when nothing of it is open."""


def _digest_of(plan: Plan) -> str:
    from sayso.schema import remote_tool  # brings jsonschema

    assert plan.tool is not None
    face = codec.loads(plan.tool.schema)
    tool = remote_tool(plan.tool_name, face["parameters"], face["returns"], plan.tool.description)
    return tool.digest


def _effect_key(plan: Plan, call: Call) -> str | None:
    """What the code makes of the arguments that would run, also after an edit."""
    return None if plan.effect_key is None else str(plan.effect_key(codec.loads(call.args)))
