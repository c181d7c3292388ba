"""Everything that a DSPy agent runs is behind the gate, or refused."""

from __future__ import annotations

import asyncio
import copy
import json
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from dspy.lm15 import BuiltinTool, Config, Message, Request, TextPart
from dspy.primitives.local_interpreter import LocalInterpreter
from dspy.utils import DummyLM
from harness_dspy import dspy

import sayso
from sayso.adapters.dspy import guard


def pay(to: str) -> str:
    """Pay somebody."""
    return f"paid {to}"


@pytest.fixture
def gate() -> sayso.Gate:
    return sayso.Gate("memory://", agent="teller", wait=0)


def react(*tools: Any) -> Any:
    return dspy.ReAct("question -> answer", tools=list(tools))


def test_coverage_lists_the_tool(gate: sayso.Gate) -> None:
    coverage = guard(react(pay), gate).coverage()
    assert [(one.kind, one.name, one.gated) for one in coverage] == [("tool", "pay", True)]


def test_hosted_tool_is_refused_unless_ungated(gate: sayso.Gate) -> None:
    class Model:
        def __init__(self) -> None:
            self.kwargs = {"tools": [{"type": "web_search"}]}

    with pytest.raises(sayso.InvalidCall, match="hosted tool 'web_search' of teller"):
        guard(react(pay), gate, lm=Model())
    model = DummyLM(END)
    model.kwargs["tools"] = [{"type": "web_search"}]
    named = guard(react(pay), gate, lm=model, ungated=["web_search"])
    assert named.run_sync("go", thread="t").output == "Done."
    (noted,) = [event for _, event in gate.store.events(0, 100) if event.type == "ungated"]
    assert "web_search" in str(noted.body)


def test_code_act_is_refused_with_alternative(gate: sayso.Gate) -> None:
    with warnings.catch_warnings(action="ignore"):
        agent = dspy.CodeAct("question -> answer", tools=[pay])
    with pytest.raises(TypeError, match=r"code that the model writes.* Use dspy\.ReAct"):
        guard(agent, gate)


def test_original_agent_is_not_changed(gate: sayso.Gate) -> None:
    agent = react(pay)
    before = dict(vars(agent)), dict(agent.tools)
    guard(agent, gate)
    assert (dict(vars(agent)), dict(agent.tools)) == before
    assert agent.tools["pay"].func is pay


ARGUMENTS: Any = [
    ("extra_body", {"tools": [{"type": "web_search"}]}),
    ("mcp_servers", [{"url": "https://x"}]),
    ("web_search_options", {"search_context_size": "low"}),
    ("invented_later", True),
]


class TestModelArguments:
    """An argument of the model that may bring tools of the provider is refused."""

    @pytest.mark.parametrize(("name", "value"), ARGUMENTS)
    def test_unlisted_argument_is_refused(self, gate: sayso.Gate, name: str, value: Any) -> None:
        model = dspy.LM("openai/gpt-5", **{name: value})
        with pytest.raises(sayso.InvalidCall, match=f"model argument '{name}' of teller"):
            guard(react(pay), gate, lm=model)
        coverage = guard(react(pay), gate, lm=model, ungated=[name]).coverage()
        assert ("model argument", name, False) in {(c.kind, c.name, c.gated) for c in coverage}

    def test_plain_arguments_are_accepted(self, gate: sayso.Gate) -> None:
        function = {"type": "function", "function": {"name": "pay"}}
        model = dspy.LM("openai/gpt-5", temperature=1.0, max_tokens=16000, tools=[function])
        assert guard(react(pay), gate, lm=model)

    async def test_late_argument_is_refused(self, gate: sayso.Gate) -> None:
        agent = react(pay)
        agent.react.config["extra_body"] = {"tools": []}
        with pytest.raises(sayso.SaysoError, match=r"ungated=\['extra_body'\]"):
            await guard(agent, gate, lm=DummyLM(END)).run("go", thread="t")


# -- modules that code in a tool runs


def step(name: str, **args: Any) -> dict[str, str]:
    return {"next_thought": "Hm.", "next_tool_name": name, "next_tool_args": json.dumps(args)}


END = [step("finish"), {"reasoning": "It is over.", "answer": "Done."}]
PAY = sayso.Rule("pay")
RULES = sayso.Policy([PAY, sayso.Rule("*", verdict="allow", effect="idempotent")])
ONCE = sayso.Policy([PAY, sayso.Rule("*", verdict="allow", effect="once")])


