"""Workers: resume runs that are ready, in the server's process or on machines of their own.

Read ``worker`` first; ``steps`` is what it logs and counts; ``temporal`` lets Temporal decide when
and where a run is resumed.
"""

from sayso.worker.worker import Worker

__all__ = ["Worker"]
