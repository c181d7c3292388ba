"""Approvals for the Claude Agent SDK.

    guarded = guard(options, gate, tools=[pay, look])   # for `sayso serve` and `sayso worker`
    result = await guarded.run("Pay Ana", thread="t-1")
    result = await guarded.resume("t-1")                # in any process, after the decision

Claude Code, the program inside the SDK, makes every step. The adapter has three hooks in it:

* ``PreToolUse`` sees every call, of any tool, before it is made, and asks at the gate;
* ``can_use_tool`` asks about what Claude Code's own permissions would ask about;
* ``PostToolBatch`` ends the turn before the model is called again, if a call waits for a decision.

``tools`` are the SDK's in-process tools. The gate runs them: the stored arguments, once. All other
tools (Bash, Edit, MCP servers) are run by Claude Code, after the gate has allowed the call. Their
calls are gated, but that they run once is up to Claude Code.

Read ``guard.py`` first, then ``messages.py``.
"""

from sayso.adapters import require

require("claude-agent", "claude_agent_sdk", "this adapter needs the Claude Agent SDK")

from sayso.adapters.agents import resume
from sayso.adapters.claude_agent.guard import Guarded, guard, install

__all__ = ["Guarded", "guard", "resume"]

install()