class Office:
    """Pays people, and hires agents that do."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.model = DummyLM([step("pay", to="ana"), *END])

    @property
    def tool(self) -> dspy.Tool:
        def pay(to: str) -> str:
            """Pay somebody."""
            self.ran.append(to)
            return f"paid {to}"

        return dspy.Tool(pay)

    def clerk(self) -> Any:
        agent = dspy.ReAct("question -> answer", tools=[self.tool])
        agent.set_lm(self.model)
        return agent


class Program(dspy.Module):  # type: ignore[misc]
    """A module of the user's own, whose model chooses a payment."""

    def __init__(self, office: Office) -> None:
        super().__init__()
        self.choose = dspy.Predict("question -> answer")
        self.choose.lm = DummyLM([{"answer": "ana"}])
        self.tool = office.tool

    def forward(self, question: str) -> Any:
        return dspy.Prediction(answer=self.tool(to=self.choose(question=question).answer))


class Holder(dspy.Module):  # type: ignore[misc]
    """A module of the user's own that holds an agent."""

    def __init__(self, office: Office) -> None:
        super().__init__()
        self.agent = office.clerk()

    def forward(self, question: str) -> Any:
        return self.agent(question=question)


def awaited(office: Office) -> Any:
    async def delegate(task: str) -> str:
        """Await an agent."""
        return str((await office.clerk().acall(question=task)).answer)

    return delegate


def called(office: Office) -> Any:
    def delegate(task: str) -> str:
        """Call an agent."""
        return str(office.clerk()(question=task).answer)

    return delegate


def called_on_loop(office: Office) -> Any:
    async def delegate(task: str) -> str:
        """Call an agent, and block the event loop."""
        return str(office.clerk()(question=task).answer)

    return delegate


def forward(office: Office) -> Any:
    def delegate(task: str) -> str:
        """Run the loop of an agent."""
        return str(office.clerk().forward(question=task).answer)

    return delegate


def copied(office: Office) -> Any:
    def delegate(task: str) -> str:
        """Call a copy of an agent."""
        return str(copy.copy(office.clerk())(question=task).answer)

    return delegate


def in_module(office: Office) -> Any:
    def delegate(task: str) -> str:
        """Call a module that holds an agent."""
        return str(Holder(office)(question=task).answer)

    return delegate


def own_module(office: Office) -> Any:
    def delegate(task: str) -> str:
        """Let a model choose a payment."""
        return str(Program(office)(question=task).answer)

    return delegate


def tool_called(office: Office) -> Any:
    def delegate(task: str) -> str:
        """Call a tool."""
        return str(office.tool(to="ana"))

    return delegate


def tool_awaited(office: Office) -> Any:
    async def delegate(task: str) -> str:
        """Await a tool."""
        return str(await office.tool.acall(to="ana"))

    return delegate


def tool_call_executed(office: Office) -> Any:
    def delegate(task: str) -> str:
        """Execute a call that a model might have made."""
        made = dspy.ToolCalls.from_dict_list([{"name": "pay", "args": {"to": "ana"}}])
        return str(made.tool_calls[0].execute([office.tool]))

    return delegate


def in_pool(office: Office) -> Any:
    def delegate(task: str) -> str:
        """Call an agent on another OS thread."""
        with ThreadPoolExecutor(1) as pool:
            return str(pool.submit(office.clerk(), question=task).result().answer)

    return delegate


def in_thread(office: Office) -> Any:
    def delegate(task: str) -> str:
        """Call an agent on another OS thread, and ignore what it raises."""
        asking = threading.Thread(target=lambda: office.clerk()(question=task))
        asking.start()
        asking.join()
        return "asked"

    return delegate


def in_parallel(office: Office) -> Any:
    def delegate(task: str) -> str:
        """Call an agent with DSPy's own OS threads."""
        pairs = [(office.clerk(), {"question": task})]
        return str(dspy.Parallel(num_threads=1, disable_progress_bar=True)(pairs))

    return delegate


def asyncified(office: Office) -> Any:
    async def delegate(task: str) -> str:
        """Await an agent that runs in a worker thread."""
        return str((await dspy.asyncify(office.clerk())(question=task)).answer)

    return delegate


def swallowed(office: Office) -> Any:
    def delegate(task: str) -> str:
        """Call an agent, and ignore what it raises."""
        try:
            return str(office.clerk()(question=task).answer)
        except BaseException:
            return "ignored"

    return delegate


SHAPES = [
    awaited,
    called,
    called_on_loop,
    forward,
    copied,
    in_module,
    own_module,
    tool_called,
    tool_awaited,
    tool_call_executed,
    in_pool,
    in_thread,
    in_parallel,
    asyncified,
    swallowed,
]


