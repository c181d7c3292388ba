"""The README's first block, killed while the tool runs: twice without Sayso, once with it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import until

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parent.parent.parent
README = (ROOT / "README.md").read_text("utf-8")
BLOCK = README.split("```python\n")[1].split("```")[0]

#: A scripted model, a bank whose transfer never returns while it is "killed", and the two agents.
CHILD = f"""
import sys, time
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command
{BLOCK}
class Model(GenericFakeChatModel):
    def bind_tools(self, tools, **kwargs): return self
    def _generate(self, messages, *args, **kwargs):
        call = {{"name": "refund", "args": {{"order": "A-17", "euros": 120}}, "id": "call_1"}}
        done = isinstance(messages[-1], ToolMessage)
        answer = AIMessage("Refunded.") if done else AIMessage("", tool_calls=[call])
        self.messages = iter([answer])
        return super()._generate(messages, *args, **kwargs)

class Bank:
    def pay(self, order, euros):
        with open("bank.log", "a") as log: log.write(f"{{euros}} for {{order}}\\n")
        if step == "killed": time.sleep(60)
        return "receipt"

side, step = sys.argv[1:]
config = {{"configurable": {{"thread_id": "t"}}}}
with SqliteSaver.from_conn_string("agent.db") as saver:
    if side == "before":
        agent = before(Model(messages=iter([])), Bank(), saver)
        if step == "killed":
            agent.invoke({{"messages": [("user", "Refund A-17")]}}, config)
            agent.invoke(Command(resume="approve"), config)
        print(agent.invoke(None, config)["messages"][-1].text)
    else:
        gate = sayso.Gate("sayso.db", wait=0, lease=0.5)
        agent = after(Model(messages=iter([])), Bank(), saver, gate)
        if step == "killed":
            paused = agent.run_sync("Refund A-17", thread="t")
            sayso.Inbox("sayso.db").approve_sync(paused.interruptions[0], by="ana")
        result = agent.resume_sync("t")
        print(result.status, *(request.kind for request in result.interruptions))
"""


@pytest.mark.parametrize(
    ("side", "paid", "said"), [("before", 2, "Refunded."), ("after", 1, "paused in_doubt")]
)
def test_killed_refund_is_paid(side: str, paid: int, said: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", CHILD, side]
    log = tmp_path / "bank.log"
    with subprocess.Popen([*command, "killed"], cwd=tmp_path) as child:
        until(lambda: log.exists() or child.poll() is not None)
        child.send_signal(signal.SIGKILL)
    assert child.returncode == -signal.SIGKILL
    until(lambda: (ran := resumed(command, tmp_path)) and ran == said)
    assert log.read_text() == "120 for A-17\n" * paid


def resumed(command: list[str], folder: Path) -> str:
    """Return what another process says that resumes, once the dead one's lease has lapsed."""
    done = subprocess.run([*command, "resumed"], cwd=folder, capture_output=True, text=True)
    return done.stdout.strip()


def test_block_is_about_twelve_lines_a_side() -> None:
    before, after = BLOCK.split("def before")[1].split("def after")
    assert len(before.strip().splitlines()) + len(after.strip().splitlines()) <= 20
    assert re.search(r"^\| the bank pays \| twice: .* \| once \|$", README, re.M)
