"""Is the record whole? ``verify`` names what is not, ``export`` writes it for others to check.

What each part proves:

* An event's *hash* covers its fields and the hash before it. With an HMAC key nobody without the
  key can write one; with Ed25519 keys anybody can, and the seals protect it.
* An event's *digest* covers its body, so that a body may be forgotten (``prune``) and the chain
  still holds; only a ``pruned`` event makes a missing body legal.
* A thread's *mac* proves where its chain ends: rows that were cut off the end are missed.
* A *seal* signs the heads of the chains that moved, and the seal before it: whole threads are
  missed, and a chain that was written anew does not fit.
* Calls, grants and tokens are rows that change; each must be what the events make of it.

What came after the last seal is proved by the chains alone; ``Report.unsealed`` counts it.
"""

from sayso.audit.export import export
from sayso.audit.report import Problem, Report
from sayso.audit.verify import verify

__all__ = ["Problem", "Report", "export", "verify"]