def boss(gate: sayso.Gate, tool: Any, policy: sayso.Policy = RULES, **options: Any) -> Any:
    script = DummyLM([step("delegate", task="pay ana"), *END])
    return guard(react(tool), gate, policy, lm=script, **options)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
class TestUnguardedModules:
    """Code in a tool runs a module or a tool that nobody guarded."""

    async def test_idempotent_call_is_paused(self, gate: sayso.Gate, shape: Any) -> None:
        office = Office()
        guarded = boss(gate, shape(office))
        result = await guarded.run("go", thread="t")
        assert (result.status, office.ran) == ("paused", [])
        (request,) = result.interruptions
        assert (request.tool, dict(request.args)) == ("pay", {"to": "ana"})
        result = await guarded.resume("t", decisions=[request.edit({"to": "bob"})])
        assert (result.output, office.ran) == ("Done.", ["bob"])
        assert len(office.model.history) in (0, 3)  # at most once for each reply

    async def test_once_call_is_not_paused(self, gate: sayso.Gate, shape: Any) -> None:
        office = Office()
        result = await boss(gate, shape(office), ONCE).run("go", thread="t")
        assert (result.status, office.ran) == ("done", [])
        rows = [row for row in gate.store.calls_of("teller:t") if row.tool == "pay"]
        assert "gate.once(" in str(rows[0].decision)

    async def test_allowed_call_is_recorded(self, gate: sayso.Gate, shape: Any) -> None:
        office = Office()
        allow = sayso.Policy([sayso.Rule("*", verdict="allow", effect="once")])
        assert (await boss(gate, shape(office), allow).run("go", thread="t")).output == "Done."
        assert office.ran == ["ana"]
        rows = gate.store.calls_of("teller:t")
        assert {row.tool for row in rows if row.status == "done"} == {"delegate", "pay"}

    async def test_unguarded_agent_is_not_touched(self, gate: sayso.Gate, shape: Any) -> None:
        guard(react(pay), gate)
        office = Office()
        agent = react(shape(office))
        agent.set_lm(DummyLM([step("delegate", task="pay ana"), *END]))
        assert (await agent.acall(question="go")).answer == "Done."
        assert office.ran == ["ana"]


class TestEscapes:
    """Code in a tool leaves the context of its call, and runs an agent that nobody guarded."""

    def delegate(self, office: Office, run_elsewhere: Any) -> Any:
        def delegate(task: str) -> str:
            """Run an agent somewhere else."""
            run_elsewhere(lambda: office.clerk()(question=task))
            return "started"

        return delegate

    @pytest.mark.parametrize("policy", [RULES, ONCE], ids=["idempotent", "once"])
    async def test_call_without_decision_does_not_run(
        self, gate: sayso.Gate, run_elsewhere: Any, policy: sayso.Policy
    ) -> None:
        office = Office()
        guarded = boss(gate, self.delegate(office, run_elsewhere), policy)
        result = await guarded.run("go", thread="t")
        assert (result.status in ("paused", "done"), office.ran) == (True, [])

    async def test_unguarded_agent_is_not_touched(
        self, gate: sayso.Gate, run_elsewhere: Any
    ) -> None:
        guard(react(pay), gate)
        office = Office()
        agent = react(self.delegate(office, run_elsewhere))
        agent.set_lm(DummyLM([step("delegate", task="pay ana"), *END]))
        await asyncio.to_thread(agent, question="go")
        assert office.ran == ["ana"]


def streamed(office: Office) -> Any:
    async def delegate(task: str) -> str:
        """Stream what an agent does."""
        program = dspy.streamify(office.clerk())
        return str([chunk async for chunk in program(question=task)][-1])

    return delegate


def with_best_of(office: Office) -> Any:
    def delegate(task: str) -> str:
        """Choose the best of an agent's answers."""
        best = dspy.BestOfN(office.clerk(), N=1, reward_fn=lambda *_: 1.0, threshold=1.0)
        return str(best(question=task).answer)

    return delegate


def evaluated(office: Office) -> Any:
    def delegate(task: str) -> str:
        """Evaluate an agent."""
        examples = [dspy.Example(question=task).with_inputs("question")]
        evaluate = dspy.Evaluate(
            devset=examples, metric=lambda *_: 1.0, num_threads=1, display_progress=False
        )
        return str(evaluate(office.clerk()))

    return delegate


def in_batch(office: Office) -> Any:
    def delegate(task: str) -> str:
        """Run an agent for each example."""
        examples = [dspy.Example(question=task).with_inputs("question")]
        return str(office.clerk().batch(examples, num_threads=1))

    return delegate


