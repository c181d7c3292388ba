"""What the model hears of calls that people ended, and what becomes of words beside an answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_framework_bench import Bench, call, pay_of

from assent import Policy, Rule
from assent.adapters.agent_framework import guard

ASK = Policy([Rule("pay")])


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


def paying(bench: Bench, *turns: Any) -> Any:
    script = turns or ([call("pay", to="ana")], "Done.")
    return guard(bench.agent(*script, tools=[pay_of(bench)]), bench.gate, ASK)


async def test_words_after_a_run_that_was_called_off_know_of_its_calls(bench: Bench) -> None:
    turns = [call("pay", to="ana")], "I see."
    await paying(bench, *turns).run("pay ana", thread="t")
    await paying(bench, *turns).cancel("t")
    assert (await paying(bench, *turns).run("well?", thread="t")).output == "I see."
    assert "cancelled before it ran" in bench.results["c1"]
