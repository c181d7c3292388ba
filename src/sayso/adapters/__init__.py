"""Adapters: one package per framework or wire protocol, each imported only by its users.

They do not know each other. What they share is in ``conversation.py``, the log of a thread.
Start with ``guard.py`` of the framework that you know; all of them have the same shape.
"""