def own_loop(office: Office) -> Any:
    class Own(dspy.ReAct):  # type: ignore[misc]
        def forward(self, **inputs: Any) -> Any:
            return dspy.Prediction(answer=self.tools["pay"](to="ana"))

    def delegate(task: str) -> str:
        """Call an agent with a loop of the user's own."""
        return str(Own("question -> answer", tools=[office.tool])(question=task).answer)

    return delegate


@pytest.mark.parametrize("policy", [RULES, ONCE], ids=["idempotent", "once"])
@pytest.mark.parametrize("shape", [streamed, with_best_of, evaluated, in_batch, own_loop])
async def test_wrapped_module_does_not_run_unapproved(
    gate: sayso.Gate, shape: Any, policy: sayso.Policy
) -> None:
    office = Office()
    result = await boss(gate, shape(office), policy).run("go", thread="t")
    assert (result.status in ("paused", "done"), office.ran) == (True, [])


class OwnTool(dspy.Tool):  # type: ignore[misc]
    """A tool that calls its function itself."""

    def __call__(self, **kwargs: Any) -> Any:
        return self.func(**kwargs)


@pytest.mark.parametrize("policy", [RULES, ONCE], ids=["idempotent", "once"])
async def test_tool_overriding_call_does_not_run(gate: sayso.Gate, policy: sayso.Policy) -> None:
    office = Office()

    def delegate(task: str) -> str:
        """Call an agent whose tool bypasses DSPy."""
        agent = dspy.ReAct("question -> answer", tools=[OwnTool(office.tool.func)])
        agent.set_lm(office.model)
        return str(agent(question=task).answer)

    guarded = boss(gate, delegate, policy)
    if policy is RULES:
        assert (await guarded.run("go", thread="t")).status == "paused"
    else:
        with pytest.raises(sayso.SaysoError, match="OwnTool calls its function itself"):
            await guarded.run("go", thread="t")
    assert office.ran == []


def own_tool(effect: Any, method: str = "__call__") -> Any:
    """Return a tool whose own method has the effect, and not its function."""

    def call(self: Any, **kwargs: Any) -> Any:
        return effect(**kwargs)

    async def acall(self: Any, **kwargs: Any) -> Any:
        return effect(**kwargs)

    def pay(to: str) -> str:
        """Pay somebody."""
        raise AssertionError

    kind: Any = type("OwnTool", (dspy.Tool,), {method: acall if method == "acall" else call})
    return kind(pay)


@pytest.mark.parametrize("method", ["__call__", "acall"])
async def test_own_method_of_tool_runs_approved(gate: sayso.Gate, method: str) -> None:
    office = Office()
    tool = own_tool(office.tool.func, method)
    guarded = guard(react(tool), gate, RULES, lm=office.model)
    paused = await guarded.run("go", thread="t")
    assert (paused.status, office.ran) == ("paused", [])
    (request,) = paused.interruptions
    assert (await guarded.resume("t", decisions=[request.approve()])).status == "done"
    assert office.ran == ["ana"]


async def test_own_method_of_tool_added_later_does_not_run(gate: sayso.Gate) -> None:
    office = Office()
    guarded = guard(react(office.tool), gate, RULES, lm=office.model)
    guarded.agent.tools["pay"] = own_tool(office.tool.func)
    with pytest.raises(sayso.SaysoError, match="OwnTool calls its function itself"):
        await guarded.run("go", thread="t")
    assert office.ran == []


SENT: list[Any] = []


class Engine:
    """Sends requests to a provider that cannot be reached."""

    def complete(self, request: Any) -> Any:
        SENT.append(request)
        raise ConnectionError("no line")


class AsyncEngine:
    async def complete(self, request: Any) -> Any:
        return Engine().complete(request)


def provider() -> Any:
    SENT.clear()
    engines = {"engine": Engine(), "async_engine": AsyncEngine()}
    return dspy.LM("fake/m", cache=False, num_retries=0, **engines)


HOSTED = {"tools": [{"type": "web_search"}]}
WORDS = (Message(role="user", parts=(TextPart("Find it."),)),)
TYPED = Request(model="fake/m", messages=WORDS, tools=(BuiltinTool("web_search"),))
EXTENDED = Request(model="fake/m", messages=WORDS, config=Config(extensions={"fake": {"mcp": []}}))
SEARCHES: Any = {
    "called": lambda lm: lm("Find it.", **HOSTED),
    "awaited": lambda lm: asyncio.run(lm.acall("Find it.", **HOSTED)),
    "forward": lambda lm: lm.forward("Find it.", **HOSTED),
    "aforward": lambda lm: asyncio.run(lm.aforward("Find it.", **HOSTED)),
    "copied": lambda lm: lm.copy(extra_body=HOSTED)("Find it."),
    "typed": lambda lm: lm(TYPED),
    "typed by name": lambda lm: lm(request=TYPED),
    "typed extensions": lambda lm: lm(EXTENDED),
}


