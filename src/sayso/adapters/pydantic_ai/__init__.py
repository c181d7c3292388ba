"""pydantic-ai at a gate: a capability that gates any tool, and an agent that is kept.

    guarded = guard(agent, gate)                      # what `sayso serve` and `sayso worker` take
    stands = await guarded.run("Pay Ana", thread="t-1")
    stands = await guarded.resume("t-1")              # anywhere, after somebody has decided

``Gated`` alone, in ``Agent(capabilities=[Gated(gate)])``, keeps the framework's own flow: a run
ends with ``DeferredToolRequests``, and goes on with ``DeferredToolResults``.

It meets the framework at two of its hooks. ``get_wrapper_toolset`` stands around the tools, inside
all other hooks, so that what people are shown is what the tool would get (``toolset.py``).
``wrap_model_request`` keeps the conversation, before a call of a reply is made (``messages.py``).
"""

try:
    import pydantic_ai as _pydantic_ai  # noqa: F401
except ImportError as error:
    raise ImportError(
        'pydantic-ai is not installed: pip install "sayso[pydantic-ai]"', name=error.name
    ) from error

from sayso.adapters.pydantic_ai.gated import Gated
from sayso.adapters.pydantic_ai.guarded import Guarded, guard, resume

__all__ = ["Gated", "Guarded", "guard", "resume"]
