"""The Temporal workflow of one run: a timer, a signal, and one activity.

It knows nothing of agents. It has the run looked at when it is told to and when something of the
run ends, and is over when there is nothing left to wait for by the clock; whoever decides something
later starts it again. Workflows of it are open for as long as people think, so the order of timers
and activities in here must not change.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

NAME, STEP, WAKE, AT = "sayso.run", "sayso.step", "wake", "at"
#: A worker that is silent for so long is gone, and another one looks.
SILENCE = timedelta(seconds=15)
_LONGEST = timedelta(days=365)
_RETRY = RetryPolicy(maximum_interval=timedelta(seconds=60))


@workflow.defn(name=NAME)
class RunLife:
    """Has one run of one agent taken further whenever it can be."""

    def __init__(self) -> None:
        self._woken = False
        self._at: float | None = None

    @workflow.signal(name=WAKE)
    def wake(self) -> None:
        """Look at once."""
        self._woken = True

    @workflow.signal(name=AT)
    def at(self, seconds: float) -> None:
        """Look in so many seconds, or earlier if there was a reason before."""
        time = workflow.time() + max(seconds, 0)
        self._at = time if self._at is None else min(time, self._at)

    @workflow.run
    async def run(self, run: str, seconds: float | None = None) -> None:
        """Look, and wait, until there is nothing to wait for."""
        if seconds is not None:
            self.at(seconds)
        await workflow.wait_condition(self._expects)
        while self._expects():
            if not await self._time_has_come():
                continue
            self._woken, self._at = False, None
            left: float | None = await workflow.execute_activity(
                STEP,
                run,
                start_to_close_timeout=_LONGEST,
                heartbeat_timeout=SILENCE,
                retry_policy=_RETRY,
            )
            if left is not None:
                self.at(left)
            if self._expects() and workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(args=[run, self._left()])

    def _expects(self) -> bool:
        return self._woken or self._at is not None

    def _left(self) -> float:
        """Seconds until it is time to look."""
        return 0.0 if self._woken or self._at is None else max(self._at - workflow.time(), 0.0)

    async def _time_has_come(self) -> bool:
        """Wait; no if it is told of an earlier time meanwhile."""
        at, left = self._at, self._left()
        if left > 0:
            try:
                await workflow.wait_condition(lambda: self._woken or self._at != at, timeout=left)
            except TimeoutError:
                return True
        return self._woken or self._at == at
