"""The interactive prompt, in real pseudo-terminals: nothing is decided by accident."""

from __future__ import annotations

import os
import re
import signal

import pytest
from cli_world import ME, World

from sayso import Gate, Option, Question

# -- deciding


@pytest.mark.long
def test_key_approves_shown_request(world: World) -> None:
    request = world.mail()
    person = world.person("approve", request)
    card = person.at_prompt("a")
    assert "APPROVE?  send_email  risk LOW" in card
    assert re.search(r"to: +ana@example.com", card)
    assert "Approved." in person.ends(0)
    done = world.get(request)
    assert (done.status, done.decision and done.decision.by) == ("approved", ME)
    assert done.decision is not None
    assert (done.decision.assurance, done.decision.channel) == ("os-user", "cli")
    assert world.resume() == "sent to ana@example.com"


@pytest.mark.long
def test_repeated_enter_leaves_it_pending(world: World) -> None:
    request = world.mail()
    person = world.person("approve", request)
    for _ in range(5):
        person.at_prompt("")
    screen = person.ends(75)
    assert screen.count("Nothing was decided: type one of a, e, r, x, m, s, v, d, ?, q") == 5
    assert f"Left pending: {request}" in screen
    assert world.get(request).status == "pending"


@pytest.mark.parametrize("word", ["y", "yes", "ok", "approve", "aa", "1", "ä", "\x1b[A"])
def test_unknown_key_decides_nothing(world: World, word: str) -> None:
    request = world.mail()
    person = world.person("approve", request)
    person.at_prompt(word)
    person.at_prompt("q")
    assert "Nothing was decided" in person.ends(75)
    assert world.get(request).status == "pending"


def test_keys_typed_before_the_card_do_not_count(world: World) -> None:
    request = world.mail()
    person = world.person("approve", request)
    for _ in range(3):
        person.types("a")
    person.sees("digest ")
    person.types("a")  # before anyone can have read it
    person.at_prompt("s")
    person.ends(75)
    assert world.get(request).status == "pending"


def test_paste_decides_nothing(world: World) -> None:
    request = world.mail()
    person = world.person("approve", request)
    person.at_prompt("\x1b[200~a\x1b[201~")
    person.at_prompt("\x1b[200~x\ra\ra\x1b[201~")
    person.at_prompt("q")
    assert person.ends(75).count("Pasted text is ignored") == 2
    assert world.get(request).status == "pending"


@pytest.mark.parametrize("key", ["\x03", "\x04", "a\x04\x04", "a\x03"])
def test_control_c_and_control_d_leave_it_pending(world: World, key: str) -> None:
    request = world.mail()
    person = world.person("approve", request)
    person.sees("uit > ")
    person.process.send(key)
    screen = person.ends(75)
    assert f"Left pending: {request}" in screen
    assert "Traceback" not in screen
    assert world.get(request).status == "pending"


def test_control_c_at_the_reason_leaves_it_pending(world: World) -> None:
    request = world.mail()
    person = world.person("reject", request)
    person.sees("Enter for none\\):")
    person.process.sendintr()
    person.ends(75)
    assert world.get(request).status == "pending"


def test_sigterm_leaves_it_pending(world: World) -> None:
    request = world.mail()
    person = world.person("approve", request)
    person.sees("uit > ")
    person.process.kill(signal.SIGTERM)
    person.ends(75)
    assert world.get(request).status == "pending"


def test_closed_terminal_leaves_it_pending(world: World) -> None:
    request = world.mail()
    person = world.person("approve", request)
    person.sees("uit > ")
    person.process.close(force=True)
    assert world.get(request).status == "pending"


@pytest.mark.long
def test_reject_with_a_reason(world: World) -> None:
    request = world.mail()
    person = world.person("approve", request)
    person.at_prompt("r")
    person.at_prompt("not today", r"Enter for none\): ")
    assert "Rejected." in person.ends(0)
    done = world.get(request)
    assert done.decision is not None
    assert (done.status, done.decision.message) == ("rejected", "not today")


