"""The Vercel AI SDK: ``useChat`` in front, a Sayso agent behind, over UI message stream v1.

    frames = await ai_sdk.stream(body, agent, by=person)           # POST: new input, or decisions
    frames = await ai_sdk.follow(agent, chat_id, by=person)        # GET …/stream; None is a 204
    history = await ai_sdk.messages(agent, chat_id, by=person)     # the whole chat, for first paint

Each raises its ``SaysoError`` when awaited, before the first frame. If you do not need that,
iterate over ``ai_sdk.stream(…)`` directly with ``async for``. Frames are text to send as it comes,
with ``HEADERS``. Frames that are due at the same moment come together, and the last text ends with
``DONE``.

Only new input and decisions are taken from what a browser posts. Everything that it shows comes
from the store: a chat is a thread, an answer is a run, a card is a request. The adapter compares
what the browser shows with what is stored, and streams the difference. So a double click, a stale
card, a decision made elsewhere and a reload all end in the same picture.

Read ``chat.py`` first, then ``response.py`` and ``views.py``. What other wires share is in
``sayso.adapters.chat``.
"""

from sayso.adapters.ai_sdk.chat import follow, messages, stream
from sayso.adapters.ai_sdk.views import APPROVAL, DONE, HEADERS, tools_requiring_confirmation

__all__ = [
    "APPROVAL",
    "DONE",
    "HEADERS",
    "follow",
    "messages",
    "stream",
    "tools_requiring_confirmation",
]
