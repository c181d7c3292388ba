"""What the chat wires share: a thread of ``sayso.Agent``, and a response that follows one run.

Read ``threads.py`` first, then ``views.py``, ``response.py`` and ``live.py``. The wires are
``sayso.adapters.ai_sdk`` and ``sayso.adapters.ag_ui``; each has its own messages, and its own way
to say what a person decided.
"""
