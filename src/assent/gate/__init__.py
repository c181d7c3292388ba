"""The door for agents."""

from assent.gate.gate import Gate

__all__ = ["Gate"]
