"""The gate: what agents and any other code call to ask first and run once.

Read ``driver`` (the life of a call) with ``plan`` (what to run, and the re-check before the start)
and ``backend`` (rows in a store); then ``gate``, ``guard``, ``options`` and ``scope`` (the public
face), ``lease`` (one process per run), ``outcomes``, ``run_result``, and for adapters ``coverage``
and ``framework``.
"""

from sayso.gate.gate import Gate

__all__ = ["Gate"]
