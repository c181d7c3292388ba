"""Google ADK: confirmations, sessions, streams, callbacks, validators."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App
from google.adk.models import LlmRequest, LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools import FunctionTool, ToolContext
from google.genai import types
from google_adk_world import Turns, World, call
from harness_google_adk import FakeModel, run_bare
from pydantic import AfterValidator, BaseModel

import sayso
from sayso.adapters.google_adk import guard, resume

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

PAY = sayso.Policy([sayso.Rule("pay")])
FREE = sayso.Policy([sayso.Rule("*", verdict="allow")])


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, sayso.Policy([]))
    yield world
    world.gate.close()


class TestConfirmation:
    """``require_confirmation`` and ``request_confirmation`` ask in the inbox."""

    async def test_required_confirmation_is_a_request(self, world: World) -> None:
        tool = FunctionTool(world.pay, require_confirmation=True)
        guarded = guard(world.agent([call("pay", to="ana")], "Done.", tools=[tool]), world.gate)
        result = await guarded.run("go", thread="t")
        (request,) = result.interruptions
        assert (request.tool, world.ran) == ("pay", [])
        result = await guarded.resume("t", decisions=[request.approve()])
        assert (result.output, world.ran) == ("Done.", ["ana"])

    @pytest.mark.parametrize(("to", "status"), [("ana", "done"), ("bob", "paused")])
    async def test_confirmation_predicate_selects_calls(
        self, world: World, to: str, status: str
    ) -> None:
        tool = FunctionTool(world.pay, require_confirmation=lambda to: to == "bob")
        guarded = guard(world.agent([call("pay", to=to)], "Done.", tools=[tool]), world.gate)
        assert (await guarded.run("go", thread="t")).status == status

    async def test_rule_overrides_the_flag(self, world: World) -> None:
        tool = FunctionTool(world.pay, require_confirmation=True)
        agent = world.agent([call("pay", to="ana")], "Done.", tools=[tool])
        assert (await guard(agent, world.gate, FREE).run("go", thread="t")).output == "Done."

    async def test_tool_without_flag_runs_if_no_rule_matches(self, world: World) -> None:
        agent = world.agent([call("pay", to="ana")], "Done.", tools=[world.pay])
        assert (await guard(agent, world.gate).run("go", thread="t")).output == "Done."

    @pytest.mark.parametrize("confirmed", [True, False])
    async def test_confirmation_in_body_is_asked(self, world: World, confirmed: bool) -> None:
        runs: list[bool | None] = []

        def book(days: int, tool_context: ToolContext) -> str:
            confirmation = tool_context.tool_confirmation
            runs.append(None if confirmation is None else confirmation.confirmed)
            if confirmation is None:
                tool_context.request_confirmation(hint="Really a week?")
                return "waiting"
            return "booked" if confirmation.confirmed else "not booked"

        agent = world.agent([call("book", days=7)], "Done.", tools=[book])
        guarded = guard(agent, world.gate)
        result = await guarded.run("go", thread="t")
        (request,) = result.interruptions
        assert "Really a week?" in str(request)
        decision = request.approve() if confirmed else request.reject("too long")
        result = await guarded.resume("t", decisions=[decision])
        assert (result.output, runs) == ("Done.", [None, confirmed])
        said = "booked" if confirmed else "not booked"
        assert agent.model.script.heard == [("call_1", said, False)]

    async def test_payload_is_the_answer_to_a_question(self, world: World) -> None:
        def book(days: int, tool_context: ToolContext) -> str:
            confirmation = tool_context.tool_confirmation
            if confirmation is None:
                tool_context.request_confirmation(hint="How many?", payload={"days": 0})
                return "waiting"
            return f"booked {confirmation.payload['days']}"

        agent = world.agent([call("book", days=7)], "Done.", tools=[book])
        guarded = guard(agent, world.gate)
        (request,) = (await guarded.run("go", thread="t")).interruptions
        assert request.kind == "question"
        answer = {"confirmed": True, "payload": {"days": 3}}
        await guarded.resume("t", decisions=[request.respond(answer)])
        assert agent.model.script.heard == [("call_1", "booked 3", False)]

    async def test_unguarded_agent_keeps_native_confirmation(self, world: World) -> None:
        tool = FunctionTool(world.pay, require_confirmation=True)
        agent = world.agent([call("pay", to="ana")], "Done.", tools=[tool])
        guard(world.agent("x"), world.gate)
        await run_bare(agent, "go")
        assert world.ran == []


class TestSession:
    async def test_tool_state_survives_resume_and_turns(self, world: World) -> None:
        def note(text: str, tool_context: ToolContext) -> str:
            tool_context.state["notes"] = [*tool_context.state.get("notes", []), text]
            return "noted"

        turns = [call("note", "n", text="x"), call("pay", "p", to="ana")]
        agent = world.agent(
            turns,
            "Done.",
            [call("note", "n2", text="y")],
            "Again.",
            tools=[note, world.pay],
            instruction="Notes: {notes?}",
        )
        guarded = guard(agent, world.gate, PAY, state={"notes": ["first"]})
        (request,) = (await guarded.run("go", thread="t")).interruptions
        await guarded.resume("t", decisions=[request.approve()])
        result = await guarded.run("more", thread="t")
        assert result.raw[1].actions.state_delta == {"notes": ["first", "x", "y"]}

    async def test_later_turn_continues_with_last_agent(self, world: World) -> None:
        turn = [call("transfer_to_agent", "o1", agent_name="clerk")]
        clerk = world.agent("Hello.", "Again.", name="clerk")
        guarded = guard(world.agent(turn, sub_agents=[clerk]), world.gate)
        assert (await guarded.run("go", thread="t")).output == "Hello."
        assert (await guarded.run("and", thread="t")).raw[-1].author == "clerk"

    async def test_raw_has_all_runner_events(self, world: World) -> None:
        agent = world.agent([call("pay", to="ana")], "Done.", tools=[world.pay])
        result = await guard(agent, world.gate).run("go", thread="t")
        kinds = [
            (event.author, [type(part.text).__name__ for part in event.content.parts])
            for event in result.raw
        ]
        assert kinds == [("boss", ["NoneType"]), ("boss", ["NoneType"]), ("boss", ["str"])]
        assert result.raw[-1].is_final_response()

    async def test_output_schema_keeps_its_type(self, world: World) -> None:
        class Paid(BaseModel):
            to: str

        agent = world.agent('{"to": "ana"}', output_schema=Paid)
        guarded = guard(agent, world.gate)
        assert (await guarded.run("go", thread="t")).output == Paid(to="ana")
        assert (await guarded.resume("t")).output == Paid(to="ana")

    async def test_resume_function_accepts_decisions(self, world: World) -> None:
        agent = world.agent([call("pay", to="ana")], "Done.", tools=[world.pay])
        guarded = guard(agent, world.gate, PAY)
        (request,) = (await guarded.run("go", thread="t")).interruptions
        assert (await resume(guarded, "t", [request.approve()])).output == "Done."

    async def test_plugin_of_app_is_used(self, world: World) -> None:
        seen: list[str] = []

        class Watch(BasePlugin):
            async def before_tool_callback(self, *, tool: Any, **more: Any) -> None:
                seen.append(tool.name)

        agent = world.agent([call("pay", to="ana")], "Done.", tools=[world.pay])
        app = App(name="app", root_agent=agent, plugins=[Watch(name="watch")])
        assert (await guard(app, world.gate).run("go", thread="t")).output == "Done."
        assert seen == ["pay"]


class Streaming(FakeModel):
    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncIterator[LlmResponse]:
        async for response in super().generate_content_async(llm_request, stream):
            text = response.content.parts[0].text if response.content else None
            for word in (text or "").split() if stream else ():
                part = types.Part(text=word)
                yield LlmResponse(content=types.Content(role="model", parts=[part]), partial=True)
            yield response


class TestStreaming:
    async def test_stream_has_partial_events_and_pauses(self, world: World) -> None:
        agent = world.agent([call("pay", to="ana")], "All is done.", tools=[world.pay])
        agent.model = Streaming(script=agent.model.script)
        config = RunConfig(streaming_mode=StreamingMode.SSE)
        guarded = guard(agent, world.gate, PAY, run_config=config)
        stream = guarded.stream("go", thread="t")
        calls = [event.get_function_calls() for event in [each async for each in stream]]
        assert [made.name for made in calls[0]] == ["pay"]
        (request,) = stream.result.interruptions
        stream = guarded.stream_resume("t", decisions=[request.approve()])
        events = [event async for event in stream]
        assert [event.partial for event in events] == [None, True, True, True, None]
        assert stream.result.output == "All is done."


class TestCallbacks:
    async def test_people_see_arguments_of_callback(self, world: World) -> None:
        def change(tool: Any, args: dict[str, Any], tool_context: ToolContext) -> None:
            args["to"] = "bob"

        agent = world.agent(
            [call("pay", to="ana")], "Done.", tools=[world.pay], before_tool_callback=change
        )
        guarded = guard(agent, world.gate, PAY)
        (request,) = (await guarded.run("go", thread="t")).interruptions
        assert dict(request.args) == {"to": "bob"}
        await guarded.resume("t", decisions=[request.approve()])
        assert world.ran == ["bob"]

    async def test_callback_that_answers_needs_no_approval(self, world: World) -> None:
        agent = world.agent(
            [call("pay", to="ana")],
            "Done.",
            tools=[world.pay],
            before_tool_callback=lambda tool, args, tool_context: {"result": "cached"},
        )
        assert (await guard(agent, world.gate, PAY).run("go", thread="t")).output == "Done."
        assert world.ran == []

    async def test_model_callbacks_are_not_repeated_by_resume(self, world: World) -> None:
        seen: list[int] = []

        def before(callback_context: Any, llm_request: LlmRequest) -> None:
            seen.append(len(llm_request.contents))

        agent = world.agent(
            [call("pay", to="ana")], "Done.", tools=[world.pay], before_model_callback=before
        )
        guarded = guard(agent, world.gate, PAY)
        (request,) = (await guarded.run("go", thread="t")).interruptions
        await guarded.resume("t", decisions=[request.approve()])
        assert seen == [1, 3]

    async def test_error_reaches_error_callback(self, world: World) -> None:
        def broken() -> str:
            raise ValueError("no funds")

        agent = world.agent(
            [call("broken")],
            "Done.",
            tools=[broken],
            on_tool_error_callback=lambda tool, args, tool_context, error: {"result": str(error)},
        )
        guarded = guard(agent, world.gate)
        assert (await guarded.run("go", thread="t")).output == "Done."
        assert agent.model.script.heard == [("call_1", "no funds", False)]


counted: list[int] = []


def counting(value: int) -> int:
    counted.append(value)
    return value + len(counted)


class Payment(BaseModel):
    to: str
    euros: Annotated[int, AfterValidator(lambda euros: euros * 2)] = 3


class Unstable(BaseModel):
    euros: Annotated[int, AfterValidator(counting)]


class TestValidators:
    """ADK validates arguments whose type is a model of pydantic."""

    def agent(self, payments: list[Any], kind: Any = Payment, **args: Any) -> tuple[Any, LlmAgent]:
        def send(payment: Any) -> str:
            payments.append(payment)
            return "sent"

        send.__annotations__["payment"] = kind
        model = FakeModel(script=Turns([[call("send", payment=args)], "Done."]))
        return model.script, LlmAgent(name="boss", model=model, tools=[send])

    async def test_people_see_validated_form_and_written_form_runs(self, world: World) -> None:
        payments: list[Any] = []
        _, agent = self.agent(payments, to="ana", euros="5")
        guarded = guard(agent, world.gate, sayso.Policy([sayso.Rule("*")]))
        (request,) = (await guarded.run("go", thread="t")).interruptions
        assert dict(request.args) == {"payment": {"to": "ana", "euros": 10}}
        edit = request.edit({"payment": {"to": "bob", "euros": "6"}})
        await guarded.resume("t", decisions=[edit])
        assert [(type(paid), paid.to, paid.euros) for paid in payments] == [(Payment, "bob", 12)]

    async def test_rules_judge_validated_form(self, world: World) -> None:
        _, agent = self.agent([], to="ana", euros=5)
        rules = sayso.Policy(
            [sayso.Rule("send", where="payment.euros > 9"), sayso.Rule("*", verdict="allow")]
        )
        assert (await guard(agent, world.gate, rules).run("go", thread="t")).status == "paused"

    async def test_value_that_changes_after_approval_does_not_run(self, world: World) -> None:
        payments: list[Any] = []
        script, agent = self.agent(payments, Unstable, euros=5)
        guarded = guard(agent, world.gate, sayso.Policy([sayso.Rule("*")]))
        (request,) = (await guarded.run("go", thread="t")).interruptions
        await guarded.resume("t", decisions=[request.approve()])
        assert payments == []
        assert "change on each validation" in script.heard[0][1]

    async def test_validation_runs_for_form_and_run(self, world: World) -> None:
        counted.clear()
        _, agent = self.agent([], Unstable, euros=5)
        assert (await guard(agent, world.gate, FREE).run("go", thread="t")).status == "done"
        assert counted == [5, 5]


class TestWrongUse:
    def test_other_objects_are_refused(self, world: World) -> None:
        with pytest.raises(TypeError, match="an agent or an App of ADK"):
            guard("agent", world.gate)  # type: ignore[arg-type]

    def test_reserved_runner_option_is_refused(self, world: World) -> None:
        with pytest.raises(TypeError, match="session_service"):
            guard(world.agent("x"), world.gate, session_service=None)

    async def test_inner_guarded_agent_uses_its_rules(self, world: World) -> None:
        clerk = guard(world.clerk(), world.gate, PAY)

        async def delegate(task: str) -> str:
            """Ask another agent."""
            return str((await clerk.run(task)).output)

        rules = sayso.Policy([sayso.Rule("delegate", verdict="allow", effect="idempotent")])
        guarded = guard(world.boss(delegate), world.gate, rules)
        (request,) = (await guarded.run("go", thread="t")).interruptions
        assert (request.tool, world.ran) == ("pay", [])
        result = await guarded.resume("t", decisions=[request.approve()])
        assert (result.output, world.ran) == ("Done.", ["ana"])
