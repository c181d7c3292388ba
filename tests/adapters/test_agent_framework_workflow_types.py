"""Workflows return the outputs of their executors in their types, in every process."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any, Never

import pytest
from agent_framework import (
    Agent,
    AgentExecutor,
    AgentExecutorRequest,
    AgentResponse,
    Executor,
    FileCheckpointStorage,
    Message,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    handler,
    response_handler,
    tool,
)
from agent_framework_world import World, call
from pydantic import BaseModel, Field
from store_world import pay_of

from sayso import InvalidCall
from sayso.adapters.agent_framework import GuardedWorkflow, guard
from sayso.adapters.agent_framework.workflow import ValueTypes
from sayso.gate.lease import RunLease

HERE = Path(__file__).parent


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Order(BaseModel):
    item: str
    count: int = Field(default=1, validation_alias="howMany", serialization_alias="amount")
    size: Size = Size.SMALL


@dataclass
class Ticket:
    item: str
    day: date


@dataclass
class Voucher:
    """The same fields as a ticket."""

    item: str
    day: date


@dataclass
class Minutes:
    """A dataclass that pydantic cannot validate: it holds the framework's messages."""

    said: list[Message]
    tickets: list[Ticket] = field(default_factory=list)


class Undeclared:
    def __str__(self) -> str:
        return "undeclared"


DAY = date(2026, 11, 17)
ORDER = Order.model_validate({"item": "pizza", "howMany": 2, "size": "large"})
TICKET, VOUCHER = Ticket("opera", DAY), Voucher("opera", DAY)

#: One output of each of the types that an executor declares.
OUTPUTS: dict[str, Any] = {
    "a model": ORDER,
    "a dataclass": TICKET,
    "one of a union": VOUCHER,
    "a list": [ORDER, ORDER],
    "a list of a union": [TICKET, VOUCHER, None],
    "nothing": None,
    "text": "done",
    "a number": 3,
    "a dict": {"first": TICKET, "second": VOUCHER},
    "a tuple": (1, DAY),
    "an enum": Size.LARGE,
}


class Yields(Executor):
    """Yields an output, before and after it asks a question."""

    def __init__(self, id: str, outputs: list[Any], asks: bool) -> None:
        super().__init__(id=id)
        self.outputs = outputs
        self.asks = asks

    @handler
    async def start(
        self,
        text: str,
        ctx: WorkflowContext[
            str,
            Order
            | Ticket
            | Voucher
            | list[Order]
            | list[Ticket | Voucher | None]
            | dict[str, Ticket | Voucher]
            | tuple[int, date]
            | Size
            | str
            | int
            | None,
        ],
    ) -> None:
        first, *_ = self.outputs
        await ctx.yield_output(first)
        if self.asks:
            await ctx.request_info("more?", bool)
        else:
            await self._rest(ctx)

    @response_handler
    async def answered(self, asked: str, answer: bool, ctx: WorkflowContext[str, Order]) -> None:
        await self._rest(ctx)

    async def _rest(self, ctx: Any) -> None:
        for output in self.outputs[1:]:
            await ctx.yield_output(output)
        await ctx.send_message("go on")


class Speaks(Executor):
    """Yields messages and a dataclass of them."""

    @handler
    async def speak(self, text: str, ctx: WorkflowContext[Never, list[Message] | Minutes]) -> None:
        said = [Message("assistant", [text], author_name="clerk")]
        await ctx.yield_output(said)
        await ctx.yield_output(Minutes(said, [TICKET]))


def yielding(world: World, outputs: list[Any], *, asks: bool) -> GuardedWorkflow:
    def build() -> Any:
        first, second = Yields("yields", outputs, asks), Speaks(id="speaks")
        built = WorkflowBuilder(name="types", start_executor=first)
        return built.add_edge(first, second).build()

    return guard(build, world.gate, checkpoints=world.folder / "checkpoints")


def assert_same(found: Any, wanted: Any) -> None:
    """Equal, and of the same types all the way down."""
    assert (type(found), found) == (type(wanted), wanted)
    if isinstance(wanted, list | tuple):
        for one, other in zip(found, wanted, strict=True):
            assert_same(one, other)


