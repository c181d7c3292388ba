"""A guarded DSPy agent behaves like the bare one where no decision is needed."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from dspy.utils import DummyLM
from dspy.utils.callback import BaseCallback
from harness_dspy import dspy

from sayso import Gate, Paused, Policy, Rule
from sayso.adapters.dspy import guard

ALLOW = Policy([Rule("pay", verdict="allow")])
ASK = Policy([Rule("pay")])


def step(name: str, **args: Any) -> dict[str, str]:
    return {"next_thought": "Hm.", "next_tool_name": name, "next_tool_args": json.dumps(args)}


SCRIPT = [step("pay", to="ana"), step("finish"), {"reasoning": "It is over.", "answer": "Done."}]


def pay(to: str, amount: int = 1) -> str:
    """Pay somebody."""
    return f"paid {amount} to {to}"


def scripted() -> Any:
    return DummyLM(SCRIPT)


def agent(**options: Any) -> Any:
    made = dspy.ReAct("question -> answer", tools=[pay])
    made.callbacks = options.get("callbacks", [])
    return made


def guarded(policy: Policy = ALLOW, **options: Any) -> Any:
    return guard(agent(**options), Gate("memory://", agent="teller", wait=0), policy)


@pytest.fixture(params=["alone", "in a module"])
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """Return a bare and a guarded agent, alone or inside a module of the user's own."""
    both = agent(), guarded()
    return both if request.param == "alone" else (Program(both[0]), Program(both[1]))


class Program(dspy.Module):  # type: ignore[misc]
    """A module of the user's own that holds an agent."""

    def __init__(self, agent: Any) -> None:
        super().__init__()
        self.agent = agent

    def forward(self, question: str) -> Any:
        return self.agent(question=question)

    async def aforward(self, question: str) -> Any:
        return await self.agent.acall(question=question)


class Recorder(BaseCallback):
    """Records what happens, but not that the guard is a module around the agent."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def on_module_start(self, call_id: str, instance: Any, inputs: Any) -> None:
        if type(instance).__name__ != "GuardedReAct":
            self.events.append(("module", type(instance).__name__))

    def on_lm_start(self, call_id: str, instance: Any, inputs: Any) -> None:
        self.events.append(("lm", inputs["messages"]))

    def on_tool_start(self, call_id: str, instance: Any, inputs: Any) -> None:
        self.events.append(("tool", instance.name, inputs))

    def on_tool_end(self, call_id: str, outputs: Any, exception: Any = None) -> None:
        self.events.append(("tool ended", outputs, exception))


def test_guard_is_a_module(pair: Any) -> None:
    bare, ours = pair
    assert isinstance(ours, dspy.Module)
    with dspy.context(lm=scripted()):
        expected = bare(question="go")
    with dspy.context(lm=scripted()):
        prediction = ours(question="go")
    assert isinstance(prediction, dspy.Prediction)
    assert prediction.toDict() == expected.toDict()
    assert prediction.trajectory["observation_0"] == "paid 1 to ana"


async def test_awaited_guard_returns_prediction(pair: Any) -> None:
    bare, ours = pair
    with dspy.context(lm=scripted()):
        expected = await bare.acall(question="go")
    with dspy.context(lm=scripted()):
        assert (await ours.acall(question="go")).toDict() == expected.toDict()


async def test_called_guard_raises_paused() -> None:
    with dspy.context(lm=scripted()):
        expected = await agent().acall(question="go")
    ours = guarded(ASK)
    with dspy.context(lm=scripted()):
        with pytest.raises(Paused) as paused:
            await ours.acall(question="go", thread="t")
        (request,) = paused.value.requests
        result = await ours.resume("t", decisions=[request.approve()])
    assert result.raw.toDict() == expected.toDict()


async def test_guard_streams_as_bare(pair: Any) -> None:
    streams = []
    for program in pair:
        with dspy.context(lm=scripted()):
            status = dspy.streaming.StatusMessageProvider()
            streamed = dspy.streamify(program, status_message_provider=status)
            streams.append([str(chunk) async for chunk in streamed(question="go")])
    assert streams[0] == streams[1]
    assert "Calling tool pay..." in streams[0][0]


def test_stream_listener_finds_predictor(pair: Any) -> None:
    from dspy.streaming.streaming_listener import find_predictor_for_stream_listeners

    for program in pair:
        listener = dspy.streaming.StreamListener(signature_field_name="reasoning")
        assert list(find_predictor_for_stream_listeners(program, [listener]))


def test_guard_reports_the_same_usage(pair: Any) -> None:
    reported = []
    for program in pair:
        with dspy.context(lm=scripted(), track_usage=True):
            reported.append(program(question="go").get_lm_usage())
    assert reported[0] == reported[1]
    assert reported[0]


def test_callbacks_see_the_same(pair: Any) -> None:
    seen = []
    for program in pair:
        recorder = Recorder()
        with dspy.context(lm=scripted(), callbacks=[recorder]):
            program(question="go")
        seen.append(recorder.events)
    assert seen[0] == seen[1]


def test_callbacks_of_agent_see_the_same() -> None:
    seen = []
    for make in (agent, guarded):
        recorder = Recorder()
        with dspy.context(lm=scripted()):
            make(callbacks=[recorder])(question="go")
        seen.append(recorder.events)
    assert seen[0] == seen[1] == [("module", "ReAct")]


def test_guard_traces_as_bare(pair: Any) -> None:
    """Optimizers learn from the trace, and look its predictors up in the program."""
    traces = []
    for program in pair:
        with dspy.context(lm=scripted(), trace=[]):
            program(question="go")
            trace = list(dspy.settings.trace)
        names = {id(predictor): name for name, predictor in program.named_predictors()}
        traces.append([(names[id(p)], given, made.toDict()) for p, given, made in trace])
    assert traces[0] == traces[1]
    assert len(traces[0]) == 3


def test_state_of_bare_agent_loads(pair: Any, tmp_path: Path) -> None:
    bare, ours = pair
    demo = dspy.Example(question="Why?", trajectory="", answer="So.")
    bare.named_predictors()[0][1].demos = [demo]
    bare.save(tmp_path / "state.json")
    ours.load(tmp_path / "state.json")
    assert ours.dump_state() == bare.dump_state()
    assert [name for name, _ in ours.named_predictors()] == [n for n, _ in bare.named_predictors()]


def test_state_does_not_reach_original_agent() -> None:
    bare = agent()
    ours = guard(bare, Gate("memory://", agent="teller", wait=0), ALLOW)
    ours.set_lm(scripted())
    ours.react = None
    assert [predictor.lm for predictor in bare.predictors()] == [None, None]
    assert ours(question="go").answer == "Done."


def test_best_of_runs_a_guard() -> None:
    best = dspy.BestOfN(Program(guarded()), N=2, reward_fn=lambda *_: 0.5, threshold=1.0)
    best.module.set_lm(DummyLM(SCRIPT * 2))
    assert best(question="go").answer == "Done."


def test_module_around_agent_is_refused() -> None:
    with pytest.raises(TypeError, match=r"takes a dspy\.ReAct or a dspy\.ReActV2, not Program"):
        guard(Program(agent()), Gate("memory://", agent="teller", wait=0))


def test_pickling_is_refused_with_a_reason() -> None:
    with pytest.raises(TypeError, match="cannot be pickled, because they hold an open store"):
        pickle.dumps(guarded())
