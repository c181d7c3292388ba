"""The adapter suite on the OpenAI Agents SDK."""

from __future__ import annotations

from typing import ClassVar

from harness_openai_agents import OpenAIAgentsHarness

from sayso.adapters import release_of
from sayso.testing import AdapterSuite

_LOST = "the SDK removes an earlier call from the prompt if a later one has its id"
_UNTIL_0_20 = {
    "test_repeated_id_is_another_call": _LOST,
    "test_repeated_id_uses_the_new_arguments": _LOST,
    "test_repeated_id_of_allowed_call_runs_again": _LOST,
    "test_repeated_id_in_later_turn_is_asked_again": _LOST,
    "test_later_turn_knows_earlier_ones": _LOST,
    "test_third_turn_repeats_no_earlier_turn": _LOST,
}


class TestOpenAIAgents(AdapterSuite):
    harness = OpenAIAgentsHarness
    cannot: ClassVar = {
        "test_equal_ids_run_two_calls": "the SDK finds a call by its id, so the reply is refused",
        **(_UNTIL_0_20 if release_of("openai-agents") < (0, 20) else {}),
    }
