"""Deciding from scripts, with flags, JSON and exit codes, and never a prompt."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_world import ME, World, digest
from typer.testing import CliRunner

from sayso import Cancelled, Inbox, Paused, Question
from sayso.cli.main import app
from sayso.engine.renewing import Renewal

# -- deciding


def test_approve_needs_the_seen_digest(world: World) -> None:
    request = world.mail()
    assert "--digest" in world.cli("approve", request, code=3)
    assert "is not what you saw" in world.cli("approve", request, "--digest", "0" * 64, code=5)
    assert world.get(request).status == "pending"
    done = world.json("approve", request, "--digest", digest(world, request))
    assert (done["status"], done["decision"]["by"]) == ("approved", ME)
    assert (done["decision"]["assurance"], done["decision"]["channel"]) == ("os-user", "cli")
    assert world.resume() == "sent to ana@example.com"


def test_repeated_decision_is_idempotent(world: World) -> None:
    request = world.mail()
    seen = digest(world, request)
    assert "Approved." in world.cli("approve", request, "--digest", seen)
    assert "Approved." in world.cli("approve", request, "--digest", seen)
    lost = world.cli("reject", request, "-m", "no", code=5)
    assert f"{ME} decided 'approve'" in lost


def test_reject_records_the_reason(world: World) -> None:
    request = world.mail()
    done = world.json("reject", request, "-m", "no, \x1b[2J thanks")
    assert done["decision"]["message"] == "no, \x1b[2J thanks"
    assert "\x1b" not in world.cli("show", request)
    assert "Rejected." in world.cli("reject", world.mail("r2"))


def test_reject_stops_the_run(world: World) -> None:
    request = world.mail()
    done = world.json("reject", request, "--stop", "-m", "enough")
    assert (done["status"], done["decision"]["stop"]) == ("rejected", True)
    assert done["decision"]["message"] == "enough"
    with pytest.raises(Cancelled, match="and stopped the run"):
        world.resume(to="ben@example.com")
    assert world.ran == []


@pytest.mark.long
def test_bash_completes_commands_and_requests(world: World) -> None:
    request = world.mail()

    def complete(*words: str) -> list[str]:
        script = (
            'source <(_SAYSO_COMPLETE=source_bash sayso); COMP_WORDS=("$@"); '
            'COMP_CWORD=$(($# - 1)); _sayso_completion sayso; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", script, "bash", *words],
            env={"PATH": path, "SAYSO_STORE": world.url},
            capture_output=True,
            text=True,
            check=True,
        )
        assert not done.stderr
        return done.stdout.split()

    assert complete("sayso", "app") == ["approve"]
    assert complete("sayso", "approve", "req_") == [request]
    assert not complete("sayso", "approve", "req_zzz")
    assert not complete("sayso", "approve", "--store", "sqlite:///none.db", "req_")


def test_edit_by_named_arguments(world: World) -> None:
    request = world.mail()
    assert "--digest" in world.cli("edit", request, "to=ben@example.com", code=2)
    seen = digest(world, request)
    assert "write NAME=VALUE" in world.cli("edit", request, "to", "--digest", seen, code=2)
    assert "copies" in world.cli("edit", request, "copies=7", "--digest", seen, code=1)
    done = world.json("edit", request, "to=12", 'copies=["a=b"]', "body=", "--digest", seen)
    assert done["args"] == {"to": "12", "body": "", "copies": ["a=b"]}


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

    shorter = world.mail("r0")
    seen = digest(world, shorter)
    unset = ("edit", shorter, "--unset")
    assert "--digest" in world.cli(*unset, "body", code=2)
    assert "no argument 'cc'" in world.cli(*unset, "cc", "--digest", seen, code=1)
    world.cli(*unset, "to", "--digest", seen, code=1)
    done = world.json(*unset, "body", "--args", '{"to": "cy@example.com"}', "--digest", seen)
    assert done["args"] == {"to": "cy@example.com", "body": "", "copies": None}

    (world.folder / "args.json").write_text('{"body": "Ho"}')
    second = world.mail("r2")
    world.cli("edit", second, "--args", "@args.json", "--digest", digest(world, second))
    third = world.mail("r3")
    given = '{"body": "He"}'
    world.cli("edit", third, "--args", "-", "--digest", digest(world, third), stdin=given)
    assert [world.get(r).args["body"] for r in (second, third)] == ["Ho", "He"]
    assert "no terminal to ask in" in world.cli("edit", world.mail("r4"), code=3)


def test_respond_by_value_and_text(world: World) -> None:
    request = world.mail()
    assert "no terminal to ask in" in world.cli("respond", request, code=3)
    world.cli("respond", request, "--value", "1", "--text", "a", code=2)
    world.cli("respond", request, "--value", "{", code=2)
    world.cli("respond", request, "--value", "5", code=1)  # the tool gives back a text
    done = world.json("respond", request, "--text", "5")
    assert done["decision"]["value"] == "5"
    asked = world.ask("q", lambda gate: gate.ask_sync(Question("Size?", ("S", "L"))))
    assert "answer with 'S' or 'L'" in world.cli("respond", asked, "--text", "M", code=1)
    assert world.json("respond", asked, "--value", '"L"')["status"] == "responded"


def test_disallowed_decision_is_refused(world: World) -> None:
    request = world.mail(allowed=("approve", "reject"))
    assert "is not allowed" in world.cli("respond", request, "--text", "x", code=1)


def test_expired_request_cannot_be_approved(world: World) -> None:
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
    assert "nothing to cancel" in world.cli("cancel", first, code=5)
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
    assert "reject to give up" in world.cli("cancel", fifth, code=5)


def test_flags_settle_a_doubt(world: World) -> None:
    again, ran, gone = world.doubt("r1"), world.doubt("r2"), world.doubt("r3")
    assert [i["kind"] for i in world.json("inbox", "--kind", "in_doubt")["items"]] == [
        "in_doubt"
    ] * 3
    assert "in doubt" in world.cli("inbox")
    assert "It will run again." in world.cli("approve", again, "--digest", digest(world, again))
    assert "Recorded as its result." in world.cli("respond", ran, "--text", "by hand")
    assert "Recorded as failed" in world.cli("reject", gone, "-m", "lost")
    assert (world.resume("r1"), world.resume("r2")) == ("sent to ana@example.com", "by hand")
    assert world.get(gone).execution.status == "failed"


def keep_running(world: World, request: str) -> None:
    """Renew the attempt of a call in doubt, as its process does while it is in the body."""
    inbox = Inbox(world.url)
    call = inbox.store.call(request)
    assert call is not None
    assert inbox.store.renew([Renewal(call.run, call.token, 60_000_000, call.id)], 5.0)
    inbox.close()


def test_running_attempt_is_shown_and_not_repeated(world: World) -> None:
    request = world.doubt()
    keep_running(world, request)
    assert world.json("show", request)["execution"]["attempt_running"] is True
    assert "Its attempt still runs" in world.cli("show", request)
    refusal = world.cli("approve", request, "--digest", digest(world, request), code=1)
    assert "cannot run again yet" in refusal
    assert "Recorded as its result." in world.cli("respond", request, "--text", "by hand")


# -- who


def test_quorum_needs_two_people(world: World) -> None:
    request = world.mail(quorum=2, reviewers=("group:finance",))
    ana, ben = (world.token(person, "--group", "finance") for person in ("ana", "ben"))
    seen = digest(world, request)
    assert "may not decide" in world.cli("approve", request, "--digest", seen, code=6)
    first = world.cli("approve", request, "--digest", seen, token=ana)
    assert "Approval 1 of 2: 1 more needed." in first
    assert "1 of 2 votes" in world.cli("inbox")
    assert "Approval 1 of 2" in world.cli("approve", request, "--digest", seen, token=ana)
    assert world.get(request).status == "pending"
    done = world.json("approve", request, "--digest", seen, token=ben)
    assert done["status"] == "approved"
    assert [vote["by"] for vote in done["votes"]] == ["ana", "ben"]
    assert done["decision"]["assurance"] == "token"
    assert world.resume() == "sent to ana@example.com"


def test_rejection_closes_quorum(world: World) -> None:
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
    assert made["token"].startswith("sayso_")
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
    assert "Nothing was valid" in world.cli("token", "revoke", "ana")  # hers is revoked already
    world.cli("token", "create", "ana", "--role", "king", code=2)
    world.cli("token", "create", "ana", "--for", "soon", code=2)
    for nobody in ("", " "):
        assert "give the name" in world.cli("token", "create", nobody, code=2)


def test_name_revokes_all_tokens_of_a_person(world: World) -> None:
    first, second = (world.json("token", "create", name)["id"] for name in ("ana", "bea"))
    world.cli("token", "revoke", "ana")
    assert [token["id"] for token in world.json("token", "list")] == [second]
    again = world.json("token", "create", "bea")["id"]
    report = world.cli("token", "revoke", "bea")
    assert [one in report for one in (first, second, again)] == [False, True, True]
    assert world.json("token", "list") == []


def test_new_token_is_only_stdout_line(world: World) -> None:
    result = CliRunner().invoke(app, ["token", "create", "ana"], env={"SAYSO_STORE": world.url})
    assert result.stdout.startswith("sayso_")
    assert len(result.stdout.splitlines()) == 1
    assert "shown only now" in result.stderr


def test_token_file_must_be_private(world: World) -> None:
    request = world.mail()
    file = world.folder / "token"
    file.write_text(world.token("ana") + "\n")
    file.chmod(0o644)
    args = ("reject", request, "--token-file", str(file))
    assert "chmod 600" in world.cli(*args, code=2)
    file.chmod(0o600)
    assert world.json(*args)["decision"]["by"] == "ana"
    world.cli("reject", request, "--token-file", "no-such-file", code=2)


def test_roles_limit_commands(world: World) -> None:
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


# -- grants


def test_grant_is_created_used_and_revoked(world: World) -> None:
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
    assert world.resume("r2") == "sent to ana@example.com"  # no one is asked
    assert world.json("grants", "list")[0]["uses_left"] == 1
    with pytest.raises(Paused):
        world.resume("r3", to="eve@example.com")  # not these arguments
    assert "1 uses left" in world.cli("grants")
    assert "Revoked" in world.cli("grants", "revoke", grant["id"][:9])
    with pytest.raises(Paused):
        world.resume("r4")
    assert world.json("grants") == []
    assert world.json("grants", "list", "--all")[0]["revoked_at"]
    assert "No grants." in world.cli("grants")
    world.cli("grants", "revoke", "grt_nope", code=4)


def test_refusal_is_listed_and_lifted(world: World) -> None:
    request = world.mail("r1")
    assert "No refusals." in world.cli("grants")
    world.cli("reject", request, "-m", "no, \x1b[2J thanks")
    (refusal,) = world.json("grants")
    assert (refusal["kind"], refusal["request"], refusal["by"]) == ("refusal", request, ME)
    listed = world.cli("grants")
    assert f"rejected by {ME}" in listed
    assert "\x1b" not in listed
    world.cli("grants", "lift", "ref_nope", code=4)
    chatter = world.token("eve", "--role", "chat")
    world.cli("grants", "lift", refusal["id"], token=chatter, code=6)
    assert "Lifted" in world.cli("grants", "lift", refusal["id"][:12])
    assert world.json("grants") == []
    (lifted,) = world.json("grants", "list", "--all")
    assert (lifted["lifted_by"], lifted["lifted_at"] is None) == (ME, False)
    assert world.get(world.mail("r2")).refusals == ()


def test_every_refusal_is_listed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sayso.cli.admin.MAX_PAGE", 2)
    for number in range(5):
        world.cli("reject", world.mail(f"r{number}", to=f"{number}@example.com"))
    refusals = world.json("grants")
    assert len(refusals) == 5
    assert "Lifted" in world.cli("grants", "lift", refusals[-1]["id"])


def test_always_any_arguments(world: World) -> None:
    request = world.mail("r1")
    world.cli("approve", request, "--digest", digest(world, request), "--always", "any")
    assert world.resume("r2", to="ben@example.com") == "sent to ben@example.com"
    assert "any arguments" in world.cli("grants")


def test_no_grant_with_a_quorum(world: World) -> None:
    request = world.mail(quorum=2)
    args = ("approve", request, "--digest", digest(world, request), "--always", "any")
    assert "a grant needs" in world.cli(*args, token=world.token("ana"), code=1)
    assert world.get(request).votes == ()
