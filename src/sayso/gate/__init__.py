"""The door for agents."""

from sayso.gate.gate import Gate

__all__ = ["Gate"]
