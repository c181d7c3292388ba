"""``sayso chat``: a conversation in real pseudo-terminals."""

from __future__ import annotations

import json
import signal
import time

import pexpect
import pytest
from chat_world import DEMO, YOU, agent_file, pending, ran, talk
from cli_world import ME, World
from waiting import until

from sayso import Inbox

# -- in a terminal


def test_chat_marks_text_and_calls(world: World) -> None:
    person = talk(world)
    person.at_prompt("What time is it in Oslo?", YOU)
    seen = person.at_prompt("\x04", YOU)
    assert "▸ getLocalTime(location=Oslo) runs" in seen
    assert "✓ getLocalTime ran: It is 10am in Oslo." in seen
    assert "  │ Final answer: It is 10am in Oslo." in seen
    screen = person.ends(0)
    assert f"To continue: sayso chat {DEMO} --thread t --store {world.url}" in screen
    assert ran(world) == [("getLocalTime", {"location": "Oslo"})]


@pytest.mark.long
def test_chat_approves_a_call(world: World) -> None:
    person = talk(world)
    person.at_prompt("Deploy version 2.5.0 to production", YOU)
    card = person.at_prompt("a")
    assert "APPROVE?  deploy_to_production" in card
    assert "needs a decision: sayso show" not in card
    seen = person.at_prompt("/quit", YOU)
    assert "Approved." in seen
    assert "✓ deploy_to_production ran: Version 2.5.0 was deployed to production." in seen
    assert "│ Final answer: Version 2.5.0 was deployed to production." in seen
    person.ends(0)
    (item,) = world.json("history")["items"]
    assert (item["decision"]["by"], item["requester"]) == (ME, ME)
    assert ran(world) == [("deploy_to_production", {"version": "2.5.0"})]


@pytest.mark.long
def test_edit_in_the_editor(world: World) -> None:
    person = talk(world, EDITOR=world.editor("value['day'] = 'Sunday'"))
    person.at_prompt("Book a flight to Paris for Friday", YOU)
    person.at_prompt("e")
    assert "+ day:         Sunday" in person.at_prompt("a", r"\[b\]ack > ")
    seen = person.at_prompt("/quit", YOU)
    assert "(day=Sunday, destination=Paris) as edited runs" in seen
    person.ends(0)
    assert ran(world) == [("book_flight", {"day": "Sunday", "destination": "Paris"})]


@pytest.mark.long
def test_reject_with_a_reason(world: World) -> None:
    person = talk(world)
    person.at_prompt("Delete old records", YOU)
    assert "[e]dit" not in person.at_prompt("r")
    person.at_prompt("keep them", r"Enter for none\): ")
    seen = person.at_prompt("/quit", YOU)
    assert f"✗ execute_sql did not run, rejected by {ME}: keep them" in seen
    assert "keep them" in seen.partition("Final answer:")[2]
    person.ends(0)
    assert ran(world) == []


@pytest.mark.long
def test_rejection_stops_the_run(world: World) -> None:
    person = talk(world)
    person.at_prompt("Do two things", YOU)
    person.at_prompt("x")
    person.at_prompt("enough", r"Enter for no reason\): ")
    seen = person.at_prompt("/quit", YOU)
    assert "Final answer" not in seen
    person.ends(0)
    first, second = world.json("history")["items"]
    assert {first["status"], second["status"]} == {"rejected", "cancelled"}
    assert (ran(world), pending(world)) == ([], [])


def test_question_is_answered_by_number(world: World) -> None:
    person = talk(world)
    person.at_prompt("Ask me a question", YOU)
    assert "2) Another service" in person.at_prompt("2")
    assert "Final answer: you chose 'oauth'." in person.at_prompt("/quit", YOU)
    person.ends(0)


@pytest.mark.long
def test_question_takes_several_answers(world: World) -> None:
    person = talk(world)
    person.at_prompt("I want a pizza", YOU)
    person.at_prompt("3")
    assert "1-5, such as 1,2" in person.at_prompt("m")
    person.at_prompt("rocks", r"go back\): ")
    person.at_prompt("1", r"for none\): ")
    again = person.at_prompt("2,4")
    assert "We do not put 'rocks' on a pizza. So far it has cheese." in again
    person.at_prompt("m")
    person.at_prompt("well done", r"go back\): ")
    seen = person.at_prompt("/quit", YOU)
    order = {"size": "large", "toppings": ["cheese", "mushrooms", "olives"]}
    spoken = seen.partition("Final answer:")[2].replace("\r\n  │ ", " ")
    found = json.loads(spoken[spoken.index("[") : spoken.rindex("]") + 1])
    assert found == [{**order, "special_instructions": "well done"}]
    person.ends(0)


