"""The commands that look after a store: policy, audit, recover, prune and doctor; exit codes."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from cli_world import ME, World, digest

from sayso import Gate, Paused, Policy, Rule
from sayso.cli.common import MEANINGS, Exit, exit_of


def test_policy_check_names_rule_and_reason(world: World) -> None:
    file = world.folder / "policy.toml"
    file.write_text(
        '[[rule]]\nname = "large mails"\ntool = "send_*"\nwhere = "count > 100"\n'
        'quorum = 2\nrisk = "high"\n\n[[rule]]\nname = "never"\ntool = "drop_*"\nverdict = "deny"\n'
    )
    said = world.cli("policy", "check", str(file)).replace("┆", "")  # a long path breaks the line
    assert "2 rules" in " ".join(said.split())
    assert said.startswith("default: as the tool declares; a tool that declares nothing asks")
    assert world.json("policy", "check", str(file))["rules"] == ["large mails", "never"]
    # A requester may approve their own call below high risk, and the check says where.
    assert "requester may approve their own call: no, high risk" in said
    assert "requester may approve their own call: yes, below high risk" in said  # without a rule
    own = world.json("policy", "check", str(file))["requester_may_approve"]
    assert own == {"large mails": "no, high risk"}
    check = ("policy", "check", str(file), "--tool")
    asked = world.json(*check, "send_mail", "--args", '{"count": 500}')
    assert (asked["verdict"], asked["rule"], asked["terms"]["quorum"]) == ("ask", "large mails", 2)
    few = (*check, "send_mail", "--args", '{"count": 5}')
    assert world.json(*few)["verdict"] == "ask"
    assert world.json(*few, "--no-needs-approval")["verdict"] == "allow"
    assert world.json(*few, "--needs-approval")["verdict"] == "ask"
    words = world.cli(*check, "drop_table", "--agent", "x", "--at", "2026-03-31T17:30")
    assert "drop_table is denied: never" in words
    assert "does not match" in words
    world.cli(*check, "x", "--args", "[]", code=2)
    assert "notified at once: every channel of the reviewers" in world.cli(*check, "x")
    file.write_text(
        '[[rule]]\nreviewers = "ana"\nnotify = ["push", "slack:#ops"]\nremind_after = "10m"\n'
        'escalate_after = "30m"\nescalate_to = ["group:leads"]\n'
    )
    said = " ".join(world.cli(*check, "x").split())
    assert "notified at once: push, slack:#ops reminded after 600 s" in said
    assert "after 1800 s, group:leads may decide too, and is notified" in said
    assert "in a person's quiet hours: one digest when they end" in said
    world.cli(*check, "x", "--at", "noon", code=2)
    file.write_text("[[rule]]\nnonsense = 1\n")
    assert "unknown key 'nonsense'" in world.cli("policy", "check", str(file), code=1)
    world.cli("policy", "check", "no-such-file", code=1)


def test_policy_replay_fails_if_rejected_call_would_run(world: World) -> None:
    file = world.folder / "policy.toml"
    file.write_text('[[rule]]\nname = "mails"\ntool = "send_*"\nverdict = "allow"')
    replay = ("policy", "replay", str(file))
    request = world.mail()
    assert "1  asked → allowed, pending" in world.cli(*replay)
    world.cli("reject", request, "-m", "no")
    assert "1  asked → allowed, which people rejected" in world.cli(*replay, code=1)
    (call,) = json.loads(world.cli(*replay, "--json", code=1))["differences"]
    assert (call["id"], call["by"], call["outcome"]) == (request, ME, "rejected")
    assert json.loads(world.cli(*replay, "--since", "30d", "--json", code=1))["overruled"] == 1
    world.cli(*replay, "--since", "soon", code=2)


def test_policy_observed_reports_second_policy(world: World) -> None:
    second = Policy([Rule("send_*", verdict="allow", name="mails")])
    with Gate(world.url, wait=0, observe=second) as gate:

        @gate.guard
        def send_mail(to: str) -> str:
            return to

        with pytest.raises(Paused), gate.run("r1"):
            send_mail("ana@example.com")
    assert "1  asked → allowed, pending" in world.cli("policy", "observed")
    (call,) = json.loads(world.cli("policy", "observed", "--json"))["differences"]
    assert (call["rule"], call["before"], call["after"]) == ("mails", "asked", "allowed")
    world.cli("reject", call["id"], "-m", "no")
    world.cli("policy", "observed", "--since", "1d", code=1)
    world.cli("policy", "observed", "--since", "soon", code=2)


@pytest.mark.parametrize(
    ("default", "line"),
    [
        ("ask", "default: ask, whatever the tool declares"),
        ("deny", "default: deny, whatever the tool declares"),
        ("allow", "default: allow; a tool that declares needs_approval=True still asks"),
    ],
)
def test_policy_check_prints_default_first(world: World, default: str, line: str) -> None:
    file = world.folder / "policy.toml"
    file.write_text(f'default = "{default}"\n[[rule]]\ntool = "drop_*"\nverdict = "deny"\n')
    check = ("policy", "check", str(file))
    assert world.cli(*check).startswith(line)
    assert next(iter(world.json(*check).items())) == ("default", default)
    assert world.json(*check, "--tool", "look")["verdict"] == default
    strict = "deny" if default == "deny" else "ask"
    assert world.json(*check, "--tool", "pay", "--needs-approval")["verdict"] == strict


@pytest.mark.long
def test_audit_verifies_and_names_the_first_broken_row(world: World) -> None:
    request = world.mail()
    world.cli("reject", request, "-m", "no")
    assert "The audit log is intact" in world.cli("audit", "verify")
    report = world.json("audit", "verify")
    assert (report["ok"], report["problems"]) == (True, [])
    events = [json.loads(line) for line in world.cli("audit", "export").splitlines()]
    assert len(events) >= 3
    with closing(sqlite3.connect(world.folder / "sayso.db")) as connection, connection:
        connection.execute("UPDATE event SET actor = 'eve' WHERE type = 'decided'")
    broken = world.cli("audit", "verify", code=1)
    assert "The audit log is broken" in broken
    assert "'r1'" in broken
    found = world.json("audit", "verify", code=1)
    assert found["ok"] is False
    assert found["problems"][0]["thread"] == "r1"


def test_recover_after_a_restore(world: World) -> None:
    database = world.folder / "sayso.db"
    request = world.mail()
    world.cli("approve", request, "--digest", digest(world, request))
    before = database.read_bytes()
    world.resume()  # runs, and then an older copy is put back
    database.write_bytes(before)
    for name in ("sayso.db-wal", "sayso.db-shm"):
        (world.folder / name).unlink(missing_ok=True)
    assert "sayso recover" in world.cli("doctor", code=1)
    assert "use --yes" in world.cli("recover", code=3)
    assert world.json("recover", "--yes") == {"recovered": 1}
    assert world.get(request).kind == "in_doubt"
    told = world.cli("recover")
    assert "Nothing to recover" in told
    assert "use --force" in told
    person = world.person("recover", "--force")
    person.at_prompt("yes", "to continue: ")
    person.ends(75)


def test_pruned_store_stays_verifiable(world: World) -> None:
    request = world.mail()
    world.cli("cancel", "r1")
    assert world.json("prune", "--before", "90d")["calls"] == 0
    time.sleep(0.01)
    assert world.json("prune", "--before", "0.005s")["calls"] == 1
    world.cli("show", request, code=4)
    assert "The audit log is intact" in world.cli("audit", "verify")
    assert "Deleted: " in world.cli("prune", "--before", "2020-01-01")
    for wrong in ("soon", "2020-99-99", "-1d"):
        world.cli("prune", "--before", wrong, code=2)
    for wrong in ("soon", "90", "20200101", ""):  # days, seconds, a date? nothing goes by mistake
        assert "90d or 12h, or a date" in world.cli("prune", "--before", wrong, code=2)
    world.cli("prune", code=2)


def test_doctor_reports_store_and_problems(world: World) -> None:
    world.mail()
    report = world.json("doctor")
    checks = {check["name"]: check for check in report["checks"]}
    assert report["ok"] is True
    assert "embedded" in checks["tier"]["text"]
    assert "sayso.db.key (mode 0600)" in checks["key"]["text"]
    assert checks["waiting"]["text"].startswith("1 ")
    assert checks["schema"]["state"] == checks["clock"]["state"] == "ok"
    world.doubt("r2")
    assert "1 call: see" in world.cli("doctor", code=1)
    (world.folder / "sayso.db.key").chmod(0o644)
    assert "chmod 600" in world.cli("doctor", code=1)
    (world.folder / "sayso.db.key").chmod(0o600)
    (world.folder / "sayso.db").chmod(0o666)
    assert "others can write to it" in world.cli("doctor", code=1)


def test_lost_key_is_not_replaced(world: World) -> None:
    world.mail()
    (world.folder / "sayso.db.key").rename(world.folder / "kept")
    for command in ("inbox", "doctor"):
        assert "restore the file" in world.cli(command, code=1, COLUMNS="200")
    assert not (world.folder / "sayso.db.key").exists()
    secret = (world.folder / "kept").read_text().strip()
    assert len(json.loads(world.cli("inbox", "--json", SAYSO_KEY=secret))["items"]) == 1
    assert "from SAYSO_KEY" in world.cli("doctor", SAYSO_KEY=secret)


def test_doctor_knows_a_store_from_the_future(world: World) -> None:
    world.mail()
    with closing(sqlite3.connect(world.folder / "sayso.db")) as connection, connection:
        connection.execute("UPDATE meta SET value = '99' WHERE key = 'version'")
    assert "newer version" in world.cli("doctor", code=1)
    assert "newer version" in world.cli("inbox", code=1)


def test_every_exit_code_is_tested() -> None:
    assert set(MEANINGS) == set(Exit)
    source = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    for code in Exit:
        assert code == 0 or f"code={code.value}" in source or f"ends({code.value})" in source
    assert exit_of(__import__("sayso").StoreError("x")) is Exit.PROBLEM
