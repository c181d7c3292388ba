"""The OpenAI Agents SDK at a gate.

    guarded = guard(agent, gate)                      # what `sayso serve` and `sayso worker` take
    stands = await guarded.run("Pay Ana", thread="t-1")
    stands = await guarded.resume("t-1")              # anywhere, after somebody has decided

The SDK's ``Runner`` makes every step. It meets us in two places: at each tool, where
``needs_approval`` puts the call to the gate and the invocation runs what the gate has stored
(``tools.py``), and at the model, whose replies are kept before the calls in them are made
(``model.py``). A pause is the SDK's own: its ``RunState`` is kept with the run (``states.py``).
"""

try:
    import agents as _agents  # noqa: F401
except ImportError as error:
    raise ImportError(
        'this adapter needs the OpenAI Agents SDK: pip install "sayso[openai-agents]"'
    ) from error

from sayso.adapters.openai_agents.asking import ask_user
from sayso.adapters.openai_agents.guarded import Guarded, guard, resume
from sayso.adapters.openai_agents.streaming import Stream

__all__ = ["Guarded", "Stream", "ask_user", "guard", "resume"]