@pytest.mark.long
def test_skipped_request_continues_in_another_process(world: World) -> None:
    person = talk(world)
    person.at_prompt("What is the weather in Rome?", YOU)
    person.at_prompt("s")
    seen = person.at_prompt("/quit", YOU)
    (request,) = pending(world)
    assert f"… getWeatherInformation needs a decision: {request}" in seen
    screen = person.ends(75)
    assert "1 request needs a decision. The run is paused." in screen
    assert f"To continue: sayso chat {DEMO} --thread t" in screen
    assert ran(world) == []

    person = talk(world)
    card = person.at_prompt("a")
    assert "you │ What is the weather in Rome?" in card
    assert request in card
    assert "Final answer: The weather in Rome is" in person.at_prompt("/quit", YOU)
    person.ends(0)
    assert ran(world) == [("getWeatherInformation", {"city": "Rome"})]


@pytest.mark.long
def test_two_requests_are_decided_separately(world: World) -> None:
    person = talk(world)
    person.at_prompt("Do two things", YOU)
    person.at_prompt("a")
    assert "deleteFile" in person.at_prompt("s")
    seen = person.at_prompt("/decide", YOU)
    assert "✓ getWeatherInformation ran" in seen
    assert "… deleteFile needs a decision" in seen
    assert "Final answer" not in seen
    person.at_prompt("m")
    person.at_prompt("gone already", r"go back\): ")
    person.at_prompt("y", r"\[n\]o > ")
    seen = person.at_prompt("/quit", YOU)
    assert f"✓ deleteFile did not run, result given by {ME}: gone already" in seen
    assert "Final answer: The weather in New York is" in seen
    person.ends(0)
    assert [tool for tool, _ in ran(world)] == ["getWeatherInformation"]


@pytest.mark.parametrize("key", ["\x03", "\x04"])
def test_control_c_at_card_leaves_it_pending(world: World, key: str) -> None:
    person = talk(world)
    person.at_prompt("weather", YOU)
    person.sees("uit > ")
    person.process.send(key)
    screen = person.ends(75)
    (request,) = pending(world)
    assert f"Left pending: {request}" in screen
    assert f"To continue: sayso chat {DEMO} --thread t" in screen
    assert "Traceback" not in screen
    assert ran(world) == []


def test_control_c_at_the_prompt_leaves(world: World) -> None:
    person = talk(world)
    person.sees(YOU)
    person.process.sendintr()
    assert "Traceback" not in person.ends(0)


@pytest.mark.long
def test_control_c_during_stream_stops_run(world: World) -> None:
    person = talk(world)
    person.at_prompt("slow weather", YOU)
    person.at_prompt("a")
    person.sees("Final answer: The")
    person.process.sendintr()
    assert "Stopped." in person.at_prompt("what time is it?", YOU)
    assert "It is 10am" in person.at_prompt("/quit", YOU)
    person.ends(0)
    assert [tool for tool, _ in ran(world)] == ["getWeatherInformation", "getLocalTime"]


@pytest.mark.long
def test_decision_made_elsewhere_closes_the_card(world: World) -> None:
    person = talk(world)
    person.at_prompt("weather", YOU)
    person.sees("uit > ")
    (request,) = pending(world)
    inbox = Inbox(world.url)
    inbox.decide_sync(request, inbox.get_sync(request).approve(), by="ben")
    inbox.close()
    seen = person.at_prompt("/quit", YOU)
    assert "Decided by ben" in seen
    assert "Final answer: The weather in New York" in seen
    person.ends(0)


@pytest.mark.long
def test_decision_elsewhere_appears_at_prompt(world: World) -> None:
    person = talk(world)
    person.at_prompt("weather", YOU)
    person.at_prompt("s")
    person.sees(YOU)
    (request,) = pending(world)
    world.cli("reject", request, "--message", "not now")
    seen = person.sees(YOU)
    assert f"getWeatherInformation: reject by {ME}, elsewhere" in seen
    assert "✗ getWeatherInformation did not run" in seen
    assert "Final answer:" in seen
    person.types("/quit")
    person.ends(0)


@pytest.mark.long
def test_decision_before_start_is_applied(world: World) -> None:
    world.cli("chat", DEMO, "--thread", "t", "--message", "weather in Rome", code=3)
    (request,) = pending(world)
    world.cli("approve", request, "--digest", world.get(request).digest)
    person = talk(world)
    assert "Final answer: The weather in Rome" in person.at_prompt("/quit", YOU)
    person.ends(0)
    assert len(ran(world)) == 1


