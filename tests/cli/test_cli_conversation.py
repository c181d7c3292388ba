"""``sayso chat`` without a terminal: one message from a script, and loading agents."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from chat_world import DEMO, YOU, agent_file, pending, ran, script, talk
from cli_world import World

# -- no terminal


@pytest.mark.long
def test_message_may_come_from_pipe(world: World) -> None:
    printed = script(world, DEMO, code=0, stdin="What time is it in Oslo?\n")
    assert "✓ getLocalTime ran" in printed
    assert "Final answer: It is 10am in Oslo." in printed


@pytest.mark.long
def test_pause_on_pipe_exits_with_3(world: World) -> None:
    printed = script(world, DEMO, "--thread", "t", code=3, stdin="weather\na\na\n")
    (request,) = pending(world)
    assert f"… getWeatherInformation needs a decision: {request}" in printed
    assert "To decide: sayso inbox --decide" in printed
    assert f"To continue: sayso chat {DEMO} --thread t --store {world.url}" in printed
    assert world.get(request).status == "pending"
    assert script(world, DEMO, "--thread", "t", code=3).count(request) == 1
    world.cli("approve", request, "--digest", world.get(request).digest)
    assert "Final answer: The weather" in script(world, DEMO, "--thread", "t", code=0)
    assert len(ran(world)) == 1


@pytest.mark.long
def test_json_for_scripts(world: World) -> None:
    args = (DEMO, "--thread", "t", "--json")
    paused = json.loads(script(world, *args, "--message", "Delete old records", code=3))
    assert (paused["status"], paused["thread"], paused["output"]) == ("paused", "t", None)
    (request,) = paused["interruptions"]
    assert (request["tool"], request["allowed"]) == ("execute_sql", ["approve", "reject"])
    world.cli("reject", request["id"], "--message", "no")
    done = json.loads(script(world, *args, code=0))
    assert (done["status"], done["run"], done["interruptions"]) == ("done", paused["run"], [])
    assert done["output"].startswith("Final answer: ")


def test_nothing_to_say_is_a_usage_error(world: World) -> None:
    assert "pass --message TEXT" in script(world, DEMO, code=2)


@pytest.mark.long
def test_run_that_fails_is_code_1(world: World) -> None:
    agent_file(world, 'say("cut", finish="length")')
    assert "The run is failed" in script(world, "mine:agent", "--message", "hi", code=1)


@pytest.mark.long
def test_there_is_no_prompt_in_ci(world: World) -> None:
    person = talk(world, "--message", "weather", CI="true")
    assert "getWeatherInformation needs a decision" in person.ends(3)
    assert len(pending(world)) == 1


# -- which agent


@pytest.mark.parametrize(
    ("target", "code", "says"),
    [
        ("nowhere", 2, "'nowhere' does not name an agent: write it as module:attribute"),
        ("no.such:agent", 4, "there is no module 'no.such'"),
        ("sayso.demo:nobody", 4, "module 'sayso.demo' has no attribute 'nobody'"),
        ("os:sep", 2, "os:sep is a str, not a sayso.Agent"),
        ("sayso:Agent", 2, "sayso:Agent is the class Agent, not"),
        ("os:getcwd", 2, "os:getcwd() returned a str, not a sayso.Agent"),
        ("broken:agent", 2, "module 'broken' cannot be imported: ValueError: oh no"),
        ("lacking:agent", 2, "cannot be imported: ModuleNotFoundError: No module named 'nowhere_'"),
        ("awaited:agent", 2, "awaited:agent is an async function: use a plain one"),
        ("failing:agent", 2, "failing:agent() failed: KeyError: 'x'"),
        ("theirs:agent", 2, "needs a sayso.Agent. Start it in Python with its run(...)"),
    ],
)
def test_wrong_target_is_one_clear_line(world: World, target: str, code: int, says: str) -> None:
    (world.folder / "broken.py").write_text("raise ValueError('oh no')\n")
    (world.folder / "lacking.py").write_text("import nowhere_\n")
    (world.folder / "failing.py").write_text("def agent(): return {}['x']\n")
    (world.folder / "awaited.py").write_text("async def agent(): ...\n")
    (world.folder / "theirs.py").write_text(
        "import sayso\nfrom sayso.gate.framework import FrameworkAgent\n"
        "gate = sayso.Gate('memory://', agent='theirs')\n"
        "agent = FrameworkAgent(gate, sayso.Inbox(gate.store))\n"
    )
    printed = script(world, target, "--message", "hi", code=code)
    assert printed.startswith("sayso: ")
    assert says in printed
    assert printed.count("\n") == 1


@pytest.mark.long
def test_agent_keeps_its_named_store(world: World, tmp_path: Path) -> None:
    (world.folder / "own.py").write_text(
        f"import sayso.demo\nagent = sayso.demo.agent('sqlite:///{tmp_path}/own.db')\n"
    )
    script(world, "own:agent", "--message", "time", code=0)
    assert (tmp_path / "own.db").exists()
    assert not (tmp_path / "sayso.db").exists()


@pytest.mark.long
def test_thread_of_another_agent_is_refused(world: World) -> None:
    agent_file(world, 'say("Hello.")')
    script(world, "mine:agent", "--thread", "t", "--message", "hi", code=0)
    assert "belongs to agent" in talk(world).ends(5)


@pytest.mark.long
def test_pending_requests_include_those_of_sub_agents(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world.folder)
    agent_file(
        world,
        "call('helper', {'input': 'go'}), say('Done.')",
        "@sayso.tool(needs_approval=True)\n"
        "def pay(): return 'paid'\n"
        "helper = sayso.Agent('helper', model=ScriptedModel([call('pay', {})]), tools=[pay])\n"
        "work = helper.as_tool()\n",
    )
    beside = world.mail("a/b")
    person = world.person("chat", "mine:agent", "--thread", "a")
    person.at_prompt("go", YOU)
    person.at_prompt("s")
    person.at_prompt("/quit", YOU)
    assert "1 request needs a decision. The run is paused." in person.ends(75)
    assert beside in pending(world)
    assert len(pending(world)) == 2


def test_second_control_c_ends_stuck_tool(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world.folder)
    body = "@sayso.tool\ndef work():\n    print('BEGAN', flush=True)\n    time.sleep(60)\n"
    agent_file(world, "call('work', {}), say('Done.')", body)
    person = world.person("chat", "mine:agent", "--thread", "t")
    person.at_prompt("go", YOU)
    person.sees("BEGAN")
    person.process.sendintr()
    person.sees("Ctrl-C to cut it short")
    person.process.sendintr()
    screen = person.ends(75)
    assert "1 request needs a decision." in screen
    assert "To continue: sayso chat mine:agent" in screen
    (doubt,) = world.json("inbox")["items"]
    assert doubt["kind"] == "in_doubt"


def test_control_c_on_pipe_ends_stuck_tool(world: World) -> None:
    body = "@sayso.tool\ndef work():\n    print('BEGAN', flush=True)\n    time.sleep(60)\n"
    agent_file(world, "call('work', {}), say('Done.')", body)
    command = [sys.executable, "-m", "sayso", "chat", "mine:agent", "--message", "go"]
    with subprocess.Popen(
        [*command, "--store", world.url], cwd=world.folder, stdout=subprocess.PIPE, text=True
    ) as talking:
        assert talking.stdout is not None
        while "BEGAN" not in talking.stdout.readline():
            assert talking.poll() is None
        talking.send_signal(signal.SIGINT)
        assert talking.wait(60) == 75
    (doubt,) = world.json("inbox")["items"]
    assert doubt["kind"] == "in_doubt"
