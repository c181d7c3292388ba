"""Reading from scripts: help, lists, cards, and missing stores."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from typing import Annotated, Any

import pytest
from cli_world import World, digest
from pydantic import Field
from typer.testing import CliRunner

from sayso import Gate, Paused, Policy, Question, Rule, __version__
from sayso.cli.inbox import chosen
from sayso.cli.main import app
from sayso.keys import new_key


def test_version_and_help() -> None:
    runner = CliRunner()
    assert runner.invoke(app, ["--version"]).output == f"sayso {__version__}\n"
    for args in ([], ["--help"], ["inbox", "-h"], ["grants", "--help"], ["token"]):
        assert "Usage:" in runner.invoke(app, args).output


def test_empty_inbox_is_reported(world: World) -> None:
    request = world.mail()
    world.cli("reject", request)
    assert world.cli("inbox") == "No pending requests.\n"
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
    assert "Send email: 0@example.com, Hi" in table
    assert "Why not?" in table
    assert "More: --after" in world.cli("inbox", "--limit", "2")


def test_list_shows_titles(world: World) -> None:
    secret = "ghp_" + "a1B2" * 9
    world.mail("r1", title="Mail {to} about the outage")
    world.mail("r2", body=secret)
    for options in ((), ("--plain",)):
        listed = world.cli("inbox", *options)
        assert "Mail ana@example.com about the outage" in listed
        assert "Send email: ana@example.com, ••••" in listed
        assert listed.count("send_email") == 2
        assert secret not in listed


@pytest.mark.parametrize("columns", ["40", "80", "160"])
@pytest.mark.parametrize("plain", [(), ("--plain",)])
def test_no_row_is_wider_than_the_screen(world: World, columns: str, plain: tuple[str]) -> None:
    request = world.mail(body="word " * 200, to="x" * 300, note="note " * 50, risk="high")
    world.ask("q", lambda gate: gate.ask_sync(Question("Which? " * 30, ("A" * 90, "B"))))
    for args in (("inbox",), ("show", request), ("doctor",), ("history", "--status", "any")):
        for row in world.cli(*args, *plain, COLUMNS=columns).splitlines():
            assert len(row) <= int(columns), (args, row)


def test_show_prints_everything(world: World) -> None:
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


@pytest.mark.long
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
def test_large_arguments_are_shown_completely(world: World, value: Any, last: str) -> None:
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


def test_id_prefix_must_be_unique(world: World) -> None:
    first, second = world.mail("r1"), world.mail("r2")
    size = next(n for n in range(5, 20) if first[:n] != second[:n])
    assert world.json("show", first[:size])["id"] == first
    several = world.cli("show", "req_", code=4)
    assert "several ids start with" in several
    assert first in several
    for wrong in ("req_zzz", "", "%", "_eq", "Req_", "\x1b[2J"):
        out = world.cli("show", wrong, code=4)
        assert out.startswith("sayso: no request")
        assert "\x1b" not in out


def test_missing_store_is_not_created(world: World) -> None:
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
def test_invalid_store_urls_are_refused(world: World, url: str) -> None:
    assert world.cli("inbox", "--store", url, code=1).startswith("sayso: ")


def test_other_file_is_refused_as_store(world: World) -> None:
    (world.folder / "sayso.db").write_text("not a database at all, but long enough" * 50)
    (world.folder / "sayso.db.key").touch(0o600)
    (world.folder / "sayso.db.key").write_text(new_key())
    out = world.cli("inbox", code=1)
    assert "file is not a database" in out
    assert "Traceback" not in out


def test_default_store_is_in_the_working_folder(world: World) -> None:
    world.mail()
    result = CliRunner().invoke(app, ["inbox", "--json"], env={"SAYSO_STORE": None})
    assert len(json.loads(result.output)["items"]) == 1
    elsewhere = CliRunner().invoke(app, ["inbox", "--json", "--store", world.url])
    assert len(json.loads(elsewhere.output)["items"]) == 1


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


def test_broken_pipe_is_no_traceback(world: World) -> None:
    for n in range(5):
        world.mail(f"r{n}", body="x" * 30_000)
    line = f"{sys.executable} -m sayso inbox --json | head -c 10"
    env = {**os.environ, "SAYSO_STORE": world.url}
    done = subprocess.run(line, shell=True, env=env, capture_output=True, text=True)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "command", ["inbox", "inbox --json", "history --json", "audit export", "--help"]
)
@pytest.mark.parametrize(("output", "code"), [("> /dev/full", 1), (">&-", 0)])
def test_output_that_cannot_be_written_is_no_traceback(
    world: World, command: str, output: str, code: int
) -> None:
    world.mail(body="x" * 30_000)
    env = {**os.environ, "SAYSO_STORE": world.url}
    line = f"{sys.executable} -m sayso {command} {output}"
    done = subprocess.run(line, shell=True, env=env, capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    assert bool(done.returncode) is bool(code)


@pytest.mark.parametrize(
    "command", ["show", "approve", "cancel", "audit explain", "inbox --tool", "history --agent"]
)
def test_argument_that_is_not_utf8_is_no_traceback(world: World, command: str) -> None:
    world.mail()
    words = [sys.executable, "-m", "sayso", *command.split(), b"req_\xff"]
    env = {**os.environ, "SAYSO_STORE": world.url}
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    assert done.returncode == 2
    assert "is not UTF-8" in done.stderr
    assert "Traceback" not in done.stderr


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


def test_gate_without_channel_names_the_cli(world: World) -> None:
    gate = Gate(world.url, wait=0)
    with pytest.raises(Paused, match="sayso inbox"), gate.run("r"):
        gate.confirm_sync("Publish?")
    gate.close()


def test_declared_secrets_are_shown_as_fingerprints(world: World) -> None:
    secret = Field(json_schema_extra={"writeOnly": True})

    def sign_in(user: str, code: Annotated[str, secret]) -> str:
        return user

    def ask(run: str) -> str:
        return world.ask(run, lambda gate: gate.guard(needs_approval=True)(sign_in)("ana", "hush"))

    first, second = ask("r1"), ask("r2")
    seen = world.json("show", first)
    assert (seen["args"]["user"], seen["digest"]) == ("ana", world.get(first).digest)
    assert "•••• (4 chars)" in seen["args"]["code"]
    assert "••••" in world.json("inbox")["items"][0]["args"]["code"]
    back = json.dumps({**seen["args"], "user": "bo"})
    refused = world.cli("edit", first, "--args", back, "--digest", seen["digest"], code=1)
    assert "args.code: this is the mask shown in place of a secret" in refused
    edit = ("edit", first, "--args", '{"user": "bo"}', "--digest", seen["digest"])
    told = [world.cli(*edit, "--json"), world.cli("history", "--json"), world.cli("show", first)]
    assert world.get(first).args == {"user": "bo", "code": "hush"}
    yes = ("approve", second, "--digest", world.get(second).digest, "--always", "exact")
    told += [world.cli(*yes, "--json"), world.cli("grants"), world.cli("grants", "--json")]
    for text in told:
        assert "hush" not in text
        assert "(4 chars)" in text


def test_grants_show_used_share_of_limits(world: World) -> None:
    limit = "sum(amount) <= 10 per 1h"
    gate = Gate(world.url, policy=Policy([Rule("pay", verdict="allow", limits=limit)]))

    @gate.guard(needs_approval=False)
    def pay(amount: float) -> None: ...

    with gate.run("r1"):
        pay(2.5)
    gate.close()
    lines = world.cli("grants").splitlines()[:3]
    assert lines == [
        "No grants.",
        "limit of the rule for pay",
        f"  {'█' * 5}{'░' * 15} 2.5 of {limit}",
    ]
