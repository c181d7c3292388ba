"""Taking a run forward: ask the model, settle its calls, and again, until it pauses or is over.

The smallest set of commits: the reply with its calls (T1, with everything said since the last one), the
claim and the start of what was decided (T3), each result (T4), the last reply (T5). Nothing is written
before the model has answered, and nobody is told before it is written.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from assent import codec
from assent.agent import messages
from assent.agent.events import Ended, Requested, Result, Text
from assent.agent.models.base import ModelReply, ModelRequest, TextDelta
from assent.agent.state import RunState
from assent.agent.turn import Emit, Turn
from assent.engine.commands import Claim, Finish, Propose, Start
from assent.errors import Conflict
from assent.gate.leases import KEEPER, Lease
from assent.rows import LIVE, Call, CallStatus, Run, RunStatus
from assent.twin import News
from assent.types import Json, Request
from assent.views import request_of

if TYPE_CHECKING:
    from assent.agent.agent import Agent

_ENDINGS = {
    "length": "the model stopped at its length limit: raise the limit, or ask for less",
    "filter": "the model's answer was withheld by a content filter",
}


class Advance:
    """One process's work on one run."""

    def __init__(
        self,
        agent: Agent,
        thread: str,
        run: str,
        emit: Emit,
        *,
        requester: str = "",
        deps: Any = None,
        max_turns: int,
        streams: bool,
        parent_call: str | None = None,
    ) -> None:
        self.agent = agent
        self.gate = agent.gate
        self.store = agent.gate.store
        self.thread = thread
        self.run = run
        self.emit = emit
        self.requester = requester
        self.deps = deps
        self.max_turns = max_turns
        self.streams = streams
        self.parent_call = parent_call
        self.owner = f"{self.gate.owner}:{secrets.token_hex(4)}"
        self.turn: Turn | None = None
        self.turns = 0
        self.said: list[dict[str, Json]] = []
        self.unsaved: list[dict[str, Json]] = []
        self.usage: dict[str, int] = {}
        self._lease: Lease | None = None
        #: Why what was approved is asked again, where the agent changed meanwhile.
        self.ask_again = ""

    # -- beginning

    async def begin(self, text: str) -> Result:
        """A new run: the user's words are written together with the first reply."""
        self.said = await asyncio.to_thread(self._conversation)
        dangling = await asyncio.to_thread(self._answer_dangling)
        self.unsaved = [*dangling, messages.user(text)]
        return await self._guarded()

    async def again(self, run: Run) -> Result:
        """A run that was begun before, here or elsewhere."""
        self.requester = run.requester
        while True:
            if run.status not in LIVE:
                return await asyncio.to_thread(self._stored, run)
            if self._held_elsewhere(run):
                run = await self._attach(run)
                continue
            await asyncio.to_thread(self._load_turn)
            claimed = await self._claim()
            if claimed is None:
                await asyncio.to_thread(self._refresh)
                run = await asyncio.to_thread(self._the_run)
                if self._held_elsewhere(run) or run.status not in LIVE:
                    continue
                return self._paused()
            return await self._guarded()

    def _the_run(self) -> Run:
        run = self.store.run(self.run)
        if run is None:
            raise Conflict(f"run {self.run} is gone from the store")
        return run

    def _held_elsewhere(self, run: Run) -> bool:
        held = run.owner is not None and run.ready_at is not None
        return held and run.owner != self.owner and (run.ready_at or 0) > self.store.now()

    async def _attach(self, run: Run) -> Run:
        """Somebody else works on it: wait for what comes of that."""
        with closing(News(self.store, self.thread)) as news:
            current = await asyncio.to_thread(self._the_run)
            if self._held_elsewhere(current) and current.status in LIVE:
                await news.wait(min(self.gate.lease / 3, 5.0))
            return await asyncio.to_thread(self._the_run)

    def _conversation(self) -> list[dict[str, Json]]:
        return [codec.loads(body) for _, body in self.store.messages(self.thread)]

    def _load_turn(self) -> None:
        """The last reply and the rows of its calls."""
        self.said = self._conversation()
        replies = [m for m in self.said if m.get("run") == self.run]
        self.turns = len(replies)
        last = self.said[-1] if self.said else {}
        self.turn = None
        if last.get("role") == "assistant" and last.get("run") == self.run:
            self.turn = self._new_turn()
            self.turn.load(last)

    def _new_turn(self) -> Turn:
        return Turn(
            self.gate, self.agent.tools, self.thread, self.run, self.turns, self.emit, self.deps
        )

    def _refresh(self) -> None:
        if self.turn is not None:
            self.turn.refresh()

    def _answer_dangling(self) -> list[dict[str, Json]]:
        """Every call must have an answer before the next message: also those nobody will run now."""
        last = self.said[-1] if self.said else {}
        if last.get("role") != "assistant" or not (last.get("calls") or last.get("hosted")):
            return []
        turn = Turn(
            self.gate,
            self.agent.tools,
            self.thread,
            last["run"],
            last["turn"],
            self.emit,
            self.deps,
        )
        turn.load(last)
        return [slot.message for slot in turn.slots]

    async def _claim(self) -> Run | None:
        """Take the run and start what was decided, in one commit; nothing if nothing is to do."""
        turn = self.turn
        ready = [] if turn is None else await turn.startable(self.owner, self.ask_again)
        self.ask_again = ""
        if turn is not None:
            await asyncio.to_thread(turn.refresh)
            if turn.open and not ready and not self._lapsed():
                return None
        began = time.monotonic()
        claim = Claim(
            thread=self.thread,
            run=self.run,
            owner=self.owner,
            lease=self.gate.lease_micros,
            force=True,
        )
        commands: list[Any] = [claim]
        if ready:
            commands.append(
                Start(
                    thread=self.thread,
                    run=self.run,
                    calls=tuple(ready),
                    owner=self.owner,
                    lease=self.gate.lease_micros,
                )
            )
        claimed, *started = await asyncio.to_thread(self.store.transact, *commands)
        if claimed is None:
            return None
        run: Run = claimed
        self._keep(run.token, began)
        if started and turn is not None:
            turn.placed(started[0])
        if turn is not None:
            await asyncio.to_thread(turn.refresh)
        return run

    def _lapsed(self) -> bool:
        run = self._the_run()
        return run.owner is not None and (run.ready_at or 0) <= self.store.now()

    def _keep(self, token: int, began: float) -> None:
        self._let_go()
        self._lease = Lease(self.store, self.thread, self.run, token, self.gate.lease, began)
        KEEPER.keep(self._lease)

    def _let_go(self) -> None:
        if self._lease is not None:
            KEEPER.drop(self._lease)
            self._lease = None

    # -- going on

    async def _guarded(self) -> Result:
        try:
            return await self._go()
        finally:
            self._let_go()

    async def _go(self) -> Result:
        while True:
            if self.turn is not None:
                if not await self._settle():
                    return self._paused()
                self.unsaved += [slot.message for slot in self.turn.slots]
                self.turn = None
            if self.turns >= self.max_turns:
                return await self._fail(f"no answer after {self.max_turns} turns: raise max_turns")
            reply = await self._ask()
            result = await self._take(reply)
            if result is not None:
                return result

    async def _settle(self) -> bool:
        """Run what may run; true when every call of the turn has its answer."""
        turn = self.turn
        assert turn is not None
        while True:
            await turn.execute(self.owner, self.requester, self._visible())
            await asyncio.to_thread(turn.refresh)
            waiting = turn.open
            if not waiting:
                return True
            # A call that paused by itself is ready as well, but waits for its own question.
            if turn.inner or not any(self._can_start(call) for call in waiting):
                return False
            if await self._claim() is None:
                return False

    def _can_start(self, call: Call) -> bool:
        assert self.turn is not None
        return call.status is CallStatus.READY and not self.turn.asked_by(call)

    def _visible(self) -> list[dict[str, Json]]:
        return [*self.said, *self.unsaved]

    async def _ask(self) -> ModelReply:
        request = ModelRequest(
            instructions=self.agent.instructions,
            messages=self._visible(),
            tools=[tool.face for tool in self.agent.tools.values()],
            tool_choice=self.agent.tool_choice,
            parallel_tool_calls=self.agent.parallel_tool_calls,
            output_schema=None if self.agent.output is None else self.agent.output.schema,
            settings=self.agent.settings,
        )
        if not self.streams:
            reply = await self.agent.model.reply(request)
            if reply.text:
                self.emit(Text(reply.text))
        else:
            reply = ModelReply()
            async for piece in self.agent.model.stream(request):
                if isinstance(piece, TextDelta):
                    self.emit(Text(piece.text))
                else:
                    reply = piece
        for name, count in reply.usage.items():
            self.usage[name] = self.usage.get(name, 0) + count
        return reply

    async def _take(self, reply: ModelReply) -> Result | None:
        """Write the reply; a result when the run is over or waits for people."""
        if reply.calls or reply.approvals:
            return await self._take_calls(reply)
        message = {**reply.message, "run": self.run}
        ending = _ENDINGS.get(reply.finish)
        if ending is not None:
            return await self._fail(ending, message)
        if self.agent.output is None or reply.refusal:
            return await self._finish(message, "done", codec.dumps(reply.refusal or reply.text))
        try:
            value = self.agent.output.read(reply.text)
        except ValueError as error:
            self.turns += 1
            note = f"Your answer does not fit what was asked for: {error}. Answer again."
            self.unsaved += [message, messages.user(note)]
            return None
        return await self._finish(message, "done", self.agent.output.dump(value))

    async def _take_calls(self, reply: ModelReply) -> Result | None:
        self.turns += 1
        turn = self.turn = self._new_turn()
        planned = await turn.plan(reply)
        message = {**reply.message, "run": self.run, "turn": self.turns, "errors": turn.errors}
        if reply.approvals:
            message["hosted"] = [
                {"id": h.id, "server": h.server, "name": h.name, "arguments": h.arguments}
                for h in reply.approvals
            ]
        self.unsaved.append(message)
        began = time.monotonic()
        calls = await self._write(planned)
        turn.placed(calls)
        if any(call.status is CallStatus.RUNNING for call in calls):
            self._keep(calls[0].token or max(call.token for call in calls), began)
        for call in calls:
            if call.status is CallStatus.ASKED:
                request = await asyncio.to_thread(self._request, call)
                self.emit(Requested(request))
                await asyncio.to_thread(self.gate.tell, request, 10.0)
        await asyncio.to_thread(turn.refresh)
        return None

    async def _write(self, planned: tuple[Any, ...]) -> tuple[Call, ...]:
        frees = any(new.terms.verdict == "allow" for new in planned)
        waits = any(new.terms.verdict == "ask" for new in planned)
        command = Propose(
            thread=self.thread,
            run=self.run,
            agent=self.agent.name,
            calls=planned,
            tools=tuple(tool.stored for tool in self.agent.tools.values() if tool.asks is None),
            messages=messages.stored(self.run, self.unsaved),
            requester=self.requester,
            agent_digest=self.agent.digest,
            parent_call=self.parent_call,
            owner=self.owner if frees else None,
            lease=self.gate.lease_micros,
            hold=not waits,
        )
        (calls,) = await asyncio.to_thread(self.store.transact, command)
        self.said += self.unsaved
        self.unsaved = []
        written: tuple[Call, ...] = calls
        return written

    async def _fail(self, why: str, message: dict[str, Json] | None = None) -> Result:
        return await self._finish(message, "failed", why)

    async def _finish(self, message: dict[str, Json] | None, status: str, output: str) -> Result:
        """The last commit; a run of one reply opens and ends in it."""
        if message is not None:
            self.unsaved.append(message)
        said = messages.stored(self.run, self.unsaved)
        opens = Propose(
            thread=self.thread,
            run=self.run,
            agent=self.agent.name,
            messages=said,
            requester=self.requester,
            agent_digest=self.agent.digest,
            parent_call=self.parent_call,
            hold=True,
        )
        ends = Finish(thread=self.thread, run=self.run, status=status, output=output)
        await asyncio.to_thread(self.store.transact, opens, ends)
        return await asyncio.to_thread(lambda: self._stored(self._the_run()))

    # -- telling

    def _request(self, call: Call) -> Request:
        tool = self.store.tool(call.tool_digest) if call.tool_digest else None
        return request_of(call, tool)

    def _paused(self) -> Result:
        turn = self.turn
        waiting: list[Request] = []
        if turn is not None:
            asked = (CallStatus.ASKED, CallStatus.IN_DOUBT)
            calls = [call for call in turn.open if call.status in asked]
            calls += [inside for call in turn.open for inside in turn.asked_by(call)]
            waiting = [self._request(call) for call in calls] + turn.inner
        return self._ended(
            Result(
                status="paused",
                run=self.run,
                thread=self.thread,
                interruptions=tuple(waiting),
                usage=self.usage,
                state=self._state(tuple(waiting)),
            )
        )

    def _stored(self, run: Run) -> Result:
        output: Any = None
        error = ""
        if run.status is RunStatus.DONE and run.output is not None:
            typed = self.agent.output
            output = codec.loads(run.output)
            if typed is not None:
                try:
                    output = typed.load(run.output)
                except ValueError:
                    error = "the stored answer does not fit output_type"
        elif run.status is RunStatus.FAILED:
            error = run.output or "failed"
        elif run.status is RunStatus.CANCELLED:
            error = f"cancelled: {run.stop}"
        return self._ended(
            Result(
                status=str(run.status),
                run=run.id,
                thread=run.thread,
                output=output,
                error=error,
                usage=self.usage,
                state=self._state(()),
            )
        )

    def _ended(self, result: Result) -> Result:
        self.emit(Ended(result))
        return result

    def _state(self, waiting: tuple[Request, ...]) -> RunState:
        return RunState(
            run=self.run,
            thread=self.thread,
            agent=self.agent.name,
            store=self.store,
            incarnation=self.store.incarnation,
            interruptions=waiting,
        )
