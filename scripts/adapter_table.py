"""Write the tables of frameworks, behaviours and features into docs/adapters/behaviour.md.

Each row of the first is a test of the adapter suite, and each column the file that runs the whole
suite for one framework. A subclass lists the tests that its framework cannot pass in ``cannot``,
with the reason. Each cell of the second is a test of its own, or says what does not work and why.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from generated_page import replace_between, update

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/adapters/behaviour.md"
UP = "../.."  # from the page to the root
SUITE = Path("testkit/sayso_testing/adapter_suite.py")
TESTS = Path("tests/adapters")
BEGIN, END = "<!-- adapters: made by scripts/adapter_table.py -->\n", "<!-- /adapters -->\n"
BEGIN_FEATURES = "<!-- features: made by scripts/adapter_table.py -->\n"
END_FEATURES = "<!-- /features -->\n"

#: The columns: the name of a framework, its page, and the test file that runs the suite for it.
FRAMEWORKS = (
    ("LangChain, LangGraph", "langchain.md", "test_story_langchain.py"),
    ("OpenAI Agents SDK", "openai-agents.md", "test_story_openai_agents.py"),
    ("Agent Framework", "agent-framework.md", "test_story_agent_framework.py"),
    ("DSPy", "dspy.md", "test_story_dspy.py"),
    ("pydantic-ai", "pydantic-ai.md", "test_story_pydantic_ai.py"),
    ("Claude Agent SDK", "claude-agent.md", "test_story_claude_agent.py"),
    ("Google ADK", "google-adk.md", "test_story_google_adk.py"),
    ("`sayso.Agent`", "../agent.md", "test_story_agent.py"),
)
#: The rows: a behaviour and the tests of the suite that prove it.
BEHAVIOURS = (
    ("approve", ("test_approve",)),
    ("edit", ("test_edit",)),
    ("reject, with a reason", ("test_reject_with_reason",)),
    ("respond in its place", ("test_respond",)),
    ("ask a question", ("test_question",)),
    ("ask only where a rule requires it", ("test_conditional_policy",)),
    ("denied without asking", ("test_denied_without_asking",)),
    (
        "three calls in a turn, decided at different times",
        ("test_mixed_reply_is_decided_at_different_times",),
    ),
    ("equal calls in one turn", ("test_equal_calls_in_one_reply_both_run",)),
    ("calls with one id in one turn", ("test_equal_ids_run_two_calls",)),
    ("calls without an id", ("test_empty_ids_run_two_calls",)),
    ("call ids that the model repeats", ("test_repeated_id_is_another_call",)),
    ("later turns know earlier ones", ("test_later_turn_knows_earlier_ones",)),
    ("new input supersedes open requests", ("test_new_input_supersedes_requests",)),
    ("killed while waiting, resumed elsewhere", ("test_killed_while_waiting",)),
    ("killed between decision and start", ("test_killed_between_decision_and_start",)),
    ("killed during the run: in doubt", ("test_killed_during_the_run",)),
    ("time-out after the effect: in doubt", ("test_time_out_leaves_approved_call_in_doubt",)),
    ("error of the tool: failed", ("test_error_is_recorded_as_failure",)),
    ("any exception keeps the effect key", ("test_uncertain_exception_keeps_the_effect_key",)),
    ("rejected call repeated: not asked again", ("test_repeated_call_stays_rejected",)),
    ("decided twice", ("test_decided_twice",)),
    ("resumed twice, in turn", ("test_resumed_twice_in_turn",)),
    ("resumed three times at once", ("test_resumed_at_once_by_three_processes",)),
    ("its state tampered with", ("test_state_tampered_with_after_the_decision",)),
    ("a row tampered with", ("test_row_tampered_with",)),
    ("tool removed while waiting", ("test_removed_tool_cancels_the_call",)),
    ("tool changed while waiting", ("test_tool_changed",)),
    ("25 malformed answers", ("test_malformed_answers_change_nothing",)),
)


_LC, _OA, _AF = "langchain_coverage", "openai_agents_coverage", "agent_framework_coverage"
_DS, _PY, _CL = "dspy_coverage", "pydantic_ai_coverage", "claude_agent_coverage"
_OWN = "claude_agent_guard"
_AD, _ADK = "google_adk_coverage", "google_adk_guard"
_RESULT = "output_types::test_model_output_survives_a_resume"
_LOOP, _EDITS, _ONCE = (
    "event_loop::",
    "edits::test_unknown_argument_is_refused_in_every_framework",
    "guarded_tools::",
)
#: The rows: a feature, and for each framework but ``sayso.Agent`` the test behind it, as
#: ``file::test`` or ``word|file::test``, or else what does not work, and why.
FEATURES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "sub-agents that a tool holds are gated",
        (
            f"{_LC}::test_agent_held_by_tool_asks",
            f"{_OA}::test_agent_in_closure_asks",
            f"{_AF}::test_agent_in_closure_asks",
            f"{_DS}::TestUnguardedModules",
            f"{_PY}::test_agent_in_closure_asks",
            f"refused|{_CL}::test_inner_claude_is_refused",
            f"{_AD}::TestUnguardedAgents",
        ),
    ),
    (
        "agents as tools, handoffs, subgraphs, workflows are gated",
        (
            f"{_LC}::test_sub_agent_asks",
            f"{_OA}::test_handoff_target_asks",
            f"{_AF}::test_agents_in_functions_of_workflow_ask",
            "DSPy has none",
            f"{_PY}::test_agent_two_levels_deep_asks",
            f"{_OWN}::test_sub_agent_cannot_wait_for_approval",
            f"{_AD}::TestDeclaredAgents",
        ),
    ),
    (
        "an agent under a global name is gated or refused",
        (
            f"{_LC}::test_agent_under_global_name_asks",
            f"{_OA}::test_agent_under_global_name_asks",
            f"{_AF}::test_agent_under_global_name_asks",
            f"{_DS}::TestUnguardedModules",
            f"{_PY}::TestUnguardedAgents",
            f"{_CL}::test_inner_claude_is_refused",
            f"{_AD}::TestUnguardedAgents",
        ),
    ),
    (
        "an agent that is built while a tool runs",
        (
            f"{_LC}::test_agent_built_during_run_asks",
            f"{_OA}::test_agent_built_during_run_asks",
            f"{_AF}::TestFoundWhileAToolRuns",
            f"{_DS}::TestUnguardedModules",
            f"{_PY}::TestUnguardedAgents",
            f"refused|{_CL}::test_inner_claude_is_refused",
            f"{_AD}::agent_built_in_a_task",
        ),
    ),
    (
        "what is added after `guard`, or while the agent runs, asks or is refused",
        (
            "added_later::TestLangChain",
            "added_later::TestOpenAI",
            "added_later::TestAgentFramework",
            "added_later::TestDSPy",
            "added_later::TestPydanticAI",
            f"{_CL}::test_original_options_are_not_changed",
            f"{_AD}::test_tool_added_after_guard_asks",
        ),
    ),
    (
        "tools that the provider runs are refused, unless named",
        (
            f"{_LC}::test_hosted_tool_is_refused_unless_ungated",
            f"{_OA}::test_hosted_tool_is_refused_unless_ungated",
            f"{_AF}::test_hosted_tool_is_refused_unless_ungated",
            f"{_DS}::test_hosted_tool_is_refused_unless_ungated",
            f"{_PY}::test_native_tool_is_refused_unless_ungated",
            f"{_OWN}::test_hosted_tool_is_refused_unless_ungated",
            f"{_AD}::test_hosted_tool_is_refused_unless_ungated",
        ),
    ),
    (
        "what may run without approval is recorded",
        (
            f"{_LC}::test_allowed_call_inside_is_recorded",
            f"{_OA}::test_hosted_tool_is_refused_unless_ungated",
            f"{_AF}::test_ungated_names_are_recorded",
            f"{_DS}::test_hosted_tool_is_refused_unless_ungated",
            f"{_PY}::test_allowed_call_is_recorded",
            f"{_OWN}::test_hosted_tool_is_refused_unless_ungated",
            f"{_AD}::test_allowed_call_is_recorded",
        ),
    ),
    (
        "`coverage()` prints a table",
        (
            f"{_LC}::test_table_lists_declared_tools",
            f"{_OA}::test_coverage_lists_agents_and_tools",
            f"{_AF}::test_coverage_lists_agents_and_tools",
            f"{_DS}::test_coverage_lists_the_tool",
            f"{_PY}::test_table_lists_declared_tools",
            f"{_CL}::test_coverage_lists_all_tools",
            f"{_AD}::test_table_lists_declared_tools",
        ),
    ),
    (
        "the agent passed to `guard` is not changed",
        (
            f"{_LC}::test_original_agent_is_not_changed",
            f"{_OA}::test_original_agent_is_not_changed",
            f"{_AF}::test_original_workflow_is_not_changed",
            f"{_DS}::test_original_agent_is_not_changed",
            f"{_PY}::test_original_agents_are_not_changed",
            f"{_CL}::test_original_options_are_not_changed",
            f"{_AD}::test_agents_passed_in_are_not_changed",
        ),
    ),
    (
        "no store call on the event loop",
        (f"{_LOOP}test_run_and_resume_do_not_block",) * 7,
    ),
    (
        "the framework's own flow, without `run`",
        (
            f"{_LOOP}test_native_langgraph_flow_does_not_block",
            f"{_LOOP}test_manual_openai_runner_does_not_block",
            f"{_LOOP}test_native_agent_framework_flow_does_not_block",
            "DSPy has none",
            f"{_LOOP}test_pydantic_ai_capability_does_not_block",
            "the SDK has none that a gate could use",
            "no: `run` calls ADK's own runner",
        ),
    ),
    (
        "the framework's own server",
        (
            "langgraph_dev::test_pause_decide_and_continue",
            *["none that needs an adapter"] * 5,
            "no: `adk web` calls ADK's own runner",
        ),
    ),
    (
        "streams",
        (
            "streaming::test_langchain_stream_resumes_after_pause",
            "openai_agents_runner::TestStreaming",
            "agent_framework_parity::test_stream_has_the_bare_updates",
            "dspy_parity::test_guard_streams_as_bare",
            "streaming::test_pydantic_ai_stream_resumes_after_pause",
            "claude_agent_parity::test_paused_stream_resumes",
            f"{_ADK}::TestStreaming",
        ),
    ),
    (
        "structured outputs keep their type",
        (
            "output_types::test_structured_response_survives_a_resume",
            _RESULT,
            _RESULT,
            _RESULT,
            _RESULT,
            f"{_OWN}::test_structured_output_is_a_dict",
            f"{_ADK}::test_output_schema_keeps_its_type",
        ),
    ),
    (
        "the outputs of a workflow keep their type",
        (
            "output_types::test_structured_response_survives_a_resume",
            "it has no workflows",
            "agent_framework_workflow_types::test_outputs_survive_three_processes",
            *["it has no workflows"] * 3,
            "not supported",
        ),
    ),
    ("an edit with an unknown argument is refused", (_EDITS,) * 7),
    (
        "a `gate.guard` function that is a tool is asked about once",
        (f"{_ONCE}test_guarded_function_as_tool_asks_once",) * 7,
    ),
    (
        "a refusal is never the output",
        (
            "langchain_endings::test_rejected_direct_tool_returns_to_model",
            "openai_agents_endings::test_rejection_never_becomes_final_output",
            *["a tool's result is never the output"] * 5,
        ),
    ),
)

#: More rows: what a guarded agent is compared in with the bare framework, and for each framework
#: the tests that compare it, like those of ``FEATURES``.
COMPARED = (
    "streams what the bare framework streams",
    "reports the same usage",
    "runs its hooks and callbacks",
    "traces as the bare framework",
    "pickles or says why not",
    "retries reads only",
    "returns the framework's own result",
    "arguments validate as in the bare framework",
)
_LC_BARE = "langchain_parity"
_DS_BARE, _PY_BARE = "dspy_parity", "pydantic_ai_parity"
_CL_BARE, _AD_BARE = "claude_agent_parity", "google_adk_parity"
_OA_BARE = "openai_agents_parity"
_AF_BARE = "agent_framework_parity"
COMPARISONS: dict[str, tuple[str, ...]] = {
    "openai-agents.md": (
        f"{_OA_BARE}::test_stream_has_the_bare_events",
        f"{_OA_BARE}::test_usage_is_the_bare_usage",
        f"{_OA_BARE}::test_hooks_are_called_as_bare",
        f"{_OA_BARE}::test_trace_is_the_bare_trace",
        f"says why not|{_OA_BARE}::test_pickling_is_refused_with_a_reason",
        f"{_OA_BARE}::test_only_reads_are_retried",
        f"{_OA_BARE}::test_raw_equals_bare_result",
        "validators::test_approved_call_agrees_with_bare",
    ),
    "agent-framework.md": (
        f"{_AF_BARE}::test_stream_has_the_bare_updates",
        f"{_AF_BARE}::test_usage_is_the_bare_usage",
        f"{_AF_BARE}::test_middleware_is_called_as_bare",
        f"{_AF_BARE}::test_trace_is_the_bare_trace",
        f"says why not|{_AF_BARE}::test_pickling_is_refused_with_a_reason",
        f"{_AF_BARE}::test_only_reads_are_retried",
        f"{_AF_BARE}::test_raw_equals_bare_response",
        "validators::test_approved_call_agrees_with_bare",
    ),
    "langchain.md": (
        f"{_LC_BARE}::test_stream_has_the_bare_chunks",
        f"{_LC_BARE}::test_usage_is_the_bare_usage",
        f"{_LC_BARE}::test_callbacks_and_middleware_run_as_bare",
        f"{_LC_BARE}::test_trace_is_the_bare_trace",
        f"says why not|{_LC_BARE}::test_pickling_is_refused_with_a_reason",
        f"{_LC_BARE}::test_only_reads_are_retried",
        f"{_LC_BARE}::test_raw_equals_bare_values",
        "validators::test_approved_call_agrees_with_bare",
    ),
    "dspy.md": (
        f"{_DS_BARE}::test_guard_streams_as_bare",
        f"{_DS_BARE}::test_guard_reports_the_same_usage",
        f"{_DS_BARE}::test_callbacks_see_the_same",
        f"{_DS_BARE}::test_guard_traces_as_bare",
        f"says why not|{_DS_BARE}::test_pickling_is_refused_with_a_reason",
        "DSPy retries no tool",
        f"{_DS_BARE}::test_guard_is_a_module",
        "validators::test_approved_call_agrees_with_bare",
    ),
    "pydantic-ai.md": (
        f"{_PY_BARE}::test_guard_streams_as_bare",
        f"{_PY_BARE}::test_guard_reports_the_same_usage",
        f"{_PY_BARE}::test_capabilities_see_the_same",
        f"{_PY_BARE}::test_guard_traces_as_bare",
        f"says why not|{_PY_BARE}::test_pickling_is_refused_with_a_reason",
        f"{_PY_BARE}::test_failed_read_is_retried_as_bare",
        f"{_PY_BARE}::test_raw_equals_bare_result",
        "validators::test_approved_call_agrees_with_bare",
    ),
    "claude-agent.md": (
        f"{_CL_BARE}::test_stream_and_result_equal_bare",
        f"{_CL_BARE}::test_stream_and_result_equal_bare",
        f"{_CL_BARE}::test_hooks_see_the_same",
        "Claude Code traces itself, as `env` says",
        f"says why not|{_CL_BARE}::test_pickling_is_refused_with_a_reason",
        "Claude Code retries no tool",
        f"{_CL_BARE}::test_stream_and_result_equal_bare",
        f"{_CL_BARE}::test_arguments_are_validated_as_bare",
    ),
    "google-adk.md": (
        f"{_AD_BARE}::test_stream_has_the_bare_events",
        f"{_AD_BARE}::test_usage_is_the_bare_usage",
        f"{_AD_BARE}::test_plugins_and_callbacks_see_the_same",
        f"{_AD_BARE}::test_trace_is_the_bare_trace",
        f"says why not|{_AD_BARE}::test_pickling_is_refused_with_a_reason",
        f"retries no tool; its model reads the error|"
        f"{_AD_BARE}::test_failed_read_runs_once_as_bare",
        f"{_AD_BARE}::test_raw_equals_bare_events",
        "validators::test_approved_call_agrees_with_bare",
    ),
}


def features() -> list[tuple[str, tuple[str, ...]]]:
    """Return all rows of the second table."""
    columns = [COMPARISONS[page] for _, page, _ in FRAMEWORKS[:-1]]
    return [*FEATURES, *zip(COMPARED, zip(*columns, strict=True), strict=True)]


def feature_table() -> str:
    """Return the second table as Markdown. Raises ``LookupError`` for a test that is not there."""
    columns = FRAMEWORKS[:-1]
    head = " | ".join(f"[{name}]({page})" for name, page, _ in columns)
    lines = [f"| | {head} |", "|---" * (len(columns) + 1) + "|"]
    for feature, cells in features():
        if len(cells) != len(columns):
            raise LookupError(f"{feature}: {len(cells)} cells for {len(columns)} frameworks")
        lines.append(f"| {feature} | {' | '.join(map(_cell, cells))} |")
    return "\n".join(lines) + "\n"


def _cell(cell: str) -> str:
    word, _, test = cell.rpartition("|")
    stem, found, name = test.partition("::")
    if not found:
        return cell
    file = TESTS / f"test_{stem}.py"
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        if isinstance(node, kinds) and node.name == name:
            return f'[{word or "✓"}]({UP}/{file} "{name}")'
    raise LookupError(f"{file} has no {name}")


def test_links() -> dict[str, str]:
    """Map each test of the suite to its file, with its name as the title of the link."""
    found = {}
    for node in ast.walk(ast.parse((ROOT / SUITE).read_text())):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            found[node.name] = f'{UP}/{SUITE} "{node.name}"'
    return found


def cannot(file: str) -> set[str]:
    """Return the tests that a framework declares it cannot pass."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / TESTS / file).read_text())):
        target = node.target if isinstance(node, ast.AnnAssign) else None
        named = isinstance(target, ast.Name) and target.id == "cannot"
        if named and isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict):
            names |= {key.value for key in node.value.keys if isinstance(key, ast.Constant)}
    return names


def table() -> str:
    """Return the table as Markdown."""
    links = test_links()
    refused = {file: cannot(file) for _, _, file in FRAMEWORKS}
    head = " | ".join(f"[{name}]({page})" for name, page, _ in FRAMEWORKS)
    lines = [f"| | {head} |", "|---" * (len(FRAMEWORKS) + 1) + "|"]
    for behaviour, tests in BEHAVIOURS:
        cells = []
        for _, _, file in FRAMEWORKS:
            word = "cannot" if refused[file] & set(tests) else "✓"
            cells.append(f"[{word}]({UP}/{TESTS / file})")
        lines.append(f"| [{behaviour}]({links[tests[0]]}) | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    page = replace_between(PAGE.read_text("utf-8"), BEGIN, END, f"\n{table()}\n")
    page = replace_between(page, BEGIN_FEATURES, END_FEATURES, f"\n{feature_table()}\n")
    sys.exit(update(PAGE, page, __doc__))