def assert_outputs(result: Any, wanted: list[Any]) -> None:
    assert (result.status, result.error) == ("done", "")
    *first, said, minutes = result.get_outputs()
    assert_same(first, wanted)
    assert [(type(m), m.text, m.author_name) for m in said] == [(Message, "go on", "clerk")]
    assert (type(minutes), minutes.said[0].text, minutes.tickets) == (Minutes, "go on", [TICKET])
    assert_same(result.output[: len(wanted)], wanted)


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("asks", [False, True], ids=["uninterrupted", "interrupted"])
async def test_outputs_have_declared_types(world: World, name: str, asks: bool) -> None:
    outputs = [OUTPUTS[name], ORDER, OUTPUTS[name]]
    result = await yielding(world, outputs, asks=asks).run("go", thread="t")
    if asks:
        assert (result.status, result.get_outputs()) == ("paused", [])
        await world.decide(lambda request: request.respond(True))
        result = await yielding(world, outputs, asks=asks).resume("t")
    assert_outputs(result, outputs)
    assert_outputs(await yielding(world, outputs, asks=asks).resume("t"), outputs)


async def test_output_survives_death_before_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(RunLease, "finish", dies)
        with pytest.raises(KeyboardInterrupt):
            await yielding(world, [TICKET], asks=False).run("go", thread="t")
    later = World(world.folder, hours=1)  # when its lease is over
    assert_outputs(await yielding(later, [TICKET], asks=False).resume("t"), [TICKET])
    later.close()


async def test_each_turn_returns_only_its_outputs(world: World) -> None:
    await yielding(world, [TICKET], asks=False).run("go", thread="t")
    result = await yielding(world, [VOUCHER], asks=False).run("again", thread="t")
    assert_outputs(result, [VOUCHER])
    assert_outputs(await yielding(world, [VOUCHER], asks=False).resume("t"), [VOUCHER])


def step(folder: str, what: str) -> None:
    """One process of ``test_outputs_survive_three_processes``."""

    async def go() -> None:
        world = World(Path(folder))
        outputs = list(OUTPUTS.values())
        guarded = yielding(world, outputs, asks=True)
        if what == "run":
            assert (await guarded.run("go", thread="t")).status == "paused"
        else:
            if what == "decide":
                await world.decide(lambda request: request.respond(True))
            assert_outputs(await guarded.resume("t"), outputs)
        world.close()

    asyncio.run(go())


@pytest.mark.long
def test_outputs_survive_three_processes(tmp_path: Path) -> None:
    for what in ("run", "decide", "look"):
        code = f"import {Path(__file__).stem} as here; here.step({str(tmp_path)!r}, {what!r})"
        subprocess.run([sys.executable, "-c", code], cwd=HERE, check=True, timeout=60)


async def test_undeclared_type_is_restored_as_json(world: World) -> None:
    """The process that made it has it; later there is only its JSON."""
    made = Undeclared()
    result = await yielding(world, [made, [made]], asks=False).run("go", thread="t")
    assert result.get_outputs()[:2] == [made, [made]]
    later = await yielding(world, [], asks=False).resume("t")
    assert (later.get_outputs()[:2], later.error) == (["undeclared", ["undeclared"]], "")


class Other(BaseModel):
    price: float


class Prices(Executor):
    @handler
    async def start(self, text: str, ctx: WorkflowContext[Never, Other]) -> None:
        await ctx.yield_output(Other(price=1.5))


async def test_changed_output_type_is_reported(world: World) -> None:
    await yielding(world, [ORDER], asks=False).run("go", thread="t")
    changed = WorkflowBuilder(name="types", start_executor=Prices(id="prices")).build()
    later = await guard(changed, world.gate, checkpoints=world.folder / "checkpoints").resume("t")
    assert later.error == "the stored output does not fit the current output type"
    assert later.output[0] == {"item": "pizza", "count": 2, "size": "large"}
    assert later.get_outputs() == []


# -- agents


def clerk(world: World, format: Any, said: str, *, inside: bool = False) -> GuardedWorkflow:
    def build() -> Any:
        agent = Agent(
            world.client([call("pay", "c1", to="ana")], said),
            name="clerk",
            tools=[tool(pay_of(world), approval_mode="always_require")],
            default_options={"response_format": format},
        )
        built = WorkflowBuilder(name="office", start_executor=AgentExecutor(agent)).build()
        if inside:
            nested = WorkflowExecutor(
                built, id="nested", allow_direct_output=True, propagate_request=True
            )
            built = WorkflowBuilder(name="house", start_executor=nested).build()
        return built

    return guard(build, world.gate, checkpoints=world.folder / "checkpoints")


