"""The command line as scripts use it: flags, JSON, exit codes, and never a prompt."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from cli_world import ME, World
from typer.testing import CliRunner

from assent import Gate, Paused, Question, __version__
from assent.cli.exits import MEANINGS, Exit, exit_of
from assent.cli.main import app
from assent.cli.walk import chosen
from assent.keys import new_key


def digest(world: World, request: str) -> str:
    found: str = world.json("show", request)["digest"]
    return found


# -- reading


def test_version_and_help() -> None:
    runner = CliRunner()
    assert runner.invoke(app, ["--version"]).output == f"assent {__version__}\n"
    for args in ([], ["--help"], ["inbox", "-h"], ["grants", "--help"], ["token"]):
        assert "Usage:" in runner.invoke(app, args).output


def test_an_empty_inbox(world: World) -> None:
    request = world.mail()
    world.cli("reject", request)
    assert world.cli("inbox") == "Nothing is waiting.\n"
    assert world.json("inbox") == {"items": [], "next": None}


def test_inbox_lists_filters_sorts_and_pages(world: World) -> None:
    mails = [world.mail(f"r{n}", to=f"{n}@example.com") for n in range(5)]
    asked = world.ask("q1", lambda gate: gate.ask_sync("Why not?"), agent="curious")
    everything = [*mails, asked]

    def ids(*args: str) -> list[str]:
        return [item["id"] for item in world.json("inbox", *args)["items"]]

    assert ids() == everything
    assert ids("--sort", "newest") == everything[::-1]
    assert ids("--kind", "question") == ids("--agent", "curious") == [asked]
    assert ids("--tool", "send_email") == mails
    assert ids("--run", "r3") == ids("--thread", "r3") == [mails[3]]
    assert ids("--q", "curious") == [asked]
    page = world.json("inbox", "--limit", "4")
    rest = world.json("inbox", "--limit", "4", "--after", page["next"])
    assert [item["id"] for item in page["items"] + rest["items"]] == everything
    table = world.cli("inbox")
    assert "body=Hi" in table
    assert "Why not?" in table
    assert "There are more: --after" in world.cli("inbox", "--limit", "2")


@pytest.mark.parametrize("columns", ["40", "80", "160"])
@pytest.mark.parametrize("plain", [(), ("--plain",)])
def test_no_row_is_wider_than_the_screen(world: World, columns: str, plain: tuple[str]) -> None:
    request = world.mail(body="word " * 200, to="x" * 300, note="note " * 50, risk="high")
    world.ask("q", lambda gate: gate.ask_sync(Question("Which? " * 30, ("A" * 90, "B"))))
    for args in (("inbox",), ("show", request), ("doctor",), ("history", "--status", "any")):
        for row in world.cli(*args, *plain, COLUMNS=columns).splitlines():
            assert len(row) <= int(columns), (args, row)


def test_show_is_whole_and_its_json_comes_back(world: World) -> None:
    body = "ü\n\t" + "x" * 5_000 + " end"
    request = world.mail(body=body, note="because", description="Mind the gap")
    shown = world.json("show", request)
    assert shown["args"] == {"to": "ana@example.com", "body": body, "copies": None}
    assert (shown["kind"], shown["status"], shown["note"]) == ("approval", "pending", "because")
    assert [event["type"] for event in shown["events"]] == ["asked"]
    assert json.loads(json.dumps(shown)) == shown
    card = world.cli("show", request)
    assert card.count("x") >= 5_000
    assert shown["digest"] in card
    assert "Mind the gap" in card


def nested(depth: int) -> Any:
    value: Any = "deep"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "last"),
    [
        ("\u00fc\x1b" * 200_000 + "the end", "the end"),
        ({f"key{n}\u202e": n for n in range(10_000)}, 'key9999⟨U+202E⟩": 9999'),
        (nested(190), "deep"),
        (["a\nb"] * 20_000 + ["the end"], "- the end"),
    ],
    ids=["a megabyte", "ten thousand keys", "deep", "long list"],
)
def test_large_arguments_are_shown_whole(world: World, value: Any, last: str) -> None:
    def put(gate: Gate) -> None:
        def store(x: Any) -> None:
            """Keep it."""

        gate.guard(needs_approval=True)(store)(value)

    request = world.ask("big", put)
    started = time.monotonic()
    card = world.cli("show", request)
    assert re.sub(r"[\s┆]", "", last) in re.sub(r"[\s┆]", "", card)
    assert world.json("show", request)["args"] == {"x": value}
    world.cli("inbox")
    assert time.monotonic() - started < 60
    person = world.person("approve", request, rows=30)
    if card.count("\n") > 30:
        assert "rows 1-26 of" in person.at_prompt("a")
        assert "were not shown" in person.at_prompt("", "go back: ")
    person.at_prompt("q")
    person.ends(75)


def test_ids_may_be_cut_and_must_be_clear(world: World) -> None:
    first, second = world.mail("r1"), world.mail("r2")
    size = next(n for n in range(5, 20) if first[:n] != second[:n])
    assert world.json("show", first[:size])["id"] == first
    several = world.cli("show", "req_", code=4)
    assert "several ids begin" in several
    assert first in several
    for wrong in ("req_zzz", "", "%", "_eq", "Req_", "\x1b[2J"):
        out = world.cli("show", wrong, code=4)
        assert out.startswith("assent: no request")
        assert "\x1b" not in out


def test_a_store_that_is_not_there_is_not_made(world: World) -> None:
    for args in (
        ("inbox",),
        ("show", "req_1"),
        ("approve", "req_1"),
        ("history",),
        ("grants",),
        ("token", "list"),
        ("audit", "verify"),
        ("recover",),
        ("prune", "--before", "1d"),
    ):
        assert "there is no store at" in world.cli(*args, code=4)
    assert list(world.folder.iterdir()) == []
    assert "there is no store at" in world.cli("doctor", code=1)


@pytest.mark.parametrize(
    "url", ["memory://", "memory://x", "sqlite://", "nonsense", "mysql://x/y", ""]
)
def test_what_is_no_store_is_refused(world: World, url: str) -> None:
    assert world.cli("inbox", "--store", url, code=1).startswith("assent: ")


def test_a_file_that_is_no_store_is_refused(world: World) -> None:
    (world.folder / "assent.db").write_text("not a database at all, but long enough" * 50)
    (world.folder / "assent.db.key").touch(0o600)
    (world.folder / "assent.db.key").write_text(new_key())
    out = world.cli("inbox", code=1)
    assert "file is not a database" in out
    assert "Traceback" not in out


def test_the_default_store_is_in_the_working_folder(world: World) -> None:
    world.mail()
    result = CliRunner().invoke(app, ["inbox", "--json"], env={"ASSENT_STORE": None})
    assert len(json.loads(result.output)["items"]) == 1
    elsewhere = CliRunner().invoke(app, ["inbox", "--json", "--store", world.url])
    assert len(json.loads(elsewhere.output)["items"]) == 1


# -- deciding


def test_approve_needs_the_digest_of_what_was_seen(world: World) -> None:
    request = world.mail()
    assert "--digest" in world.cli("approve", request, code=3)
    assert "is not what you saw" in world.cli("approve", request, "--digest", "0" * 64, code=5)
    assert world.get(request).status == "pending"
    done = world.json("approve", request, "--digest", digest(world, request))
    assert (done["status"], done["decision"]["by"]) == ("approved", ME)
    assert (done["decision"]["assurance"], done["decision"]["channel"]) == ("os-user", "cli")
    assert world.resume() == "sent to ana@example.com"


def test_a_repeat_is_an_echo_and_another_answer_is_told_who_won(world: World) -> None:
    request = world.mail()
    seen = digest(world, request)
    assert "Approved." in world.cli("approve", request, "--digest", seen)
    assert "Approved." in world.cli("approve", request, "--digest", seen)
    lost = world.cli("reject", request, "-m", "no", code=5)
    assert f"{ME} decided 'approve'" in lost


def test_reject_tells_why(world: World) -> None:
    request = world.mail()
    done = world.json("reject", request, "-m", "no, \x1b[2J thanks")
    assert done["decision"]["message"] == "no, \x1b[2J thanks"
    assert "\x1b" not in world.cli("show", request)
    assert "Rejected." in world.cli("reject", world.mail("r2"))


def test_edit_by_flag_file_and_stdin(world: World) -> None:
    request = world.mail()
    seen = digest(world, request)
    assert "--digest" in world.cli("edit", request, "--args", '{"to": "x"}', code=2)
    for wrong in ("{", "[]", "@no-such-file", '{"a": 1, "a": 2}', "NaN"):
        world.cli("edit", request, "--args", wrong, "--digest", seen, code=2)
    for wrong in ('{"to": 5}', '{"cc": "x"}'):
        world.cli("edit", request, "--args", wrong, "--digest", seen, code=1)
    assert world.get(request).status == "pending"
    done = world.json("edit", request, "--args", '{"to": "ben@example.com"}', "--digest", seen)
    assert done["args"] == {"to": "ben@example.com", "body": "Hi", "copies": None}
    assert done["original"]["to"] == "ana@example.com"
    again = world.cli("edit", request, "--args", '{"to": "ben@example.com"}', "--digest", seen)
    assert "Approved with your changes." in again

    (world.folder / "args.json").write_text('{"body": "Ho"}')
    second = world.mail("r2")
    world.cli("edit", second, "--args", "@args.json", "--digest", digest(world, second))
    third = world.mail("r3")
    given = '{"body": "He"}'
    world.cli("edit", third, "--args", "-", "--digest", digest(world, third), stdin=given)
    assert [world.get(r).args["body"] for r in (second, third)] == ["Ho", "He"]
    assert "nobody can be asked" in world.cli("edit", world.mail("r4"), code=3)


def test_respond_by_value_and_text(world: World) -> None:
    request = world.mail()
    assert "nobody can be asked" in world.cli("respond", request, code=3)
    world.cli("respond", request, "--value", "1", "--text", "a", code=2)
    world.cli("respond", request, "--value", "{", code=2)
    world.cli("respond", request, "--value", "5", code=1)  # the tool gives back a text
    done = world.json("respond", request, "--text", "5")
    assert done["decision"]["value"] == "5"
    asked = world.ask("q", lambda gate: gate.ask_sync(Question("Size?", ("S", "L"))))
    assert "answer with 'S' or 'L'" in world.cli("respond", asked, "--text", "M", code=1)
    assert world.json("respond", asked, "--value", '"L"')["status"] == "responded"


def test_a_decision_that_the_rule_does_not_allow(world: World) -> None:
    request = world.mail(allowed=("approve", "reject"))
    assert "is not allowed" in world.cli("respond", request, "--text", "x", code=1)


def test_an_expired_request(world: World) -> None:
    request = world.mail(expires_in=0.3)
    seen = world.get(request).digest
    time.sleep(0.4)
    world.cli("approve", request, "--digest", seen, code=7)
    world.cli("approve", request, "--digest", seen, code=7)
    assert world.json("inbox")["items"] == []
    assert world.json("history", "--status", "expired")["items"][0]["id"] == request


def test_cancel_a_request_or_a_run(world: World) -> None:
    first, second = world.mail("r1"), world.mail("r2")
    assert world.cli("cancel", first, "-m", "not needed") == f"{first} is cancelled.\n"
    assert "nothing to call off" in world.cli("cancel", first, code=5)
    world.cli("cancel", "r2", "--superseded", "-m", "newer input")
    assert world.get(second).status == "superseded"
    world.cli("cancel", "no-such-run", code=4)
    with pytest.raises(Exception, match="cancelled"):
        world.resume("r1")
    third = world.mail("r3")
    world.cli("approve", third, "--digest", digest(world, third))
    assert world.json("cancel", third) == {"id": third, "status": "cancelled"}
    fourth = world.mail("r4")
    world.cli("approve", fourth, "--digest", digest(world, fourth))
    world.resume("r4")
    world.cli("cancel", fourth, code=5)
    fifth = world.doubt("r5")
    world.cli("cancel", fifth, code=5)


def test_in_doubt_by_flags(world: World) -> None:
    again, ran, gone = world.doubt("r1"), world.doubt("r2"), world.doubt("r3")
    assert [i["kind"] for i in world.json("inbox", "--kind", "in_doubt")["items"]] == [
        "in_doubt"
    ] * 3
    assert "in doubt" in world.cli("inbox")
    assert "It will run again." in world.cli("approve", again, "--digest", digest(world, again))
    assert "Recorded as its result." in world.cli("respond", ran, "--text", "by hand")
    assert "Given up" in world.cli("reject", gone, "-m", "lost")
    assert (world.resume("r1"), world.resume("r2")) == ("sent to ana@example.com", "by hand")
    assert world.get(gone).execution.status == "failed"


# -- who


def test_a_quorum_of_two_people(world: World) -> None:
    request = world.mail(quorum=2, reviewers=("group:finance",))
    ana, ben = (world.token(person, "--group", "finance") for person in ("ana", "ben"))
    seen = digest(world, request)
    assert "may not decide" in world.cli("approve", request, "--digest", seen, code=6)
    first = world.cli("approve", request, "--digest", seen, token=ana)
    assert "Yes 1 of 2: it waits for 1 more person." in first
    assert "1 of 2 votes" in world.cli("inbox")
    assert "Yes 1 of 2" in world.cli("approve", request, "--digest", seen, token=ana)
    assert world.get(request).status == "pending"
    done = world.json("approve", request, "--digest", seen, token=ben)
    assert done["status"] == "approved"
    assert [vote["by"] for vote in done["votes"]] == ["ana", "ben"]
    assert done["decision"]["assurance"] == "token"
    assert world.resume() == "sent to ana@example.com"


def test_one_reject_closes_a_quorum_and_an_edit_voids_votes(world: World) -> None:
    ana, ben = world.token("ana"), world.token("ben")
    request = world.mail(quorum=2)
    world.cli("approve", request, "--digest", digest(world, request), token=ana)
    world.cli(
        "edit", request, "--args", '{"body": "Ho"}', "--digest", digest(world, request), token=ben
    )
    assert [vote.by for vote in world.get(request).votes] == ["ben"]
    world.cli("reject", request, token=ana)
    assert world.get(request).status == "rejected"


def test_tokens_are_made_listed_and_revoked(world: World) -> None:
    made = world.json(
        "token", "create", "ana", "--group", "finance", "--group", "ops", "--for", "1h"
    )
    assert made["token"].startswith("assent_")
    assert (made["role"], made["groups"]) == ("reviewer", ["finance", "ops"])
    listed = world.json("token", "list")
    assert [token["id"] for token in listed] == [made["id"]]
    assert made["token"] not in world.cli("token", "list") + world.cli("token", "list", "--json")
    request = world.mail()
    world.cli("token", "revoke", made["id"][:8])
    world.cli("approve", request, "--digest", digest(world, request), token=made["token"], code=6)
    assert world.json("token", "list") == []
    assert world.json("token", "list", "--all")[0]["live"] is False
    world.cli("token", "revoke", "tok_nope", code=4)
    world.cli("token", "revoke", "ana", code=4)  # hers is revoked already
    world.cli("token", "create", "ana", "--role", "king", code=2)
    world.cli("token", "create", "ana", "--for", "soon", code=2)
    world.cli("token", "create", " ", code=6)


def test_a_token_is_revoked_by_its_holders_name_if_that_names_one(world: World) -> None:
    first, second = (world.json("token", "create", name)["id"] for name in ("ana", "bea"))
    world.cli("token", "revoke", "ana")
    assert [token["id"] for token in world.json("token", "list")] == [second]
    again = world.json("token", "create", "bea")["id"]
    said = world.cli("token", "revoke", "bea", code=4)
    assert [one in said for one in (first, second, again)] == [False, True, True]
    assert len(world.json("token", "list")) == 2


def test_a_new_token_is_alone_on_standard_output(world: World) -> None:
    result = CliRunner().invoke(app, ["token", "create", "ana"], env={"ASSENT_STORE": world.url})
    assert result.stdout.startswith("assent_")
    assert len(result.stdout.splitlines()) == 1
    assert "shown once" in result.stderr


def test_a_token_file_must_be_private(world: World) -> None:
    request = world.mail()
    file = world.folder / "token"
    file.write_text(world.token("ana") + "\n")
    file.chmod(0o644)
    args = ("reject", request, "--token-file", str(file))
    assert "chmod 600" in world.cli(*args, code=2)
    file.chmod(0o600)
    assert world.json(*args)["decision"]["by"] == "ana"
    world.cli("reject", request, "--token-file", "no-such-file", code=2)


def test_an_agent_cannot_approve_nor_a_reviewer_make_tokens(world: World) -> None:
    bot, ana, boss = world.token("bot", "--role", "agent"), world.token("ana"), ""
    request = world.mail()
    seen = digest(world, request)
    assert "an agent cannot decide" in world.cli(
        "approve", request, "--digest", seen, token=bot, code=6
    )
    for args in (("reject", request), ("cancel", request)):
        world.cli(*args, token=bot, code=6)
    world.cli("token", "create", "eve", token=ana, code=6)
    world.cli("prune", "--before", "1d", token=ana, code=6)
    boss = world.token("boss", "--role", "admin")
    world.cli("token", "create", "eve", token=boss)
    assert world.get(request).status == "pending"


# -- standing yeses


def test_a_standing_yes_is_given_used_listed_and_revoked(world: World) -> None:
    request = world.mail("r1")
    seen = digest(world, request)
    world.cli("approve", request, "--digest", seen, "--uses", "2", code=2)
    world.cli("approve", request, "--digest", seen, "--always", "exact", "--for", "later", code=2)
    world.cli(
        "approve", request, "--digest", seen, "--always", "exact", "--uses", "2", "--for", "8h"
    )
    (grant,) = world.json("grants")
    assert (grant["tool"], grant["agent"], grant["by"]) == ("send_email", "assistant", ME)
    assert (grant["uses_left"], grant["scope"]["const"]["to"]) == (2, "ana@example.com")
    assert world.resume("r2") == "sent to ana@example.com"  # nobody is asked
    assert world.json("grants", "list")[0]["uses_left"] == 1
    with pytest.raises(Paused):
        world.resume("r3", to="eve@example.com")  # not these arguments
    assert "1 uses left" in world.cli("grants")
    assert "is revoked" in world.cli("grants", "revoke", grant["id"][:9])
    with pytest.raises(Paused):
        world.resume("r4")
    assert world.json("grants") == []
    assert world.json("grants", "list", "--all")[0]["revoked_at"]
    assert "There are no standing yeses." in world.cli("grants")
    world.cli("grants", "revoke", "grt_nope", code=4)


def test_always_any_arguments(world: World) -> None:
    request = world.mail("r1")
    world.cli("approve", request, "--digest", digest(world, request), "--always", "any")
    assert world.resume("r2", to="ben@example.com") == "sent to ben@example.com"
    assert "any arguments" in world.cli("grants")


def test_no_standing_yes_with_a_quorum(world: World) -> None:
    request = world.mail(quorum=2)
    args = ("approve", request, "--digest", digest(world, request), "--always", "any")
    assert "standing yes" in world.cli(*args, token=world.token("ana"), code=1)
    assert world.get(request).votes == ()


# -- the rest


def test_history_shows_how_it_ended(world: World) -> None:
    yes, no = world.mail("r1"), world.mail("r2")
    world.cli("approve", yes, "--digest", digest(world, yes))
    world.cli("reject", no)
    assert [item["id"] for item in world.json("history")["items"]] == [no, yes]
    assert [i["id"] for i in world.json("history", "--status", "rejected")["items"]] == [no]
    table = world.cli("history")
    assert "approved" in table
    assert "rejected" in table
    world.cli("history", "--status", "nonsense", code=2)


def test_policy_check_says_which_rule_and_why(world: World) -> None:
    file = world.folder / "policy.toml"
    file.write_text(
        '[[rule]]\nname = "large mails"\ntool = "send_*"\nwhere = "count > 100"\n'
        'quorum = 2\nrisk = "high"\n\n[[rule]]\nname = "never"\ntool = "drop_*"\nverdict = "deny"\n'
    )
    assert "2 rules" in world.cli("policy", "check", str(file))
    assert world.json("policy", "check", str(file))["rules"] == ["large mails", "never"]
    check = ("policy", "check", str(file), "--tool")
    asked = world.json(*check, "send_mail", "--args", '{"count": 500}')
    assert (asked["verdict"], asked["rule"], asked["terms"]["quorum"]) == ("ask", "large mails", 2)
    assert world.json(*check, "send_mail", "--args", '{"count": 5}')["verdict"] == "allow"
    assert world.json(*check, "send_mail", "--needs-approval")["verdict"] == "ask"
    words = world.cli(*check, "drop_table", "--agent", "x", "--at", "2026-03-31T17:30")
    assert "drop_table is forbidden: never" in words
    assert "does not match" in words
    world.cli(*check, "x", "--args", "[]", code=2)
    world.cli(*check, "x", "--at", "noon", code=2)
    file.write_text("[[rule]]\nnonsense = 1\n")
    assert "unknown key 'nonsense'" in world.cli("policy", "check", str(file), code=1)
    world.cli("policy", "check", "no-such-file", code=1)


def test_audit_verifies_and_names_the_first_broken_row(world: World) -> None:
    request = world.mail()
    world.cli("reject", request, "-m", "no")
    assert "The record is whole" in world.cli("audit", "verify")
    report = world.json("audit", "verify")
    assert (report["ok"], report["problems"]) == (True, [])
    events = [json.loads(line) for line in world.cli("audit", "export").splitlines()]
    assert len(events) >= 3
    import sqlite3

    with sqlite3.connect(world.folder / "assent.db") as connection:
        connection.execute("UPDATE event SET actor = 'eve' WHERE type = 'decided'")
    connection.close()
    broken = world.cli("audit", "verify", code=1)
    assert "The record is broken" in broken
    assert "'r1'" in broken
    found = world.json("audit", "verify", code=1)
    assert found["ok"] is False
    assert found["problems"][0]["thread"] == "r1"


def test_recover_after_a_restore(world: World) -> None:
    database = world.folder / "assent.db"
    request = world.mail()
    world.cli("approve", request, "--digest", digest(world, request))
    before = database.read_bytes()
    world.resume()  # runs, and then an older copy is put back
    database.write_bytes(before)
    for name in ("assent.db-wal", "assent.db-shm"):
        (world.folder / name).unlink(missing_ok=True)
    assert "assent recover" in world.cli("doctor", code=1)
    assert "say --yes" in world.cli("recover", code=3)
    assert world.json("recover", "--yes") == {"recovered": 1}
    assert world.get(request).kind == "in_doubt"
    assert "Nothing to recover" in world.cli("recover")
    person = world.person("recover", "--force")
    person.at_prompt("yes", "to go on: ")
    person.ends(75)


def test_prune_forgets_what_is_old_and_stays_verifiable(world: World) -> None:
    request = world.mail()
    world.cli("cancel", "r1")
    assert world.json("prune", "--before", "90d")["calls"] == 0
    time.sleep(0.01)
    assert world.json("prune", "--before", "0.005s")["calls"] == 1
    world.cli("show", request, code=4)
    assert "The record is whole" in world.cli("audit", "verify")
    assert "Forgotten: " in world.cli("prune", "--before", "2020-01-01")
    for wrong in ("soon", "2020-99-99", "-1d"):
        world.cli("prune", "--before", wrong, code=2)
    world.cli("prune", code=2)


def test_doctor_says_what_is_there_and_what_is_wrong(world: World) -> None:
    world.mail()
    report = world.json("doctor")
    checks = {check["name"]: check for check in report["checks"]}
    assert report["ok"] is True
    assert "embedded" in checks["tier"]["text"]
    assert "assent.db.key (mode 0600)" in checks["key"]["text"]
    assert checks["waiting"]["text"].startswith("1 ")
    assert checks["schema"]["state"] == checks["clock"]["state"] == "ok"
    world.doubt("r2")
    assert "1 calls" in world.cli("doctor", code=1)
    (world.folder / "assent.db.key").chmod(0o644)
    assert "chmod 600" in world.cli("doctor", code=1)
    (world.folder / "assent.db.key").chmod(0o600)
    (world.folder / "assent.db").chmod(0o666)
    assert "others can write it" in world.cli("doctor", code=1)


def test_a_lost_key_is_not_replaced_by_a_new_one(world: World) -> None:
    world.mail()
    (world.folder / "assent.db.key").rename(world.folder / "kept")
    for command in ("inbox", "doctor"):
        assert "bring the file back" in world.cli(command, code=1, COLUMNS="200")
    assert not (world.folder / "assent.db.key").exists()
    secret = (world.folder / "kept").read_text().strip()
    assert len(json.loads(world.cli("inbox", "--json", ASSENT_KEY=secret))["items"]) == 1
    assert "from ASSENT_KEY" in world.cli("doctor", ASSENT_KEY=secret)


def test_doctor_knows_a_store_from_the_future(world: World) -> None:
    import sqlite3

    world.mail()
    with sqlite3.connect(world.folder / "assent.db") as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE key = 'version'")
    connection.close()
    assert "newer version" in world.cli("doctor", code=1)
    assert "newer version" in world.cli("inbox", code=1)


def test_a_broken_pipe_is_no_traceback(world: World) -> None:
    for n in range(5):
        world.mail(f"r{n}", body="x" * 30_000)
    line = f"{sys.executable} -m assent.cli.main inbox --json | head -c 10"
    env = {**os.environ, "ASSENT_STORE": world.url}
    done = subprocess.run(line, shell=True, env=env, capture_output=True, text=True)
    assert "Traceback" not in done.stderr


def test_every_exit_code_has_a_meaning_and_a_test() -> None:
    assert set(MEANINGS) == set(Exit)
    source = "".join(path.read_text() for path in Path(__file__).parent.glob("test_cli_*.py"))
    for code in Exit:
        assert code == 0 or f"code={code.value}" in source or f"ends({code.value})" in source
    assert exit_of(__import__("assent").StoreError("x")) is Exit.PROBLEM


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        ("1", [1]),
        ("1,3-5", [1, 3, 4, 5]),
        ("5 1,1", [1, 5]),
        ("", []),
        ("0", []),
        ("6", []),
        ("3-1", []),
        ("1-", []),
        ("-", []),
        ("1-999999999999", []),
        ("x", []),
    ],
)
def test_numbers_of_a_list(words: str, numbers: list[int]) -> None:
    assert chosen(words, 5) == numbers


def test_a_gate_with_no_channel_points_to_the_command_line(world: World) -> None:
    gate = Gate(world.url, wait=0)
    with pytest.raises(Paused, match="assent inbox"), gate.run("r"):
        gate.approve_sync("Publish?")
    gate.close()
