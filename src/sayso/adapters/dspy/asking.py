"""A tool that asks a person, and the ways to deliver its question.

A *requester* is an async function that gets a ``HumanInputRequest`` and delivers it. The answer is
given with ``set_response``, from any OS thread and at any time. ``await response()`` returns it,
even if it came first. The first answer counts.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from concurrent.futures import Future, InvalidStateError
from typing import Any, TypeAlias

import dspy

from sayso.errors import AlreadyDecided, Expired
from sayso.gate import Gate
from sayso.types import Question


class HumanInputRequest:
    """A question whose answer can be awaited from any event loop, before or after it comes."""

    def __init__(self, question: str) -> None:
        self.question = question
        self._answer: Future[str] = Future()
        self._answer.set_running_or_notify_cancel()  # a caller that gives up does not cancel it

    async def response(self, timeout: float | None = None) -> str:
        """Wait for the answer. Raises ``Expired`` if there is none after ``timeout`` seconds."""
        if self._answer.done():
            return self._answer.result()
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.wrap_future(self._answer)
        except TimeoutError:
            raise Expired(f"no answer within {timeout:g} seconds: {self.question}") from None

    def set_response(self, response: str) -> None:
        """Answer the question.

        Repeating the same answer has no effect; another one raises ``AlreadyDecided``.
        """
        if not isinstance(response, str):
            raise TypeError(f"an answer must be text, not {type(response).__name__}")
        try:
            self._answer.set_result(response)
        except InvalidStateError:
            if self._answer.result() != response:
                raise AlreadyDecided("this question was answered already") from None

    def when_answered(self, done: Callable[[], None]) -> None:
        """Call ``done`` as soon as there is an answer."""
        self._answer.add_done_callback(lambda _: done())


Requester: TypeAlias = Callable[[HumanInputRequest], Awaitable[None]]


class AskingTool(dspy.Tool):  # type: ignore[misc]  # DSPy has no types
    """A tool that only asks a person. Its calls need no approval unless a rule says so."""


def human_in_the_loop(
    requester: Requester, *, timeout: float | None = None, name: str = "ask_human"
) -> dspy.Tool:
    """Return a tool with which an agent asks a person.

    After ``timeout`` seconds without an answer, the tool fails with ``Expired``.
    """

    async def ask_human(question: str) -> str:
        """Ask the user a question, and get the answer."""
        request = HumanInputRequest(question)
        await requester(request)
        return await request.response(timeout)

    return AskingTool(ask_human, name=name)


async def console_requester(request: HumanInputRequest) -> None:
    """Ask in the terminal, without blocking the event loop."""
    answer = await asyncio.to_thread(input, f"\n{request.question}\n> ")
    request.set_response(answer)


def create_queue_requester(
    request_queue: asyncio.Queue[Any], pending_requests: MutableMapping[str, Any]
) -> Requester:
    """Return a requester that puts questions on a queue, and keeps them by id until they are
    answered.

    A web app sends what is on the queue to its page, and answers with
    ``pending_requests[id]["request"].set_response(...)``, which also removes the entry. A page that
    connects later gets ``still_open(pending_requests)``.
    """

    async def queue_requester(request: HumanInputRequest) -> None:
        request_id = str(uuid.uuid4())
        pending_requests[request_id] = {
            "request": request,
            "question": request.question,
            "sent": False,
        }
        request.when_answered(lambda: pending_requests.pop(request_id, None))
        await request_queue.put(_item(request_id, request.question))
        if request_id in pending_requests:
            pending_requests[request_id]["sent"] = True

    return queue_requester


def still_open(pending_requests: MutableMapping[str, Any]) -> list[dict[str, str]]:
    """Return the unanswered questions, in the form in which they went to the queue."""
    return [_item(name, entry["question"]) for name, entry in list(pending_requests.items())]


def _item(request_id: str, question: str) -> dict[str, str]:
    return {"type": "human_input", "id": request_id, "question": question}


def inbox_requester(gate: Gate, **options: Any) -> Requester:
    """Ask in the inbox, where the question survives restarts and another process can pick up the
    answer.

    Inside a guarded agent the run pauses; elsewhere the gate's ``wait`` says how long to wait.
    ``options`` are those of ``gate.ask``.
    """

    async def requester(request: HumanInputRequest) -> None:
        request.set_response(str(await gate.ask(Question(request.question), **options)))

    return requester


def scripted_requester(answers: Iterable[str]) -> Requester:
    """Take answers from a list: for tests, and for compiling and evaluating a program."""
    left = iter(answers)

    async def requester(request: HumanInputRequest) -> None:
        answer = next(left, None)
        if answer is None:
            raise Expired(f"the script has no answer left for: {request.question}")
        request.set_response(answer)

    return requester
