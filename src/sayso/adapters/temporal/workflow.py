"""The workflow's side: deterministic, without a clock, a disk or a network.

A workflow that pauses here today may be replayed by next month's code. So the order of activities
and timers below must not change; ``tests/temporal`` replays a recorded history. What workflow and
worker send each other comes first: plain JSON, because it stays in histories.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypedDict, Unpack

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from sayso import errors
from sayso.errors import InvalidCall, InvalidPolicy, NotFound, SaysoError
from sayso.gate.options import AskOptions, check_known
from sayso.policy.limits import parse_duration
from sayso.types import Json, Question, Risk
from sayso.views import question_json

ASK, CONFIRM, SETTLE, CALL_OFF = "sayso.ask", "sayso.confirm", "sayso.settle", "sayso.call_off"
#: The signal to check again. Its only argument is the name of a run.
NEWS = "sayso.news"
_PREFIX = "temporal:"


class ActivityInput(TypedDict, total=False):
    """What a workflow asks for; ``run`` is the name that finds it again."""

    run: str
    requester: str
    content: dict[str, Any]
    options: dict[str, Any]
    reason: str


class ActivityOutput(TypedDict, total=False):
    """A value, an error, or nothing yet."""

    value: Any
    error: str
    message: str
    #: Seconds until a request expires.
    ends_in: float | None


def activity_of(tool: str) -> str:
    return f"sayso/{tool}"


def workflow_of(run: str) -> str | None:
    """Return the workflow that a run belongs to; None if it belongs to none."""
    if not run.startswith(_PREFIX) or run.count(":") < 3:
        return None
    return run.removeprefix(_PREFIX).rsplit(":", 2)[0]


# -- asking in a workflow


#: Seconds until a workflow checks without a signal; longer each time, up to the last.
_FIRST_LOOK, _LAST_LOOK = 60.0, 3600.0
#: Seconds until it retries a failed attempt; longer each time, up to the last.
_FIRST_TRY, _LAST_TRY = 1.0, 300.0
_LONGEST_ID = 160
_SHORT = timedelta(seconds=60)
#: The heartbeat timeout: a worker that is silent for longer is gone.
_SILENCE = timedelta(seconds=30)
_ONCE = RetryPolicy(maximum_attempts=1)
#: Temporal's error for an activity that the worker does not have, and how often that is taken to be
#: temporary. The last is a patch id, because older histories did not count it.
_UNREGISTERED, _MOST_MISSES, _NAMES_CHECKED = "NotFoundError", 4, "sayso.names"


async def ask(
    question: Question | str, *, requester: str = "", **options: Unpack[AskOptions]
) -> Any:
    """Ask a person something, in a workflow. Raises ``Rejected`` if they will not answer."""
    if isinstance(question, str):
        question = Question(question)
    if not isinstance(question, Question):
        raise InvalidCall(f"ask() takes text or a Question, not {type(question).__name__}")
    activity_input = _activity_input(requester, question_json(question), options)
    return await _until_settled(activity_input, lambda: _run_short_activity(ASK, activity_input))


async def confirm(
    text: str,
    details: Mapping[str, Json] | None = None,
    *,
    requester: str = "",
    **options: Unpack[AskOptions],
) -> bool:
    """Ask a person to confirm a text and its details, in a workflow. Return whether they did."""
    content = {"text": text, "details": _mapping(details, "details")}
    activity_input = _activity_input(requester, content, options)
    return bool(
        await _until_settled(activity_input, lambda: _run_short_activity(CONFIRM, activity_input))
    )


async def run_once(
    tool: str | Callable[..., Any],
    args: Mapping[str, Json] | None = None,
    *,
    timeout: timedelta | float | str,
    requester: str = "",
) -> Any:
    """Run a tool of the plugin, in a workflow, after approval if the policy asks for it.

    It is an activity with one attempt. If that takes longer than ``timeout`` (a timedelta, seconds,
    or ``"5m"``), or its worker goes away, its outcome is unknown: the call is in doubt, and a
    person settles it.
    """
    guard = getattr(tool, "guard", None)
    name = tool if isinstance(tool, str) else tool.__name__ if guard is None else guard.tool.name
    length = _duration(timeout)
    activity_input = _activity_input(requester, _mapping(args, "args"), {})
    return await _until_settled(activity_input, _Attempts(name, activity_input, length).once)


async def _run_short_activity(activity: str, wanted: ActivityInput) -> ActivityOutput | None:
    """Run an activity that may be retried as often as necessary."""
    answer: ActivityOutput | None = await workflow.execute_activity(
        activity, wanted, start_to_close_timeout=_SHORT
    )
    return answer


@dataclass
class _Attempts:
    """Attempts to run one tool, each in its own activity."""

    tool: str
    wanted: ActivityInput
    timeout: timedelta
    #: How often no worker had the tool; None once one had it.
    misses: int | None = 0

    async def once(self) -> ActivityOutput | None:
        """Make one attempt; None if its outcome is unknown."""
        try:
            answer: ActivityOutput = await workflow.execute_activity(
                activity_of(self.tool),
                self.wanted,
                start_to_close_timeout=self.timeout,
                heartbeat_timeout=_SILENCE if self.timeout > _SILENCE else None,
                retry_policy=_ONCE,
            )
            self.misses = None
            return answer
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            cause = error.cause or error
        await _run_short_activity(
            SETTLE, {"run": self.wanted["run"], "reason": f"Temporal: {cause}"}
        )
        self._count(cause)
        return None

    def _count(self, cause: BaseException) -> None:
        """Raise ``NotFound`` if no worker has the tool.

        While workers are replaced, some may not have it yet.
        """
        if not (isinstance(cause, ApplicationError) and cause.type == _UNREGISTERED):
            self.misses = None
        if self.misses is None:
            return
        self.misses += 1
        if self.misses >= _MOST_MISSES and workflow.patched(_NAMES_CHECKED):
            raise NotFound(
                f"no worker has a tool {self.tool!r}: correct the name, or pass the tool to "
                f"SaysoPlugin(tools=...). {cause}"
            )


async def _until_settled(
    wanted: ActivityInput, check: Callable[[], Awaitable[ActivityOutput | None]]
) -> Any:
    """Check until there is an answer: on each signal, when a request expires, and on a timer."""
    run, signals = wanted["run"], _signals()
    patience, again = _FIRST_LOOK, _FIRST_TRY
    try:
        while True:
            count = signals.heard[run]
            answer = await check()
            if answer is None:
                seconds, again = again, min(again * 2, _LAST_TRY)
            elif "error" in answer:
                raise getattr(errors, answer["error"], SaysoError)(answer.get("message", ""))
            elif "value" in answer:
                return answer["value"]
            else:
                ends_in = answer.get("ends_in")
                seconds = patience if ends_in is None else min(patience, max(ends_in, 0.1))
                patience, again = min(patience * 2, _LAST_LOOK), _FIRST_TRY
            await signals.wait(run, count, seconds)
    except BaseException as error:
        if is_cancelled_exception(error):
            await _run_short_activity(
                CALL_OFF, {"run": run, "reason": "the workflow was cancelled"}
            )
        raise
    finally:
        del signals.heard[run]


class _Signals:
    """The requests and signals of one workflow. Replayed together with the workflow."""

    def __init__(self) -> None:
        self.asked = 0
        self.heard: Counter[str] = Counter()
        workflow.set_signal_handler(NEWS, self._hear)

    def _hear(self, run: str) -> None:
        self.heard[run] += 1

    async def wait(self, run: str, count: int, seconds: float) -> None:
        """Wait for a signal about a run after the first ``count``, at most ``seconds``."""
        try:
            await workflow.wait_condition(lambda: self.heard[run] > count, timeout=seconds)
        except TimeoutError:
            return


def _signals() -> _Signals:
    """Return the signals of this workflow, kept on its own object: workflows share nothing."""
    attributes = vars(workflow.instance())
    if "__sayso" not in attributes:
        attributes["__sayso"] = _Signals()
    signals: _Signals = attributes["__sayso"]
    return signals


def _activity_input(requester: str, content: dict[str, Any], options: AskOptions) -> ActivityInput:
    check_known(options, AskOptions)
    for name in ("wait", "key"):
        if name in options:
            raise InvalidCall(
                f"{name}= does not apply in a workflow, which waits and counts itself"
            )
    info, signals = workflow.info(), _signals()
    if len(info.workflow_id) > _LONGEST_ID:
        raise InvalidCall(
            f"this workflow's id has {len(info.workflow_id)} characters: use at most "
            f"{_LONGEST_ID}, so that its requests can be found"
        )
    signals.asked += 1
    # The original execution, so that after a reset the same request is found again.
    execution = info.original_execution_run_id[-12:]
    run = f"{_PREFIX}{info.workflow_id}:{execution}:{signals.asked}"
    plain = {name: _plain(value) for name, value in options.items()}
    return {"run": run, "requester": requester, "content": content, "options": plain}


def _duration(timeout: timedelta | float | str) -> timedelta:
    try:
        length = parse_duration(timeout, "timeout")
    except InvalidPolicy as error:
        raise InvalidCall(str(error), "timeout") from None
    if length is None:
        raise InvalidCall("run_once() needs a timeout: how long may the tool take?", "timeout")
    return timedelta(seconds=length)


def _mapping(given: Mapping[str, Json] | None, name: str) -> dict[str, Json]:
    if given is None or isinstance(given, Mapping):
        return dict(given or {})
    kind = type(given).__name__
    raise InvalidCall(f"pass {name} as a dict by name, not as {kind}", name)


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Risk):
        return {"level": value.level, "reasons": list(value.reasons)}
    if isinstance(value, set | frozenset):
        return sorted(value)
    return list(value) if isinstance(value, tuple) else value