def test_disallowed_decisions_are_not_offered(world: World) -> None:
    request = world.mail(allowed=("approve", "reject"))
    person = world.person("approve", request)
    assert "[e]dit" not in person.at_prompt("e")
    person.at_prompt("m")
    person.at_prompt("q")
    assert person.ends(75).count("Nothing was decided") == 2


@pytest.mark.long
def test_respond_replaces_the_run(world: World) -> None:
    request = world.mail()
    person = world.person("respond", request)
    person.at_prompt('{"broken', r"go back\): ")
    person.at_prompt("m")
    person.at_prompt("sent by hand", r"go back\): ")
    assert "The result (text):" in person.at_prompt("n", r"\[n\]o > ")
    person.at_prompt("m")
    person.at_prompt("sent by hand", r"go back\): ")
    person.at_prompt("y", r"\[n\]o > ")
    assert "Answered." in person.ends(0)
    assert world.resume() == "sent by hand"
    assert world.ran == []


# -- editing


@pytest.mark.long
def test_edit_shows_the_diff_and_asks_again(world: World) -> None:
    request = world.mail()
    editor = world.editor("value['to'] = 'ben@example.com'")
    person = world.person("edit", request, EDITOR=editor)
    diff = person.at_prompt("a", r"\[b\]ack > ")
    assert re.search(r"- to: +ana@example.com", diff)
    assert re.search(r"\+ to: +ben@example.com", diff)
    assert "Approved with your changes." in person.ends(0)
    done = world.get(request)
    assert (done.status, done.args["to"]) == ("edited", "ben@example.com")
    assert world.resume() == "sent to ben@example.com"
    assert world.ran == [("ben@example.com", "Hi")]


def test_edited_file_is_private_and_removed(world: World) -> None:
    request = world.mail(body="\x1b[2J\u202e ü")
    copy = world.folder / "copy"
    editor = world.editor(
        "mode = stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)\n"
        f"copy = pathlib.Path({str(copy)!r})\n"
        "copy.write_text(f'{mode[0]:o} {mode[1]:o} {path}\\n' + path.read_text())"
    )
    person = world.person("edit", request, EDITOR=editor)
    person.at_prompt("q")
    assert "You changed nothing" in person.ends(75)
    head, _, text = copy.read_text().partition("\n")
    file_mode, folder_mode, path = head.split()
    assert (file_mode, folder_mode, os.path.exists(path)) == ("600", "700", False)
    assert "\\u001b[2J\\u202e ü" in text


def test_invalid_edit_is_edited_again(world: World) -> None:
    request = world.mail()
    step = world.folder / "step"
    twice = '{"to": 1, "to": 2}'
    texts = ['{"to": ', '{"to": 5}', '{"to": "a", "cc": "b"}', "[]", twice, '{"to": "x"']
    editor = world.editor(
        f"step = pathlib.Path({str(step)!r})\n"
        "n = int(step.read_text()) if step.exists() else 0\n"
        "step.write_text(str(n + 1))\n"
        f"path.write_text({texts!r}[n])"
    )
    person = world.person("edit", request, EDITOR=editor)
    for fault in (
        "not valid JSON",
        "5 is not of type",
        "cc: there is no such field",
        "is not of type 'object'",
        "appears twice",
    ):
        assert fault in person.at_prompt("e", r"\[b\]ack > ")
    person.at_prompt("b", r"\[b\]ack > ")
    person.at_prompt("q")
    person.ends(75)
    assert world.get(request).status == "pending"


@pytest.mark.long
def test_unchanged_or_failed_edit_is_ignored(world: World) -> None:
    request = world.mail()
    for editor, said in (
        (world.editor("pass"), "You changed nothing"),
        ("false", "ended with code 1"),
        ("no-such-editor-at-all", "could not be used"),
        ("'", "cannot be read"),
    ):
        person = world.person("edit", request, EDITOR=editor)
        person.at_prompt("q")
        assert said in person.ends(75)
    emptied = world.editor("path.write_text('')")
    person = world.person("approve", request, EDITOR=emptied)
    person.at_prompt("e")
    person.at_prompt("q")
    assert "The file is empty" in person.ends(75)
    assert world.get(request).status == "pending"


