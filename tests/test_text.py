"""Agent text is inert: nothing hidden stays hidden, nothing is lost, no two texts look alike."""

from __future__ import annotations

import hashlib
import json
import re
import string
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sayso.text import Visible, examined, fingerprint, inline, lines, notes, visible

# Characters that make trouble, far more often than chance would bring them.
NASTY = (
    "\n\t\r\x00\x07\x08\x1b\x7f\x85\x9b\xa0\xad\u034f\u061c\u115f\u180e\u200b\u200d\u202e\u2028\u2066"
    "\u2064\u2800\u3000\u3164\ufe0f\ufeff\ufff9\ufffc\ue000\uffff\ud800\udfff\U000e0041\U000e0100"
    "\u0301\u0338\u20e3⟨⟩⏎⇥│·•\u2329 \"'\\:-[]{}U+202E0123"
)
CATEGORIES_NEVER_SHOWN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}

texts = st.text(st.one_of(st.sampled_from(NASTY), st.characters(), st.sampled_from("aé中1")))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


def decode(shown: str) -> str:
    """Undo the escapes: that this can be written proves that no two texts share one."""
    return re.sub(r"⟨U\+([0-9A-F]{4,6})⟩", lambda found: chr(int(found[1], 16)), shown)


def assert_inert(shown: str, kept: str = "\n\t ") -> None:
    for char in shown:
        assert char in kept or unicodedata.category(char) not in CATEGORIES_NEVER_SHOWN, ascii(char)


# --- what is made visible ---


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("\x1b[2K\x1b[1A", "⟨U+001B⟩[2K⟨U+001B⟩[1A", id="ESC sequences"),
        pytest.param("safe\revil", "safe⟨U+000D⟩evil", id="CR"),
        pytest.param("rm\x08\x08ls", "rm⟨U+0008⟩⟨U+0008⟩ls", id="backspace"),
        pytest.param("ding\x07", "ding⟨U+0007⟩", id="BEL"),
        pytest.param("\x1b]8;;http://a\x07b", "⟨U+001B⟩]8;;http://a⟨U+0007⟩b", id="OSC 8"),
        pytest.param("\x9b31m", "⟨U+009B⟩31m", id="C1"),
        pytest.param("a\x00b\x7f", "a⟨U+0000⟩b⟨U+007F⟩", id="NUL and DEL"),
        pytest.param("gpj.\u202eexe", "gpj.⟨U+202E⟩exe", id="bidi override"),
        pytest.param("\u2066a\u2069\u200f", "⟨U+2066⟩a⟨U+2069⟩⟨U+200F⟩", id="bidi isolates"),
        pytest.param("pay\u200bpal\ufeff", "pay⟨U+200B⟩pal⟨U+FEFF⟩", id="zero-width"),
        pytest.param("hi\U000e0041\U000e007f", "hi⟨U+E0041⟩⟨U+E007F⟩", id="tags"),
        pytest.param("a\ufe0f\U000e0100", "a⟨U+FE0F⟩⟨U+E0100⟩", id="variation selectors"),
        pytest.param("\u3164\u115f\u1160\uffa0", "⟨U+3164⟩⟨U+115F⟩⟨U+1160⟩⟨U+FFA0⟩", id="fillers"),
        pytest.param("a\u2800b", "a⟨U+2800⟩b", id="Braille blank"),
        pytest.param("a\xa0b\u3000\u2009", "a⟨U+00A0⟩b⟨U+3000⟩⟨U+2009⟩", id="NBSP and odd spaces"),
        pytest.param("a\u2028b\u2029\x85", "a⟨U+2028⟩b⟨U+2029⟩⟨U+0085⟩", id="line separators"),
        pytest.param("\ud800x\udfff", "⟨U+D800⟩x⟨U+DFFF⟩", id="lone surrogates"),
        pytest.param("\ue000\U0010fffd", "⟨U+E000⟩⟨U+10FFFD⟩", id="private use"),
        pytest.param("\u0378\uffff", "⟨U+0378⟩⟨U+FFFF⟩", id="unassigned"),
        pytest.param("co\xadop\u034f", "co⟨U+00AD⟩op⟨U+034F⟩", id="soft hyphen and joiner"),
        pytest.param("\ufff9\ufffb\ufffc", "⟨U+FFF9⟩⟨U+FFFB⟩⟨U+FFFC⟩", id="annotation, object"),
        pytest.param("2\u2062x\u2064", "2⟨U+2062⟩x⟨U+2064⟩", id="invisible operators"),
        pytest.param("\u17b4\u180b\u180e", "⟨U+17B4⟩⟨U+180B⟩⟨U+180E⟩", id="Khmer and Mongolian"),
    ],
)
def test_hidden_characters_are_escaped_and_counted(text: str, shown: str) -> None:
    result = visible(text)
    assert result.text == shown
    assert result.hidden == shown.count("⟨")
    assert result.notes[0].startswith(f"{result.hidden} hidden character")
    assert inline(text) == shown
    assert examined({text: [text]}).hidden == 2 * result.hidden


