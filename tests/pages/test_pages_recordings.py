"""The recordings of the README, made of what really happens; ``make pictures`` keeps them."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from demo_process import Demo
from playwright.sync_api import Page, expect
from recording import Recording, Terminal
from waiting import until
from windows import Open, turn_pages

pytestmark = pytest.mark.long  # a browser

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
SCREEN = {"viewport": {"width": 960, "height": 540}, "device_scale_factor": 1.5}
LARGEST = 1_500_000
#: A refund that takes its time at the bank while there is a file "slow".
REFUND = '''
import pathlib, sys, time
import sayso

gate = sayso.Gate("sayso.db", wait=0, lease=0.5)


@gate.guard
def refund(order: str, euros: int) -> str:
    """Refund a customer."""
    with open("bank.log", "a") as bank:
        bank.write(f"paid {euros} euros for order {order}\\n")
    if pathlib.Path("slow").exists():
        time.sleep(60)
    return f"Refunded {euros} euros for order {order}"


try:
    with gate.run("order-A-17"):
        print(refund("A-17", euros=120))
except (sayso.Paused, sayso.SaysoError) as problem:
    print(f"{type(problem).__name__}: {problem}")
'''
#: Someone who writes to the database approves a call, with another amount.
FORGE = """UPDATE call SET status = 'ready', args = replace(args, '120', '9999')"""

Run = Callable[[str], str]


def keep(recording: Recording, page: Page, name: str, folder: Path, demo: Demo) -> None:
    """Write a recording, and check that Chromium plays all of it."""
    path = Path(os.environ.get("SAYSO_PICTURES", folder)) / name
    size = recording.save(path)
    assert 20_000 < size < LARGEST, size
    assert 15 < recording.seconds < 25, recording.seconds
    page.goto(f"{demo.url}/healthz")  # decoders need an origin
    seconds = page.evaluate(
        """async (data) => {
            const bytes = Uint8Array.from(atob(data), (each) => each.charCodeAt(0));
            const decoder = new ImageDecoder({ data: bytes, type: 'image/webp' });
            await decoder.completed;
            await decoder.tracks.ready;
            let sum = 0;
            for (let n = 0; n < decoder.tracks.selectedTrack.frameCount; n++)
                sum += (await decoder.decode({ frameIndex: n })).image.duration;
            return sum / 1e6;
        }""",
        base64.b64encode(path.read_bytes()).decode(),
    )
    assert seconds == pytest.approx(recording.seconds, abs=0.1)


def test_pictures_of_an_approval_on_a_phone(demo: Demo, open_page: Open, tmp_path: Path) -> None:
    for words in ("Weather in Oslo", "Order a pizza", "Send an email to 150 people"):
        demo.say(words)
    chat = demo.say("Deploy version 2.1.0 to production")
    page = open_page(
        f"{demo.url}/inbox", undo=True, device_scale_factor=1.5, reduced_motion="reduce", **PHONE
    )
    row = page.get_by_test_id("row").filter(has_text="Deploy version 2.1.0").first
    expect(row).to_be_visible()
    recording = Recording(page)
    recording.show(3)
    row.click()
    approve = page.get_by_role("button", name="Approve")
    expect(approve).to_be_visible()
    recording.show(3)
    box = page.locator(".request-scroll")
    for _ in range(6):
        box.evaluate("(box) => box.scrollBy(0, 60)")
        page.wait_for_timeout(60)
        recording.show(0.25)
    turn_pages(page)
    expect(approve).to_be_enabled()
    recording.show(2.5)
    approve.click()
    expect(page.get_by_role("button", name="Undo")).to_be_visible()
    recording.show(4)
    demo.final(chat)
    page.get_by_role("button", name="What really ran").click()
    expect(page.locator(".inbox-effects")).to_contain_text("2.1.0")
    expect(page.locator(".toast")).to_have_count(0)
    recording.show(5)
    assert [tool for tool, _ in demo.ran()] == ["deploy_to_production"]
    keep(recording, page, "phone-approval.webp", tmp_path, demo)


@pytest.fixture
def shell(tmp_path: Path) -> Run:
    """Return a function that runs a command in a folder with the script of a refund."""
    (tmp_path / "refund.py").write_text(REFUND)
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "HOME": str(tmp_path), "PATH": programs, "COLUMNS": "96"}

    def run(command: str) -> str:
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True
        )
        return done.stdout + done.stderr

    return run


def short(text: str) -> str:
    """Return the first sentence, which is enough on a picture."""
    return text.split(". ")[0] + "\n"


def approve(terminal: Terminal, shell: Run) -> str:
    """Ask for the refund, list it and approve it. Return the id of the request."""
    terminal.type("python refund.py")
    terminal.print(short(shell("python refund.py")), 1.5)
    terminal.type("sayso inbox")
    terminal.print(shell("sayso inbox"), 2)
    (request,) = json.loads(shell("sayso inbox --json"))["items"]
    command = f"sayso approve {request['id'][:10]} --digest {request['digest']}"
    terminal.type(command)
    approved = shell(command)
    assert "Approved" in approved
    terminal.print(approved, 1.5)
    return str(request["id"])


def test_pictures_of_a_killed_process(
    demo: Demo, open_page: Open, shell: Run, tmp_path: Path
) -> None:
    page = open_page("about:blank", **SCREEN)
    terminal = Terminal(page)
    request = approve(terminal, shell)
    (tmp_path / "slow").touch()
    terminal.type("python refund.py &")
    programs = {**os.environ, "HOME": str(tmp_path)}
    log = tmp_path / "bank.log"
    with subprocess.Popen([sys.executable, "refund.py"], cwd=tmp_path, env=programs) as child:
        until(log.exists)
        child.send_signal(signal.SIGKILL)
    (tmp_path / "slow").unlink()
    terminal.type("kill -9 %1    # the bank has the money, nobody has the answer")
    assert child.returncode == -signal.SIGKILL
    terminal.print("[1]+  Killed    python refund.py", 1.5)
    until(lambda: "doubt" in (shell("python refund.py"), shell("sayso inbox"))[1])
    terminal.type("sayso inbox")
    terminal.print(shell("sayso inbox"), 2.5)
    (doubt,) = json.loads(shell("sayso inbox --json"))["items"]
    assert (doubt["id"], doubt["kind"]) == (request, "in_doubt")
    answer = "--text 'Refunded 120 euros for order A-17'"
    command = f"sayso respond {doubt['id'][:10]} --digest {doubt['digest']} {answer}"
    terminal.type(command)
    terminal.print(shell(command), 1.5)
    terminal.type("python refund.py")
    result = shell("python refund.py")
    assert result == "Refunded 120 euros for order A-17\n"
    terminal.print(result, 2)
    terminal.type("cat bank.log    # paid once")
    paid = shell("cat bank.log")
    assert paid == "paid 120 euros for order A-17\n"
    terminal.print(paid, 4)
    keep(terminal.recording, page, "killed.webp", tmp_path, demo)


def test_pictures_of_a_forged_row(demo: Demo, open_page: Open, shell: Run, tmp_path: Path) -> None:
    page = open_page("about:blank", **SCREEN)
    terminal = Terminal(page)
    terminal.type("python refund.py")
    terminal.print(short(shell("python refund.py")), 2.5)
    terminal.type("sayso inbox")
    terminal.print(shell("sayso inbox"), 2.5)
    terminal.type(f'sqlite3 sayso.db "{FORGE}"')
    (tmp_path / "forge.py").write_text(
        f'import sqlite3\nwith sqlite3.connect("sayso.db") as file: file.execute("""{FORGE}""")\n'
    )
    terminal.print(shell("python forge.py"), 2)
    terminal.type("python refund.py")
    refused = shell("python refund.py")
    assert refused.startswith("Tampered: ")
    terminal.print(refused, 3.5)
    terminal.type("cat bank.log")
    nothing = shell("cat bank.log")
    assert "No such file" in nothing
    terminal.print(nothing, 2)
    terminal.type("sayso audit verify")
    terminal.print(shell("sayso audit verify"), 4)
    keep(terminal.recording, page, "forged.webp", tmp_path, demo)
