"""The loop that advances a run: call the model, settle its calls, repeat until it pauses or ends.

A turn needs few commits: the reply with its calls and all messages since the last reply, the claim
together with the start of what was decided, each result, and the last reply. Nothing is written
before the model has answered, and nothing is reported before it is written.

A process that resumes a run reads the stored state and does the one thing that is possible next.
So it does not matter which process asked or where the decision was made. A process that lost its
lease gets a ``Conflict`` when it writes, and then reads the state again like any other.

``docs/decisions/0061-agent-keeps-its-loop.md`` says why this is no ``FrameworkAgent``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from sayso import codec
from sayso.agent.conversation import Conversation, user_message
from sayso.agent.events import (
    AgentEvent,
    Ended,
    Errored,
    ModelAsked,
    ModelReplied,
    Requested,
    Started,
    Text,
)
from sayso.agent.execution import Execution, clear_startable, renew_previews, settle_doubts
from sayso.agent.models.base import ModelError, ModelReply, ModelRequest, TextDelta, with_ids
from sayso.agent.run_context import RunContext
from sayso.agent.sub_agent import wake_outer_run
from sayso.agent.turn import Turn
from sayso.engine.commands import EndLease, Finish, NewCall, Propose, ReadRun
from sayso.errors import Cancelled, Conflict, Leased, describe_error
from sayso.gate.driver import NOTICE_SECONDS
from sayso.gate.lease import RunLease
from sayso.gate.outcomes import in_text
from sayso.gate.run_result import ResultStatus, RunResult, RunState
from sayso.rows import LIVE, Run, RunStatus
from sayso.sync import read, to_thread, write, write_start
from sayso.text import many
from sayso.types import Verdict

T = TypeVar("T")

_CUT = {
    "length": "the model stopped at its length limit: raise the limit, or ask for less",
    "filter": "the model's answer was withheld by a content filter",
}
_REFUSED = "the model refused: "


class RunLoop:
    """One process's work on one run."""

    def __init__(self, ctx: RunContext) -> None:
        self.ctx = ctx
        self.store = ctx.store
        self.lease = RunLease(ctx.store, ctx.owner, ctx.gate.backend.lease_length).on(
            ctx.thread, ctx.run
        )
        #: The run's token as last read or taken. Writes with an older token are refused.
        self.token: int | None = None
        self.conversation = Conversation(ctx)
        self.turn: Turn | None = None
        #: When to stop waiting for another process, on the monotonic clock.
        self._until: float | None = None
        #: The run after our last commit or read, if that also covered every open call.
        self._seen: Run | None = None

    # -- entering a run

    async def start(self, text: str) -> RunResult:
        """Start a new run. The user's message is written together with the first reply."""
        return await self._guarded(lambda: self._start_run(text), resumed=False)

    async def resume(self, seen: Run | None = None, wait: float | None = None) -> RunResult:
        """Resume an existing run. ``seen`` is its row, if it was just read.

        ``wait`` is how many seconds to wait while another process works on it; None is forever.
        """
        self._until = None if wait is None else time.monotonic() + wait
        return await self._guarded(lambda: self._resume_run(seen), resumed=True)

    async def _guarded(
        self, work: Callable[[], Awaitable[RunResult]], *, resumed: bool
    ) -> RunResult:
        self.ctx.gate.backend.check_usable()
        self.ctx.tell(Started(resumed))
        try:
            result = await work()
        except BaseException as error:
            self.lease.release()
            self.ctx.tell(Errored(describe_error(error)))
            raise
        finally:
            self.lease.drop()
        if self.ctx.parent_call is not None and result.status not in LIVE:
            await wake_outer_run(self.store, self.ctx.parent_call)
        self.ctx.tell(Ended(result))
        return result

    async def _start_run(self, text: str) -> RunResult:
        while True:
            if not await read(self.store, self._open_thread, text):
                await self.lease.end_live_run(self.ctx.thread, self.ctx.requester or "user")
                continue
            try:
                return await self._advance()
            except (Cancelled, Conflict):
                # If our run was not written, another process used the thread first: start over.
                if await read(self.store, self.store.run, self.ctx.run) is not None:
                    return await self._resume_run()

    def _open_thread(self, text: str) -> bool:
        """Load the conversation, unless the thread has a live run."""
        if self.store.thread(self.ctx.thread) is None:
            self.conversation.begin()
        elif self.store.live_run(self.ctx.thread) is not None:
            return False
        else:
            self.conversation.load()
        last = self.conversation.last
        if last.get("calls") or last.get("hosted"):
            # Providers require results of the last reply's calls before a new message.
            turn = Turn(self.ctx, last["turn"], last["run"])
            turn.load(last)
            self.conversation.unsaved = [slot.message for slot in turn.slots]
        self.conversation.unsaved.append(user_message(text))
        return True

    async def _resume_run(self, seen: Run | None = None) -> RunResult:
        while True:
            ended = await self._enter(seen)
            if ended is not None:
                return ended
            try:
                return await self._advance()
            except Leased:
                raise
            except (Cancelled, Conflict):
                self.lease.drop()  # another process has the run, or it was cancelled: read again
                seen = None

    async def _enter(self, seen: Run | None) -> RunResult | None:
        """Load the run. Return a result if it is over or another process works on it."""
        run = await read(self.store, self.lease.current) if seen is None else seen
        if run.status in LIVE and self.lease.elsewhere(run):
            run = await self.lease.wait(self._until)
            if run.status in LIVE and self.lease.elsewhere(run):
                return self._ended(run)
        doubted: set[str] = set()
        if run.status in LIVE and run.lapsed(self.store.now()):
            doubted = {call.id for call in await self.lease.release_lapsed_run()}
        run = await read(self.store, self._load, run.token, doubted)
        return None if run.status in LIVE else self._ended(run)

    def _load(self, token: int, doubted: set[str]) -> Run:
        """Read the run, its conversation and the calls of its last reply, consistently.

        ``token`` is the run's token a moment ago. If it is unchanged after the conversation was
        read, no other process has written in between.
        """
        while True:
            self.conversation.load()
            run = self.lease.current()
            if run.token == token:
                break
            token = run.token
        self._seen, self.token = run, run.token
        last = self.conversation.last
        self.turn = None
        if last.get("run") == run.id and "turn" in last:
            self.turn = Turn(self.ctx, last["turn"])
            self.turn.load(last)
            for slot in self.turn.slots:
                if slot.call is not None and slot.call.id in doubted:
                    slot.reported_request, slot.was_open_before = (), False
        return run

    # -- the loop

    async def _advance(self) -> RunResult:
        while True:
            if self.turn is not None:
                result = await self._settle(self.turn)
                if result is not None:
                    return result
                self.conversation.unsaved += [slot.message for slot in self.turn.slots]
                self.turn = None
            most = self.ctx.max_turns or self.ctx.agent.max_turns
            if self.conversation.turns >= most:
                limit = f"no answer after {many(most, 'turn')}"
                return await self._finish(
                    "failed", f"{limit}: raise max_turns, or ask for less at a time"
                )
            result = await self._take(await self._call_model())
            if result is not None:
                return result

    async def _settle(self, turn: Turn) -> RunResult | None:
        """Run what may run. Return None once every call has a result, else the paused run."""
        while True:
            run = await self._work(turn)
            if run.status not in LIVE:
                return self._ended(run)
            if self.lease.elsewhere(run):
                raise Conflict(f"another process works on run {run.id}")
            if turn.startable or (turn.settled and run.owner != self.ctx.owner):
                await self._start_calls(turn)
            elif turn.settled:
                return None
            elif (await self.lease.park(run, turn.settle_at)).status is not RunStatus.RUNNING:
                waiting = await self._read(turn, turn.requests)
                return self._result("paused", interruptions=waiting)

    async def _work(self, turn: Turn) -> Run:
        """Run started calls, tell what is new, close what is overdue; then return the run."""
        while True:
            run, news = await self._read(turn, lambda: self._look(turn), self._seen is None)
            execution = Execution(turn, self.lease, self.conversation)
            if turn.overdue:
                await to_thread(turn.close_overdue)
            elif turn.in_doubt:
                await settle_doubts(turn)
            elif turn.needs_preview:
                await renew_previews(turn)
            elif execution.slots:
                if news and self.ctx.has_channels:
                    # People may take long to answer: the free calls run meanwhile.
                    await asyncio.gather(self._tell(news), execution.run())
                else:
                    await self._tell(news)
                    await execution.run()
                if turn.settled:
                    self._seen = execution.recorded
            elif news and self.ctx.has_channels:
                await self._tell(news)
            else:
                await self._tell(news)
                if not run.stop or run.owner != self.ctx.owner:
                    return run
                await to_thread(self.lease.release)

    async def _read(self, turn: Turn, function: Callable[[], T], read: bool = False) -> T:
        """Call a function that may read the store, in a worker thread only if it will."""
        if self.store.quick_reads or not (read or turn.needs_store):
            return function()
        return await to_thread(function)

    def _look(self, turn: Turn) -> tuple[Run, list[AgentEvent]]:
        """Read the run, then its calls. A decision made in between makes the run due again."""
        run, self._seen = self._seen, None
        read = run is None
        run = run or self.lease.current()
        turn.refresh(read)
        unfinished = turn.overdue or turn.in_doubt or turn.needs_preview
        return run, [] if unfinished else list(turn.news())

    async def _start_calls(self, turn: Turn) -> None:
        """Claim the run and start what may start, in one commit."""
        ready = await clear_startable(turn)
        if not ready and not turn.settled:
            return  # what was ready is asked again
        backend, ctx = self.ctx.gate.backend, self.ctx
        commands: list[Any] = [self.lease.claim()]
        if ready:
            commands.append(backend.start(ready, ctx.owner))
        began = time.monotonic()
        claimed, *started, run = await write_start(
            self.store, self._undo_start, *commands, ReadRun(thread=ctx.thread, run=ctx.run)
        )
        if claimed is None:
            raise Conflict(f"another process works on run {ctx.run}")
        self.lease.keep(claimed.token, began)
        self.token = claimed.token
        calls = started[0] if started else ()
        turn.place(calls, claimed.token)
        if turn.covered_by(calls):
            self._seen = run

    def _undo_start(self, results: list[Any]) -> list[Any]:
        """Return the commands that release the run and its calls if we are cancelled meanwhile."""
        claimed, *started, _ = results
        if claimed is None:
            return []
        ours = {call.id for call in started[0] if call.token == claimed.token} if started else set()
        back = self.ctx.gate.backend.undo_starts(ours, started[0] if started else (), alone=False)
        place = {"thread": claimed.thread, "run": claimed.id}
        return back or [EndLease(**place, token=claimed.token)]

    async def _tell(self, news: list[AgentEvent]) -> None:
        """Send events to the listeners and new requests to the channels."""
        for event in news:
            self.ctx.tell(event)
            if isinstance(event, Requested) and self.ctx.gate.channels:
                driver = self.ctx.gate.driver
                await driver.notify(event.request, NOTICE_SECONDS, again=event.again)

    # -- the model

    async def _call_model(self) -> ModelReply:
        """Return the next reply, with unique call ids, and without calls if it was cut."""
        agent, conversation = self.ctx.agent, self.conversation
        model, turn = agent.model.name, conversation.turns + 1
        choice = agent.tool_choice
        request = ModelRequest(
            instructions=agent.instructions,
            messages=conversation.for_model(),
            tools=[tool.spec for tool in agent.tools.values()],
            tool_choice=choice if conversation.turns == 0 else _unforced(choice),
            parallel_tool_calls=agent.parallel_tool_calls,
            output_schema=None if agent.output is None else agent.output.schema,
            settings=agent.settings,
        )
        self.ctx.tell(ModelAsked(model, turn))
        reply = await self._reply(request)
        if not isinstance(reply, ModelReply):  # the model may be anyone's code
            kind = type(reply).__name__
            raise ModelError(f"{model} returned a {kind}: a model must return a ModelReply")
        if reply.text and not self.ctx.streams:
            self.ctx.tell(Text(reply.text))
        self.ctx.tell(ModelReplied(model, turn, reply.finish, dict(reply.usage)))
        text, refusal = in_text(reply.text or ""), in_text(reply.refusal or "")
        if reply.finish in ("length", "filter", "refusal"):
            return replace(reply, text=text, refusal=refusal, calls=(), approvals=())
        if not (reply.calls or reply.approvals) and (text, refusal) == (reply.text, reply.refusal):
            return reply
        new_reply = (
            (in_text(c.id or ""), in_text(c.name or ""), _escaped(c.arguments)) for c in reply.calls
        )
        calls = with_ids(new_reply, conversation.call_ids) if reply.calls else ()
        hosted = tuple(replace(a, arguments=_escaped(a.arguments)) for a in reply.approvals)
        return replace(reply, text=text, refusal=refusal, calls=calls, approvals=hosted)

    async def _reply(self, request: ModelRequest) -> Any:
        model = self.ctx.agent.model
        if not self.ctx.streams:
            return await model.reply(request)
        reply: ModelReply | None = None
        async for piece in model.stream(request):
            if isinstance(piece, TextDelta):
                self.ctx.tell(Text(piece.text))
            else:
                reply = piece
        if reply is None:
            raise ModelError(f"{model.name} ended its stream without a reply")
        return reply

    # -- writing

    async def _take(self, reply: ModelReply) -> RunResult | None:
        """Write the reply. Return a result if it ends the run."""
        if reply.calls or reply.approvals:
            message = self.conversation.reply(reply)
            turn = Turn(self.ctx, self.conversation.turns)
            planned = await turn.plan(reply)
            self.conversation.unsaved.append({**message, "turn": turn.number, **turn.extras})
            await self._propose_calls(turn, planned)
            self.turn = turn
            return None
        self.conversation.unsaved.append(self.conversation.reply(reply))
        if reply.finish in _CUT:
            return await self._finish("failed", _CUT[reply.finish])
        if reply.refusal:
            return await self._finish("failed", _REFUSED + reply.refusal)
        typed = self.ctx.agent.output
        if typed is None:
            return await self._finish("done", codec.dumps(reply.text))
        try:
            value = typed.read(reply.text)
        except ValueError as error:
            note = f"Your answer does not match the required format: {error}. Answer again."
            self.conversation.unsaved.append(user_message(note))
            return None
        return await self._finish("done", typed.dump(value))

    async def _propose_calls(self, turn: Turn, planned: tuple[NewCall, ...]) -> None:
        verdicts = {new.terms.verdict for new in planned}
        ctx = self.ctx
        tools = [ctx.tools[new.tool] for new in planned if new.tool in ctx.tools]
        command = self._propose(
            calls=planned,
            tools=tuple({t.stored.digest: t.stored for t in tools if t.asks is None}.values()),
            owner=ctx.owner,
            lease=self.lease.micros,
            hold=Verdict.ASK not in verdicts,
        )
        # If nothing waits and nothing runs, the model is next, and the run must be ours for that.
        claim = () if verdicts & {Verdict.ASK, Verdict.ALLOW} else (self.lease.claim(),)
        began = time.monotonic()
        ids = {new.id for new in planned}
        calls, *_, run = await write_start(
            self.store,
            lambda results: ctx.gate.backend.undo_starts(ids, results[0], alone=False),
            command,
            *claim,
            ReadRun(thread=ctx.thread, run=ctx.run),
        )
        self.conversation.committed()
        self.token = run.token
        if run.owner == ctx.owner:
            self.lease.keep(run.token, began)
        turn.place(calls, run.token)
        self._seen = run if turn.covered_by(calls) else None
        new = [call for call in calls if call.terms.reviewer and call.id in ids]
        if new:
            reviewed = await asyncio.gather(*map(ctx.gate.backend.review, new))
            turn.place(reviewed, run.token)
            self._seen = None

    def _propose(self, **more: Any) -> Propose:
        ctx = self.ctx
        limit = None if ctx.max_turns is None else codec.dumps({"max_turns": ctx.max_turns})
        return Propose(
            thread=ctx.thread,
            run=ctx.run,
            agent=ctx.agent.name,
            messages=self.conversation.rows(),
            requester=ctx.requester,
            agent_digest=ctx.agent.digest,
            parent_call=ctx.parent_call,
            scope=ctx.refusal_scope,
            snapshot=limit,
            token=self.token,
            after=self.conversation.last_seq,
            **more,
        )

    async def _finish(self, status: str, output: str) -> RunResult:
        """Write the last reply and end the run. A run of one reply opens in the same commit."""
        ctx = self.ctx
        token = self.token or 0  # 0 for a run that opens in this commit
        ends = Finish(thread=ctx.thread, run=ctx.run, status=status, output=output, token=token)
        _, run = await write(self.store, self._propose(hold=True), ends)
        self.conversation.committed()
        return self._ended(run)

    # -- results

    def _ended(self, run: Run) -> RunResult:
        """Return the result of a run that ended, in any process and at any time."""
        output, error = None, ""
        typed = self.ctx.agent.output
        if run.status is RunStatus.FAILED:
            error = run.output or "failed"
        elif run.status is RunStatus.CANCELLED:
            error = f"cancelled: {run.stop}" if run.stop else "cancelled"
        else:
            text = run.output or "null"
            try:
                output = codec.loads(text) if typed is None else typed.load(text)
            except ValueError:
                output = codec.loads(text)
                error = "the stored answer does not fit the current output_type"
        refusal = error.removeprefix(_REFUSED) if error.startswith(_REFUSED) else ""
        return self._result(str(run.status), output=output, error=error, refusal=refusal)

    def _result(self, status: str, **more: Any) -> RunResult:
        run, thread = self.ctx.run, self.ctx.thread
        state = RunState(
            run=run,
            thread=thread,
            agent=self.ctx.agent.name,
            store=self.store,
            interruptions=more.get("interruptions", ()),
        )
        return RunResult(
            status=cast(ResultStatus, status),
            run=run,
            thread=thread,
            usage=dict(self.conversation.usage),
            state=state,
            **more,
        )


def _escaped(json: str) -> str:
    """Escape half surrogate pairs, so the text can be stored and is rejected as invalid JSON."""
    return json.encode(errors="backslashreplace").decode()


def _unforced(choice: str | Mapping[str, Any]) -> str | Mapping[str, Any]:
    """Return the tool choice after the first turn. A model always forced to call never answers."""
    if choice in ("auto", "none"):
        return choice
    if isinstance(choice, str) or choice.get("type") != "allowed_tools":
        return "auto"
    inner = choice.get("allowed_tools")
    if isinstance(inner, Mapping):
        return {**choice, "allowed_tools": {**inner, "mode": "auto"}}
    return {**choice, "mode": "auto"}