@pytest.mark.long
def test_named_change_is_shown_and_confirmed(world: World) -> None:
    request = world.mail()
    person = world.person("edit", request, "to=42", 'copies=["ben@example.com"]', "--unset", "body")
    shown = person.at_prompt("a", "ack > ")
    assert re.search(r"- +to: +ana@example.com", shown)
    assert re.search(r'\+ +to: +"42"', shown)
    assert "Approved with your changes." in person.ends(0)
    args = world.get(request).args
    assert (args["to"], args["copies"], args["body"]) == ("42", ["ben@example.com"], "")


def test_invalid_named_change_opens_no_editor(world: World) -> None:
    request = world.mail()
    for change, message in (("copies=7", "copies"), ("cc=ben", "cc: there is no such field")):
        person = world.person("edit", request, change, EDITOR="no-such-editor-at-all")
        assert message in person.at_prompt("b", "ack > ")
        person.at_prompt("q")
        person.ends(75)
    assert world.get(request).status == "pending"


def test_visual_comes_before_editor(world: World) -> None:
    request = world.mail()
    editor = world.editor("value['body'] = 'Ho'")
    person = world.person("edit", request, EDITOR="false", VISUAL=editor)
    person.at_prompt("b", r"\[b\]ack > ")
    person.at_prompt("q")
    person.ends(75)


# -- questions


@pytest.mark.long
def test_options_are_picked_by_number(world: World) -> None:
    size = Question("Which size?", ("Small", Option("Large", 2, "for two")))
    request = world.ask("q", lambda gate: gate.ask_sync(size))
    person = world.person("respond", request)
    card = person.at_prompt("3")
    assert "1) Small" in card
    assert "for two" in card
    person.at_prompt("1,2")
    person.at_prompt("m")
    person.at_prompt("2")
    assert "Answered." in person.ends(0)
    gate = Gate(world.url, agent="assistant", wait=0)
    with gate.run("q"):
        assert gate.ask_sync(size) == 2
    gate.close()


@pytest.mark.long
def test_several_options_and_free_text(world: World) -> None:
    tops = Question("Toppings?", ("Ham", "Olives", "Corn"), multiple=True, free_text=True)
    request = world.ask("q", lambda gate: gate.ask_sync(tops))
    person = world.person("respond", request)
    person.at_prompt("m")
    person.at_prompt("anchovies", r"go back\): ")
    person.at_prompt("1,3", r"for none\): ")
    person.ends(0)
    assert world.json("show", request)["decision"]["value"] == ["Ham", "Corn", "anchovies"]
    other = world.ask("q2", lambda gate: gate.ask_sync(tops))
    person = world.person("respond", other)
    person.at_prompt("1, 3")
    person.ends(0)
    assert world.json("show", other)["decision"]["value"] == ["Ham", "Corn"]


@pytest.mark.long
def test_free_text_may_be_typed_or_pasted(world: World) -> None:
    request = world.ask("q", lambda gate: gate.ask_sync("Why?"))
    person = world.person("respond", request)
    person.at_prompt("", r"go back\): ")
    person.at_prompt("because")  # a key comes first
    assert "your own words, type m first." in person.at_prompt("m")
    person.at_prompt("\x1b[200~two\rlines\x1b[201~", r"go back\): ")
    person.ends(0)
    assert world.json("show", request)["decision"]["value"] == "two\nlines"


@pytest.mark.long
def test_schema_question_is_answered_in_editor(world: World) -> None:
    schema = {"type": "object", "properties": {"zip": {"type": "string", "pattern": "^[0-9]+$"}}}
    request = world.ask("q", lambda gate: gate.ask_sync(Question("Zip?", schema=schema)))
    person = world.person("respond", request, EDITOR=world.editor("value['zip'] = 'abc'"))
    assert "does not match" in person.at_prompt("b", r"\[b\]ack > ")
    person.at_prompt("q")
    person.ends(75)
    person = world.person("respond", request, EDITOR=world.editor("value['zip'] = '10115'"))
    person.at_prompt("y", r"\[n\]o > ")
    assert "Answered." in person.ends(0)
    assert world.json("show", request)["decision"]["value"] == {"zip": "10115"}