@pytest.mark.parametrize("inside", [False, True], ids=["alone", "in a sub-workflow"])
async def test_agent_response_keeps_its_value(world: World, inside: bool) -> None:
    said = json.dumps({"item": "pizza", "howMany": 2, "size": "large"})
    await clerk(world, Order, said, inside=inside).run("pay", thread="t")
    await world.decide(lambda request: request.approve())
    for _ in range(2):  # the second comes from the store
        result = await clerk(world, Order, said, inside=inside).resume("t")
        (response,) = result.get_outputs()
        assert (type(response), response.text) == (AgentResponse, said)
        assert_same(response.value, ORDER)
        assert_same(result.output, ORDER)


async def test_agent_without_format_returns_text(world: World) -> None:
    await clerk(world, None, "Paid.").run("pay", thread="t")
    await world.decide(lambda request: request.approve())
    for _ in range(2):
        result = await clerk(world, None, "Paid.").resume("t")
        assert (result.output, result.get_outputs()[0].value) == ("Paid.", None)


async def test_unparsable_answer_is_returned_as_text(world: World) -> None:
    await clerk(world, Order, "no pizza").run("pay", thread="t")
    await world.decide(lambda request: request.approve())
    for _ in range(2):
        assert (await clerk(world, Order, "no pizza").resume("t")).output == "no pizza"


# -- inputs


class Takes(Executor):
    """Fails the first time, before there is a checkpoint of it."""

    def __init__(self, taken: list[Any]) -> None:
        super().__init__(id="takes")
        self.taken = taken

    @handler
    async def order(self, order: Order, ctx: WorkflowContext[Never, Order]) -> None:
        await self._take(order, ctx)

    @handler
    async def tickets(self, given: list[Ticket], ctx: WorkflowContext[Never, list[Ticket]]) -> None:
        await self._take(given, ctx)

    async def _take(self, given: Any, ctx: Any) -> None:
        self.taken.append(given)
        if len(self.taken) == 1:
            raise OSError("no network")
        await ctx.yield_output(given)


@pytest.mark.parametrize("given", [ORDER, [TICKET]], ids=["model", "list"])
async def test_input_is_restored_in_its_type(world: World, given: Any) -> None:
    taken: list[Any] = []

    def build() -> GuardedWorkflow:
        workflow = WorkflowBuilder(name="takes", start_executor=Takes(taken)).build()
        return guard(
            workflow, world.gate, checkpoints=lambda name: FileCheckpointStorage(world.folder / "c")
        )

    with pytest.raises(OSError, match="no network"):
        await build().run(given, thread="t")
    result = await build().resume("t")
    assert_same(taken, [given, given])
    assert_same(result.output, given)


async def test_input_with_messages_survives_a_resume(world: World) -> None:
    given = AgentExecutorRequest([Message("user", ["pay"])])
    await clerk(world, None, "Paid.").run(given, thread="t")
    await world.decide(lambda request: request.approve())
    assert (await clerk(world, None, "Paid.").resume("t")).output == "Paid."
    assert world.prompts == ["pay"]


async def test_unrestorable_input_is_refused(world: World) -> None:
    with pytest.raises(InvalidCall, match=r"Undeclared could not be restored in another process"):
        await yielding(world, [TICKET], asks=False).run(Undeclared(), thread="t")
    assert (await world.inbox.pending()).items == ()


class GivesMinutes(Executor):
    @handler
    async def give(self, text: str, ctx: WorkflowContext[Never, Minutes | Ticket]) -> None: ...


class GivesTickets(Executor):
    @handler
    async def give(self, text: str, ctx: WorkflowContext[Never, Ticket]) -> None: ...


def test_value_of_a_removed_type_is_its_json() -> None:
    """New code may have no such type when a run goes on."""
    minutes = Minutes([Message("user", ["hello"])], [Ticket("tea", DAY)])

    def types(executor: Executor) -> ValueTypes:
        return ValueTypes(WorkflowBuilder(start_executor=executor).build())

    before, after = types(GivesMinutes(id="gives")), types(GivesTickets(id="gives"))
    stored = json.loads(json.dumps(before.dump([minutes, {"day": "today"}])))
    (restored, _) = before.load_or_json(stored)
    assert (restored.tickets, restored.said[0].text) == (minutes.tickets, "hello")
    with pytest.raises(ValueError, match=r"the workflow no longer has the type .*Minutes"):
        after.load(stored)
    (as_json, today) = after.load_or_json(stored)
    assert as_json["tickets"] == [{"item": "tea", "day": "2026-11-17"}]
    assert today == {"day": "today"}