@pytest.mark.parametrize(
    "text",
    [
        "",
        string.printable.split("\t")[0],
        "two\nlines\tand a tab ",
        "Grüße, 你好, שלום, नमस्ते, ภาษาไทย, 👍🏽 🇩🇪",
        "[bold]x[/bold] [@click=app.approve]y[/] [link=http://a]b[/link]",
        "<img src=x onerror=alert(1)> [x](javascript:1) <!channel> {{7*7}} **b**",
    ],
)
def test_ordinary_text_is_unchanged(text: str) -> None:
    assert visible(text) == Visible(text)


def test_emoji_stay_but_their_joiners_are_shown() -> None:
    assert visible("👩\u200d👧").text == "👩⟨U+200D⟩👧"
    assert visible("❤\ufe0f").text == "❤⟨U+FE0F⟩"


def test_combining_marks_are_limited() -> None:
    assert visible("\u0301a\u0301 \u0338").text == "⟨U+0301⟩a\u0301 ⟨U+0338⟩"
    assert visible("a" + "\u0301" * 6).text == "a" + "\u0301" * 4 + "⟨U+0301⟩" * 2
    assert visible("\u200b\u0338").text == "⟨U+200B⟩⟨U+0338⟩", "nor may it strike out our escape"


def test_escape_written_by_agent_is_escaped() -> None:
    result = visible("⟨U+202E⟩")
    assert result.text == "⟨U+27E8⟩U+202E⟨U+27E9⟩"
    assert result.hidden == 0
    assert result.notes == ("contains the brackets ⟨ ⟩ itself; they are shown as code points",)


def test_inline_text_is_one_line() -> None:
    assert inline("a\n\tb") == "a⏎⇥b"
    assert inline("⏎⇥") == "⟨U+23CE⟩⟨U+21E5⟩"
    assert visible("⏎⇥").text == "⏎⇥"


@given(texts)
@example("⟨U+202E⟩")
def test_visible_is_inert_and_loses_nothing(text: str) -> None:
    result = visible(text)
    assert_inert(result.text)
    assert visible(result.text).hidden == 0
    assert decode(result.text) == text
    for note in result.notes:
        assert_inert(note, kept=" ")


@given(texts)
@example("⏎\n⇥\t")
def test_inline_is_inert_and_loses_nothing(text: str) -> None:
    shown = inline(text)
    assert_inert(shown, kept=" ")
    assert decode(shown.replace("⏎", "\n").replace("⇥", "\t")) == text


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E)))
def test_printable_ascii_is_unchanged(text: str) -> None:
    assert visible(text) == Visible(text)
    assert inline(text) == text


@given(texts, texts)
def test_two_texts_are_never_shown_alike(one: str, other: str) -> None:
    assert (visible(one).text == visible(other).text) == (one == other)
    assert (inline(one) == inline(other)) == (one == other)


# --- notes ---


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("p\u0430ypal.com", "mixes Latin and Cyrillic letters: 'p\u0430ypal.com' (U+0430)"),
        ("to b\u043eb@example.com!", "Cyrillic letters: 'b\u043eb@example.com' (U+043E)"),
        ("/etc/p\u0430sswd", "Cyrillic letters: 'p\u0430sswd' (U+0430)"),
        ("delete_us\u0435r", "Cyrillic letters: 'delete_us\u0435r' (U+0435)"),
        ("https://g\u03bf\u03bfgle.com/x", "Greek letters: 'g\u03bf\u03bfgle.com' (U+03BF)"),
        ("micr\u0585soft", "Armenian letters: 'micr\u0585soft' (U+0585)"),
        ("p\u0430yp\u03b1l", "Latin and Cyrillic and Greek letters"),
        ("p\u0430\u200bypal", "'p\u0430⟨U+200B⟩ypal' (U+0430)"),
        ("\uff50aypal", "mixes Latin and Fullwidth letters"),
        (
            "\u0430\u0440\u0440\u04cf\u0435.com",
            "'\u0430\u0440\u0440\u04cf\u0435.com' (U+0430, U+0440, U+04CF, U+0435)",
        ),
        ("e\u0301", "text is not NFC-normalised"),
    ],
)
def test_look_alikes_are_named(text: str, note: str) -> None:
    assert note in "\n".join(visible(text).notes)


@pytest.mark.parametrize(
    "text",
    [
        "Привет, world",
        "москва.рф",
        "пример.com",
        "/data/anna/Отчёт.pdf",
        "IT-отдел",
        "10\u03bcm and k\u03a9",
        "\u03b1-helix",
        "Tシャツ, A股, SNS를",
        "naïve café",
    ],
)
def test_ordinary_foreign_text_has_no_notes(text: str) -> None:
    assert visible(text).notes == ()


def test_notes_cover_keys_and_values_once() -> None:
    word = "p\u0430ypal.com"
    value = {"a\u200b": [word, {"b": word}], "c": "\u200b\u200b"}
    assert examined(value).hidden == 3
    assert notes(value) == (
        "3 hidden characters",
        f"mixes Latin and Cyrillic letters: '{word}' (U+0430)",
    )
    assert notes([1, None, True, "x", {}]) == ()