@pytest.mark.parametrize("search", SEARCHES)
class TestDirectRequests:
    """Code in a tool asks a model, whose provider would run tools, without a module."""

    async def test_request_is_not_sent(self, gate: sayso.Gate, search: str) -> None:
        model = provider()
        raised: list[Exception] = []

        def delegate(task: str) -> str:
            """Ask a model."""
            try:
                SEARCHES[search](model)
            except Exception as error:
                raised.append(error)
            return "found"

        await boss(gate, delegate).run("go", thread="t")
        assert (type(raised[0]), SENT) == (sayso.InvalidCall, [])

    async def test_unguarded_request_is_not_touched(self, gate: sayso.Gate, search: str) -> None:
        guard(react(pay), gate)
        with pytest.raises(dspy.utils.exceptions.LMError):
            await asyncio.to_thread(SEARCHES[search], provider())


async def test_inner_agent_may_name_ungated_tool(gate: sayso.Gate) -> None:
    model = DummyLM(END)
    model.kwargs["tools"] = [{"type": "web_search"}]
    inner = guard(react(pay), gate, lm=model, ungated=["web_search"])

    async def delegate(task: str) -> str:
        """Ask a guarded agent."""
        return str((await inner.run(task)).output)

    assert (await boss(gate, delegate).run("go", thread="t")).output == "Done."


class TestCodeOfModels:
    @pytest.mark.parametrize("kind", ["ProgramOfThought", "CodeAct", "RLM"])
    async def test_model_written_code_is_not_run(self, gate: sayso.Gate, kind: str) -> None:
        def delegate(task: str) -> str:
            """Let a model write code."""
            tools = {} if kind == "ProgramOfThought" else {"tools": [pay]}
            with warnings.catch_warnings(action="ignore"):
                program = getattr(dspy, kind)("question -> answer", **tools)
            return str(program(question=task).answer)

        with pytest.raises(sayso.SaysoError, match=f"{kind} was not run: .* a model writes"):
            await boss(gate, delegate).run("go", thread="t")

    @pytest.mark.parametrize("on_thread", [False, True])
    async def test_interpreter_is_not_run(self, gate: sayso.Gate, on_thread: bool) -> None:
        def code() -> Any:
            with warnings.catch_warnings(action="ignore"):
                return LocalInterpreter()("print(1)")

        def delegate(task: str) -> str:
            """Run code."""
            with ThreadPoolExecutor(1) as pool:
                return str(pool.submit(code).result() if on_thread else code())

        with pytest.raises(sayso.SaysoError, match="LocalInterpreter was not run"):
            await boss(gate, delegate).run("go", thread="t")


async def test_live_object_reaches_allowed_tool(gate: sayso.Gate) -> None:
    """A tool that code calls gets the objects that it was given, unless a person changed them."""
    received: list[Any] = []
    live = object()

    def use(thing: Any) -> str:
        """Use something."""
        received.append(thing)
        return "used"

    def delegate(task: str) -> str:
        """Use something live."""
        return str(dspy.Tool(use)(thing=live))

    assert (await boss(gate, delegate).run("go", thread="t")).output == "Done."
    assert received == [live]


async def test_tool_from_mcp_is_gated(gate: sayso.Gate) -> None:
    """DSPy itself defines the function of such a tool."""
    called: list[str] = []

    async def function(**kwargs: Any) -> str:
        called.append("pay")
        return "paid"

    function.__module__ = "dspy.utils.mcp"

    async def delegate(task: str) -> str:
        """Call a tool of a server."""
        return str(await dspy.Tool(function, name="pay", args={}, desc="Pay.").acall())

    assert (await boss(gate, delegate).run("go", thread="t")).status == "paused"
    assert called == []


async def test_guarded_where_it_is_built(gate: sayso.Gate) -> None:
    office = Office()

    async def delegate(task: str) -> str:
        """Build a guarded agent, and ask it."""
        inner = guard(office.clerk(), gate, RULES)
        return str((await inner.run(task)).output)

    guarded = boss(gate, delegate, ONCE)
    (request,) = (await guarded.run("go", thread="t")).interruptions
    assert (request.tool, office.ran) == ("pay", [])