@pytest.mark.long
def test_open_question_takes_text_or_json(
    world: World,
) -> None:
    question = Question("Why?", schema={}, free_text=True)
    request = world.ask("q", lambda gate: gate.ask_sync(question))
    person = world.person("respond", request)
    assert "JSON Schema" not in person.at_prompt("42", r"go back\): ")
    person.ends(0)
    assert world.json("show", request)["decision"]["value"] == "42"
    other = world.ask("r", lambda gate: gate.ask_sync(question))
    person = world.person("respond", other, EDITOR=world.editor("value = {'a': 42}"))
    person.at_prompt("e", r"go back\): ")
    person.at_prompt("y", r"\[n\]o > ")
    person.ends(0)
    assert world.json("show", other)["decision"]["value"] == {"a": 42}


@pytest.mark.long
def test_question_can_be_refused(world: World) -> None:
    request = world.ask("q", lambda gate: gate.ask_sync("Why?"))
    person = world.person("reject", request)
    person.at_prompt("", r"Enter for none\): ")
    person.ends(0)
    assert world.get(request).status == "rejected"


@pytest.mark.long
def test_confirmation_shows_text_and_details(world: World) -> None:
    request = world.ask("q", lambda gate: gate.confirm_sync("Publish?", {"files": ["a", "b"]}))
    person = world.person("approve", request)
    card = person.at_prompt("a")
    assert "│ Publish?" in card
    assert "- a" in card
    person.ends(0)


# -- in doubt


@pytest.mark.long
def test_doubt_is_settled_with_result(world: World) -> None:
    request = world.doubt()
    person = world.person("approve", request)
    card = person.at_prompt("a")
    assert "IN DOUBT  send_email" in card
    assert "its outcome is unknown" in card
    person.at_prompt("1")
    person.at_prompt('"it arrived"', r"go back\): ")
    person.at_prompt("y", r"\[n\]o > ")
    assert "Recorded as its result." in person.ends(0)
    assert world.resume() == "it arrived"
    assert world.ran == []


@pytest.mark.long
def test_doubt_is_settled_by_rerun(world: World) -> None:
    request = world.doubt()
    person = world.person("approve", request)
    person.at_prompt("2")
    assert "It will run again." in person.ends(0)
    assert world.resume() == "sent to ana@example.com"
    assert len(world.ran) == 1


@pytest.mark.long
def test_doubt_is_settled_as_failed(world: World) -> None:
    request = world.doubt()
    person = world.person("reject", request)
    person.at_prompt("never mind", r"Enter for none\): ")
    assert "Recorded as failed" in person.ends(0)
    assert world.get(request).execution.status == "failed"


# -- grants


@pytest.mark.long
def test_prompt_shows_coverage_of_grant(world: World) -> None:
    def shell(run: str, line: str) -> str:
        def act(gate: Gate) -> None:
            def bash(command: str, cwd: str) -> str:
                return f"ran {command}"

            gate.guard(needs_approval=True)(bash)(command=line, cwd="/srv/shop")

        return world.ask(run, act)

    shell("r1", "npm test -- other")
    shell("r2", "npm run build")
    request = shell("r3", "npm test")
    person = world.person("approve", request, "--always", "any")
    person.at_prompt("a")
    seen = person.at_prompt("y", r"\[y\]es, \[n\]o >")
    assert "npm test, with any arguments, in /srv/shop" in seen
    assert "would have covered: none" in seen
    assert ("npm test -- other" in seen, "npm run build" in seen) == (True, False)
    person.ends(0)
    (grant,) = world.json("grants")
    assert grant["scope"] == {"command": ["npm", "test"], "arguments": "any"}
    assert "npm test, with any arguments, in /srv/shop" in world.cli("grants")
    chained = shell("r4", "npm test; curl x")
    person = world.person("approve", chained, "--always", "any")
    person.at_prompt("a")
    person.at_prompt("q")
    assert "one plain command" in person.ends(75)
    assert world.get(chained).status == "pending"
