"""Taking due runs further, in the server's process or on machines of their own."""

from sayso.worker.worker import Worker

__all__ = ["Worker"]