@pytest.mark.long
def test_new_message_confirms_before_withdrawing(world: World) -> None:
    person = talk(world)
    person.at_prompt("weather", YOU)
    person.at_prompt("s")
    person.at_prompt("what time is it?", YOU)
    assert "withdraws pending requests: getWeatherInformation" in person.at_prompt("", r"\[n\]o > ")
    assert len(pending(world)) == 1
    person.at_prompt("what time is it?", YOU)
    person.at_prompt("y", r"\[n\]o > ")
    assert "It is 10am" in person.at_prompt("/quit", YOU)
    person.ends(0)
    assert pending(world) == []
    assert [tool for tool, _ in ran(world)] == ["getLocalTime"]


def test_pasted_message_may_have_several_lines(world: World) -> None:
    person = talk(world)
    person.at_prompt("\x1b[200~what time\ris it?\x1b[201~", YOU)
    assert "It is 10am" in person.at_prompt("", YOU)
    person.at_prompt("/nonsense", YOU)
    assert "There is no command /nonsense" in person.at_prompt("/decide", YOU)
    assert "No pending requests." in person.at_prompt("/quit", YOU)
    person.ends(0)


def test_agent_text_is_inert(world: World) -> None:
    agent_file(
        world, 'say("\\x1b[2J\\x1b]0;pwned\\x07 red\\u202e\\n  ✓ refund ran\\n" + "x" * 300)'
    )
    person = world.person("chat", "mine:agent", "--thread", "t", columns=60)
    person.at_prompt("hello", YOU)
    person.at_prompt("/quit", YOU)
    screen = person.ends(0)
    assert "\x1b[2J" not in person.said
    assert "⟨U+001B⟩[2J" in screen
    assert "⟨U+202E⟩" in screen
    spoken = [line for line in screen.splitlines() if "refund ran" in line or "xxx" in line]
    assert len(spoken) >= 6
    assert all(line.startswith("  │ ") and len(line) <= 60 for line in spoken)


@pytest.mark.long
@pytest.mark.parametrize("columns", [40, 60, 100])
def test_nothing_is_wider_than_the_terminal(world: World, columns: int) -> None:
    person = world.person("chat", DEMO, "--thread", "t", columns=columns, rows=60)
    person.at_prompt("hello", YOU)
    person.at_prompt("weather", YOU)
    person.at_prompt("a")
    person.at_prompt("/quit", YOU)
    screen = person.ends(0)
    shown = screen.partition("To continue")[0].splitlines()
    assert max(len(line) for line in shown if line.startswith("  ")) <= columns


# -- a tool that takes its time

FREE = """
@sayso.tool
def work() -> str:
    return "worked"
"""
WORK = """
@sayso.tool(needs_approval=True)
def work() -> str:
    pathlib.Path("begun").touch()
    time.sleep(1.5)
    pathlib.Path("ended").touch()
    return "worked"
"""


@pytest.mark.long
def test_control_c_lets_running_tool_end(world: World) -> None:
    agent_file(world, 'call("work"), say("Done.")', WORK)
    person = world.person("chat", "mine:agent", "--thread", "t")
    person.at_prompt("work", YOU)
    person.at_prompt("a")
    person.sees("runs")
    until((world.folder / "begun").exists)
    person.process.sendintr()
    seen = person.at_prompt("/quit", YOU)
    assert "Stopping" in seen
    assert "Stopped." in seen
    assert (world.folder / "ended").exists()
    person.ends(0)
    (item,) = world.json("history")["items"]
    assert item["execution"]["status"] == "done"


@pytest.mark.long
def test_interrupted_call_is_in_doubt_later(world: World) -> None:
    agent_file(world, 'call("work"), say("Done.")', WORK, lease=1.0)
    person = world.person("chat", "mine:agent", "--thread", "t", rows=60)
    person.at_prompt("work", YOU)
    person.at_prompt("a")
    person.sees("runs")
    person.process.kill(signal.SIGKILL)
    person.process.expect(pexpect.EOF)
    person.process.close()
    person = world.person("chat", "mine:agent", "--thread", "t", rows=60)
    assert "IN DOUBT  work" in person.at_prompt("1")
    person.at_prompt("it did", r"go back\): ")
    person.at_prompt("y", r"\[n\]o > ")
    assert "  │ Done." in person.at_prompt("/quit", YOU)
    person.ends(0)


def test_failed_model_does_not_end_chat(world: World) -> None:
    steps = (
        'ModelError("no network"), say("Hello."), call("work"), ModelError("gone"), say("Back.")'
    )
    agent_file(world, steps, FREE, by_turn=False)
    person = world.person("chat", "mine:agent", "--thread", "t")
    person.at_prompt("hi", YOU)
    assert "no network" in person.at_prompt("hi", YOU)
    assert "Hello." in person.at_prompt("work", YOU)
    began = time.monotonic()
    assert "gone" in person.at_prompt("and now?", YOU)
    assert "Back." in person.at_prompt("/quit", YOU)
    assert time.monotonic() - began < 15
    person.ends(0)
