"""A second policy is judged next to the one in force, and changes nothing that runs."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import pytest
from cases import Case
from worlds import make_store as make_store  # the fixture
from worlds import url as url

import sayso.gate.gate
from sayso import Paused, Policy, Rejected, Rule, open_store
from sayso.audit import verify
from sayso.errors import Denied
from sayso.hooks.dialects import parse_payload
from sayso.hooks.local import ask_store
from sayso.inbox import Inbox

LIVE = Policy(
    [
        Rule("read", verdict="allow"),
        Rule("write", verdict="ask"),
        Rule("drop", verdict="deny"),
    ]
)
SECOND = Policy(
    [
        Rule("read", verdict="ask", name="ask about reads"),
        Rule("write", verdict="allow", name="writes are free"),
        Rule("drop", verdict="allow", name="drops are free"),
    ]
)


def calls(store: Any, observe: Any, run: str = "r1") -> list[Any]:
    """Make three calls. Return what ran."""
    case = Case(store, policy=LIVE, observe=observe)
    for name in ("read", "write", "drop"):

        @case.gate.guard(name=name)
        def body(number: int = 0, name: str = name) -> str:
            case.ran.append(name)
            return name

        with contextlib.suppress(Paused, Denied, Rejected):
            case.enter(body, f"{run}-{name}")
    return case.ran


def changes(inbox: Inbox) -> dict[tuple[str, str], int]:
    report = inbox.observed_sync()
    return {(before, after): count for (before, after, _), count in report.changes.items()}


def test_second_policy_reports_and_changes_nothing(url: str) -> None:
    store = open_store(url)
    assert calls(store, SECOND) == calls(store, None, "r2") == ["read"]
    inbox = Inbox(store)
    assert inbox.observed_sync().calls == 3
    assert changes(inbox) == {
        ("allowed", "asked"): 1,
        ("asked", "allowed"): 1,
        ("denied", "allowed"): 1,
    }
    assert set(inbox.observed_sync().rules) == {
        "ask about reads",
        "writes are free",
        "drops are free",
    }
    assert verify(store).ok
    store.close()


def test_report_survives_restarts(url: str) -> None:
    store = open_store(url)
    calls(store, SECOND)
    store.close()
    with Inbox(url) as inbox:
        assert sum(changes(inbox).values()) == 3


def test_rejected_call_that_would_have_run_is_reported_first(url: str) -> None:
    store = open_store(url)
    calls(store, SECOND)
    inbox = Inbox(store)
    (pending,) = inbox.pending_sync().items
    inbox.reject_sync(pending, "no", by="ana")
    report = inbox.observed_sync()
    assert report.overruled == 1
    assert report.listed()[0].call.id == pending.id
    store.close()


def test_request_does_not_depend_on_the_second_policy(url: str) -> None:
    """The digest that people approve, and the re-check before the start, leave it out."""
    store = open_store(url)
    first = Case(store, policy=LIVE, observe=SECOND)
    pay = first.paying(name="write")
    first.approved(lambda: pay("al"))
    other = Case(store, policy=LIVE, observe=Policy([Rule("*", verdict="deny")]))
    assert other.enter(lambda: other.paying(name="write")("al")) == "paid al 3"
    store.close()


@pytest.mark.parametrize("failure", ["raises", "missing", "broken", "hangs"])
def test_failing_second_policy_stops_no_call(
    url: str, failure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(url)
    observe: Any = tmp_path / "second.toml"
    if failure == "broken":
        observe.write_text("rule = 3")
    if failure == "raises":
        observe = Policy(SECOND.rules)
        monkeypatch.setattr(sayso.gate.gate.Policy, "judge", _judge_live_only(observe))
    if failure == "hangs":
        monkeypatch.setattr(sayso.gate.gate, "_OBSERVE_SECONDS", 0.05)
        observe = Policy([Rule("*", when=lambda args: bool(time.sleep(2)), verdict="deny")])
    assert calls(store, observe) == ["read"]
    report = Inbox(store).observed_sync()
    assert report.calls == 3
    if failure != "hangs":
        assert not report.changes
        assert "could not judge" in report.not_stored[0]
    store.close()


def _judge_live_only(second: Policy) -> Any:
    judge = Policy.judge

    def only(self: Policy, *args: Any, **options: Any) -> Any:
        if self is second:
            raise ValueError("a bug")
        return judge(self, *args, **options)

    return only


def test_second_policy_is_read_again_when_its_file_changes(url: str, tmp_path: Path) -> None:
    store = open_store(url)
    file = tmp_path / "second.toml"
    file.write_text('default = "ask"')
    case = Case(store, policy=LIVE, observe=file)

    @case.gate.guard(name="read")
    def read(number: int) -> int:
        return number

    case.enter(lambda: read(1), "r1")
    file.write_text('default = "deny"\n# changed')
    case.enter(lambda: read(2), "r2")
    assert changes(case.inbox) == {("allowed", "asked"): 1, ("allowed", "denied"): 1}
    store.close()


def test_watch_observes_balanced(url: str) -> None:
    store = open_store(url)
    case = Case(store, policy="watch")

    @case.gate.guard(name="Bash")
    def bash(command: str, cwd: str) -> str:
        case.ran.append(command)
        return command

    case.enter(lambda: bash(command="ls", cwd="/tmp"), "r1")
    case.enter(lambda: bash(command="rm -rf build", cwd="/tmp"), "r2")
    assert case.ran == ["ls", "rm -rf build"]
    assert changes(case.inbox) == {("allowed", "asked"): 1}
    store.close()


def test_hook_observes_with_its_store(url: str) -> None:
    payload = {
        "session_id": "s",
        "cwd": "/src",
        "tool_use_id": "toolu_1",
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "rm -rf build"},
    }
    request = ask_store(url, "watch", parse_payload(payload), 0.0, observe="strict")
    assert (request["decision"]["source"], request["rule"]) == ("preset", "watch")
    broken = ask_store(url, "watch", parse_payload(payload), 0.0, observe="no-such-file")
    assert broken["decision"]["source"] == "preset"
    with Inbox(url) as inbox:
        report = inbox.observed_sync()
        (difference,) = report.differences
        assert difference.rule.startswith("strict: ")
        assert "no-such-file" in report.not_stored[0]


def test_nothing_is_judged_twice_without_a_second_policy(url: str) -> None:
    store = open_store(url)
    case = Case(store, policy=LIVE)
    assert case.gate.observer is None
    calls(store, None)
    assert case.inbox.observed_sync().calls == 0
    assert all(not call.terms.observed for call in store.calls_since(0))
    store.close()
