"""The Vercel AI SDK wire: ``useChat`` in front, a Sayso agent behind, in UI message stream v1.

    frames = await ai_sdk.stream(body, agent, by=person)           # POST: new words, or decisions
    frames = await ai_sdk.follow(agent, chat_id, by=person)        # GET …/stream; None is a 204
    history = await ai_sdk.messages(agent, chat_id, by=person)     # the whole chat, for first paint

All three refuse with a ``SaysoError`` when they are awaited, before the first frame; who needs no
such answer may read ``ai_sdk.stream(…)`` right away (``async for``). Frames are text to send as it
comes, with ``HEADERS``; those that are due at the same moment come together, and the last text ends
with ``DONE``.

Only new words and decisions are taken from what a browser posts. Everything that it shows comes
from the store: a chat is a thread, an answer is a run, a card is a request. What the browser holds
is compared with what is stored, and the difference is streamed; so a double click, a stale card, a
decision made elsewhere and a reload all end in the same picture.
"""

from sayso.adapters.ai_sdk.chat import follow, messages, stream
from sayso.adapters.ai_sdk.recipe import APPROVAL, tools_requiring_confirmation
from sayso.adapters.ai_sdk.wire import DONE, HEADERS

__all__ = [
    "APPROVAL",
    "DONE",
    "HEADERS",
    "follow",
    "messages",
    "stream",
    "tools_requiring_confirmation",
]
