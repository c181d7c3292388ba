"""A gate over HTTP behaves like a gate: the same calls, endings, runs and keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from remote_world import People, Server, yes
from waiting import until

import sayso
from sayso import DuplicateEffect, Option, Policy, Question, Rule
from sayso.audit.spans import ApprovalSpans
from sayso.client import RemoteGate
from sayso.gate.guard import this_call

Gates = Callable[..., RemoteGate]


def paying(gate: RemoteGate, ran: list[Any], **options: Any) -> Callable[..., str]:
    @gate.guard(**options)
    def pay(to: str, amount: int = 5) -> str:
        """Pay somebody."""
        ran.append((to, amount))
        return f"paid {amount} to {to}"

    return pay


def test_call_runs_once_after_approval(server: Server, people: People, gate_to: Gates) -> None:
    ran: list[Any] = []
    gate = gate_to(server.url, wait=0)
    pay = paying(gate, ran)
    with pytest.raises(sayso.Paused) as paused, gate.run("order-17", requester="rita"):
        pay("ana")
    (request,) = paused.value.requests
    assert (request.tool, request.agent, request.requester) == ("pay", "bot", "rita")
    assert request.args == {"to": "ana", "amount": 5}
    assert request.description == "Pay somebody."
    assert ran == []
    people.decide(yes)
    for _ in range(3):
        with gate.run("order-17", requester="rita"):
            assert pay("ana") == "paid 5 to ana"
    assert ran == [("ana", 5)]
    (run,) = [run for _, run in people.inbox.store.runs()]
    assert (run.id, run.status) == ("bot/order-17", "done")


def test_approved_arguments_run(server: Server, people: People, gate_to: Gates) -> None:
    ran: list[Any] = []
    pay = paying(gate_to(server.url), ran)
    people.will(lambda request: request.edit({"amount": 3}))
    assert pay("ana", 500) == "paid 3 to ana"
    assert ran == [("ana", 3)]


async def test_async_functions_wait_in_parallel(server: Server, people: People) -> None:
    async with RemoteGate(server.url, token=people.token("bot")) as gate:
        seen = []

        @gate.guard(effect="idempotent")
        async def double(n: int) -> int:
            await asyncio.sleep(0)
            seen.append(this_call())
            return n * 2

        people.will(yes, yes, yes)
        async with gate.run("sums"):
            assert await asyncio.gather(*(double(n) for n in range(3))) == [0, 2, 4]
        assert {call.attempt for call in seen} == {1}
        assert len({call.key for call in seen}) == 3
        assert {call.decision.by for call in seen if call.decision} == {"ana"}


def test_remote_call_has_an_approval_span(
    server: Server, people: People, url: str, gate_to: Gates
) -> None:
    provider = TracerProvider()
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with closing(sayso.open_store(url)) as store, ApprovalSpans(store, provider.get_tracer("test")):
        people.will(yes)
        assert gate_to(server.url).guard(name="pay")(lambda: "paid")() == "paid"
    (span,) = exporter.get_finished_spans()
    assert [event.name for event in span.events] == [
        *("sayso.asked", "sayso.decided", "sayso.started", "sayso.recorded")
    ]


def test_remote_agent_cannot_take_local_key(
    server: Server, people: People, url: str, gate_to: Gates
) -> None:
    local, ran = sayso.Gate(url, agent="bot", wait=0), list[str]()

    def refund(order: str) -> str:
        ran.append(order)
        return f"receipt {len(ran)}"

    with closing(local.store):
        remotely = gate_to(server.url).guard(effect_key="refund:{order}")(refund)
        here = local.guard(needs_approval=False, effect_key="refund:{order}")(refund)
        for odd in ("/refund:{order}", "../refund:{order}", "bot/refund:{order}"):
            people.will(yes)
            gate_to(server.url).guard(name=f"odd{len(ran)}", effect_key=odd)(refund)("17")
        people.will(yes)
        assert remotely("17") == "receipt 4"
        people.will(yes)
        with pytest.raises(DuplicateEffect):
            remotely("17")
        with local.run("local"):
            assert here("17") == "receipt 5"
        taken = [effect.key for effect in local.store.effects()]
        assert taken == [
            *("/refund:17", "bot/../refund:17", "bot//refund:17"),
            *("bot/bot/refund:17", "bot/refund:17"),
        ]


def test_title_preview_and_facts_reach_people(
    server: Server, people: People, gate_to: Gates
) -> None:
    ran: list[Any] = []
    balance = [100]
    gate = gate_to(server.url, wait=0)
    pay = paying(
        gate,
        ran,
        title="Pay {to}",
        preview=lambda to, amount: {"left": balance[0] - amount},
        binds=lambda: {"branch": "main"},
        effect_key=lambda args: f"pay {{{args['to']}}}",
    )

    def call(run: str = "order-17") -> Any:
        with gate.run(run):
            return pay("ana")

    with pytest.raises(sayso.Paused):
        call()
    request = people.next()
    assert (request.title, request.preview) == ("Pay ana", {"left": 95})
    people.decide(yes)
    balance[0] = 90  # a later preview is not what people saw, and no other call
    assert call() == "paid 5 to ana"
    assert people.inbox.get_sync(request.id).effect_key == "bot/pay {ana}"
    with pytest.raises(sayso.Paused):
        call("order-18")
    people.decide(yes)
    with pytest.raises(DuplicateEffect):
        call("order-18")
    assert ran == [("ana", 5)]


def test_changed_facts_ask_again(server: Server, people: People, gate_to: Gates) -> None:
    ran: list[Any] = []
    branch = ["main"]
    gate = gate_to(server.url)
    pay = paying(gate, ran, binds=lambda: {"branch": branch[0]})

    def change(request: sayso.Request) -> sayso.Decision:
        branch[0] = "other"
        return request.approve()

    people.will(change, yes)
    with gate.run("order-17"):
        assert pay("ana") == "paid 5 to ana"
    (request,) = people.inbox.history_sync().items
    assert (ran, request.revision) == ([("ana", 5)], 2)
    branch[0] = "third"  # nothing runs under facts that nobody has approved
    another = pytest.raises(sayso.Conflict, match="already used with another body")
    with another, gate.run("order-17"):
        pay("ana")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_interrupted_remote_call_is_in_doubt(
    server: Server, people: People, gate_to: Gates, error: BaseException
) -> None:
    gate = gate_to(server.url)
    ran: list[Any] = []

    @gate.guard
    def pay(to: str) -> None:
        ran.append(to)
        raise error

    people.will(yes)
    with pytest.raises(type(error)), gate.run("order-17"):
        pay("ana")
    doubt = people.next()
    assert (doubt.kind, doubt.execution.attempts, ran) == ("in_doubt", 1, ["ana"])


def test_one_approval_covers_the_retries_of_a_read(
    serve: Any, people: People, gate_to: Gates
) -> None:
    server = serve(policy=sayso.Policy([sayso.Rule("search", effect="read")]))
    gate, ran = gate_to(server.url), list[str]()

    @gate.guard
    def search(query: str) -> str:
        ran.append(query)
        if len(ran) < 3:
            raise TimeoutError("no answer")
        return f"found {query}"

    people.will(yes)
    with gate.run("look"):
        for _ in range(2):
            with pytest.raises(TimeoutError):
                search("tea")
        assert search("tea") == "found tea"
    assert (ran, len(people.inbox.history_sync().items)) == (["tea"] * 3, 1)


async def test_asking_and_approving(server: Server, people: People) -> None:
    async with RemoteGate(server.url, token=people.token("bot")) as gate:
        question = Question("Which size?", [Option("small", 1), Option("large", 2)])
        people.will(lambda request: request.respond(2))
        assert await gate.ask(question) == 2
        people.will(lambda request: request.respond("blue"))
        assert await gate.ask("Which colour?") == "blue"
        people.will(lambda request: request.reject("none of your business"))
        with pytest.raises(sayso.Rejected, match="none of your business"):
            await gate.ask("Your age?")
        people.will(yes, lambda request: request.reject())
        assert await gate.confirm("Publish?", {"version": "2.0"}) is True
        assert await gate.confirm("Delete?", {"what": "all"}) is False


def test_endings_raise_the_gates_errors(server: Server, people: People, gate_to: Gates) -> None:
    ran: list[Any] = []
    gate = gate_to(server.url)
    pay = paying(gate, ran)
    people.will(lambda request: request.reject("wrong customer"))
    with pytest.raises(sayso.Rejected, match="ana rejected it: wrong customer") as rejected:
        pay("ana")
    assert rejected.value.request is not None
    people.will(lambda request: request.respond("paid by hand"))
    assert pay("ana") == "paid by hand"
    with pytest.raises(sayso.Expired):
        paying(gate, ran, expires_in=0.2)("ben")
    assert ran == []


def test_cancelled_request_raises(server: Server, people: People, gate_to: Gates) -> None:
    ran: list[Any] = []
    gate = gate_to(server.url, wait=0)
    pay = paying(gate, ran)
    with pytest.raises(sayso.Paused) as paused, gate.run("r"):
        pay("ana")
    gate.client.cancel_sync(paused.value.requests[0].id, "not needed")
    with pytest.raises(sayso.Cancelled, match=r"\(not needed\): nothing was run"), gate.run("r"):
        pay("ana")
    assert ran == []


def test_policy_of_the_server_allows_and_denies(
    serve: Callable[..., Server], people: People, gate_to: Gates
) -> None:
    rules = [Rule(tool="look", verdict="allow"), Rule(tool="erase", verdict="deny")]
    gate = gate_to(serve(policy=Policy(rules)).url, wait=0)

    @gate.guard
    def look() -> str:
        return "seen"

    @gate.guard
    def erase() -> str:
        raise AssertionError("never")

    assert look() == "seen"
    with pytest.raises(sayso.Denied, match="erase is denied"):
        erase()
    assert people.pending() == []


def test_declared_function_asks_despite_default(
    serve: Callable[..., Server], gate_to: Gates
) -> None:
    gate = gate_to(serve(policy=Policy(default="allow")).url, wait=0)
    ran: list[str] = []
    with gate.run("r"):
        gate.guard(name="look")(ran.append)("a")
        with pytest.raises(sayso.Paused):
            gate.guard(name="pay", needs_approval=True)(ran.append)("b")
    assert ran == ["a"]


def test_failed_function_is_not_run_again(server: Server, people: People, gate_to: Gates) -> None:
    gate = gate_to(server.url)
    ran = []

    @gate.guard
    def fail() -> None:
        ran.append(1)
        raise ZeroDivisionError("by nothing")

    people.will(yes)
    with pytest.raises(ZeroDivisionError), gate.run("r"):
        fail()
    with pytest.raises(sayso.CallFailed, match="by nothing"), gate.run("r"):
        fail()
    assert ran == [1]


def test_unstorable_result_is_no_failure(server: Server, people: People, gate_to: Gates) -> None:
    gate = gate_to(server.url)

    @gate.guard
    def count() -> Any:
        return 2**70

    people.will(yes)
    with pytest.raises(sayso.ResultNotKept) as lost, gate.run("r"):
        count()
    assert lost.value.value == 2**70
    (item,) = people.inbox.history_sync().items
    assert (item.execution.status, item.execution.result) == ("done", None)


def test_wrong_arguments_are_refused_at_once(server: Server, gate_to: Gates) -> None:
    gate = gate_to(server.url)
    with pytest.raises(TypeError, match="key= of a guarded function"):
        gate.guard(key="order-17")(len)  # type: ignore[call-overload]
    with pytest.raises(sayso.InvalidCall, match=r"a sayso\.Question"):
        gate.ask_sync(5)  # type: ignore[arg-type]
    with pytest.raises(sayso.InvalidCall, match="the text is empty"):
        gate.confirm_sync(" ")


def test_waiting_for_a_while(server: Server, people: People, gate_to: Gates) -> None:
    pay = paying(gate_to(server.url, wait=0.3), [])
    with pytest.raises(sayso.Paused) as paused:
        pay("ana")
    # Whoever was told the name of the run comes back to the very same call.
    people.decide(yes)
    gate = gate_to(server.url, wait=0)
    with gate.run(paused.value.run):
        assert paying(gate, [])("ana") == "paid 5 to ana"
    assert len(people.inbox.history_sync().items) == 1


def test_equal_calls_are_numbered(server: Server, people: People, gate_to: Gates) -> None:
    ran: list[Any] = []
    gate = gate_to(server.url)
    pay = paying(gate, ran)
    people.will(yes, yes)
    for _ in range(2):
        with gate.run("twice"):
            assert [pay("ana"), pay("ana")] == ["paid 5 to ana"] * 2
    assert len(ran) == 2


def test_named_key_with_other_content_is_a_conflict(
    server: Server, people: People, gate_to: Gates
) -> None:
    gate = gate_to(server.url, wait=0)
    pay = paying(gate, [], key=lambda args: f"to {args['to']} in ünïcode")
    with pytest.raises(sayso.Paused), gate.run("r"):
        pay("ana", 1)
    with pytest.raises(sayso.Conflict, match="another body"), gate.run("r"):
        pay("ana", 2)
    with pytest.raises(sayso.Paused), gate.run("r"):
        pay("ana", 1)
    assert len(people.pending()) == 1


def test_running_function_may_ask(server: Server, people: People, gate_to: Gates) -> None:
    gate = gate_to(server.url, wait=0)

    @gate.guard
    def order() -> str:
        size = gate.ask_sync("Which size?")
        sure = gate.confirm_sync("Sure?", {"size": size})
        return f"{size}, {sure}"

    with pytest.raises(sayso.Paused), gate.run("r"):
        order()
    people.decide(yes)
    for answer in (lambda request: request.respond("large"), yes):
        with pytest.raises(sayso.Paused, match=r"gate.run\('r'\)"), gate.run("r"):
            order()  # it pauses for its own question, and hands its claim back
        people.decide(answer)
    with gate.run("r"):
        assert order() == "large, True"


def test_options_of_agent_only_tighten(server: Server, people: People, gate_to: Gates) -> None:
    gate = gate_to(server.url, wait=0)
    options = {"risk": "high", "reviewers": ["zoe"], "expires_in": "2h", "allowed": ["approve"]}
    with pytest.raises(sayso.Paused) as paused:
        paying(gate, [], note="I think so", **options)("ana")
    (request,) = paused.value.requests
    assert (request.risk.level, request.allowed) == ("high", ("approve", "reject"))
    assert (request.reviewers, request.notify) == ((), ("zoe",))
    assert request.note == "I think so"
    assert request.expires_at is not None
    with pytest.raises(TypeError, match="needs_approval"):
        paying(gate, [], needs_approval=False)
    with pytest.raises(sayso.Paused):  # as a guard on a gate says it
        paying(gate, [], needs_approval=True)("bo")


def test_sync_function_does_not_block_a_loop(
    server: Server, people: People, gate_to: Gates
) -> None:
    pay = paying(gate_to(server.url, wait=0), [])

    async def wrong() -> None:
        pay("ana")

    with pytest.raises(sayso.SaysoError, match="to_thread"):
        asyncio.run(wrong())
    assert people.pending() == []


def test_sync_function_runs_in_to_thread(server: Server, people: People, gate_to: Gates) -> None:
    pay = paying(gate_to(server.url), [])
    people.will(yes)
    assert asyncio.run(asyncio.to_thread(pay, "ana")) == "paid 5 to ana"
    until(lambda: not people.pending())


def test_self_waiting_function_is_refused(server: Server, people: People, gate_to: Gates) -> None:
    gate = gate_to(server.url)

    @gate.guard(key=lambda args: str(args["deep"]))
    def order(deep: bool) -> str:
        with gate.run("order-17"):
            return order(deep)

    @gate.guard
    def other() -> str:
        with gate.run("order-18"):
            return order(False)

    people.will(yes)
    with pytest.raises(sayso.Conflict, match="would wait for itself"), gate.run("order-17"):
        order(True)
    people.will(yes, yes)
    with (
        pytest.raises(sayso.Conflict, match="run order-18 would wait for itself"),
        gate.run("order-18"),
    ):
        other()


def test_os_thread_without_run_is_refused(server: Server, people: People, gate_to: Gates) -> None:
    ran: list[Any] = []
    gate = gate_to(server.url)
    pay = paying(gate, ran)
    lost = pytest.raises(sayso.InvalidCall, match=r"gate\.carry")
    with lost, gate.run("order-17"), ThreadPoolExecutor() as pool:
        list(pool.map(pay, ["ana", "bo"]))
    assert (ran, people.inbox.store.runs()) == ([], [])
    people.will(yes, yes)
    for _ in range(2):
        with gate.run("order-17"), ThreadPoolExecutor() as pool:
            assert len(list(pool.map(gate.carry(pay), ["ana", "bo"]))) == 2
    assert sorted(ran) == [("ana", 5), ("bo", 5)]
    assert len(people.inbox.store.calls_of("bot/order-17")) == 2


# -- exceptions


def raising(gate: RemoteGate, ran: list[Any], error: Exception, **options: Any) -> Any:
    @gate.guard(**options)
    def pay(to: str) -> str:
        """Pay somebody, and raise."""
        ran.append(to)
        raise error

    return pay


@pytest.mark.parametrize(
    ("options", "error"),
    [({}, TimeoutError("no reply")), ({"effect_key": "pay:{to}"}, ValueError("half a reply"))],
)
def test_unknown_outcome_of_remote_call_is_in_doubt(
    server: Server, people: People, gate_to: Gates, options: Any, error: Exception
) -> None:
    ran: list[Any] = []
    gate = gate_to(server.url, wait=0)
    pay = raising(gate, ran, error, **options)

    def call() -> Any:
        with gate.run("order-17"):
            return pay("ana")

    with pytest.raises(sayso.Paused):
        call()
    people.decide(yes)
    with pytest.raises(sayso.Paused) as paused:
        call()
    assert paused.value.__cause__ is error
    doubt = people.next()
    assert (doubt.kind, doubt.execution.attempts) == ("in_doubt", 1)
    assert doubt.execution.result == f"{type(error).__name__}: {error}"
    with pytest.raises(sayso.Paused):
        call()
    people.decide(lambda request: request.respond("paid by hand"))
    assert call() == "paid by hand"
    assert ran == ["ana"]


@pytest.mark.parametrize("verdict", ["ask", "allow"])
def test_servers_rule_decides_about_a_lost_reply(
    url: str, people: People, gate_to: Gates, verdict: Any
) -> None:
    rules = [Rule("pay", verdict=verdict)]
    server = Server(url, policy=Policy(rules)).start()
    try:
        ran: list[Any] = []
        pay = raising(gate_to(server.url), ran, TimeoutError("no reply"))
        if verdict == "allow":  # and nobody declared its effect
            with pytest.raises(TimeoutError):
                pay("ana")
        else:
            people.will(yes, lambda request: request.reject("gave up"))
            with pytest.raises(sayso.InDoubt, match="gave up"):
                pay("ana")
        assert ran == ["ana"]
    finally:
        server.stop()


def test_report_of_remote_agent_frees_no_key(
    server: Server, people: People, gate_to: Gates
) -> None:
    class Declined(Exception):
        pass

    ran: list[Any] = []
    gate = gate_to(server.url)
    options = {"effect_key": "pay:{to}", "not_executed": (Declined,)}
    for error in (Declined("no funds"), sayso.NotExecuted("no funds")):
        pay = raising(gate, ran, error, **options)
        people.will(yes)
        with pytest.raises(type(error)):
            pay("ana")
        doubt = people.next()
        assert doubt.evidence is not None
        assert (doubt.kind, doubt.evidence.answer) == ("in_doubt", "did_not_run")
        assert "no funds" in doubt.evidence.text
        with pytest.raises(DuplicateEffect, match="in_doubt"):
            _approved_second(people, pay)
        people.inbox.reject_sync(doubt, "the bank agrees", by="ana")
        assert people.inbox.store.effects() == []


def _approved_second(people: People, pay: Any) -> None:
    """Make the same call in another run, and approve it."""
    (doubt,) = people.pending()

    def approve() -> None:
        def new() -> list[sayso.Request]:
            return [request for request in people.pending() if request.id != doubt.id]

        (request,) = until(new)
        people.inbox.approve_sync(request, by="ana")

    with ThreadPoolExecutor(1) as pool:
        approving = pool.submit(approve)
        try:
            pay("ana")
        finally:
            approving.result()


def test_remote_call_without_key_fails_if_nothing_happened(
    server: Server, people: People, gate_to: Gates
) -> None:
    ran: list[Any] = []
    pay = raising(gate_to(server.url), ran, sayso.NotExecuted("no funds"))
    people.will(yes)
    with pytest.raises(sayso.NotExecuted):
        pay("ana")
    (item,) = people.inbox.history_sync().items
    assert item.execution.status == "failed"
