"""AG-UI: any front end that speaks it in front, a Sayso agent behind, over server-sent events.

    events = await ag_ui.stream(body, agent, by=person)     # POST: a RunAgentInput

It raises its ``SaysoError`` when awaited, before the first event. Events are text to send as it
comes, with ``HEADERS``.

A thread of AG-UI is a thread here, and an interrupt is a request. Each POST is one run of AG-UI;
one run of ours goes through several of them. Only new user text and decisions (``resume``) are
taken from a POST: messages, tools, state and context that a client sends never reach the model, and
``forwardedProps`` are ignored. A POST with neither is a reload: it gets the whole conversation and
the open interrupts.

Read ``chat.py`` first, then ``events.py``. What other wires share is in ``sayso.adapters.chat``.
"""

from sayso.adapters.ag_ui.chat import stream
from sayso.adapters.ag_ui.events import HEADERS

__all__ = ["HEADERS", "stream"]
