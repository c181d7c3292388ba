"""Which calls a rule matches, and which definitions it refuses."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sayso.errors import InvalidPolicy
from sayso.policy import Rule, parse_duration
from sayso.policy.rule import DAYS, allowed_decisions
from sayso.types import DECISIONS, Risk, ToolCall, Verdict

NOON = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)  # a Wednesday


def unmet(rule: Rule, tool: str = "send", agent: str = "bot", now: datetime = NOON) -> str:
    return rule.unmet(ToolCall(tool, {}), agent, now)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


# --- how it is written ---


def test_only_tool_is_a_positional_argument() -> None:
    assert Rule("send_*") == Rule(tool="send_*") == Rule(tool=["send_*"])
    make: Any = Rule
    with pytest.raises(TypeError):
        make("send_*", "bot")


def test_plain_rule_asks_about_everything() -> None:
    rule = Rule()
    assert rule.verdict is Verdict.ASK
    assert unmet(rule, "anything", "anybody") == ""


def test_rules_are_normalized() -> None:
    rule = Rule(
        ["b", "a", "b"],
        days=["sun", "mon"],
        allowed=["reject", "approve"],
        reviewers="ana",
        notify=["push", "mail:group:finance", "slack:#ops", "push"],
        remind_after="10m",
        escalate_after="1h",
        escalate_to="group:leads",
        risk="high",
        reasons="moves money",
        expires_in="2h",
        valid_for=timedelta(hours=2),
    )
    assert rule.tool == ("b", "a")
    assert rule.days == ("mon", "sun")
    assert rule.allowed == ("approve", "reject")
    assert rule.reviewers == ("ana",)
    assert rule.notify == ("push", "mail:group:finance", "slack:#ops")
    assert (rule.remind_after, rule.escalate_after) == (600, 3600)
    assert rule.escalate_to == ("group:leads",)
    assert rule.risk == Risk("high", ("moves money",))
    assert (rule.expires_in, rule.valid_for) == (7200.0, 7200.0)


def test_sets_are_stored_in_sorted_order() -> None:
    people = {f"person{n}" for n in range(20)}
    assert Rule(reviewers=people).reviewers == tuple(sorted(people))
    assert Rule(frozenset({"b", "a"})).tool == ("a", "b")


def test_reasons_of_rule_and_risk_are_joined() -> None:
    rule = Rule(risk=Risk("high", ("one",)), reasons=["two", "one"])
    assert rule.risk == Risk("high", ("one", "two"))
    assert replace(rule, name="again").risk == rule.risk


def test_rule_can_be_replaced_and_compared() -> None:
    rule = Rule("pay", where="amount > 100", hours="09:00-17:00", days="mon", expires_in="1h")
    assert replace(rule) == rule
    assert hash(replace(rule)) == hash(rule)
    other = replace(rule, where="amount > 5")
    assert other.when is not None
    assert other.when({"amount": 7}) is True
    assert replace(rule, where=None).when is None
    for blank in ("", " "):  # which might have meant: wherever
        with pytest.raises(InvalidPolicy, match="begin with the name of an argument"):
            replace(rule, where=blank)


def test_where_compiles_to_a_predicate() -> None:
    rule = Rule("pay", verdict="allow", where="amount < 10")
    assert rule.when is not None
    assert rule.when({"amount": 5}) is True
    assert rule.when({"amount": 50}) is False


# --- tool and agent ---


@pytest.mark.parametrize(
    ("pattern", "tool", "fits"),
    [
        ("send_email", "send_email", True),
        ("send_email", "send_emails", False),
        ("send_*", "send_", True),
        ("send_*", "resend_email", False),
        ("*", "", True),
        ("SEND", "send", False),
        ("file?", "file1", True),
        ("file?", "file", False),
        ("file[0-9]", "file7", True),
        ("file[!0-9]", "file7", False),
        ("a.b", "axb", False),
        ("send_*", "send_\nx", True),
    ],
)
def test_tool_glob_is_case_sensitive(pattern: str, tool: str, fits: bool) -> None:
    assert unmet(Rule(pattern), tool) == ("" if fits else "tool")


def test_one_of_several_globs_is_enough() -> None:
    rule = Rule(["delete_*", "drop_*"], agent=["ops-*", "root"])
    assert unmet(rule, "drop_table", "ops-1") == ""
    assert unmet(rule, "delete_row", "root") == ""
    assert unmet(rule, "send", "root") == "tool"
    assert unmet(rule, "drop_table", "dev") == "agent"


# --- hours, days, time zones ---


@pytest.mark.parametrize(
    ("hours", "clock", "fits"),
    [
        ("09:00-17:30", "08:59", False),
        ("09:00-17:30", "09:00", True),
        ("09:00-17:30", "17:29", True),
        ("09:00-17:30", "17:30", False),
        ("22:00-06:00", "21:59", False),
        ("22:00-06:00", "22:00", True),
        ("22:00-06:00", "00:00", True),
        ("22:00-06:00", "05:59", True),
        ("22:00-06:00", "06:00", False),
        ("22:00-00:00", "23:59", True),
        ("22:00-00:00", "00:00", False),
        ("22:00-24:00", "23:59", True),
        ("22:00-24:00", "00:00", False),
        ("00:00-24:00", "00:00", True),
        ("00:00-24:00", "23:59", True),
    ],
)
def test_hours(hours: str, clock: str, fits: bool) -> None:
    now = at(f"2026-03-04T{clock}:59+00:00")
    assert unmet(Rule(hours=hours), now=now) == ("" if fits else "hours")


def test_days() -> None:
    rule = Rule(days=["mon", "wed"])
    assert unmet(rule, now=NOON) == ""
    assert unmet(rule, now=NOON + timedelta(days=1)) == "days"


@pytest.mark.parametrize(
    ("now", "found"),
    [
        ("2026-03-06T21:59+00:00", "hours"),  # Friday evening
        ("2026-03-06T22:00+00:00", ""),
        ("2026-03-07T05:59+00:00", ""),  # Saturday morning is still Friday night
        ("2026-03-07T06:00+00:00", "days"),
        ("2026-03-07T23:00+00:00", "days"),
        ("2026-03-06T03:00+00:00", "days"),  # Friday morning is Thursday night
    ],
)
def test_night_hours_belong_to_the_first_day(now: str, found: str) -> None:
    assert unmet(Rule(days="fri", hours="22:00-06:00"), now=at(now)) == found


def test_sunday_night_ends_on_monday() -> None:
    rule = Rule(days="sun", hours="22:00-06:00")
    assert unmet(rule, now=at("2026-03-09T01:00+00:00")) == ""


@pytest.mark.parametrize(
    ("now", "fits"),
    [
        ("2026-01-15T08:30+00:00", True),  # winter: Berlin is one hour ahead
        ("2026-01-15T07:59+00:00", False),
        ("2026-07-15T07:30+00:00", True),  # summer: two hours
        ("2026-07-15T15:30+00:00", False),
        ("2026-07-15T09:30+02:00", True),
    ],
)
def test_hours_follow_the_time_zone(now: str, fits: bool) -> None:
    rule = Rule(hours="09:00-17:00", timezone="Europe/Berlin")
    assert unmet(rule, now=at(now)) == ("" if fits else "hours")


def test_day_is_the_day_of_the_time_zone() -> None:
    rule = Rule(days="thu", timezone="Asia/Tokyo")
    assert unmet(rule, now=at("2026-03-04T14:59+00:00")) == "days"
    assert unmet(rule, now=at("2026-03-04T15:00+00:00")) == ""


def test_skipped_hour_matches_no_time() -> None:
    rule = Rule(hours="02:00-03:00", timezone="Europe/Berlin")
    night = at("2026-03-28T23:00+00:00")
    minutes = [night + timedelta(minutes=n) for n in range(6 * 60)]
    assert [now for now in minutes if unmet(rule, now=now) == ""] == []


def test_repeated_hour_matches_twice() -> None:
    rule = Rule(hours="02:00-03:00", timezone="Europe/Berlin")
    night = at("2026-10-24T22:00+00:00")
    minutes = [night + timedelta(minutes=n) for n in range(6 * 60)]
    assert sum(unmet(rule, now=now) == "" for now in minutes) == 120


def test_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        unmet(Rule(hours="09:00-17:00"), now=datetime(2026, 3, 4, 12, 0))


minutes = st.integers(0, 24 * 60 - 1)


@given(minutes, minutes, minutes, st.integers(0, 6), st.sets(st.sampled_from(DAYS), min_size=1))
def test_span_and_its_complement_cover_the_day(
    start: int, end: int, now: int, day: int, days: set[str]
) -> None:
    if start == end:
        return
    clock = NOON.replace(hour=now // 60, minute=now % 60) + timedelta(days=day)
    one, other = (
        f"{a // 60:02}:{a % 60:02}-{b // 60:02}:{b % 60:02}"
        for a, b in ((start, end), (end, start))
    )
    assert (unmet(Rule(hours=one), now=clock) == "") != (unmet(Rule(hours=other), now=clock) == "")
    # With days, a span is open for as long on each of them: from its start, for its length.
    length = (end - start) % (24 * 60)
    opened = [
        clock.replace(hour=start // 60, minute=start % 60) - timedelta(days=back) for back in (0, 1)
    ]
    inside = any(
        begin <= clock < begin + timedelta(minutes=length) and DAYS[begin.weekday()] in days
        for begin in opened
    )
    assert (unmet(Rule(hours=one, days=days), now=clock) == "") is inside


@given(st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)), st.integers(-14, 14))
def test_moment_matches_in_any_time_zone(now: datetime, offset: int) -> None:
    rule = Rule(hours="09:00-17:00", days=["mon", "tue"], timezone="America/New_York")
    moment = now.replace(tzinfo=UTC)
    elsewhere = moment.astimezone(timezone(timedelta(hours=offset)))
    assert unmet(rule, now=moment) == unmet(rule, now=elsewhere)


# --- what is refused ---


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tool": ""}, "tool=''"),
        ({"notify": []}, "name at least one"),
        ({"notify": "Push"}, "write a channel"),
        ({"notify": "mail:"}, "write a channel"),
        ({"notify": "mail:group:"}, "write a channel"),
        ({"notify": "slack:#a\u202eb"}, "contains U\\+202E"),
        ({"escalate_after": "5m"}, "belong together"),
        ({"escalate_to": "ana"}, "belong together"),
        ({"escalate_to": "group:", "escalate_after": 5}, "write the group's name"),
        ({"remind_after": "5m", "expires_in": "5m"}, "expires before that, after 300 seconds"),
        ({"notify": "push", "verdict": "allow"}, "leave out notify"),
        ({"tool": []}, r"tool=\[\]: name at least one"),
        ({"tool": 5}, "tool=5"),
        ({"tool": None}, "tool=None"),
        ({"tool": ["a", 5]}, "tool="),
        ({"tool": b"send"}, "tool="),
        ({"agent": []}, "agent="),
        ({"agent": " bot"}, "no spaces around"),
        ({"verdict": "maybe"}, "use allow, ask or deny"),
        ({"verdict": ["ask"]}, "use allow, ask or deny"),
        ({"verdict": None}, "use allow, ask or deny"),
        ({"when": "amount > 5"}, "function of the arguments"),
        ({"when": bool, "where": "a == 1"}, "not both"),
        ({"where": "amount => 5"}, "unknown operator '=>'"),
        ({"where": 5}, "where=5: use a string"),
        ({"hours": "9-17"}, "09:00-17:30"),
        ({"hours": "09:00-24:30"}, "09:00-17:30"),
        ({"hours": "24:00-09:00"}, "09:00-17:30"),
        ({"hours": "09:00-09:00"}, "the same"),
        ({"hours": "٠٩:00-17:00"}, "09:00-17:30"),
        ({"hours": 9}, "hours=9"),
        ({"days": []}, "days="),
        ({"days": ["monday"]}, "use mon, tue"),
        ({"timezone": "Mars/Olympus"}, "Europe/Berlin"),
        ({"timezone": ""}, "Europe/Berlin"),
        ({"timezone": "../../etc/passwd"}, "Europe/Berlin"),
        ({"timezone": 2}, "timezone=2"),
        ({"name": 5}, "name=5"),
        ({"allowed": []}, "use some of approve"),
        ({"allowed": ["approve", "yolo"]}, "use some of approve"),
        ({"allowed": 5}, "allowed="),
        ({"description": 5}, "a string or a function"),
        ({"reviewers": []}, "leave it out for everyone"),
        ({"reviewers": ["ana", ""]}, "reviewers="),
        ({"reviewers": ["group:"]}, "group:finance"),
        ({"quorum": 0}, "quorum=0"),
        ({"quorum": True}, "quorum=True"),
        ({"quorum": 1.0}, "quorum=1.0"),
        ({"quorum": 101}, "1 to 100"),
        ({"quorum": 2, "reviewers": ["ana"]}, "only 1 reviewers"),
        ({"quorum": 2, "allowed": ["respond", "reject"]}, "quorum=2: only approvals count"),
        ({"quorum": 2, "allowed": ["edit"]}, "not allowed here .edit.: leave out the quorum"),
        ({"requester_decides": "no"}, "requester_decides='no'"),
        ({"requester_decides": 0}, "requester_decides=0"),
        ({"assurance": "sworn"}, "use code, os-user"),
        ({"risk": "huge"}, "use low, medium"),
        ({"risk": 3}, "use low, medium"),
        ({"reasons": ["x"]}, "risk="),
        ({"risk": "low", "reasons": [5]}, "reasons="),
        ({"expires_in": 0}, "expires_in=0"),
        ({"expires_in": True}, "expires_in=True"),
        ({"expires_in": float("nan")}, "expires_in=nan"),
        ({"expires_in": "soon"}, '"15m"'),
        ({"expires_in": "-5m"}, '"15m"'),
        ({"valid_for": float("inf")}, "valid_for=inf"),
        ({"valid_for": timedelta(0)}, "valid_for="),
        ({"on_expiry": "approve"}, "time never approves"),
        ({"verdict": "allow", "quorum": 2}, "does not ask: leave out quorum"),
        ({"verdict": "deny", "reviewers": "ana"}, "does not ask: leave out reviewers"),
        ({"verdict": "allow", "requester_decides": False}, "does not ask"),
        ({"effect_key": ""}, "write a text such as"),
        ({"effect_key": 5}, "write a text such as"),
        ({"effect_key": "x" * 501}, "it has 501 characters; the limit is 500"),
        ({"effect_key": "{order}{item}"}, "two arguments next to each other"),
        ({"effect_key": "{order}and{item}"}, "two arguments next to each other"),
        ({"effect_key": "{order"}, "a lone '{'"),
        ({"effect_key": "{order}", "effect": "read"}, "a read has no effect to keep unique"),
        ({"on_duplicate": "ignore"}, 'use "raise" or "result"'),
        ({"overturn": "nobody"}, 'use "anyone" or "rejecter"'),
        ({"max_rejections": 0}, "max_rejections=0: use a whole number"),
        ({"max_rejections": True}, "max_rejections=True: use a whole number"),
        ({"verdict": "deny", "limits": "calls <= 5 per 1h"}, "has nothing to count"),
    ],
)
def test_invalid_rule_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidPolicy, match=message):
        Rule(**given)


def test_quorum_of_a_group_is_the_groups_business() -> None:
    assert Rule(quorum=5, reviewers=["ana", "group:finance"]).quorum == 5


@pytest.mark.parametrize(
    ("written", "length"),
    [
        (90, 90.0),
        (0.5, 0.5),
        (timedelta(days=1), 86_400.0),
        ("90s", 90.0),
        ("15m", 900.0),
        ("24h", 86_400.0),
        ("7d", 604_800.0),
        ("1.5h", 5_400.0),
        (None, None),
    ],
)
def test_lengths_of_time(written: float | timedelta | str | None, length: float | None) -> None:
    assert parse_duration(written, "expires_in") == length


@pytest.mark.parametrize("written", ["", "m", "15", "15 m", "15M", "1w", "1e3s", "٣m", "15m\n"])
def test_invalid_duration_is_refused(written: str) -> None:
    with pytest.raises(InvalidPolicy, match="expires_in="):
        parse_duration(written, "expires_in")


@given(st.lists(st.sampled_from(DECISIONS), min_size=1))
def test_allowed_decisions_have_one_order(wanted: list[str]) -> None:
    listed = allowed_decisions(wanted)
    assert set(listed) == set(wanted)
    assert allowed_decisions(reversed(wanted)) == listed


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        (Rule("drop_*", verdict="deny"), "Calls of drop_* are denied."),
        (Rule(verdict="allow", agent="desk"), "All calls by desk run."),
        (
            Rule("pay", where="(amount>=5 and cc exists)", reviewers=["ana", "group:finance"]),
            "Calls of pay where amount >= 5 and cc exists need approval by ana or group:finance.",
        ),
        (
            Rule("pay", quorum=2, risk="high", expires_in="90m", assurance="session"),
            "Calls of pay need approval by 2 people, with assurance session; the risk is high; "
            "requests expire after 90m.",
        ),
        (
            Rule(["a", "b"], days=["fri", "sat"], hours="22:00-06:00", timezone="Europe/Berlin"),
            "Calls of a and b on fri, sat at 22:00-06:00 (Europe/Berlin) need approval.",
        ),
        (
            Rule("pay", when=at, until="2026-05-01", verdict="allow"),
            "Calls of pay for which at returns True until 2026-05-01 (UTC) run.",
        ),
        (
            Rule("pay", quorum=2, reviewers=["ana", "bob"], expires_in=45),
            "Calls of pay need approval by 2 people of ana or bob; requests expire after 45s.",
        ),
        (
            Rule("pay", reviewer="model:triage"),
            "Calls of pay need approval; model:triage reviews them first, and may reject them.",
        ),
        (
            Rule("pay", reviewer="model:triage", reviewer_allows=True, risk="low"),
            "Calls of pay need approval; the risk is low; model:triage reviews them first, and may "
            "reject or allow them.",
        ),
    ],
)
def test_rule_is_explained_in_a_sentence(rule: Rule, sentence: str) -> None:
    assert rule.sentence() == sentence
