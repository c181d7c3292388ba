"""The life of one call whose row is on a server: open, wait, claim, run once, report.

The same as at a gate: look at how the request stands and do the one thing that this allows next.
What is lost between claim and report, the server puts in doubt when the claim has lapsed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sayso import codec
from sayso.client.client import LONGEST_POLL, Claim
from sayso.client.heartbeat import Heartbeat
from sayso.client.reading import row_of
from sayso.client.wire import nap
from sayso.errors import Conflict, Paused, SaysoError, told
from sayso.gate.endings import ending
from sayso.gate.inside import refuse_own_call, refuse_own_run, working
from sayso.gate.plan import Plan
from sayso.gate.scope import RunScope
from sayso.types import Request
from sayso.views import question_from

if TYPE_CHECKING:
    from sayso.client.gate import RemoteGate

log = logging.getLogger("sayso.client")

_FIRST_NAP, _LONGEST_NAP = 0.1, 3.0


class RemoteLife:
    """Takes one planned call to its end, or raises ``Paused`` on the way."""

    def __init__(
        self, remote: RemoteGate, scope: RunScope, plan: Plan, options: Mapping[str, Any]
    ) -> None:
        self._remote = remote
        self._client = remote.client
        self._scope = scope
        self._plan = plan
        self._options = options
        # Inside a function that runs here there is no pausing: a claim cannot be handed back.
        wait = None if scope.running else plan.wait
        self._deadline = None if wait is None else time.monotonic() + wait
        self._pause = _FIRST_NAP

    async def outcome(self) -> Any:
        """The call's result: run now, or stored from before."""
        request = await self._open()
        while True:
            if request.execution.status == "ready":
                claim = await self._claim(request)
                if claim is not None:
                    return await self._run(claim, request)
                request = await self._client.wait(request.id, 0)
            elif request.status == "pending" or request.execution.status == "running":
                request = await self._await(request)
            else:
                return self._ended(request)

    async def _open(self) -> Request:
        plan, client = self._plan, self._client
        content = codec.loads(plan.args)
        options: dict[str, Any] = {
            **self._options,
            "key": plan.key,
            "run": self._scope.name,
            "requester": self._scope.requester,
            "note": plan.note,
        }
        if plan.kind == "question":
            return await client.ask(question_from(content), **options)
        if plan.tool is None:
            return await client.confirm(content["text"], content["details"], **options)
        face = codec.loads(plan.tool.schema)
        options |= {"schema": face["parameters"], "returns": face["returns"]}
        options["description"] = plan.tool.description
        return await client.open(plan.tool_name, content, **options)

    # -- waiting

    async def _await(self, request: Request) -> Request:
        """Wait until the request moves on; ``Paused`` when the caller's patience is over."""
        if request.execution.status == "running":
            refuse_own_call(request.id)
        while True:
            left = self._left()
            # What runs elsewhere ends by itself, or its claim does: that is worth waiting for.
            if left is not None and left <= 0 and request.status == "pending":
                raise Paused(self._scope.name, [request])
            poll = LONGEST_POLL if left is None or left <= 0 else left
            began = time.monotonic()
            seen = await self._client.wait(request.id, poll)
            if _state(seen) != _state(request):
                return seen
            if time.monotonic() - began < min(poll, LONGEST_POLL) / 2:
                await self._rest()  # a server that does not wait by itself is not to be rushed

    def _left(self) -> float | None:
        return None if self._deadline is None else self._deadline - time.monotonic()

    async def _rest(self) -> None:
        left = self._left()
        await nap(self._pause if left is None or left <= 0 else min(self._pause, left))
        self._pause = min(self._pause * 2, _LONGEST_NAP)

    # -- running

    async def _claim(self, request: Request) -> Claim | None:
        """The right to run it, unless somebody else has it, or works on this run just now."""
        try:
            claim = await self._client.claim(request.id, lease=self._remote.lease)
        except Conflict as error:
            refuse_own_run(self._client.url, self._scope.name)
            log.info("%s: not claimed: %s", request.id, error)
            await self._rest()
            return None
        # It took longer than the lease to hear of it: the server has given it up by now.
        return None if claim.lapsed else claim

    async def _run(self, claim: Claim, request: Request) -> Any:
        """The effect itself: after this line only a report or a doubt."""
        effect = self._plan.effect
        with Heartbeat(self._client, claim):
            if effect is None:
                await self._client.result(claim, True)
                return True
            call = row_of(request, claim.args, claim.attempt)
            try:
                here = working(self._client.url, self._scope.name, request.id)
                with self._remote.nested(request).inside(), here:
                    value, text = await effect(call)
                result = codec.parse(codec.canonical(codec.loads(text)))
            except Exception as error:
                await self._failed(claim, error)
                raise
            await self._client.result(claim, result)
            return value

    async def _failed(self, claim: Claim, error: Exception) -> None:
        try:
            await self._client.result(claim, error=told(error))
        except SaysoError as lost:
            error.add_note(f"and that could not be reported ({lost}): {claim.request} is in doubt")

    # -- ending

    def _ended(self, request: Request) -> Any:
        """The result of a closed request, or the error that it means."""
        if request.execution.status == "done" or request.status == "responded":
            return self._plan.load(codec.dumps(request.execution.result))
        raise ending(row_of(request), request, "")


def _state(request: Request) -> tuple[str, str, int, int]:
    """What must change before a waiting caller has something to do."""
    execution = request.execution
    return request.status, execution.status, request.revision, execution.attempts
