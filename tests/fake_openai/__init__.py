"""A local server that speaks, and checks, the wire format of OpenAI's two APIs.

``server`` plays a script; ``rules`` rejects what OpenAI rejects; ``bodies`` and ``items`` write the
replies.
"""

from fake_openai.server import Cut, FakeOpenAI, HttpError, Output, Raw, Slow

__all__ = ["Cut", "FakeOpenAI", "HttpError", "Output", "Raw", "Slow"]
