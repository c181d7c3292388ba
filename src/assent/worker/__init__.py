"""Taking due runs further, in the server's process or on machines of their own."""

from assent.worker.worker import Worker

__all__ = ["Worker"]
