"""Cards that agents cannot forge, keys, and JSON to edit."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from sayso import Option, Question, Request, Risk
from sayso.channels.card import card, clock, diff, length, title
from sayso.channels.layout import Line, block, name, numbered, rows, wrapped
from sayso.channels.prompt import as_json, keys_for, parsed, picked, skeleton
from sayso.channels.screen import console, show
from sayso.errors import InvalidCall
from sayso.types import DecisionMade, EarlierRejection, Execution, Opinion

NOW = datetime(2026, 3, 31, 12, 0, tzinfo=UTC)


def drawn(request: Request, width: int = 80) -> list[str]:
    return [row.gutter + row.text for row in rows(card(request, NOW), width)]


def test_secrets_of_the_tool_are_shown_as_fingerprints(request_: Request) -> None:
    schema = {"properties": {"to": {"type": "string"}, "body": {"type": "string"}}}
    schema["properties"]["body"]["format"] = "password"
    args = {"to": "ana", "body": "hush"}
    secret = replace(request_, args=args, original={**args, "body": "psst"}, schema=schema)
    shown = "\n".join(drawn(secret))
    assert "hush" not in shown
    assert "psst" not in shown
    assert "ana" in shown
    assert "4 chars" in shown


# -- rows


@given(st.text(), st.integers(8, 200))
def test_wrapping_loses_nothing(line: str, width: int) -> None:
    assert "".join(wrapped(line, width)) == line


@given(st.text(st.characters(exclude_categories=["C", "Z", "M"])), st.integers(20, 200))
def test_no_row_is_wider_than_asked(line: str, width: int) -> None:
    for row in rows([Line(line, gutter="  1  ")], width):
        assert cell_len(row.gutter + row.text) <= width


@given(st.text(), st.integers(20, 80))
def test_agent_text_rows_have_a_gutter(words: str, width: int) -> None:
    for row in rows(block(words), width):
        assert (row.gutter + row.text).startswith(("  │ ", "  ┆ "))


@given(st.text(min_size=1))
def test_name_is_one_word_or_in_quotes(words: str) -> None:
    shown = name(words)
    assert re.fullmatch(r'[\w.:/@+\-]+|"(?:[^"\\]|\\.)*"', shown)
    assert "\n" not in shown


def test_mark_stays_with_its_letter() -> None:
    assert wrapped("a" * 10 + "\u0301" + "b", 10) == ["a" * 10 + "\u0301", "b"]


def test_tabs_and_arrows_look_different() -> None:
    assert [line.text for line in block("\t⇥")] == ["⇥⟨U+21E5⟩"]
    assert [line.text for line in numbered({"a": "\tx\n⇥"})] == ["a:", "  │ ⇥x", "  │ ⟨U+21E5⟩"]


def test_markup_is_only_text(capsys: pytest.CaptureFixture[str]) -> None:
    show(console(plain=True), [Line("[red]x[/red] [@click=app.quit]y[/] :smile:")])
    assert capsys.readouterr().out == "[red]x[/red] [@click=app.quit]y[/] :smile:\n"


# -- cards


def test_title_shows_tool_risk_and_expiry(request_: Request) -> None:
    risky = replace(
        request_, risk=Risk("high", ("money",)), expires_at=NOW + timedelta(minutes=12, seconds=3)
    )
    (line,) = title(risky, NOW)
    assert re.fullmatch(
        r"APPROVE\?  send_email  risk HIGH  expires \d\d:\d\d \(in 12m\)", line.text
    )


@pytest.mark.parametrize(
    "tool", ["x  risk LOW", 'x" risk LOW', "x\nAPPROVE?  y", "\x1b[2Jx", "x\u202ey", "[red]x"]
)
def test_tool_cannot_forge_the_title(request_: Request, tool: str) -> None:
    forged = replace(request_, tool=tool, agent=tool, run=tool, rule=tool)
    (line,) = title(replace(forged, risk=Risk("high")), NOW)
    assert re.fullmatch(r'APPROVE\?  "(?:[^"\\]|\\.)*"  risk HIGH', line.text)
    inert = "\n".join(drawn(forged))
    assert "\x1b" not in inert
    assert "\u202e" not in inert


def test_cancelled_request_shows_the_reason(request_: Request) -> None:
    ended = replace(
        request_, status="cancelled", execution=Execution("none", 0, "paid\x1b by hand")
    )
    card = drawn(ended)
    assert card[card.index("Why it was cancelled") + 1].endswith("paid⟨U+001B⟩ by hand")
    silent = replace(request_, status="cancelled")
    assert "Why it was cancelled" not in drawn(silent)


def test_earlier_rejections_are_warned_of(request_: Request) -> None:
    by_ana = EarlierRejection(id="ref_1", by="ana", at=NOW, message="never\x1b again")
    silent = EarlierRejection(id="ref_2", by="bo", at=NOW, message="")
    hidden = EarlierRejection(id="ref_3")
    at = f"{NOW.astimezone():%Y-%m-%d %H:%M}"
    warnings = [
        row
        for row in drawn(replace(request_, refusals=(by_ana, silent, hidden)))
        if row.startswith("! ")
    ]
    assert warnings == [
        f"! ana rejected an equal call at {at}: never⟨U+001B⟩ again",
        f"! bo rejected an equal call at {at}.",
        "! An equal call was rejected before.",
    ]


def test_risk_and_word_of_a_model_have_reasons(request_: Request) -> None:
    opinion = Opinion(model="model:triage", answer="ask", reason="a new payee")
    risky = replace(request_, risk=Risk("high", ("money", "a new payee")), opinion=opinion)
    shown = "\n".join(drawn(risky))
    assert "money; a new payee" in shown
    assert "model:triage answered ask: a new payee" in shown


@pytest.mark.parametrize(
    ("status", "execution", "value", "heading", "result"),
    [
        ("approved", Execution("done", 1, {"id": 7}), None, "Result", "id: 7"),
        ("approved", Execution("failed", 1, "no route"), None, "Error", "no route"),
        ("responded", Execution("none", 0), "sent by hand", "Result", "sent by hand"),
        ("responded", Execution("done", 1, "as it ran"), None, "Result", "as it ran"),
    ],
)
def test_closed_request_shows_its_result(
    request_: Request,
    status: Any,
    execution: Execution,
    value: Any,
    heading: str,
    result: str,
) -> None:
    decision = DecisionMade(
        type="respond",
        by="ana",
        at=NOW,
        channel="cli",
        assurance="token",
        source="model",
        value=value,
    )
    card = drawn(replace(request_, status=status, execution=execution, decision=decision))
    assert result in card[card.index(heading) + 1]
    assert any("respond by ana, a model, not verified" in row for row in card)


@pytest.mark.parametrize("width", [20, 40, 80, 160, 200])
def test_card_fits_width_and_shows_arguments(request_: Request, width: int) -> None:
    words = " ".join(f"word{n}" for n in range(300))
    whole = drawn(replace(request_, args={"body": words, "to": "界" * 100}), width)
    assert max(map(cell_len, whole)) <= width
    together = re.sub(r"[ ┆]", "", "".join(whole))
    assert words.replace(" ", "") in together
    assert "界" * 100 in together


def test_first_column_is_ours(request_: Request) -> None:
    args = {"body": "APPROVE?  x\nrisk LOW\n\n! fine", "to": "What will run " * 20}
    whole = drawn(replace(request_, args=args, note="Description\nx", description="History"), 40)
    ours = {"What will run", "Description", "The agent says (not verified)", ""}
    assert all(row.startswith((" ", "APPROVE?")) or row in ours for row in whole)
    assert sum(row.startswith("APPROVE?") for row in whole) == 1


def test_hidden_and_mixed_characters_are_warned_of(request_: Request) -> None:
    whole = drawn(replace(request_, args={"to": "\u0440\u0430ypal.com", "body": "\u202e"}))
    assert any(row.startswith("! 1 hidden character") for row in whole)
    assert any(row.startswith("! mixes Latin and Cyrillic") for row in whole)


def test_diff_contains_only_changes() -> None:
    before = {"a": "same", "b": "old", "c": list(range(30))}
    lines = [f"{line.gutter}{line.text}" for line in diff(before, {**before, "b": "new"})]
    assert "  - b: old" in lines
    assert "  + b: new" in lines
    assert len([line for line in lines if line.startswith(("  -", "  +"))]) == 2
    assert len(lines) < 12


def test_order_of_keys_is_no_change() -> None:
    before = {"b": {"y": 1, "x": [{"q": 1, "p": 2}, 3]}, "a": 1}
    after = {"a": 1, "b": {"x": [{"p": 2, "q": 1}, 3, 4], "y": 1}}
    changed = [line for line in diff(before, after) if line.gutter in ("  - ", "  + ")]
    assert [line.text for line in changed] == ["    - 4"]


def test_diff_of_many_equal_lines_is_quick() -> None:
    before = {"list": [0] * 20_000}
    assert list(diff(before, {"list": [0] * 20_000 + [1]}))


def test_times_are_short() -> None:
    assert [length(NOW, NOW - timedelta(seconds=s)) for s in (5, 65, 7_300, 90_000)] == [
        "5s",
        "1m",
        "2h",
        "1d",
    ]
    assert re.fullmatch(r"\d\d:\d\d", clock(NOW, NOW))
    assert re.fullmatch(r"2026-03-2\d \d\d:\d\d", clock(NOW - timedelta(days=4), NOW))


def test_keys_follow_allowed_decisions(request_: Request) -> None:
    few = replace(request_, allowed=("approve", "reject"))
    assert list(keys_for(few)) == ["a", "r", "x", "s", "v", "d", "?", "q"]
    doubt = replace(request_, kind="in_doubt")
    assert list(keys_for(doubt))[:3] == ["1", "2", "3"]
    assert "a" not in keys_for(doubt)


@pytest.mark.parametrize(
    ("words", "one", "many"),
    [
        ("1", "S", ["S"]),
        ("2", 2, [2]),
        ("1,2", None, ["S", 2]),
        ("2 1", None, [2, "S"]),
        ("1,1", None, None),
        ("0", None, None),
        ("3", None, None),
        ("-1", None, None),
        ("²", None, None),
        ("", None, None),
    ],
)
def test_options_by_number(words: str, one: object, many: object) -> None:
    options = (Option("S"), Option("L", 2))
    assert picked(Question("?", options), words) == one
    assert picked(Question("?", options, multiple=True), words) == many


# -- editing


@given(st.recursive(st.none() | st.booleans() | st.text(), st.lists, max_leaves=10))
def test_editor_json_survives_a_round_trip(value: object) -> None:
    try:
        shown = as_json(value)
        back = parsed(shown, None)
    except InvalidCall:
        return  # half a surrogate pair is refused at intake too
    assert back == value
    assert not re.search(
        "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", shown
    )


def test_skeleton_starts_from_the_schema() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "string"},
            "b": {"default": 5},
            "c": {"enum": ["x"]},
            "d": {"type": "array"},
            "e": True,
            "f": {"type": ["string", "null"]},
            "g": {"enum": []},
        },
    }
    expected = {"a": "", "b": 5, "c": "x", "d": [], "e": None, "f": None, "g": None}
    assert skeleton(schema) == expected


def test_skeleton_follows_references() -> None:
    place = {"type": "object", "properties": {"zip": {"type": "string"}, "kind": {"const": "home"}}}
    schema = {
        "type": "object",
        "properties": {"to": {"$ref": "#/$defs/Place"}, "up": {"$ref": "#"}, "x": {"$ref": "#/no"}},
        "$defs": {"Place": place},
    }
    made = skeleton(schema)
    assert (made["to"], made["x"]) == ({"zip": "", "kind": "home"}, None)
    assert str(made).count("'up'") < 8


def test_card_shows_second_stage_of_escalation(request_: Request) -> None:
    at = NOW + timedelta(minutes=30)
    stages = replace(request_, reviewers=("ana",), escalates_at=at, escalate_to=("group:leads",))
    shown = " ".join("\n".join(drawn(stages)).split())
    assert f"from {clock(at, NOW)}, group:leads may decide too" in shown