def test_notes_stay_short() -> None:
    found = notes([f"p\u0430ypal{number}.com" for number in range(1000)])
    assert len(found) == 6
    assert found[-1] == "mixes letters in 995 more words"
    letters = "".join(map(chr, range(0x430, 0x450)))
    assert len(notes("a" + letters * 1000)[0]) < 200


# --- lines ---


def test_lines_lay_a_value_out() -> None:
    value = {
        "to": ["ann@example.com", " bob"],
        "amount": 12,
        "note": "12",
        "urgent": True,
        "reason": None,
        "body": "Dear Ann,\n  pay \n",
        "options": {"first name": "", "tags": [], "more": {}},
        "k\u202e": "\x1b[2K\tx",
    }
    assert lines(value) == [
        "to:",
        "  - ann@example.com",
        '  - " bob"',
        "amount:      12",
        'note:        "12"',
        "urgent:      true",
        "reason:      null",
        "body:",
        "  │ Dear Ann,",
        "  │   pay⟨U+0020⟩",
        "  │ ",
        "options:",
        '  "first name": ""',
        "  tags:         []",
        "  more:         {}",
        '"k⟨U+202E⟩": ⟨U+001B⟩[2K⇥x',
    ]


@pytest.mark.parametrize(
    "text", ["", "12", "-1.5e3", "true", "NULL", "None", "NaN", "{}", "[]", " x", "x ", '"x"', "١٢"]
)
def test_ambiguous_string_is_quoted(text: str) -> None:
    assert lines([text]) == [f"- {json.dumps(text, ensure_ascii=False)}"]


@pytest.mark.parametrize("text", ["x", 'say "hi"', "a: b", "- a", "C:\\temp", "1,000", "0 items"])
def test_other_strings_are_bare(text: str) -> None:
    assert lines({"k": text}) == [f"k: {text}"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a: b", ['"a: b"']),
        ("a\nb", ["│ a", "│ b"]),
        (7, ["7"]),
        ({}, ["{}"]),
        ([], ["[]"]),
        ([["x"]], ["-", "  - x"]),
    ],
)
def test_lines_of_a_bare_value(value: object, shown: list[str]) -> None:
    assert lines(value) == shown


@pytest.mark.parametrize("value", [{1, 2}, [b"x"], {"k": object()}, {1: "x"}])
def test_value_outside_json_raises(value: object) -> None:
    with pytest.raises(TypeError):
        lines(value)


@given(json_values)
def test_lines_are_inert(value: object) -> None:
    for line in lines(value):
        assert_inert(line, kept="\t ")


@given(json_values, json_values)
@example({"a": "b"}, "a: b")
@example({"a: b": "c"}, {"a": "b: c"})
@example({'a": "b': "c"}, {"a": '"b": c'})
@example(["- x"], [["x"]])
@example({"a": "│ x"}, {"a": "\nx"})
def test_two_values_are_never_laid_out_alike(one: object, other: object) -> None:
    assert (lines(one) == lines(other)) == (json.dumps(one) == json.dumps(other))


def test_long_key_does_not_indent_others() -> None:
    assert lines({"k" * 30: 1, "a": 2, "bb": 3}) == ["k" * 30 + ": 1", "a:  2", "bb: 3"]


def test_megabyte_is_shown_completely() -> None:
    text = "pay \u200b\n" * 200_000 + "and delete everything"
    shown = lines({"body": text})
    assert len(shown) == 200_002
    assert shown[-1] == "  │ and delete everything"
    assert examined({"body": text}).hidden == 200_000
    assert decode(visible(text).text) == text
    assert lines(["1" * 1_000_000]) == [f'- "{"1" * 1_000_000}"']


@pytest.mark.parametrize("depth", [500, 20_000])
def test_deep_values_are_shown(depth: int) -> None:
    value: object = "\u202eend"
    for level in range(depth):
        value = [value] if level % 2 else {"k": value}
    shown = lines(value)
    assert len(shown) == depth
    assert shown[-1].endswith("k: ⟨U+202E⟩end")
    assert max(map(len, shown)) < 80
    assert examined(value).hidden == 1
    assert notes(value) == ("1 hidden character",)


def test_depth_past_twenty_is_a_number() -> None:
    value: object = "x"
    for _ in range(23):
        value = [value]
    assert lines(value)[20:] == [" " * 40 + "-", " " * 40 + "[21] -", " " * 40 + "[22] - x"]


# --- secrets ---


def test_mask_contains_no_guessable_hash() -> None:
    assert fingerprint("4821") == fingerprint("4822") == "•••• (4 chars)"
    assert fingerprint("\ud800") == "•••• (1 char)"
    long, other = fingerprint("x" * 32), fingerprint("y" * 32)
    assert re.fullmatch(r"•••• \(32 chars, fingerprint [0-9a-f]{8}\)", long)
    assert long != other
    assert long == fingerprint("x" * 32)
    for name in hashlib.algorithms_guaranteed - {"shake_128", "shake_256"}:
        assert hashlib.new(name, b"x" * 32).hexdigest()[:8] not in long
    code = "from sayso.text import fingerprint; print(fingerprint('x' * 32))"
    elsewhere = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert elsewhere.stdout.strip() not in ("", long)
